"""The teacher's guide says what is so: minutes add up, exercises and classes exist, its code runs."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from minikv.course.declare import Exercise, Question, find, of_chapter

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
KINDS = {
    exercise_id: {kind for _source, kind in answers.wrong.values()}
    for path in sorted(Path(__file__).parent.glob("ch??_answers.py"))
    for exercise_id, answers in importlib.import_module(path.stem).ANSWERS.items()
}

Out = pytest.CaptureFixture[str]


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head."""
    below = GUIDE.partition(f" {heading}\n")[2].splitlines()
    first = next(number for number, line in enumerate(below) if line.startswith("|"))
    table = [line[1:-1] for line in takewhile(lambda line: line.startswith("|"), below[first:])]
    return [[cell.strip() for cell in row.split("|")] for row in table[2:]]


@pytest.mark.parametrize(
    ("heading", "minutes"),
    [("50 minutes: a talk with hands on", 50), ("90 minutes: a seminar", 90), ("180 minutes: a lab", 180)],
)
def test_minutes_add_up(heading: str, minutes: int) -> None:
    clock = 0
    for begins, takes, *_rest in rows(heading):
        hours, past = begins.split(":")
        assert int(hours) * 60 + int(past) == clock, begins
        clock += int(takes)
    assert clock == minutes


def test_predictions_and_exercises_exist() -> None:
    missing = []
    for kind, number, place in re.findall(r"\b(p-|[Ee]xercises? )(\d+)\.(\d+)\b", GUIDE):
        declared: type[Exercise] | type[Question] = Question if kind == "p-" else Exercise
        name = f"{'p-' if kind == 'p-' else 'ex-'}{number}.{place}"
        if find(declared, name) is None:
            missing.append(name)
    assert not missing


def test_classes_of_wrong_answers_exist() -> None:
    stuck = rows("Where people get stuck")
    assert {f"ex-{row[0].strip('*')}" for row in stuck} >= set(KINDS) - {"ex-8.2"}
    for number, _answer, classes, said in stuck:
        known = KINDS[f"ex-{number.strip('*')}"]
        assert set(re.findall(r"`([^`]+)`", classes)) <= known, number
        assert "?" in said or "Draw" in said, f"{number}: ask, as the hints do"


def test_places_in_the_lessons_exist() -> None:
    lessons = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "notebooks" / "src").glob("*.py"))
    headings = set(re.findall(r"^# ## (.+)$", lessons, re.MULTILINE))
    named = {"What it saves", "Where must it stop?", "One line", "In your own words"}
    assert all(f"*{name}*" in GUIDE for name in named)
    assert named <= headings
    assert "In a hurry" in lessons


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", GUIDE):
        assert target.startswith("https://") or (ROOT / "docs" / target).exists(), target
    anchors = {re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-") for name in re.findall(r"(?m)^#+ (.+)$", GUIDE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", GUIDE)) <= anchors


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def test_own_numbers_as_printed(learner: Path, capsys: Out) -> None:
    from minikv.course.own import counts

    scope: dict[str, Any] = {}
    exec(snippets()[0], scope)
    assert "200 {" in capsys.readouterr().out
    read = scope["slots_read"](list(scope["stage"].cluster.trace), scope["answer"].request_id)
    assert read.pop("attacker") == 2 and sum(read.values()) == counts(scope["mine"]).foreign_slots


@pytest.mark.slow
def test_marks_by_classes_as_printed(cell: Any) -> None:
    scope: dict[str, Any] = {}
    exec(snippets()[1], scope)
    answers = importlib.import_module("ch03_answers").ANSWERS["ex-3.2"]
    ladder = scope["LADDER"]["ex-3.2"]
    assert set(ladder) == set(answers.likely), "every likely mistake has its own share"
    for source, kind in answers.wrong.values():
        if kind in ladder:
            assert scope["share"]("ex-3.2", cell(source, "Allocator")) == ladder[kind], kind
    right, _remark = next(iter(answers.right.values()))
    assert scope["share"]("ex-3.2", cell(right, "Allocator")) == 1.0

    class Empty:
        def __init__(self, num_pages: int) -> None:
            raise NotImplementedError

    assert scope["share"]("ex-3.2", Empty) == 0.0


def test_the_dev_container_calls_what_exists(capsys: Out) -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    first, second = container["postCreateCommand"].split(" && ")
    program, script, *options = first.split()
    assert program == "python3" and (ROOT / script).is_file()
    sys.path.insert(0, str(ROOT / "tools"))
    bootstrap = importlib.import_module("bootstrap")
    assert options == ["--torch-index", bootstrap.CPU_INDEX]
    from minikv.cli import _parser

    parsed: argparse.Namespace = _parser().parse_args(second.split()[1:])
    assert second.split()[0] == ".venv/bin/minikv" and parsed.quiet
    settings = container["customizations"]["vscode"]["settings"]
    assert settings["python.defaultInterpreterPath"].endswith("/.venv/bin/python")
    assert container["forwardPorts"] == [8888]


def test_binder_finds_its_files() -> None:
    """repo2docker reads the root, unless there is a folder binder/ or .binder/, and then that folder alone."""
    assert not (ROOT / "binder").exists() and not (ROOT / ".binder").exists()
    assert (ROOT / "environment.yml").is_file() and (ROOT / "postBuild").read_text().startswith("#!")
    assert (ROOT / "postBuild").stat().st_mode & 0o111, "Binder runs it"


def test_every_chapter_has_its_questions() -> None:
    assert all(of_chapter(Question, number) for number in range(1, 11))
