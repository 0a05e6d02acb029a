"""The same past and the same request, on the historical cluster and on the right one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from minikv.disagg.router import Cluster
from minikv.incident.counterfactual import tenants_that_matter
from minikv.incident.history import HistoricalCluster, historical_limit
from minikv.incident.scales import Scale
from minikv.incident.snapshot import Snapshot
from minikv.incident.stage import Outcome, Say, Stage, build
from minikv.incident.tenants import canaries_in, word_runs_in


@dataclass(frozen=True)
class Report:
    """A replay at one scale.

    `leaked` means: for a model that speaks, canaries of other tenants in the answer, and runs of five or more
    words of theirs; for random weights, the tenants whose prompts change the answer when only they change.
    """

    scale: Scale
    attack_tokens: int
    before: Outcome
    after: Outcome
    historical: HistoricalCluster
    right: Cluster

    @property
    def limit(self) -> int:
        """From this length on, the historical prefill node refused."""
        return historical_limit(self.scale.context_length, self.historical.prefill.pool.num_slots)


def replay(scale: Scale, *, attack_tokens: int | None = None, say: Say = lambda _text: None) -> Report:
    """Run history and the fix at one scale.

    Args:
        scale: which sizes.
        attack_tokens: length of the request; the scale's own if not given.
        say: is told, in short lines, what happens now.
    """
    say(f"loading {scale.model_name}")
    model = scale.load()
    say("the historical cluster: earlier tenants come, are served, and go")
    historical = build(scale, model, HistoricalCluster)
    old = Stage(scale, model, historical)
    old.play_past(say)
    past = Snapshot(historical)
    say("the historical cluster: the request")
    before = _watched(old, attack_tokens)
    before = find_leaks(old, before, past, attack_tokens, say)
    say("the right cluster: the same tenants, the same request")
    right = build(scale, model, Cluster)
    new = Stage(scale, model, right)
    new.play_past(say)
    past = Snapshot(right)
    after = _watched(new, attack_tokens)
    after = find_leaks(new, after, past, attack_tokens, say)
    tokens = attack_tokens or scale.attack_tokens
    return Report(scale, tokens, before, after, historical, right)


def _watched(stage: Stage, attack_tokens: int | None) -> Outcome:
    answer = stage.watched_attack(attack_tokens)
    return replace(stage.measure(answer.completion), attention=answer.attention, spoken=answer.tokens)


def find_leaks(
    stage: Stage, outcome: Outcome, past: Snapshot, attack_tokens: int | None, say: Say = lambda _text: None
) -> Outcome:
    """Fill in `leaked` and `tested`.

    Args:
        stage: where the past was played and the answer given.
        outcome: what was measured.
        past: the pools between the two.
        attack_tokens: as for the answer.
        say: is told what happens now.
    """
    answer = outcome.completion
    if stage.scale.readable:
        tenants = [visit.tenant for group in stage.visits for visit in group]
        found = canaries_in(answer.text, tenants) + word_runs_in(answer.text, tenants)
        return replace(outcome, leaked=found)
    # Only a tenant whose slots were read can matter; those that were looked at most come first.
    read = [name for name in outcome.attention if name in stage.names.values() and name in outcome.stale_writers]
    tested = read[: stage.scale.candidates]
    if tested:
        say(f"who matters? the prompts of {len(tested)} tenants are changed, one at a time")
    matter = tenants_that_matter(stage, answer, past, tested, attack_tokens, say)
    return replace(outcome, leaked=matter, tested=len(tested))
