"""What a layer of a model asks of its attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class AttentionOptions:
    """What a model's layer asks of its attention, beyond query, key and value.

    Attributes:
        scaling: factor on the scores.
        window: positions that a token sees, itself included; None for all.
        softcap: scores become softcap * tanh(score / softcap); None for none.
        sinks: [query heads], one extra logit a head in the softmax that carries no value; None for none.
    """

    scaling: float
    window: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None
