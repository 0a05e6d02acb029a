"""What one step tells every layer's attention: where to write, and what may be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from minikv.errors import BrokenRule
from minikv.memory import PagePool, PageTable
from minikv.models.options import AttentionOptions, Rows


@dataclass(frozen=True)
class SequenceView(Rows):
    """One request's part of a packed batch: its query tokens are rows [start, start + length).

    Attributes:
        seq_len: positions it may read; its query tokens are the last `length` of them.
        slots: where positions 0 to seq_len - 1 lie, int64 [seq_len], as its page table says.
    """

    seq_len: int
    slots: torch.Tensor


class AttentionBackend(Protocol):
    """Reads pages. The plain one is `torch_backend.attend`.

    This step's keys and values are in their slots already. Query token `i` of a request sees its positions 0 to
    `seq_len - length + i` (that is the causal mask), and of these the last `options.window` if there is a window.
    Query head `h` uses key/value head `h // (query heads // kv_heads)`. Slots that are not in `view.slots` must not be
    read at all: they may hold NaN, and NaN times 0 is NaN. The form of what comes back is checked, not what was read.
    Models that have `options.softcap` or `options.sinks` need them honoured.
    """

    def __call__(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        sequences: Sequence[SequenceView],
        options: AttentionOptions,
    ) -> torch.Tensor:
        """Attend, for one layer.

        Args:
            query: [tokens, query heads, key width].
            keys, values: one layer of the pool as slots, [num_slots, kv_heads, width]; read-only.
            sequences: who reads what.
            options: what the layer asks for.

        Returns:
            [tokens, query heads, value width], in the dtype and on the device of `query`.
        """


class AttentionMetadata:
    """One step on one pool.

    Building it announces the step's writes and reads to the pool, which checks them before anything is computed.

    Args:
        pool: the node's pages.
        tables: page tables of the requests in the step, in the order of the packed batch.
        lengths: for each, how many tokens it computes; they go to the positions after `table.written`.
        backend: reads the pages.

    Attributes:
        sequences: a view of each request, in order.
        slot_mapping: the slots that this step writes, int64 [tokens].
        position_ids: position of each token in its request, int64 [tokens].

    Raises:
        StaleWrite, StaleRead, BrokenRule: from the pool's checks.
    """

    def __init__(
        self, pool: PagePool, tables: Sequence[PageTable], lengths: Sequence[int], backend: AttentionBackend
    ) -> None:
        self.pool = pool
        self.backend = backend
        device = pool.keys[0].device
        writes, positions, sequences, start = [], [], [], 0
        for table, length in zip(tables, lengths, strict=True):
            first = table.written
            stop = first + length
            writes.append(pool.begin_write(table, first, stop))
            positions.append(np.arange(first, stop))
            read = pool.begin_read(table)
            if type(pool) is not PagePool:
                _check_own(table, stop, writes[-1], read)
            slots = torch.from_numpy(read).to(device)
            sequences.append(SequenceView(start, length, table.written, slots))
            start += length
        self.sequences = tuple(sequences)
        self.slot_mapping = torch.from_numpy(np.concatenate(writes)).to(device)
        self.position_ids = torch.from_numpy(np.concatenate(positions)).to(device)

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: AttentionOptions,
    ) -> torch.Tensor:
        """Store this step's keys and values, then read through the page tables; see `StepAttention`."""
        self.pool.store(layer, self.slot_mapping, key, value)
        keys, values = self.pool.keys[layer].flatten(0, 1), self.pool.values[layer].flatten(0, 1)
        before = _versions(keys, values)
        output = self.backend(query, keys, values, self.sequences, options)
        if _versions(keys, values) != before:
            raise BrokenRule("attention reads pages and does not write to them", f"layer {layer} was changed")
        expected = ((query.shape[0], query.shape[1], value.shape[2]), query.dtype, query.device)
        is_tensor = isinstance(output, torch.Tensor)
        found = (tuple(output.shape), output.dtype, output.device) if is_tensor else type(output).__name__
        if found != expected:
            raise BrokenRule(
                "attention gives back [tokens, query heads, value width]",
                f"{expected} was expected in layer {layer}, and {found} came",
            )
        return output

    def exchange(
        self, row: int, index: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store one request's keys and values, and give back all that it may read; see `StepAttention`."""
        view = self.sequences[index]
        self.pool.store(row, self.slot_mapping[view.start : view.start + view.length], key, value)
        return self.pool.keys[row].flatten(0, 1)[view.slots], self.pool.values[row].flatten(0, 1)[view.slots]

    def visible(self, index: int) -> torch.Tensor:
        """Which of a request's positions each of its query tokens sees; see `StepAttention`."""
        view = self.sequences[index]
        ones = torch.ones(view.length, view.seq_len, dtype=torch.bool, device=self.slot_mapping.device)
        return ones.tril(view.seq_len - view.length)


def _versions(*tensors: torch.Tensor) -> list[int]:
    """Counters of writes to some tensors; none for a pool that was made in inference mode, which counts nothing."""
    return [tensor._version for tensor in tensors if not tensor.is_inference()]


def _check_own(table: PageTable, stop: int, written: np.ndarray, read: np.ndarray) -> None:
    own = table.slots(0, stop)
    right = table.written == stop and np.array_equal(read, own) and np.array_equal(written, own[stop - len(written) :])
    if not right or len(written) == 0:
        raise BrokenRule("a step writes and reads slots of its own table", f"request {table.owner} has others")
