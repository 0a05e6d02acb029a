"""Parts of a server that are asked alone: each question can be put though the other parts would never put it.

Every answer comes from the historical cluster with the given defects in it. To reach a part, the probe plays its
neighbours.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikv.disagg.handoff import Handoff
    from minikv.incident.history import HistoricalCluster
    from minikv.models.adapter import BoundModel
    from minikv.scheduling.request import Request

PAGE = 4
PREFILL, DECODE = 28, 256
CONTEXT = 512


@cache
def _model() -> BoundModel:
    from minikv import load_model

    return load_model("tiny-random")


class Parts:
    """The parts of one server.

    Args:
        defects: letters of what is wrong with it; none for the right engine.

    Attributes:
        asked: names of the methods that were called.
    """

    def __init__(self, defects: str = "") -> None:
        self._defects = defects
        self.asked: set[str] = set()

    def door(self, tokens: int, answer: int) -> bool:
        """Whether the door lets in a prompt of so many tokens, with so many of answer."""
        from minikv.errors import Rejected

        self.asked.add("door")
        cluster = self._cluster()
        try:
            cluster._door(_request(tokens, answer))
        except Rejected:
            return False
        return True

    def refuse(self, tokens: int) -> tuple[int, bool]:
        """Prefill refuses a request: tokens that its copy of the prompt has afterwards, and whether it is queued."""
        self.asked.add("refuse")
        return self._at_prefill("a", tokens, refused=True)

    def enter(self, refused: bool) -> bool:
        """A request comes to prefill's queue, perhaps with a refusal that was noted elsewhere: is it queued?"""
        self.asked.add("enter")
        return self._at_prefill("b", 18, pending=bool(refused))[1]

    def room(self, copy: int, recorded: int) -> bool:
        """Prefill's copy of a prompt has `copy` tokens, and the door recorded `recorded`: does it fit the 28 slots?"""
        self.asked.add("room")
        return self._at_prefill("c", recorded, copy=copy)[1]

    def take(self, expected: int, promised: int, pages: int) -> bool:
        """A handoff comes: expected by the door's record, promised by its sender, pages that came. Is it taken?"""
        from minikv.errors import MinikvError

        self.asked.add("take")
        cluster = self._cluster()
        request, handoff = _sent(cluster, expected, promised, pages)
        try:
            cluster.decode.verify(request, handoff)
        except MinikvError:
            return False
        return True

    def readable(self, expected: int, written: int) -> int:
        """So many tokens were expected, and whole pages for so many came: how many may be read?"""
        self.asked.add("readable")
        cluster = self._cluster()
        request, handoff = _sent(cluster, expected, written, -(-written // PAGE))
        return int(cluster.decode.readable(request, handoff))

    def write(self, lent_on: bool) -> bool:
        """Somebody writes into a page that it was lent, perhaps after it was lent on to others: is it let in?"""
        from minikv.errors import BrokenRule

        self.asked.add("write")
        pool = self._cluster().decode.pool
        table = pool.lend(1, 1)
        if lent_on:
            pool.free(table)
            pool.lend(2, pool.num_free)
        try:
            pool.begin_write(table, 0, 1)
        except BrokenRule:
            return False
        return True

    def status(self, prefill: int, decode: int) -> int:
        """The two legs of a request end with these statuses, 200 or 400: what is its client told?"""
        from minikv.errors import Rejected

        self.asked.add("status")
        cluster = self._cluster()
        number = cluster.submit([7] * 18, _params(2))
        if prefill >= 400:
            cluster._legs[number].to_finish = Rejected("a verdict of prefill")
        request = cluster.requests[number]
        if decode >= 400:
            cluster._finish(request, "rejected", Rejected("a verdict of decode"))
        else:
            while not request.answered:
                cluster.step()
        return 200 if request.error is None else request.error.status

    def _cluster(self, defects: str | None = None) -> HistoricalCluster:
        from minikv.config import NodeConfig
        from minikv.incident.history import HistoricalCluster
        from minikv.trace import Trace

        return HistoricalCluster(
            _model(),
            defects=self._defects if defects is None else defects,
            prefill=NodeConfig(num_pages=PREFILL // PAGE),
            decode=NodeConfig(num_pages=DECODE // PAGE),
            page_size=PAGE,
            context_length=CONTEXT,
            trace=Trace(enabled=False),
        )

    def _at_prefill(
        self, letter: str, tokens: int, *, refused: bool = False, pending: bool = False, copy: int | None = None
    ) -> tuple[int, bool]:
        """Bring a request past the door to prefill's own check, and see what it makes of it.

        With d in, prefill has a second opinion; here that is what the probe says. Of the defects only that of the part
        in question is in, and for a refusal the next part's, which would hide it.
        """
        from minikv.errors import Rejected

        hiding = "bd" if refused else "d"
        cluster: Any = self._cluster("".join(sorted({*hiding, *(set(self._defects) & {letter})})))
        seen: list[Request] = []

        def check(leg: Any, _pool_tokens: int) -> None:
            seen.append(leg)
            if copy is not None:
                leg.prompt_ids, leg.prompt_tokens = leg.prompt_ids[:copy], copy
            if pending:
                leg.to_finish = Rejected("a verdict from elsewhere")
            if refused:
                raise Rejected("a verdict of prefill")

        cluster._historical_check = check
        request = _request(tokens, 2)
        cluster.requests[request.number] = request
        cluster._enqueue(request)
        return seen[0].prompt_tokens, not request.answered


def _params(answer: int) -> Any:
    from minikv.sampling import SamplingParams

    return SamplingParams(max_tokens=answer, ignore_eos=True)


def _request(tokens: int, answer: int) -> Request:
    from minikv.scheduling.request import Request

    return Request(1, [7] * tokens, _params(answer))


def _sent(cluster: HistoricalCluster, expected: int, promised: int, pages: int) -> tuple[Request, Handoff]:
    """A request for which pages are reserved on decode, and a handoff whose digest is right for what it promises."""
    from minikv.disagg.handoff import pack

    request = _request(expected, 2)
    cluster.decode.pool.lend(request.number, -(-expected // PAGE))
    pool = cluster.prefill.pool
    table = pool.lend(request.number, -(-promised // PAGE))
    pool.begin_write(table, 0, promised)
    handoff = pack(pool, table, 5)
    came = [[tensor[:pages] for tensor in side] for side in (handoff.keys, handoff.values)]
    return request, replace(handoff, keys=tuple(came[0]), values=tuple(came[1]), records=None)


right_parts = partial(Parts, "")
