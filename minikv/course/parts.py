"""The learner's parts: what a check said `[ok]` to is kept in `my_minikv/` for every later notebook."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from minikv.course.declare import Exercise, Verdict, chapter_of
from minikv.course.guard import Outcome, guarded
from minikv.course.home import FOLDER, free_name, home, write_text
from minikv.course.source import PART_MODULE, CannotKeep, is_definition, standalone_source

_FIRST_LINE = re.compile(r"# (ex-\d+\.\d+) (\w+)\b")
_PART_FILE = re.compile(r"ex_\d+_\d+\.py")  # and not what `course reset` has put aside
_LOADING = 10.0  # seconds that a kept file may take to load


def keep(exercise: Exercise, thing: Any) -> str | None:
    """Keep a right answer. Returns the line to print, or None for answers that are plain values.

    Only what works on its own is kept: the file is loaded afresh and judged once more before.
    """
    if not is_definition(thing) or thing.__name__ == "<lambda>":
        why = "it is right, but only what is written with `def` or `class` has a source to keep."
        return f"Not kept in {FOLDER}/: {why}" if callable(thing) else None
    read = guarded(lambda: standalone_source(thing), _LOADING)
    if isinstance(read.error, CannotKeep):
        return f"Not kept in {FOLDER}/: {read.error}"
    if read.error is not None or read.value is None:
        return f"Not kept in {FOLDER}/: its source could not be read ({type(read.error).__name__})."
    source = read.value
    loaded = guarded(lambda: _loaded(exercise.id, source, thing.__name__), _LOADING)
    if loaded.error is None and not is_definition(loaded.value):
        return f"Not kept in {FOLDER}/: it is written inside of a class. Define it at the top of a cell."
    trial = loaded if loaded.error else judged(exercise, loaded.value)
    if isinstance(trial.error, NameError):
        return f"Not kept in {FOLDER}/: on its own it misses {trial.error.name}. Define it in a cell."
    if trial.error is not None:
        return f"Not kept in {FOLDER}/: on its own it raises {_said(trial.error)}."
    if trial.value is None or not trial.value.right:
        return f"Not kept in {FOLDER}/: it works here, but not on its own. Restart the kernel and try."
    try:
        save_part(exercise.id, source, thing.__name__)
    except OSError as error:
        return f"Not kept in {FOLDER}/: {error.strerror}. Set MINIKV_HOME to a folder of yours."
    return f"Kept in {FOLDER}/{part_file(exercise.id).name}."


def judged(exercise: Exercise, thing: Any) -> Outcome[Verdict]:
    """Let an exercise's judge look at an answer, in time, with settings of ours that the answer cannot leave behind."""
    with _usual_settings():
        return guarded(lambda: exercise.judge(thing), exercise.seconds)


@contextmanager
def _usual_settings() -> Iterator[None]:
    """torch makes float32 on the CPU; that, the gradients' switch and the working directory are put back."""
    torch, here = sys.modules.get("torch"), _working_directory()
    before = (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_default_device()) if torch else None
    try:
        if torch and before:
            torch.set_default_dtype(torch.float32)
            if before[2].type != "cpu":
                torch.set_default_device("cpu")
        yield
    finally:
        if torch and before:
            torch.set_default_dtype(before[0])
            torch.set_grad_enabled(before[1])
            if torch.get_default_device() != before[2]:
                torch.set_default_device(before[2])
        if here:
            os.chdir(here)


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return None


def save_part(exercise_id: str, source: str, name: str) -> Path:
    """Write `source`, which defines `name`, as the learner's part; one that was edited by hand is put aside."""
    path = part_file(exercise_id)
    if path.is_file() and not _as_it_was_kept(path):
        path.replace(free_name(path, "old"))
    write_text(path, f"# {exercise_id} {name}: yours, kept when its check said [ok] ({_digest(source)})\n{source}")
    return path


def _as_it_was_kept(path: Path) -> bool:
    first, _, source = path.read_text(encoding="utf-8", errors="replace").partition("\n")
    return first.endswith(f"({_digest(source)})")


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:8]


def part_file(exercise_id: str) -> Path:
    """The file that the part for this exercise is kept in: "ex-3.2" is `my_minikv/ex_3_2.py`."""
    return home() / f"{_module_stem(exercise_id)}.py"


def kept_parts() -> list[str]:
    """The ids of the exercises whose parts are kept, in order."""
    ids: list[str] = []
    with suppress(OSError):  # a folder that cannot be looked into
        for path in home().glob("ex_*.py"):
            with suppress(OSError):  # a file that cannot be read
                if _PART_FILE.fullmatch(path.name) and path.is_file():
                    match = _FIRST_LINE.match(path.read_text(encoding="utf-8-sig", errors="replace"))
                    if match and part_file(match[1]).name == path.name:
                        ids.append(match[1])
    return sorted(ids, key=lambda one: [int(number) for number in re.findall(r"\d+", one)])


def learner_or_reference(exercise_id: str) -> Any:
    """The learner's part for this exercise if there is one that loads, else the reference. Says which."""
    found = look_up(exercise_id)
    print(f"{exercise_id}: using {found.said}")
    return found.thing


@dataclass(frozen=True)
class Found:
    """A part, whether it is the learner's own, and where it came from in words."""

    thing: Any
    yours: bool
    said: str


def look_up(exercise_id: str) -> Found:
    """The learner's part for this exercise if there is one that loads, else the reference; prints nothing.

    Raises:
        LookupError: if there is no such exercise.
    """
    path = part_file(exercise_id)
    shown = f"{FOLDER}/{path.name}"
    if not os.path.lexists(path):  # unlike `path.exists()`, never an error
        return Found(_reference(exercise_id), False, "the reference (nothing of yours is kept yet)")
    attempt = guarded(lambda: _from_file(exercise_id, path), _LOADING)
    if attempt.error is None and is_definition(attempt.value):
        return Found(attempt.value, True, f"yours ({shown})")
    why = "it defines no function or class of that name" if attempt.error is None else _said(attempt.error)
    return Found(_reference(exercise_id), False, f"the reference, because {shown} does not load: {why}")


def _from_file(exercise_id: str, path: Path) -> Any:
    source = path.read_text(encoding="utf-8-sig")  # some editors put a mark in front
    first = _FIRST_LINE.match(source)
    if not first or first[1] != exercise_id:
        raise ValueError(f"its first line does not say `# {exercise_id} NAME`")
    return _loaded(exercise_id, source, first[2], str(path))


def _loaded(exercise_id: str, source: str, name: str, filename: str = "<your part>") -> Any:
    """Run `source` in a module of its own and return what it defines as `name`."""
    module = ModuleType(PART_MODULE + _module_stem(exercise_id))
    sys.modules[module.__name__] = module  # dataclasses and pickle look their module up
    exec(compile(source, filename, "exec", dont_inherit=True), vars(module))
    return getattr(module, name)


def _reference(exercise_id: str) -> Any:
    answers = getattr(chapter_of(exercise_id), "REFERENCE", {})
    if exercise_id not in answers:
        raise LookupError(f"There is no exercise {exercise_id!r} with a reference answer.")
    return answers[exercise_id]


def _module_stem(exercise_id: str) -> str:
    return re.sub(r"\W", "_", exercise_id)


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
