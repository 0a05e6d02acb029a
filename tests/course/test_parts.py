"""What a check said [ok] to is kept, found again, and never trusted blindly."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from minikv.course import check, learner_or_reference
from minikv.course.declare import Exercise, Verdict, ok, register, wrong
from minikv.course.home import home
from minikv.course.parts import kept_parts

Out = pytest.CaptureFixture[str]


def judge(thing: Any) -> Verdict:
    made = thing(3)
    value = made.value if hasattr(made, "value") else made
    return ok() if value == 6 else wrong("other", f"3 gave {value}")


@pytest.fixture(autouse=True)
def chapter(monkeypatch: pytest.MonkeyPatch, learner: Path) -> None:
    module = ModuleType("minikv.course.chapters.ch97")
    module.REFERENCE = {"ex-97.1": "the reference"}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    register(Exercise("ex-97.1", "Twice", 1, 1, "it doubles", "Doubling.", judge))


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs cells as a notebook does: sources in linecache, names in `__main__`."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    shell = InteractiveShell(user_module=main, user_ns=vars(main))

    def run(cell: str) -> Any:
        result = shell.run_cell(textwrap.dedent(cell), store_history=True)
        result.raise_error()
        return result.result

    return run


def kept(learner: Path) -> str:
    return (learner / "ex_97_1.py").read_text()


def test_nothing_kept(capsys: Out) -> None:
    assert learner_or_reference("ex-97.1") == "the reference"
    assert capsys.readouterr().out == "ex-97.1: using the reference (nothing of yours is kept yet)\n"


def test_a_function_with_what_it_needs(notebook: Any, learner: Path, capsys: Out) -> None:
    notebook("import math as m, sys\nfrom pathlib import Path as P\nimport os.path")
    notebook("FACTOR = {'by': 2}\nUNUSED = object()")
    notebook("def helper(n): return m.floor(n) * FACTOR['by']\ndef other(n): return twice")
    notebook("def twice(n: P) -> 'Unknown':\n    assert os.path\n    return helper(n)")
    notebook("from minikv.course import check\ncheck('ex-97.1', twice)")
    out = capsys.readouterr().out
    assert "[ok] ex-97.1" in out and "Kept in my_minikv/ex_97_1.py." in out
    assert str(learner) not in out
    source = kept(learner)
    assert source.startswith("# ex-97.1 twice: ") and "import math as m" in source and "UNUSED" not in source
    mine = learner_or_reference("ex-97.1")
    assert mine(3) == 6
    assert capsys.readouterr().out == "ex-97.1: using yours (my_minikv/ex_97_1.py)\n"
    assert kept_parts() == ["ex-97.1"]


@pytest.mark.parametrize(
    "cell",
    [
        "class Part:\n    def __init__(self, n): self.value = n * 2",
        "from dataclasses import dataclass\n@dataclass\nclass Part:\n    n: int\n"
        "    @property\n    def value(self): return 2 * self.n",
        "class Base:\n    pass\nclass Part(Base):\n    k = 2\n    @staticmethod\n    def g(n): return n\n"
        "    def __init__(self, n): self.value = Part.g(n) * self.k",
        "class Part(int):\n    value = 6",
        "import functools\ndef deco(f):\n    @functools.wraps(f)\n    def inner(n): return f(n)\n"
        "    return inner\n@deco\ndef Part(n): return 2 * n",
        "if True:\n    def Part(n): return 2 * n",
        "async def Part2(n): pass\ndef Part(n, *, by=2): return by * n",
    ],
)
def test_classes_and_functions_of_all_kinds(cell: str, notebook: Any, learner: Path, capsys: Out) -> None:
    notebook(cell)
    check("ex-97.1", notebook("Part"))
    assert "Kept in" in capsys.readouterr().out
    mine = learner_or_reference("ex-97.1")
    assert mine is not None and "using yours" in capsys.readouterr().out


def test_the_newest_of_two_cells_is_kept(notebook: Any, learner: Path) -> None:
    notebook("def Part(n): return 2 * n  # first")
    notebook("def Part(n): return 2 * n  # second")
    check("ex-97.1", notebook("Part"))
    assert "second" in kept(learner) and "first" not in kept(learner)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("thing = object()\ndef Part(n): return 2 * n if thing else 0", "it uses thing, which is neither"),
        (
            "def outer():\n    def Part(n): return 2 * n\n    return Part\nPart = outer()",
            "inside another function",
        ),
        ("Part = lambda n: 2 * n", "only what is written with `def` or `class`"),
        ("import functools, operator\nPart = functools.partial(operator.mul, 2)", "only what is written with `def`"),
        ("class A:\n    def __call__(self, n): return 2 * n\nPart = A()", "only what is written with `def`"),
        (
            "calls = []\ndef Part(n):\n    calls.append(n)\n    return 2 * n if len(calls) < 2 else 0",
            "not on its own",
        ),
    ],
)
def test_what_cannot_be_kept_says_why(cell: str, said: str, notebook: Any, learner: Path, capsys: Out) -> None:
    notebook(cell)
    check("ex-97.1", notebook("Part"))
    out = " ".join(capsys.readouterr().out.split())
    assert "Not kept in my_minikv/: it" in out and said in out
    assert "[ok] ex-97.1" in out and not (learner / "ex_97_1.py").exists()


def test_a_static_method_is_not_kept(notebook: Any, learner: Path, capsys: Out) -> None:
    notebook("class Mine:\n    @staticmethod\n    def Part(n): return 2 * n")
    check("ex-97.1", notebook("Mine.Part"))
    assert "inside of a class. Define it at the top" in " ".join(capsys.readouterr().out.split())
    assert not (learner / "ex_97_1.py").exists()


def test_an_editor_may_put_a_mark_in_front_of_a_part(notebook: Any, learner: Path, capsys: Out) -> None:
    notebook("def Part(n): return 2 * n")
    check("ex-97.1", notebook("Part"))
    (learner / "ex_97_1.py").write_bytes(b"\xef\xbb\xbf" + (learner / "ex_97_1.py").read_bytes())
    capsys.readouterr()
    learner_or_reference("ex-97.1")
    assert "using yours" in capsys.readouterr().out
    assert "ex-97.1" in kept_parts()


def test_a_part_under_the_name_of_another_exercise_counts_for_none(notebook: Any, learner: Path) -> None:
    notebook("def Part(n): return 2 * n")
    check("ex-97.1", notebook("Part"))
    (learner / "ex_97_1.py").rename(learner / "ex_97_2.py")
    assert not kept_parts()


def test_a_home_that_no_file_can_have_is_an_empty_one(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    monkeypatch.setenv("MINIKV_HOME", "x" * 5000)
    learner_or_reference("ex-4.1")
    assert "the reference" in capsys.readouterr().out
    assert not kept_parts()


def test_a_part_that_was_edited_by_hand_is_put_aside(notebook: Any, learner: Path) -> None:
    notebook("def Part(n): return 2 * n")
    for _turn in range(2):
        check("ex-97.1", notebook("Part"))
    assert [path.name for path in learner.glob("ex_*")] == ["ex_97_1.py"]
    (learner / "ex_97_1.py").write_text(kept(learner) + "# mine\n")
    check("ex-97.1", notebook("Part"))
    assert (learner / "ex_97_1.old.py").read_text().endswith("# mine\n") and "# mine" not in kept(learner)


def test_a_folder_named_like_a_part_is_none(learner: Path) -> None:
    (learner / "ex_3_2.py").mkdir(parents=True)
    assert kept_parts() == []


def test_a_wrong_answer_leaves_the_kept_one(notebook: Any, learner: Path) -> None:
    notebook("def Part(n): return 2 * n")
    check("ex-97.1", notebook("Part"))
    before = kept(learner)
    check("ex-97.1", notebook("def Part(n): return 3 * n\nPart"))
    assert kept(learner) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# ex-97.1 twice: x\ndef twice(n: return", "SyntaxError"),
        ("# ex-97.1 twice: x\nraise SystemExit", "SystemExit"),
        ("# ex-97.1 twice: x\n", "AttributeError"),
        ("def twice(n): return 2 * n", "its first line does not say"),
        ("\x00", "first line"),
    ],
)
def test_a_broken_file_gives_the_reference(text: str, said: str, learner: Path, capsys: Out) -> None:
    learner.mkdir()
    (learner / "ex_97_1.py").write_text(text)
    assert learner_or_reference("ex-97.1") == "the reference"
    out = capsys.readouterr().out
    assert said in out and out.count("\n") == 1 and "my_minikv/ex_97_1.py does not load" in out
    assert str(learner) not in out


def test_an_unknown_exercise_is_an_authors_mistake() -> None:
    with pytest.raises(LookupError, match=r"no exercise 'ex-96\.1'"):
        learner_or_reference("ex-96.1")


def test_where_the_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    course = tmp_path / "Übung mit Leerzeichen"
    (course / "notebooks").mkdir(parents=True)
    monkeypatch.setenv("MINIKV_HOME", "~/elsewhere")
    assert home() == Path.home() / "elsewhere"
    monkeypatch.delenv("MINIKV_HOME")
    monkeypatch.chdir(course / "notebooks")
    assert home() == course / "my_minikv"
    (tmp_path / "my_minikv").mkdir()
    assert home() == tmp_path / "my_minikv"
    monkeypatch.chdir(course)
    (course / "my_minikv").mkdir()
    assert home() == course / "my_minikv"


def test_a_read_only_checkout_keeps_parts_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notebooks").mkdir()
    monkeypatch.delenv("MINIKV_HOME")
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert home() == Path.home() / "my_minikv"
