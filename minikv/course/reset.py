"""Begin an exercise again: `minikv course reset ex-3.2`. What was there is put aside, never deleted."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import symtable
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from minikv.course.copy import checkout, in_course, learners_copy, without_answers
from minikv.course.declare import Exercise, find, not_known
from minikv.course.home import FOLDER, free_name, home, write_whole
from minikv.course.parts import part_file
from minikv.errors import MinikvError

Cell = dict[str, Any]
Cells = list[Cell]

_CHECKED = re.compile(r"""\bcheck\(\s*["'](ex-\d+\.\d+)["']""")
_NO_NOTEBOOK = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_LOCKED = 5.0  # seconds to wait for another reset


class NothingToReset(MinikvError, ValueError):
    """There is no such exercise, or no notebook of the learner's to reset it in."""


def reset(exercise_id: str, target: str | Path | None = None) -> list[str]:
    """Put the stub of an exercise back, and put the kept part aside. Returns what was done, in sentences.

    Args:
        exercise_id: such as "ex-3.2", or "3.2".
        target: the learner's copy of the course; without it, the one around the working directory or `my_course`.

    Raises:
        NothingToReset: for an unknown exercise, or a copy without its notebook.
        CourseNotFound: if there is no copy, or no checkout to take the stub from.
    """
    exercise = find(Exercise, exercise_id)
    if exercise is None:
        raise NothingToReset(not_known(Exercise, exercise_id))
    exercise_id = exercise.id
    place = learners_copy(target)
    chapter = exercise_id.removeprefix("ex-").partition(".")[0].zfill(2)
    course = checkout()
    handed_out = sorted((course / "exercises").glob(f"{chapter}_*.ipynb"))
    pristine = next((path for path in handed_out if path.name.count(".") == 1), None)  # and no .new or .old1
    if pristine is None or not (place / "exercises" / pristine.name).is_file():
        raise NothingToReset(
            f"{place} has no notebook with {exercise_id}. To bring it back: minikv course start {place}"
        )
    mine = place / "exercises" / pristine.name
    if in_course(course, mine):
        raise NothingToReset(f"{mine} is the notebook of the course itself, and no copy. It stays as it is.")
    (place / FOLDER).mkdir(exist_ok=True)
    try:
        with FileLock(place / FOLDER / "reset.lock", timeout=_LOCKED):
            done = _reset_cells(mine, pristine, exercise_id)
    except Timeout as error:
        raise NothingToReset("Another reset is under way. Try again in a moment.") from error
    part = (home() if os.environ.get("MINIKV_HOME") else place / FOLDER) / part_file(exercise_id).name
    if os.path.lexists(part):
        try:
            aside = part.rename(free_name(part, "old", first="1"))
            done.append(f"Your kept part is now {part.parent.name}/{aside.name}.")
        except OSError as error:
            done.append(f"Your kept part, {part}, could not be put aside ({error.strerror}).")
    return done


def _reset_cells(mine: Path, pristine: Path, exercise_id: str) -> list[str]:
    before = mine.read_bytes()
    try:
        notebook, cells = _read(before)
    except _NO_NOTEBOOK as error:
        raise NothingToReset(
            f"{mine} cannot be read as a notebook. Move it away; minikv course start then brings a fresh one."
        ) from error
    try:
        _, fresh = _read(without_answers(pristine.read_text(encoding="utf-8")).encode("utf-8"))
    except _NO_NOTEBOOK as error:
        raise NothingToReset(f"{pristine} cannot be read as a notebook. Fetch the course anew.") from error
    again = _begin_again(cells, fresh, exercise_id)
    done = [f"{exercise_id} in {mine.name} is as it was handed out."]
    if [_content(cell) for cell in again.cells] != [_content(cell) for cell in cells]:
        if _is_old(notebook):
            for cell in again.cells:  # ids came with format 4.5
                cell.pop("id", None)
        notebook["cells"] = again.cells
        after = _written(notebook, mine)
        aside = _put_aside(mine, before)
        write_whole(mine, after)
        done = [f"{done[0]} What you had is in {aside.name}. If the notebook is open, reload it."]
    return done + again.said


def _read(content: bytes) -> tuple[dict[str, Any], Cells]:
    """A notebook and its cells, each with its source in one piece; raises one of `_NO_NOTEBOOK` if it is none."""
    notebook = json.loads(content.decode("utf-8"))
    if not isinstance(notebook, dict) or not isinstance(notebook["cells"], list):
        raise TypeError("no notebook")
    for cell in notebook["cells"]:
        _content(cell)
    return notebook, notebook["cells"]


def _written(notebook: dict[str, Any], mine: Path) -> bytes:
    try:
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    except RecursionError as error:  # writing nests deeper than reading
        raise NothingToReset(
            f"{mine} is nested too deeply. Move it away; minikv course start then brings a fresh one."
        ) from error
    try:
        return text.encode("utf-8")
    except UnicodeError:  # half of a letter, as an escape: so it stays
        return (json.dumps(notebook, indent=1) + "\n").encode("utf-8")


def _put_aside(mine: Path, content: bytes) -> Path:
    """Keep what was there under a name that nobody else takes in the meantime."""
    while True:
        aside = free_name(mine, "old", first="1")
        try:
            with aside.open("xb") as file:
                file.write(content)
        except FileExistsError:
            continue
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        with contextlib.suppress(OSError):  # some disks know no modes
            aside.chmod(mine.stat().st_mode & 0o777)
        return aside


@dataclass
class _Again:
    """The cells of the learner's notebook with an exercise begun again, and what to say about them."""

    cells: Cells
    said: list[str] = field(default_factory=list)


def _begin_again(cells: Cells, fresh: Cells, exercise_id: str) -> _Again:
    found = _matched(cells, fresh)
    stubs = [at for at, cell in enumerate(fresh) if _belongs(cell, exercise_id)]
    missing = {at: _place(at, stubs, found) for at in stubs if at not in found}
    again = list(cells)
    for at in stubs:
        if at in found:
            again[found[at]] = dict(fresh[at])
    names = {name: found.get(at, missing.get(at, 0) - 1) for at in stubs for name in _names(fresh[at])}
    ids = {_id(fresh[at]) for at in stubs} - {None}
    claimed = {place: at for at, place in found.items()}
    quiet, beware = [], []
    for place, cell in enumerate(cells):
        later = sorted(name for name in _defined(cell, imports=True) & set(names) if place > names[name])
        given = claimed.get(place)
        if given in stubs or not _is_code(cell):
            continue
        if given is not None:
            beware += [name for name in later if name not in _defined(fresh[given], imports=True)]
        elif later or _id(cell) in ids:
            again[place] = _as_raw(cell, ids)
            quiet.append(f"defines {' and '.join(later)} too" if later else "has the id of the one that was handed out")
    for at in sorted(missing, key=lambda at: (missing[at], at), reverse=True):
        again.insert(missing[at], dict(fresh[at]))
    said = [f"Another cell {why}. It is there as raw text, which does not run." for why in quiet]
    said += [f"Beware: a later cell, of something else, defines {name} too. It stays and runs." for name in beware]
    return _Again(again, said)


def _place(at: int, stubs: list[int], found: dict[int, int]) -> int:
    """Where a cell comes back that the learner's notebook lacks: after what went before it, before its check."""
    before = [found[other] + 1 for other in range(at) if other in found]
    after = [found[other] for other in stubs if other > at and other in found]
    follows = [found[other] for other in sorted(found) if other > at]
    return min([before[-1] if before else follows[0] if follows else 0, *after])


def _matched(cells: Cells, fresh: Cells) -> dict[int, int]:
    """For the cells that were handed out, where each is in the learner's notebook."""
    found: dict[int, int] = {}
    for alike in _ALIKE:
        for at, one in enumerate(fresh):
            taken = set(found.values())
            if at not in found:
                here = [i for i, cell in enumerate(cells) if i not in taken and alike(cell, one)]
                if here:
                    found[at] = here[0]
    exercises = {name for cell in fresh for name in _names(cell)}
    for at, one in enumerate(fresh):
        tags = _tags(one) & {"exercise", "check"}
        if at in found or not tags:
            continue
        first = max((found[other] for other in found if other < at), default=-1)  # renamed, without ids: by its tag
        last = min((found[other] for other in found if other > at), default=len(cells))
        for place in range(first + 1, last):
            cell = cells[place]
            if place not in found.values() and _is_code(cell) and tags & _tags(cell) and not _defined(cell) & exercises:
                found[at] = place
                break
    return found


def _same_id_and_kind(cell: Cell, one: Cell) -> bool:
    return _same_id(cell, one) and cell.get("cell_type") == one.get("cell_type")


def _same_id(cell: Cell, one: Cell) -> bool:
    return "id" in one and cell.get("id") == one["id"]


def _same_text(cell: Cell, one: Cell) -> bool:
    return "exercise" not in _tags(one) and _content(cell) == _content(one)


def _defines_it(cell: Cell, one: Cell) -> bool:
    return bool(_names(one) & _defined(cell))


def _checks_it(cell: Cell, one: Cell) -> bool:
    checked = set(_CHECKED.findall(_source(one))) if "check" in _tags(one) else set()
    return _is_code(cell) and bool(checked) and checked == set(_CHECKED.findall(_source(cell)))


_ALIKE: tuple[Callable[[Cell, Cell], bool], ...] = (_same_id_and_kind, _same_id, _same_text, _defines_it, _checks_it)


def _belongs(cell: Cell, exercise_id: str) -> bool:
    tags, source = _tags(cell), _source(cell)
    return ("exercise" in tags and f"{exercise_id}:" in source) or ("check" in tags and f'"{exercise_id}"' in source)


def _names(one: Cell) -> set[str]:
    """What a stub, as it was handed out, asks the learner to define."""
    return _defined(one) if "exercise" in _tags(one) else set()


def _defined(cell: Cell, imports: bool = False) -> set[str]:
    """The names that a code cell gives a value to."""
    if not _is_code(cell):
        return set()
    return {name for name, imported in _assigned(_source(cell)) if imports or not imported}


@functools.lru_cache(maxsize=1024)
def _assigned(source: str) -> frozenset[tuple[str, bool]]:
    """The names that a text gives a value to at its top, and whether by an import."""
    try:
        with warnings.catch_warnings(action="ignore"):
            table = symtable.symtable(source, "<cell>", "exec")
        found = [one for one in table.get_symbols() if one.is_assigned() or one.is_imported()]
        return frozenset((one.get_name(), one.is_imported()) for one in found)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # also the notebook's own % and ! lines
        pairs = re.findall(r"(?m)^(?:async\s+def|def|class)\s+(\w+)|^(\w+)\s*(?::[^=\n]*)?=(?!=)", source)
        return frozenset((first or second, False) for first, second in pairs)


def _as_raw(cell: Cell, taken: set[str | None]) -> Cell:
    """The cell as text that does not run."""
    raw = {"cell_type": "raw", "metadata": cell.get("metadata") or {}, "source": cell["source"]}
    if "id" in cell:
        raw["id"] = uuid.uuid4().hex[:12] if _id(cell) in taken else cell["id"]
    return raw


def _is_old(notebook: dict[str, Any]) -> bool:
    minor = notebook.get("nbformat_minor")
    return notebook.get("nbformat") == 4 and isinstance(minor, int) and minor < 5


def _id(cell: Cell) -> str | None:
    name = cell.get("id")
    return name if isinstance(name, str) else None


def _is_code(cell: Cell) -> bool:
    return cell.get("cell_type") == "code"


def _tags(cell: Cell) -> set[str]:
    metadata = cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    return {tag for tag in tags if isinstance(tag, str)} if isinstance(tags, list) else set()


def _content(cell: Cell) -> tuple[Any, str]:
    return cell.get("cell_type"), _source(cell)


def _source(cell: Cell) -> str:
    """Its text; raises TypeError if it is neither a text nor a list of texts."""
    source = cell["source"]
    if not isinstance(source, str | list):
        raise TypeError("no text")
    return source if isinstance(source, str) else "".join(source)
