"""The incident in the small: 8 pages reserved, 1 written, 7 stale, 30 stale slots read."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace

import pytest
from stages import (
    ALL,
    ONE_GUARD,
    Reversed,
    assert_one_guard,
    assert_serves,
    attacked,
    attacked_with,
    historical,
    pages,
    renamed,
)

from minikv import Cluster, Rejected
from minikv.errors import ConfigError, HandoffRefused, StaleRead
from minikv.incident.counterfactual import changed, rewrite
from minikv.incident.history import HistoricalCluster, historical_limit
from minikv.incident.replay import Report, replay
from minikv.incident.scales import FIRST_CHARACTER, NUM_CHARACTERS, POCKET, Scale, Visit
from minikv.incident.snapshot import Snapshot
from minikv.incident.stage import Stage, build
from minikv.incident.tenants import Tenant
from minikv.models.adapter import BoundModel
from minikv.trace import Read

EXPECTED, STALE_SLOTS = (8, 1, 7), 30


@pytest.fixture(scope="module")
def report() -> Report:
    return replay(POCKET)


# The numbers


def test_history_was_answered(report: Report) -> None:
    before = report.before
    assert before.completion.status == 200 and before.completion.finish_reason == "length"
    assert len(before.completion.token_ids) == POCKET.answer_tokens
    assert pages(before) == EXPECTED
    assert before.stale_slots_read == STALE_SLOTS


def test_stale_pages_have_names(report: Report) -> None:
    """Each stale page and each stale slot was written by an earlier tenant."""
    tenants = {visit.tenant.name for group in POCKET.visits(report.historical.model) for visit in group}
    assert sum(report.before.stale_page_writers.values()) == 7
    assert sum(report.before.stale_writers.values()) == STALE_SLOTS
    assert set(report.before.stale_page_writers) | set(report.before.stale_writers) <= tenants


def test_somebody_leaked(report: Report) -> None:
    """At least one tenant whose prompt alone decides what the stranger gets to read."""
    assert report.before.leaked and set(report.before.leaked) <= set(report.before.stale_writers)
    assert report.before.tested >= len(report.before.leaked)


def test_attention_fell_on_strangers(report: Report) -> None:
    shares = report.before.attention
    assert sum(shares.values()) == pytest.approx(1.0)
    assert sum(share for name, share in shares.items() if name != "attacker") > 0.5


def test_right_cluster_refuses(report: Report) -> None:
    after = report.after
    assert isinstance(after.completion.error, Rejected) and after.completion.status == 400
    assert after.completion.finish_reason == "rejected" and after.completion.text == ""
    assert pages(after) == (0, 0, 0) and after.stale_slots_read == 0
    assert after.stale_writers == {} and after.leaked == [] and after.attention == {}


def test_limit(report: Report) -> None:
    """`min(context - 1, pool - 1) - 5` belongs to history; the right limit is what the pool holds."""
    assert report.limit == historical_limit(512, 28) == 22
    error = report.after.completion.error
    assert isinstance(error, Rejected) and error.limit == 28 - POCKET.answer_tokens + 1 and error.requested == 31


@pytest.mark.parametrize(
    ("context", "pool", "limit"), [(8192, 448, 442), (1_048_576, 681_280, 681_274), (100, 5000, 94)]
)
def test_historical_limits(context: int, pool: int, limit: int) -> None:
    assert historical_limit(context, pool) == limit


def test_both_clusters_are_whole_afterwards(report: Report) -> None:
    for cluster in (report.historical, report.right):
        cluster.check()
        for pool in (cluster.prefill.pool, cluster.decode.pool):
            assert pool.num_free == pool.num_pages


def test_trace_tells_the_same(report: Report) -> None:
    """The first decode step reads 32 slots: 30 of strangers, the placeholder and the first token."""
    number = report.before.completion.request_id
    reads = [e for e in report.historical.trace if isinstance(e, Read) and e.owner == number and e.node == "decode"]
    first = [event for event in reads if event.step == reads[0].step]
    assert sum(event.slots for event in first) == 32
    own = sum(slots for event in first for writer, slots in event.writers if writer == number)
    assert own == 2 and sum(event.slots for event in first) - own == STALE_SLOTS


# One defect fewer


@pytest.mark.parametrize("guard", ONE_GUARD)
def test_one_guard(tiny: BoundModel, guard: str) -> None:
    assert_one_guard(historical(POCKET, tiny, defects=ALL.replace(guard, "")), guard, STALE_SLOTS)


def test_e_refuses_the_handoff(tiny: BoundModel) -> None:
    error = attacked(historical(POCKET, tiny, defects="abcdfgh")).completion.error
    assert isinstance(error, HandoffRefused) and "31 tokens were expected, 1 are promised" in str(error)


def test_g_refuses_the_read(tiny: BoundModel) -> None:
    """The pages are just as stale; nobody reads them."""
    outcome = attacked(historical(POCKET, tiny, defects="abcdefh"))
    assert isinstance(outcome.completion.error, StaleRead)
    assert pages(outcome) == EXPECTED and outcome.stale_slots_read == 0


def test_f_goes_on_from_the_placeholder(tiny: BoundModel) -> None:
    """No stranger's word and no error: the answer to a prompt of one token, sold as the answer to the question."""
    outcome = attacked(historical(POCKET, tiny, defects="abcdegh"))
    right = build(POCKET, tiny, Cluster)
    (placeholder,) = right.generate([[0]], POCKET.attack_params)
    assert outcome.completion.token_ids == placeholder.token_ids


def test_no_defect_is_the_right_cluster(tiny: BoundModel) -> None:
    outcome = attacked(historical(POCKET, tiny, defects=""))
    assert outcome.completion.status == 400 and pages(outcome) == (0, 0, 0)


def test_unknown_defect(tiny: BoundModel) -> None:
    with pytest.raises(ConfigError, match="unknown defects"):
        build(POCKET, tiny, HistoricalCluster, defects="az")


# Who is served as ever


@pytest.mark.parametrize("length", [1, 4, 5, 20])
def test_history_serves_ordinary_requests_right(tiny: BoundModel, length: int) -> None:
    """One token below its limit and less, the historical cluster does what the right one does."""
    stage = historical(POCKET, tiny)
    prompt = POCKET.attack(tiny, length)
    params = replace(POCKET.attack_params, max_tokens=28 - length)
    (old,) = stage.cluster.generate([prompt], params)
    (right,) = build(POCKET, tiny, Cluster).generate([prompt], params)
    assert old.error is None and old.token_ids == right.token_ids


def test_edge_of_the_historical_limit(tiny: BoundModel) -> None:
    """21 tokens are served, 22 are not refused but swapped: the first of the lengths that leak."""
    below, at = (attacked(historical(POCKET, tiny), length) for length in (21, 22))
    assert below.stale_slots_read == 0 and at.stale_slots_read == 21


# What does not matter


def test_other_tenant_names(tiny: BoundModel) -> None:
    outcome = attacked(historical(renamed(POCKET), tiny))
    assert pages(outcome) == EXPECTED and outcome.stale_slots_read == STALE_SLOTS
    assert all(name.endswith("-2") for name in outcome.stale_writers)


def test_other_attack_text(tiny: BoundModel) -> None:
    """The answer is the same too: nothing of the question ever reaches the decode node."""
    stage = historical(POCKET, tiny)
    past = Snapshot(stage.cluster)
    first = attacked(stage)
    past.restore()
    other = attacked_with(stage, tiny.encode("z" * 31))
    assert pages(other) == EXPECTED and other.stale_slots_read == STALE_SLOTS
    assert other.completion.token_ids == first.completion.token_ids


def test_page_order_reversed(tiny: BoundModel) -> None:
    outcome = attacked(historical(POCKET, tiny, allocator=Reversed))
    assert pages(outcome) == EXPECTED and outcome.stale_slots_read == STALE_SLOTS


@pytest.mark.parametrize("length", [29, 30, 32])
def test_other_lengths_of_eight_pages(tiny: BoundModel, length: int) -> None:
    outcome = attacked(historical(POCKET, tiny), length)
    assert pages(outcome) == EXPECTED and outcome.stale_slots_read == length - 1


# What does


def test_no_past_no_stranger(tiny: BoundModel) -> None:
    """A fresh pool: as many stale pages and slots, and nobody in them."""
    outcome = attacked(historical(POCKET, tiny, past=False))
    assert pages(outcome) == EXPECTED
    assert outcome.stale_writers == {"nobody": STALE_SLOTS}


def told_apart(scale: Scale, seed: int) -> Scale:
    """The scale with other texts of the same lengths, and nothing else changed."""
    letters = random.Random(seed)

    def text(length: int) -> str:
        return "".join(chr(FIRST_CHARACTER + letters.randrange(NUM_CHARACTERS)) for _ in range(length))

    def visits(model: BoundModel) -> list[list[Visit]]:
        return [
            [Visit(Tenant(v.tenant.name, words, ()), words, v.max_tokens) for v in group for words in [text(12)]]
            for group in scale.visits(model)
        ]

    return replace(scale, visits=visits)


@pytest.mark.slow
def test_answer_hangs_on_the_victims(tiny: BoundModel) -> None:
    """Twenty pasts, twenty answers that differ from that to the first past; none does once both pools are wiped."""

    def answer(seed: int, *, wiped: bool) -> tuple[int, ...]:
        stage = historical(told_apart(POCKET, seed), tiny)
        if wiped:
            for pool in (stage.cluster.prefill.pool, stage.cluster.decode.pool):
                pool.fill_unwritten(0.0)
        return attacked(stage).completion.token_ids

    for wiped, differ in ((False, 20), (True, 0)):
        first = answer(0, wiped=wiped)
        assert sum(answer(seed, wiped=wiped) != first for seed in range(1, 21)) == differ


def test_wiping_decode_alone_is_not_enough(tiny: BoundModel) -> None:
    """Slots past the placeholder in page 0 travel with the page, from the prefill pool."""

    def answer(seed: int) -> tuple[int, ...]:
        stage = historical(told_apart(POCKET, seed), tiny)
        stage.cluster.decode.pool.fill_unwritten(0.0)
        return attacked(stage).completion.token_ids

    assert len({answer(seed) for seed in range(6)}) > 1


@pytest.mark.parametrize("index", range(6))
def test_counterfactual_is_a_rerun(tiny: BoundModel, index: int) -> None:
    """Rewriting what one tenant left in the pools gives the answer that a whole run with its other prompt gives."""
    stage = historical(POCKET, tiny)
    visit = stage.visits[0][index]
    number = next(number for number, name in stage.names.items() if name == visit.tenant.name)
    rewrite(stage, visit, number)

    def visits(model: BoundModel) -> list[list[Visit]]:
        (group,) = POCKET.visits(model)
        return [[changed(each) if each == visit else each for each in group]]

    rerun = historical(replace(POCKET, visits=visits), tiny)
    assert attacked(stage).completion.token_ids == attacked(rerun).completion.token_ids


def test_changed_changes_every_character(tiny: BoundModel) -> None:
    for visit in POCKET.visits(tiny)[0]:
        other = changed(visit).prompt
        assert len(other) == len(visit.prompt)
        assert all(ours != theirs for ours, theirs in zip(other, visit.prompt, strict=True))


def test_snapshot_brings_the_past_back(tiny: BoundModel) -> None:
    stage = historical(POCKET, tiny)
    past = Snapshot(stage.cluster)
    first = attacked(stage)
    for _ in range(2):
        past.restore()
        again = attacked(stage)
        assert again.completion.token_ids == first.completion.token_ids
        assert (pages(again), again.stale_writers) == (pages(first), first.stale_writers)
    assert_serves(stage)


def test_snapshot_of_a_busy_cluster(tiny: BoundModel) -> None:
    stage = Stage(POCKET, tiny, build(POCKET, tiny, HistoricalCluster))
    stage.cluster.submit([1, 2, 3], POCKET.attack_params)
    stage.cluster.step()
    with pytest.raises(ConfigError, match="still hold pages"):
        Snapshot(stage.cluster)


# The command


@pytest.mark.slow
def test_json_is_one_object() -> None:
    """Exactly one object on standard output."""
    command = [sys.executable, "-m", "minikv", "incident", "--scale", "pocket", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    told = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert {
        "scale": "pocket", "model": "tiny-random", "page_size": 4, "prefill_pool_tokens": 28,
        "decode_pool_tokens": 256, "context_length": 512, "prompt_tokens": 31, "limit": 22,
    }.items() <= told.items()  # fmt: skip
    before, after = told["before"], told["after"]
    assert before["status"] == 200 and after["status"] == 400 and after["error"]
    assert tuple(before[f"pages_{kind}"] for kind in ("reserved", "written", "stale")) == EXPECTED
    assert sum(before["stale_writers"].values()) == before["stale_slots_read"] == STALE_SLOTS
    assert after["pages_reserved"] == after["pages_stale"] == after["stale_slots_read"] == 0
    assert after["text"] == "" and after["leaked"] == [] and before["leaked"]


@pytest.mark.slow
def test_story_in_a_terminal() -> None:
    command = [sys.executable, "-m", "minikv", "incident", "--scale", "pocket"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    for word in ("31", "7", "30", "400"):
        assert word in done.stdout


@pytest.mark.parametrize("arguments", [["--scale", "huge"], ["--prompt-tokens", "0"], ["--prompt-tokens", "x"]])
def test_wrong_arguments(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "minikv", "incident", *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_every_defect_has_its_letter() -> None:
    assert ALL == "abcdefgh" and list(ONE_GUARD) == list(ALL)
