"""`minikv course status` and `minikv course reset`: nothing of the learner's is ever lost."""

from __future__ import annotations

import copy as copying
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from minikv.cli import main
from minikv.course import check, predict
from minikv.course.chapters import ch03
from minikv.course.copy import checkout, start
from minikv.course.reset import NothingToReset, reset

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


@pytest.mark.parametrize("exercise", ["ex-3.9", "3.9", "3", "", "ex-99.1", "../x"])
def test_an_unknown_exercise(exercise: str, copy: Path, capsys: Out) -> None:
    assert main(["course", "reset", exercise]) == 1
    assert "minikv: There is no exercise" in capsys.readouterr().err


def test_the_number_alone_will_do(copy: Path, capsys: Out) -> None:
    """`status` prints 3.2, so 3.2 may be typed."""
    assert main(["course", "reset", "3.2"]) == 0
    assert "ex-3.2 in 03_pages.ipynb" in capsys.readouterr().out


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


# reset: exactly one cell of the exercise is left, and it is the stub

Cells = list[dict[str, Any]]
MINE = "def pages_and_empty(tokens, page_size):\n    return 'mine'\n"


def notebook(copy: Path) -> Path:
    return copy / "exercises" / "03_pages.ipynb"


def cells_of(copy: Path) -> Cells:
    cells: Cells = json.loads(notebook(copy).read_text(encoding="utf-8"))["cells"]
    return cells


def the_stub(cells: Cells) -> int:
    return next(index for index, cell in enumerate(cells) if "def pages_and_empty" in "".join(cell["source"]))


def code(source: str, **more: Any) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source, **more}


def stub_is_last_to_run(copy: Path) -> None:
    """What runs and defines the function is the stub, then comes its check; what was there is in .old1."""
    cells = cells_of(copy)
    running = [i for i, one in enumerate(cells) if one["cell_type"] == "code"]
    defines = [i for i in running if "pages_and_empty" in "".join(cells[i]["source"]) and "def " in str(cells[i])]
    assert STUB in "".join(cells[defines[-1]]["source"]) and len(defines) == 1
    checks = [i for i in running if 'check("ex-3.1", pages_and_empty)' in "".join(cells[i]["source"])]
    assert len(checks) == 1 and checks[0] > defines[0]


def without_ids(cells: Cells) -> None:
    for cell in cells:
        del cell["id"]


def copy_of_the_stub_kept(cells: Cells) -> None:
    at = the_stub(cells)
    cells.append({**copying.deepcopy(cells[at]), "id": "another"})
    cells[at]["source"] = MINE


def answer_in_a_later_cell(cells: Cells) -> None:
    cells.insert(the_stub(cells) + 1, code(MINE, id="mine"))


def same_id_twice(cells: Cells) -> None:
    at = the_stub(cells)
    cells[at]["source"] = MINE
    cells.insert(at + 2, {**copying.deepcopy(cells[at]), "source": "MINE = 'second'\n"})


def no_ids(cells: Cells) -> None:
    cells[the_stub(cells)]["source"] = MINE
    without_ids(cells)


def no_ids_and_another_name(cells: Cells) -> None:
    cells[the_stub(cells)]["source"] = "def my_own(tokens, page_size):\n    return 'mine'\n"
    without_ids(cells)


def no_ids_and_no_check(cells: Cells) -> None:
    no_ids(cells)
    del cells[the_stub(cells) + 1]


def answer_and_check_in_one(cells: Cells) -> None:
    at = the_stub(cells)
    cells[at]["source"] = MINE + '\ncheck("ex-3.1", pages_and_empty)'
    del cells[at + 1]
    without_ids(cells)


def stub_deleted_answer_elsewhere(cells: Cells) -> None:
    at = the_stub(cells)
    cells[at] = code("%%time\n" + MINE, id="mine")


def stub_turned_into_text(cells: Cells) -> None:
    at = the_stub(cells)
    cells[at]["cell_type"] = "markdown"
    cells.insert(at + 1, code("pages_and_empty = lambda tokens, page_size: 'def mine'", id="mine"))


def imported(cells: Cells) -> None:
    cells.append(code("from my_answers import pages_and_empty  # def mine", id="mine"))


def all_deleted(cells: Cells) -> None:
    cells[:] = [code(MINE)]


def nothing_left(cells: Cells) -> None:
    cells.clear()


@pytest.mark.parametrize(
    "done",
    [
        copy_of_the_stub_kept,
        answer_in_a_later_cell,
        same_id_twice,
        no_ids,
        no_ids_and_another_name,
        no_ids_and_no_check,
        answer_and_check_in_one,
        stub_deleted_answer_elsewhere,
        stub_turned_into_text,
        imported,
        all_deleted,
        nothing_left,
    ],
)
def test_after_a_reset_the_stub_is_what_runs(done: Any, copy: Path) -> None:
    edit(copy, done)
    before = notebook(copy).read_bytes()
    told = reset("ex-3.1", copy)
    assert "is as it was handed out. What you had is in 03_pages.old1.ipynb" in told[0]
    assert notebook(copy).with_name("03_pages.old1.ipynb").read_bytes() == before
    stub_is_last_to_run(copy)
    again = notebook(copy).read_bytes()
    assert reset("ex-3.1", copy) == ["ex-3.1 in 03_pages.ipynb is as it was handed out."]
    assert notebook(copy).read_bytes() == again


def test_what_would_run_later_is_kept_as_text_and_said(copy: Path) -> None:
    edit(copy, copy_of_the_stub_kept)
    assert any("Another cell defines pages_and_empty too" in line for line in reset("ex-3.1", copy))
    assert [STUB in "".join(cell["source"]) for cell in cells_of(copy) if cell["cell_type"] == "raw"] == [True]

    edit(copy, same_id_twice)
    assert any("has the id of the one that was handed out" in line for line in reset("ex-3.1", copy))
    raw = [cell for cell in cells_of(copy) if cell["cell_type"] == "raw"]
    assert any("second" in "".join(cell["source"]) for cell in raw)
    ids = [cell["id"] for cell in cells_of(copy)]
    assert len(set(ids)) == len(ids) and not any("outputs" in cell for cell in raw)


def test_a_cell_of_another_exercise_stays_and_is_named(copy: Path) -> None:
    def both(cells: Cells) -> None:
        other = next(cell for cell in cells if "class Allocator" in "".join(cell["source"]))
        other["source"] = MINE + "\nclass Allocator:\n    pass\n"

    edit(copy, both)
    assert any("Beware" in line and "defines pages_and_empty too" in line for line in reset("ex-3.1", copy))
    assert any("".join(cell["source"]).startswith(MINE) for cell in cells_of(copy) if cell["cell_type"] == "code")


@pytest.mark.parametrize("exercise", ["ex-1.1", "ex-2.2", "ex-4.2", "ex-5.1", "ex-6.1", "ex-7.2", "ex-8.3"])
def test_without_ids_every_exercise_comes_back(exercise: str, copy: Path) -> None:
    pristine = next((checkout() / "exercises").glob(f"0{exercise[3]}_*.ipynb"))
    mine = copy / "exercises" / pristine.name
    content = json.loads(mine.read_text(encoding="utf-8"))
    handed_out = ["".join(cell["source"]) for cell in content["cells"]]
    for cell in content["cells"]:
        del cell["id"]
        if "exercise" in cell["metadata"].get("tags", []):
            lines = "".join(cell["source"]).splitlines(keepends=True)
            cell["source"] = [line for line in lines if "NotImplementedError" not in line] + ["    answer = 1\n"]
    content["nbformat_minor"] = 4
    mine.write_text(json.dumps(content), encoding="utf-8")
    reset(exercise, copy)
    after = json.loads(mine.read_text(encoding="utf-8"))["cells"]
    assert not any("id" in cell for cell in after) and len(after) == len(handed_out)
    for was, cell in zip(handed_out, after, strict=True):
        assert ("".join(cell["source"]) == was) == (f"{exercise}:" in was or "raise NotImplementedError" not in was)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe{}",
        b"",
        b"[]",
        b'{"cells": {"a": 1}}',
        b'{"cells": [1]}',
        b'{"cells": [{"cell_type": "code", "source": null}]}',
        b'{"cells": [{"cell_type": "code", "source": [1]}]}',
        b'{"cells": [{"cell_type": "code"}]}',
        b"[" * 100_000,
        b'{"cells": [], "metadata": ' + b"[" * 960 + b"]" * 960 + b"}",
    ],
)
def test_no_notebook_is_changed_that_cannot_be_read(content: bytes, copy: Path) -> None:
    notebook(copy).write_bytes(content)
    try:
        reset("ex-3.1", copy)
    except NothingToReset as error:
        assert "Move it away; minikv course start then brings a fresh one" in str(error)
        assert notebook(copy).read_bytes() == content
        assert not list((copy / "exercises").glob("*.old*"))
    else:  # nested, and not too deeply
        assert notebook(copy).with_name("03_pages.old1.ipynb").read_bytes() == content


@pytest.mark.parametrize("odd", [{"metadata": None}, {"metadata": {"tags": None}}, {"id": [1]}, {"id": None}])
def test_odd_cells_do_no_harm(odd: dict[str, Any], copy: Path) -> None:
    edit(copy, lambda cells: (answer(cells), cells.append(code("x = '\ud800'\x00", **odd))))
    reset("ex-3.1", copy)
    stub_is_last_to_run(copy)
    assert cells_of(copy)[-1]["source"] == "x = '\ud800'\x00"


def test_a_reset_keeps_mode_and_link(copy: Path, tmp_path: Path) -> None:
    edit(copy, answer)
    notebook(copy).chmod(0o640)
    real = tmp_path / "elsewhere.ipynb"
    notebook(copy).rename(real)
    notebook(copy).symlink_to(real)
    reset("ex-3.1", copy)
    assert notebook(copy).is_symlink() and STUB in real.read_text().replace('\\"', '"')
    assert real.stat().st_mode & 0o777 == 0o640
    assert notebook(copy).with_name("03_pages.old1.ipynb").stat().st_mode & 0o777 == 0o640
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"elsewhere.ipynb"}


def test_a_reset_never_writes_into_the_course(copy: Path) -> None:
    pristine = checkout() / "exercises" / "03_pages.ipynb"
    before = pristine.read_bytes()
    notebook(copy).unlink()
    notebook(copy).symlink_to(pristine)
    with pytest.raises(NothingToReset, match="of the course itself"):
        reset("ex-3.1", copy)
    assert pristine.read_bytes() == before and not list((copy / "exercises").glob("*.old*"))


def test_a_write_that_fails_leaves_the_notebook(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(copy, answer)
    before = notebook(copy).read_bytes()

    def full(*_paths: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        reset("ex-3.1", copy)
    assert notebook(copy).read_bytes() == before
    assert not [path for path in (copy / "exercises").iterdir() if path.name.startswith(".")]


def test_resets_at_the_same_time_lose_nothing(copy: Path) -> None:
    def all_answered(cells: Cells) -> None:
        for number, cell in enumerate(cells):
            if "exercise" in cell["metadata"].get("tags", []):
                cell["source"] = f"MINE = {number}"

    edit(copy, all_answered)
    before = notebook(copy).read_bytes()
    threads = [threading.Thread(target=reset, args=(f"ex-3.{number}", copy)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "MINE" not in notebook(copy).read_text()
    kept = sorted((copy / "exercises").glob("*.old*"))
    assert len(kept) == 3 and before in [path.read_bytes() for path in kept]


def test_a_kept_part_that_is_a_link_to_nothing_is_put_aside(copy: Path, learner: Path) -> None:
    learner.mkdir(exist_ok=True)
    (learner / "ex_3_1.py").symlink_to("nowhere.py")
    (learner / "ex_3_1.old1.py").symlink_to("nowhere.py")
    assert reset("ex-3.1", copy)[-1] == "Your kept part is now my_minikv/ex_3_1.old2.py."
