"""Every decoder family is answered as `transformers` does, or refused by name, and never in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from families import (
    EXPERTS,
    FAMILIES,
    GPT_SIZES,
    HALF,
    LOCAL_EXPERTS,
    PLAIN,
    SIZES,
    SPECS,
    VOCABULARY,
    WINDOW,
    YARN,
    built,
)
from helpers import answers, cluster, greedy, prompt_of, reference, served
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from minikv import Engine, load_model
from minikv.attention.torch_backend import attend
from minikv.errors import UnsupportedModel
from minikv.models.adapter import BoundModel

LARGEST_DIFFERENCE = 2e-5  # of logits in float32, relative to the largest of them
TOKENS = 2 * WINDOW
PROMPTS = [prompt_of(length, seed=1) for length in (WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW + 1)]
WIDE = 200  # a window that hides nothing here

# Served


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, indirect=True)
def test_token_exact(family: BoundModel) -> None:
    """Across the window's edge, in a batch and alone, on one node and on two."""
    expected = [reference(family, prompt, TOKENS) for prompt in PROMPTS]
    assert len(set(expected[-1])) > 2, "an answer that repeats itself proves little"
    for server in (Engine(family, page_size=4, num_pages=64), cluster(family, 64, page_size=4)):
        assert answers(served(server, PROMPTS, greedy(TOKENS))) == expected
        assert answers(served(server, PROMPTS[-1:], greedy(TOKENS))) == expected[-1:]


@pytest.mark.parametrize("family", FAMILIES, indirect=True)
def test_logits(family: BoundModel, request: pytest.FixtureRequest) -> None:
    """The logits behind an answer are those of one pass without pages; `pytest -s` shows how far they are apart."""
    rows, forward = [], family.forward

    def spy(*args: Any, **options: Any) -> torch.Tensor:
        rows.append(forward(*args, **options))
        return rows[-1]

    prompt = PROMPTS[-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(family, "forward", spy)
        (said,) = answers(served(Engine(family, page_size=4, num_pages=16), [prompt], greedy(TOKENS)))
    with torch.inference_mode():
        own = family.hf(input_ids=torch.tensor([[*prompt, *said[:-1]]]), use_cache=False).logits[0, -TOKENS:]
    difference, scale = float((torch.cat(rows) - own).abs().max()), float(own.abs().max())
    print(f"\n{request.node.callspec.id:18} largest difference {difference:.1e}, largest logit {scale:.1f}")
    assert difference <= LARGEST_DIFFERENCE * scale


def _without_sinks(hf: Any) -> None:
    for name, weight in hf.named_parameters():
        if name.endswith(".sinks"):
            weight.data.fill_(-1e9)


def _without_positions(hf: Any) -> None:
    for name, module in hf.named_modules():
        if name.endswith(("wpe", "embed_positions")):
            module.weight.data.zero_()


# By family, what is switched off: a change of its configuration, or of its weights.
OFF: list[tuple[str, dict[str, Any] | Callable[[Any], None]]] = [
    *((name, {"sliding_window": WIDE}) for name, (_, spec) in SPECS.items() if spec.get("sliding_window")),
    *((name, {"rope_parameters": PLAIN}) for name in ("llama-linear", "llama-llama3", "llama-yarn", "gpt_oss-yarn")),
    *((name, {"rope_parameters": PLAIN}) for name in ("deepseek-yarn",)),
    *((name, {"rope_parameters": PLAIN | HALF}) for name in ("phi-linear", "glm-linear", "glm-yarn")),
    *((name, {"rope_parameters": PLAIN | {"partial_rotary_factor": 1.0}}) for name in ("phi", "glm", "gpt_neox")),
    *(
        (name, {"rope_parameters": {"sliding_attention": PLAIN, "full_attention": PLAIN}})
        for name in ("gemma3_text", "gemma3_text-yarn", "gemma4_text", "olmo3")
    ),
    *((name, {"attention_multiplier": 8**-0.5}) for name in ("granite", "granitemoe")),
    ("gemma2", {"attn_logit_softcapping": None}),
    ("gemma3_text", {"query_pre_attn_scalar": 8}),
    ("deepseek_v32", {"index_topk": WIDE}),
    ("glm_moe_dsa", {"index_topk": WIDE}),
    ("gpt2", _without_positions),
    ("gpt2-scaled", {"scale_attn_by_inverse_layer_idx": False}),
    ("gpt2-scaled", {"scale_attn_weights": True}),
    ("gpt_bigcode", _without_positions),
    ("modernbert-decoder", {"local_attention": WIDE}),
    ("gpt_bigcode", {"scale_attn_weights": True}),
    ("gpt_oss", _without_sinks),
    ("ministral3", {"rope_parameters": YARN | {"llama_4_scaling_beta": 0.0}}),
    ("olmo", {"clip_qkv": None}),
    ("opt", _without_positions),
    ("biogpt", _without_positions),
    ("smollm3", {"no_rope_layers": [1, 1]}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "off"),
    OFF,
    ids=[f"{name}-{'+'.join(off) if isinstance(off, dict) else off.__name__[1:]}" for name, off in OFF],
)
def test_matters(name: str, off: dict[str, Any] | Callable[[Any], None]) -> None:
    """These models answer otherwise without what is peculiar to them, so an engine that forgot it would be seen."""
    model = FAMILIES[name]()
    without = FAMILIES[name](**off) if isinstance(off, dict) else FAMILIES[name]()
    for ours, theirs in zip(model.hf.parameters(), without.hf.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    if callable(off):
        off(without.hf)
    assert [reference(model, prompt, TOKENS) for prompt in PROMPTS] != [
        reference(without, prompt, TOKENS) for prompt in PROMPTS
    ]


def test_pools_are_as_wide_as_their_layers() -> None:
    """Gemma 4 has layers of two widths, known from its configuration alone; each has a pool of its own width."""
    model = FAMILIES["gemma4_text"]()
    pool = Engine(model, page_size=4, num_pages=3).pool
    assert [tuple(keys.shape[-2:]) for keys in pool.keys] == [(2, 8), (1, 16)] * 2
    assert model.geometry == type(model.geometry).from_config(model.hf.config)


def test_two_threads() -> None:
    """Each thread has its own step: nodes that share one model, and nodes of two, answer as if alone."""
    models = [FAMILIES["stablelm"](), FAMILIES["llama"]()]
    jobs = [(models[0], PROMPTS[3]), (models[0], PROMPTS[2]), (models[1], PROMPTS[1])]
    expected = [reference(model, prompt, 40) for model, prompt in jobs]
    got: dict[int, Any] = {}

    def serve(number: int, model: BoundModel, prompt: Sequence[int]) -> None:
        got[number] = answers(served(Engine(model, page_size=4, num_pages=32), [prompt], greedy(40)))

    threads = [threading.Thread(target=serve, args=(number, *job)) for number, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [got.get(number) for number in range(len(jobs))] == [[each] for each in expected]


def test_used_elsewhere_while_a_step_runs(tiny: BoundModel) -> None:
    """Someone else's thread calls the model in the middle of a step: that call fails, and the answer is untouched."""
    caught: list[BaseException] = []

    def call() -> None:
        try:
            tiny.hf(input_ids=torch.tensor([[1, 2, 3]]), use_cache=False)
        except UnsupportedModel as error:
            caught.append(error)

    def attention(*args: Any) -> torch.Tensor:
        if not caught:
            thread = threading.Thread(target=call)
            thread.start()
            thread.join(60)
        return attend(*args)

    got = answers(served(Engine(tiny, page_size=4, num_pages=16, attention=attention), [PROMPTS[1]], greedy(5)))
    assert "is used elsewhere" in str(caught[0])
    assert got == [reference(tiny, PROMPTS[1], 5)]


# Refused

WITHOUT_HEAD_DIM = {key: value for key, value in SIZES.items() if key != "head_dim"}
BYPASS, LAYERS = "it bypasses the attention interface", "has layers of type '{}_attention'"
DIFFERS, UNTOLD = "on pages it answers differently than by itself", "and do not tell the interface so"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "bart": (WITHOUT_HEAD_DIM, "its configuration states 2 layers, and 12 use the attention interface"),
    "bert": (SIZES, DIFFERS),
    "big_bird": (WITHOUT_HEAD_DIM | {"attention_type": "original_full"}, BYPASS),
    "bloom": ({"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4}, BYPASS),
    "diffllama": (SIZES, "attends more than once"),
    "doge": (SIZES, "it makes an attention mask of its own"),
    "electra": (SIZES, DIFFERS),
    "falcon": (WITHOUT_HEAD_DIM, BYPASS),
    "gpt_neo": (
        {
            "vocab_size": VOCABULARY, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
            "attention_types": [[["global", "local"], 1]], "window_size": WINDOW,
        },
        BYPASS,
    ),
    "jamba": (WITHOUT_HEAD_DIM, LAYERS.format("linear")),
    "lfm2": (SIZES | {"layer_types": ["conv", "full_attention"]}, "has layers of type 'conv'"),
    "llama4_text": (
        SIZES | LOCAL_EXPERTS | {"attention_chunk_size": WINDOW, "intermediate_size_mlp": 48},
        LAYERS.format("chunked"),
    ),
    "mamba": (WITHOUT_HEAD_DIM, LAYERS.format("linear")),
    "minimax": (SIZES | LOCAL_EXPERTS, LAYERS.format("linear")),
    "moshi": (SIZES | {"sliding_window": WIDE}, UNTOLD),
    "mpt": ({"vocab_size": VOCABULARY, "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 256}, BYPASS),
    "openai-gpt": (GPT_SIZES, BYPASS),
    "phimoe": (SIZES | LOCAL_EXPERTS | {"sliding_window": WIDE}, UNTOLD),
    "qwen2_moe": (SIZES | EXPERTS | {"use_sliding_window": True, "sliding_window": WIDE}, UNTOLD),
    "qwen3_5_text": (SIZES, LAYERS.format("linear")),
    "qwen3_next": (SIZES, LAYERS.format("linear")),
    "recurrent_gemma": (SIZES, "layers"),  # older ones of transformers do not say of which type
    "roberta": (SIZES, DIFFERS),
    "rwkv": ({"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2}, "does not say its num_attention"),
    "xglm": ({"vocab_size": VOCABULARY, "d_model": 32, "ffn_dim": 48, "num_layers": 2, "attention_heads": 4}, BYPASS),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_refused(kind: str) -> None:
    """By the name of its class and with what it is that pages cannot give it."""
    changes, why = REFUSED[kind]
    with pytest.raises(UnsupportedModel) as caught:
        built(CONFIG_MAPPING[kind](**changes))
    message = str(caught.value)
    assert message.startswith(f"{MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]} cannot be served: ") and why in message


@pytest.mark.parametrize("rope", ["dynamic", "longrope"])
def test_refused_rope_in_some_layers(rope: str) -> None:
    """Also where only the layers of one kind have it."""
    kinds = {"sliding_attention": PLAIN, "full_attention": PLAIN | {"rope_type": rope, "factor": 2.0}}
    if rope == "longrope":
        kinds["full_attention"] |= {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    with pytest.raises(UnsupportedModel, match=f"Gemma3ForCausalLM cannot be served: rope_type '{rope}'"):
        FAMILIES["gemma3_text"](rope_parameters=kinds)


def _small(kind: str, window: int) -> Any:
    """A small model of any kind, made with those of the usual sizes that it knows; None if that does not do."""
    usual: dict[str, Any] = SIZES | GPT_SIZES | EXPERTS | LOCAL_EXPERTS | {
        "n_routed_experts": 2, "n_group": 1, "topk_group": 1, "shared_expert_intermediate_size": 16, "rotary_dim": 4,
        "sliding_window": window, "pad_token_id": 0,
    }  # fmt: skip
    for left_out in ((), ("head_dim",), ("head_dim", "num_key_value_heads"), tuple(SIZES)):
        try:
            known = CONFIG_MAPPING[kind]()
            sizes = {key: usual[key] for key in usual if key not in left_out and hasattr(known, key)}
            config = CONFIG_MAPPING[kind](**sizes)
            with torch.device("meta"):
                numbers = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters())
            if numbers < 30_000_000:
                return AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
        except Exception:  # each kind has its own rules
            continue
    return None


@pytest.mark.more
@pytest.mark.parametrize("window", [WINDOW, 30])
@pytest.mark.parametrize("kind", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
def test_right_or_refused(kind: str, window: int) -> None:
    """Whatever `transformers` has: exact, or refused by name. One window is longer than a model's trial at load."""
    torch.manual_seed(0)
    hf = _small(kind, window)
    if hf is None:
        pytest.skip("cannot be made small with the usual names")
    for weight in hf.parameters():
        weight.data.add_(torch.randn_like(weight), alpha=0.3 if weight.ndim > 1 else 0.1)
    try:
        model = load_model(hf)
    except UnsupportedModel as refusal:
        assert f"{type(hf).__name__} cannot be served: " in str(refusal)
        return
    prompts = [prompt_of(length, seed=3) for length in (21, 1, WINDOW, 40)]
    got = answers(served(Engine(model, page_size=4, num_pages=64), prompts, greedy(14)))
    assert got == [reference(model, prompt, 14) for prompt in prompts]
