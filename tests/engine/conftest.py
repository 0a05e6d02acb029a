"""Models that several tests share, built once in a process."""

from __future__ import annotations

import pytest
import transformers
from families import NOT_IN_OLDEST
from helpers import FAMILIES

from minikv import load_model
from minikv.errors import UnsupportedModel
from minikv.models.adapter import BoundModel

_built: dict[str, BoundModel] = {}


@pytest.fixture(scope="session")
def smollm2() -> BoundModel:
    return load_model("smollm2")


@pytest.fixture(scope="session")
def tiny() -> BoundModel:
    return load_model("tiny-random")


@pytest.fixture
def family(request: pytest.FixtureRequest) -> BoundModel:
    """A random model of the family that the test is parametrised with, through `indirect`."""
    name: str = request.param
    if name in NOT_IN_OLDEST:
        with pytest.raises(UnsupportedModel, match="cannot be served"):
            FAMILIES[name]()
        pytest.skip(f"transformers {transformers.__version__} cannot serve {name}")
    if name not in _built:
        _built[name] = FAMILIES[name]()
    return _built[name]
