"""Runs Python and notebooks as a learner's machine would, with one thing gone wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest
from running import REPOSITORY, Ran


@pytest.fixture
def environment(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """An environment with folders of its own; `path` goes in front of PYTHONPATH, `None` removes a variable."""

    def make(*path: str, **changes: str | None) -> dict[str, str]:
        base = os.environ | {
            "MINIKV_HOME": str(tmp_path / "my_minikv"),
            "HF_HOME": str(tmp_path / "hub"),
            "PYTHONPATH": os.pathsep.join([*path, str(REPOSITORY)]),
        }
        wanted: Mapping[str, str | None] = {**base, **changes}
        return {name: value for name, value in wanted.items() if value is not None}

    return make


@pytest.fixture
def python() -> Callable[..., Ran]:
    def run(code: str, env: dict[str, str], *, folder: Path | None = None, seconds: float = 120) -> Ran:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, cwd=folder, capture_output=True, text=True, timeout=seconds
        )
        return Ran(done.returncode, done.stdout + done.stderr, time.monotonic() - began)

    return run


@pytest.fixture
def run_notebook() -> Callable[..., Any]:
    """Execute a notebook in a kernel of a given environment; errors are kept in it. Returns the notebook."""
    from nbclient import NotebookClient
    from traitlets.config import Config

    def run(path: Path, env: dict[str, str], *, cells: int | None = None) -> Any:
        notebook = nbformat.read(path, as_version=4)
        notebook.cells = notebook.cells[:cells]
        quiet = Config({"KernelManager": {"transport_encryption": "auto"}})
        client = NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            allow_errors=True,
            config=quiet,
            resources={"metadata": {"path": str(path.parent)}},
        )
        client.execute(env=env)
        return notebook

    return run
