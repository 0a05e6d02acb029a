"""A model that judges can run in a moment."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def small_model(kv_heads: int) -> Any:
    """A small random model. Its norms differ from each other, so that no norm can stand in for another."""
    import torch

    from minikv import load_model
    from minikv.models.tiny import tiny_random

    hf, tokenizer = tiny_random(layers=6, kv_heads=kv_heads, seed=3)
    random = torch.Generator().manual_seed(3)
    for name, weight in hf.named_parameters():
        if "norm" in name:
            weight.data.copy_(torch.randn(weight.shape, generator=random).exp())
    return load_model(hf, tokenizer)
