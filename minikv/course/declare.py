"""What a chapter declares, questions and exercises, and how they are found again by their id.

`minikv/course/chapters/ch03.py` calls `register(...)` at import. Nobody imports a chapter by hand:
`find("ex-3.2")` knows from the id that it is chapter 3.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeVar

_NUMBER = re.compile(r"\d{1,3}\.\d{1,3}")
_ID = re.compile(r"(?:p|ex)-(\d{1,3})\.(\d{1,3})")


@dataclass(frozen=True)
class Option:
    """One answer to a question, and what there is to say about it once the result is seen."""

    text: str
    explanation: str


@dataclass(frozen=True)
class Question:
    """A prediction: `id` such as "p-3.2", the options by letter, and the letter of the right one."""

    id: str
    text: str
    options: Mapping[str, Option]
    answer: str

    def __post_init__(self) -> None:
        _chapter_number(self.id)
        if self.answer not in self.options:
            raise ValueError(f"{self.id}: the answer {self.answer!r} is none of {list(self.options)}")


@dataclass(frozen=True)
class Verdict:
    """What a judge found. Make one with `ok(...)` or `wrong(...)`."""

    right: bool
    said: str
    kind: str = ""
    hints: tuple[str, ...] = ()


def ok(said: str = "") -> Verdict:
    """The answer is right. `said` may add something worth knowing about this very answer."""
    return Verdict(True, said)


def wrong(kind: str, said: str, *hints: str) -> Verdict:
    """The answer is wrong in the way called `kind`.

    `said` tells what the code did ("page 5 now has two owners"). The hints come one after the other,
    the next one each time the same kind of mistake is made again: ask, give the idea, give a smaller
    case to do by hand.
    """
    return Verdict(False, said, kind, hints)


@dataclass(frozen=True)
class Exercise:
    """One exercise. `judge` looks at the learner's answer and gives a `Verdict`.

    A judge may call learner code freely: time limit, output and exceptions are handled around it.
    It must give the learner's code fresh arguments each time, since these may be changed.
    """

    id: str
    title: str
    minutes: int
    lines: int
    done_when: str
    idea: str
    judge: Callable[[object], Verdict]
    seconds: float = 10.0

    def __post_init__(self) -> None:
        _chapter_number(self.id)


Declared = Question | Exercise
Kind = TypeVar("Kind", Question, Exercise)

_declared: dict[str, Declared] = {}


def register(*things: Declared) -> None:
    """Make questions and exercises known under their ids. A later one replaces an earlier one."""
    for thing in things:
        _declared[thing.id] = thing


def chapter_of(any_id: object) -> ModuleType | None:
    """The module of the chapter that "ex-3.2" or "p-3.2" belongs to; None if there is none."""
    if not isinstance(any_id, str) or not _ID.fullmatch(any_id):
        return None
    name = f"minikv.course.chapters.ch{_chapter_number(any_id):02d}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return None


def find(kind: type[Kind], any_id: object) -> Kind | None:
    """The question or exercise with this id, or None; the number alone will do, as in "3.2"."""
    if isinstance(any_id, str) and _NUMBER.fullmatch(any_id):
        any_id = f"{'ex' if kind is Exercise else 'p'}-{any_id}"
    chapter_of(any_id)
    thing = _declared.get(any_id) if isinstance(any_id, str) else None
    return thing if isinstance(thing, kind) else None


def of_chapter(kind: type[Kind], number: int) -> list[Kind]:
    """All questions or exercises of chapter `number`, in the order of their ids."""
    chapter_of(f"ex-{number}.1")
    found = [t for t in _declared.values() if isinstance(t, kind) and _chapter_number(t.id) == number]
    return sorted(found, key=lambda thing: int(thing.id.rpartition(".")[2]))


def not_known(kind: type[Kind], any_id: object) -> str:
    """One sentence for an id that is not known, with the ids that are."""
    noun, example = ("prediction", "p-3.2") if kind is Question else ("exercise", "ex-3.2")
    if not isinstance(any_id, str):
        return f'The id comes first, in quotes, such as "{example}".'
    sentence = f"There is no {noun} {any_id!r}."
    if _ID.fullmatch(any_id):
        near = ", ".join(thing.id for thing in of_chapter(kind, _chapter_number(any_id)))
        return f"{sentence} This chapter has {near}." if near else f"{sentence} {_which_minikv()}"
    return f'{sentence} Ids look like "{example}".'


def _which_minikv() -> str:
    """For a notebook that asks for a chapter which is not here: an older minikv may be the one that is used."""
    import minikv

    place = Path(minikv.__file__).parent
    return f"Is this minikv older than the notebook? It is {minikv.__version__}, in {place}."


def error_of(call: Callable[[], object]) -> Exception | None:
    """The exception that `call()` raises, or None: for judges that expect a refusal.

    A stub's NotImplementedError goes through, so that a half-finished answer is not taken for one.
    """
    try:
        call()
    except NotImplementedError:
        raise
    except Exception as error:
        return error
    return None


def _chapter_number(any_id: str) -> int:
    found = _ID.fullmatch(any_id)
    if not found:
        raise ValueError(f'{any_id!r} is not an id such as "ex-3.2" or "p-3.2"')
    return int(found[1])
