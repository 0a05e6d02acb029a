"""Small random models of many families, their answers according to `transformers`, and a way to drive a server."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.models.deepseek_v3 import DeepseekV3Config
from transformers.models.gemma2 import Gemma2Config
from transformers.models.gpt2 import GPT2Config
from transformers.models.gpt_oss import GptOssConfig
from transformers.models.llama import LlamaConfig
from transformers.models.mistral import MistralConfig
from transformers.models.qwen3 import Qwen3Config

from minikv import Cluster, Completion, Engine, NodeConfig, SamplingParams, load_model
from minikv.models.adapter import BoundModel

VOCABULARY = 96
WINDOW = 6
NEVER = 1_000_000  # an end-of-sequence token that no model can say

Server = Engine | Cluster

SIZES: dict[str, Any] = dict(
    vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=256, bos_token_id=None, eos_token_id=None,
    tie_word_embeddings=False, initializer_range=0.4,
)  # fmt: skip


def built(config: Any, *, attention: str = "eager", seed: int = 0) -> BoundModel:
    """A model of random weights, large enough that answers depend on what is read."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hf = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention)
    return load_model(hf)


def llama(**changes: Any) -> BoundModel:
    return built(LlamaConfig(**SIZES | changes))


def qwen3(**changes: Any) -> BoundModel:
    return built(Qwen3Config(**SIZES | changes))


def gpt2(**changes: Any) -> BoundModel:
    sizes: dict[str, Any] = dict(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=256, bos_token_id=None,
        eos_token_id=None, initializer_range=0.4,
    )  # fmt: skip
    return built(GPT2Config(**sizes | changes))


def mistral() -> BoundModel:
    """Every layer sees `WINDOW` positions only."""
    return built(MistralConfig(**SIZES, sliding_window=WINDOW))


def gemma2() -> BoundModel:
    """Soft-capped scores, and every second layer with a window. Large queries and keys make the cap matter."""
    model = built(Gemma2Config(**SIZES, sliding_window=WINDOW, attn_logit_softcapping=20.0))
    for name, weight in model.hf.named_parameters():
        if "q_proj" in name or "k_proj" in name:
            weight.data.mul_(60**0.5)
    return model


def gpt_oss() -> BoundModel:
    """Attention sinks, windows, and a mixture of experts."""
    config = GptOssConfig(
        **SIZES, sliding_window=WINDOW, num_local_experts=2, num_experts_per_tok=1, pad_token_id=None,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )  # fmt: skip
    model = built(config)
    for name, weight in model.hf.named_parameters():
        if "sinks" in name:
            weight.data.copy_(torch.linspace(0.0, 5.0, len(weight)))  # each head its own
    return model


def deepseek() -> BoundModel:
    """Keys of 12 numbers and values of 8, both expanded from a latent vector."""
    config = DeepseekV3Config(
        **{key: value for key, value in SIZES.items() if key != "head_dim"} | {"num_key_value_heads": 4},
        moe_intermediate_size=16, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1,
        first_k_dense_replace=1, kv_lora_rank=16, q_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8,
        v_head_dim=8,
    )  # fmt: skip
    return built(config)


FAMILIES: dict[str, Callable[[], BoundModel]] = {
    "llama": llama, "qwen3": qwen3, "gpt2": gpt2, "mistral": mistral, "gemma2": gemma2, "gpt_oss": gpt_oss,
    "deepseek": deepseek,
}  # fmt: skip


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
        assert not node.scheduler.waiting and not node.scheduler.running and not node.scheduler._promised
