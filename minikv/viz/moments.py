"""A trace played forward: who owned which page, and who had written its slots, at each moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from minikv.trace import Admit, Allocate, Event, Free, Read, Refuse, Write

ACTS = {Allocate: "lend", Write: "write", Read: "read", Free: "free"}


@dataclass(frozen=True)
class PageState:
    """One page at one moment; requests are named by their number.

    Attributes:
        owner: who holds it; None if it is free.
        generation: how many times it has been lent.
        writers: who wrote how many of its slots; never-written slots do not count.
        read: slots that the owner's last read touched, by writer; empty if it was not read since it was lent.
    """

    owner: int | None = None
    generation: int = 0
    writers: dict[int, int] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)

    @property
    def main_writer(self) -> int | None:
        """Who wrote most of it; None if nobody wrote anything."""
        return max(self.writers, key=lambda number: (self.writers[number], number), default=None)

    @property
    def foreign_reads(self) -> int:
        """Slots that the owner read though somebody else had written them."""
        return sum(slots for writer, slots in self.read.items() if writer != self.owner)


@dataclass(frozen=True)
class Moment:
    """The pages of one node after an act: a run of events of one kind in one step."""

    step: int
    act: str
    who: tuple[int, ...]
    pages: dict[int, PageState]

    def picture(self) -> tuple[tuple[int, int | None, int | None, bool], ...]:
        """What a drawing shows of it: two moments with equal pictures look alike."""
        return tuple(
            (page, state.owner, state.main_writer, state.foreign_reads > 0)
            for page, state in sorted(self.pages.items())
        )


def nodes_in(trace: Iterable[Event]) -> list[str]:
    """Names of the nodes that lent pages, in order of appearance."""
    return list(dict.fromkeys(event.node for event in trace if type(event) in ACTS))


def pages_in(trace: Iterable[Event], node: str) -> list[int]:
    """Pages of a node that were ever lent, by number."""
    return sorted({event.page for event in trace if event.node == node and type(event) in ACTS})  # type: ignore[attr-defined]


def tenants_in(trace: Iterable[Event]) -> dict[int, str]:
    """Tenant of each request that came to a door."""
    return {event.request: event.tenant for event in trace if isinstance(event, (Admit, Refuse))}


def moments(trace: Iterable[Event], node: str) -> list[Moment]:
    """All moments of one node at which the picture changes, in order."""
    found: list[Moment] = []
    slots: dict[int, dict[int, int]] = {}  # page -> slot -> writer
    pages: dict[int, PageState] = {}
    acts = [event for event in trace if event.node == node and type(event) in ACTS]
    for (step, kind), run in groupby(acts, key=lambda event: (event.step, type(event))):
        who: dict[int, None] = {}
        for event in run:
            who[event.owner] = None  # type: ignore[attr-defined]
            _apply(event, pages, slots)
        moment = Moment(step, ACTS[kind], tuple(who), dict(pages))
        if not found or moment.picture() != found[-1].picture():
            found.append(moment)
        else:
            found[-1] = Moment(found[-1].step, found[-1].act, found[-1].who, moment.pages)
    return found


# A trace may have dropped its oldest events: a page is then met first in the middle of its life.
def _apply(event: Event, pages: dict[int, PageState], slots: dict[int, dict[int, int]]) -> None:
    if isinstance(event, Allocate):
        before = pages.get(event.page, PageState())
        pages[event.page] = PageState(event.owner, event.generation, before.writers)
    elif isinstance(event, Free):
        before = pages.get(event.page, PageState())
        pages[event.page] = PageState(None, event.generation, before.writers)
    elif isinstance(event, Write):
        page = slots.setdefault(event.page, {})
        page.update(dict.fromkeys(range(event.start, event.stop), event.writer))
        counts: dict[int, int] = {}
        for writer in page.values():
            if writer >= 0:
                counts[writer] = counts.get(writer, 0) + 1
        before = pages.get(event.page, PageState(event.owner, event.generation))
        pages[event.page] = PageState(before.owner, before.generation, counts, before.read)
    elif isinstance(event, Read):
        before = pages.get(event.page, PageState(event.owner, event.generation))
        pages[event.page] = PageState(before.owner, before.generation, before.writers, dict(event.writers))


def most_telling(all_moments: Sequence[Moment]) -> Moment:
    """The moment worth a table: the last with foreign reads, else the last at which any page is lent."""
    foreign = [moment for moment in all_moments if any(s.foreign_reads for s in moment.pages.values())]
    lent = [moment for moment in all_moments if any(s.owner is not None for s in moment.pages.values())]
    return (foreign or lent or list(all_moments))[-1]
