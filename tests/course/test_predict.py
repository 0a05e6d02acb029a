"""Predictions: kept, explained, never scored, and nothing a learner types stops the notebook."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minikv.course import keep_guess, open_guess, predict, reveal, surprises
from minikv.course.declare import Option, Question, register

pytestmark = pytest.mark.usefixtures("learner")


@pytest.fixture(autouse=True)
def question() -> Question:
    asked = Question(
        "p-97.1",
        "What does page 3 hold?",
        {"A": Option("zeros", "Nobody wiped it."), "B": Option("A's numbers", "Lending does not wipe.")},
        answer="B",
    )
    register(asked)
    return asked


def test_no_prediction_yet(capsys: pytest.CaptureFixture[str]) -> None:
    predict("p-97.1", ...)
    out = capsys.readouterr().out
    first = '[ ] p-97.1: no prediction yet. Yours goes in like this: predict("p-97.1", "A")'
    assert out.splitlines()[0] == first
    assert "What does page 3 hold?" in out and "A  zeros" in out and ">" not in out


def test_a_choice_is_kept_in_the_learners_folder(learner: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predict("p-97.1", "b", sure=True)
    assert "[B] p-97.1: kept, and you are sure" in capsys.readouterr().out
    kept = json.loads((learner / "notes.json").read_text())["predictions"]["p-97.1"]
    assert kept == {"choice": "B", "sure": True, "revealed": False}


def test_what_was_kept_on_another_day_is_still_there(capsys: pytest.CaptureFixture[str]) -> None:
    predict("p-97.1", "B")
    keep_guess("the pages were old")
    capsys.readouterr()
    predict("p-97.1", ...)
    assert keep_guess("...") == "the pages were old"
    out = capsys.readouterr().out
    assert out.startswith("[B] p-97.1: you predicted this before.") and "> B" in out
    assert "Your guess is kept. Chapter 09 opens it again." in out and "no guess yet" not in out


@pytest.mark.parametrize("choice", ["C", 3, ["A"], object, "A or B"])
def test_an_unknown_option_says_what_there_is(choice: object, capsys: pytest.CaptureFixture[str]) -> None:
    predict("p-97.1", choice)
    out = capsys.readouterr().out
    assert out.startswith("[ ] p-97.1: ") and ("Choose A or B" in out or "no prediction yet" in out)


@pytest.mark.parametrize("name", ["p-97.9", "p-96.1", "ex-97.1", "nonsense", 3, None])
def test_an_unknown_id_goes_on(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    predict(name, "A")
    reveal(name)
    out = capsys.readouterr().out
    assert "There is no prediction" in out or "The id comes first" in out
    if name == "p-97.9":
        assert "This chapter has p-97.1" in out


def test_reveal_explains_the_choice_and_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    predict("p-97.1", "A")
    capsys.readouterr()
    reveal("p-97.1")
    out = capsys.readouterr().out
    assert out.startswith("p-97.1: you said A. It is B.")
    assert "Nobody wiped it." in out and "Lending does not wipe." in out


def test_reveal_without_a_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    reveal("p-97.1")
    out = capsys.readouterr().out
    assert "you made no prediction" in out and "Nobody wiped it." not in out


def test_the_first_guess_stays_after_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    predict("p-97.1", "A", sure=True)
    reveal("p-97.1")
    predict("p-97.1", "B")
    assert "your first guess stays: A" in capsys.readouterr().out
    surprises(97)
    out = capsys.readouterr().out
    assert "your surprises" in out and "were sure of: zeros" in out and "it is: A's numbers" in out


def test_surprises_without_any(capsys: pytest.CaptureFixture[str]) -> None:
    surprises(97)
    predict("p-97.1", "B")
    surprises(97)
    out = capsys.readouterr().out
    assert "you made no predictions" in out and "nothing surprised you" in out


def test_broken_notes_are_put_aside(learner: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learner.mkdir()
    (learner / "notes.json").write_text("{ nonsense")
    predict("p-97.1", "A")
    assert "could not be understood" in capsys.readouterr().out
    assert (learner / "notes.broken.json").read_text() == "{ nonsense"
    assert json.loads((learner / "notes.json").read_text())["predictions"]["p-97.1"]["choice"] == "A"


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MINIKV_HOME", str(tmp_path / "file" / "my_minikv"))
    predict("p-97.1", "A")
    assert "Set MINIKV_HOME" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "...", "  ", ..., None, "…"])
def test_an_empty_guess(text: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert keep_guess(text) == ""
    assert capsys.readouterr().out == "[ ] no guess yet\n"


def test_a_guess_is_opened_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert open_guess() == ""
    assert keep_guess("  Somebody broke in. ") == "Somebody broke in."
    assert open_guess() == "Somebody broke in."
    assert "Somebody broke in." in capsys.readouterr().out


def test_a_question_without_its_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="is none of"):
        Question("p-97.2", "?", {"A": Option("a", "b")}, answer="C")


def test_notes_that_cannot_be_read_are_not_written_over(learner: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (learner / "notes.json").mkdir(parents=True)
    (learner / "notes.json" / "precious").write_text("mine")
    predict("p-97.1", "A")
    assert "cannot be read" in capsys.readouterr().out
    assert (learner / "notes.json" / "precious").read_text() == "mine"


def test_broken_notes_are_put_aside_one_beside_the_other(learner: Path) -> None:
    learner.mkdir()
    for text in ("first", "second"):
        (learner / "notes.json").write_text(text)
        predict("p-97.1", "A")
    assert (learner / "notes.broken.json").read_text() == "first"
    assert (learner / "notes.broken2.json").read_text() == "second"


def test_a_mark_in_front_of_the_notes_does_no_harm(learner: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predict("p-97.1", "B")
    path = learner / "notes.json"
    path.write_text("\ufeff" + path.read_text(), encoding="utf-8")
    capsys.readouterr()
    reveal("p-97.1")
    assert "you said B" in capsys.readouterr().out


@pytest.mark.parametrize("chapter", ["x", None, -1, 3.5])
def test_surprises_of_no_chapter(chapter: object, capsys: pytest.CaptureFixture[str]) -> None:
    surprises(chapter)  # type: ignore[arg-type]
    assert "Say the number of the chapter" in capsys.readouterr().out
