"""More decoder families: answered as `transformers` does, or refused by name, and never in between."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import SIZES, VOCABULARY, WINDOW, answers, built, greedy, prompt_of, reference, served
from transformers import CONFIG_MAPPING

from minikv import Engine
from minikv.errors import UnsupportedModel

EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
LOCAL_EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}
GPT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256, "initializer_range": 0.4,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip

PLAIN = [
    "apertus",
    "arcee",
    "cohere",
    "doge",
    "ernie4_5",
    "gemma",
    "gpt_neox",
    "granite",
    "helium",
    "hunyuan_v1_dense",
    "nanochat",
    "olmo",
    "olmo2",
    "olmoe",
    "persimmon",
    "phi",
    "seed_oss",
    "starcoder2",
]

SERVED: dict[str, dict[str, Any]] = {
    **{kind: {} for kind in PLAIN},
    **{kind: {"sliding_window": WINDOW} for kind in ("cohere2", "gemma3_text", "ministral", "olmo3")},
    **{kind: LOCAL_EXPERTS for kind in ("mixtral", "granitemoe", "phimoe")},
    "codegen": GPT | {"rotary_dim": 4, "n_ctx": 256},
    "deepseek_v2": {
        "num_key_value_heads": 4, "moe_intermediate_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "kv_lora_rank": 16, "q_lora_rank": 16,
        "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8,
    },
    "exaone4": {"sliding_window": WINDOW, "sliding_window_pattern": 2},
    "gpt_bigcode": GPT,
    "gptj": GPT | {"rotary_dim": 4},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "phi3": {"pad_token_id": 0},
    "qwen2": {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 0},
    "qwen2_moe": EXPERTS | {"shared_expert_intermediate_size": 16},
    "qwen3_moe": EXPERTS,
    "smollm3": {"no_rope_layers": [1, 0], "pad_token_id": 0},
}  # fmt: skip

# Each has something that the plain interface does not tell: chunks known to the mask only, two attentions a layer,
# sight of later tokens. Serving them as they are gives other tokens and no error.
TRAPS: dict[str, dict[str, Any]] = {
    "llama4_text": {"attention_chunk_size": WINDOW, **LOCAL_EXPERTS, "intermediate_size_mlp": 48},
    "diffllama": {},
    "bert": {},
    "electra": {},
    "roberta": {},
}


def sizes_of(kind: str, changes: dict[str, Any]) -> Any:
    return CONFIG_MAPPING[kind](**(changes if "n_embd" in changes else SIZES | changes))


def assert_right(model: Any) -> None:
    prompts = [prompt_of(length, seed=3) for length in (21, 1, WINDOW, 40)]
    got = answers(served(Engine(model, page_size=4, num_pages=64), prompts, greedy(14)))
    assert got == [reference(model, prompt, 14) for prompt in prompts]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SERVED)
def test_served(kind: str) -> None:
    assert_right(built(sizes_of(kind, SERVED[kind])))


@pytest.mark.parametrize("kind", TRAPS)
def test_right_or_refused(kind: str) -> None:
    try:
        model = built(sizes_of(kind, TRAPS[kind]))
    except UnsupportedModel as refusal:
        assert "cannot be served" in str(refusal)
    else:
        assert_right(model)
