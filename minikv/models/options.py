"""What a model's layers ask of a step: options of an attention, and the step itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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


@dataclass(frozen=True)
class Rows:
    """Where one request's tokens are in a packed batch: rows [start, start + length)."""

    start: int
    length: int


class StepAttention(Protocol):
    """What a forward pass carries to each layer."""

    @property
    def sequences(self) -> Sequence[Rows]:
        """The requests of the batch, in order."""

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: AttentionOptions,
    ) -> torch.Tensor:
        """Store this step's keys and values, attend, and return [tokens, query heads, value width].

        Args:
            layer: layer number.
            query: [tokens, query heads, key width], position already applied.
            key, value: [tokens, kv heads, width], position already applied to keys.
            options: of this layer.
        """

    def exchange(
        self, row: int, index: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store one request's keys and values, and give back all that it may read.

        Args:
            row: which of the geometry's layers.
            index: which of `sequences`.
            key, value: [tokens, kv heads, width].

        Returns:
            Both, [positions, kv heads, width].
        """

    def visible(self, index: int) -> torch.Tensor:
        """Which positions each query token of one request sees, bool [tokens, positions]."""
