"""A small random model whose attention is spread over the text, so that every token that can change does, clearly."""

from __future__ import annotations

from functools import cache
from typing import Any

from minikv.course.chapters.small import plainly


@cache
def gentle_model(spread: float = 0.15) -> Any:
    """The larger the spread of its weights, the more a head looks at one position alone."""
    from minikv import load_model
    from minikv.models.tiny import tiny_random

    with plainly():
        return load_model(*tiny_random(layers=6, kv_heads=2, spread=spread, seed=3))
