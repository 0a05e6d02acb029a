"""`minikv mine`: the learner's parts run the real engine, and a wrong one is named and harms nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikv import load_model
from minikv.cli import main
from minikv.course.chapters.small import small_model
from minikv.course.mine import SEATS, mine, my_parts

Out = pytest.CaptureFixture[str]

ALLOCATOR = """# ex-3.2 Allocator: yours
class Allocator:
    def __init__(self, num_pages):
        self.unused = list(range(num_pages))

    def allocate(self, n):
        if n > len(self.unused):
            raise MemoryError
        return [self.unused.pop(0) for _ in range(n)]

    def free(self, pages):
        self.unused.extend(pages)
"""
TWICE = ALLOCATOR.replace("self.unused.pop(0) for _ in range(n)", "self.unused[0] for _ in range(n)")


def test_all_references(learner: Path, capsys: Out) -> None:
    assert mine(model=small_model(2), prompt="any")
    out = capsys.readouterr().out
    assert "0 of 5 parts are yours" in out and "The same tokens as minikv's own parts: yes" in out
    assert [line.split()[0] for line in out.splitlines()[1:6]] == [seat.part for seat in SEATS]


def test_a_part_of_ones_own(learner: Path, capsys: Out) -> None:
    learner.mkdir()
    (learner / "ex_3_2.py").write_text(ALLOCATOR)
    assert mine(model=small_model(2), prompt="any")
    out = capsys.readouterr().out
    assert "1 of 5 parts are yours" in out and "allocator  ex-3.2: using yours (my_minikv/ex_3_2.py)" in out


def test_a_part_that_was_broken_later_is_named(learner: Path, capsys: Out) -> None:
    learner.mkdir()
    (learner / "ex_3_2.py").write_text(TWICE)
    assert not mine(model=small_model(2), prompt="something longer than one page of text")
    out = " ".join(capsys.readouterr().out.split())
    assert "no answer" in out or "stopped" in out
    assert "page" in out and "step" in out


def test_the_newest_attention_sits(learner: Path, capsys: Out) -> None:
    """Page by page (4.3) if it is kept, else gather (4.2)."""
    my_parts("attention")
    assert "ex-4.2: using the reference" in capsys.readouterr().out
    learner.mkdir()
    for name in ("ex_4_2", "ex_4_3"):
        source = "from minikv.course.chapters.ch04 import REFERENCE\nattend = REFERENCE['ex-4.2']\n"
        source = f"# ex-{name[3:].replace('_', '.')} attend: yours\n{source}"
        (learner / f"{name}.py").write_text(source)
    my_parts("attention")
    assert "ex-4.3: using yours" in capsys.readouterr().out


def test_only_what_was_asked_for(learner: Path, capsys: Out) -> None:
    assert list(my_parts("allocator", "scheduler")) == ["allocator", "scheduler"]
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_from_the_command_line(learner: Path, capsys: Out) -> None:
    assert main(["mine", "--model", "tiny-random", "Hello"]) == 0
    assert "0 of 5 parts are yours" in capsys.readouterr().out


@pytest.mark.model
@pytest.mark.slow
def test_a_sentence_of_the_real_model(learner: Path, capsys: Out) -> None:
    assert mine(model=load_model("smollm2"))
    assert "The best thing about building something yourself is that" in capsys.readouterr().out
