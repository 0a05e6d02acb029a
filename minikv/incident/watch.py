"""A historical cluster that also reports what its parts know and nobody compares: verdicts and pages sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minikv.disagg.handoff import Handoff
from minikv.errors import Rejected
from minikv.incident.history import HistoricalCluster, PrefillLeg
from minikv.incident.pages import UNREAD, Witness
from minikv.incident.wire import Wire
from minikv.memory.ledger import NOBODY
from minikv.scheduling.request import Request
from minikv.trace import Event, Trace


@dataclass(frozen=True, slots=True)
class Verdict(Event):
    """A node's own door refused a request. Whether its client ever hears of it is another matter."""

    request: int
    reason: str


@dataclass(frozen=True, slots=True)
class Sent(Event):
    """A sender put `sent` pages of a request on the wire, for `reserved` pages at the other end; `lost`: in vain."""

    request: int
    sent: int
    reserved: int
    lost: bool = False


class Listener(Trace):
    """Passes on what the doors, the nodes and the router report; the pools are not asked about single pages.

    Args:
        hear: called with each event, at once.
    """

    def __init__(self, *hear: Callable[[Event], None]) -> None:
        super().__init__(enabled=False)
        self.hear = list(hear)

    def add(self, event: Event) -> None:
        """Tell everybody who listens."""
        for each in self.hear:
            each(event)


class ReportingWire(Wire):
    """Carries everything, and reports how many pages went, and for how many.

    The original's sender knew both numbers: it warned when they differed, and sent what it had
    (`disaggregation/mooncake/conn.py`, maybe_send_extra).

    Args:
        lose: told a request number, whether the first attempt to send it is lost; it is sent again at once.
    """

    def __init__(self, lose: Callable[[int], bool] = lambda _number: False) -> None:
        self.lose = lose
        self.cluster: WatchedCluster | None = None

    def carry(self, handoff: Handoff) -> Handoff:
        """All of it, at the second attempt at the latest."""
        if self.cluster is not None:
            sent, reserved = len(handoff.keys[0]), len(self.cluster.decode.pool.tables[handoff.request].pages)
            trace, node = self.cluster.trace, self.cluster.prefill.name
            if self.lose(handoff.request):
                trace.add(Sent(trace.step, node, handoff.request, sent, reserved, lost=True))
            trace.add(Sent(trace.step, node, handoff.request, sent, reserved))
        return handoff


class WatchedCluster(HistoricalCluster):
    """The historical cluster, with all eight defects or some; its trace also has `Verdict` and `Sent`.

    One harmless habit is added: where a prompt fills its last page, decode reserves the page of the first token at
    once. So one page fewer is sent than is reserved; the original took drifts of one page as ordinary, too.
    """

    def __init__(self, *args: Any, wire: ReportingWire | None = None, **settings: Any) -> None:
        own = wire or ReportingWire()
        super().__init__(*args, wire=own, **settings)
        own.cluster = self

    def _historical_check(self, request: Request, pool_tokens: int) -> None:
        try:
            super()._historical_check(request, pool_tokens)
        except Rejected as verdict:
            node = self.prefill if isinstance(request, PrefillLeg) else self.decode
            self.trace.add(Verdict(self.trace.step, node.name, request.number, str(verdict)))
            raise

    def _reserve(self, request: Request) -> bool:
        reserved = super()._reserve(request)
        pool = self.decode.pool
        if reserved and request.prompt_tokens % pool.page_size == 0:
            pool.extend(pool.tables[request.number], 1)
        return reserved

    def read_of_others(self, number: int) -> int:
        """Slots that were read for a request though another one had written them; what is known of it is dropped."""
        ledger = self.decode.pool.ledger
        if not isinstance(ledger, Witness) or number not in ledger.stale_reads:
            return 0
        writers = ledger.stale_reads.pop(number)
        return int(((writers != UNREAD) & (writers != NOBODY) & (writers != number)).sum())
