"""Stages with a past, in any of the sizes, and what irrelevant changes look like."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from minikv import Cluster, SamplingParams
from minikv.incident.defects import DEFECTS
from minikv.incident.history import HistoricalCluster
from minikv.incident.scales import Scale, Visit
from minikv.incident.snapshot import Snapshot
from minikv.incident.stage import Outcome, Stage, build
from minikv.memory import FreeList
from minikv.models.adapter import BoundModel

ALL = "".join(DEFECTS)


def historical(
    scale: Scale, model: BoundModel, *, defects: str = ALL, past: bool = True, allocator: type[FreeList] = FreeList
) -> Stage:
    """The historical cluster, after its earlier tenants have come and gone."""
    stage = Stage(scale, model, build(scale, model, HistoricalCluster, defects=defects, allocator=allocator))
    if past:
        stage.play_past()
    return stage


def same_past(stage: Stage, snapshot: Snapshot, **settings: Any) -> Stage:
    """Another historical cluster with the same past, copied instead of played again."""
    snapshot.restore()
    copied = Stage(stage.scale, stage.model, build(stage.scale, stage.model, HistoricalCluster, **settings))
    copied.names.update(stage.names)
    copied.cluster.generate([[]] * len(stage.names))  # so that the next request has the same number
    for node in ("prefill", "decode"):
        ours, theirs = getattr(copied.cluster, node).pool, getattr(stage.cluster, node).pool
        for own, played in zip((*ours.keys, *ours.values), (*theirs.keys, *theirs.values), strict=True):
            own.copy_(played)
        ours.generation[:] = theirs.generation
        ours.allocator = copy.deepcopy(theirs.allocator)
        for name in ("writer", "generation", "position"):
            getattr(ours.ledger, name)[:] = getattr(theirs.ledger, name)
    return copied


def attacked(stage: Stage, length: int | None = None) -> Outcome:
    """The request that should be refused has met the stage."""
    outcome = stage.measure(stage.attack(length))
    stage.cluster.check()
    return outcome


def attacked_with(stage: Stage, prompt: Sequence[int]) -> Outcome:
    """The same with a prompt of one's own."""
    return stage.measure(stage.cluster.generate([tuple(prompt)], stage.scale.attack_params, tenant="attacker")[0])


def pages(outcome: Outcome) -> tuple[int, int, int]:
    """Reserved, written, stale."""
    return outcome.pages_reserved, outcome.pages_written, outcome.pages_stale


class Reversed(FreeList):
    """Lends as the plain list does, each grant back to front."""

    def allocate(self, n: int) -> list[int]:
        return super().allocate(n)[::-1]


def renamed(scale: Scale) -> Scale:
    """The same visits by tenants of other names."""

    def visits(model: BoundModel) -> list[list[Visit]]:
        return [
            [replace(visit, tenant=replace(visit.tenant, name=f"{visit.tenant.name}-2")) for visit in group]
            for group in scale.visits(model)
        ]

    return replace(scale, visits=visits)


@dataclass(frozen=True)
class Verdict:
    """What a defect left out turns the incident into: status, stale slots read, and how the answer reads."""

    status: int
    stale_slots_read: bool
    reason: str


# One guard on, seven defects left. DESIGN section 5 expects a, b, c, d, e, g to refuse; f to answer nonsense with
# status 200, because decode goes on from the placeholder; h to refuse although everything stale was read.
ONE_GUARD = {
    "a": Verdict(400, False, "rejected"),
    "b": Verdict(400, False, "rejected"),
    "c": Verdict(400, False, "rejected"),
    "d": Verdict(400, False, "rejected"),
    "e": Verdict(502, False, "error"),
    "f": Verdict(200, False, "length"),
    "g": Verdict(500, False, "error"),
    "h": Verdict(400, True, "rejected"),
}


def assert_one_guard(stage: Stage, guard: str, stale_slots: int) -> None:
    """A stage whose cluster lacks the defect `guard`: the expected verdict, and everybody else is served."""
    outcome = attacked(stage)
    expected = ONE_GUARD[guard]
    assert outcome.completion.status == expected.status
    assert outcome.completion.finish_reason == expected.reason
    assert outcome.stale_slots_read == (stale_slots if expected.stale_slots_read else 0)
    if expected.reason == "rejected":
        assert outcome.completion.text == ""
    assert_serves(stage)


def assert_serves(stage: Stage) -> None:
    """An ordinary request right after it gets the right answer, and all pages are back."""
    (ordinary, *_), *_ = stage.visits
    prompt = stage.model.encode(ordinary.prompt)[:12]
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    (done,) = stage.cluster.generate([prompt], params)
    (alone,) = build(stage.scale, stage.model, Cluster).generate([prompt], params)
    assert done.error is None and done.token_ids == alone.token_ids
    stage.cluster.check()
    for pool in (stage.cluster.prefill.pool, stage.cluster.decode.pool):
        assert pool.num_free == pool.num_pages
