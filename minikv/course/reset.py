"""Begin an exercise again: `minikv course reset ex-3.2`. What was there is put aside, never deleted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from minikv.course.copy import checkout, learners_copy, without_answers
from minikv.course.declare import Exercise, find, not_known
from minikv.course.home import FOLDER, home, write_text
from minikv.course.parts import part_file
from minikv.errors import MinikvError

Cells = list[dict[str, Any]]


class NothingToReset(MinikvError, ValueError):
    """There is no such exercise, or no notebook of the learner's to reset it in."""


def reset(exercise_id: str, target: str | Path | None = None) -> list[str]:
    """Put the stub of an exercise back, and put the kept part aside. Returns what was done, in sentences.

    Args:
        exercise_id: such as "ex-3.2".
        target: the learner's copy of the course; without it, the one around the working directory or `my_course`.

    Raises:
        NothingToReset: for an unknown exercise, or a copy without its notebook.
        CourseNotFound: if there is no copy, or no checkout to take the stub from.
    """
    if find(Exercise, exercise_id) is None:
        raise NothingToReset(not_known(Exercise, exercise_id))
    place = learners_copy(target)
    chapter = exercise_id.removeprefix("ex-").partition(".")[0].zfill(2)
    pristine = next((checkout() / "exercises").glob(f"{chapter}_*.ipynb"), None)
    if pristine is None or not (place / "exercises" / pristine.name).is_file():
        raise NothingToReset(
            f"{place} has no notebook with {exercise_id}. To bring it back: minikv course start {place}"
        )
    mine = place / "exercises" / pristine.name
    done = [_reset_cells(mine, pristine, exercise_id)]
    part = (home() if os.environ.get("MINIKV_HOME") else place / FOLDER) / part_file(exercise_id).name
    if part.exists():
        done.append(f"Your kept part is now {part.parent.name}/{part.replace(_aside(part)).name}.")
    return done


def _reset_cells(mine: Path, pristine: Path, exercise_id: str) -> str:
    before = mine.read_text(encoding="utf-8")
    try:
        notebook = json.loads(before)
        cells: Cells = notebook["cells"]
        ids = [cell.get("id") for cell in cells]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NothingToReset(
            f"{mine} cannot be read as a notebook. Move it away; minikv course start then brings a fresh one."
        ) from error
    fresh: Cells = json.loads(without_answers(pristine.read_text(encoding="utf-8")))["cells"]
    stubs = [cell for cell in fresh if _belongs(cell, exercise_id)]
    if all(any(_same(cell, stub) for cell in cells) for stub in stubs):
        return f"{exercise_id} in {mine.name} is as it was handed out."
    place = len(cells)
    for stub in reversed(stubs):
        if stub["id"] in ids:
            place = ids.index(stub["id"])
            cells[place] = stub
        else:  # the learner deleted the cell: it comes back before what followed it
            cells.insert(place, stub)
            ids.insert(place, stub["id"])
    aside = _aside(mine)
    write_text(aside, before)
    write_text(mine, json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    return (
        f"{exercise_id} in {mine.name} is as it was handed out. What you had is in {aside.name}. "
        "If the notebook is open, reload it."
    )


def _belongs(cell: dict[str, Any], exercise_id: str) -> bool:
    tags = cell.get("metadata", {}).get("tags", [])
    source = "".join(cell.get("source", ""))
    return ("exercise" in tags and f"{exercise_id}:" in source) or ("check" in tags and f'"{exercise_id}"' in source)


def _same(cell: dict[str, Any], stub: dict[str, Any]) -> bool:
    return "".join(cell.get("source", "")) == "".join(stub["source"])


def _aside(path: Path) -> Path:
    """A name beside `path` that is not taken."""
    number = 1
    while (aside := path.with_name(f"{path.stem}.old{number}{path.suffix}")).exists():
        number += 1
    return aside
