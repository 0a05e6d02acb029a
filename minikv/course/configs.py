"""Real configurations of known models, for exercises that count: `assets/configs/` and where each came from."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from minikv.errors import MinikvError

FOLDER = Path("assets", "configs")
SOURCES = "sources.json"
_READABLE = "Get the course again: minikv course start, or git checkout assets/configs"


class ConfigurationsNotFound(MinikvError, LookupError):
    """The folder with the models' configurations, or one of its files, is missing or cannot be read."""


@dataclass(frozen=True)
class ModelCard:
    """What is known of a model beside its configuration.

    Month and licence are as commonly reported; of the rest, `had` and `checked` say where it is from.

    Attributes:
        title, organisation: its name, and who published it.
        released: year and month of its first publication, "2024-07".
        params: number of parameters, those of all experts included.
        params_source: how that number was had.
        context: positions that its configuration advertises.
        context_field: the field of the configuration that says so.
        licence: the licence that its publisher states; of the model, not of the numbers kept here.
        url: where its publisher keeps the file.
        read: date on which our copy was taken, "2026-11-30".
        had: from where and how our copy was taken.
        checked: what the fields that decide the size of the cache were compared with.
    """

    title: str
    organisation: str
    released: str
    params: int
    params_source: str
    context: int
    context_field: str
    licence: str
    url: str
    read: str
    had: str
    checked: str


def configurations() -> dict[str, dict[str, Any]]:
    """Every model's `config.json` by a short name, oldest model first. Fresh copies: change them as you like.

    Raises:
        ConfigurationsNotFound: if the course's folder is not around the working directory.
    """
    folder = _folder()
    return {key: _read(folder / f"{key}.json") for key in _sources(folder)}


def about(key: str) -> ModelCard:
    """What is known of the model with this short name, and where its configuration came from.

    Raises:
        ConfigurationsNotFound: if there is no such model, or no folder with configurations.
    """
    sources = _sources(_folder())
    if key not in sources:
        raise ConfigurationsNotFound(f"There is no configuration of {key!r}. There are: {', '.join(sources)}.")
    try:
        return ModelCard(**{field.name: sources[key][field.name] for field in fields(ModelCard)})
    except (KeyError, TypeError) as error:
        raise ConfigurationsNotFound(f"{SOURCES} does not say {error} of {key}. {_READABLE}") from error


def _folder() -> Path:
    """`assets/configs` from the working directory upwards, then beside the package (in a checkout)."""
    try:
        here = Path.cwd()
        around = [here, *here.parents]
    except OSError:  # the working directory was deleted
        around = []
    for place in (*around, Path(__file__).resolve().parents[2]):
        if (place / FOLDER / SOURCES).is_file():
            return place / FOLDER
    raise ConfigurationsNotFound(
        f"The models' configurations ({FOLDER.as_posix()}) were found neither in the working directory nor above it. "
        "Start Jupyter in your copy of the course (to make one: minikv course start), or in the folder that you "
        "cloned the course to."
    )


def _sources(folder: Path) -> dict[str, dict[str, Any]]:
    """The content of `sources.json`, oldest model first."""
    sources = _read(folder / SOURCES)
    try:
        return dict(sorted(sources.items(), key=lambda entry: str(entry[1]["released"])))
    except (KeyError, TypeError) as error:
        raise ConfigurationsNotFound(f"{folder / SOURCES} does not say when each was released. {_READABLE}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationsNotFound(f"{path} cannot be read ({error.strerror}). {_READABLE}") from error
    except ValueError as error:
        raise ConfigurationsNotFound(f"{path} is no JSON ({error}). {_READABLE}") from error
    if not isinstance(content, dict):
        raise ConfigurationsNotFound(f"{path} holds no configuration. {_READABLE}")
    return content
