"""Faults of the wire, played on a cluster: what must become of the client is an answer that is true, or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from minikv.disagg.handoff import Handoff
from minikv.disagg.router import Cluster
from minikv.errors import HandoffRefused, StaleWrite
from minikv.incident.history import HistoricalCluster
from minikv.incident.isolation.findings import Finding
from minikv.incident.isolation.targets import Answer, Ask, Pair, ServerTarget
from minikv.incident.isolation.traffic import Limits, Speakers
from minikv.incident.scenarios import ORDINARY_ANSWER, PATIENCE, Prompts, Scenario
from minikv.incident.wire import Repeats, Slow, Wire
from minikv.sampling import SamplingParams
from minikv.scheduling.request import Request

FAULTS = ("short-transfer", "late-write", "lost-abort", "duplicate")


def prompts_of(speakers: Speakers, limits: Limits) -> Prompts:
    """What a fault is played with: prompts that fit everywhere, and whose last page is not full."""
    size = limits.page_size
    fits = max((limits.room - ORDINARY_ANSWER) // size * size - size // 2, 1)
    return Prompts(
        attack=speakers.prompt("ada", min(limits.pools) + size - 1),
        ordinary=speakers.prompt("ada", fits, 3),
        stranger=speakers.prompt("bela", fits),
        answer_tokens=ORDINARY_ANSWER,
    )


def play(cluster: Cluster, scenario: Scenario, prompts: Prompts) -> tuple[Pair, list[Finding]]:
    """Play a scenario on a cluster of any kind; returns what its client asked and got, and what a part took wrongly."""
    attack = scenario.name not in FAULTS
    prompt = prompts.attack if attack else prompts.ordinary
    answer_tokens = prompts.answer_tokens if attack else ORDINARY_ANSWER
    ask = Ask("ada", prompt, answer_tokens, scenario.name, scenario.streamed)
    if not attack and not isinstance(cluster, HistoricalCluster):
        return _play_on_right(cluster, scenario.wire(), ask, prompts)
    before = cluster.next_number
    ending = scenario.run(cluster, prompts)
    number = max(number for number in cluster.requests if number >= before)
    return (ask, _answer(cluster, number, ending.status, ending.token_ids)), []


def _answer(cluster: Cluster, number: int, status: int | None, token_ids: tuple[int, ...]) -> Answer:
    request = cluster.requests[number]
    text = cluster.model.decode(token_ids) if cluster.model.tokenizer and token_ids else ""
    answer = Answer(status, token_ids, text, request.prompt_tokens, str(request.error or ""))
    cluster.forget(number)
    return answer


def _play_on_right(cluster: Cluster, wire: Wire, ask: Ask, prompts: Prompts) -> tuple[Pair, list[Finding]]:
    """The right cluster has no wire to exchange, so the fault sits where its prefill node packs."""
    target = ServerTarget(cluster)
    with _carried_by(cluster, wire):
        if isinstance(wire, Slow):  # the stranger's handoff does not come; it strikes later
            target.serve([Ask("bela", prompts.stranger, ORDINARY_ANSWER, "stranger")])
        number = cluster.submit(ask.prompt, SamplingParams(max_tokens=ask.max_tokens, ignore_eos=True), ask.tenant)
        request = cluster.requests[number]
        _step_until(cluster, lambda: request.answered or len(request.output_ids) >= 2)
        late = wire.under_way if isinstance(wire, Slow) else wire.again if isinstance(wire, Repeats) else None
        found = deliver(cluster, late) if late else []
        _step_until(cluster, lambda: request.answered)
    if not request.answered:
        return (ask, _answer(cluster, number, None, ())), found
    status, ids = (200, tuple(request.output_ids)) if request.error is None else (request.error.status, ())
    return (ask, _answer(cluster, number, status, ids)), found


def _step_until(cluster: Cluster, done: Callable[[], bool]) -> None:
    for _ in range(PATIENCE):
        if done():
            return
        cluster.step()


@contextmanager
def _carried_by(cluster: Cluster, wire: Wire) -> Iterator[None]:
    export: Callable[[Request], Handoff] = cluster.prefill.export

    def faulty(request: Request) -> Handoff:
        return wire.carry(export(request))

    cluster.prefill.export = faulty  # type: ignore[method-assign]
    try:
        yield
    finally:
        del cluster.prefill.export


def deliver(cluster: Cluster, handoff: Handoff) -> list[Finding]:
    """Bring a handoff to a decode node that does not wait for it; whoever takes it breaks a rule."""
    request = Request(handoff.request, range(handoff.num_tokens), SamplingParams())
    try:
        cluster.decode.receive(request, handoff)
    except (HandoffRefused, StaleWrite):
        return []
    return [
        Finding("probe", "a handoff is taken once, by whoever waits for it", f"that of {handoff.request} was taken")
    ]
