"""Where the newest token of a request looks, from the real attention of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from minikv.attention import torch_backend
from minikv.attention.metadata import AttentionBackend, SequenceView
from minikv.errors import ConfigError
from minikv.memory import Ledger, PagePool
from minikv.models.options import AttentionOptions


@dataclass(frozen=True)
class Look:
    """Where one token looked.

    Attributes:
        first: attention weight on position 0, summed over layers and query heads.
        first_writer: the request that had written position 0; -1 if nobody had.
        writers: the weight on all later positions, by the request that had written them.
    """

    first: float
    first_writer: int
    writers: dict[int, float]

    @property
    def total(self) -> float:
        """The weight on all positions."""
        return self.first + sum(self.writers.values())


class WatchedAttention:
    """A node's backend that also notes where some requests look; other requests pass unseen.

    The answer is that of the backend. The weights are worked out beside it, from the same keys, by
    `torch_backend.decode_weights`: where a backend reads other slots than it should, they are not its own.

    Args:
        pool: of the node. Its page tables say whose row is whose, its ledger who wrote the slots.
        requests: numbers of the requests to watch.
        attend: the backend that answers.

    Raises:
        ConfigError: if the pool has no ledger.
    """

    def __init__(
        self, pool: PagePool, requests: Collection[int], attend: AttentionBackend = torch_backend.attend
    ) -> None:
        if pool.ledger is None:
            raise ConfigError(f"without a ledger nobody knows who wrote a slot on {pool.node}; leave it on")
        self.requests = frozenset(requests)
        self._pool, self._ledger, self._attend = pool, pool.ledger, attend
        self._step: Sequence[SequenceView] = ()  # of all layers of one step it is the same object
        self._watched: list[_Watched] = []
        self._done: dict[int, _Watched] = {}

    def __call__(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        sequences: Sequence[SequenceView],
        options: AttentionOptions,
    ) -> torch.Tensor:
        """As `AttentionBackend`."""
        if sequences is not self._step:
            self._step = sequences
            self._watched = self._find(sequences)
            self._done.update({one.number: one for one in self._watched})
        if self._watched:
            rows = torch.tensor([one.row for one in self._watched], device=query.device)
            weights, _slots = torch_backend.decode_weights(
                query[rows], keys, [one.view for one in self._watched], options
            )
            summed = weights.sum(dim=(1, 2)).cpu().double().numpy()
            for one, row in zip(self._watched, summed, strict=True):
                one.weight += row[: one.view.seq_len]
        return self._attend(query, keys, values, sequences, options)

    def take(self, number: int) -> Look | None:
        """Where the newest token of a request looked when it was last computed; None if it was not since."""
        found = self._done.pop(number, None)
        return found.look() if found else None

    def _find(self, sequences: Sequence[SequenceView]) -> list[_Watched]:
        tables = [table for number in self.requests if (table := self._pool.tables.get(number))]
        found = []
        for view in sequences:
            for table in tables:
                if table.written != view.seq_len:
                    continue
                slots = view.slots.cpu().numpy()
                if np.array_equal(slots, table.slots(0, view.seq_len)):
                    found.append(_Watched(table.owner, view, slots, self._ledger))
        return found


class _Watched:
    """One request in one step; the last of its query tokens is the one that chooses."""

    def __init__(self, number: int, view: SequenceView, slots: np.ndarray, ledger: Ledger) -> None:
        self.number, self.view = number, view
        self.row = view.start + view.length - 1
        self.writer = ledger.writer[slots]  # now: in a moment the pages may be somebody else's
        self.weight = np.zeros(view.seq_len)

    def look(self) -> Look:
        writers, index = np.unique(self.writer[1:], return_inverse=True)
        sums = np.bincount(index, self.weight[1:], minlength=len(writers))
        read = {int(writer): float(weight) for writer, weight in zip(writers, sums, strict=True)}
        return Look(float(self.weight[0]), int(self.writer[0]), read)
