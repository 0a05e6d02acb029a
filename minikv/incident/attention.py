"""How much attention fell on whose slots, from the real attention of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from minikv.attention import torch_backend
from minikv.attention.metadata import AttentionBackend, SequenceView
from minikv.models.options import AttentionOptions


class WatchedAttention:
    """A node's backend, which also adds up where a lone decoding request looks.

    Args:
        num_slots: of the node's pool.
        attend: the backend that answers; the weights are worked out beside it, from the same slots.

    Attributes:
        weight: float64 [num_slots], attention weight summed over steps, layers and query heads.
    """

    def __init__(self, num_slots: int, attend: AttentionBackend = torch_backend.attend) -> None:
        self.weight = np.zeros(num_slots)
        self._attend = attend

    def __call__(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        sequences: Sequence[SequenceView],
        options: AttentionOptions,
    ) -> torch.Tensor:
        """As `torch_backend.attend`."""
        if len(sequences) == 1 and sequences[0].length == 1:
            weights, slots = torch_backend.decode_weights(query, keys, sequences, options)
            self.weight[slots[0].numpy()] += weights.sum(dim=(0, 1, 2)).double().numpy()
        return self._attend(query, keys, values, sequences, options)
