"""Answers of models according to `transformers`, and a way to drive a server."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from families import CORE as CORE
from families import FAMILIES as FAMILIES
from families import SIZES as SIZES
from families import VOCABULARY as VOCABULARY
from families import WINDOW as WINDOW
from families import built as built
from families import deepseek as deepseek
from families import gemma2 as gemma2
from families import gpt2 as gpt2
from families import gpt_oss as gpt_oss
from families import llama as llama
from families import mistral as mistral
from families import qwen3 as qwen3
from transformers import GenerationConfig

from minikv import Cluster, Completion, Engine, NodeConfig, SamplingParams
from minikv.models.adapter import BoundModel

NEVER = 1_000_000  # an end-of-sequence token that no model can say

Server = Engine | Cluster


def prompt_of(length: int, seed: int = 0, vocabulary: int = VOCABULARY) -> list[int]:
    """Random ids, the same for the same arguments."""
    return random.Random(f"{seed} {length}").choices(range(vocabulary), k=length)


def reference(model: BoundModel, ids: Sequence[int], n: int, *, eos: int = NEVER) -> tuple[int, ...]:
    """What `transformers` answers greedily: `n` tokens, or fewer if `eos` comes before."""
    prompt = torch.tensor([list(ids)])
    config = GenerationConfig(max_new_tokens=n, do_sample=False, eos_token_id=eos, pad_token_id=0)
    config.bos_token_id = 0
    output = model.hf.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)
    return tuple(output[0, len(ids) :].tolist())


def greedy(n: int) -> SamplingParams:
    """Exactly `n` tokens."""
    return SamplingParams(max_tokens=n, ignore_eos=True)


def cluster(model: BoundModel, pages: int, **settings: Any) -> Cluster:
    """Two nodes of one size."""
    return Cluster(model, prefill=NodeConfig(num_pages=pages), decode=NodeConfig(num_pages=pages), **settings)


def served(server: Server, prompts: Sequence[Any], params: SamplingParams) -> list[Completion]:
    """As `generate`, but with every invariant verified after every step, and an end to it."""
    numbers = [server.submit(prompt, params) for prompt in prompts]
    return finished(server, numbers)


def finished(server: Server, numbers: Iterable[int], most_steps: int = 2000) -> list[Completion]:
    """Step until some requests have their answers; verify every invariant after every step."""
    numbers = list(numbers)
    for _ in range(most_steps):
        if all(server.requests[number].finished for number in numbers):
            return [server.result(number) for number in numbers]
        server.step()
        server.check()
    raise AssertionError(f"no answer after {most_steps} steps")


def answers(completions: Iterable[Completion]) -> list[tuple[int, ...]]:
    """Token ids; an error anywhere is raised."""
    completions = list(completions)
    for each in completions:
        if each.error is not None:
            raise each.error
    return [each.token_ids for each in completions]


def pools(server: Server) -> list[Any]:
    """All page pools of a server."""
    return [server.pool] if isinstance(server, Engine) else [server.prefill.pool, server.decode.pool]


def assert_quiet(server: Server) -> None:
    """Every page is free, and nobody waits or runs anywhere."""
    server.check()
    for pool in pools(server):
        assert pool.num_free == pool.num_pages and not pool.tables
    for node in [server.node] if isinstance(server, Engine) else [server.prefill, server.decode]:
        assert not node.scheduler.waiting and not node.scheduler.running
