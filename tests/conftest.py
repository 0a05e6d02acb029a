"""One thread, and a fresh learner's folder for whoever asks. The root's conftest.py does the same for notebooks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def pytest_runtest_setup() -> None:
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture
def learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh learner's folder; returns its path, which does not exist yet."""
    folder = tmp_path / "my_minikv"
    monkeypatch.setenv("MINIKV_HOME", str(folder))
    return folder
