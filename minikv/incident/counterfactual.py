"""Whose words were these? Change one tenant's prompt, nothing else, and see whether the answer changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minikv.config import NodeConfig
from minikv.disagg.router import Cluster
from minikv.incident.scales import FIRST_CHARACTER, NUM_CHARACTERS, Visit
from minikv.incident.snapshot import Snapshot
from minikv.incident.stage import Say, Stage
from minikv.memory import PagePool, pages_needed
from minikv.sampling import SamplingParams
from minikv.scheduling.request import Completion


def tenants_that_matter(
    stage: Stage,
    completion: Completion,
    past: Snapshot,
    names: list[str],
    attack_tokens: int | None,
    say: Say = lambda _text: None,
) -> list[str]:
    """Those of some tenants whose prompts change an answer when only they change.

    Every slot that the tenant's request wrote, in both pools, gets what the changed prompt would have written
    there; then the request that should have been refused runs again.

    Args:
        stage: where the past was played and the answer given.
        completion: that answer.
        past: the pools between the two.
        names: the tenants to try.
        attack_tokens: as for the answer.
        say: is told which tenant is tried.
    """
    numbers = {name: number for number, name in stage.names.items()}
    visits = {visit.tenant.name: visit for group in stage.visits for visit in group}
    matter = []
    tracing, stage.cluster.trace.enabled = stage.cluster.trace.enabled, False
    try:
        for index, name in enumerate(names, start=1):
            say(f"who matters? {index} of {len(names)}: {name}")
            past.restore()
            rewrite(stage, visits[name], numbers[name])
            if stage.attack(attack_tokens).token_ids != completion.token_ids:
                matter.append(name)
    finally:
        past.restore()
        stage.cluster.trace.enabled = tracing
    return matter


def changed(visit: Visit, by: int = NUM_CHARACTERS // 2) -> Visit:
    """The same visit with another text of the same length: each character moved on, by default half way round."""
    first, count = FIRST_CHARACTER, NUM_CHARACTERS
    text = "".join(chr(first + (ord(each) - first + by) % count) for each in visit.tenant.text)
    return replace(visit, tenant=replace(visit.tenant, text=text), prompt=text)


def rewrite(stage: Stage, visit: Visit, number: int) -> None:
    """Replace all that request `number` wrote by what its changed visit writes."""
    other = changed(visit)
    scratch = _alone(stage, other)
    source = scratch.decode.pool
    where = _slots_by_position(source, writer=0)
    for pool in (stage.cluster.prefill.pool, stage.cluster.decode.pool):
        if pool.ledger is None:
            continue
        slots = np.flatnonzero(pool.ledger.writer == number)
        origin = where[pool.ledger.position[slots]]
        for own, new in zip((*pool.keys, *pool.values), (*source.keys, *source.values), strict=True):
            own.flatten(0, 1)[slots] = new.flatten(0, 1)[origin]


def _alone(stage: Stage, visit: Visit) -> Cluster:
    """Serve one visit on a small cluster of its own, and return it with its pages as they were left."""
    size = stage.scale.page_size
    tokens = len(stage.model.encode(visit.prompt)) + visit.max_tokens
    config = NodeConfig(num_pages=pages_needed(tokens, size), max_batch_tokens=tokens)
    cluster = Cluster(stage.model, prefill=config, decode=config, page_size=size)
    params = SamplingParams(max_tokens=visit.max_tokens, ignore_eos=True)
    (done,) = cluster.generate([visit.prompt], params)
    if done.error is not None:
        raise done.error
    return cluster


def _slots_by_position(pool: PagePool, writer: int) -> np.ndarray:
    ledger = pool.ledger
    if ledger is None:
        raise ValueError("a pool without a ledger does not know who wrote what")
    slots = np.flatnonzero(ledger.writer == writer)
    where = np.full(int(ledger.position[slots].max()) + 1, -1, dtype=np.int64)
    where[ledger.position[slots]] = slots
    return where
