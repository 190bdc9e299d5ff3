"""The house stays as drawn: top level, file sizes, docstrings of public modules, no forbidden names or paths."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "audit").rglob("*.py"))
TOP = {"pyproject.toml", "README.md", "audit", "templates", "tests", "examples", "Makefile", "LICENSE", "CHANGELOG.md"}


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return listed.stdout.splitlines()


def test_the_top_level_is_fixed():
    assert {path.partition("/")[0] for path in tracked() if not path.startswith(".")} == TOP


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_can_be_seen_whole(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 300
    assert path.stem not in {"utils", "helpers", "core", "common", "base", "manager"}
    assert text.lstrip().startswith(('"""', 'r"""'))


def test_no_path_of_one_machine():
    pattern = re.compile(r"(?<![\w.])/(?:root|home/\w+|workspace)/")
    for name in tracked():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".j2", ".css", ".js", ""} and path.is_file():
            assert not pattern.search(path.read_text(encoding="utf-8", errors="replace")), name


def test_public_names_are_few_and_import_nothing_heavy():
    code = "import sys, audit; assert len(audit.__all__) <= 10; assert not {'torch', 'mlflow', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_resolves():
    import audit

    for name in audit.__all__:
        assert getattr(audit, name) is not None
    with pytest.raises(AttributeError):
        audit.absent  # noqa: B018
