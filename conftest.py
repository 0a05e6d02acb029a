"""Notebooks, wherever they lie, run offline, on one thread, and with a fresh learner's folder each."""

from __future__ import annotations

import os
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
            root = str(Path(__file__).resolve().parent)
            paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
            if root not in paths:
                os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, *paths]))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(FreshLearner(), "minikv-fresh-learner")
