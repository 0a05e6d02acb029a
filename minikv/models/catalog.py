"""From a name to a model: "smollm2", "tiny-random", a folder, a hub id, or a model already in memory."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as hf_logging

from minikv.config import yes_or_no
from minikv.errors import ConfigError, ModelNotFound
from minikv.models.adapter import BoundModel
from minikv.models.packed import pack_linears, refuse_unless_packable
from minikv.models.tiny import tiny_random
from minikv.models.weights import prepare

SMOLLM2 = "smollm2"
TINY_RANDOM = "tiny-random"
ANSWER_SECONDS = 5.0
LONGEST_NAME = 1024
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def load_model(
    name: str | os.PathLike[str] | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    packed: bool = False,
) -> BoundModel:
    """Load a model and bind it to paged attention.

    Args:
        name: "smollm2" (the default weights), "tiny-random" (built here, no file), a folder, a hub id, or a
            `PreTrainedModel` in memory, which keeps its own dtype and device.
        tokenizer: for a model in memory; others bring their own.
        dtype, device: of the weights: torch.float32, torch.bfloat16 or torch.float16. Pages have the same type.
        packed: let oneDNN lay out the weights of linear layers for this CPU, in float32 or bfloat16. Answers stay,
            but the model cannot be saved or moved afterwards (see `models.packed.pack_linears`). Tokens a second
            against the same type unpacked, on two Intel cores with AMX: 0.9 to 1.5 times in float32, 1.0 to 1.2 times
            in bfloat16 (`benchmarks/README.md`; `python tools/bench_precision.py` measures here).

    Raises:
        ModelNotFound: if there is nothing whole under that name; the message says what was tried and the ways on.
        ConfigError: if an argument is of the wrong kind, the device cannot be used, or weights cannot be packed.
        UnsupportedModel: if the engine would answer wrongly with this model.
    """
    if isinstance(name, PreTrainedModel):
        if packed:
            raise ConfigError(
                "packed=True does not change a model that is in memory; call minikv.models.packed.pack_linears(model) "
                "before, which replaces its layers in place"
            )
        return BoundModel(name, _is_tokenizer(tokenizer))
    if not isinstance(name, (str, os.PathLike)):
        raise ConfigError(f"a model is a name, a folder or a PreTrainedModel, not {type(name).__name__}")
    if dtype not in DTYPES:
        raise ConfigError(f"dtype is torch.float32, torch.bfloat16 or torch.float16, not {dtype!r}")
    label = os.fspath(name)
    place = _is_device(device)
    if yes_or_no("packed", packed):
        refuse_unless_packable(dtype, place)
    if label == TINY_RANDOM:
        tiny, tiny_tokenizer = tiny_random()
        model, own_tokenizer = tiny.to(dtype=dtype), _is_tokenizer(tokenizer) or tiny_tokenizer
    else:
        model, own_tokenizer = _load(label, tokenizer, dtype)
    model = model.to(place)
    if packed:
        pack_linears(model)
    return BoundModel(model, own_tokenizer, name=label)


def _load(
    label: str, tokenizer: PreTrainedTokenizerBase | None, dtype: torch.dtype
) -> tuple[Any, PreTrainedTokenizerBase | None]:
    source = os.fspath(prepare()) if label == SMOLLM2 else _find(label)
    try:
        with _quiet() if Path(source).is_dir() else nullcontext():  # a download shows its progress
            model, report = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, output_loading_info=True)
            own_tokenizer = _is_tokenizer(tokenizer) or _load_tokenizer(source)
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError, MemoryError) as error:
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            raise ConfigError(
                f"there is too little memory for {label} ({error or 'MemoryError'}). Close other programs and other "
                'notebooks (Kernel, Shut Down All Kernels), or take load_model("tiny-random"), which needs little'
            ) from error
        raise ModelNotFound(f"{label} could not be loaded as a causal language model: {error}") from error
    if missing := sorted(report["missing_keys"]):
        raise ModelNotFound(
            f"{label} lacks weights that its configuration asks for, such as {missing[0]} ({len(missing)} in all); it "
            "would run on random numbers"
        )
    return model, own_tokenizer


def _is_tokenizer(tokenizer: object) -> PreTrainedTokenizerBase | None:
    if tokenizer is None or isinstance(tokenizer, PreTrainedTokenizerBase):
        return tokenizer
    raise ConfigError(f"a tokenizer is a PreTrainedTokenizer of transformers, not {type(tokenizer).__name__}")


def _is_device(device: str | torch.device) -> torch.device:
    try:
        place = torch.device(device)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ConfigError(f"device {device!r} cannot be used here: {error}") from error
    if place.type == "meta":
        raise ConfigError("device 'meta' holds no numbers; nothing can be computed there")
    return place


def _load_tokenizer(source: str) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a saved model; None for a folder that has none (prompts are then lists of ids)."""
    if Path(source).is_dir() and not any(Path(source).glob("*token*")):
        return None
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source)
    return tokenizer


def _find(label: str) -> str:
    """A folder as it is; a hub id from the local cache, or from the hub if that can be reached."""
    if label and len(label) < LONGEST_NAME and Path(label).is_dir():
        if not (Path(label) / "config.json").exists():
            raise ModelNotFound(f"{label} is a folder, but has no config.json and is therefore no saved model")
        return label
    if not HUB_ID.fullmatch(label):
        known = [SMOLLM2, TINY_RANDOM]
        near = difflib.get_close_matches(label, known, n=1)
        guess = f" Did you mean {near[0]!r}?" if near else ""
        raise ModelNotFound(
            f"no model and no folder is called {label[:80]!r}.{guess} Known names: {', '.join(known)}; or give a "
            "folder with a saved model, or a hub id such as 'Qwen/Qwen3-0.6B'."
        )
    if not _in_hub_cache(label):
        _ask_hub(label)
    return label


def _in_hub_cache(label: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(label, "config.json"), str)


def _ask_hub(label: str) -> None:
    """Raise `ModelNotFound` unless the hub answers soon and knows the model."""
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # with the login, for private models

    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    try:
        if offline:
            raise OSError("HF_HUB_OFFLINE forbids it")
        urlopen(Request(f"{hub}/api/models/{label}", headers=build_hf_headers()), timeout=ANSWER_SECONDS).close()
    except HTTPError as error:
        raise ModelNotFound(
            f"{hub} answers, but has no model {label!r} for you (HTTP {error.code}). Check the spelling, or log in "
            "with `hf auth login` if it is a private one"
        ) from error
    except OSError as error:
        raise ModelNotFound(
            f"{label} is not in the local hub cache, and {hub} could not be asked ({error}). Three ways on: (1) "
            "download it once on a machine with a network and give its folder; (2) set HF_ENDPOINT to a mirror that "
            'can be reached; (3) load_model("smollm2") or "tiny-random", which need no network.'
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no remarks from transformers while a local folder is read."""
    verbosity, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)
        if bars:
            hf_logging.enable_progress_bar()
