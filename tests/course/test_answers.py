"""All chapters: each wrong answer gets its own verdict and hint, each right one of any design gets [ok]."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from answers import Answers

from minikv.course import check, learner_or_reference
from minikv.course.check import _met
from minikv.course.declare import Exercise, Question, chapter_of, find, of_chapter
from minikv.course.source import is_definition

ROOT = Path(__file__).resolve().parents[2]
ALL: dict[str, Answers] = {}
for path in sorted(Path(__file__).parent.glob("ch??_answers.py")):
    ALL.update(importlib.import_module(path.stem).ANSWERS)
CHAPTERS = sorted({int(exercise_id[3:].partition(".")[0]) for exercise_id in ALL})
LONG = {
    "ex-1.2",
    "ex-3.2",
    "ex-4.2",
    "ex-4.3",
    "ex-5.1",
    "ex-5.2",
    "ex-6.1",
    "ex-7.1",
    "ex-9.1",
    "ex-9.3",
    "ex-10.1",
    "ex-10.2",
}  # their judges take longest


def param(exercise_id: str, title: str) -> Any:
    """`make quick` leaves out the many answers to some exercises."""
    return pytest.param(exercise_id, title, marks=[pytest.mark.slow] if exercise_id in LONG else [])


WRONG = [param(i, title) for i, answers in ALL.items() for title in answers.wrong]
RIGHT = [param(i, title) for i, answers in ALL.items() for title in answers.right]

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def fresh(learner: Path) -> None:
    _met.clear()


def exercise(exercise_id: str) -> Exercise:
    found = find(Exercise, exercise_id)
    assert found is not None
    return found


@pytest.mark.parametrize(("exercise_id", "title"), WRONG)
def test_a_wrong_answer_gets_its_own_verdict(exercise_id: str, title: str, cell: Any, capsys: Out) -> None:
    source, kind = ALL[exercise_id].wrong[title]
    check(exercise_id, cell(source, ALL[exercise_id].name))
    out = capsys.readouterr().out
    said = out.partition("[x] ")[2]  # what the answer itself prints comes before
    assert said.startswith(f"{exercise_id}: "), out
    assert [met[1] for met in _met] == [kind], out
    assert kind.startswith("raised") or "hint 1 of " in said, out
    assert kind not in ALL[exercise_id].likely or "hint 1 of 3: " in said, out


@pytest.mark.parametrize(("exercise_id", "title"), RIGHT)
def test_a_right_answer_of_any_design_is_accepted_and_kept(
    exercise_id: str, title: str, cell: Any, capsys: Out
) -> None:
    source, remark = ALL[exercise_id].right[title]
    thing = cell(source, ALL[exercise_id].name)
    check(exercise_id, thing, strict=True)
    out = " ".join(capsys.readouterr().out.split())
    said = out.partition("[ok] ")[2]
    assert said.startswith(f"{exercise_id}: ") and remark in said, out
    if is_definition(thing):
        assert "Kept in my_minikv/" in said, out
        learner_or_reference(exercise_id)
        assert "using yours" in capsys.readouterr().out


@pytest.mark.parametrize("exercise_id", ALL)
def test_the_reference_is_right(exercise_id: str) -> None:
    reference = getattr(chapter_of(exercise_id), "REFERENCE", {}).get(exercise_id)
    assert reference is not None, "each exercise has a reference answer, so that nobody is stuck"
    assert exercise(exercise_id).judge(reference).right


@pytest.mark.parametrize("exercise_id", ALL)
def test_the_stub_and_the_reference_have_one_signature(exercise_id: str) -> None:
    """What the exercise asks for is what later chapters call."""
    name = ALL[exercise_id].name
    source = next((ROOT / "solutions" / "src").glob(f"{int(exercise_id[3:].partition('.')[0]):02d}_*.py")).read_text()
    asked = next(
        (node for node in ast.walk(ast.parse(source)) if getattr(node, "name", None) == name and hasattr(node, "body")),
        None,
    )
    reference = getattr(chapter_of(exercise_id), "REFERENCE", {})[exercise_id]
    if asked is None:  # the answer is a plain value
        assert not is_definition(reference)
        return
    for node in [asked] if isinstance(asked, ast.FunctionDef) else asked.body:
        if isinstance(node, ast.FunctionDef):
            function = reference if node is asked else getattr(reference, node.name)
            assert [one.arg for one in node.args.args] == list(inspect.signature(function).parameters), node.name


@pytest.mark.parametrize("exercise_id", ALL)
def test_the_likely_mistakes_are_among_the_known_ones(exercise_id: str) -> None:
    assert set(ALL[exercise_id].likely) <= {kind for _source, kind in ALL[exercise_id].wrong.values()}


@pytest.mark.parametrize("exercise_id", ALL)
def test_an_untouched_exercise_is_not_attempted(exercise_id: str) -> None:
    """The stub itself, as it was run for the notebook that is handed out; nbval compares it with a new run."""
    number = int(exercise_id[3:].partition(".")[0])
    cells = json.loads(next((ROOT / "exercises").glob(f"{number:02d}_*.ipynb")).read_text(encoding="utf-8"))["cells"]
    printed = "".join(text for cell in cells for output in cell.get("outputs", []) for text in output.get("text", []))
    assert f"[ ] {exercise_id}: not attempted yet" in printed


@pytest.mark.parametrize("number", CHAPTERS)
def test_every_exercise_has_answers_that_are_tried(number: int) -> None:
    assert {one.id for one in of_chapter(Exercise, number)} == {i for i in ALL if i.startswith(f"ex-{number}.")}


@pytest.mark.parametrize("number", CHAPTERS)
def test_every_option_is_explained_in_its_own_words(number: int) -> None:
    questions = of_chapter(Question, number)
    assert [question.id for question in questions] == [f"p-{number}.{k + 1}" for k in range(len(questions))]
    explanations = [option.explanation for question in questions for option in question.options.values()]
    assert 2 <= len(questions) <= 4
    assert len(set(explanations)) == len(explanations) and all(explanations)


def test_how_many_there_are() -> None:
    """`pytest -s` shows the counts."""
    print(f"{len(ALL)} exercises, {len(WRONG)} known-wrong answers, {len(RIGHT)} right ones of other design")
    assert len(WRONG) >= 6 * len(ALL) and len(RIGHT) >= 3 * len(ALL)
