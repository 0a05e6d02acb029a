"""Chapter 03, beside its answers (test_answers.py): half an answer, models left alone, the real model, the page map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ch03_answers as answers
import pytest

from minikv.course import check
from minikv.course.chapters import ex_3_3
from minikv.course.chapters.small import small_model
from minikv.course.check import _met
from minikv.course.declare import Exercise, Verdict, find

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def fresh(learner: Path) -> None:
    _met.clear()


def judged(exercise_id: str, thing: Any) -> Verdict:
    exercise = find(Exercise, exercise_id)
    assert exercise is not None
    return exercise.judge(thing)


def test_half_an_allocator_says_what_is_left(cell: Any, capsys: Out) -> None:
    half = answers._allocator(answers._INIT, answers._CHECKED + answers._TAKE, "raise NotImplementedError('ex-3.2: x')")
    check("ex-3.2", cell(half, "Allocator"))
    assert "not attempted yet (write free())" in capsys.readouterr().out


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
