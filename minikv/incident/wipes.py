"""Pools that wipe their pages when they change hands."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from minikv.incident.pages import HistoricalPool
from minikv.memory import PagePool, PageTable
from minikv.memory.ledger import NOBODY

Moment = Literal["lend", "free"]
NODES = ("prefill", "decode")


@dataclass(frozen=True)
class Wipe:
    """One way to wipe.

    Attributes:
        value: what is put into every slot of a page: 0.0, or NaN as poison.
        moment: when: as a page is lent, or as it comes back.
        nodes: names of the nodes that do it; an engine's only one is "engine".
    """

    value: float
    moment: Moment
    nodes: tuple[str, ...] = NODES

    @property
    def name(self) -> str:
        """As in reports: "zero on lend, decode"."""
        where = "both" if len(self.nodes) > 1 else self.nodes[0]
        return f"{'NaN' if math.isnan(self.value) else 'zero'} on {self.moment}, {where}"


MOMENTS: tuple[Moment, ...] = ("lend", "free")
WIPES: tuple[Wipe | None, ...] = (
    None,
    *(
        Wipe(value, moment, nodes)
        for value in (0.0, math.nan)
        for moment in MOMENTS
        for nodes in (("prefill",), ("decode",), NODES)
    ),
)


def name_of(wipe: Wipe | None) -> str:
    """As in reports."""
    return wipe.name if wipe else "no wiping"


class WipingPool(PagePool):
    """A pool that overwrites whole pages when they change hands.

    Args:
        wipe: how; None wipes nothing, and is what the others are measured against.
        Others: as for `PagePool`.

    Attributes:
        pages_wiped: so far.
        seconds: spent on it so far.
    """

    def __init__(self, *args: Any, wipe: Wipe | None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.wipe = wipe if wipe and self.node in wipe.nodes else None
        self.pages_wiped = 0
        self.seconds = 0.0

    def extend(self, table: PageTable, num_pages: int) -> None:
        """As `PagePool.extend`; the new pages are wiped."""
        before = len(table.pages)
        super().extend(table, num_pages)
        self._overwrite("lend", table.pages[before:])

    def free(self, table: PageTable) -> None:
        """As `PagePool.free`; the pages are wiped."""
        super().free(table)
        self._overwrite("free", table.pages)

    def clear(self) -> None:
        """As `PagePool.clear`; the pages that were lent are wiped."""
        held = np.flatnonzero(self.owner != NOBODY).tolist()
        super().clear()
        self._overwrite("free", held)

    def _overwrite(self, moment: Moment, pages: Sequence[int]) -> None:
        """Put the value into every slot; what the ledger had on record there is gone, too."""
        if self.wipe is None or self.wipe.moment != moment or not pages:
            return
        start = time.perf_counter()
        index = torch.tensor(pages, dtype=torch.long, device=self.keys[0].device)
        for tensor in (*self.keys, *self.values):
            tensor.index_fill_(0, index, self.wipe.value)
        self.seconds += time.perf_counter() - start
        self.pages_wiped += len(pages)
        if self.ledger:
            for records in (self.ledger.writer, self.ledger.generation, self.ledger.position):
                records.reshape(self.num_pages, self.page_size)[pages] = NOBODY


class WipingHistoricalPool(WipingPool, HistoricalPool):
    """The same with an open or a closed fence: `fenced` as for `HistoricalPool`."""
