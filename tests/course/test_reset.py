"""`minikv course status` and `minikv course reset`: nothing of the learner's is ever lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minikv.cli import main
from minikv.course import check, predict
from minikv.course.chapters import ch03
from minikv.course.copy import start

STUB = 'raise NotImplementedError("ex-3.1: pages and empty slots, about 2 lines")'
Out = pytest.CaptureFixture[str]


@pytest.fixture
def copy(learner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A learner's copy of the real course, and the working directory inside of it."""
    place = start(tmp_path / "my course é", quiet=True)
    monkeypatch.chdir(place / "exercises")
    return place


def exercise_cell(copy: Path, name: str = "pages_and_empty") -> dict[str, Any]:
    cells = json.loads((copy / "exercises" / "03_pages.ipynb").read_text())["cells"]
    return next(cell for cell in cells if f"def {name}" in "".join(cell["source"]))


def edit(copy: Path, change: Any) -> None:
    path = copy / "exercises" / "03_pages.ipynb"
    notebook = json.loads(path.read_text())
    change(notebook["cells"])
    path.write_text(json.dumps(notebook))


def answer(cells: list[dict[str, Any]]) -> None:
    for cell in cells:
        cell["source"] = "".join(cell["source"]).replace(STUB, "return -(-tokens // page_size), 0")


def keep_a_part(learner: Path) -> Path:
    learner.mkdir(exist_ok=True)
    part = learner / "ex_3_1.py"
    part.write_text("# ex-3.1 pages_and_empty: yours\ndef pages_and_empty(tokens, page_size): ...\n")
    return part


def test_reset_brings_the_stub_back_and_puts_the_rest_aside(copy: Path, learner: Path, capsys: Out) -> None:
    edit(copy, answer)
    part = keep_a_part(learner)
    written = part.read_text()
    assert main(["course", "reset", "ex-3.1"]) == 0
    out = capsys.readouterr().out
    assert "03_pages.old1.ipynb" in out and "my_minikv/ex_3_1.old1.py" in out
    assert STUB in "".join(exercise_cell(copy)["source"])
    assert "return -(-tokens" in (copy / "exercises" / "03_pages.old1.ipynb").read_text()
    assert not part.exists() and (learner / "ex_3_1.old1.py").read_text() == written


def test_reset_again_puts_aside_under_another_name(copy: Path) -> None:
    for _turn in range(2):
        edit(copy, answer)
        assert main(["course", "reset", "ex-3.1"]) == 0
    assert (copy / "exercises" / "03_pages.old2.ipynb").exists()


def test_reset_leaves_other_exercises_alone(copy: Path) -> None:
    def both(cells: list[dict[str, Any]]) -> None:
        answer(cells)
        for cell in cells:
            cell["source"] = "".join(cell["source"]) + (
                "\n# mine" if "class Allocator" in "".join(cell["source"]) else ""
            )

    edit(copy, both)
    assert main(["course", "reset", "ex-3.1"]) == 0
    cells = json.loads((copy / "exercises" / "03_pages.ipynb").read_text())["cells"]
    assert any("".join(cell["source"]).endswith("# mine") for cell in cells)


def test_reset_forgets_what_the_check_said(copy: Path, learner: Path, capsys: Out) -> None:
    """Not only the cell: its check's output, and what `status` says, also from the folder above the copy."""

    def checked(cells: list[dict[str, Any]]) -> None:
        answer(cells)
        cell = next(cell for cell in cells if 'check("ex-3.1"' in "".join(cell["source"]))
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "[ok] ex-3.1"}]

    edit(copy, checked)
    keep_a_part(learner)
    assert main(["course", "reset", "ex-3.1"]) == 0
    assert "[ok] ex-3.1" not in (copy / "exercises" / "03_pages.ipynb").read_text()
    capsys.readouterr()
    main(["course", "status"])
    assert "[ ] 3.1" in capsys.readouterr().out


def test_a_deleted_cell_comes_back(copy: Path) -> None:
    edit(copy, lambda cells: cells.remove(next(c for c in cells if "def pages_and_empty" in "".join(c["source"]))))
    assert main(["course", "reset", "ex-3.1"]) == 0
    cells = json.loads((copy / "exercises" / "03_pages.ipynb").read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    stub = next(index for index, source in enumerate(sources) if STUB in source)
    assert sources[stub + 1] == 'check("ex-3.1", pages_and_empty)'


def test_from_the_folder_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    """Where the README's commands are run: the parts are those of the copy, and none appear elsewhere."""
    monkeypatch.delenv("MINIKV_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    place = start(quiet=True).resolve()
    keep_a_part(place / "my_minikv")
    main(["course", "status"])
    assert "[ok] 3.1" in capsys.readouterr().out
    assert main(["course", "reset", "ex-3.1"]) == 0
    main(["course", "status"])
    out = capsys.readouterr().out
    assert "[ ] 3.1" in out and "my_minikv/ex_3_1.old1.py" in out
    monkeypatch.chdir(place / "notebooks")
    assert start(quiet=True).resolve() == place.resolve() and not (place / "notebooks" / "my_course").exists()
    other = start(tmp_path / "other", quiet=True)
    keep_a_part(other / "my_minikv")
    assert main(["course", "reset", "ex-3.1", "--target", str(other)]) == 0
    assert not (other / "my_minikv" / "ex_3_1.py").exists()


def test_reset_of_an_untouched_exercise_makes_no_copies(copy: Path, capsys: Out) -> None:
    assert main(["course", "reset", "ex-3.1"]) == 0
    assert "as it was handed out" in capsys.readouterr().out
    assert not list((copy / "exercises").glob("*.old*"))


@pytest.mark.parametrize("exercise", ["ex-3.9", "3.2", "", "ex-99.1", "../x"])
def test_an_unknown_exercise(exercise: str, copy: Path, capsys: Out) -> None:
    assert main(["course", "reset", exercise]) == 1
    assert "minikv: There is no exercise" in capsys.readouterr().err


def test_a_notebook_that_cannot_be_read(copy: Path, capsys: Out) -> None:
    path = copy / "exercises" / "03_pages.ipynb"
    path.write_text("{")
    assert main(["course", "reset", "ex-3.1"]) == 1
    assert "cannot be read as a notebook" in capsys.readouterr().err and path.read_text() == "{"
    path.unlink()
    assert main(["course", "reset", "ex-3.1"]) == 1
    assert "has no notebook with ex-3.1" in capsys.readouterr().err


def test_without_a_copy(tmp_path: Path, learner: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["course", "reset", "ex-3.1"]) == 1
    assert "To make one: minikv course start my_course" in capsys.readouterr().err


def test_status_knows_predictions_and_exercises(copy: Path, cell: Any, learner: Path, capsys: Out) -> None:
    assert main(["course", "status"]) == 0
    assert "[ok]" not in capsys.readouterr().out
    predict("p-3.1", "A")
    source = "def pages_and_empty(tokens, page_size):\n    return -(-tokens // page_size), -tokens % page_size\n"
    check("ex-3.1", cell(source, "pages_and_empty"))
    capsys.readouterr()
    assert main(["course", "status"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("03 "))
    assert "1 of 3" in line and "[ok] 3.1  [ ] 3.2" in line


def test_status_of_a_kept_answer_that_is_no_definition(learner: Path, capsys: Out) -> None:
    check("ex-3.1", ch03.REFERENCE["ex-3.1"])
    main(["course", "status"])
    assert "[ok] 3.1" in capsys.readouterr().out
