"""Pages as history had them: whoever once held a page still reaches it, and nobody asks who wrote what is in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from minikv.disagg.handoff import Handoff
from minikv.errors import BrokenRule, StaleRead, StaleWrite
from minikv.memory import Ledger, PagePool, PageTable

UNREAD = -2


class Witness(Ledger):
    """Defect g, the reading half: sees every stale read and stops none.

    Attributes:
        stale_reads: by reading request, int64 [num_slots]: the writer of each slot when it was first read
            stale, UNREAD where it was not.
    """

    def __init__(self, num_slots: int, page_size: int) -> None:
        super().__init__(num_slots, page_size)
        self.stale_reads: dict[int, np.ndarray] = {}

    def on_stale(self, table: PageTable, slots: np.ndarray) -> None:
        """Note the writers of the slots; the read goes on."""
        seen = self.stale_reads.setdefault(table.owner, np.full(len(self.writer), UNREAD, dtype=np.int64))
        new = slots[seen[slots] == UNREAD]
        seen[new] = self.writer[new]


class HistoricalPool(PagePool):
    """A pool that another machine may write into.

    Args:
        fenced: whether a write or a read with a page table that is out of date is refused. False is defect g, the
            writing half: the original's buffers are filled once with zeros, and its allocator moves page numbers and
            nothing else (`mem_cache/allocator.py`, `PagedTokenToKVPoolAllocator`), so an address stays good for ever.
        Others: as for `PagePool`.
    """

    def __init__(self, *args: Any, fenced: bool, **settings: Any) -> None:
        self.fenced = fenced
        super().__init__(*args, **settings)

    def _check_held(self, table: PageTable, error: Callable[[str], BrokenRule]) -> None:
        if self.fenced or error not in (StaleRead, StaleWrite):
            super()._check_held(table, error)

    def land(self, table: PageTable, handoff: Handoff) -> None:
        """A writer at the far end of the wire puts its pages where it was told to, whoever holds them by now.

        Only bytes change: the reader is not asked, and the table does not learn of it.

        Raises:
            StaleWrite: if the pool is fenced and the pages are not the table's any more.
        """
        self._check_held(table, StaleWrite)
        pages = torch.tensor(table.pages[: len(handoff.keys[0])], dtype=torch.long)
        for own, new in zip((*self.keys, *self.values), (*handoff.keys, *handoff.values), strict=True):
            own[pages.to(own.device)] = new.to(own)
        if self.ledger and handoff.records:
            self.ledger.adopt(table, handoff.records)
