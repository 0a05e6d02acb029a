"""Runs whose traces are searched for the first disagreement about a request's length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from minikv.course.chapters.small import plainly
from minikv.trace import Event, Length, Read

if TYPE_CHECKING:
    from minikv.models.adapter import BoundModel

ANSWER = 6


@dataclass(frozen=True)
class Run:
    """A trace, and where its parts first disagree.

    Attributes:
        name: what happened, in words.
        request: whose length they disagree about; None if they all agree.
        part: where the other length is first seen, of `trace.PARTS`.
    """

    name: str
    events: tuple[Event, ...]
    request: int | None = None
    part: str = ""

    def fits(self, answer: object) -> bool:
        """Whether an answer names the right event. Of attention, any read of the step will do."""
        if self.request is None:
            return answer is None
        if isinstance(answer, Length):
            return (answer.request, answer.part) == (self.request, self.part)
        if isinstance(answer, Read) and self.part == "attention":
            return (answer.owner, answer.node, answer.step) == (self.request, "decode", self.first_step(self.request))
        return False

    def believed(self, request: int) -> int:
        """The first length that anybody held for a request."""
        return next(each.tokens for each in self.events if isinstance(each, Length) and each.request == request)

    def first_step(self, request: int) -> int:
        """The step in which the decode node first read for a request; -1 if it never did."""
        steps = (e.step for e in self.events if isinstance(e, Read) and (e.node, e.owner) == ("decode", request))
        return next(steps, -1)

    def read_in(self, step: int, request: int) -> int:
        """Slots that the decode node read for a request in a step."""
        reads = [e for e in self.events if isinstance(e, Read) and (e.node, e.owner) == ("decode", request)]
        return sum(each.slots for each in reads if each.step == step)


@cache
def incident() -> Run:
    """An earlier visit, and the request that is too long."""
    cluster = _historical()
    _send(cluster, 18)
    _run(cluster)
    attack = _send(cluster, 31)
    _run(cluster)
    return Run("the incident", tuple(cluster.trace), attack, "queue")


@cache
def crowd() -> Run:
    """The same in a crowd: others of other lengths are served at the same time, and come later."""
    cluster = _historical()
    _send(cluster, 18)
    _send(cluster, 7)
    attack = _send(cluster, 29)
    _send(cluster, 11)
    _run(cluster)
    _send(cluster, 5)
    _run(cluster)
    return Run("the incident in a crowd", tuple(cluster.trace), attack, "queue")


@cache
def right() -> Run:
    """The right cluster: six requests of six lengths, in chunks, and pages run short in the middle."""
    cluster = _right(max_batch_tokens=8, decode_pages=12)
    for tokens in (18, 7, 3, 20, 11, 5):
        _send(cluster, tokens, answer=9)
    _run(cluster)
    return Run("six ordinary requests", tuple(cluster.trace))


@cache
def short_prompts() -> Run:
    """Prompts that fit into one page with their answers' first tokens."""
    cluster = _right()
    for tokens in (3, 2, 3):
        _send(cluster, tokens, answer=2)
    _run(cluster)
    return Run("three short requests", tuple(cluster.trace))


@cache
def refused() -> Run:
    """Prompts that are refused at the right door, between others."""
    cluster = _right()
    for tokens in (40, 9, 300):
        _send(cluster, tokens)
    _run(cluster)
    return Run("two requests that were refused", tuple(cluster.trace))


@cache
def cut_short() -> Run:
    """The last page of a handoff is lost, and decode goes on with what came: nobody says so, but less is read."""
    from minikv.incident.wire import LosesLastPage

    cluster = _historical(defects="e", wire=LosesLastPage())
    victim = _send(cluster, 18)
    _run(cluster)
    return Run("a handoff that lost its last page", tuple(cluster.trace), victim, "attention")


@cache
def cut_then_refused() -> Run:
    """Two faults in one evening: first a lost page, later a request that is too long."""
    cluster = _losing()
    victim = _send(cluster, 18)
    _run(cluster)
    _send(cluster, 31)
    _run(cluster)
    return Run("a lost page, and later a request that is too long", tuple(cluster.trace), victim, "attention")


@cache
def refused_then_cut() -> Run:
    """The same two at the same time: the one with the smaller number goes wrong later."""
    cluster = _losing()
    _send(cluster, 18)
    attack = _send(cluster, 31)
    _run(cluster)
    return Run("a request that is too long beside one that loses a page", tuple(cluster.trace), attack, "queue")


def _losing() -> Any:
    """All faults but one (f): the last page of each handoff is lost, and decode reads what came."""
    from minikv.incident.wire import LosesLastPage

    return _historical(defects="abcdegh", wire=LosesLastPage())


RUNS: tuple[Callable[[], Run], ...] = (
    incident, crowd, right, short_prompts, refused, cut_short, cut_then_refused, refused_then_cut,
)  # fmt: skip


def _historical(**settings: Any) -> Any:
    from minikv.config import NodeConfig
    from minikv.incident.history import HistoricalCluster

    sizes: Any = {"prefill": NodeConfig(num_pages=7), "decode": NodeConfig(num_pages=64)}
    with plainly():
        return HistoricalCluster(_model(), page_size=4, context_length=512, **sizes, **settings)


def _right(max_batch_tokens: int = 64, decode_pages: int = 64) -> Any:
    from minikv import Cluster, NodeConfig

    with plainly():
        return Cluster(
            _model(),
            prefill=NodeConfig(num_pages=9, max_batch_tokens=max_batch_tokens),
            decode=NodeConfig(num_pages=decode_pages),
            page_size=4,
        )


def _send(cluster: Any, tokens: int, answer: int = ANSWER) -> int:
    from minikv import SamplingParams

    prompt = [1 + (5 * i + tokens) % 200 for i in range(tokens)]
    number: int = cluster.submit(prompt, SamplingParams(max_tokens=answer, ignore_eos=True))
    return number


def _run(cluster: Any) -> None:
    with plainly():
        while not all(request.answered for request in cluster.requests.values()):
            cluster.step()


@cache
def _model() -> BoundModel:
    from minikv.incident.scales import one_layer

    with plainly():
        return one_layer(512)
