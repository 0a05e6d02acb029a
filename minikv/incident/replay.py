"""The same past and the same request, on the historical cluster and on the right one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from minikv.disagg.router import Cluster
from minikv.incident.counterfactual import tenants_that_matter
from minikv.incident.history import UNREAD, HistoricalCluster, Witness, historical_limit
from minikv.incident.scales import Scale
from minikv.incident.snapshot import Snapshot
from minikv.incident.tenants import canaries_in, word_runs_in
from minikv.models.adapter import BoundModel
from minikv.sampling import SamplingParams
from minikv.scheduling.request import Completion
from minikv.trace import Allocate, Read

Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What one cluster did with the request that it should refuse. Counts come from its pools and its ledger.

    Attributes:
        completion: the answer as the client gets it.
        pages_reserved, pages_written, pages_stale: of the decode node when it took the handoff.
        stale_page_writers: tenants whose contents lay in the stale pages, with pages.
        stale_slots_read: different slots read though the request had not written them.
        stale_writers: tenants who had written those slots, with slots.
        leaked: what came out, see `Report`.
    """

    completion: Completion
    pages_reserved: int = 0
    pages_written: int = 0
    pages_stale: int = 0
    stale_page_writers: dict[str, int] = field(default_factory=dict)
    stale_slots_read: int = 0
    stale_writers: dict[str, int] = field(default_factory=dict)
    leaked: list[str] = field(default_factory=list)


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


class Stage:
    """A model and a cluster with a past: earlier tenants have come, been served, and gone.

    Args:
        scale: which sizes.
        model: already loaded, so that several stages can share it.
        cluster: the cluster to fill; of any kind, just built.

    Attributes:
        names: tenant by request number.
    """

    def __init__(self, scale: Scale, model: BoundModel, cluster: Cluster) -> None:
        self.scale = scale
        self.model = model
        self.cluster = cluster
        self.names: dict[int, str] = {}
        self.visits = scale.visits(model)

    def play_past(self, say: Say = lambda _text: None) -> None:
        """Serve the earlier tenants, group after group."""
        for group in self.visits:
            say(f"{self.cluster.trace.step:>4} steps so far; now served: {_listed([v.tenant.name for v in group])}")
            completions = self.cluster.generate(
                [visit.prompt for visit in group],
                [SamplingParams(max_tokens=visit.max_tokens, ignore_eos=True) for visit in group],
                tenant=[visit.tenant.name for visit in group],
            )
            for done in completions:
                if done.error is not None:
                    raise done.error
                self.names[done.request_id] = done.tenant

    def attack(self, length: int | None = None) -> Completion:
        """Send the request that must be refused, and return the answer."""
        prompt = self.scale.attack(self.model, length)
        return self.cluster.generate([prompt], self.scale.attack_params, tenant="attacker")[0]

    def measure(self, completion: Completion) -> Outcome:
        """Count in pools and ledger what the request had and read."""
        number = completion.request_id
        lent = sum(isinstance(e, Allocate) and e.owner == number for e in self.cluster.trace)
        if not isinstance(self.cluster, HistoricalCluster) or number not in self.cluster.decode.commits:  # type: ignore[attr-defined]
            foreign = Counter[str]()
            for event in self.cluster.trace:
                if isinstance(event, Read) and event.owner == number:
                    foreign.update({self.name(w): n for w, n in event.writers if w != number})
            return Outcome(completion, lent, stale_slots_read=foreign.total(), stale_writers=dict(foreign))
        commit = self.cluster.decode.commits[number]  # type: ignore[attr-defined]
        writers = self._stale_reads(number)
        return Outcome(
            completion,
            pages_reserved=commit.pages_reserved,
            pages_written=commit.pages_written,
            pages_stale=len(commit.stale_page_writers),
            stale_page_writers=dict(Counter(self.name(w) for w in commit.stale_page_writers)),
            stale_slots_read=len(writers),
            stale_writers=dict(Counter(self.name(int(w)) for w in writers)),
        )

    def _stale_reads(self, number: int) -> np.ndarray:
        ledger = self.cluster.decode.pool.ledger
        if not isinstance(ledger, Witness) or number not in ledger.stale_reads:
            return np.empty(0, dtype=np.int64)
        writers = ledger.stale_reads[number]
        return writers[writers != UNREAD]

    def name(self, number: int) -> str:
        """Tenant of a request number; "nobody" for slots that were never written."""
        return self.names.get(number, "nobody")


def build(scale: Scale, model: BoundModel, kind: type[Cluster] = Cluster, **settings: object) -> Cluster:
    """A cluster of either kind in the sizes of a scale."""
    return kind(
        model,
        prefill=scale.prefill,
        decode=scale.decode,
        page_size=scale.page_size,
        context_length=scale.context_length,
        allow_context_above_pool=True,
        **settings,  # type: ignore[arg-type]
    )


def replay(scale: Scale, *, attack_tokens: int | None = None, say: Say = lambda _text: None) -> Report:
    """Run history and the fix at one scale.

    Args:
        scale: which sizes.
        attack_tokens: length of the request; the scale's own if not given.
        say: is told, in short lines, what happens now.
    """
    say(f"loading {scale.model_name}")
    model = scale.load()
    say("historical cluster: earlier tenants are served")
    old = Stage(scale, model, build(scale, model, HistoricalCluster))
    old.play_past(say)
    past = Snapshot(old.cluster)
    say("historical cluster: the request that should be refused")
    before = old.measure(old.attack(attack_tokens))
    before.leaked.extend(leaks(old, before.completion, past, attack_tokens, say))
    say("right cluster: the same tenants, the same request")
    new = Stage(scale, model, build(scale, model))
    new.play_past(say)
    after = new.measure(new.attack(attack_tokens))
    after.leaked.extend(leaks(new, after.completion, None, attack_tokens, say))
    tokens = attack_tokens or scale.attack_tokens
    return Report(scale, tokens, before, after, old.cluster, new.cluster)  # type: ignore[arg-type]


def leaks(
    stage: Stage, completion: Completion, past: Snapshot | None, attack_tokens: int | None, say: Say
) -> list[str]:
    """What of other tenants is in an answer; see `Report`."""
    tenants = [visit.tenant for group in stage.visits for visit in group]
    if stage.scale.readable:
        return canaries_in(completion.text, tenants) + word_runs_in(completion.text, tenants)
    if not completion.token_ids or past is None:
        return []
    say("who matters? each tenant's prompt is changed alone, and the request repeated")
    return tenants_that_matter(stage, completion, past, attack_tokens)


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{names[0]} ... {names[-1]} ({len(names)} tenants)"
