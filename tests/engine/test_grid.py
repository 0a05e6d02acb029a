"""Families x page sizes x chunk budgets x preemptions x one node or two: always what `transformers` answers.

The five factors of a cell: its family, the slots of a page, the most tokens of a step, how many preemptions its pool
forces at least (0: none at all), and one node or two. `make test` runs a part in which every pair of values occurs,
`make test-more` one in which every three do, and the whole product for the families that the other tests run with.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from copy import copy
from functools import cache, lru_cache
from typing import Any

import pytest
import torch
from covering import Row, covering, parts
from families import NOT_IN_OLDEST, OLDEST
from helpers import CORE, FAMILIES, NEVER, VOCABULARY, Server, answers, assert_quiet, finished, greedy, prompt_of
from transformers import ContinuousBatchingConfig, GenerationConfig

from minikv import Cluster, Engine, NodeConfig
from minikv.memory import pages_needed
from minikv.models.adapter import BoundModel
from minikv.trace import Trace

PAGE_SIZES = (1, 3, 4, 16, 64)
BUDGETS = (3, 8, 8192)
PREEMPTIONS = (0, 1, 3)
NODES = ("engine", "cluster")
FACTORS = ([name for name in FAMILIES if name not in NOT_IN_OLDEST], PAGE_SIZES, BUDGETS, PREEMPTIONS, NODES)

PAIRS = covering(FACTORS, 2)
TRIPLES = [row for row in covering(FACTORS, 3) if row not in set(PAIRS)]
CORE_GRID = [row for row in itertools.product(CORE, *FACTORS[1:]) if row not in {*PAIRS, *TRIPLES}]

TOKENS = (9, 12, 8, 11, 10, 7)


def lengths(page_size: int) -> tuple[int, ...]:
    """Prompts that end shortly before a page does, so that their answers need one more, and short ones."""
    end = page_size * -(-8 // page_size)
    return (end - 2, 3, end - 1, 3, end - 2, 3)


def build(model: BoundModel, page_size: int, budget: int, nodes: str, num_pages: int, **parts: Any) -> Server:
    limits = {"num_pages": num_pages, "max_batch_tokens": budget}
    if nodes == "engine":
        return Engine(model, page_size=page_size, **limits, **parts)
    return Cluster(model, prefill=NodeConfig(**limits), decode=NodeConfig(**limits), page_size=page_size, **parts)


def submitted(server: Server, page_size: int) -> list[int]:
    jobs = zip(lengths(page_size), TOKENS, strict=True)
    return [server.submit(prompt_of(length, seed), greedy(n)) for seed, (length, n) in enumerate(jobs)]


def preemptions(server: Server) -> int:
    return sum(node.preemptions for node in server.stats().nodes)


@lru_cache(maxsize=2)
def family(name: str) -> BoundModel:
    """A model; cells of one family come together."""
    return FAMILIES[name]()


@lru_cache(maxsize=8)
def right(name: str, page_size: int) -> list[tuple[int, ...]]:
    """What `transformers` answers; prompts of one length go through it side by side, which needs no padding."""
    return reference(family(name), lengths(page_size))


def reference(model: BoundModel, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for length in set(sizes):
        seeds = [seed for seed, size in enumerate(sizes) if size == length]
        ids = torch.tensor([prompt_of(length, seed) for seed in seeds])
        config = GenerationConfig(max_new_tokens=max(TOKENS), do_sample=False, eos_token_id=NEVER, pad_token_id=0)
        config.bos_token_id = 0
        output = model.hf.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        found |= {seed: tuple(row[length:].tolist()) for seed, row in zip(seeds, output, strict=True)}
    return [found[seed][:n] for seed, n in enumerate(TOKENS)]


@cache
def mute() -> BoundModel:
    """A model that says 0 and computes nothing: who gives way when does not depend on what is said."""
    model = copy(family("llama"))
    model.forward = lambda _ids, _positions, last, _step: torch.zeros(len(last), VOCABULARY)  # type: ignore[method-assign]
    return model


@cache
def pool_for(page_size: int, budget: int, least: int, nodes: str) -> int:
    """A pool that forces at least so many preemptions; for none, one that holds everybody at once."""
    need = [pages_needed(length + n, page_size) for length, n in zip(lengths(page_size), TOKENS, strict=True)]
    if least == 0:
        return sum(need)
    for tenths in range(8, 0, -1):
        num_pages = max(sum(need) * tenths // 10, max(need))
        server = build(mute(), page_size, budget, nodes, num_pages, ledger=False, trace=Trace(enabled=False))
        submitted(server, page_size)
        while server.stats().unanswered:
            server.step()
        if preemptions(server) >= least:
            return num_pages
    raise AssertionError("no pool is small enough")


def run_cell(cell: Row) -> None:
    name, page_size, budget, least, nodes = cell
    server = build(family(name), page_size, budget, nodes, pool_for(page_size, budget, least, nodes))
    got = answers(finished(server, submitted(server, page_size)))
    assert got == right(name, page_size)
    assert preemptions(server) >= least if least else preemptions(server) == 0
    assert_quiet(server)


def cells(rows: Sequence[Row]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("cell", rows, ids=["-".join(map(str, row)) for row in rows])


@pytest.mark.parametrize("strength", [2, 3])
def test_rows_cover_all_combinations(strength: int) -> None:
    rows = covering(FACTORS, strength)
    seen = {part for row in rows for part in parts(row, strength)}
    assert seen == {part for row in itertools.product(*FACTORS) for part in parts(row, strength)}
    assert len(rows) < 1.5 * len(FACTORS[0]) * len(PAGE_SIZES) * (len(BUDGETS) if strength == 3 else 1)


@pytest.mark.slow
@cells(PAIRS)
def test_every_pair(cell: Row) -> None:
    run_cell(cell)


@pytest.mark.more
@cells(TRIPLES)
def test_every_three(cell: Row) -> None:
    run_cell(cell)


@pytest.mark.more
@cells(CORE_GRID)
def test_whole_grid(cell: Row) -> None:
    run_cell(cell)


@pytest.mark.skipif(OLDEST, reason="older continuous batching has other settings; generate is the reference there")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "mistral", "gpt_oss"])
def test_equals_the_continuous_batching_of_transformers(name: str) -> None:
    """Its paged cache, its chunks and ours, with pools in which not everybody has room at once.

    Gemma-2 would differ: there its eager attention leaves out the soft cap.
    """
    model = FAMILIES[name]()
    prompts = [prompt_of(length, seed) for seed, length in enumerate((1, 3, 4, 5, 14, 30))]
    config = GenerationConfig(max_new_tokens=12, do_sample=False, eos_token_id=NEVER, pad_token_id=0)
    config.bos_token_id = 0
    paged = ContinuousBatchingConfig(page_size=4, num_blocks=16, max_batch_tokens=8)
    theirs = model.hf.generate_batch(
        prompts, generation_config=config, continuous_batching_config=paged, progress_bar=False
    )
    server = Engine(model, page_size=4, num_pages=16, max_batch_tokens=8)
    ours = answers(finished(server, [server.submit(prompt, greedy(12)) for prompt in prompts]))
    assert ours == [tuple(theirs[f"req_{i}"].generated_tokens) for i in range(len(prompts))]
    assert preemptions(server) >= 1
