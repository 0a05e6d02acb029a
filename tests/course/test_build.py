"""The builder, the rules for committed notebooks, nbval's sanitizer, and the learner's own copy."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from minikv.course import copy as copying
from minikv.course.copy import CourseNotFound, start
from minikv.course.preflight import MANIFEST

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import build_course

REPOSITORY = build_course.ROOT

Out = pytest.CaptureFixture[str]

LESSON = """\
# %% [markdown]
# # Pages

# %% name="first"
print("pages")

# %% tags=["answers-prediction"]
print("the answer is 14")
"""

SOLUTION = '''\
# %% [markdown]
# ### Exercise 3.1

# %% tags=["exercise"]
def pages_needed(tokens, page_size):
    """Pages for so many tokens."""
    # BEGIN SOLUTION ex-3.1: round up, about 2 lines
    whole, rest = divmod(tokens, page_size)
    return whole + (rest > 0)
    # END SOLUTION

# %% tags=["exercise"]
# BEGIN SOLUTION ex-3.2: a number
stale_pages_counted = 3 + 4
# END SOLUTION

# %% tags=["check"]
try:
    print(pages_needed(65, 64), stale_pages_counted)
except NotImplementedError as todo:
    print("[ ]", todo)

# %% [markdown] tags=["solution-only"]
# Rounding floats goes wrong above 2**53.

# %% tags=["exercise-only"]
print("your turn")
'''


@pytest.fixture
def course(tmp_path: Path) -> Path:
    for folder, text in (("notebooks", LESSON), ("solutions", SOLUTION)):
        (tmp_path / folder / "src").mkdir(parents=True)
        (tmp_path / folder / "src" / "03_pages.py").write_text(text)
    return tmp_path


def edit(root: Path, folder: str, old: str, new: str) -> None:
    path = root / folder / "src" / "03_pages.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def notebook(root: Path, kind: str) -> Any:
    return nbformat.read(root / kind / "03_pages.ipynb", as_version=4)


def sources(root: Path, kind: str) -> list[str]:
    return [cell.source for cell in notebook(root, kind).cells]


def pretend_it_ran(root: Path) -> None:
    """Outputs without a kernel: the tests that need one run one."""
    for kind in ("notebooks", "solutions", "exercises"):
        content = notebook(root, kind)
        for count, cell in enumerate((c for c in content.cells if c.cell_type == "code"), 1):
            cell.execution_count = count
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=f"{kind} {count}\n")]
        (root / kind / "03_pages.ipynb").write_text(nbformat.writes(content) + "\n")


def run(root: Path, *arguments: str) -> int:
    return build_course.main(arguments, root)


@pytest.fixture
def built(course: Path) -> Path:
    assert run(course) == 0
    pretend_it_ran(course)
    return course


def change(root: Path, kind: str, alter: Any) -> None:
    content = notebook(root, kind)
    alter(content)
    (root / kind / "03_pages.ipynb").write_text(nbformat.writes(content) + "\n")


def test_solution_and_exercise_come_from_one_source(built: Path) -> None:
    solution, exercise = sources(built, "solutions"), sources(built, "exercises")
    assert "SOLUTION" not in "".join(solution + exercise)
    assert "divmod" in solution[1] and "divmod" not in exercise[1]
    assert exercise[1].endswith('    raise NotImplementedError("ex-3.1: round up, about 2 lines")')
    assert solution[2] == "stale_pages_counted = 3 + 4"
    assert exercise[2] == "stale_pages_counted = ...  # ex-3.2: a number"
    assert "Rounding floats" in solution[-1] and exercise[-1] == 'print("your turn")'


def test_cells_tags_ids_and_metadata(built: Path) -> None:
    lesson = notebook(built, "notebooks")
    assert set(lesson.metadata) == {"kernelspec", "language_info"}
    assert lesson.cells[2].metadata == {"tags": ["answers-prediction"], "jupyter": {"outputs_hidden": True}}
    ids = [cell.id for kind in ("notebooks", "solutions", "exercises") for cell in notebook(built, kind).cells]
    assert len(set(ids)) == len(ids)


def test_a_name_keeps_the_id_when_the_cell_moves(built: Path) -> None:
    before = {cell.source: cell.id for cell in notebook(built, "notebooks").cells}
    edit(
        built,
        "notebooks",
        "# %% [markdown]\n# # Pages\n",
        "# %% [markdown]\n# # Pages\n\n# %% [markdown]\n# new\n",
    )
    run(built)
    after = {cell.source: cell.id for cell in notebook(built, "notebooks").cells}
    assert after['print("pages")'] == before['print("pages")']


def test_building_again_changes_nothing_and_keeps_outputs(built: Path) -> None:
    before = {path: path.read_bytes() for path in built.rglob("*.ipynb")}
    assert run(built) == 0
    assert {path: path.read_bytes() for path in built.rglob("*.ipynb")} == before
    edit(built, "notebooks", 'print("pages")', 'print("more pages")')
    assert run(built) == 0
    _, changed, same = notebook(built, "notebooks").cells
    assert changed.outputs == [] and changed.execution_count is None
    assert same.outputs[0].text == "notebooks 2\n"


def test_check_is_content_and_prints_the_share(built: Path, capsys: Out) -> None:
    assert run(built, "--check") == 0
    assert "0 of 9 code cells" in capsys.readouterr().out


def drop_id(content: Any) -> None:
    content.cells[0].id = "other"


def drop_tag(content: Any) -> None:
    content.cells[2].metadata.pop("jupyter")


def change_source(content: Any) -> None:
    content.cells[1].source += "\nprint()"


def drop_cell(content: Any) -> None:
    content.cells.pop()


def add_metadata(content: Any) -> None:
    content.metadata["colab"] = {}


def save_widgets(content: Any) -> None:
    content.metadata["widgets"] = {"state": {}}


def forget_run(content: Any) -> None:
    content.cells[1].execution_count = None
    content.cells[1].outputs = []


def write_stderr(content: Any) -> None:
    content.cells[1].outputs = [nbformat.v4.new_output("stream", name="stderr", text="UserWarning: old\n")]


def write_path(content: Any) -> None:
    content.cells[1].outputs[0].text = "loaded /home/ada/model.bin\n"


def write_here(content: Any) -> None:
    content.cells[1].outputs[0].text = f"loaded {sys.prefix}/lib\n"


def write_error(content: Any) -> None:
    content.cells[1].outputs = [nbformat.v4.new_output("error", ename="KeyError", evalue="", traceback=[])]


def write_much(content: Any) -> None:
    content.cells[1].outputs[0].text = "x" * 600_000


@pytest.mark.parametrize(
    ("alter", "said"),
    [
        (drop_id, "cell 1: id differs"),
        (drop_tag, "cell 3: metadata differs"),
        (change_source, "cell 2: source differs"),
        (drop_cell, "has 2 cells, its source gives 3"),
        (add_metadata, "its metadata differ"),
        (save_widgets, "saved widget state"),
        (forget_run, "cell 2 was not run"),
        (write_stderr, "writes to standard error (UserWarning: old)"),
        (write_path, "a path of one machine (/home/ada"),
        (write_here, "a path of one machine"),
        (write_error, "holds an error (KeyError)"),
        (write_much, "the limit is 500,000"),
    ],
)
def test_check_names_every_drift(alter: Any, said: str, built: Path, capsys: Out) -> None:
    change(built, "notebooks", alter)
    assert run(built, "--check") == 1
    out = capsys.readouterr().out
    assert said in out and "notebooks/03_pages.ipynb" in out


def test_no_false_alarm_for_markup_and_addresses(built: Path) -> None:
    def harmless(content: Any) -> None:
        content.cells[1].outputs[0].text = "<td>1</td> POST http://127.0.0.1/v1/chat and/or my_minikv/ex_3_2.py 3/4\n"

    change(built, "notebooks", harmless)
    assert run(built, "--check") == 0


def test_missing_and_orphaned_notebooks(built: Path, capsys: Out) -> None:
    (built / "notebooks" / "03_pages.ipynb").rename(built / "notebooks" / "09_old.ipynb")
    assert run(built, "--check") == 1
    out = capsys.readouterr().out
    assert "notebooks/03_pages.ipynb: is missing" in out and "notebooks/09_old.ipynb: has no source" in out


@pytest.mark.parametrize("where", ["source", "output", "metadata"])
def test_a_solution_line_in_an_exercise(where: str, built: Path, capsys: Out) -> None:
    secret = "return whole + (rest > 0)"

    def leak(content: Any) -> None:
        if where == "source":
            content.cells[0].source += f"\nHint: `{secret}`"
        elif where == "output":
            content.cells[3].outputs[0].text = secret
        else:
            content.cells[3].metadata["note"] = {"text": secret}

    change(built, "exercises", leak)
    assert run(built, "--check") == 1
    assert f"exercises/03_pages.ipynb: shows a line of the solution: {secret!r}" in capsys.readouterr().out


def test_a_line_that_is_also_given_is_no_leak(course: Path) -> None:
    edit(course, "solutions", 'print("your turn")', "whole, rest = divmod(tokens, page_size)")
    run(course)
    pretend_it_ran(course)
    assert run(course, "--check") == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    # END SOLUTION\n", "", "begins and never ends"),
        ('# END SOLUTION\n\n# %% tags=["check"]', '# %% tags=["check"]', "begins and never ends"),
        ("    # BEGIN SOLUTION ex-3.1: round up, about 2 lines\n", "", "has no partner"),
        ("    whole, rest", "    # BEGIN SOLUTION ex-3.1: again\n    whole, rest", "has no partner"),
        ("# BEGIN SOLUTION ex-3.2: a number", "# BEGIN SOLUTION", "write `# BEGIN SOLUTION ex-3.2"),
        ("# BEGIN SOLUTION ex-3.2: a number", "# Begin solution ex-3.2: a number", "misspelt"),
        ("stale_pages_counted = 3 + 4", "print(7)", "may only assign names"),
        ('tags=["check"]', 'tags=["chekc"]', "unknown tag 'chekc'"),
        ('tags=["check"]', 'tag=["check"]', "tag is no cell option"),
        ('tags=["check"]', 'tags=["nbval-skip"]', "needs a reason"),
        ('tags=["check"]', 'tags=["live"]', "Add the tag nbval-ignore-output"),
        ('print("your turn")', "print()  # NBVAL_IGNORE_OUTPUT", "use a tag instead"),
    ],
)
def test_a_source_that_cannot_be_built(old: str, new: str, said: str, course: Path, capsys: Out) -> None:
    edit(course, "solutions", old, new)
    assert run(course) == 1
    err = capsys.readouterr().err
    assert said in err and "solutions/src/03_pages.py, cell" in err


def test_two_cells_of_one_name(course: Path, capsys: Out) -> None:
    edit(course, "notebooks", '# %% tags=["answers-prediction"]', '# %% name="first"')
    assert run(course) == 1
    assert "'first' is taken" in capsys.readouterr().err


def test_at_most_one_cell_in_ten_is_exempt(course: Path, capsys: Out) -> None:
    edit(course, "notebooks", 'name="first"', 'tags=["live", "nbval-ignore-output"]')
    run(course)
    pretend_it_ran(course)
    assert run(course, "--check") == 0
    edit(course, "notebooks", '["answers-prediction"]', '["answers-prediction", "nbval-ignore-output"]')
    run(course)
    pretend_it_ran(course)
    assert run(course, "--check") == 1
    assert "1 of 9 code cells are not compared, at most 10% may be" in capsys.readouterr().out


def test_execute_stores_outputs_and_finds_red_cells(course: Path, capsys: Out) -> None:
    edit(course, "notebooks", 'print("pages")', 'import os; print(os.environ["OMP_NUM_THREADS"])')
    edit(course, "notebooks", "the answer is 14", "the folder is new")
    assert run(course, "--execute", "notebooks/03") == 0
    assert "notebooks/03_pages.ipynb: " in capsys.readouterr().out
    _, first, second = notebook(course, "notebooks").cells
    assert first.outputs[0].text == "1\n" and (first.execution_count, second.execution_count) == (1, 2)
    assert set(first.metadata) == set()
    edit(
        course,
        "notebooks",
        "the folder is new",
        "x",
    )
    edit(course, "notebooks", 'print("x")', "import warnings; warnings.warn('old')")
    assert run(course, "--execute", "notebooks/03") == 1
    assert "writes to standard error" in capsys.readouterr().err
    assert second.outputs == notebook(course, "notebooks").cells[2].outputs


def test_the_real_notebooks_are_what_their_sources_say(capsys: Out) -> None:
    assert build_course.check(REPOSITORY) == []


def test_every_rule_of_the_sanitizer_is_read_and_works() -> None:
    from nbval.plugin import get_sanitize_patterns

    text = (REPOSITORY / "tests" / "nbval.cfg").read_text()
    rules = get_sanitize_patterns(text)
    assert len(rules) == text.count("\nregex: ") == 4
    samples = {
        "took 12.5 s": "took TIME",
        "3 seconds": "TIME",
        "41.3 tokens/s": "SPEED",
        "<object at 0x7f630af559e0>": "<object at ADDRESS>",
        "'uid': '0a1b2c3d-1111-2222-3333-0123456789ab'": "'uid': UID",
        "7 stale pages, 489 slots": "7 stale pages, 489 slots",
    }
    for before, after in samples.items():
        for rule, replacement in dict(rules).items():
            before = re.sub(rule, replacement, before)
        assert before == after


# the learner's own copy


@pytest.fixture
def mine(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    (built / "minikv").mkdir()
    (built / "assets").mkdir()
    (built / "assets" / "picture.png").write_bytes(b"\x89PNG")
    place = tmp_path_factory.mktemp("home") / "mein Kürs"
    return start(place, quiet=True, source=built)


def test_the_copy_has_lessons_and_exercises_without_answers(built: Path, mine: Path) -> None:
    assert sorted(path.relative_to(mine).as_posix() for path in mine.rglob("*") if path.is_file()) == [
        MANIFEST,
        "assets/picture.png",
        "exercises/03_pages.ipynb",
        "notebooks/03_pages.ipynb",
    ]
    assert (mine / "my_minikv").is_dir()
    _, plain, answer = notebook(mine, "notebooks").cells
    assert plain.outputs and not answer.outputs and answer.execution_count is None
    assert "jupyter" not in answer.metadata  # unfolded, so that the learner sees what they run


def test_what_the_learner_changed_is_never_overwritten(built: Path, mine: Path, capsys: Out) -> None:
    path = mine / "notebooks" / "03_pages.ipynb"
    change(mine, "notebooks", change_source)
    changed = path.read_bytes()
    start(mine, source=built)
    assert path.read_bytes() == changed and ".new" not in capsys.readouterr().out

    for version in ("second", "third"):
        edit(built, "notebooks", "# # Pages", f"# # Pages {version}")
        run(built)
        pretend_it_ran(built)
        start(mine, source=built)
        out = capsys.readouterr().out
        assert "was changed by you and stays" in out and "03_pages.new.ipynb" in out
        assert version in (mine / "notebooks" / "03_pages.new.ipynb").read_text()
        assert path.read_bytes() == changed
        start(mine, source=built)
        assert "stays" not in capsys.readouterr().out

    (mine / "notebooks" / "03_pages.new.ipynb").write_text("mine as well")
    edit(built, "notebooks", "# # Pages", "# # Pages fourth")
    run(built)
    start(mine, source=built)
    assert (mine / "notebooks" / "03_pages.new.ipynb").read_text() == "mine as well"
    assert "fourth" in (mine / "notebooks" / "03_pages.new2.ipynb").read_text()


def test_what_the_learner_left_alone_is_brought_up_to_date(built: Path, mine: Path, capsys: Out) -> None:
    edit(built, "notebooks", "# # Pages", "# # Better pages")
    run(built)
    start(mine, source=built)
    assert "Better pages" in (mine / "notebooks" / "03_pages.ipynb").read_text()
    assert not list(mine.rglob("*.new.ipynb"))


def test_from_a_read_only_checkout(built: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    for path in built.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    place = start(tmp_path_factory.mktemp("home") / "copy", quiet=True, source=built)
    assert os.access(place / "notebooks" / "03_pages.ipynb", os.W_OK)
    for path in built.rglob("*"):
        path.chmod(0o755)


def test_the_checkout_itself_is_no_copy(built: Path) -> None:
    with pytest.raises(CourseNotFound, match="the course itself"):
        start(built, source=built)


def test_a_broken_manifest_overwrites_nothing(built: Path, mine: Path) -> None:
    change(mine, "notebooks", change_source)
    before = (mine / "notebooks" / "03_pages.ipynb").read_bytes()
    (mine / MANIFEST).write_text("{")
    start(mine, quiet=True, source=built)
    assert (mine / "notebooks" / "03_pages.ipynb").read_bytes() == before
    assert json.loads((mine / MANIFEST).read_text())["files"]


def everything(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("target", ["notebooks", "exercises", "solutions", "assets/mine", "minikv", "notebooks/src/x"])
def test_no_copy_in_a_folder_of_the_course(
    target: str, built: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(built)
    monkeypatch.chdir(built)
    for place in (target, built / target, built / "notebooks" / ".." / target):
        with pytest.raises(CourseNotFound, match=f"is inside {target.split('/')[0]}/ of the course"):
            start(place, source=built)
    link = mine.parent / "link"
    (built / target).mkdir(parents=True, exist_ok=True)
    link.symlink_to(built / target)
    for place in (link, link / "deeper"):
        with pytest.raises(CourseNotFound, match="of the course"):
            start(place, source=built)
    assert everything(built) == before


@pytest.mark.parametrize("folder", ["notebooks", "assets", "my_minikv"])
def test_no_copy_that_leads_into_the_course(folder: str, built: Path, tmp_path_factory: Any) -> None:
    before = everything(built)
    place = tmp_path_factory.mktemp("home")
    (place / folder).symlink_to(built / "notebooks")
    with pytest.raises(CourseNotFound, match="is inside notebooks/ of the course"):
        start(place, source=built)
    assert everything(built) == before and [path.name for path in place.iterdir()] == [folder]


def test_a_file_that_leads_out_of_the_copy_is_left_alone(built: Path, mine: Path, capsys: Out) -> None:
    before = everything(built)
    elsewhere = mine.parent / "elsewhere.ipynb"
    elsewhere.write_bytes((mine / "notebooks" / "03_pages.ipynb").read_bytes())
    for kind, to in (("notebooks", elsewhere), ("exercises", built / "exercises" / "03_pages.ipynb")):
        (mine / kind / "03_pages.ipynb").unlink()
        (mine / kind / "03_pages.ipynb").symlink_to(to)
    was = elsewhere.read_bytes()
    edit(built, "notebooks", "# # Pages", "# # Newer pages")
    start(mine, quiet=True, source=built)
    assert capsys.readouterr().out.count("leads out of your copy. It stays as it is") == 2
    assert elsewhere.read_bytes() == was
    assert {name: content for name, content in everything(built).items() if "/src/" not in name} == {
        name: content for name, content in before.items() if "/src/" not in name
    }


def fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [fifo, Path.mkdir, lambda path: path.symlink_to("nothing")])
def test_what_is_no_file_neither_hangs_nor_stops_a_start(make: Any, built: Path, mine: Path, capsys: Out) -> None:
    (mine / "exercises" / "03_pages.ipynb").unlink()
    make(mine / "exercises" / "03_pages.ipynb")
    (mine / "notebooks" / "03_pages.ipynb").unlink()
    start(mine, quiet=True, source=built)
    assert "03_pages.ipynb is not a file. It stays as it is" in capsys.readouterr().out
    assert not (mine / "exercises" / "03_pages.ipynb").is_file() and (mine / "notebooks" / "03_pages.ipynb").is_file()

    change(mine, "notebooks", change_source)
    make(mine / "notebooks" / "03_pages.new.ipynb")
    edit(built, "notebooks", "# # Pages", "# # Newer pages")
    run(built)
    start(mine, quiet=True, source=built)
    assert "Newer pages" in (mine / "notebooks" / "03_pages.new2.ipynb").read_text()


@pytest.mark.parametrize("name", ["notebooks", "my_minikv", "."])
def test_a_file_in_place_of_a_folder(name: str, built: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("home") / "copy"
    (place / name).parent.mkdir(exist_ok=True)
    (place / name).write_text("mine")
    with pytest.raises(CourseNotFound, match=r"is not a folder\. Move it away"):
        start(place, source=built)
    assert (place / name).read_text() == "mine"


def deep(path: Path) -> None:
    path.write_text("[" * 100_000)


def binary(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")


@pytest.mark.parametrize("make", [deep, binary, fifo, Path.mkdir, lambda path: path.symlink_to("../elsewhere")])
def test_a_manifest_that_cannot_be_understood_is_put_aside(make: Any, built: Path, mine: Path, capsys: Out) -> None:
    change(mine, "notebooks", change_source)
    before = (mine / "notebooks" / "03_pages.ipynb").read_bytes()
    (mine / MANIFEST).unlink()
    make(mine / MANIFEST)
    start(mine, quiet=True, source=built)
    assert "could not be understood. It is now .minikv-course.old1.json" in capsys.readouterr().out
    assert os.path.lexists(mine / ".minikv-course.old1.json") and json.loads((mine / MANIFEST).read_text())["files"]
    assert (mine / "notebooks" / "03_pages.ipynb").read_bytes() == before


@pytest.mark.parametrize("stops_at", range(1, 8))
@pytest.mark.parametrize("half_way", [True, False])
def test_the_next_start_finishes_what_was_interrupted(
    half_way: bool, stops_at: int, built: Path, tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped at every write, before it or in the midst of it, in a new copy and in an update."""
    place, write = tmp_path_factory.mktemp("home") / "copy", copying.write_whole
    writes = 0

    def stop(path: Path, content: bytes) -> None:
        nonlocal writes
        writes += 1
        if writes == stops_at:
            if half_way:
                with monkeypatch.context() as patch:
                    patch.setattr(os, "replace", interrupted)
                    write(path, content)
            raise KeyboardInterrupt
        write(path, content)

    def interrupted(*_paths: Any) -> None:
        raise KeyboardInterrupt

    def start_twice() -> None:
        nonlocal writes
        writes = 0
        monkeypatch.setattr(copying, "write_whole", stop)
        try:
            start(place, quiet=True, source=built)
        except KeyboardInterrupt:
            for path in place.rglob("*.ipynb"):
                nbformat.read(path, as_version=4)  # nothing is there by half
        monkeypatch.setattr(copying, "write_whole", write)
        start(place, quiet=True, source=built)

    start_twice()
    assert (place / "my_minikv").is_dir() and not list(place.rglob(".0*"))
    assert sorted(path.name for path in place.rglob("*.ipynb")) == ["03_pages.ipynb"] * 2

    change(place, "notebooks", change_source)
    changed = (place / "notebooks" / "03_pages.ipynb").read_bytes()
    edit(built, "notebooks", "# # Pages", "# # Newer pages")
    edit(built, "solutions", "### Exercise 3.1", "### Newer exercise 3.1")
    run(built)
    start_twice()
    assert (place / "notebooks" / "03_pages.ipynb").read_bytes() == changed
    assert sorted(path.name for path in place.rglob("*.ipynb")) == ["03_pages.ipynb"] * 2 + ["03_pages.new.ipynb"]
    assert "Newer exercise" in (place / "exercises" / "03_pages.ipynb").read_text()


def test_an_update_without_a_manifest_makes_one_newer_version(built: Path, mine: Path) -> None:
    change(mine, "notebooks", change_source)
    edit(built, "notebooks", "# # Pages", "# # Newer pages")
    run(built)
    for _turn in range(3):
        (mine / MANIFEST).unlink()
        start(mine, quiet=True, source=built)
    assert [path.name for path in mine.rglob("*.new*")] == ["03_pages.new.ipynb"]


def test_an_update_keeps_the_mode(built: Path, mine: Path) -> None:
    path = mine / "notebooks" / "03_pages.ipynb"
    path.chmod(0o600)
    edit(built, "notebooks", "# # Pages", "# # Newer pages")
    run(built)
    start(mine, quiet=True, source=built)
    assert path.stat().st_mode & 0o777 == 0o600 and "Newer pages" in path.read_text()


def test_a_course_with_a_broken_notebook(built: Path, mine: Path) -> None:
    (built / "notebooks" / "03_pages.ipynb").write_text("{")
    with pytest.raises(CourseNotFound, match=r"cannot be read as a notebook\. Fetch the course anew"):
        start(mine, source=built)


def test_a_start_that_has_nothing_to_do_writes_nothing(
    built: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "write_whole", lambda *_: pytest.fail("it wrote"))
    start(mine, quiet=True, source=built)


def test_a_notebook_that_cannot_be_read_stays(
    built: Path, mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    really = Path.open

    def refuse(path: Path, *args: Any, **more: Any) -> Any:
        if path == mine / "notebooks" / "03_pages.ipynb":
            raise PermissionError(13, "Permission denied")
        return really(path, *args, **more)

    before = everything(mine)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        start(mine, quiet=True, source=built)
    assert "cannot be read (Permission denied). It stays as it is" in capsys.readouterr().out
    assert everything(mine) == before
