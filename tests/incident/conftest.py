"""Models that several tests share, built once in a process."""

from __future__ import annotations

import pytest

from minikv import load_model
from minikv.models.adapter import BoundModel


@pytest.fixture(scope="session")
def tiny() -> BoundModel:
    return load_model("tiny-random")


@pytest.fixture(scope="session")
def smollm2() -> BoundModel:
    return load_model("smollm2")
