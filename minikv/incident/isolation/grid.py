"""The content layer in the laboratory of the guard matrix: one scenario with some guards on."""

from __future__ import annotations

from collections.abc import Sequence

from minikv.incident.isolation.content import (
    Truth,
    answers_are_true,
    statuses_are_true,
    unmoved,
    usage_is_true,
)
from minikv.incident.isolation.faults import play
from minikv.incident.isolation.findings import Finding
from minikv.incident.isolation.targets import Pair
from minikv.incident.matrix import SHIFTS, Laboratory
from minikv.incident.scenarios import Scenario

STRANGERS = ("stranger",)


def content_of(
    laboratory: Laboratory,
    guards: str,
    scenario: Scenario,
    truth: Truth | None,
    shifts: Sequence[int] = SHIFTS[:2],
) -> list[Finding]:
    """What the content layer says of one scenario, after a past and after others in which the strangers said else.

    Args:
        laboratory: with pasts that were played.
        guards: letters of the guards that are on.
        scenario: what is played.
        truth: true answers; None looks for leaks alone.
        shifts: by how far the strangers' words are moved; the first run is the one that is looked at.
    """
    first, *others = [_run(laboratory, guards, scenario, shift) for shift in shifts]
    found = statuses_are_true(first) + usage_is_true(first)
    if truth:
        found += answers_are_true(first, truth)
    for other in others:
        found += unmoved(first, other, STRANGERS)
    return found


def _run(laboratory: Laboratory, guards: str, scenario: Scenario, shift: int) -> list[Pair]:
    cluster = laboratory.cluster(guards, equal_pools=scenario.equal_pools, shift=shift)
    pair, _found = play(cluster, scenario, laboratory.prompts(shift))
    return [pair]
