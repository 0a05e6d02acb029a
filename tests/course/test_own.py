"""Own numbers: what is worked out with a pencil is what the historical cluster does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikv.course.own import STALE, Counts, OwnNumbers, counts, main, own_numbers, own_stage
from minikv.errors import ConfigError

STUDENTS = [f"student {number}" for number in range(1, 101)]

Out = pytest.CaptureFixture[str]


@pytest.mark.parametrize("student", STUDENTS)
def test_the_counts_are_those_of_a_run(student: str) -> None:
    numbers = own_numbers(student)
    right = counts(numbers)
    stage = own_stage(numbers)
    answer = stage.attack()
    found = stage.measure(answer)
    assert answer.status == 200
    assert right == Counts(
        window=right.window,
        reserved=found.pages_reserved,
        written=found.pages_written,
        stale=found.pages_stale,
        foreign_slots=found.stale_slots_read,
        stale_of=found.stale_page_writers,
    )
    assert right.stale in STALE and 7 not in STALE
    assert right.window[0] <= numbers.prompt_tokens <= right.window[1]


@pytest.mark.parametrize("student", STUDENTS[:10])
def test_the_window_ends_where_it_is_said_to(student: str) -> None:
    numbers = own_numbers(student)
    low, high = counts(numbers).window
    for tokens, status, stale in ((low - 1, 200, False), (low, 200, True), (high, 200, True), (high + 1, 400, False)):
        stage = own_stage(replace(numbers, prompt_tokens=tokens))
        answer = stage.attack()
        assert (answer.status, stage.measure(answer).pages_stale > 0) == (status, stale), tokens


def test_a_secret_lies_in_the_stale_pages() -> None:
    """With the reference of exercise 3.3, no model run: what the student is asked to find is there."""
    from minikv.course.chapters.ch03 import REFERENCE

    numbers = own_numbers("Ada Lovelace")
    stage = own_stage(numbers)
    pool = stage.cluster.decode.pool
    texts = [
        stage.model.decode(REFERENCE["ex-3.3"](pool, page, stage.model.hf)) for page in range(numbers.decode_pages)
    ]
    # The last slots of a visit are its answer; the rest is the prompt, with its secret.
    for victim in numbers.victims:
        if victim.name in counts(numbers).stale_of:
            assert victim.code in "".join(texts), victim


def test_students_differ() -> None:
    all_numbers = [own_numbers(student) for student in STUDENTS]
    assert len({replace(each, student="") for each in all_numbers}) == len(STUDENTS)
    assert {counts(each).stale for each in all_numbers} == set(STALE)
    assert len({(each.page_size, each.prompt_tokens) for each in all_numbers[:30]}) >= 28


def test_the_same_name_is_the_same_everywhere() -> None:
    """Fixed numbers: a change here would change the numbers of classes that are under way."""
    mine = own_numbers("Ada Lovelace")
    assert own_numbers("  ada   LOVELACE ") == mine == own_numbers("Ada Lovelace")
    assert replace(own_numbers("Ada Lovelace", term="2027"), victims=()) != replace(mine, victims=())
    assert (mine.page_size, mine.prefill_pages, mine.decode_pages, mine.prompt_tokens) == ADA
    assert own_numbers("Zoë") == own_numbers("Zoe\u0308")


ADA = (12, 9, 12, 127)


@pytest.mark.parametrize("empty", ["", "  \n"])
def test_an_empty_name(empty: str) -> None:
    with pytest.raises(ConfigError, match="empty"):
        own_numbers(empty)


def test_a_teachers_list(capsys: Out) -> None:
    assert main(["--run", "Ada Lovelace", "Alan Turing"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ada lovelace\n") and "alan turing\n" in out and out.count("the same") == 2
    assert "window" in out and "careful" not in out
    assert main(["Ada", " "]) == 1


def test_twins_are_told(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_alike(name: str, _term: str) -> OwnNumbers:
        return replace(own_numbers("ada"), student=name)

    monkeypatch.setattr("minikv.course.own.own_numbers", all_alike)
    assert main(["ada", "bob"]) == 0
    assert "as for ada; choose another --term" in capsys.readouterr().out


@pytest.mark.parametrize("names", [("A\udcff",), ("Ada", "2027\udcff")])
def test_a_name_that_is_no_text(names: tuple[str, ...], capsys: Out) -> None:
    """A name from a shell whose bytes are no UTF-8."""
    with pytest.raises(ConfigError, match=r"is not readable text; write it in UTF-8"):
        own_numbers(*names)
    assert main([names[0], "--term", names[-1]]) == 1
    assert "udcff' is not readable text" in capsys.readouterr().err.encode().decode()
