"""Build the notebooks of the course from their text sources.

    python tools/build_course.py                      rewrite the notebooks; outputs of unchanged cells stay
    python tools/build_course.py --execute            ... and run all of them
    python tools/build_course.py --execute 03 08      rewrite and run these alone (any part of the path will do)
    python tools/build_course.py --check              change nothing; exit 1 and say so if anything drifted

`notebooks/src/NN_name.py` gives `notebooks/NN_name.ipynb`. `solutions/src/NN_name.py` gives the solution
and, with its marked regions cut out, the exercise. Sources are in jupytext's percent format. A cell
may have `tags=[...]`, `name="..."` (its id then survives being moved) and, if tagged nbval-skip, `why="..."`.

    # BEGIN SOLUTION ex-3.2: allocate, about 6 lines
    ...                       becomes   raise NotImplementedError("ex-3.2: allocate, about 6 lines")
    # END SOLUTION

A region at the left margin of a cell assigns values; in the exercise each name gets `...` instead.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbformat import NotebookNode
from traitlets.config import Config

sys.path.insert(0, str(Path(__file__).parent))
import course_rules

ROOT = Path(__file__).resolve().parents[1]
KINDS = {"notebooks": ["notebooks"], "solutions": ["solutions", "exercises"]}  # source folder: what it gives
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SECONDS_PER_CELL = 300
QUIET_KERNEL = Config({"KernelManager": {"transport_encryption": "auto"}})  # else ipykernel 7.4 warns

_BEGIN = re.compile(r"(\s*)# BEGIN SOLUTION(?: (ex-\d+\.\d+): (\S.*))?\s*$")
_END = re.compile(r"\s*# END SOLUTION\s*$")
_MARKER = re.compile(r"#+\s*(begin|end)[ _]solution", re.IGNORECASE)


class SourceError(Exception):
    """A source that cannot be built; the text names the place and says what to do."""


@dataclass
class Built:
    """One notebook as it must be, and what must not be seen in it."""

    path: Path
    notebook: NotebookNode
    secret_lines: set[str] = field(default_factory=set)


def build_all(root: Path, names: Iterable[str] = ()) -> list[Built]:
    """The notebooks of the course, built in memory, without outputs: all, or those whose path has a name in it."""
    wanted = tuple(names)
    built = []
    for folder, kinds in KINDS.items():
        for source in sorted((root / folder / "src").glob("*.py")):
            for kind in kinds:
                if not wanted or any(name in f"{kind}/{source.stem}.ipynb" for name in wanted):
                    built.append(build(root, source, kind))
    return built


def build(root: Path, source: Path, kind: str) -> Built:
    """Build the notebook of one kind from one source. Raises `SourceError`."""
    shown = source.relative_to(root).as_posix()
    cells = []
    ids: dict[str, str] = {}
    given: set[str] = set()
    solution: set[str] = set()
    for index, cell in enumerate(jupytext.reads(source.read_text(encoding="utf-8"), fmt="py:percent").cells):
        place = f"{shown}, cell {index + 1}"
        tags = list(cell.metadata.get("tags", []))
        without, cut = _cut(cell.source, place) if cell.cell_type == "code" else (cell.source, [])
        lines = [line.strip() for line in cell.source.splitlines() if not _MARKER.search(line)]
        hidden = lines if "solution-only" in tags else [line.strip() for line in cut]
        solution.update(hidden)
        given.update(line.strip() for line in without.splitlines() if "solution-only" not in tags)
        if ("solution-only" in tags and kind == "exercises") or ("exercise-only" in tags and kind == "solutions"):
            continue
        text = without if kind == "exercises" else _unmarked(cell.source)
        new = _cell(cell.cell_type, text, cell.metadata, tags, place)
        new.id = hashlib.sha256(f"{kind}/{source.stem}/{cell.metadata.get('name', index)}".encode()).hexdigest()[:12]
        if new.id in ids:
            raise SourceError(f"{place}: the name {cell.metadata.get('name')!r} is taken by {ids[new.id]}.")
        ids[new.id] = place
        cells.append(new)
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=copy.deepcopy(METADATA))
    secret = {line for line in solution - given if len(line) > course_rules.SHORT_LINE}
    return Built(root / kind / f"{source.stem}.ipynb", notebook, secret if kind == "exercises" else set())


def _cell(kind: str, text: str, options: dict[str, Any], tags: list[str], place: str) -> NotebookNode:
    unknown = set(options) - {"tags", "name", "why", "lines_to_next_cell"}
    if unknown:
        raise SourceError(f"{place}: {', '.join(sorted(unknown))} is no cell option. Use tags, name, why.")
    course_rules.check_tags(tags, options.get("why"), text, place, SourceError)
    make = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}.get(kind)
    if make is None:
        raise SourceError(f"{place}: only code and markdown cells, not {kind}.")
    cell = make(text)
    if tags:
        cell.metadata["tags"] = tags
    if "answers-prediction" in tags:
        cell.metadata["jupyter"] = {"outputs_hidden": True}
    if options.get("why"):
        cell.metadata["minikv"] = {"why": options["why"]}
    return cell


def _cut(text: str, place: str) -> tuple[str, list[str]]:
    """A code cell without its solution, and the lines that were cut."""
    kept: list[str] = []
    cut: list[str] = []
    region: list[str] | None = None
    opened: re.Match[str] | None = None
    for line in text.splitlines():
        begin, end = _BEGIN.match(line), _END.match(line)
        if begin and region is None:
            opened, region = begin, []
            if not begin[2]:
                raise SourceError(f"{place}: write `# BEGIN SOLUTION ex-3.2: what to write, about N lines`.")
        elif end and region is not None and opened is not None:
            kept += _stub(opened, region, place)
            cut += region
            region = None
        elif _MARKER.search(line):
            raise SourceError(f"{place}: {line.strip()!r} has no partner, or is misspelt.")
        else:
            (kept if region is None else region).append(line)
    if region is not None:
        raise SourceError(f"{place}: a solution begins and never ends. Add `# END SOLUTION`.")
    return "\n".join(kept), cut


def _stub(begin: re.Match[str], region: list[str], place: str) -> list[str]:
    """What stands in the exercise in place of a solution."""
    indent, exercise, todo = begin.groups()
    if indent:
        return [f"{indent}raise NotImplementedError({json.dumps(f'{exercise}: {todo}', ensure_ascii=False)})"]
    names: list[str] = []
    for statement in ast.parse("\n".join(region)).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if not targets or not all(isinstance(target, ast.Name) for target in targets):
            raise SourceError(f"{place}: at the left margin a solution may only assign names. Indent it in a def.")
        names += [target.id for target in targets if isinstance(target, ast.Name)]
    return [f"{name} = ...  # {exercise}: {todo}" for name in dict.fromkeys(names)]


def _unmarked(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not (_BEGIN.match(line) or _END.match(line)))


def keep_outputs(new: NotebookNode, old: NotebookNode) -> None:
    """Take over outputs and execution counts of code cells whose source did not change."""
    known: dict[str, list[NotebookNode]] = defaultdict(list)
    for cell in old.cells:
        if cell.cell_type == "code":
            known[cell.source].append(cell)
    for cell in new.cells:
        if cell.cell_type == "code" and known[cell.source]:
            before = known[cell.source].pop(0)
            cell.outputs, cell.execution_count = before.outputs, before.execution_count


def execute(built: Built) -> float:
    """Run a notebook in a fresh kernel and store its outputs; returns the seconds it took.

    Raises `SourceError` if a cell fails or writes to standard error.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    started = time.perf_counter()
    built.path.parent.mkdir(exist_ok=True)  # the kernel starts there
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            built.notebook,
            timeout=SECONDS_PER_CELL,
            kernel_name="python3",
            record_timing=False,
            config=QUIET_KERNEL,
            resources={"metadata": {"path": str(built.path.parent)}},
        )
        try:
            client.execute(env=kernel_environment(Path(folder)))
        except CellExecutionError as error:
            raise SourceError(f"{built.path.name}: a cell failed.\n{error}") from error
    tidy(built.notebook)
    problems = list(course_rules.stderr_problems(built.notebook))
    if problems:
        raise SourceError(f"{built.path.name}: {problems[0]}")
    return time.perf_counter() - started


def kernel_environment(learners_folder: Path) -> dict[str, str]:
    """The environment that committed outputs are made in: one thread, offline, nothing of anybody's kept."""
    env = {key: value for key, value in os.environ.items() if key != "PLOTLY_RENDERER"}
    path = [str(ROOT), *filter(None, [env.get("PYTHONPATH")])]
    return env | {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "MINIKV_CI": "1",
        "MINIKV_HOME": str(learners_folder / "my_minikv"),
        "PYTHONPATH": os.pathsep.join(path),
    }


def tidy(notebook: NotebookNode) -> None:
    """Remove what must not be stored: widget state and views, language details, times."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)


def drift(built: list[Built], root: Path) -> Iterator[str]:
    """One line for each difference, outputs apart, between the notebooks there are and what they must be."""
    for one in built:
        name = one.path.relative_to(root).as_posix()
        if not one.path.exists():
            yield f"{name}: is missing."
            continue
        there = nbformat.read(one.path, as_version=4)
        if there.metadata != one.notebook.metadata:
            yield f"{name}: its metadata differ from what the builder writes."
        if len(there.cells) != len(one.notebook.cells):
            yield f"{name}: has {len(there.cells)} cells, its source gives {len(one.notebook.cells)}."
        for number, (old, new) in enumerate(zip(there.cells, one.notebook.cells, strict=False), 1):
            for part in ("cell_type", "id", "source", "metadata"):
                if old.get(part) != new.get(part):
                    yield f"{name}, cell {number}: {part} differs from its source."
    expected = {one.path for one in built}
    for kind in ("notebooks", "solutions", "exercises"):
        for path in sorted((root / kind).glob("*.ipynb")):
            if path not in expected:
                yield f"{kind}/{path.name}: has no source in src/. Delete it or write its source."


def write(built: Built) -> None:
    """Write a notebook, unless the same is there already."""
    text = nbformat.writes(built.notebook) + "\n"
    if not built.path.exists() or built.path.read_text(encoding="utf-8") != text:
        built.path.parent.mkdir(parents=True, exist_ok=True)
        built.path.write_text(text, encoding="utf-8")


def check(root: Path) -> list[str]:
    """Everything that is wrong with the notebooks under `root`."""
    built = build_all(root)
    problems = [f"{line} Run: python tools/build_course.py --execute" for line in drift(built, root)]
    for one in built:
        if one.path.exists():
            name = one.path.relative_to(root).as_posix()
            problems += [f"{name}: {problem}" for problem in course_rules.problems(one.path, one.secret_lines, root)]
    share = course_rules.Share.of(one.notebook for one in built)
    print(share)
    return problems + ([share.problem] if share.problem else [])


def main(arguments: Iterable[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Build the notebooks of the course from their sources.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if anything drifted")
    parser.add_argument("--execute", nargs="*", metavar="NAME", help="run the notebooks whose path has NAME in it")
    options = parser.parse_args(None if arguments is None else list(arguments))
    try:
        if options.check:
            problems = check(root)
            print("\n".join(problems) or "The notebooks are what their sources say.")
            return 1 if problems else 0
        for one in build_all(root, options.execute or ()):
            name = one.path.relative_to(root).as_posix()
            if one.path.exists():
                keep_outputs(one.notebook, nbformat.read(one.path, as_version=4))
            if options.execute is not None:
                print(f"{name}: {execute(one):.1f} s", flush=True)
            write(one)
    except SourceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
