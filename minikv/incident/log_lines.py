"""The lines that the parts of a cluster write while it runs: each says what its own part knows, and no more."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta

from minikv.disagg.router import Cluster
from minikv.incident.watch import Sent, Verdict
from minikv.memory import pages_needed
from minikv.trace import Event, Finish, HandoffDone, Length, Preempt, Refuse

HEARTBEAT = 10  # steps between two lines about a node's load
FIRST_MOMENT = datetime(2031, 3, 2, 9, 0, 0)


class Clock:
    """A made-up clock, the only thing in a log that is: nobody measures time here, but a log wants some.

    Args:
        seed: of the milliseconds that pass between two lines.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.now = FIRST_MOMENT

    def tick(self, milliseconds: int = 30) -> str:
        """Let some time pass, about half of `milliseconds`, and say how late it is."""
        self.now += timedelta(milliseconds=self._random.randint(0, milliseconds))
        return self.now.isoformat(sep=" ", timespec="milliseconds").replace(".", ",")


class Log:
    """Turns events into lines of a log, when they happen.

    Args:
        clock: tells the time.
        page_size: of the nodes.

    Attributes:
        lines: oldest first; each "date time level node rid=number message".
        of: by request number, the places of its lines.
    """

    def __init__(self, clock: Clock, page_size: int) -> None:
        self.clock = clock
        self.page_size = page_size
        self.lines: list[str] = []
        self.of: dict[int, list[int]] = {}
        self._prompt_tokens: dict[int, int] = {}
        self._write: dict[type[Event], Callable[..., None]] = {
            Length: self._length,
            Verdict: self._verdict,
            Sent: self._sent,
            HandoffDone: self._taken,
            Preempt: self._preempted,
            Refuse: self._refused,
            Finish: self._finished,
        }

    def hear(self, event: Event) -> None:
        """Write down one event; most have no line."""
        if write := self._write.get(type(event)):
            write(event)

    def heartbeat(self, cluster: Cluster) -> None:
        """What the nodes say every so often, whether anything happens or not."""
        for node in cluster.stats().nodes:
            self._line("INFO", node.name, None, f"running={node.running} waiting={node.waiting} free={node.pages_free}")

    def _line(self, level: str, node: str, request: int | None, message: str) -> None:
        if request is not None:
            self.of.setdefault(request, []).append(len(self.lines))
        whose = "" if request is None else f"rid={request} "
        self.lines.append(f"{self.clock.tick()} {level:<7} {node:<7} {whose}{message}")

    def _length(self, event: Length) -> None:
        if event.part == "client":
            self._prompt_tokens[event.request] = event.tokens
            self._line("INFO", event.node, event.request, f"POST /generate prompt_tokens={event.tokens}")

    def _verdict(self, event: Verdict) -> None:
        self._line("ERROR", event.node, event.request, event.reason)

    def _sent(self, event: Sent) -> None:
        counts = f"len(prefill_state_indices) = {event.sent}, len(dst_state_indices) = {event.reserved}"
        if event.sent == event.reserved:
            self._line("INFO", event.node, event.request, f"pages: {counts}")
        else:
            self._line("WARNING", event.node, event.request, f"pages differ: {counts}")
        if event.lost:
            self._line("WARNING", event.node, event.request, "connection lost, sent again")

    def _taken(self, event: HandoffDone) -> None:
        """Decode's own idea of it: what it expected, and that the transfer said success."""
        pages = pages_needed(event.expected, self.page_size)
        self._line("INFO", event.node, event.request, f"transfer success, {event.expected} tokens in {pages} pages")

    def _preempted(self, event: Preempt) -> None:
        self._line("INFO", event.node, event.request, f"gave way, {event.written} tokens to be computed anew")

    def _refused(self, event: Refuse) -> None:
        self._line("INFO", event.node, event.request, f"{event.status} {event.reason}")

    def _finished(self, event: Finish) -> None:
        sizes = f"prompt_tokens={self._prompt_tokens.get(event.request)} completion_tokens={event.output_tokens}"
        self._line("INFO", event.node, event.request, f"{event.status} finish_reason={event.reason} {sizes}")
