"""Chapter 09, beside its answers (test_answers.py): the detector's seat, the plays, the row as a picture, trials."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest

from minikv import Cluster, Engine, NodeConfig, SamplingParams, load_model
from minikv.course.chapters import ch09, detecting, disagreeing, trials_9
from minikv.course.chapters.ch03 import Allocator as ReferenceAllocator
from minikv.course.chapters.ex_9_1 import Detector, watch
from minikv.course.chapters.upstream_09 import HISTORY
from minikv.course.seats.detector import REPORTS, RUNS, read_report, watched_by
from minikv.errors import ConfigError
from minikv.incident.history import HistoricalCluster
from minikv.incident.pages import UNREAD
from minikv.incident.scales import POCKET, one_layer
from minikv.incident.scenarios import SCENARIOS, Prompts
from minikv.incident.stage import Stage, build
from minikv.trace import Length, Preempt, lengths
from minikv.viz.lengths import lengths_picture

ANSWER = SamplingParams(max_tokens=6, ignore_eos=True)


class WithGenerations:
    """Another design: writer and generation of each slot, compared with the page's own."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.size = page_size
        self.now = np.zeros(num_pages, dtype=int)
        self.filled: dict[int, tuple[int, int]] = {}

    def lent(self, page: int, generation: int, owner: int) -> None:
        self.now[page] = generation

    def wrote(self, slots: list[int], writer: int) -> None:
        self.filled.update({slot: (writer, int(self.now[slot // self.size])) for slot in slots})

    def reads(self, slots: list[int], reader: int) -> set[int]:
        return {slot for slot in slots if self.filled.get(slot) != (reader, self.now[slot // self.size])}


class ByOwner:
    """Looks at the owner of the page."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.size = page_size
        self.owner: dict[int, int] = {}

    def lent(self, page: int, generation: int, owner: int) -> None:
        self.owner[page] = owner

    def wrote(self, slots: list[int], writer: int) -> None: ...

    def reads(self, slots: list[int], reader: int) -> list[int]:
        return [slot for slot in slots if self.owner[slot // self.size] != reader]


# The seat in the engine


def test_detectors_in_the_incident_at_pocket_scale() -> None:
    pool = watched_by(ByOwner, Detector, WithGenerations, historical=True)
    stage = Stage(POCKET, POCKET.load(), build(POCKET, POCKET.load(), HistoricalCluster, pool=pool))
    stage.play_past()
    done = stage.attack()
    assert stage.measure(done).stale_slots_read == 30
    found: Any = stage.cluster.decode.pool
    assert [{who: len(slots) for who, slots in reported.items()} for reported in found.reported] == [
        {}, {done.request_id: 30}, {done.request_id: 30}
    ]  # fmt: skip


class LastFirst:
    """A learner's allocator: the page that came back last is lent first, so that tables lie in no order."""

    def __init__(self, num_pages: int) -> None:
        self.pages = list(range(num_pages))

    def allocate(self, n: int) -> list[int]:
        return [self.pages.pop() for _ in range(n)]

    def free(self, pages: list[int]) -> None:
        self.pages.extend(pages)


@pytest.mark.parametrize("allocator", [LastFirst, ReferenceAllocator])
def test_all_489_at_article_scale_whatever_the_allocator(allocator: Any) -> None:
    """With a random model in place of the real one: the counts need no words."""
    cluster: Any = HistoricalCluster(
        one_layer(8192),
        prefill=NodeConfig(num_pages=7),
        decode=NodeConfig(num_pages=64),
        page_size=64,
        context_length=8192,
        allocator=allocator,
        pool=watched_by(ByOwner, Detector, historical=True),
    )
    for tokens in (419, 403, 441):
        cluster.generate([[1 + i % 200 for i in range(tokens)]], ANSWER)
    (done,) = cluster.generate([[7] * 490], ANSWER)
    assert done.status == 200
    by_owner, found = cluster.decode.pool.reported
    assert by_owner == {} and {who: len(slots) for who, slots in found.items()} == {done.request_id: 489}
    assert [each.tokens for each in lengths(cluster.trace)] == [490, 490, 1, 1, 1, 490, 490, 491]


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_the_detector_agrees_with_the_engines_own_book(scenario: str) -> None:
    """In every scenario, slot by slot, for whoever reads."""
    cluster: Any = HistoricalCluster(
        one_layer(512),
        prefill=NodeConfig(num_pages=7),
        decode=NodeConfig(num_pages=7 if SCENARIOS[scenario].equal_pools else 16),
        page_size=4,
        context_length=512,
        pool=watched_by(Detector, WithGenerations, historical=True),
    )
    for _ in range(4):
        cluster.generate([list(range(9, 21))] * 3, ANSWER)
    SCENARIOS[scenario].run(cluster, Prompts(tuple(range(1, 32)), tuple(range(50, 68)), tuple(range(80, 98)), 16))
    for pool in (cluster.prefill.pool, cluster.decode.pool):
        book = {who: set(np.flatnonzero(seen != UNREAD).tolist()) for who, seen in pool.ledger.stale_reads.items()}
        assert pool.reported == [{who: slots for who, slots in book.items() if slots}] * 2


def test_a_thousand_ordinary_requests_raise_no_alarm() -> None:
    engine: Any = ch09.ordinary_requests(watched_by(Detector, WithGenerations))
    assert engine.pool.reported == [{}, {}]
    assert engine.stats().nodes[0].preemptions > 50 and engine.pool.generation.min() > 50
    assert engine.finished == {"length": ch09.ORDINARY}


def test_the_seat_changes_no_answer() -> None:
    model = load_model("tiny-random")
    prompts = [[3 + i, 7, 9 + i] * (2 + i) for i in range(5)]
    sizes: dict[str, Any] = {"prefill": NodeConfig(num_pages=9), "decode": NodeConfig(num_pages=12), "page_size": 4}
    plain, seen = (Cluster(model, **sizes, **parts) for parts in ({}, {"pool": watched_by(Detector)}))
    assert [one.token_ids for one in plain.generate(prompts, ANSWER)] == [
        one.token_ids for one in seen.generate(prompts, ANSWER)
    ]
    seen.check()
    engine: Any = Engine(model, page_size=4, num_pages=24, pool=watched_by(Detector))
    assert [one.token_ids for one in engine.generate(prompts, ANSWER)] == [
        one.token_ids for one in Engine(model, page_size=4, num_pages=24).generate(prompts, ANSWER)
    ]


def broken(**methods: Any) -> type:
    return type("Broken", (Detector,), methods)


@pytest.mark.parametrize(
    ("detector", "rule"),
    [
        (broken(reads=lambda self, slots, reader: [slots[0] + 1000]), REPORTS),
        (broken(reads=lambda self, slots, reader: len(slots)), REPORTS),
        (broken(reads=lambda self, slots, reader: True), REPORTS),
        (broken(reads=lambda self, slots, reader: 1 / 0), RUNS),
        (broken(wrote=lambda self, slots, writer: slots["no"]), RUNS),
        (broken(lent=lambda self, page, generation, owner: 1 / 0), RUNS),
    ],
)
def test_a_broken_detector_is_named_with_rule_and_step(detector: Any, rule: str) -> None:
    engine = Engine(load_model("tiny-random"), page_size=4, num_pages=8, pool=watched_by(detector))
    (done,) = engine.generate([[1, 2, 3]], ANSWER)
    assert rule in str(done.error) and "step 1" in str(done.error)
    engine.check()


def test_what_is_no_detector_is_refused_at_once() -> None:
    class Half:
        def __init__(self, num_pages: int, page_size: int) -> None: ...
        def reads(self, slots: list[int], reader: int) -> list[int]:
            return []

    with pytest.raises(ConfigError, match="has no lent"):
        Engine(load_model("tiny-random"), num_pages=4, pool=watched_by(Half))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be a class"):
        watched_by("Detector")  # type: ignore[arg-type]


def test_reports_may_be_of_many_kinds() -> None:
    import torch

    assert read_report(None) == set() == read_report([])
    for given in ([3, 4], (3, 4), {3, 4}, np.array([3, 4]), torch.tensor([3, 4]), iter([3, 4])):
        assert read_report(given) == {3, 4}
    for given in (3, "34", [3.5], [True], {3: 1}, [[3]], object()):
        assert read_report(given) is None, given


# What the judges play


@pytest.mark.slow
def test_the_plays_are_what_they_say() -> None:
    stale = {make.__name__: len(make().stale) for make in detecting.PLAYS}
    assert stale["incident"] == 489 and stale["fresh_start"] == 489
    assert stale["short_transfer"] == 2, "18 tokens in pages of 4: two in the last"
    assert stale["late_write"] > 0 and stale["own_past"] == 2
    assert stale["unknown_writer"] == 1
    assert stale["ordinary"] == stale["ordinary_pair"] == 0
    reads = Counter(call.args[1] for call in detecting.ordinary().calls if call.method == "reads")
    assert len(reads) == detecting.ORDINARY == 1000


@pytest.mark.parametrize("make", detecting.PLAYS)
def test_right_detectors_agree_read_by_read(make: Any) -> None:
    for detector in (Detector, WithGenerations):
        seen = watch(detector, make())
        assert seen.first is None and not seen.missed and not seen.invented


def test_the_runs_of_9_2_are_what_they_say() -> None:
    right = disagreeing.right()
    assert any(isinstance(event, Preempt) and event.node == "decode" for event in right.events)
    for make in disagreeing.RUNS:
        run = make()
        assert run.fits(ch09.REFERENCE["ex-9.2"](run.events)), run.name  # type: ignore[operator]
    cut = disagreeing.cut_short()
    noted = {event.tokens for event in cut.events if isinstance(event, Length)}
    assert len(noted) == 1 and cut.request is not None
    assert cut.read_in(cut.first_step(cut.request), cut.request) < min(noted)


@pytest.mark.slow
def test_every_fault_that_is_mended_changes_the_ending() -> None:
    before = ch09.outcome(trials_9.UNCHANGED)
    assert (before["status"], before["reserved"], before["written"], before["stale slots"]) == (200, 8, 1, 30)
    mended = [name for name in ch09.changes() if name.startswith("without ")]
    assert len(mended) == 8 and all(ch09.outcome(name) != before for name in mended)


@pytest.mark.slow
def test_some_changes_do_nothing_and_wiping_hides() -> None:
    before = ch09.outcome(trials_9.UNCHANGED)
    for name in ("other question", "other name", "longer answer"):
        assert ch09.outcome(name) == before, name
    for name in ("wiped", "wiped decode", "no past", "other past"):
        assert ch09.outcome(name) == {**before, "answer": "other"}, name


def test_trials_are_shown_beside_what_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    ch09.run_trials(ch09.REFERENCE["ex-9.3"])
    out = capsys.readouterr().out
    assert out.count("change: ") == 3 and out.count("NOT as expected") == 1
    for nothing in (..., [], [("a sentence", "wiped")], [("one two three", "no such", {"status": 1})]):
        ch09.run_trials(nothing)
        assert capsys.readouterr().out.startswith("[ ] nothing to run yet")


def test_two_fields_tell_half_the_truth_each() -> None:
    rows = list(ch09.two_fields())
    assert [row[1:] for row in rows] == [
        ("refused, 400", False, "nothing"), ("refused, 400", False, "nothing"), ("refused, 400", False, "200")
    ]  # fmt: skip


# The picture


def drawn() -> Any:
    run = disagreeing.incident()
    return lengths_picture(lengths(run.events, run.request), title="thirty-one")


def test_the_row_as_table_text_and_figure_say_the_same() -> None:
    picture = drawn()
    lines = picture.text.splitlines()
    assert "thirty-one" in lines[0] and "A = 31, B = 1" in lines[0]
    assert [line.split()[-1] for line in lines[4:5]] == ["↓"] and lines[7].endswith("↑")
    assert "<caption" in picture.table and picture.table.count("<tr>") == 9
    (bars,) = picture.figure.data
    assert list(bars.y) == [31, 31, 1, 1, 1, 31, 31, 32]
    assert [text.replace("<br>", " ") for text in bars.text][2:6] == ["1 B ↓", "1 B", "1 B", "31 A ↑"]
    assert len(picture.figure.frames) == 8 == len(picture.figure.layout.sliders[0].steps)
    assert [sum(bool(y) for y in frame.data[0].y) for frame in picture.figure.frames] == list(range(1, 9))


def test_the_jump_is_seen_without_colour() -> None:
    bars = drawn().figure.data[0]
    assert bars.marker.pattern.shape[0] != bars.marker.pattern.shape[2], "a hatch of its own for each belief"
    assert bars.y[2] < bars.y[1] / 10


def test_a_row_that_agrees_has_no_arrow() -> None:
    run = disagreeing.right()
    picture = lengths_picture(lengths(run.events, 0))
    assert "All parts hold one length: A = 18" in picture.text
    assert "↓" not in picture.text + picture.table and "↑" not in picture.text
    assert picture.text.splitlines()[-1].endswith("A+1")


def test_what_cannot_be_drawn_says_why() -> None:
    with pytest.raises(ValueError, match="tracing on"):
        lengths_picture([])
    two = [Length(0, "router", 1, "client", 5), Length(0, "router", 2, "client", 5)]
    with pytest.raises(ValueError, match=r"requests \[1, 2\]"):
        lengths_picture(two)


def test_one_refused_request_is_a_short_row() -> None:
    picture = lengths_picture([Length(0, "router", 1, "client", 900), Length(0, "router", 1, "door", 900)])
    assert len(picture.figure.frames) == 2 and "900" in picture.table


def test_the_pool_of_a_historical_cluster_may_be_built_by_hand() -> None:
    """What `watched_by` gives is an ordinary part."""
    assert isinstance(watched_by(Detector), partial) and isinstance(watched_by(Detector, historical=True), partial)


def test_the_history_has_a_mark_and_a_link_for_each_entry() -> None:
    table = ch09.upstream_history()
    assert all(entry.mark[0] in "VIB" for entry in HISTORY)
    assert all(entry.threads or entry.mark == "B" for entry in HISTORY)
    numbers = [number for entry in HISTORY for _kind, number in entry.threads]
    assert len(set(numbers)) == len(numbers) and {30233, 36988, 38704, 38935, 39500} <= set(numbers)
    for number in numbers:
        assert f"#{number}" in table.text and f'/{number}"' in table.table
