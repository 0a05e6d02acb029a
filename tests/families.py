"""Small random models of every family that is served, with what makes each peculiar turned up until it shows."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import torch
import transformers
from packaging.version import Version
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from minikv import load_model
from minikv.models.adapter import BoundModel

OLDEST = Version(transformers.__version__) < Version("5.24")
# Families that the oldest supported transformers runs outside of its attention interface; refused there by name.
NOT_IN_OLDEST = {"codegen", "gptj"} if OLDEST else set()

VOCABULARY = 96
WINDOW = 6

SIZES: dict[str, Any] = dict(
    vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=256, bos_token_id=None, eos_token_id=None,
    tie_word_embeddings=False, initializer_range=0.4,
)  # fmt: skip

# What GPT-2 and its kin call the same.
GPT_SIZES: dict[str, Any] = dict(
    vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=256, bos_token_id=None, eos_token_id=None,
    initializer_range=0.4,
)  # fmt: skip

EXPERTS: dict[str, Any] = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}
LOCAL_EXPERTS: dict[str, Any] = {"num_local_experts": 2, "num_experts_per_tok": 1}
ROUTED_EXPERTS: dict[str, Any] = {
    "moe_intermediate_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1,
}  # fmt: skip
LATENT: dict[str, Any] = ROUTED_EXPERTS | {
    "num_key_value_heads": 4, "head_dim": 4, "kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8, "v_head_dim": 8,
}  # fmt: skip
# Sixteen index heads: with a few, scores of exactly 0 tie, and then transformers differs even from itself.
INDEXED: dict[str, Any] = LATENT | {
    "head_dim": 4, "index_topk": 5, "index_n_heads": 16, "index_head_dim": 8, "n_shared_experts": 1,
}  # fmt: skip
HALF_WINDOWED: dict[str, Any] = {
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"],
}

PLAIN: dict[str, Any] = {"rope_type": "default", "rope_theta": 10_000.0}
LINEAR: dict[str, Any] = PLAIN | {"rope_type": "linear", "factor": 4.0}
YARN: dict[str, Any] = PLAIN | {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16}
LLAMA3: dict[str, Any] = PLAIN | {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
HALF: dict[str, Any] = {"partial_rotary_factor": 0.5}  # of each head is turned


def built(config: Any, *, attention: str = "eager", seed: int = 0) -> BoundModel:
    """A model of random weights, large enough that answers depend on what is read."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hf = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention)
    return load_model(hf)


def made(kind: str, peculiar: dict[str, Any], /, **changes: Any) -> BoundModel:
    """A small model of one kind; `changes` go before what is peculiar to it, which goes before `SIZES`."""
    sizes = GPT_SIZES if kind in ("gpt2", "gpt_bigcode", "gptj", "codegen", "dbrx") else SIZES
    values = deepcopy(sizes | peculiar | changes)  # configurations write into the dicts that they are given
    model = built(CONFIG_MAPPING[kind](**values))
    for name, weight in model.hf.named_parameters():
        if kind == "gemma2" and ("q_proj" in name or "k_proj" in name):
            weight.data.mul_(60**0.5)  # scores so large that the soft cap matters
        if name.endswith(".sinks"):
            weight.data.copy_(torch.linspace(0.0, 5.0, len(weight)))  # each head its own
    return model


# By name: the kind of configuration, and what is peculiar to it.
SPECS: dict[str, tuple[str, dict[str, Any]]] = {
    # Seven that the tests of everything else run with.
    "llama": ("llama", {}),
    "qwen3": ("qwen3", {}),
    "gpt2": ("gpt2", {}),
    "mistral": ("mistral", {"sliding_window": WINDOW}),
    "gemma2": ("gemma2", {"sliding_window": WINDOW, "attn_logit_softcapping": 20.0}),
    "gpt_oss": ("gpt_oss", LOCAL_EXPERTS | {"sliding_window": WINDOW, "pad_token_id": None, "rope_parameters": PLAIN}),
    "deepseek": ("deepseek_v3", LATENT),
    # Ways to turn keys and queries.
    "llama-linear": ("llama", {"rope_parameters": LINEAR}),
    "llama-llama3": ("llama", {"rope_parameters": LLAMA3}),
    "llama-yarn": ("llama", {"rope_parameters": YARN}),
    "phi-linear": ("phi", {"rope_parameters": LINEAR | HALF}),
    "glm-linear": ("glm", {"rope_parameters": LINEAR | HALF, "pad_token_id": 0}),
    "glm-yarn": ("glm", {"rope_parameters": YARN | HALF, "pad_token_id": 0}),
    "gemma3_text-yarn": (
        "gemma3_text",
        HALF_WINDOWED | {"rope_parameters": {"sliding_attention": PLAIN, "full_attention": YARN}},
    ),
    "gpt_oss-yarn": ("gpt_oss", LOCAL_EXPERTS | {"sliding_window": WINDOW, "rope_parameters": YARN}),
    "deepseek-yarn": ("deepseek_v3", LATENT | {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}),
    "ministral3": ("ministral3", {"rope_parameters": YARN | {"llama_4_scaling_beta": 0.5}, "sliding_window": None}),
    # All others.
    "afmoe": ("afmoe", HALF_WINDOWED | EXPERTS | {"num_dense_layers": 1}),
    "apertus": ("apertus", {}),
    "arcee": ("arcee", {}),
    "biogpt": ("biogpt", {}),
    "codegen": ("codegen", {"rotary_dim": 4, "n_ctx": 256}),
    "cohere": ("cohere", {"use_qk_norm": True, "logit_scale": 0.5}),
    "cohere2": ("cohere2", HALF_WINDOWED),
    "cwm": ("cwm", {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "sliding_window": WINDOW}),
    "dbrx": (
        "dbrx",
        {
            "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 256,
            "attn_config": {"kv_n_heads": 2, "clip_qkv": 1.0, "rope_theta": 10_000.0},
            "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 2, "moe_top_k": 1},
        },
    ),
    "deepseek_v2": ("deepseek_v2", LATENT),
    "deepseek_v32": ("deepseek_v32", INDEXED),
    "ernie4_5": ("ernie4_5", {}),
    "exaone4": ("exaone4", HALF_WINDOWED),
    "gemma": ("gemma", {}),
    "gemma3_text": (
        "gemma3_text",
        HALF_WINDOWED
        | {"query_pre_attn_scalar": 2, "rope_parameters": {"sliding_attention": PLAIN, "full_attention": LINEAR}},
    ),
    "gemma3n_text": (
        "gemma3n_text",
        {
            "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCABULARY,
            "laurel_rank": 4, "altup_num_inputs": 2, "activation_sparsity_pattern": [0.5, 0.0, 0.0, 0.0],
            "intermediate_size": [48] * 4, "pad_token_id": 0, "sliding_window": WINDOW,
        },
    ),
    # Layers of two widths, the last two with the keys of the first two.
    "gemma4_text": (
        "gemma4_text",
        {
            "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "global_head_dim": 16,
            "num_global_key_value_heads": 1, "attention_k_eq_v": True, "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCABULARY, "sliding_window": WINDOW,
        },
    ),
    "glm": ("glm", {"pad_token_id": 0}),
    "glm4": ("glm4", {"pad_token_id": 0}),
    "glm4_moe": ("glm4_moe", ROUTED_EXPERTS | {"use_qk_norm": True}),
    "glm_moe_dsa": ("glm_moe_dsa", INDEXED | {"num_hidden_layers": 3, "indexer_types": ["full", "shared", "full"]}),
    "gpt2-scaled": ("gpt2", {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False}),
    "gpt_bigcode": ("gpt_bigcode", {"multi_query": True, "scale_attn_weights": False}),
    "gpt_neox": ("gpt_neox", {}),
    "gptj": ("gptj", {"rotary_dim": 4}),
    "granite": ("granite", {"attention_multiplier": 0.1, "residual_multiplier": 0.5, "logits_scaling": 2.0}),
    "granitemoe": ("granitemoe", LOCAL_EXPERTS | {"attention_multiplier": 0.1}),
    "helium": ("helium", {}),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", {}),
    "ministral": ("ministral", HALF_WINDOWED),
    "mixtral": ("mixtral", LOCAL_EXPERTS | {"sliding_window": WINDOW}),
    "modernbert-decoder": (
        "modernbert-decoder",
        {
            "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "local_attention": WINDOW,
            "global_attn_every_n_layers": 2,
        },
    ),
    "nanochat": ("nanochat", {}),
    "nemotron": ("nemotron", {}),
    "olmo": ("olmo", {"clip_qkv": 1.0}),
    "olmo2": ("olmo2", {}),
    "olmo3": (
        "olmo3",
        HALF_WINDOWED | {"rope_parameters": {"sliding_attention": PLAIN, "full_attention": YARN}},
    ),
    "olmoe": ("olmoe", {"num_experts": 2, "num_experts_per_tok": 1}),
    "opt": ("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "persimmon": ("persimmon", {}),
    "phi": ("phi", {"qk_layernorm": True}),
    "phi3": ("phi3", {"pad_token_id": 0, "sliding_window": WINDOW}),
    "phimoe": ("phimoe", LOCAL_EXPERTS | {"sliding_window": None}),
    "qwen2": ("qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}),
    "qwen2_moe": ("qwen2_moe", EXPERTS | {"shared_expert_intermediate_size": 16}),
    "qwen3_moe": ("qwen3_moe", EXPERTS | {"use_sliding_window": True, "sliding_window": WINDOW}),
    "seed_oss": ("seed_oss", {"attention_out_bias": True}),
    "smollm3": (
        "smollm3",
        HALF_WINDOWED | {"use_sliding_window": True, "no_rope_layers": [1, 0], "pad_token_id": 0},
    ),
    "stablelm": ("stablelm", {"qk_layernorm": True, "use_parallel_residual": True}),
    "starcoder2": ("starcoder2", {"sliding_window": WINDOW}),
    "vaultgemma": ("vaultgemma", HALF_WINDOWED),
}  # fmt: skip

FAMILIES: dict[str, Callable[..., BoundModel]] = {name: partial(made, *spec) for name, spec in SPECS.items()}
CORE = ("llama", "qwen3", "gpt2", "mistral", "gemma2", "gpt_oss", "deepseek")
llama, qwen3, gpt2, mistral, gemma2, gpt_oss, deepseek = (FAMILIES[name] for name in CORE)
