"""From a name to a model: "smollm2", "tiny-random", a folder, a hub id, or a model already in memory."""

from __future__ import annotations

import difflib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlparse

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as hf_logging

from minikv.errors import ModelNotFound
from minikv.models.adapter import BoundModel
from minikv.models.tiny import tiny_random
from minikv.models.weights import prepare

SMOLLM2 = "smollm2"
TINY_RANDOM = "tiny-random"
CONNECT_SECONDS = 4.0


def load_model(
    name: str | os.PathLike[str] | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> BoundModel:
    """Load a model and bind it to paged attention.

    Args:
        name: "smollm2" (the default weights), "tiny-random" (built here, no file), a folder, a hub id, or a
            `PreTrainedModel` in memory, which keeps its own dtype and device.
        tokenizer: for a model in memory; others bring their own.
        dtype, device: of the weights.

    Raises:
        ModelNotFound: if there is nothing under that name; the message says what was tried and the ways on.
        UnsupportedModel: if the engine would answer wrongly with this model.
    """
    if isinstance(name, PreTrainedModel):
        return BoundModel(name, tokenizer)
    label = os.fspath(name)
    if label == TINY_RANDOM:
        model, tiny_tokenizer = tiny_random()
        return BoundModel(model.to(device=device, dtype=dtype), tokenizer or tiny_tokenizer, name=label)
    source = prepare() if label == SMOLLM2 else _find(label)
    with _quiet():
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
        loaded_tokenizer = tokenizer or AutoTokenizer.from_pretrained(source)
    return BoundModel(model.to(device), loaded_tokenizer, name=label)


def _find(label: str) -> str:
    """A folder as it is; a hub id from the local cache, or from the hub if that can be reached."""
    if Path(label).is_dir():
        if not (Path(label) / "config.json").exists():
            raise ModelNotFound(f"{label} is a folder, but has no config.json and is therefore no saved model")
        return label
    if "/" not in label:
        known = [SMOLLM2, TINY_RANDOM]
        near = difflib.get_close_matches(label, known, n=1)
        guess = f" Did you mean {near[0]!r}?" if near else ""
        raise ModelNotFound(
            f"no model is called {label!r}.{guess} Known names: {', '.join(known)}; or give a folder with a saved "
            "model, or a hub id such as 'Qwen/Qwen3-0.6B'."
        )
    if not _in_hub_cache(label) and not _hub_answers():
        raise ModelNotFound(
            f"{label} is not in the local hub cache, and the hub was not reached within {CONNECT_SECONDS:.0f} s. "
            "Three ways on: (1) download it once on a machine with a network and give its folder; (2) set "
            'HF_ENDPOINT to a mirror that can be reached; (3) load_model("smollm2") or "tiny-random", which '
            "need no network."
        )
    return label


def _in_hub_cache(label: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(label, "config.json"), str)


def _hub_answers() -> bool:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    host = urlparse(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname or "huggingface.co"
    try:
        socket.create_connection((host, 443), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


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
