"""Export the exercises to nbgrader, one assignment a chapter, from the same sources as the notebooks.

    python tools/export_nbgrader.py FOLDER           all chapters: FOLDER/source/NN_name/NN_name.ipynb, and settings
    python tools/export_nbgrader.py FOLDER 03 08     these alone (any part of the name will do)

Then, in an environment that has both minikv and nbgrader (which this script does not need):

    cd FOLDER && nbgrader generate_assignment 03_pages     what students get, in release/
    nbgrader autograde 03_pages                            marks what lies in submitted/STUDENT/03_pages/

Cells with a solution are nbgrader's "autograded answer", cells with a check its "autograder tests": locked, strict, and
worth as many points as the exercise has minutes. Everything up to the last check is locked, apart from the answers.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeGuard

import jupytext
import nbformat
from nbformat import NotebookNode

sys.path.insert(0, str(Path(__file__).parent))
from build_course import _BEGIN, _END, METADATA, ROOT, SourceError

from minikv.course.declare import Exercise, find

DATA = Path("assets", "configs")  # that checks read, from the folder of the notebook upwards
CONFIG = """\
# Written by tools/export_nbgrader.py.
c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "minikv"
c.Execute.timeout = 300  # seconds for one cell; the first one that loads a model is slow
"""
FIRST = """\
import os
import tempfile

if "NBGRADER_EXECUTION" in os.environ:  # while grading, nobody's parts are used or kept
    kept_nowhere = tempfile.TemporaryDirectory()
    os.environ["MINIKV_HOME"] = kept_nowhere.name"""


def assignment(source: Path, root: Path = ROOT) -> NotebookNode:
    """The notebook with solutions that nbgrader takes, from one file of `solutions/src`. Raises `SourceError`."""
    shown = source.relative_to(root).as_posix()
    read = jupytext.reads(source.read_text(encoding="utf-8"), fmt="py:percent").cells
    cells = [_marked(nbformat.v4.new_code_cell(FIRST), "grading-home", locked=True)]
    cells += [_converted(cell, f"{shown}, cell {number}") for number, cell in enumerate(read, 1) if _wanted(cell)]
    checks = [number for number, cell in enumerate(cells) if cell.metadata.get("nbgrader", {}).get("grade")]
    if not checks:
        raise SourceError(f"{shown}: no cell has the tag check, so nothing can be marked.")
    for number, cell in enumerate(cells):
        cell.id = hashlib.sha256(f"nbgrader/{source.stem}/{number}".encode()).hexdigest()[:12]
        if number < checks[-1] and "nbgrader" not in cell.metadata:
            _marked(cell, f"given-{number}", locked=True)
    _number_twins(cells)
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


def _number_twins(cells: list[NotebookNode]) -> None:
    """An answer may stand in several cells: ex-2-2-answer, ex-2-2-answer-2."""
    seen: Counter[str] = Counter()
    for mark in [cell.metadata.nbgrader for cell in cells if "nbgrader" in cell.metadata]:
        seen[mark.grade_id] += 1
        if seen[mark.grade_id] > 1:
            mark.grade_id += f"-{seen[mark.grade_id]}"


def _wanted(cell: NotebookNode) -> bool:
    return "solution-only" not in cell.metadata.get("tags", [])


def _converted(cell: NotebookNode, place: str) -> NotebookNode:
    tags = cell.metadata.get("tags", [])
    if cell.cell_type == "markdown":
        return nbformat.v4.new_markdown_cell(cell.source)
    if "check" in tags:
        return _check_cell(cell.source, place)
    text, exercise = _with_nbgraders_marks(cell.source)
    new = nbformat.v4.new_code_cell(text)
    return _marked(new, f"{exercise.replace('.', '-')}-answer", solution=True) if exercise else new


def _with_nbgraders_marks(text: str) -> tuple[str, str]:
    """A cell with `### BEGIN SOLUTION`, what to write above it, and the exercise's id; "" without a solution."""
    lines: list[str] = []
    exercise = ""
    region: list[str] = []
    inside = False
    for line in text.splitlines():
        begin = _BEGIN.match(line)
        if begin:
            indent, exercise, todo = begin.groups()
            lines.append(f"{indent}# {exercise}: {todo}")
            inside, region = True, []
        elif _END.match(line):
            indent = line[: len(line) - len(line.lstrip())]
            lines += [*_empty(region, indent), f"{indent}### BEGIN SOLUTION", *region, f"{indent}### END SOLUTION"]
            inside = False
        else:
            (region if inside else lines).append(line)
    return "\n".join(lines), exercise


def _empty(region: list[str], indent: str) -> list[str]:
    """At the left margin a solution assigns names: each begins as `...`, so that the check finds it."""
    if indent:
        return []
    assigned = [target for node in ast.parse("\n".join(region)).body for target in getattr(node, "targets", [])]
    return [f"{name} = ..." for name in dict.fromkeys(one.id for one in assigned if isinstance(one, ast.Name))]


def _check_cell(text: str, place: str) -> NotebookNode:
    """The check, strict, for as many points as its exercise has minutes."""
    calls = [node for node in ast.walk(ast.parse(text)) if _is_check(node)]
    call = calls[0] if len(calls) == 1 else None
    first = call.args[0] if call and call.args else None
    exercise = find(Exercise, first.value) if isinstance(first, ast.Constant) else None
    if call is None or exercise is None:
        raise SourceError(f'{place}: a cell with the tag check holds one call such as check("ex-3.1", thing).')
    asked = ast.get_source_segment(text, call) or ""
    call.keywords = [ast.keyword("strict", ast.Constant(True))]
    # Imported here, so that a function of that name in an answer cannot stand in for it by accident.
    strict = f"from minikv.course import check\n\n{text.replace(asked, ast.unparse(call))}"
    name = f"{exercise.id.replace('.', '-')}-check"
    return _marked(nbformat.v4.new_code_cell(strict), name, locked=True, points=exercise.minutes)


def _is_check(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "check"


def _marked(
    cell: NotebookNode, name: str, *, solution: bool = False, locked: bool = False, points: int | None = None
) -> NotebookNode:
    """The cell with nbgrader's metadata."""
    mark: dict[str, Any] = {
        "schema_version": 3,
        "grade_id": name,
        "grade": points is not None,
        "solution": solution,
        "locked": locked,
        "task": False,
        "cell_type": cell.cell_type,
    }
    if points is not None:
        mark["points"] = points
    cell.metadata["nbgrader"] = nbformat.from_dict(mark)
    return cell


def export(folder: Path, names: Iterable[str] = (), root: Path = ROOT) -> list[str]:
    """Write the assignments, and a configuration if there is none; returns one line for each assignment."""
    wanted = tuple(names)
    lines = []
    for source in sorted((root / "solutions" / "src").glob("*.py")):
        if wanted and not any(name in source.stem for name in wanted):
            continue
        notebook = assignment(source, root)
        path = folder / "source" / source.stem / f"{source.stem}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
        if (root / DATA).is_dir():  # nbgrader hands out what lies beside the notebook
            shutil.copytree(root / DATA, path.parent / DATA, dirs_exist_ok=True)
        points = [cell.metadata.nbgrader.get("points", 0) for cell in notebook.cells if "nbgrader" in cell.metadata]
        lines.append(f"{source.stem}: {sum(map(bool, points))} checks, {sum(points)} points")
    if not lines:
        raise SourceError(f"no chapter is called {' or '.join(wanted)}.")
    config = folder / "nbgrader_config.py"
    if not config.exists():
        config.write_text(CONFIG, encoding="utf-8")
    return lines


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Export the exercises to nbgrader, one assignment a chapter.")
    parser.add_argument("folder", type=Path, help="nbgrader's course folder, made if it is not there")
    parser.add_argument("names", nargs="*", metavar="NAME", help="chapters, such as 03; all of them without")
    options = parser.parse_args(None if arguments is None else list(arguments))
    try:
        print("\n".join(export(options.folder, options.names)))
    except SourceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
