"""The incident with a model that speaks: 8 pages reserved, 1 written, 7 stale, 489 stale slots read, in float32."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from stages import (
    ALL,
    ONE_GUARD,
    Reversed,
    assert_one_guard,
    attacked,
    attacked_with,
    historical,
    pages,
    renamed,
    same_past,
)

from minikv import Cluster, Rejected
from minikv.incident.replay import Report, replay
from minikv.incident.scales import ARTICLE
from minikv.incident.snapshot import Snapshot
from minikv.incident.stage import Stage, build
from minikv.incident.tenants import canaries_in, tenant, word_runs_in
from minikv.models.adapter import BoundModel
from minikv.trace import Read

pytestmark = [pytest.mark.model, pytest.mark.slow]

EXPECTED, STALE_SLOTS = (8, 1, 7), 489
VICTIMS = [tenant("halverson"), tenant("quennell")]
LENGTHS = range(450, 507, 8)


@pytest.fixture(scope="module")
def report() -> Report:
    return replay(ARTICLE)


@pytest.fixture(scope="module")
def past(smollm2: BoundModel) -> tuple[Stage, Snapshot]:
    """One past for many attacks; each restores it first."""
    stage = historical(ARTICLE, smollm2)
    return stage, Snapshot(stage.cluster)


def test_before(report: Report) -> None:
    before = report.before
    assert before.completion.status == 200 and before.completion.finish_reason == "length"
    assert pages(before) == EXPECTED and before.stale_slots_read == STALE_SLOTS
    assert before.stale_writers == {"quennell": STALE_SLOTS} and before.stale_page_writers == {"quennell": 7}
    assert before.leaked == [
        *canaries_in(before.completion.text, VICTIMS), *word_runs_in(before.completion.text, VICTIMS)
    ]  # fmt: skip
    assert canaries_in(before.completion.text, VICTIMS), before.completion.text


def test_first_step_reads_491(report: Report) -> None:
    """Two of them are the attacker's own: the placeholder and the first token."""
    number = report.before.completion.request_id
    reads = [e for e in report.historical.trace if isinstance(e, Read) and e.owner == number and e.node == "decode"]
    first = [event for event in reads if event.step == reads[0].step]
    assert sum(event.slots for event in first) == 491
    assert sum(n for event in first for writer, n in event.writers if writer == number) == 2


def test_after(report: Report) -> None:
    after = report.after
    assert isinstance(after.completion.error, Rejected) and after.completion.status == 400
    assert (after.completion.error.limit, after.completion.error.requested) == (448 - 48 + 1, 490)
    assert pages(after) == (0, 0, 0) and after.stale_slots_read == 0
    assert after.completion.text == "" and after.leaked == [] and after.attention == {}


def test_limits(report: Report) -> None:
    """Every earlier tenant came through the same door, below the historical limit."""
    assert report.limit == 442 and report.attack_tokens == 490
    pools = report.historical.prefill.pool, report.historical.decode.pool
    assert [pool.num_slots for pool in pools] == [448, 4096] and report.historical.context_length == 8192
    for group in ARTICLE.visits(report.historical.model):
        for visit in group:
            assert len(report.historical.model.encode(visit.prompt)) < 442


def test_attention_fell_on_the_patient_record(report: Report) -> None:
    shares = report.before.attention
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["quennell"] > 0.1 and shares.keys() == {"quennell", "attacker"}


def test_canaries_at_eight_lengths(past: tuple[Stage, Snapshot]) -> None:
    """At six or more of eight: which sentence comes out is the length's choice, and another processor's."""
    stage, snapshot = past
    speaking = 0
    for length in LENGTHS:
        snapshot.restore()
        outcome = attacked(stage, length)
        assert pages(outcome) == EXPECTED and outcome.stale_slots_read == length - 1
        speaking += bool(canaries_in(outcome.completion.text, VICTIMS))
    assert 490 in LENGTHS and speaking >= 6


@pytest.mark.parametrize("guard", ONE_GUARD)
def test_one_guard(past: tuple[Stage, Snapshot], guard: str) -> None:
    assert_one_guard(same_past(*past, defects=ALL.replace(guard, "")), guard, STALE_SLOTS)


def test_fresh_pool(smollm2: BoundModel) -> None:
    """As many stale pages and slots, nobody in them, nothing to tell."""
    outcome = attacked(historical(ARTICLE, smollm2, past=False))
    assert pages(outcome) == EXPECTED and outcome.stale_writers == {"nobody": STALE_SLOTS}
    assert canaries_in(outcome.completion.text, VICTIMS) == word_runs_in(outcome.completion.text, VICTIMS) == []


def test_wiped_decode_pool(past: tuple[Stage, Snapshot]) -> None:
    """No canary, though a part of page 0 still came from the prefill pool."""
    stage, snapshot = past
    snapshot.restore()
    stage.cluster.decode.pool.fill_unwritten(0.0)
    outcome = attacked(stage)
    assert pages(outcome) == EXPECTED
    assert canaries_in(outcome.completion.text, VICTIMS) == []


def assert_same_counts(stage: Stage, prompt: Sequence[int] | None = None) -> None:
    outcome = attacked_with(stage, prompt) if prompt else attacked(stage)
    assert pages(outcome) == EXPECTED and outcome.stale_slots_read == STALE_SLOTS


def test_other_attack_text(past: tuple[Stage, Snapshot]) -> None:
    stage, snapshot = past
    snapshot.restore()
    assert_same_counts(
        stage, (stage.model.encode("Please list the rivers of France, from north to south. ") * 50)[:490]
    )


@pytest.mark.more
def test_other_tenant_names(smollm2: BoundModel) -> None:
    stage = historical(renamed(ARTICLE), smollm2)
    assert_same_counts(stage)
    assert set(stage.names.values()) == {"halverson-2", "quennell-2"}


@pytest.mark.more
def test_page_order_reversed(smollm2: BoundModel) -> None:
    assert_same_counts(historical(ARTICLE, smollm2, allocator=Reversed))


@pytest.mark.more
def test_right_cluster_with_the_same_past_serves_401(smollm2: BoundModel) -> None:
    """The longest prompt that fits is answered, without a word of the others."""
    stage = Stage(ARTICLE, smollm2, build(ARTICLE, smollm2, Cluster))
    stage.play_past()
    outcome = attacked(stage, 401)
    assert outcome.completion.status == 200 and outcome.stale_slots_read == 0
    assert canaries_in(outcome.completion.text, VICTIMS) == []
    fresh = build(ARTICLE, smollm2, Cluster).generate([ARTICLE.attack(smollm2, 401)], ARTICLE.attack_params)
    assert outcome.completion.token_ids == fresh[0].token_ids
