"""The stretch of chapter 07: requests that are aborted at any moment, and a network that goes on writing.

Nothing is computed here. For each slot it is counted who wrote it, and who reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

PAGES, PAGE_SIZE = 8, 4
REQUESTS = 6


class Keeper(Protocol):
    """Decides when the pages of a request go back. Built as `Keeper(give_back)`.

    `give_back(request)` makes its pages free, so that the next request may get them.
    """

    def over(self, request: int) -> None:
        """The request is over: answered, or aborted by its client. It may be said twice, in any order."""

    def drained(self, request: int) -> None:
        """The network has written the last page that it had under way for this request. It is said once."""


@dataclass
class Counts:
    """What happened, over all interleavings.

    Attributes:
        foreign: slots that a request read and another one had written.
        kept: pages that were not free at the end.
        twice: times that `give_back` was called for a request that held no page.
    """

    foreign: int = 0
    kept: int = 0
    twice: int = 0

    def __str__(self) -> str:
        return f"{self.foreign} foreign slots read, {self.kept} pages not back, {self.twice} given back twice"


@dataclass
class _Life:
    """One request: what is still to happen to it, in this order, on its own."""

    number: int
    pages: tuple[int, ...] = ()
    writes: int = 0
    drained: bool = False
    reads: int = 3
    over: bool = False
    aborted: bool = False


@dataclass
class _Storm:
    """One interleaving."""

    make: Callable[[Callable[[int], None]], Keeper]
    random: Random
    counts: Counts
    free: list[int] = field(default_factory=lambda: list(range(PAGES)))
    writer: list[int] = field(default_factory=lambda: [-1] * PAGES)
    held: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def run(self) -> None:
        """Until nothing can happen any more."""
        keeper = self.make(self._give_back)
        lives = [_Life(number) for number in range(REQUESTS)]
        doomed = {life.number for life in lives if self.random.random() < 0.5}
        while acts := [act for life in lives for act in self._possible(life, life.number in doomed)]:
            life, act = acts[int(self.random.random() * len(acts))]
            self._do(keeper, life, act)
        self.counts.kept += PAGES - len(self.free)

    def _possible(self, life: _Life, doomed: bool) -> list[tuple[_Life, str]]:
        """What may happen next to a request."""
        if not life.pages:
            needed = 2 + life.number % 2
            return [(life, "start")] if len(self.free) >= needed else []
        acts = []
        if life.writes < len(life.pages):
            acts.append("write")
        elif not life.drained:
            acts.append("drain")
        elif not life.over and life.reads:
            acts.append("read")
        elif not life.over:
            acts.append("answered")
        if doomed and not life.aborted:
            acts.append("abort")
        return [(life, act) for act in acts]

    def _do(self, keeper: Keeper, life: _Life, act: str) -> None:
        if act == "start":
            life.pages = tuple(self.free.pop() for _ in range(2 + life.number % 2))
            self.held[life.number] = life.pages
        elif act == "write":  # wherever the page is by now: the network was told a place, and nobody stops it
            self.writer[life.pages[life.writes]] = life.number
            life.writes += 1
        elif act == "drain":
            life.drained = True
            keeper.drained(life.number)
        elif act == "read":
            life.reads -= 1
            self.counts.foreign += PAGE_SIZE * sum(self.writer[page] != life.number for page in life.pages)
        else:
            life.aborted = life.aborted or act == "abort"
            life.over = True
            keeper.over(life.number)

    def _give_back(self, request: int) -> None:
        if request not in self.held:
            self.counts.twice += 1
            return
        self.free += self.held.pop(request)


def storm(make: Callable[[Callable[[int], None]], Keeper], interleavings: int = 1000) -> Counts:
    """Count what a way of keeping pages does, over random orders of everything that may happen."""
    counts = Counts()
    for seed in range(interleavings):
        _Storm(make, Random(seed), counts).run()
    return counts
