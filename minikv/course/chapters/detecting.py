"""What happened to the pages in some runs of the engine, call by call, so that any detector can be asked about it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from minikv.course.chapters.small import plainly

if TYPE_CHECKING:
    from minikv.disagg.router import Cluster
    from minikv.models.adapter import BoundModel

ORDINARY = 1000


@dataclass(frozen=True)
class Call:
    """One thing that a detector is told or asked; `args` as its method gets them.

    Attributes:
        stale: of a read, the slots that are stale by the engine's own book.
    """

    method: str
    args: tuple[Any, ...]
    stale: frozenset[int] = frozenset()


@dataclass
class Play:
    """The calls of one node in one run, in order.

    Attributes:
        name: what it is.
        requests: that it served.
    """

    name: str
    num_pages: int
    page_size: int
    requests: int = 1
    calls: list[Call] = field(default_factory=list)

    @property
    def stale(self) -> set[tuple[int, int]]:
        """All stale reads: (reader, slot), each once."""
        return {(call.args[1], slot) for call in self.calls for slot in call.stale}


class _Recorder:
    """Notes what a detector is told; what is stale it learns from the book of its pool, later."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.play = Play("", num_pages, page_size)

    def lent(self, page: int, generation: int, owner: int) -> None:
        self.play.calls.append(Call("lent", (page, generation, owner)))

    def wrote(self, slots: list[int], writer: int) -> None:
        self.play.calls.append(Call("wrote", (slots, writer)))

    def reads(self, slots: list[int], reader: int) -> None:
        self.play.calls.append(Call("reads", (slots, reader)))


@cache
def incident() -> Play:
    """The decode node in the incident at the article's sizes, after three visits; a model without words."""
    from minikv.config import NodeConfig

    with plainly():
        cluster = _historical(prefill=NodeConfig(num_pages=7), decode=NodeConfig(num_pages=24), page_size=64)
        for _visit in range(3):
            _serve(cluster, [441], 72)  # fills eight pages to the last slot
        _serve(cluster, [490], 12)
        return _recorded(cluster, "the incident", requests=4)


@cache
def fresh_start() -> Play:
    """The same request on a server that was just started."""
    from minikv.config import NodeConfig

    with plainly():
        cluster = _historical(prefill=NodeConfig(num_pages=7), decode=NodeConfig(num_pages=24), page_size=64)
        _serve(cluster, [490], 4)
        return _recorded(cluster, "a freshly started server")


def _scenario(name: str) -> Play:
    from minikv.config import NodeConfig
    from minikv.incident.scenarios import SCENARIOS, Prompts

    with plainly():
        cluster = _historical(prefill=NodeConfig(num_pages=7), decode=NodeConfig(num_pages=16), page_size=4)
        for _ in range(4):
            _serve(cluster, [12, 12, 12], 6)
        prompts = Prompts(tuple(range(1, 32)), tuple(range(50, 68)), tuple(range(100, 118)), 16)
        SCENARIOS[name].run(cluster, prompts)
        return _recorded(cluster, name)


@cache
def short_transfer() -> Play:
    """The network says "success", and the last page of the handoff was lost."""
    return _scenario("short-transfer")


@cache
def late_write() -> Play:
    """Somebody hangs up, the pages are lent on, and then the old handoff arrives in them."""
    return _scenario("late-write")


@cache
def own_past() -> Play:
    """Request 9 gives its page back, gets it again, and reads it before it has filled it: written down by hand."""
    play = Play("lent again to the same request", num_pages=4, page_size=4, requests=2)
    for method, args, stale in (
        ("lent", (2, 1, 9), ()),
        ("wrote", ([8, 9, 10, 11], 9), ()),
        ("reads", ([8, 9, 10, 11], 9), ()),
        ("lent", (2, 2, 9), ()),
        ("wrote", ([8], 9), ()),
        ("reads", ([8, 9, 10], 9), (9, 10)),
    ):
        play.calls.append(Call(method, args, frozenset(stale)))
    return play


@cache
def unknown_writer() -> Play:
    """Something comes into a slot that was filled, and nobody knows whose it is: written down by hand."""
    play = Play("contents of unknown origin", num_pages=4, page_size=4)
    for method, args, stale in (
        ("lent", (2, 1, 7), ()),
        ("wrote", ([8, 9, 10], 7), ()),
        ("reads", ([8, 9, 10], 7), ()),
        ("wrote", ([9], -1), ()),
        ("reads", ([8, 9, 10], 7), (9,)),
    ):
        play.calls.append(Call(method, args, frozenset(stale)))
    return play


@cache
def ordinary() -> Play:
    """A thousand ordinary requests in a pool that is too small for those that run together."""
    from minikv import Engine, SamplingParams
    from minikv.course.seats.detector import watched_by

    draw = random.Random(9)
    prompts = [[draw.randrange(3, 200) for _ in range(draw.randrange(1, 20))] for _ in range(ORDINARY)]
    params = [SamplingParams(max_tokens=draw.randrange(1, 10), ignore_eos=True) for _ in range(ORDINARY)]
    with plainly():
        engine = Engine(_model(), page_size=4, num_pages=24, trace=_silent(), pool=watched_by(_Recorder))
        engine.generate(prompts, params)
    return _named(engine.pool.detectors[0].play, f"{ORDINARY:,} ordinary requests", ORDINARY)  # type: ignore[attr-defined]


@cache
def ordinary_pair() -> Play:
    """Two dozen ordinary requests on two nodes: their handoffs bring whole pages, with old slots at the end."""
    from minikv import Cluster, NodeConfig
    from minikv.course.seats.detector import watched_by

    with plainly():
        cluster = Cluster(
            _model(),
            prefill=NodeConfig(num_pages=9),
            decode=NodeConfig(num_pages=14),
            page_size=4,
            trace=_silent(),
            pool=watched_by(_Recorder),
        )
        for first in range(8):
            _serve(cluster, [5 + first, 9, 14 - first], 7)
    return _named(cluster.decode.pool.detectors[0].play, "ordinary requests on two nodes", 24)  # type: ignore[attr-defined]


PLAYS: tuple[Callable[[], Play], ...] = (
    incident, fresh_start, short_transfer, late_write, own_past, unknown_writer, ordinary, ordinary_pair,
)  # fmt: skip


@cache
def _model() -> BoundModel:
    from minikv.incident.scales import one_layer

    return one_layer(8192)


def _silent() -> Any:
    from minikv.trace import Trace

    return Trace(enabled=False)


def _historical(**sizes: Any) -> Any:
    """A historical cluster whose decode node's book says, for each read, what was stale."""
    from functools import partial

    from minikv.course.seats.detector import WatchedHistoricalPool
    from minikv.incident.history import HistoricalCluster

    class RecordingPool(WatchedHistoricalPool):
        def begin_read(self, table: Any) -> Any:
            slots = super().begin_read(table)
            stale = self.ledger.check_read(table, table.written).tolist() if self.ledger else []
            calls = self.detectors[0].play.calls  # type: ignore[attr-defined]
            calls[-1] = Call("reads", calls[-1].args, frozenset(stale))
            return slots

    pool = partial(RecordingPool, (_Recorder,), fenced=False)
    return HistoricalCluster(_model(), context_length=8192, trace=_silent(), pool=pool, **sizes)


def _serve(cluster: Cluster, lengths: list[int], answer: int) -> None:
    from minikv import SamplingParams

    prompts = [[1 + (7 * i + tokens) % 200 for i in range(tokens)] for tokens in lengths]
    cluster.generate(prompts, SamplingParams(max_tokens=answer, ignore_eos=True))


def _recorded(cluster: Any, name: str, requests: int = 1) -> Play:
    return _named(cluster.decode.pool.detectors[0].play, name, requests)


def _named(play: Play, name: str, requests: int) -> Play:
    play.name, play.requests = name, requests
    return play
