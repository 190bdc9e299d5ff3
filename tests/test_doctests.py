"""Every doctest of the package. Metrics' own are run in `metrics/`: they belong to a Metric, where doctest does not look."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import audit

MODULES = sorted(module.name for module in pkgutil.walk_packages(audit.__path__, "audit.") if module.name != "audit.__main__")


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
