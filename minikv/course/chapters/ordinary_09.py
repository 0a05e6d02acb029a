"""What the lesson of chapter 09 runs beside the incident: ordinary requests, and a request's two fields."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from minikv.course.chapters.detecting import ORDINARY

if TYPE_CHECKING:
    from minikv.engine import Engine

__all__ = ["ORDINARY", "ordinary_requests", "two_fields"]


def ordinary_requests(pool: Callable[..., Any], count: int = ORDINARY) -> Engine:
    """Serve ordinary requests with a small random model; pages run short, so that some must give way.

    Args:
        pool: the part that holds the pages.
        count: requests, of 1 to 19 tokens and answers of 1 to 9.

    Returns:
        The engine, when all are served.
    """
    from minikv import Engine, SamplingParams
    from minikv.incident.scales import one_layer
    from minikv.trace import Trace

    draw = random.Random(count)
    prompts = [[draw.randrange(3, 200) for _ in range(draw.randrange(1, 20))] for _ in range(count)]
    params = [SamplingParams(max_tokens=draw.randrange(1, 10), ignore_eos=True) for _ in range(count)]
    engine = Engine(one_layer(512), page_size=4, num_pages=24, trace=Trace(enabled=False), pool=pool)
    for answer in engine.generate(prompts, params):
        if answer.error is not None:
            raise answer.error
    return engine


def two_fields() -> Iterator[tuple[str, str, bool, str]]:
    """Follow the prefill node's copy of a refused request through the historical cluster.

    Yields:
        After each stage: what has happened, the verdict that is pending, what `finished` says, and what the client
        has been told so far.
    """
    from minikv import SamplingParams
    from minikv.incident.history import HistoricalCluster
    from minikv.incident.scales import POCKET, one_layer
    from minikv.incident.stage import build

    cluster = build(POCKET, one_layer(512), HistoricalCluster)
    number = cluster.submit([7] * 31, SamplingParams(max_tokens=4, ignore_eos=True))
    leg = cluster._legs[number]

    def now(stage: str) -> tuple[str, str, bool, str]:
        pending = "none" if leg.to_finish is None else f"refused, {leg.to_finish.status}"
        request = cluster.requests[number]
        told = "nothing" if not request.answered else "200" if request.error is None else str(request.error.status)
        return stage, pending, leg.finished, told

    yield now("prefill's door has refused it")
    cluster.step()
    yield now("prefill has served the placeholder")
    while not cluster.requests[number].answered:
        cluster.step()
    yield now("decode has written the answer")
