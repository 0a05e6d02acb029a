"""Which of these numbers move in the incident, which stay flat, and which alerts would have rung."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from minikv.config import NodeConfig
from minikv.disagg.router import Cluster
from minikv.incident.history import HistoricalCluster, historical_limit
from minikv.incident.metrics import METRICS, Books, Metric
from minikv.incident.scales import POCKET, one_layer
from minikv.incident.traffic import Call, Mix, Traffic
from minikv.incident.watch import Listener, WatchedCluster
from minikv.models.adapter import BoundModel
from minikv.trace import Event

PREFILL_LIMIT, DECODE_LIMIT = (
    historical_limit(POCKET.context_length, node.num_pages * POCKET.page_size)
    for node in (POCKET.prefill, POCKET.decode)
)
REQUESTS = 1000
OVER_LONG = 0.04  # share of the requests, during the incident
CALLS_PER_STEP = 3.0  # enough for some to give way on the decode node
STIR = 0.25  # a number moves if it changes by more than this share of what it was


@dataclass(frozen=True)
class Row:
    """One metric in three stretches of time with the same ordinary requests.

    Attributes:
        metric: what is counted.
        before: historical cluster, ordinary requests only.
        during: historical cluster, some prompts over prefill's limit among them.
        right: the right cluster, the same requests as `during`.
        fired: whether the alert rang, in the same order.
    """

    metric: Metric
    before: float
    during: float
    right: float
    fired: tuple[bool, bool, bool]

    @property
    def moves(self) -> bool:
        """Whether somebody who compares before with during sees a change, of a quarter at least."""
        return abs(self.during - self.before) > STIR * abs(self.before)


def ordinary(draw: random.Random) -> Call:
    """A prompt that both pools hold with its answer; few clients leave, few ask for more than anybody could serve."""
    kind = draw.random()
    if kind < 0.015:
        return Call(DECODE_LIMIT + draw.randrange(5), 2)  # both nodes refuse it
    if kind < 0.03:
        return Call(POCKET.context_length + draw.randrange(9), 2)  # the router does
    patience = draw.randint(0, 6) if kind < 0.08 else None
    return Call(draw.randint(1, 14), draw.randint(2, 13), patience)


def with_over_long(share: float = OVER_LONG, seed: int = 5) -> Mix:
    """The same requests, and others between them that are over the limit of prefill."""
    more = random.Random(seed)

    def mix(draw: random.Random) -> Call:
        return Call(PREFILL_LIMIT + more.randrange(40), 4) if more.random() < share else ordinary(draw)

    return mix


def watched(kind: type[Cluster], model: BoundModel | None = None, **settings: Any) -> Cluster:
    """A cluster of pocket size whose trace is a `Listener`."""
    model = model or _model()
    sizes: dict[str, Any] = {
        "prefill": NodeConfig(num_pages=POCKET.prefill.num_pages),
        "decode": NodeConfig(num_pages=POCKET.decode.num_pages),
        "page_size": POCKET.page_size,
        "context_length": POCKET.context_length,
        "allow_context_above_pool": True,
        "trace": Listener(),
    }
    return kind(model, **{**sizes, **settings})


@cache
def _model() -> BoundModel:
    return one_layer(POCKET.context_length)


def books_of(
    cluster: Cluster, mix: Mix, *, requests: int = REQUESTS, seed: int = 3, each_step: Callable[[], None] | None = None
) -> Books:
    """Let some requests come to a watched cluster, serve them all, and give the books of that time.

    Args:
        cluster: from `watched`.
        mix: what comes.
        requests: how many, at least.
        seed: of what comes.
        each_step: called after every step.

    Raises:
        TypeError: if nobody listens to the cluster.
    """
    listener, decode = cluster.trace, cluster.decode.pool
    if not isinstance(listener, Listener):
        raise TypeError("books need a cluster whose trace is a Listener; see watched()")
    events: list[Event] = []
    listener.hear.append(events.append)
    traffic, peak = Traffic(cluster, mix, seed, per_step=CALLS_PER_STEP), 0
    while traffic.sent < requests or traffic.open:
        traffic.step(new=traffic.sent < requests)
        peak = max(peak, decode.num_pages - decode.num_free)
        if each_step:
            each_step()
    listener.hear.remove(events.append)
    tensors = [tensor for node in cluster.nodes for side in (node.pool.keys, node.pool.values) for tensor in side]
    smallest = min(node.pool.num_slots for node in cluster.nodes)
    historical = isinstance(cluster, HistoricalCluster)
    return Books(
        events,
        limit=historical_limit(cluster.context_length, smallest) if historical else smallest + 1,
        pool_bytes=sum(tensor.nbytes for tensor in tensors),
        peak=peak / decode.num_pages,
    )


def what_moves(*, requests: int = 500, seed: int = 3) -> list[Row]:
    """All metrics before and during the incident, and on the right engine; alerts first."""
    old = watched(WatchedCluster)
    times = (
        books_of(old, ordinary, requests=requests, seed=seed),
        books_of(old, with_over_long(), requests=requests, seed=seed),
        books_of(watched(Cluster), with_over_long(), requests=requests, seed=seed),
    )
    rows = []
    for metric in METRICS:
        before, during, right = (float(metric.measure(books)) for books in times)
        first, second, third = (metric.fires(books) for books in times)
        rows.append(Row(metric, before, during, right, (first, second, third)))
    return rows
