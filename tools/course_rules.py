"""What a committed notebook of the course must and must not hold, apart from its sources."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

TAGS = {
    "exercise",
    "check",
    "live",
    "nbval-ignore-output",
    "nbval-skip",
    "raises-exception",
    "answers-prediction",
    "solution-only",
    "exercise-only",
}
EXEMPT = {"nbval-ignore-output", "nbval-skip"}
LARGEST = 500_000  # bytes of a notebook
SHORT_LINE = 12  # characters; solution lines up to this length may be seen anywhere
LARGEST_SHARE = 0.10  # of code cells that are exempt from comparison

_ABSOLUTE = re.compile(r"(?<![\w.:/<-])/(?:home|root|tmp|usr|opt|var|private|mnt|Users)/[\w.-]+|\b[A-Z]:\\\\?\w")
_COMMENT = re.compile(r"#\s*(NBVAL_|PYTEST_VALIDATE)", re.IGNORECASE)


def check_tags(tags: list[str], why: object, text: str, place: str, error: type[Exception]) -> None:
    """Raise `error` for a tag that nbval or the builder would ignore without a word."""
    for tag in tags:
        if tag not in TAGS:
            raise error(f"{place}: unknown tag {tag!r}. Known: {', '.join(sorted(TAGS))}.")
    if "nbval-skip" in tags and not why:
        raise error(f'{place}: nbval-skip needs a reason: add why="..." to the cell.')
    if "live" in tags and not EXEMPT.intersection(tags):
        raise error(f"{place}: a live cell cannot be compared. Add the tag nbval-ignore-output.")
    comment = _COMMENT.search(text)
    if comment:
        raise error(f"{place}: use a tag instead of the comment {comment[0]!r}...")


def problems(path: Path, secret_lines: set[str], root: Path) -> Iterator[str]:
    """One sentence, with what to do, for each rule that the notebook at `path` breaks."""
    size = path.stat().st_size
    if size >= LARGEST:
        yield f"has {size:,} bytes, the limit is {LARGEST:,}. Draw less, or fewer frames, and rebuild."
    notebook = nbformat.read(path, as_version=4)
    if "widgets" in notebook.metadata:
        yield "holds saved widget state. Close it in Jupyter and rebuild it with --execute."
    for number, cell in enumerate(notebook.cells, 1):
        skipped = "nbval-skip" in cell.metadata.get("tags", [])
        if cell.cell_type == "code" and not skipped and cell.get("execution_count") is None:
            yield f"cell {number} was not run: nbval would compare nothing. Use --execute {path.stem}."
    yield from stderr_problems(notebook)
    yield from _path_problems(notebook, root)
    yield from _leaks(notebook, secret_lines)


def stderr_problems(notebook: NotebookNode) -> Iterator[str]:
    """Standard error and failed cells: a learner would see red."""
    for number, cell in enumerate(notebook.cells, 1):
        may_fail = "raises-exception" in cell.metadata.get("tags", [])
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                first = output.text.strip().partition("\n")[0][:200]
                yield f"cell {number} writes to standard error ({first}). Silence it at its source."
            if output.output_type == "error" and not may_fail:
                yield f"cell {number} holds an error ({output.ename}). Mend it and rebuild with --execute."


def _path_problems(notebook: NotebookNode, root: Path) -> Iterator[str]:
    here = [str(place) for place in (root, Path.home(), tempfile.gettempdir(), sys.prefix) if len(str(place)) > 1]
    for number, cell in enumerate(notebook.cells, 1):
        for text in _strings(cell.get("outputs", [])):
            found = _ABSOLUTE.search(text)
            shown = found[0] if found else next((place for place in here if f"{place}/" in text), None)
            if shown:
                yield f"cell {number} prints a path of one machine ({shown}...). Print the name alone."
                break


def _leaks(notebook: NotebookNode, secret_lines: set[str]) -> Iterator[str]:
    seen = list(_strings(notebook))
    for line in sorted(secret_lines):
        if any(line in text for text in seen):
            yield f"shows a line of the solution: {line!r}. Reword it, or put it into the given part."


def _strings(thing: Any) -> Iterator[str]:
    """All texts anywhere inside a notebook or a part of one."""
    if isinstance(thing, str):
        yield thing
    elif isinstance(thing, dict):
        for key, value in thing.items():
            yield str(key)
            yield from _strings(value)
    elif isinstance(thing, list | tuple):
        for value in thing:
            yield from _strings(value)
    else:
        yield json.dumps(thing)


@dataclass(frozen=True)
class Share:
    """How many code cells nbval does not compare; live cells are counted apart."""

    code: int
    exempt: int
    live: int

    @classmethod
    def of(cls, notebooks: Iterable[NotebookNode]) -> Share:
        """Count over all notebooks."""
        code = [set(c.metadata.get("tags", [])) for nb in notebooks for c in nb.cells if c.cell_type == "code"]
        live = [tags for tags in code if "live" in tags]
        exempt = [tags for tags in code if tags & EXEMPT and "live" not in tags]
        return cls(len(code), len(exempt), len(live))

    @property
    def problem(self) -> str:
        """What to do if too many are exempt; empty if all is well."""
        if self.exempt <= LARGEST_SHARE * self.code:
            return ""
        return (
            f"{self.exempt} of {self.code} code cells are not compared, at most {LARGEST_SHARE:.0%} may be. "
            "Make their outputs the same in every run and take their nbval-... tags away."
        )

    def __str__(self) -> str:
        share = self.exempt / self.code if self.code else 0.0
        return f"{self.exempt} of {self.code} code cells ({share:.1%}) not compared; {self.live} live apart"
