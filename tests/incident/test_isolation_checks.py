"""Each check of the isolation kit alone: what turns it red, and what must not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from minikv import Cluster, Engine, NodeConfig, Rejected, SamplingParams
from minikv.disagg.handoff import Contract
from minikv.disagg.nodes import DecodeNode
from minikv.errors import EngineFailed
from minikv.incident.isolation import Answer, Ask, ServerTarget, check_content, check_mix, probes
from minikv.incident.isolation import content as checks
from minikv.incident.isolation import invariants as rules
from minikv.incident.isolation.invariants import Watch
from minikv.incident.isolation.traffic import (
    NAMES,
    Limits,
    Speakers,
    boundary_lengths,
    invented,
    limits_of,
    mixed,
    turning_over,
)
from minikv.incident.pages import HistoricalPool
from minikv.incident.tenants import Tenant
from minikv.memory import PagePool, PageTable
from minikv.models.adapter import BoundModel
from minikv.scheduling import request as requests
from minikv.scheduling.admission import Admission
from minikv.trace import Admit, Allocate, Event, Finish, Free, HandoffDone, Length, Read, Refuse, Write

ADA = Tenant("ada", "my own words are six in all", ("own-1",))
BELA = Tenant("bela", "the tin behind the stove holds gold-77 and more", ("gold-77",))
TENANTS = {"ada": ADA, "bela": BELA}
ASK = Ask("ada", (1, 2, 3), 4)
TRUE = (5, 6, 7, 8)
OK = Answer(200, TRUE, "fine", 3)


def named(found: Sequence[Any]) -> list[str]:
    return [finding.rule for finding in found]


def cluster(model: BoundModel, **settings: Any) -> partial[Cluster]:
    sizes = {"prefill": NodeConfig(num_pages=7), "decode": NodeConfig(num_pages=40)}
    return partial(Cluster, model, page_size=4, **{**sizes, **settings})


# Content


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("it is gold-77", ["no stranger's canary comes out"]),
        ("well: the tin behind the stove is", ["no stranger's words come out"]),
        ("the tin behind the oven", []),
        ("my own words are six in all", []),
    ],
)
def test_words(text: str, rule: list[str]) -> None:
    assert named(checks.no_words_of_others([(ASK, replace(OK, text=text))], TENANTS)) == rule


def test_words_that_are_ones_own_too() -> None:
    both = {**TENANTS, "ada": replace(ADA, text="gold-77 and the tin behind the stove holds")}
    answer = replace(OK, text="gold-77; the tin behind the stove holds")
    assert not checks.no_words_of_others([(ASK, answer)], both)


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        (OK, []),
        (replace(OK, token_ids=(5, 6, 7, 9)), ["an answer belongs to its prompt"]),
        (replace(OK, token_ids=(5, 6)), ["status 200 means all of it"]),
        (replace(OK, token_ids=(5, 6), granted=2), []),
        (replace(OK, token_ids=(5, 6), granted=3), ["status 200 means all of it"]),
        (Answer(500, (5, 6), error="broken"), []),
        (Answer(500, (9,), error="broken"), ["an answer belongs to its prompt"]),
        (Answer(499, (5, 6), left=True, error="left"), []),
        (Answer(400, error="too long"), []),
        (Answer(200), ["status 200 means all of it"]),
    ],
)
def test_truth(answer: Answer, rule: list[str]) -> None:
    assert named(checks.answers_are_true([(ASK, answer)], lambda _ask: TRUE)) == rule


def test_truth_of_what_nobody_can_serve() -> None:
    found = checks.answers_are_true([(ASK, OK), (ASK, Answer(400))], lambda _ask: None)
    assert named(found) == ["who cannot be served gets no words"]


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        (OK, []),
        (Answer(None, (5,)), ["everybody gets an answer"]),
        (Answer(400, (5,), error="too long"), ["a refusal comes before the first word"]),
        (Answer(400, error="too long"), []),
        (Answer(499, (5,), left=True, error="left"), []),
        (Answer(500, (5,), error="broken"), []),
        (replace(OK, error="too long"), ["status 200 has no error in it"]),
    ],
)
def test_statuses(answer: Answer, rule: list[str]) -> None:
    assert named(checks.statuses_are_true([(ASK, answer)])) == rule


@pytest.mark.parametrize(("counted", "red"), [(3, False), (1, True), (None, False), (4, True)])
def test_usage(counted: int | None, red: bool) -> None:
    assert bool(checks.usage_is_true([(ASK, replace(OK, prompt_tokens=counted))])) == red
    assert not checks.usage_is_true([(ASK, Answer(400, prompt_tokens=counted))])


def test_unmoved() -> None:
    other = Ask("bela", (4, 5), 4)
    first = [(ASK, OK), (other, OK)]
    assert not checks.unmoved(first, [(ASK, OK), (other, replace(OK, token_ids=(1,)))], ["bela"])
    for moved in (replace(OK, token_ids=(1,)), replace(OK, text="another", token_ids=())):
        assert len(checks.unmoved(first, [(ASK, moved), (other, OK)], ["bela"])) == 1
        assert len(checks.same_alone(first, [(ASK, moved), (other, OK)])) == 1
    assert not checks.same_alone(first, [(ASK, Answer(429)), (other, OK)])


class Parrot:
    """A target without tokens: it repeats what was sent last; a leaky one repeats what others sent."""

    def __init__(self, encode: Any, decode: Any, leaks: bool = False, counts: int = 0) -> None:
        self.decode, self.leaks, self.counts = decode, leaks, counts
        self.heard = ""

    def serve(self, asks: Sequence[Ask]) -> list[Answer]:
        answers = []
        for ask in asks:
            text = self.decode(ask.prompt)
            said = self.heard if self.leaks and self.heard else text
            answers.append(Answer(200, (), said, len(ask.prompt) - self.counts))
            self.heard = text
        return answers


@pytest.mark.parametrize(
    ("settings", "red"),
    [
        ({}, set()),
        ({"leaks": True}, {"no stranger's canary comes out", "an answer hangs on nobody else's prompt"}),
        ({"counts": 1}, {"the prompt is counted as it was sent"}),
    ],
)
def test_black_box(tiny: BoundModel, settings: dict[str, Any], red: set[str]) -> None:
    """Nothing is known of the target but what it says. Its words come in one piece, or from others."""

    def speakers(changed: Collection[str]) -> Speakers:
        return Speakers(tiny.encode, 0, changed)

    found = check_content(lambda: Parrot(tiny.encode, tiny.decode, **settings), Limits(300, (300,), 8), speakers)
    assert red <= set(named(found)) and bool(found) == bool(red)


# Traffic


def test_tenants_share_no_words() -> None:
    for version in (0, 1):
        words = [set(invented(name, 0, version).text.split()) for name in NAMES]
        assert sum(map(len, words)) - len(set().union(*words)) <= 8  # short ones may meet; five in a row do not
        canaries = [each for name in NAMES for each in invented(name, 0, version).canaries]
        assert len(set(canaries)) == len(canaries)
    assert all(each in invented("ada", 0).text for each in invented("ada", 0).canaries)


def test_the_mix_has_all_kinds(tiny: BoundModel) -> None:
    limits = Limits(28, (28, 160), 4)
    plain, moved = (mixed(Speakers(tiny.encode, 0, changed), limits, 900, 3) for changed in ((), NAMES[1:]))
    assert [len(ask.prompt) for ask in plain] == [len(ask.prompt) for ask in moved]
    assert all(
        (one.prompt == other.prompt) == (one.tenant == "ada")
        for one, other in zip(plain, moved, strict=True)
        if len(one.prompt) > 6
    )
    kinds = {ask.kind for ask in plain}
    assert {"ordinary", "limit", "limit+1", "limit-1", "context+1", "pages+1", "pool 0+1", "pool 1+0"} <= kinds
    assert {ask.streamed for ask in plain} == {True, False} and any(ask.leaves_after is not None for ask in plain)


def test_boundaries_lie_on_both_sides() -> None:
    limits = Limits(28, (28, 160), 4)
    lengths = boundary_lengths(limits, 4)
    assert lengths["limit"] + 4 == limits.room and lengths["context+1"] + 4 == limits.context + 1
    assert {27, 28, 29, 31, 160} <= set(lengths.values()) and min(lengths.values()) >= 1


@pytest.mark.parametrize("pages", [(7, 40), (7, 64), (13, 9)])
def test_pools_turn_over(tiny: BoundModel, pages: tuple[int, int]) -> None:
    """After it somebody has written in every page of every pool."""
    prefill, decode = (NodeConfig(num_pages=each) for each in pages)
    server = cluster(tiny, prefill=prefill, decode=decode)()
    for each in turning_over(Speakers(tiny.encode), limits_of(server)):
        assert all(answer.status == 200 for answer in ServerTarget(server).serve(each))
    assert all((node.pool.generation > 0).all() for node in server.nodes)


# Targets


def test_a_target_does_not_wait_for_ever(tiny: BoundModel) -> None:
    server = Engine(tiny, num_pages=9, page_size=4)
    server.step = lambda: None  # type: ignore[method-assign]
    (answer,) = ServerTarget(server).serve([ASK])
    assert answer.status is None and not server.requests


def test_a_client_that_leaves_takes_what_it_was_given(tiny: BoundModel) -> None:
    ask = Ask("ada", (40, 41, 42), 9, streamed=True, leaves_after=3)
    (left,) = ServerTarget(Engine(tiny, num_pages=9, page_size=4)).serve([ask])
    (stayed,) = ServerTarget(Engine(tiny, num_pages=9, page_size=4)).serve([replace(ask, leaves_after=None)])
    assert left.status == 499 and left.left and left.token_ids == stayed.token_ids[:3]
    assert stayed.status == 200 and len(stayed.token_ids) == 9 and stayed.prompt_tokens == 3


# Invariants: a right life of one request on two nodes, and one event of it changed

LIFE: tuple[Event, ...] = (
    Length(0, "router", 7, "client", 5), Admit(0, "router", 7, "ada", 5, 3), Length(0, "router", 7, "queue", 5),
    Allocate(1, "prefill", 2, 7, 1), Allocate(1, "prefill", 3, 7, 1),
    Write(1, "prefill", 2, 7, 1, 7, 0, 4), Write(1, "prefill", 3, 7, 1, 7, 0, 1),
    Read(1, "prefill", 2, 7, 1, 4, ((7, 4),)), Read(1, "prefill", 3, 7, 1, 1, ((7, 1),)),
    Allocate(1, "decode", 8, 7, 4), Allocate(1, "decode", 9, 7, 4),
    Write(1, "decode", 8, 7, 4, 7, 0, 4), Write(1, "decode", 9, 7, 4, 7, 0, 1),
    HandoffDone(1, "decode", 7, 5, 5, 5, (8, 9)), Free(1, "prefill", 2, 7, 1), Free(1, "prefill", 3, 7, 1),
    Write(2, "decode", 9, 7, 4, 7, 1, 2), Read(2, "decode", 8, 7, 4, 4, ((7, 4),)),
    Read(2, "decode", 9, 7, 4, 2, ((7, 2),)), Finish(2, "router", 7, "length", 200, 2),
    Free(2, "decode", 8, 7, 4), Free(2, "decode", 9, 7, 4),
)  # fmt: skip


def watched(events: Sequence[Event], server: Engine) -> set[str]:
    watch = Watch()
    watch.trace.extend(events)
    return set(named(watch.end(server)))


def swapped(old: Event, *new: Event) -> tuple[Event, ...]:
    place = LIFE.index(old)
    return (*LIFE[:place], *new, *LIFE[place + 1 :])


@pytest.mark.parametrize(
    ("events", "rule"),
    [
        (LIFE, set()),
        (swapped(LIFE[2], replace(LIFE[2], tokens=1)), {rules.ONE_LENGTH}),
        (swapped(LIFE[12], replace(LIFE[12], writer=3)), {rules.WRITTEN}),
        (swapped(LIFE[12]), {rules.WRITTEN}),
        (swapped(LIFE[18], replace(LIFE[18], slots=3)), {rules.WRITTEN}),
        (swapped(LIFE[18], replace(LIFE[18], writers=((7, 1), (3, 1)))), {rules.OWN}),
        (swapped(LIFE[16], replace(LIFE[16], generation=3)), {rules.GENERATION}),
        (swapped(LIFE[17], replace(LIFE[17], page=5)), {rules.GENERATION, rules.WRITTEN}),
        (swapped(LIFE[13], replace(LIFE[13], received=4)), {rules.HANDOFF}),
        (swapped(LIFE[13], replace(LIFE[13], promised=1)), {rules.HANDOFF}),
        (swapped(LIFE[13], LIFE[13], LIFE[13]), {rules.HANDOFF}),
        (swapped(LIFE[19]), {rules.ONE_ANSWER}),
        (swapped(LIFE[19], LIFE[19], LIFE[19]), {rules.ONE_ANSWER}),
        (swapped(LIFE[19], replace(LIFE[19], reason="rejected")), {rules.AT_THE_DOOR, rules.TOUCHES_NOTHING}),
        (swapped(LIFE[9], LIFE[9], Allocate(1, "decode", 8, 5, 5)), {"a page has one holder", rules.GENERATION}),
        (swapped(LIFE[20], LIFE[20], LIFE[20]), {"a page has one holder"}),
        ((LIFE[0], Refuse(0, "router", 7, "ada", 5, 400, "too long")), set()),
    ],
)  # fmt: skip
def test_rules_of_the_watch(tiny: BoundModel, events: Sequence[Event], rule: set[str]) -> None:
    found = watched(events, Engine(tiny, num_pages=3, page_size=4))
    assert rule <= found and (rule or not found)
    assert len(found - rule) <= 1  # what follows from it


def test_pages_that_do_not_come_back(tiny: BoundModel) -> None:
    class Hoarder(PagePool):
        def free(self, table: PageTable) -> None:
            """Forget to give them back."""
            del self.tables[table.owner]

    report = check_mix(partial(Engine, tiny, num_pages=60, page_size=4, pool=Hoarder), 4)
    assert {rules.WHOLE, rules.BACK} <= set(report.rules("invariant"))


def test_a_status_made_better(tiny: BoundModel) -> None:
    server, watch = Engine(tiny, num_pages=9, page_size=4), Watch()
    number = server.submit([1, 2], SamplingParams(max_tokens=3))
    watch.look(server)
    assert not watch.found
    server.requests[number].error = EngineFailed("broken")
    watch.look(server, quiet_wire=False)
    assert named(watch.found) == [rules.WORST]


def test_a_prompt_that_changes(tiny: BoundModel) -> None:
    server, watch = Engine(tiny, num_pages=9, page_size=4), Watch()
    number = server.submit([1, 2], SamplingParams(max_tokens=3))
    server.requests[number].prompt_ids = (1, 3)
    watch.look(server, quiet_wire=False)
    assert named(watch.found) == [rules.ONE_LENGTH]


# Probes: right servers with one wrong part


class TakesAll(Contract):
    @staticmethod
    def verify(*_arguments: Any, **_settings: Any) -> None:
        """Nothing is looked at."""


class LooksAtPages(Contract):
    @staticmethod
    def verify(handoff: Any, pool: Any, *, request: int, expected_tokens: int) -> None:
        """Pages are counted, and nothing else."""
        if len(handoff.keys[0]) != -(-expected_tokens // pool.page_size):
            from minikv.errors import HandoffRefused

            raise HandoffRefused("pages are missing")


class LastNodeOnly(Admission):
    def __init__(self, context_length: int, nodes: Any, config: Any = None) -> None:
        super().__init__(context_length, nodes[-1:], config)


class Believes(DecodeNode):
    def readable(self, request: Any, handoff: Any) -> int:
        """What the door said."""
        return int(request.prompt_tokens)


class Believing(Cluster):
    decode_type = Believes


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"handoff": TakesAll}, probes.RECEIVER),
        ({"handoff": LooksAtPages}, probes.RECEIVER),
        ({"admission": LastNodeOnly, "context_length": 160, "allow_context_above_pool": True}, probes.DOOR),
        ({"pool": partial(HistoricalPool, fenced=False), "ledger": False}, probes.FENCE),
    ],
)
def test_probes_of_wrong_parts(tiny: BoundModel, settings: dict[str, Any], rule: str) -> None:
    assert named(probes.ask_all(cluster(tiny, **settings)))[:1] == [rule]


def test_probe_of_what_is_readable(tiny: BoundModel) -> None:
    make = partial(Believing, tiny, prefill=NodeConfig(num_pages=7), decode=NodeConfig(num_pages=9), page_size=4)
    assert named(probes.ask_all(make)) == [probes.READABLE]


def test_probe_of_the_worst_status(tiny: BoundModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "SEVERITY", dict.fromkeys(requests.SEVERITY, 0))
    assert named(probes.probe_status(cluster(tiny))) == [probes.WORST]


def test_a_receiver_that_takes_nothing_is_no_right_one(tiny: BoundModel) -> None:
    class TakesNothing(Contract):
        @staticmethod
        def verify(*_arguments: Any, **_settings: Any) -> None:
            raise Rejected("no")

    assert "a whole handoff is taken" in named(probes.probe_receiver(cluster(tiny, handoff=TakesNothing)))


def test_a_receiver_with_a_digest_of_its_own_is_right(tiny: BoundModel) -> None:
    class OtherDigest(Contract):
        @staticmethod
        def pack(pool: Any, table: Any, first_token: int) -> Any:
            handoff = Contract.pack(pool, table, first_token)
            return replace(handoff, digest=handoff.digest[::-1])

        @staticmethod
        def verify(handoff: Any, pool: Any, *, request: int, expected_tokens: int) -> None:
            plain = replace(handoff, digest=handoff.digest[::-1])
            Contract.verify(plain, pool, request=request, expected_tokens=expected_tokens)

    assert probes.ask_all(cluster(tiny, handoff=OtherDigest)) == []
