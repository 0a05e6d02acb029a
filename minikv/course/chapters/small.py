"""A model that judges can run in a moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


@contextmanager
def plainly() -> Iterator[None]:
    """Build in float32, on the CPU and without gradients, whatever the defaults are at this moment.

    What is built here is kept for later checks, and a default that somebody tried out must not be kept with it.
    """
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.set_grad_enabled(False), torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(before)


@cache
def small_model(kv_heads: int) -> Any:
    """A small random model. Its norms differ from each other, so that no norm can stand in for another."""
    import torch

    from minikv import load_model
    from minikv.models.tiny import tiny_random

    with plainly():
        hf, tokenizer = tiny_random(layers=6, kv_heads=kv_heads, seed=3)
        random = torch.Generator().manual_seed(3)
        for name, weight in hf.named_parameters():
            if "norm" in name:
                weight.data.copy_(torch.randn(weight.shape, generator=random).exp())
        return load_model(hf, tokenizer)
