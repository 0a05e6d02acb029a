"""The export to nbgrader: its structure, and the marks of a right, a half right and an empty hand-in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from ch03_answers import ANSWERS

from minikv.course.declare import Exercise, find

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import export_nbgrader
from build_course import ROOT, SourceError

SOURCES = sorted((ROOT / "solutions" / "src").glob("*.py"))
NBGRADER = "nbgrader==0.9.6"

Out = pytest.CaptureFixture[str]


def marks(notebook: Any) -> dict[str, Any]:
    """Cells by nbgrader's name for them."""
    return {cell.metadata.nbgrader.grade_id: cell for cell in notebook.cells if "nbgrader" in cell.metadata}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_each_chapter_has_what_nbgrader_wants(source: Path) -> None:
    notebook = export_nbgrader.assignment(source)
    nbformat.validate(notebook)
    cells = marks(notebook)
    assert len(cells) == sum("nbgrader" in cell.metadata for cell in notebook.cells)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in cells)
    asked = [exercise_id for exercise_id in map(exercise_of, cells) if exercise_id]
    assert asked and len(asked) == len(set(asked)) == source.read_text(encoding="utf-8").count('tags=["check"]')
    for exercise_id in asked:
        check = cells[f"{exercise_id.replace('.', '-')}-check"]
        answer = cells[f"{exercise_id.replace('.', '-')}-answer"]
        exercise = find(Exercise, exercise_id)
        assert exercise and check.metadata.nbgrader.points == exercise.minutes
        assert check.metadata.nbgrader.locked and check.metadata.nbgrader.grade and "strict=True" in check.source
        assert answer.metadata.nbgrader.solution and not answer.metadata.nbgrader.locked
        assert answer.source.count("### BEGIN SOLUTION") == answer.source.count("### END SOLUTION") > 0
        compile(answer.source, exercise_id, "exec")
    text = "".join(cell.source for cell in notebook.cells)
    assert "# BEGIN SOLUTION ex-" not in text, "a marker of the builder's is left"


def exercise_of(name: str) -> str:
    """The exercise whose check a name stands for."""
    return name.removesuffix("-check").replace("-", ".").replace("ex.", "ex-") if name.endswith("-check") else ""


def test_what_is_locked_and_what_is_not() -> None:
    notebook = export_nbgrader.assignment(ROOT / "solutions" / "src" / "03_pages.py")
    names = [cell.metadata.get("nbgrader", {}).get("grade_id", "") for cell in notebook.cells]
    last = names.index("ex-3-3-check")
    open_before = [name for name, cell in zip(names[:last], notebook.cells, strict=False) if not locked(cell)]
    assert open_before == ["ex-3-1-answer", "ex-3-2-answer", "ex-3-3-answer"]
    assert not any(names[last + 1 :]), "behind the last check everything is the student's"
    assert names[0] == "grading-home" and "NBGRADER_EXECUTION" in notebook.cells[0].source


def locked(cell: Any) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("locked"))


HEAD = '# %% tags=["exercise"]\n# BEGIN SOLUTION ex-3.1: two numbers\nfirst = 1\nsecond = 2\n# END SOLUTION\n'


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def source(text: str) -> Path:
        path = tmp_path / "solutions" / "src" / "03_x.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return source


def test_values_begin_as_dots(write: Any, tmp_path: Path) -> None:
    source = write(f'{HEAD}\n# %% tags=["check"]\ncheck("ex-3.1", (first, second))  # both\n')
    cells = marks(export_nbgrader.assignment(source, tmp_path))
    lines = cells["ex-3-1-answer"].source.splitlines()
    assert lines[:4] == ["# ex-3.1: two numbers", "first = ...", "second = ...", "### BEGIN SOLUTION"]
    asked = cells["ex-3-1-check"].source.splitlines()
    assert asked[-1] == "check('ex-3.1', (first, second), strict=True)  # both"


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ('# %% tags=["check"]\nprint("no check")\n', "holds one call"),
        ('# %% tags=["check"]\ncheck("ex-3.1", 1)\ncheck("ex-3.2", 1)\n', "holds one call"),
        ('# %% tags=["check"]\ncheck("ex-3.99", first)\n', "holds one call"),
        ("# %%\nprint()\n", "nothing can be marked"),
    ],
)
def test_a_chapter_that_cannot_be_marked(write: Any, tmp_path: Path, cell: str, why: str) -> None:
    with pytest.raises(SourceError, match=why):
        export_nbgrader.assignment(write(f"{HEAD}\n{cell}"), tmp_path)


def test_the_command(tmp_path: Path, capsys: Out) -> None:
    assert export_nbgrader.main([str(tmp_path), "03", "08"]) == 0
    assert capsys.readouterr().out.startswith("03_pages: 3 checks, ")
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*") if path.is_file()}
    assert {name for name in written if "/assets/" not in name} == {
        "nbgrader_config.py",
        "source/03_pages/03_pages.ipynb",
        "source/08_seven_stale_pages/08_seven_stale_pages.ipynb",
    }
    assert "source/03_pages/assets/configs/sources.json" in written
    assert export_nbgrader.main([str(tmp_path), "no such chapter"]) == 1


READ_MARKS = """
import json, sys
from nbgrader.api import Gradebook
with Gradebook("sqlite:///gradebook.db") as book:
    print(json.dumps({
        hand_in.student.id: {grade.name: grade.score for book_ in hand_in.notebooks for grade in book_.grades}
        for hand_in in book.assignment_submissions("03_pages")
    }))
"""


def hand_in(folder: Path, student: str, answers: dict[str, str], extra: str = "") -> None:
    """What a student gives back: the released notebook with some answers written into it."""
    released = nbformat.read(folder / "release" / "03_pages" / "03_pages.ipynb", as_version=4)
    assert "BEGIN SOLUTION" not in nbformat.writes(released) and "divmod" not in nbformat.writes(released)
    cells = marks(released)
    for name, text in answers.items():
        cells[name].source = text
    cells["ex-3-2-check"].source += extra
    path = folder / "submitted" / student / "03_pages" / "03_pages.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(nbformat.writes(released), encoding="utf-8")


@pytest.mark.more
def test_a_round_trip_through_nbgrader(tmp_path: Path) -> None:
    env = os.environ | {"OMP_NUM_THREADS": "1", "MINIKV_HOME": ""}
    env |= {name: str(tmp_path / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")}
    venv = tmp_path / "venv"
    bin_ = venv / ("Scripts" if os.name == "nt" else "bin")
    env["PATH"] = f"{bin_}{os.pathsep}{env['PATH']}"  # nbgrader looks for its alembic there

    def run(*command: str | Path, folder: Path = tmp_path) -> str:
        done = subprocess.run([*map(str, command)], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, "-m", "venv", venv)
    run(bin_ / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", NBGRADER)
    # minikv and torch are not installed a second time: the new environment looks into this one too.
    here = run(sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    there = run(bin_ / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (Path(there) / "this.pth").write_text(f"import site; site.addsitedir({here!r})\n", encoding="utf-8")
    folder = tmp_path / "class"
    export_nbgrader.export(folder, ["03"])
    run(bin_ / "nbgrader", "generate_assignment", "03_pages", folder=folder)
    solved = marks(nbformat.read(folder / "source" / "03_pages" / "03_pages.ipynb", as_version=4))
    right = {name: cell.source for name, cell in solved.items() if name.endswith("-answer")}
    wrong = next(source for source, kind in ANSWERS["ex-3.2"].wrong.values() if kind == "partial")
    hand_in(folder, "ada", right)
    hand_in(folder, "bob", {**right, "ex-3-2-answer": wrong}, extra="\ncheck = print  # a check may not be edited")
    hand_in(folder, "eve", {"ex-3-1-answer": right["ex-3-1-answer"]})
    hand_in(folder, "nil", {})
    run(bin_ / "nbgrader", "autograde", "03_pages", folder=folder)
    found = json.loads(run(bin_ / "python", "-c", READ_MARKS, folder=folder))
    minutes = {number: find(Exercise, f"ex-3.{number}").minutes for number in (1, 2, 3)}  # type: ignore[union-attr]
    full = {f"ex-3-{number}-check": float(points) for number, points in minutes.items()}
    assert found == {
        "ada": full,
        "bob": {**full, "ex-3-2-check": 0.0},
        "eve": {**full, "ex-3-2-check": 0.0, "ex-3-3-check": 0.0},
        "nil": dict.fromkeys(full, 0.0),
    }
    assert not list(folder.rglob("my_minikv")), "grading keeps nobody's parts"
    shutil.rmtree(venv)  # 340 MB that pytest would keep
