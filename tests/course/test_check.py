"""The check survives whatever a learner writes, and tells the three states apart."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from minikv.course import check as check_front_door
from minikv.course.check import CheckFailed, _met, check
from minikv.course.declare import Exercise, Verdict, error_of, ok, register, wrong
from minikv.course.guard import TimeUp, guarded

pytestmark = pytest.mark.usefixtures("learner")

Out = pytest.CaptureFixture[str]


def judge(thing: Any) -> Verdict:
    """A judge for `pages_needed(tokens, page_size)` that takes no care at all."""
    for tokens, page, pages in ((1, 64, 1), (65, 64, 2), (64, 64, 1)):
        got = thing(tokens, page)
        if got == pages + 1:
            return wrong("one-too-many", f"{tokens} tokens, page {page}: you took {got}", "Which?", "Why?", "Draw.")
        if got + 0 != pages:
            return wrong("other", f"{tokens} tokens, page {page}: you took {got}")
    return ok()


@pytest.fixture(autouse=True)
def exercise() -> Iterator[Exercise]:
    toy = Exercise("ex-97.1", "Pages needed", 5, 2, "every token has a slot", "Round up.", judge, seconds=0.3)
    register(toy)
    _met.clear()
    yield toy
    _met.clear()


def learner_code(source: str, name: str = "f") -> Any:
    """Define something as a notebook cell would, in `__main__`."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "cell", "exec"), namespace)
    return namespace[name]


def test_front_door() -> None:
    assert check_front_door is check


@pytest.mark.parametrize("thing", [None, ..., NotImplemented])
def test_nothing_there(thing: object, capsys: Out) -> None:
    check("ex-97.1", thing)
    out = capsys.readouterr().out
    assert out.startswith("[ ] ex-97.1: not attempted yet\n") and "About 2 lines, 5 minutes" in out


def test_a_stub(capsys: Out) -> None:
    check("ex-97.1", learner_code("def f(a, b):\n raise NotImplementedError('ex-97.1: x')"))
    assert capsys.readouterr().out.startswith("[ ] ex-97.1: not attempted yet\n")


def test_a_half_written_class_says_what_is_left(capsys: Out) -> None:
    def uses_free(thing: Any) -> Verdict:
        pool = thing()
        pool.allocate()
        error_of(pool.free)
        return ok()

    register(Exercise("ex-97.2", "t", 1, 1, "d", "i", uses_free))
    check(
        "ex-97.2",
        learner_code("class f:\n def allocate(self): pass\n def free(self): raise NotImplementedError('ex-97.2: x')"),
    )
    assert "[ ] ex-97.2: not attempted yet (write free())" in capsys.readouterr().out


def test_hints_climb_for_the_same_kind_and_start_again_after_ok(capsys: Out) -> None:
    too_many = learner_code("def f(n, p): return n // p + 1")
    for hint in ("hint 1 of 3: Which?", "hint 2 of 3: Why?", "hint 3 of 3: Draw.", "hint 3 of 3: Draw."):
        check("ex-97.1", too_many)
        out = capsys.readouterr().out
        assert out.startswith("[x] ex-97.1: 64 tokens, page 64: you took 2") and hint in out
    check("ex-97.1", learner_code("def f(n, p): return n // p"))
    assert "hint" not in capsys.readouterr().out
    check("ex-97.1", learner_code("def f(n, p): return -(-n // p)"))
    assert capsys.readouterr().out.startswith("[ok] ex-97.1: Pages needed. Round up.")
    check("ex-97.1", too_many)
    assert "hint 1 of 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "def f(n, p):\n return [][3]",
            "your code raised IndexError: list index out of range (line 2 of your cell)",
        ),
        ("def f(n, p):\n raise SystemExit", "your code raised SystemExit (line 2"),
        ("def f(n, p):\n raise KeyboardInterrupt", "your code raised KeyboardInterrupt (line 2"),
        ("def f(n, p):\n return f(n, p)", "your code raised RecursionError"),
        ("def f(n, p):\n class Odd(BaseException): pass\n raise Odd('x')", "your code raised Odd: x"),
        ("def f(n, p):\n raise ValueError('y' * 9999)", "yyy..."),
        ("def f(n): return 1", "the check could not use your answer: TypeError: f() takes 1 positional"),
        ("def f(n, p): return None", "the check could not use your answer: TypeError"),
        ("def f(n, p): return 'one'", "the check could not use your answer: TypeError"),
        ("f = 4", "the check could not use your answer: TypeError: 'int' object is not callable"),
        ("def f(n, p):\n while True: pass", "your code ran for more than 0.3 s and was stopped"),
        ("def f(n, p):\n while True:\n  try: n += 1\n  except: pass", "ran for more than 0.3 s"),
        ("def f(n, p):\n while True:\n  try: n += 1\n  except Exception: pass", "ran for more than 0.3 s"),
    ],
)
@pytest.mark.parametrize("on_main_thread", [True, False])
def test_it_survives(source: str, said: str, on_main_thread: bool, capsys: Out) -> None:
    thing = learner_code(source)
    if on_main_thread:
        check("ex-97.1", thing)
    else:
        thread = threading.Thread(target=check, args=("ex-97.1", thing))
        thread.start()
        thread.join(20)
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("[x] ex-97.1: ") and said in out


@pytest.mark.parametrize(
    ("body", "asks"),
    [
        ("[1, 2][b]", "Print the index"),
        ("{}[a]", "Print what keys there are"),
        ("import torch; return torch.zeros(3) + torch.zeros(4)", "Print the shape of each thing"),
        ("import torch; return torch.zeros(3, 4) @ torch.zeros(3, 4)", "Print the shape of each thing"),
        ("import numpy; return numpy.zeros(3) + numpy.zeros(4)", "Print the shape of each thing"),
    ],
)
def test_a_common_exception_says_what_to_look_at(body: str, asks: str, capsys: Out) -> None:
    check("ex-97.1", learner_code(f"def f(a, b):\n {body}"))
    out = capsys.readouterr().out
    assert "[x] ex-97.1: your code raised" in out and "hint 1 of" in out and asks in " ".join(out.split())


SWALLOWS = """
def f(a, b):
    import time
    while True:
        try:
            time.sleep(0.01)
            return undefined
        except:
            pass
"""
BUSY = """
def f(a, b):
    n = 0
    while True:
        try:
            n += sum(range(50))
            raise ValueError
        except BaseException:
            continue
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a ring inside of a garbage collection
@pytest.mark.parametrize("source", [SWALLOWS, BUSY], ids=["sleeps", "computes"])
def test_a_loop_that_swallows_everything_is_stopped(source: str, capsys: Out) -> None:
    for _turn in range(3):
        began = time.monotonic()
        check("ex-97.1", learner_code(source))
        assert "was stopped" in capsys.readouterr().out and time.monotonic() - began < 5
    assert sys.gettrace() is None or "stop" not in repr(sys.gettrace())


def test_a_guarded_run_inside_another_keeps_the_outer_limit() -> None:
    def nested() -> None:
        guarded(lambda: 1, 10.0)
        while True:
            pass

    began = time.monotonic()
    assert isinstance(guarded(nested, 0.3).error, TimeUp) and time.monotonic() - began < 3
    assert isinstance(guarded(lambda: guarded(lambda: time.sleep(9), 9.0), 0.3).value.error, TimeUp)  # type: ignore[union-attr]
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_librarys_own_not_implemented_is_an_error(capsys: Out) -> None:
    check("ex-97.1", learner_code("def f(a, b):\n import torch; return torch.softmax(torch.tensor([1, 2]), 0)"))
    assert capsys.readouterr().out.startswith("[x] ex-97.1: your code raised NotImplementedError")


def test_settings_that_an_answer_changes_are_put_back(tmp_path: Path, capsys: Out) -> None:
    here = os.getcwd()
    source = (
        "import os, torch; torch.set_default_dtype(torch.float64); torch.set_grad_enabled(False); os.chdir('/'); "
        "torch.set_default_device('meta')"
    )
    check("ex-97.1", learner_code(f"def f(a, b):\n {source}; return -(-a // b)"))
    assert (torch.get_default_dtype(), torch.is_grad_enabled(), os.getcwd()) == (torch.float32, True, here)
    assert torch.get_default_device() == torch.device("cpu")


def test_printing_a_lot_is_cut(capsys: Out) -> None:
    check("ex-97.1", learner_code("def f(n, p):\n print('z' * 100_000)\n return -(-n // p)"))
    out = capsys.readouterr().out
    assert len(out) < 5000 and "more characters" in out and "[ok] ex-97.1" in out


def test_standard_error_is_shown_as_text(capsys: Out) -> None:
    check("ex-97.1", learner_code("def f(n, p):\n import sys; print('careful', file=sys.stderr)\n return 0"))
    captured = capsys.readouterr()
    assert captured.err == "" and "careful" in captured.out


def test_a_wrong_answer_after_a_right_one_says_what_is_kept(learner: Path, capsys: Out) -> None:
    check("ex-97.1", learner_code("def f(n, p): return -(-n // p)"))
    assert "[ok]" in capsys.readouterr().out
    learner.mkdir(exist_ok=True)
    (learner / "ex_97_1.py").write_text("# ex-97.1 f\ndef f(n, p): return -(-n // p)\n")
    check("ex-97.1", learner_code("def f(n, p): return n // p + 1"))
    out = capsys.readouterr().out
    assert "[x]" in out and "right before is kept" in " ".join(out.split())


def test_strict_raises_after_printing(capsys: Out) -> None:
    for thing in (None, learner_code("def f(n, p): return 7")):
        with pytest.raises(CheckFailed, match=r"ex-97\.1"):
            check("ex-97.1", thing, strict=True)
    with pytest.raises(CheckFailed, match="no exercise"):
        check("ex-97.9", None, strict=True)
    check("ex-97.1", learner_code("def f(n, p): return -(-n // p)"), strict=True)
    assert "[ ] " in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ex-97.9", "ex-96.1", "p-97.1", "", 3, print])
def test_an_unknown_exercise_goes_on(name: Any, capsys: Out) -> None:
    check(name, print)
    out = capsys.readouterr().out
    assert "There is no exercise" in out or "The id comes first" in out


def test_a_judge_without_a_verdict_is_reported(capsys: Out) -> None:
    no_verdict: Callable[[object], Any] = lambda thing: None  # noqa: E731
    register(Exercise("ex-97.3", "t", 1, 1, "d", "i", no_verdict))
    check("ex-97.3", print)
    assert "this check is broken, please report it" in capsys.readouterr().out


def test_nothing_of_the_guard_stays_behind(capsys: Out) -> None:
    import signal

    before = signal.getsignal(signal.SIGALRM), sys.stdout
    check("ex-97.1", learner_code("def f(n, p):\n while True: pass"))
    assert (signal.getsignal(signal.SIGALRM), sys.stdout) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
