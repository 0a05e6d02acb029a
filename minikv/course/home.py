"""The learner's folder, `my_minikv/`: where it is, and the notes that are kept in it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any

from filelock import FileLock

FOLDER = "my_minikv"
COPY = "my_course"  # the learner's copy of the notebooks, unless they chose another name
MANIFEST = ".minikv-course.json"  # in a learner's copy; says which minikv it was made with
NOTES = "notes.json"
ANSWERED = "answered"  # section of the notes: exercises whose answer is a plain value, not a part
_LOCKED = 5.0  # seconds to wait for another notebook


def home() -> Path:
    """The learner's folder. It need not exist yet.

    In this order: the environment variable MINIKV_HOME; the nearest `my_minikv/`, or copy of the course
    (`my_course/`), from the working directory upwards; beside the nearest `notebooks/` folder; in the working
    directory. Where the last two cannot be written to (a read-only checkout), `my_minikv/` in the user's home
    directory.
    """
    named = os.environ.get("MINIKV_HOME")
    if named:
        return Path(os.path.expanduser(named))  # an unknown user's ~ stays as it is
    try:
        here = Path.cwd()
    except OSError:  # the working directory was deleted
        return Path(tempfile.gettempdir()) / FOLDER
    upwards = [here, *here.parents]
    for folder in upwards:
        if (folder / FOLDER).is_dir():
            return folder / FOLDER
        if (folder / COPY / MANIFEST).is_file():
            return folder / COPY / FOLDER
    beside = next((folder for folder in upwards if (folder / "notebooks").is_dir()), here)
    return (beside if os.access(beside, os.W_OK) else Path.home()) / FOLDER


def read_notes() -> dict[str, Any]:
    """What was noted so far; empty when there is nothing. A broken file is put aside, and said so."""
    return _load() or {}


def _load() -> dict[str, Any] | None:
    """The notes; None, after saying so, if there are some that cannot be read."""
    path = home() / NOTES
    try:
        notes = json.loads(path.read_text(encoding="utf-8-sig"))  # some editors put a mark in front
    except FileNotFoundError:
        return {}
    except OSError as error:
        print(f"Your notes cannot be read ({error.strerror}).")
        return None
    except (ValueError, RecursionError):
        notes = None
    if isinstance(notes, dict):
        return notes
    aside = free_name(path, "broken")
    try:
        path.replace(aside)
    except OSError:
        return None
    print(f"{FOLDER}/{NOTES} could not be understood. It is now {aside.name}; new notes start empty.")
    return {}


def free_name(path: Path, word: str, first: str = "") -> Path:
    """A name beside `path` that nothing has yet, such as notes.broken.json, then notes.broken2.json."""
    return next(aside for aside in names_beside(path, word, first) if not os.path.lexists(aside))


def names_beside(path: Path, word: str, first: str = "") -> Iterator[Path]:
    """Names beside `path`, without end: its own with a word in it, and behind that `first`, then 2, 3 and so on."""
    for number in chain([first], count(2)):
        yield path.with_name(f"{path.stem}.{word}{number}{path.suffix}")


def note(section: str, key: str, value: object) -> bool:
    """Keep `value` (anything JSON can hold) under `section` and `key`. Never raises: says so and returns False."""
    path = home() / NOTES
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock"), timeout=_LOCKED):  # two notebooks may note something at once
            notes = _load()
            if notes is None:  # what is there must not be lost
                return False
            part = notes.get(section)
            notes[section] = {**(part if isinstance(part, dict) else {}), key: value}
            write_text(path, json.dumps(notes, indent=1, ensure_ascii=False) + "\n")
    except (OSError, UnicodeError) as error:
        busy, letter = "another notebook is writing", "it holds a letter that no file can"
        why = (error.strerror or busy) if isinstance(error, OSError) else letter
        print(f"This could not be kept in {FOLDER}/ ({why}). Set MINIKV_HOME to a folder of yours.")
        return False
    return True


def noted(section: str, key: str) -> Any:
    """What `note` kept under `section` and `key`, or None."""
    part = read_notes().get(section)
    return part.get(key) if isinstance(part, dict) else None


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing: two notebooks may write at the same time."""
    write_whole(path, text.encode("utf-8"), mode=0o600)


def write_whole(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a whole file or nothing. A link stays a link, and a file keeps its mode; `mode` is for new ones."""
    real = Path(os.path.realpath(path))
    real.parent.mkdir(parents=True, exist_ok=True)
    temporary = real.with_name(f".{real.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
        with contextlib.suppress(OSError):  # a new file has no mode to keep, and some disks know none
            shutil.copymode(real, temporary)
        os.replace(temporary, real)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # and not the temporary one
        raise
