"""The learner's detector of stale reads, beside the pages of an engine: `watched_by(Detector)` is a part for `pool=`.

    class Detector:
        def __init__(self, num_pages, page_size): ...
        def lent(self, page, generation, owner):
            '''A page was lent to request `owner`, for the `generation`-th time.'''
        def wrote(self, slots, writer):
            '''Request `writer` has put something into these slots; -1: nobody knows who.'''
        def reads(self, slots, reader):
            '''Request `reader` is about to read these slots. Give back those that are stale.'''

    Engine(model, num_pages=12, pool=watched_by(Detector))
    HistoricalCluster(model, ..., pool=watched_by(Detector, historical=True))

Each node has a detector of its own. It sees what happens to the pages and nothing of what is in them, and it stops no
read: it reports. `pool.reported` has, for each detector, the slots that it reported, by reader.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch

from minikv.disagg.handoff import Handoff
from minikv.errors import BrokenRule, ConfigError
from minikv.incident.pages import HistoricalPool
from minikv.memory import PagePool, PageTable, SlotRecords

UNKNOWN = -1
REPORTS = "a detector reports slots out of those that are read"
RUNS = "a detector looks on and disturbs nobody"
_METHODS = ("lent", "wrote", "reads")


class StaleReadDetector(Protocol):
    """What is asked of a detector."""

    def lent(self, page: int, generation: int, owner: int) -> object:
        """A page was lent."""

    def wrote(self, slots: list[int], writer: int) -> object:
        """Somebody filled slots."""

    def reads(self, slots: list[int], reader: int) -> Iterable[int] | None:
        """Somebody is about to read slots; gives back the stale ones."""


Build = Callable[[int, int], StaleReadDetector]


def watched_by(*detectors: Build, historical: bool = False) -> Callable[..., WatchedPool]:
    """What an engine or a cluster takes as `pool=`, with detectors that look on.

    Args:
        detectors: each builds one from the number of pages and the page size.
        historical: for a `HistoricalCluster`, where old writers still reach a page.

    Raises:
        ConfigError: if one of them cannot be called.
    """
    for build in detectors:
        if not callable(build):
            raise ConfigError(f"a detector must be a class, not {build!r:.60}")
    return partial(WatchedHistoricalPool, detectors, fenced=False) if historical else partial(WatchedPool, detectors)


class WatchedPool(PagePool):
    """A pool with detectors beside it.

    Attributes:
        detectors: in the order given.
        reported: for each of them, the different slots that it reported, by reader.
    """

    def __init__(self, detectors: Sequence[Build], *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.detectors = [build(self.num_pages, self.page_size) for build in detectors]
        for detector in self.detectors:
            if missing := [name for name in _METHODS if not callable(getattr(detector, name, None))]:
                raise ConfigError(f"a detector must have {', '.join(_METHODS)}; yours has no {missing[0]}")
        self.reported: list[dict[int, set[int]]] = [{} for _ in detectors]
        self._broke: Exception | None = None  # while it was told something; the next read says so

    def extend(self, table: PageTable, num_pages: int) -> None:
        """As `PagePool.extend`; the detectors are told of each page."""
        before = len(table.pages)
        super().extend(table, num_pages)
        for page, generation in zip(table.pages[before:], table.generations[before:], strict=True):
            for detector in self.detectors:
                self._tell(detector.lent, page, generation, table.owner)

    def begin_write(self, table: PageTable, start: int, stop: int) -> np.ndarray:
        """As `PagePool.begin_write`; the detectors are told who writes where."""
        slots = super().begin_write(table, start, stop)
        self._wrote(slots, np.full(len(slots), table.owner))
        return slots

    def import_pages(
        self,
        table: PageTable,
        keys: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        records: SlotRecords | None,
        written: int,
    ) -> None:
        """As `PagePool.import_pages`; the detectors are told who had written what came."""
        super().import_pages(table, keys, values, records, written)
        self._arrived(table, keys[0].shape[0], records, written)

    def begin_read(self, table: PageTable) -> np.ndarray:
        """As `PagePool.begin_read`; the detectors are asked first.

        Raises:
            BrokenRule: if a detector breaks down, or reports what is not read.
        """
        slots = table.slots(0, table.written).tolist()
        if self._broke is not None:
            broke, self._broke = self._broke, None
            raise broke
        for detector, reported in zip(self.detectors, self.reported, strict=True):
            found = read_report(_asked(detector.reads, list(slots), table.owner))
            if found is None or not found <= set(slots):
                raise BrokenRule(REPORTS, "yours gave back something else", table.owner)
            if found:
                reported.setdefault(table.owner, set()).update(found)
        return super().begin_read(table)

    def _tell(self, method: Callable[..., object], *args: Any) -> None:
        """Tell a detector something. What it raises comes out at the next read: here pages are half lent."""
        try:
            _asked(method, *args)
        except Exception as error:
            self._broke = self._broke or error

    def _wrote(self, slots: np.ndarray, writers: np.ndarray) -> None:
        """Tell the detectors, run by run of one writer."""
        pairs = zip(slots.tolist(), writers.tolist(), strict=True)
        for writer, run in itertools.groupby(pairs, key=lambda pair: pair[1]):
            mine = [slot for slot, _writer in run]
            for detector in self.detectors:
                self._tell(detector.wrote, list(mine), writer)

    def _arrived(self, table: PageTable, pages: int, records: SlotRecords | None, written: int) -> None:
        """Whole pages came. What the reader itself had left in the sender's page before is nobody's now."""
        slots = table.slots(0, pages * self.page_size)
        if records is None:
            writers = np.where(np.arange(len(slots)) < written, table.owner, UNKNOWN)
        else:
            old = (records.writer == table.owner) & ~records.current
            writers = np.where(old, UNKNOWN, records.writer)
        self._wrote(slots, writers)


class WatchedHistoricalPool(WatchedPool, HistoricalPool):
    """The same for pages that old writers still reach."""

    def land(self, table: PageTable, handoff: Handoff) -> None:
        """As `HistoricalPool.land`; the detectors are told."""
        super().land(table, handoff)
        self._arrived(table, handoff.keys[0].shape[0], handoff.records, handoff.num_tokens)


def _asked(method: Callable[..., Any], *args: Any) -> Any:
    try:
        return method(*args)
    except NotImplementedError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise BrokenRule(RUNS, f"yours raised {type(error).__name__}: {text}") from error


def read_report(given: object) -> set[int] | None:
    """The slots in what a detector gave back (None for "no slot" is fine); None if it is no collection of numbers."""
    if given is None:
        return set()
    if isinstance(given, (str, bytes, dict)) or not isinstance(given, (Iterable, torch.Tensor)):
        return None
    try:
        found = [_whole(slot) for slot in given]
    except TypeError:
        return None
    return None if None in found else {slot for slot in found if slot is not None}


def _whole(slot: Any) -> int | None:
    """A slot as an int; numpy's and one-element tensors are fine, True and 2.5 are not."""
    if isinstance(slot, (bool, np.bool_)):
        return None
    try:
        return int(slot.__index__())
    except AttributeError:
        return None
