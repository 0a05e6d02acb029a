"""The isolation test kit: red on what leaks, lies or has one defect, green on what is right."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from stages import historical

from minikv import Cluster, Engine, NodeConfig
from minikv.attention.metadata import SequenceView
from minikv.course.seats.attention import as_attention
from minikv.incident.defects import DEFECTS, GUARDS
from minikv.incident.history import HistoricalCluster
from minikv.incident.isolation import Answer, Ask, Finding, Report, check_isolation, check_mix, single_defects
from minikv.incident.isolation.content import Alone, no_words_of_others
from minikv.incident.isolation.faults import FAULTS, play, prompts_of
from minikv.incident.isolation.grid import content_of
from minikv.incident.isolation.probes import ask_all
from minikv.incident.isolation.singles import pocket_history
from minikv.incident.isolation.traffic import Speakers, limits_of
from minikv.incident.matrix import ALL_GUARDS, COVERED, Laboratory
from minikv.incident.scales import ARTICLE
from minikv.incident.scenarios import SCENARIOS, STREAMED
from minikv.incident.stage import Stage
from minikv.memory import FreeList
from minikv.models.adapter import BoundModel
from minikv.models.options import AttentionOptions
from minikv.viz.isolation import defect_marks

ALL = "".join(DEFECTS)
SEEN_BY = {  # by which layers each defect is seen alone
    "a": {"probe"}, "b": {"probe"}, "c": {"probe"}, "d": {"invariant", "probe"},
    "e": {"content", "invariant", "probe"}, "f": {"probe"}, "g": {"content", "invariant", "probe"}, "h": {"probe"},
}  # fmt: skip


def engine(model: BoundModel, **settings: Any) -> partial[Engine]:
    return partial(Engine, model, num_pages=13, page_size=4, **settings)


def cluster(model: BoundModel, pages: tuple[int, int] = (7, 40), **settings: Any) -> partial[Cluster]:
    prefill, decode = (NodeConfig(num_pages=each) for each in pages)
    return partial(Cluster, model, prefill=prefill, decode=decode, page_size=4, **settings)


# Green


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["engine", "cluster", "no defect"])
def test_green_on_the_right_server(tiny: BoundModel, kind: str) -> None:
    make: Any = {"engine": engine(tiny), "cluster": cluster(tiny), "no defect": pocket_history(tiny, "")}[kind]
    report = check_isolation(make)
    assert report.green, report.text
    assert report.counts["asked"] == 60 and report.counts["answered 200"] > 30 and report.counts["refused"] > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "pages"), [("engine", (13, 0)), ("cluster", (7, 40)), ("cluster", (13, 9))], ids=["engine", "7:40", "13:9"]
)
def test_green_over_a_thousand_requests(tiny: BoundModel, kind: str, pages: tuple[int, int]) -> None:
    make: Any = engine(tiny) if kind == "engine" else cluster(tiny, pages)
    report = check_mix(make, 1000, seed=1)
    assert report.green, report.text
    counts = report.counts
    assert counts["asked"] == 1000 and counts["answered 200"] > 600
    assert counts["left"] > 50 and counts["read along"] > 300 and counts["refused"] > 50
    assert counts["lent again"] > 1000
    if pages != (7, 40):  # there the prefill pool holds one request at a time
        assert counts["Preempt"] > 10


@pytest.mark.parametrize("kind", [engine, cluster])
def test_green_where_the_door_caps(tiny: BoundModel, kind: Any) -> None:
    """Fewer tokens than were asked for, and no lie: the answer says how many were granted."""
    report = check_mix(kind(tiny, over_limit="cap"), 60, seed=2)
    assert report.green, report.text


class OldestFirst(FreeList):
    """The page that came back first is lent first, and tables come back from their ends."""

    def free(self, pages: Sequence[int]) -> None:
        self._stack[:0] = list(pages)


class AnyOrder(FreeList):
    """Whichever."""

    def free(self, pages: Sequence[int]) -> None:
        super().free(pages)
        random.Random(len(self._stack)).shuffle(self._stack)


def token_by_token(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    table: Sequence[int],
    written: int,
    scale: float,
) -> torch.Tensor:
    """A learner's attention: one head after the other."""
    size, group = keys.shape[1], query.shape[0] // keys.shape[2]
    places = [(table[position // size], position % size) for position in range(written)]
    rows = []
    for head in range(query.shape[0]):
        key = torch.stack([keys[page, slot, head // group] for page, slot in places])
        value = torch.stack([values[page, slot, head // group] for page, slot in places])
        rows.append(torch.softmax(key @ query[head] * scale, dim=0) @ value)
    return torch.stack(rows)


@pytest.mark.slow
@pytest.mark.parametrize("part", [OldestFirst, AnyOrder])
def test_other_orders_of_pages(tiny: BoundModel, part: type[FreeList]) -> None:
    """Right parts of other design stay green, and history leaks through them as it does through ours."""
    report = check_isolation(cluster(tiny, allocator=part), requests=20)
    assert report.green, report.text
    history = check_isolation(partial(pocket_history(tiny, ALL), allocator=part), requests=0, faults=(), probes=False)
    assert history.rules("content") and history.rules("invariant")


def test_attention_of_ones_own(tiny: BoundModel) -> None:
    attend = as_attention(token_by_token, page_size=4)
    report = check_mix(cluster(tiny, attention=attend), 12)
    assert report.green, report.text

    def wrong(query: Any, keys: Any, values: Any, table: Any, written: int, scale: float) -> torch.Tensor:
        return token_by_token(query, keys, values, table, -(-written // 4) * 4, scale)

    report = check_mix(cluster(tiny, attention=as_attention(wrong, page_size=4)), 12)
    assert "an answer belongs to its prompt" in report.rules("content")


@pytest.mark.slow
def test_attention_into_the_neighbours_page(tiny: BoundModel) -> None:
    """What it reads, no ledger sees: only its answers tell, and they change with the neighbours' words."""
    from minikv.attention.torch_backend import attend

    def astray(
        query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, views: Sequence[SequenceView],
        options: AttentionOptions,
    ) -> torch.Tensor:  # fmt: skip
        moved = [SequenceView(v.start, v.length, v.seq_len, (v.slots + 4) % len(keys)) for v in views]
        return attend(query, keys, values, moved, options)

    report = check_isolation(cluster(tiny, attention=astray), requests=0, faults=(), probes=False)
    assert not report.of("invariant")
    assert "an answer hangs on nobody else's prompt" in report.rules("content")


# Red


@pytest.mark.slow
def test_history_is_red_in_every_layer(tiny: BoundModel) -> None:
    report = check_isolation(pocket_history(tiny, ALL))
    rules = report.rules("content")
    assert {"an answer belongs to its prompt", "an answer hangs on nobody else's prompt"} <= set(rules)
    assert "everybody gets an answer" in rules  # `lost-abort`
    assert "promised == received == expected" in report.rules("invariant")
    assert len(report.rules("probe")) == len(DEFECTS)
    assert len(report.text.splitlines()) == sum(len(report.rules(each)) for each in ("content", "invariant", "probe"))


@pytest.mark.slow
def test_single_defects(tiny: BoundModel) -> None:
    """Every defect is seen alone; six of the eight by no answer."""
    table = single_defects(tiny, requests=10)
    assert {row.letter: set(row.seen_by) for row in table.rows} == SEEN_BY
    assert (table.unseen, table.unseen_by_content) == ("", "abcdfh")
    assert json.loads(json.dumps(table.as_json()))["unseen_by_content"] == "abcdfh"
    assert len(table.text.splitlines()) == 9
    assert "let in and then refused" not in table.text and "a refusal is made once, at the door" in table.text
    marks = defect_marks(table.rows)
    assert marks.text.count("  R") == sum(map(len, SEEN_BY.values()))
    assert marks.table.count("R sees it") == sum(map(len, SEEN_BY.values()))
    assert len(marks.figure.data[0].z) == 8


@pytest.mark.parametrize("letter", DEFECTS)
def test_each_defect_has_its_probe(tiny: BoundModel, letter: str) -> None:
    """One part asked alone, and nobody else's probe turns red with it."""
    found = ask_all(pocket_history(tiny, letter))
    assert len({finding.rule for finding in found}) == 1
    guarded = ask_all(pocket_history(tiny, ALL.replace(letter, "")))
    assert {finding.rule for finding in found}.isdisjoint(finding.rule for finding in guarded)


def test_probes_are_green_on_the_right(tiny: BoundModel) -> None:
    for make in (engine(tiny), cluster(tiny), cluster(tiny, (13, 9)), pocket_history(tiny, "")):
        assert ask_all(make) == []


# Every combination of guards


@pytest.fixture(scope="module")
def laboratory(tiny: BoundModel) -> Laboratory:
    return Laboratory(tiny)


def assert_red_where_it_harms(laboratory: Laboratory, combinations: Sequence[str]) -> None:
    truth = Alone(laboratory.model)
    for guards in combinations:
        for scenario in (*SCENARIOS.values(), STREAMED):
            verdict = laboratory.cell(guards, scenario).verdict
            found = content_of(laboratory, guards, scenario, truth)
            # Also where an error came in the end, but words of no prompt of the client's went out in a stream before.
            spoke = verdict in COVERED and scenario.streamed and laboratory.run(guards, scenario).token_ids
            assert bool(found) == (verdict not in COVERED or bool(spoke)), (guards, scenario.name, verdict, found)


@pytest.mark.slow
def test_content_is_red_where_it_harms(laboratory: Laboratory) -> None:
    """No guard, each alone, all but one, all, and some others."""
    few = [each for each in ALL_GUARDS if len(each) in (0, 1, 8)]
    assert_red_where_it_harms(laboratory, [*few, *random.Random(5).sample(ALL_GUARDS, 8), "fgh", "fh"])


@pytest.mark.more
def test_content_is_red_on_all_that_harms(laboratory: Laboratory) -> None:
    assert_red_where_it_harms(laboratory, ALL_GUARDS)


@pytest.mark.slow
def test_leaks_show_without_the_truth(laboratory: Laboratory) -> None:
    """Where nobody knows the right answer: change the others' words, and see whether the answer changes."""
    for guards in ("", *GUARDS):
        for scenario in SCENARIOS.values():
            cell = laboratory.cell(guards, scenario)
            found = content_of(laboratory, guards, scenario, None, shifts=(0, 47, 23, 11))
            leaks = [each for each in found if each.rule == "an answer hangs on nobody else's prompt"]
            assert bool(leaks) == cell.leaked, (guards, scenario.name)


@pytest.mark.slow
@pytest.mark.model
def test_words_of_the_real_model(smollm2: BoundModel) -> None:
    """Where a model has words: a canary or five words in a row of the victim, and none from the right cluster."""
    stage = historical(ARTICLE, smollm2)
    tenants = {visit.tenant.name: visit.tenant for group in stage.visits for visit in group}
    done = stage.attack()
    ask = Ask("attacker", ARTICLE.attack(smollm2), ARTICLE.answer_tokens)
    assert no_words_of_others([(ask, Answer(done.status, done.token_ids, done.text))], tenants)
    right = Stage(ARTICLE, smollm2, Cluster(smollm2, prefill=ARTICLE.decode, decode=ARTICLE.decode, page_size=64))
    done = right.attack()
    assert done.status == 200
    assert not no_words_of_others([(ask, Answer(done.status, done.token_ids, done.text))], tenants)


# Faults of the wire on the right cluster


@pytest.mark.parametrize(
    ("name", "status"), [("short-transfer", 502), ("late-write", 200), ("lost-abort", 500), ("duplicate", 200)]
)
def test_faults_of_the_wire(tiny: BoundModel, name: str, status: int) -> None:
    """An error or the true answer; nobody waits for ever, and nothing is taken twice."""
    server = cluster(tiny)()
    prompts = prompts_of(Speakers(tiny.encode), limits_of(server))
    (ask, answer), found = play(server, SCENARIOS[name], prompts)
    assert answer.status == status and not found
    assert answer.token_ids == (Alone(tiny)(ask) if status == 200 else ())
    server.check()
    for pool in (server.prefill.pool, server.decode.pool):
        assert pool.num_free == pool.num_pages


def test_a_decode_node_that_takes_all_is_caught(tiny: BoundModel) -> None:
    server = cluster(tiny)()
    prompts = prompts_of(Speakers(tiny.encode), limits_of(server))
    receive = server.decode.receive

    def open_armed(request: Any, handoff: Any) -> None:
        if request.number in server.decode.expecting:
            receive(request, handoff)

    server.decode.receive = open_armed  # type: ignore[method-assign]
    for name in ("late-write", "duplicate"):
        _pair, found = play(server, SCENARIOS[name], prompts)
        assert [each.layer for each in found] == ["probe"], name


def test_every_fault_is_a_scenario() -> None:
    assert set(FAULTS) < set(SCENARIOS) and issubclass(HistoricalCluster, Cluster)


# The report


def test_report() -> None:
    findings = (Finding("content", "r", "one"), Finding("content", "r", "two"), Finding("probe", "p", "three"))
    report = Report(findings, {})
    assert not report.green and report.rules("content") == ["r"] and len(report.of("content")) == 2
    assert report.text.splitlines() == ["content: r: one (2 in all)", "probe: p: three (1 in all)"]
    assert Report((), {}).green and "every rule held" in Report((), {}).text


def test_marks_of_nothing() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        defect_marks([])
