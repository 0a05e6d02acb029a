"""One thread, offline, and a fresh learner's folder for every notebook."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

os.environ.update(
    OMP_NUM_THREADS="1",
    HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
    MINIKV_CI="1",
)


class FreshLearner:
    """Gives each notebook that nbval runs a `my_minikv/` of its own, as it was built with.

    A plugin and not hooks of this file: those are not called for notebooks, which lie elsewhere.
    Nothing is added to nbval's `skip_compare`: figures are deterministic, and a warning must fail.
    """

    def __init__(self) -> None:
        self._notebook: pytest.Collector | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Before nbval starts the kernel of the next notebook, which inherits this environment."""
        notebook = item.parent
        if type(notebook).__name__ == "IPyNbFile" and notebook is not self._notebook:
            self._notebook = notebook
            folders: pytest.TempPathFactory = item.config._tmp_path_factory  # type: ignore[attr-defined]
            os.environ["MINIKV_HOME"] = str(folders.mktemp("learner") / "my_minikv")
            root = str(Path(__file__).resolve().parents[1])
            paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
            if root not in paths:
                os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, *paths]))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(FreshLearner(), "minikv-fresh-learner")


def pytest_runtest_setup() -> None:
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture
def learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh learner's folder; returns its path, which does not exist yet."""
    folder = tmp_path / "my_minikv"
    monkeypatch.setenv("MINIKV_HOME", str(folder))
    return folder
