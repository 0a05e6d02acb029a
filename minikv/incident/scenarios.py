"""Six ways in which a handoff goes wrong, each played on a cluster with any guards on, at pocket scale.

`over-length` is the incident. The others are faults of the same kind that other engines have reported; `symmetric` is
the control: with two equal pools the same defects do no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from minikv.disagg.router import Cluster
from minikv.errors import HandoffRefused, StaleWrite
from minikv.incident.history import HistoricalCluster, HistoricalDecodeNode
from minikv.incident.pages import UNREAD, HistoricalPool, Witness
from minikv.incident.wire import GivesUp, LosesLastPage, Repeats, Slow, Wire
from minikv.sampling import SamplingParams

PATIENCE = 64  # steps without an answer: whoever waits longer waits for ever
ORDINARY_TOKENS, ORDINARY_ANSWER = 18, 8  # five pages, the last half full; fits both pools with its answer


@dataclass(frozen=True)
class Ending:
    """How a scenario ended for the client that it is about.

    Attributes:
        status: of the final answer; None if there was none.
        token_ids: what went out to the client.
        stale_slots_read: different slots that were read for the client though its request had not written them.
    """

    status: int | None
    token_ids: tuple[int, ...]
    stale_slots_read: int


@dataclass(frozen=True)
class Prompts:
    """What is sent: token ids.

    Attributes:
        attack: longer than the prefill pool.
        ordinary: fits everywhere.
        stranger: fits, too; of another tenant, whose words nobody else may get.
        answer_tokens: asked for with the attack.
    """

    attack: tuple[int, ...]
    ordinary: tuple[int, ...]
    stranger: tuple[int, ...]
    answer_tokens: int


Play = Callable[[Cluster, Prompts], int]


@dataclass(frozen=True)
class Scenario:
    """A fault and the request that meets it.

    Attributes:
        name: as in reports.
        title: what happens, in words.
        play: sends what is to be sent, as far as the fault needs it; returns the number of the request to watch.
        wire: builds what carries the handoffs.
        equal_pools: whether the decode pool is as small as the prefill pool.
        streamed: whether the client reads along.
    """

    name: str
    title: str
    play: Play
    wire: Callable[[], Wire] = Wire
    equal_pools: bool = False
    streamed: bool = False

    def run(self, cluster: Cluster, prompts: Prompts) -> Ending:
        """Play it to the end; a client who gets no answer in `PATIENCE` steps gets none."""
        if isinstance(cluster, HistoricalCluster):
            cluster.wire = self.wire()
        number = self.play(cluster, prompts)
        sent = _follow(cluster, number)
        request = cluster.requests[number]
        if not self.streamed:  # the words come with the answer, and an error has none
            sent = tuple(request.output_ids) if request.answered and request.error is None else ()
        status = None if not request.answered else 200 if request.error is None else request.error.status
        return Ending(status, sent, _stale_slots(cluster, number))


def _follow(cluster: Cluster, number: int) -> tuple[int, ...]:
    """Go on until there is an answer; returns the tokens that a client who reads along was given."""
    request = cluster.requests[number]
    sent: list[int] = []
    for _ in range(PATIENCE):
        if request.answered:
            break
        cluster.step()
        if cluster.may_read(request):
            sent += request.output_ids[len(sent) :]
    return tuple(sent)


def _stale_slots(cluster: Cluster, number: int) -> int:
    ledger = cluster.decode.pool.ledger
    if not isinstance(ledger, Witness) or number not in ledger.stale_reads:
        return 0
    return int((ledger.stale_reads[number] != UNREAD).sum())


def _send(cluster: Cluster, prompt: tuple[int, ...], answer: int, tenant: str) -> int:
    return cluster.submit(prompt, SamplingParams(max_tokens=answer, ignore_eos=True), tenant)


def _attack(cluster: Cluster, prompts: Prompts) -> int:
    return _send(cluster, prompts.attack, prompts.answer_tokens, "attacker")


def _ordinary(cluster: Cluster, prompts: Prompts) -> int:
    return _send(cluster, prompts.ordinary, ORDINARY_ANSWER, "client")


def _late_write(cluster: Cluster, prompts: Prompts) -> int:
    """The stranger's handoff is under way when its client leaves. Its pages are lent on; then it arrives."""
    stranger = _send(cluster, prompts.stranger, ORDINARY_ANSWER, "stranger")
    wire = cluster.wire if isinstance(cluster, HistoricalCluster) else None
    while isinstance(wire, Slow) and wire.under_way is None:
        cluster.step()
    table = cluster.decode.pool.tables.get(stranger)
    cluster.forget(stranger)
    number = _ordinary(cluster, prompts)
    _until_tokens(cluster, number, 2)
    pool = cluster.decode.pool
    if isinstance(wire, Slow) and wire.under_way and table and isinstance(pool, HistoricalPool):
        with suppress(StaleWrite):  # then the old writer is told, loudly, and nobody else notices
            pool.land(table, wire.under_way)
    return number


def _duplicate(cluster: Cluster, prompts: Prompts) -> int:
    """The handoff was taken, the answer has begun, and then the same handoff comes once more."""
    number = _ordinary(cluster, prompts)
    _until_tokens(cluster, number, 2)
    wire = cluster.wire if isinstance(cluster, HistoricalCluster) else None
    if isinstance(wire, Repeats) and wire.again and isinstance(cluster.decode, HistoricalDecodeNode):
        with suppress(HandoffRefused):  # then the sender is told, and the request goes on
            cluster.decode.receive_again(wire.again)
    return number


def _until_tokens(cluster: Cluster, number: int, tokens: int) -> None:
    request = cluster.requests[number]
    for _ in range(PATIENCE):
        if request.answered or len(request.output_ids) >= tokens:
            return
        cluster.step()


SCENARIOS = {
    each.name: each
    for each in (
        Scenario("over-length", "a prompt longer than the prefill pool: the incident", _attack),
        Scenario("short-transfer", "success is reported, and the last page is lost", _ordinary, LosesLastPage),
        Scenario("late-write", "aborted, the pages lent on, and the old writer still writes", _late_write, Slow),
        Scenario("lost-abort", "prefill gives up, and decode is not told", _ordinary, GivesUp),
        Scenario("duplicate", "a handoff is delivered twice", _duplicate, Repeats),
        Scenario("symmetric", "the control: both pools small, so decode refuses, too", _attack, equal_pools=True),
    )
}
STREAMED = Scenario("over-length, streamed", "the incident, and the client reads along", _attack, streamed=True)
