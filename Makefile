# `make` shows what there is. Everything happens in .venv, or in the environment that VENV names.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TEST_STAMP := $(VENV)/.installed-test

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types contracts tests bench system clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

demo: $(STAMP) system ## Train, register, audit and rank two small models
	"$(BIN)/audit" demo

test: $(TEST_STAMP) system ## Install what the tests need and run them
	"$(BIN)/python" -m pytest -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

check: lint types contracts test ## Everything that CI checks

lint: $(TEST_STAMP)
	"$(BIN)/ruff" check .
	"$(BIN)/ruff" format --check .

types: $(TEST_STAMP)
	"$(BIN)/mypy"

contracts: $(TEST_STAMP)
	"$(BIN)/lint-imports"

bench: $(TEST_STAMP) ## Measure speed against peers (not part of CI)
	"$(BIN)/python" -m pytest tests/benchmarks -o addopts= -o python_files="*.py" -s

# WeasyPrint needs pango. Without it, and without a way to install it, the HTML report is made all the same.
system: $(STAMP)
	@"$(BIN)/python" -c "import weasyprint" >/dev/null 2>&1 || sh .ci/system-libraries

$(BIN)/python:
	$(PYTHON) -m venv "$(VENV)"

$(STAMP): $(BIN)/python pyproject.toml
	"$(BIN)/python" -m pip install --quiet -e .
	@touch "$@"

$(TEST_STAMP): $(STAMP)
	"$(BIN)/python" -m pip install --quiet -e '.[test]'
	@touch "$@"

clean: ## Remove the environment and everything built
	rm -rf "$(VENV)" dist build .demo
