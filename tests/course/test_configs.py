"""The models' configurations: complete, as published, countable, and found from wherever a notebook runs."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig

from minikv.course import configs
from minikv.course.configs import FOLDER, SOURCES, ConfigurationsNotFound, ModelCard, about, configurations
from minikv.models.geometry import KVGeometry

HERE = Path(__file__).resolve().parents[2] / FOLDER
KEYS = sorted(path.stem for path in HERE.glob("*.json") if path.name != SOURCES)
AS_ANOTHER = {"kimi_k2": "deepseek_v3"}  # a type that transformers has no class for; the file's `auto_map` says which
BYTES = {  # per token at 16 bit, of the model's own layout: latent vectors where it has them
    "deepseek-v2-lite": 27 * 576 * 2,
    "deepseek-v3": 70_272,
    "gemma-2-9b": 344_064,
    "glm-5": 78 * (576 + 128) * 2,  # each layer's indexer keeps 128 more
    "gpt-oss-120b": 73_728,
    "gpt-oss-20b": 49_152,
    "gpt2": 36_864,
    "kimi-k2": 70_272,
    "llama-2-7b": 524_288,
    "llama-3.1-70b": 327_680,
    "llama-3.1-8b": 131_072,
    "mistral-7b": 131_072,
    "mixtral-8x7b": 131_072,
    "phi-3-mini": 393_216,
    "qwen2.5-7b": 57_344,
    "qwen3-0.6b": 114_688,
    "qwen3-32b": 262_144,
    "qwen3-8b": 147_456,
    "smollm2-135m": 23_040,
}


def geometry(content: dict[str, Any]) -> KVGeometry:
    """A configuration as transformers reads it, without what belongs to a checkpoint."""
    kind = content.pop("model_type")
    content.pop("quantization_config", None)
    return KVGeometry.from_config(AutoConfig.for_model(AS_ANOTHER.get(kind, kind), **content))


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A working directory outside of the course, with a package that lies in no checkout."""
    installed = tmp_path / "lib" / "site-packages" / "minikv" / "course" / "configs.py"
    monkeypatch.setattr(configs, "__file__", str(installed))
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def test_there_are_enough() -> None:
    assert len(KEYS) >= 14
    assert set(KEYS) == set(configurations()) == set(BYTES)


@pytest.mark.parametrize("key", KEYS)
def test_bytes_per_token(key: str) -> None:
    assert geometry(configurations()[key]).latent_bytes_per_token(torch.bfloat16) == BYTES[key]


def test_what_the_engine_stores_of_a_latent_model() -> None:
    """Keys and values in full, as the bill of this engine says: 71 times the latent vectors."""
    assert geometry(configurations()["deepseek-v3"]).bytes_per_token(torch.bfloat16) == 61 * 128 * (192 + 128) * 2


@pytest.mark.parametrize("key", KEYS)
def test_card_is_complete(key: str) -> None:
    card, content = about(key), configurations()[key]
    for field in fields(ModelCard):
        assert getattr(card, field.name), field.name
    assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", card.released)
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", card.read)
    assert card.url.startswith("https://huggingface.co/") and card.url.endswith("/config.json")
    assert card.context == content[card.context_field]
    assert content["model_type"] and content["architectures"]


def test_sources_say_nothing_else() -> None:
    sources = json.loads((HERE / SOURCES).read_text(encoding="utf-8"))
    assert sorted(sources) == KEYS
    known = {field.name for field in fields(ModelCard)}
    assert all(set(entry) == known for entry in sources.values())


def test_names_differ_from_family_to_family() -> None:
    """Nobody tidied them up: the exercise is about that."""
    models = configurations()
    assert models["gpt2"]["n_head"] == 12 and "num_attention_heads" not in models["gpt2"]
    assert models["deepseek-v3"]["kv_lora_rank"] == 512
    assert "head_dim" in models["qwen3-0.6b"] and "head_dim" not in models["llama-2-7b"]
    assert models["kimi-k2"]["model_type"] == "kimi_k2"


def test_oldest_first() -> None:
    released = [about(key).released for key in configurations()]
    assert released == sorted(released)


def test_copies_are_fresh() -> None:
    first = configurations()
    first["gpt2"]["n_head"] = 1
    first.clear()
    assert configurations()["gpt2"]["n_head"] == 12


def test_from_a_checkout_whatever_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert set(configurations()) == set(KEYS)
    assert about("gpt2").params == 124_439_808


def test_from_a_learners_copy(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(HERE, elsewhere / "my_course" / FOLDER)
    notebooks = elsewhere / "my_course" / "notebooks"
    notebooks.mkdir()
    monkeypatch.chdir(notebooks)
    assert set(configurations()) == set(KEYS)
    assert about("qwen3-0.6b").organisation == "Alibaba"


def test_missing_says_what_to_do(elsewhere: Path) -> None:
    for ask in (configurations, lambda: about("gpt2")):
        with pytest.raises(ConfigurationsNotFound, match="minikv course start"):
            ask()


def test_unknown_model_lists_the_known() -> None:
    with pytest.raises(ConfigurationsNotFound, match=r"'gpt-5'.*gpt2, llama-2-7b"):
        about("gpt-5")


@pytest.mark.parametrize("text", ["{", "[]", "\x00", None])
def test_a_broken_file_is_named(elsewhere: Path, text: str | None) -> None:
    shutil.copytree(HERE, elsewhere / FOLDER)
    broken = elsewhere / FOLDER / "gpt2.json"
    broken.unlink()
    if text is not None:
        broken.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationsNotFound, match=r"gpt2\.json"):
        configurations()


@pytest.mark.parametrize("content", [{}, {"gpt2": {}}, {"gpt2": []}, {"gpt2": {"released": "2019-02"}}])
def test_broken_sources_are_named(elsewhere: Path, content: object) -> None:
    shutil.copytree(HERE, elsewhere / FOLDER)
    (elsewhere / FOLDER / SOURCES).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ConfigurationsNotFound):
        about("gpt2")
