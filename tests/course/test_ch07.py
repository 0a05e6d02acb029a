"""Chapter 07: the receiver in a cluster, the picture of a transfer, and what the judges leave behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ch07_answers as answers
import pytest
import torch

from minikv import Cluster, Completion, Engine, NodeConfig, SamplingParams, load_model
from minikv.course.chapters import ch07, ex_7_1, ex_7_2
from minikv.course.chapters.handover import DecodeSide, Handoff, PrefillSide, digest_of, pages_in, received_tokens
from minikv.course.chapters.late_writers import storm
from minikv.course.chapters.trial_7 import Trial, of_layers, sealed
from minikv.course.seats.receiver import (
    COMPLETE,
    FIRST,
    NOTES,
    NOTHING,
    PLACE,
    UNCHANGED,
    as_handoff,
    delivered,
)
from minikv.disagg.handoff import Handoff as EngineHandoff
from minikv.disagg.handoff import digest_of as engine_digest
from minikv.errors import BrokenRule, ConfigError, HandoffRefused
from minikv.incident.history import HistoricalCluster
from minikv.viz.transfer import Transfer, transfer_map

GREEDY = SamplingParams(max_tokens=5, ignore_eos=True)
PROMPTS = [[(11 * i + 3 * j) % 250 for j in range(4 + 3 * i)] for i in range(5)]
TARGET = 2


def two_nodes(model: Any, **parts: Any) -> Cluster:
    sizes = {"prefill": NodeConfig(num_pages=10), "decode": NodeConfig(num_pages=40)}
    return Cluster(model, **sizes, page_size=4, context_length=40, **parts)


def served(model: Any, **parts: Any) -> tuple[Cluster, list[Completion]]:
    cluster = two_nodes(model, **parts)
    done = cluster.generate(PROMPTS, GREEDY)
    cluster.check()
    for node in cluster.nodes:
        assert node.pool.num_free == node.pool.num_pages and not node.pool.tables
    return cluster, done


@pytest.fixture(scope="module")
def tiny() -> Any:
    return load_model("tiny-random")


@pytest.fixture(scope="module")
def right(tiny: Any) -> list[tuple[int, ...]]:
    return [each.token_ids for each in Engine(tiny, page_size=4, num_pages=40).generate(PROMPTS, GREEDY)]


# The receiver's seat


@pytest.mark.parametrize("title", ["reference", *answers.RECEIVE_RIGHT])
def test_a_right_receiver_answers_token_for_token(tiny: Any, right: Any, title: str, cell: Any) -> None:
    receive = ch07.receive if title == "reference" else cell(answers.RECEIVE_RIGHT[title][0], "receive")
    cluster, done = served(tiny, handoff=as_handoff(receive))
    assert [each.token_ids for each in done] == right
    met = cluster.decode.contract.transfers
    assert [(t.expected, t.promised, t.received, t.taken, t.mark) for t in met] == [
        (len(prompt),) * 3 + (True, "=") for prompt in PROMPTS
    ]
    assert all(len(t.sent) == len(t.reserved) == t.came for t in met)


def target(change: Callable[[EngineHandoff], EngineHandoff]) -> Callable[[EngineHandoff], EngineHandoff]:
    return lambda handoff: change(handoff) if handoff.request == TARGET else handoff


def resealed(handoff: EngineHandoff, **changes: Any) -> EngineHandoff:
    lie = replace(handoff, **changes)
    return replace(lie, digest=engine_digest(lie.request, lie.num_tokens, lie.first_token, lie.keys, lie.values))


def cut(handoff: EngineHandoff, pages: int, first_layer: int = 0) -> dict[str, Any]:
    def shorter(tensors: Any) -> tuple[Any, ...]:
        return tuple(t[:pages] if layer >= first_layer else t for layer, t in enumerate(tensors))

    return {"keys": shorter(handoff.keys), "values": shorter(handoff.values)}


SPOILT: dict[str, Callable[[EngineHandoff], EngineHandoff]] = {
    "one token of ten": lambda h: resealed(h, num_tokens=1, **cut(h, 1)),
    "one token less": lambda h: resealed(h, num_tokens=9),
    "one token more": lambda h: resealed(h, num_tokens=11),
    "a page is missing": lambda h: resealed(h, **cut(h, 2)),
    "one page is left": lambda h: resealed(h, **cut(h, 1)),
    "a page of the last layer is missing": lambda h: resealed(h, **cut(h, 2, first_layer=1)),
    "a layer is missing": lambda h: resealed(h, keys=h.keys[:-1], values=h.values[:-1]),
    "no layer at all": lambda h: resealed(h, keys=(), values=()),
    "damaged": lambda h: replace(h, values=tuple(v + 1 for v in h.values)),
    "of another request": lambda h: resealed(h, request=0),
    "no digest": lambda h: replace(h, digest=""),
    "another first token": lambda h: replace(h, first_token=h.first_token + 1),
    "no tensors": lambda h: replace(h, keys=(1, 2), values=(3, 4)),
    "no number": lambda h: replace(h, num_tokens=None),  # type: ignore[arg-type]
}


NO_HANDOFF = {"no tensors", "no number", "no layer at all"}  # a slip in code for the likely cases is no fault


@pytest.mark.parametrize(
    ("title", "spoilt"),
    [(title, spoilt) for title in answers.RECEIVE_RIGHT for spoilt in SPOILT if spoilt not in NO_HANDOFF]
    + [("reference", spoilt) for spoilt in SPOILT],
)
def test_a_spoilt_handoff_is_refused_and_nobody_else_notices(
    tiny: Any, right: Any, title: str, spoilt: str, cell: Any
) -> None:
    receive = ch07.receive if title == "reference" else cell(answers.RECEIVE_RIGHT[title][0], "receive")
    _cluster, done = served(tiny, handoff=as_handoff(receive, spoil=target(SPOILT[spoilt])))
    error = done[TARGET].error
    assert isinstance(error, HandoffRefused) or (isinstance(error, BrokenRule) and spoilt in NO_HANDOFF), error
    assert spoilt in NO_HANDOFF or done[TARGET].status == 502
    assert [each.token_ids for each in done if each is not done[TARGET]] == right[:TARGET] + right[TARGET + 1 :]


WRONG = {  # a title of `RECEIVE_WRONG`, what happens to the handoff, and the rule that names the receiver
    "takes whatever comes, page by page": ("one token of ten", COMPLETE),
    "trusts the digest": ("one token of ten", COMPLETE),
    "compares pages": ("one token less", COMPLETE),
    "believes the promise": ("one page is left", COMPLETE),
    "one layer checked": ("a layer is missing", COMPLETE),
    "no digest": ("damaged", COMPLETE),
    "request not compared": ("of another request", COMPLETE),
    "first token out first": ("damaged", NOTHING),
    "pages kept": ("damaged", NOTHING),
    "the sender's places": (None, PLACE),
    "pages sorted": (None, PLACE),
    "one layer written": (None, PLACE),
    "into a copy": (None, PLACE),
    "gives back always": (None, PLACE),
    "nothing sent": (None, FIRST),
    "sends the number of tokens": (None, FIRST),
    "exact pages only": (None, COMPLETE),
}


@pytest.mark.parametrize("title", WRONG)
def test_a_wrong_receiver_is_named_by_rule_and_step(tiny: Any, right: Any, title: str, cell: Any) -> None:
    spoilt, rule = WRONG[title]
    receive = cell(answers.RECEIVE_WRONG[title][0], "receive")
    _cluster, done = served(tiny, handoff=as_handoff(receive, spoil=target(SPOILT[spoilt]) if spoilt else None))
    error = done[TARGET].error
    assert isinstance(error, BrokenRule) and error.rule == rule and error.step is not None, error
    for number, each in enumerate(done):
        if each.error is None:
            assert each.token_ids == right[number]
        else:
            assert isinstance(each.error, BrokenRule)
    if spoilt:
        assert [number for number, each in enumerate(done) if each.error] == [TARGET]


@pytest.mark.parametrize(
    "title", [title for title, (_s, kind) in answers.RECEIVE_WRONG.items() if "function" not in kind]
)
@pytest.mark.parametrize("spoilt", ["one token of ten", "damaged", None])
def test_no_receiver_breaks_the_cluster(tiny: Any, right: Any, title: str, spoilt: str | None, cell: Any) -> None:
    """Whatever it does, it is its request's error; who was answered has the right answer, and all pages are back."""
    receive = cell(answers.RECEIVE_WRONG[title][0], "receive")
    cluster, done = served(tiny, handoff=as_handoff(receive, spoil=target(SPOILT[spoilt]) if spoilt else None))
    for number, each in enumerate(done):
        assert each.error is not None or each.token_ids == right[number]
        assert each.error is None or isinstance(each.error, (BrokenRule, HandoffRefused))
    assert len(cluster.generate(PROMPTS[:1], GREEDY)) == 1


def test_a_stub_in_the_seat_says_what_is_to_do(tiny: Any) -> None:
    def receive(node: Any, request: int, handoff: Any) -> None:
        raise NotImplementedError("ex-7.1: take it")

    _cluster, done = served(tiny, handoff=as_handoff(receive))
    assert all("ex-7.1: take it" in str(each.error) for each in done)


def test_what_the_senders_ledger_says_still_counts(tiny: Any) -> None:
    """The learner's record has no ledger in it; the seat compares it all the same."""

    def of_another(handoff: EngineHandoff) -> EngineHandoff:
        assert handoff.records is not None
        return replace(handoff, records=replace(handoff.records, writer=handoff.records.writer * 0))

    _cluster, done = served(tiny, handoff=as_handoff(ch07.receive, spoil=target(of_another)))
    assert isinstance(done[TARGET].error, HandoffRefused) and "not written by it" in str(done[TARGET].error)


def test_the_receiver_is_a_guard_of_the_historical_cluster() -> None:
    """With all other defects in, the learner's receiver refuses the stand-in, and nobody reads a page."""
    from minikv.incident.scales import one_layer

    cluster = HistoricalCluster(
        one_layer(512), prefill=NodeConfig(num_pages=7), decode=NodeConfig(num_pages=64), page_size=4,
        context_length=512, defects="abcdfgh", handoff=as_handoff(ch07.receive),
    )  # fmt: skip
    (done,) = cluster.generate([[5] * 31], SamplingParams(max_tokens=2, ignore_eos=True))
    assert isinstance(done.error, HandoffRefused) and done.text == ""
    (met,) = cluster.decode.contract.transfers
    assert (met.expected, met.promised, met.received, met.came, len(met.reserved)) == (31, 1, 1, 1, 8)
    assert cluster.decode.pool.num_free == 64


@pytest.mark.model
def test_the_real_model_behind_the_reference() -> None:
    model = load_model("smollm2")
    prompts = ["The capital of France is", "One, two, three, four,", "A page is lent to one request after another."]
    cluster = two_nodes(model, handoff=as_handoff(ch07.receive))
    alone = Engine(model, page_size=4, num_pages=40).generate(prompts, GREEDY)
    assert [each.token_ids for each in cluster.generate(prompts, GREEDY)] == [each.token_ids for each in alone]


# What the lesson works with


def test_both_digests_are_the_same(tiny: Any) -> None:
    handoff = PrefillSide(tiny, num_pages=8, page_size=4).read(3, PROMPTS[3])
    assert digest_of(handoff) == handoff.digest
    assert received_tokens(handoff, len(handoff.keys), 4) == handoff.num_tokens == 13 and pages_in(handoff, 2) == 4


def test_a_digest_covers_written_slots_alone() -> None:
    honest = Trial(30).complete
    for slot, same in ((29, False), (30, True)):
        values = [value.clone() for value in honest.values]
        values[-1].flatten(0, 1)[slot] += 1
        assert (digest_of(replace(honest, values=values)) == honest.digest) is same
    assert "3 layers, first [8, 4, 2, 3]" in repr(honest)


def test_received_counts_the_layer_in_which_least_came() -> None:
    honest = Trial(30).complete
    assert received_tokens(honest, 3, 4) == 30
    short = sealed(honest, **of_layers(honest, lambda i, t: t[:7] if i == 1 else t, "values"))
    assert received_tokens(short, 3, 4) == 28
    assert received_tokens(replace(honest, keys=honest.keys[:2]), 3, 4) == 0
    assert received_tokens(Handoff(1, 5, 1, 7, 8, ""), 3, 4) == 0  # type: ignore[arg-type]


def test_a_decode_side_lends_and_takes_back() -> None:
    node = DecodeSide([torch.zeros(4, 2, 1, 1)], [torch.zeros(4, 2, 1, 1)])
    assert node.expect(1, 3) == [0, 1] and node.reserved[1] == [0, 1] and node.expected[1] == 3
    with pytest.raises(MemoryError):
        node.expect(2, 5)
    node.give_back(1)
    assert sorted(node.free) == [0, 1, 2, 3] and 1 not in node.reserved
    with pytest.raises(LookupError):
        node.give_back(1)


def test_the_judges_use_no_weights_and_change_none(tiny: Any) -> None:
    from minikv.course.chapters.small import small_model

    model = small_model(2)
    before = {name: weight.clone() for name, weight in model.hf.named_parameters()}
    assert ex_7_1.judge_receive(ch07.receive).right and ex_7_2.judge_deceive(ch07.deceive).right
    assert all((weight == before[name]).all() for name, weight in model.hf.named_parameters())


def test_each_given_receiver_has_one_hole() -> None:
    """It takes what is honest, and of the three deceptions only its own."""
    names = list(ex_7_2.RECEIVERS)
    deceptions = dict(zip(names, ch07.deceive(ch07.sample()), strict=True))
    for name, receiver in ex_7_2.RECEIVERS.items():
        assert ch07.tried(receiver, ch07.sample()) == ["taken"]
        for other in names:
            last = ch07.tried(receiver, *deceptions[other])[-1]
            assert (last == "taken") is (name == other), (name, other, last)
    assert all(ch07.tried(ch07.receive, *each)[-1] != "taken" for each in deceptions.values())


# The stretch


class Keeps:
    """What a learner may write first: each forbids one of the three numbers too few."""

    def __init__(self, give_back: Callable[[int], None]) -> None:
        self.give_back, self.seen = give_back, dict[int, set[str]]()

    def over(self, request: int) -> None:
        self.note(request, "over")

    def drained(self, request: int) -> None:
        self.note(request, "drained")

    def note(self, request: int, what: str) -> None:
        """Both have been said, and the second for the first time: now nobody needs the pages."""
        said = self.seen.setdefault(request, set())
        if what not in said and len(said) == 1:
            self.give_back(request)
        said.add(what)


class Hasty(Keeps):
    def note(self, request: int, what: str) -> None:
        if what == "over":
            self.give_back(request)


class AtDrain(Keeps):
    def note(self, request: int, what: str) -> None:
        if what == "drained":
            self.give_back(request)


class Never(Keeps):
    def note(self, request: int, what: str) -> None:
        pass


def test_the_target_of_the_stretch_can_be_reached_and_each_number_forbids_something() -> None:
    found = storm(Keeps)
    assert (found.foreign, found.kept, found.twice) == (0, 0, 0)
    hasty, at_drain, never = storm(Hasty), storm(AtDrain), storm(Never)
    assert hasty.foreign > 1000 and hasty.twice > 0 and hasty.kept == 0
    assert at_drain.foreign > 1000 and at_drain.kept == 0
    assert never.kept > 1000 and never.foreign == 0
    assert str(storm(Hasty)) == str(hasty), "the same in each run"


# The picture


SHORT = Transfer(7, 31, 1, 1, (2,), tuple(range(8)), 1, True)
WHOLE = Transfer(8, 5, 5, 5, (3, 0), (9, 10), 2, True)
DAMAGED = Transfer(9, 6, 6, 6, (1, 4), (11, 12), 2, False, "digest")


def test_the_picture_shows_three_counters_and_marks_what_is_not_equal() -> None:
    drawn = transfer_map([WHOLE, DAMAGED, SHORT], pools=(7, 64))
    lines = [line.split() for line in drawn.text.splitlines()[2:]]
    assert lines[0] == ["8", "3", "0", "9", "10", "5", "5", "5", "=", "taken"]
    assert lines[1][-2:] == ["=", "refused"]
    assert lines[2][-5:] == ["31", "1", "1", "X", "taken"] and "(7)" in lines[2]
    assert drawn.table.count("<tr>") == 4 and "<caption" in drawn.table and "in brackets" in drawn.table
    assert len(drawn.figure.frames) == 3 and len(drawn.figure.layout.sliders) == 1
    decode, bars = drawn.figure.data[1], drawn.figure.data[2]
    assert list(decode.text[:9]) == ["C", *["–"] * 7, "·"]
    assert list(bars.text) == ["31 =", "1 X", "1 X"] and list(bars.marker.pattern.shape) == ["", "/", "/"]


def test_one_transfer_needs_no_slider() -> None:
    drawn = transfer_map(SHORT, pools=(7, 64))
    assert not drawn.figure.frames and not drawn.figure.layout.sliders
    assert "request 7: 31 expected, 1 promised, 1 received, X: not equal, taken" in drawn.figure.layout.title.text
    with pytest.raises(ValueError, match="no handoff"):
        transfer_map([], pools=(7, 64))


def test_a_large_pool_shows_the_pages_of_the_request() -> None:
    drawn = transfer_map(replace(SHORT, reserved=(900, 2, 77)), pools=(7, 1000))
    assert len(drawn.figure.data[1].text) == 3


def test_a_receiver_of_ones_own_is_drawn_as_it_was_met() -> None:
    trial = Trial(30)
    seen = delivered(ch07.receive, trial.node, 7, sealed(trial.complete, num_tokens=29), (5, 6))
    assert not seen.taken and seen.mark == "X" and (seen.expected, seen.promised, seen.received) == (30, 29, 29)
    assert seen.came == len(seen.reserved) == 8 and "not complete" in seen.why


# What a receiver must leave as it is


def _every_second(act: Callable[[Any, int, Handoff], None]) -> Callable[[Any, int, Handoff], None]:
    def receive(node: Any, request: int, handoff: Handoff) -> None:
        (act if request % 2 else ch07.receive)(node, request, handoff)

    return receive


def _damages(node: Any, request: int, handoff: Handoff) -> None:
    handoff.keys[0].zero_()
    ch07.receive(node, request, handoff)


def _damages_later(node: Any, request: int, handoff: Handoff) -> None:
    ch07.receive(node, request, handoff)
    handoff.values[1].add_(1)


def _notes_all(node: Any, request: int, handoff: Handoff) -> None:
    ch07.receive(node, request, handoff)
    node.accepted.update(range(100))


def _notes_nothing(node: Any, request: int, handoff: Handoff) -> None:
    ch07.receive(node, request, handoff)
    node.accepted = None


def _forgets(node: Any, request: int, handoff: Handoff) -> None:
    ch07.receive(node, request, handoff)
    node.accepted.clear()


def _tells_all(node: Any, request: int, handoff: Handoff) -> None:
    ch07.receive(node, request, handoff)
    node.send(request + 1, handoff.first_token)


def _no_clients(node: Any, request: int, handoff: Handoff) -> None:
    ch07.receive(node, request, handoff)
    node.sent = None


LEFT_ALONE = [
    (_damages, UNCHANGED, "layer 0 of the keys"),
    (_damages_later, UNCHANGED, "layer 1 of the values"),
    (_notes_all, NOTES, "into it"),
    (_notes_nothing, NOTES, "None"),
    (_forgets, NOTES, "out of it"),
    (_tells_all, FIRST, "sent a token to request"),
    (_no_clients, FIRST, "None"),
]


@pytest.mark.parametrize(("act", "rule", "said"), LEFT_ALONE)
def test_what_a_receiver_changes_beside_is_named_and_harms_nobody_later(
    tiny: Any, right: Any, act: Any, rule: str, said: str
) -> None:
    cluster, done = served(tiny, handoff=as_handoff(_every_second(act)))
    for number, each in enumerate(done):
        if number % 2:
            assert isinstance(each.error, BrokenRule) and each.error.rule == rule and said in each.error.detail
            assert each.error.request == number
        else:
            assert each.error is None and each.token_ids == right[number]
    (later,) = cluster.generate(PROMPTS[:1], GREEDY)  # its number is odd
    assert isinstance(later.error, BrokenRule) and later.error.rule == rule


def test_notes_of_another_kind_are_a_receivers_own(tiny: Any, right: Any) -> None:
    def receive(node: Any, request: int, handoff: Handoff) -> None:
        ch07.receive(node, request, handoff)
        node.accepted = {*node.accepted, handoff.digest, hash(handoff.digest) | 2**61}

    _cluster, done = served(tiny, handoff=as_handoff(receive))
    assert [each.token_ids for each in done] == right


@pytest.mark.parametrize("thing", [5, None, "receive"])
def test_a_receiver_is_a_function(thing: Any) -> None:
    with pytest.raises(ConfigError, match="a receiver must be a function"):
        as_handoff(thing)
    with pytest.raises(ConfigError, match="spoil must be a function"):
        as_handoff(ch07.receive, spoil=7)  # type: ignore[arg-type]


def test_a_name_in_the_map_is_no_html() -> None:
    drawn = transfer_map(replace(WHOLE, request="<b>8</b>"), pools=(7, 64))  # type: ignore[arg-type]
    assert '<th scope="row">&lt;b&gt;8&lt;/b&gt;</th>' in drawn.table
