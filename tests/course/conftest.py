"""What the tests of several chapters use."""

from __future__ import annotations

import linecache
import sys
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a source as a notebook cell does and returns what it calls `name`."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)

    def run(source: str, name: str) -> Any:
        file = f"<cell {len(linecache.cache)}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        exec(compile(source, file, "exec"), vars(main))
        return vars(main)[name]

    return run
