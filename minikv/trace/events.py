"""What the pool, the scheduler and the nodes report while they run.

Requests are named by their number. `Admit` and `Refuse` say which tenant a number belongs to; all other events
carry numbers only. Slots inside a page are counted from 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# Who has an idea of a request's length, in the order in which the request comes to them.
PARTS = ("client", "door", "queue", "capacity check", "wire", "decode's door", "page table", "attention")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in `step` (0 is before the first step) on `node`."""

    step: int
    node: str


@dataclass(frozen=True, slots=True)
class Admit(Event):
    """The door let a request in."""

    request: int
    tenant: str
    prompt_tokens: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Refuse(Event):
    """The door turned a request away, finally."""

    request: int
    tenant: str
    prompt_tokens: int
    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class Length(Event):
    """What one part took for the length of a request's prompt when it acted on it, in tokens.

    `part` is one of `PARTS`; not every server has all of them.
    """

    request: int
    part: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Allocate(Event):
    """A page was lent to `owner`, for the `generation`-th time in its life."""

    page: int
    owner: int
    generation: int


@dataclass(frozen=True, slots=True)
class Write(Event):
    """`writer` filled slots [start, stop) of a page that `owner` holds."""

    page: int
    owner: int
    generation: int
    writer: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Read(Event):
    """Attention read `slots` slots of a page for `owner`; `writers` says whose they were: (writer, slots)."""

    page: int
    owner: int
    generation: int
    slots: int
    writers: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Free(Event):
    """`owner` gave a page back. Its contents stay."""

    page: int
    owner: int
    generation: int


@dataclass(frozen=True, slots=True)
class HandoffDone(Event):
    """A receiver took a handoff over: tokens it expected, was promised and received, and into which pages."""

    request: int
    expected: int
    promised: int
    received: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Preempt(Event):
    """A request gave its pages back so that others could go on; its `written` positions are computed anew."""

    request: int
    written: int


@dataclass(frozen=True, slots=True)
class Finish(Event):
    """The one final answer of a request."""

    request: int
    reason: str
    status: int
    output_tokens: int


class Trace:
    """The events of one engine or cluster, oldest first.

    Args:
        enabled: False records nothing.
        max_events: the oldest are dropped beyond this many; `dropped` counts them.
    """

    def __init__(self, enabled: bool = True, max_events: int = 1_000_000) -> None:
        self.enabled = enabled
        self.step = 0
        self.dropped = 0
        self._events: deque[Event] = deque(maxlen=max_events)

    def add(self, event: Event) -> None:
        """Record one event."""
        if not self.enabled:
            return
        if len(self._events) == self._events.maxlen:
            self.dropped += 1
        self._events.append(event)

    def extend(self, events: Iterable[Event]) -> None:
        """Record some events, in order."""
        for event in events:
            self.add(event)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)
