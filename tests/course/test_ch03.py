"""Chapter 03: each wrong answer gets its own verdict and hint, each right one of any design gets [ok]."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ch03_answers as answers
import pytest

from minikv.course import check, learner_or_reference
from minikv.course.chapters import ch03, ex_3_1, ex_3_2, ex_3_3
from minikv.course.chapters.small import small_model
from minikv.course.check import _met
from minikv.course.declare import Exercise, Question, Verdict, find, of_chapter

EXERCISES = {
    "ex-3.1": (answers.PAGES_NAME, answers.PAGES_WRONG, answers.PAGES_RIGHT),
    "ex-3.2": (answers.ALLOCATOR_NAME, answers.ALLOCATOR_WRONG, answers.ALLOCATOR_RIGHT),
    "ex-3.3": (answers.READING_NAME, answers.READING_WRONG, answers.READING_RIGHT),
}
WRONG = [(i, title) for i, (_name, wrong, _right) in EXERCISES.items() for title in wrong]
RIGHT = [(i, title) for i, (_name, _wrong, right) in EXERCISES.items() for title in right]

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def fresh(learner: Path) -> None:
    _met.clear()


def judged(exercise_id: str, thing: Any) -> Verdict:
    exercise = find(Exercise, exercise_id)
    assert exercise is not None
    return exercise.judge(thing)


@pytest.mark.parametrize(("exercise_id", "title"), WRONG)
def test_a_wrong_answer_gets_its_own_verdict(exercise_id: str, title: str, cell: Any, capsys: Out) -> None:
    name, wrong, _right = EXERCISES[exercise_id]
    source, kind = wrong[title]
    thing = cell(source, name)
    check(exercise_id, thing)
    out = capsys.readouterr().out
    assert out.startswith(f"[x] {exercise_id}: "), out
    assert [met[1] for met in _met] == [kind], out
    assert "hint 1 of " in out


@pytest.mark.parametrize(("exercise_id", "title"), RIGHT)
def test_a_right_answer_of_any_design_is_accepted_and_kept(
    exercise_id: str, title: str, cell: Any, capsys: Out
) -> None:
    name, _wrong, right = EXERCISES[exercise_id]
    source, remark = right[title]
    check(exercise_id, cell(source, name), strict=True)
    out = capsys.readouterr().out
    assert out.startswith(f"[ok] {exercise_id}: ") and remark in out and "Kept in my_minikv/" in out
    learner_or_reference(exercise_id)
    assert "using yours" in capsys.readouterr().out


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_the_reference_is_right_and_says_no_more_than_ok(exercise_id: str) -> None:
    verdict = judged(exercise_id, ch03.REFERENCE[exercise_id])
    assert verdict.right and verdict.said == ""


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_a_stub_is_not_attempted(exercise_id: str, cell: Any, capsys: Out) -> None:
    name = EXERCISES[exercise_id][0]
    todo = f"raise NotImplementedError('{exercise_id}: x')"
    stub = f"def {name}(*arguments):\n    {todo}\n"
    stub = answers._allocator(todo, todo, todo) if exercise_id == "ex-3.2" else stub
    check(exercise_id, cell(stub, name))
    assert capsys.readouterr().out.startswith(f"[ ] {exercise_id}: not attempted yet")


def test_half_an_allocator_says_what_is_left(cell: Any, capsys: Out) -> None:
    half = answers._allocator(answers._INIT, answers._CHECKED + answers._TAKE, "raise NotImplementedError('ex-3.2: x')")
    check("ex-3.2", cell(half, "Allocator"))
    assert "not attempted yet (write free())" in capsys.readouterr().out


def test_hints_have_three_tiers_where_a_mistake_is_likely() -> None:
    listed = {"one-too-many", "rounded-down", "rounded", "partial", "double-free", "slow", "own-list"}
    listed |= {"keys", "norm", "layer", "embeddings"}
    for hints in (ex_3_1.LAST_PAGE, ex_3_2.ALL_OR_NOTHING, ex_3_2.FREED_TWICE, ex_3_2.SLOW, ex_3_2.OWN_LIST):
        assert len(hints) == 3
    for hints in (ex_3_3.KEYS, ex_3_3.NORM, ex_3_3.DEEPER, ex_3_3.EMBEDDINGS):
        assert len(hints) == 3
    kinds = {kind for _name, wrong, _right in EXERCISES.values() for _source, kind in wrong.values()}
    assert listed <= kinds


def test_every_option_is_explained_in_its_own_words() -> None:
    questions = of_chapter(Question, 3)
    assert [question.id for question in questions] == ["p-3.1", "p-3.2", "p-3.3"]
    explanations = [option.explanation for question in questions for option in question.options.values()]
    assert len(set(explanations)) == len(explanations) and all(explanations)


def test_the_judge_leaves_the_weights_as_they_were(cell: Any) -> None:
    model = small_model(2)
    before = {name: weight.clone() for name, weight in model.hf.named_parameters()}
    for source, _kind in answers.READING_WRONG.values():
        try:
            judged("ex-3.3", cell(source, "read_page"))
        except Exception:
            continue
    assert all((weight == before[name]).all() for name, weight in model.hf.named_parameters())


@pytest.mark.model
def test_reading_is_judged_the_same_with_a_real_model(cell: Any) -> None:
    from minikv import load_model

    model = load_model("smollm2")
    for title in ("keys", "no norm", "embeddings"):
        source, kind = answers.READING_WRONG[title]
        verdict = ex_3_3.judge_reading_with(cell(source, "read_page"), model)
        assert (verdict.right, verdict.kind) == (False, kind), title
    source, _remark = answers.READING_RIGHT["four lines"]
    assert ex_3_3.judge_reading_with(cell(source, "read_page"), model).right


def test_the_page_map_takes_a_trace_whose_oldest_events_were_dropped() -> None:
    from minikv import Engine, SamplingParams
    from minikv.viz import page_map

    engine = Engine(small_model(2), page_size=4, num_pages=6)
    engine.generate([[1, 2, 3, 4, 5], [6, 7]], SamplingParams(max_tokens=4, ignore_eos=True))
    events = list(engine.trace)
    for dropped in range(len(events) - 4):
        assert "owner" in page_map(events[dropped:]).text
    with pytest.raises(ValueError, match="pages is empty"):
        page_map(events, pages=[])


def test_a_page_of_two_equal_writers_shows_both() -> None:
    from minikv.trace import Allocate, Write
    from minikv.viz import page_map

    events = [Allocate(1, "engine", 0, 1, 1), Write(1, "engine", 0, 1, 1, 1, 0, 4)]
    events += [Allocate(2, "engine", 0, 2, 2), Write(2, "engine", 0, 2, 2, 2, 0, 2)]
    drawn = page_map(events, names={1: "Ada", 2: "Ben"}, rows=("owner", "wrote most"))
    assert drawn.text.splitlines()[-1].split() == ["wrote", "most", "A/B"]
    assert '<th scope="col"></th>' not in drawn.table
