"""Rules that hold at every moment, watched from inside while traffic runs.

The watch keeps books of its own, from the events of the run: who holds a page in which generation, and which of its
slots the holder has written. It needs neither the ledger nor the page tables for that; where there is a ledger, the
writers that it names are compared, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from minikv.errors import BrokenRule
from minikv.frontend import Frontend
from minikv.incident.isolation.findings import Finding
from minikv.memory import PagePool
from minikv.scheduling.request import Request
from minikv.trace import Admit, Allocate, Event, Finish, Free, HandoffDone, Length, Preempt, Read, Refuse, Trace, Write

ONE_LENGTH = "a prompt has one length"
WRITTEN = "reserved >= written >= read"
OWN = "whoever reads a slot has written it"
GENERATION = "a page is written by its holder, in its generation"
HANDOFF = "promised == received == expected"
ONE_ANSWER = "exactly one final answer"
AT_THE_DOOR = "a refusal is made once, at the door"
TOUCHES_NOTHING = "who is refused holds no page"
WHOLE = "the server is whole after every step"
WORST = "the worst status wins"
BACK = "all pages come back"


class Tap(Trace):
    """A trace that tells every event at once and keeps none."""

    def __init__(self, see: Callable[[Event], None]) -> None:
        super().__init__()
        self._see = see

    def add(self, event: Event) -> None:
        """Tell it."""
        if self.enabled:
            self._see(event)


class Watch:
    """Books kept beside a server.

    Attributes:
        trace: to build the server with.
        found: what did not hold, each rule once for each request or page.
        counts: of events, to see that the run was no empty one.
    """

    def __init__(self) -> None:
        self.trace = Tap(self._see)
        self.counts: Counter[str] = Counter()
        self._found: dict[tuple[str, object], Finding] = {}
        self._lent: dict[tuple[str, int], tuple[int, int]] = {}
        self._written: dict[tuple[str, int], int] = {}  # bit i: slot i was written by the holder
        self._lengths: dict[int, int] = {}
        self._admitted: set[int] = set()
        self._held: set[int] = set()
        self._handed: set[int] = set()
        self._ends: Counter[int] = Counter()

    @property
    def found(self) -> list[Finding]:
        """In the order in which they were found."""
        return list(self._found.values())

    def attach(self, server: Frontend, *, quiet_wire: bool = True) -> None:
        """Look at a server after each of its steps.

        Args:
            server: that was built with `trace`.
            quiet_wire: nothing is under way between two steps; then the server's own `check` holds, too.
        """
        step = server.step

        def watched() -> None:
            step()
            self.look(server, quiet_wire=quiet_wire)

        server.step = watched  # type: ignore[method-assign]

    def _break(self, rule: str, about: object, detail: str) -> None:
        self._found.setdefault((rule, about), Finding("invariant", rule, detail))

    # After each step

    def look(self, server: Frontend, *, quiet_wire: bool = True) -> None:
        """Verify what can be seen between two steps."""
        self.counts["steps"] += 1
        for node in server.nodes:
            self._try(node.pool.check)
            if type(node.pool) is not PagePool:
                pool = node.pool
                self._try(lambda pool=pool: PagePool.check(pool))  # type: ignore[misc]
        if quiet_wire:
            self._try(server.check)
        for request in list(server.requests.values()):
            self._look_at(request)

    def _try(self, check: Callable[[], None]) -> None:
        try:
            check()
        except BrokenRule as broken:
            self._break(WHOLE, broken.rule, str(broken))

    def _look_at(self, request: Request) -> None:
        who = f"request {request.number}"
        length = self._lengths.get(request.number, request.prompt_tokens)
        seen = {length, request.prompt_tokens, len(request.prompt_ids)}
        if len(seen) > 1 or hash(request.prompt_ids) != request.prompt_hash:
            self._break(ONE_LENGTH, request.number, f"{who} came with {length} tokens and has {request.prompt_tokens}")
        if (request.error is None) != (request.finish_reason in (None, "stop", "length")):
            self._break(WORST, request.number, f"{who} ended with {request.finish_reason!r} and error {request.error}")
        if isinstance(request.error, BrokenRule):
            self._break(request.error.rule, request.number, str(request.error))

    def end(self, server: Frontend) -> list[Finding]:
        """Verify what holds when nobody is left; returns all that was found."""
        for number in self._lengths:
            if self._ends[number] != 1:
                self._break(ONE_ANSWER, number, f"request {number} got {self._ends[number]} answers")
        for node in server.nodes:
            if node.pool.num_free != node.pool.num_pages:
                self._break(
                    BACK, node.name, f"{node.pool.num_pages - node.pool.num_free} are still lent on {node.name}"
                )
        return self.found

    # At each event

    def _see(self, event: Event) -> None:
        self.counts[type(event).__name__] += 1
        match event:
            case Length():
                self._see_length(event)
            case Admit():
                self._admitted.add(event.request)
            case Allocate() | Free():
                self._see_lending(event)
            case Write():
                self._see_write(event)
            case Read():
                self._see_read(event)
            case HandoffDone():
                self._see_handoff(event)
            case Finish() | Refuse():
                self._see_end(event)
            case Preempt():
                pass

    def _see_length(self, event: Length) -> None:
        length = self._lengths.setdefault(event.request, event.tokens)
        if event.tokens != length:
            detail = f"request {event.request} has {length} tokens, and {event.tokens} for the {event.part}"
            self._break(ONE_LENGTH, event.request, detail)

    def _see_lending(self, event: Allocate | Free) -> None:
        place, holder = (event.node, event.page), (event.owner, event.generation)
        before = self._lent.pop(place, None)
        if before != (holder if isinstance(event, Free) else None):
            self._break("a page has one holder", place, f"page {event.page} on {event.node}: {before}, then {holder}")
        if isinstance(event, Allocate):
            self._lent[place], self._written[place] = holder, 0
            self._held.add(event.owner)
            self.counts["lent again"] += event.generation > 1

    def _see_write(self, event: Write) -> None:
        place = (event.node, event.page)
        if self._lent.get(place) != (event.owner, event.generation):
            detail = (
                f"request {event.owner} wrote to page {event.page} on {event.node}, held by {self._lent.get(place)}"
            )
            self._break(GENERATION, place, detail)
        bits = (1 << event.stop) - (1 << event.start)
        known = self._written.get(place, 0)
        self._written[place] = known | bits if event.writer == event.owner else known & ~bits

    def _see_read(self, event: Read) -> None:
        place = (event.node, event.page)
        self.counts["slots read"] += event.slots
        if self._lent.get(place) != (event.owner, event.generation):
            self._break(GENERATION, place, f"request {event.owner} read page {event.page} on {event.node}, not its own")
        missing = ((1 << event.slots) - 1) & ~self._written.get(place, 0)
        if missing:
            detail = (
                f"request {event.owner} read {missing.bit_count()} slots of page {event.page} that it had not written"
            )
            self._break(WRITTEN, event.owner, detail)
        foreign = [writer for writer, _slots in event.writers if writer != event.owner]
        if foreign:
            self._break(OWN, event.owner, f"request {event.owner} read what {foreign} wrote")

    def _see_handoff(self, event: HandoffDone) -> None:
        sizes = (self._lengths.get(event.request, event.expected), event.expected, event.promised, event.received)
        if len(set(sizes)) > 1:
            detail = "request {}: {} came, {} expected, {} promised, {} received".format(event.request, *sizes)
            self._break(HANDOFF, event.request, detail)
        if event.request in self._handed:
            self._break(HANDOFF, event.request, f"that of request {event.request} was taken twice")
        self._handed.add(event.request)

    def _see_end(self, event: Finish | Refuse) -> None:
        number = event.request
        self._ends[number] += 1
        if self._ends[number] > 1:
            self._break(ONE_ANSWER, number, f"request {number} got {self._ends[number]} answers")
        rejected = isinstance(event, Refuse) or event.reason == "rejected"
        self.counts["refused"] += rejected
        if rejected and number in self._admitted:
            self._break(AT_THE_DOOR, number, f"request {number} was let in and then refused")
        if rejected and number in self._held:
            self._break(TOUCHES_NOTHING, number, f"request {number} held pages and was refused")
