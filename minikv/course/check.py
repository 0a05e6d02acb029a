"""`check("ex-3.2", thing)`: not attempted, wrong and why, or right. It never stops the notebook."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from dataclasses import dataclass
from types import TracebackType

from minikv.course.declare import Exercise, Verdict, find, not_known, wrong
from minikv.course.guard import Outcome, TimeUp
from minikv.course.home import ANSWERED, note
from minikv.course.parts import judged, keep, kept_parts
from minikv.course.say import INDENT, say
from minikv.course.source import files_of

_KEPT = "(Your answer that was right before is kept, and later notebooks still use it.)"
_LONGEST_MESSAGE = 300  # characters of an exception that are shown
_SHAPES = re.compile(r"shape|size of tensor|dimension|einsum|broadcast|must match|mat1", re.IGNORECASE)

_met: Counter[tuple[str, str]] = Counter()  # how often which kind of mistake was met, in this kernel


class CheckFailed(AssertionError):
    """The answer is missing or wrong, and `check` was asked to be strict."""


@dataclass(frozen=True)
class _NotAttempted:
    where: str = ""


def check(exercise_id: str, thing: object, strict: bool = False) -> None:
    """Look at your answer to an exercise and say what it does.

    `[ ]` means not attempted yet, `[x]` says what your code did and gives a hint that fits (a further
    one if the same happens again), `[ok]` keeps your code in `my_minikv/`. With `strict=True`, for
    graders, everything but `[ok]` raises `CheckFailed` after it was printed.
    """
    exercise = find(Exercise, exercise_id)
    if exercise is None:
        _end(not_known(Exercise, exercise_id), [], strict)
        return
    if thing is None or thing is ... or thing is NotImplemented:
        found: _NotAttempted | Verdict = _NotAttempted()
    else:
        outcome = judged(exercise, thing)
        if outcome.printed:
            print(f"Your code printed:\n{textwrap.indent(outcome.printed, INDENT)}")
        try:
            found = _read(exercise, thing, outcome)
        except Exception as strange:  # an answer that even fails to be looked at
            found = wrong("strange", f"the check could not look at your answer ({type(strange).__name__}).")
    if isinstance(found, _NotAttempted):
        todo = f" (write {found.where})" if found.where else ""
        effort = f"About {exercise.lines} lines, {exercise.minutes} minutes. Done when {exercise.done_when}."
        _end(f"[ ] {exercise.id}: not attempted yet{todo}", [effort], strict)
    elif found.right:
        for met in [met for met in _met if met[0] == exercise.id]:
            del _met[met]
        try:
            kept = keep(exercise, thing)
            if kept is None:
                note(ANSWERED, exercise.id, True)  # a plain value: there is nothing to run later
        except Exception as strange:
            kept = f"Not kept in my_minikv/: its source could not be read ({type(strange).__name__})."
        said = found.said or f"{exercise.title}. {exercise.idea}"
        say(f"[ok] {exercise.id}: {said}", *([kept] if kept else []))
    else:
        kept_before = [_KEPT] if exercise.id in kept_parts() else []
        _end(f"[x] {exercise.id}: {found.said}", _next_hint(exercise, found) + kept_before, strict)


def _end(first: str, more: list[str], strict: bool) -> None:
    say(first, *more)
    if strict:
        raise CheckFailed(first)


def _next_hint(exercise: Exercise, verdict: Verdict) -> list[str]:
    _met[exercise.id, verdict.kind] += 1
    if not verdict.hints:
        return []
    tier = min(_met[exercise.id, verdict.kind], len(verdict.hints))
    return [f"hint {tier} of {len(verdict.hints)}: {verdict.hints[tier - 1]}"]


def _read(exercise: Exercise, thing: object, outcome: Outcome[Verdict]) -> _NotAttempted | Verdict:
    """What a guarded run of the judge means."""
    error = outcome.error
    if error is None:
        if isinstance(outcome.value, Verdict):
            return outcome.value
        return wrong("judge", "this check is broken, please report it: its judge gave no verdict.")
    frame = _last_own_frame(error.__traceback__, files_of(thing))
    if isinstance(error, NotImplementedError) and _of_a_stub(error):
        return _NotAttempted(f"{frame[0]}()" if frame and isinstance(thing, type) else "")
    if isinstance(error, TimeUp):
        return wrong(
            "time",
            f"your code ran for more than {exercise.seconds:g} s and was stopped.",
            "Which loop or wait has no end? Print what it counts, once per round.",
            "What must change in each round, so that the loop can stop? Does it change on every path?",
            "Play the smallest case by hand, one line for each round, and stop when two lines are equal.",
        )
    said = " ".join(str(error).split())
    said = f"{said[:_LONGEST_MESSAGE]}..." if len(said) > _LONGEST_MESSAGE else said
    raised = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if frame:
        said = f"your code raised {raised} (line {frame[1]} of your cell)"
        return wrong(f"raised {type(error).__name__}", said, *_about(error))
    return wrong(
        f"unusable {type(error).__name__}",
        f"the check could not use your answer: {raised}",
        "Compare with the exercise: what does it take, what does it give back, and what is it called?",
    )


def _of_a_stub(error: NotImplementedError) -> bool:
    """Whether it says that something is still to be written; libraries have uses of their own for this error."""
    return not str(error) or str(error).startswith("ex-")


def _about(error: BaseException) -> tuple[str, ...]:
    """What to look at after an exception of a common kind."""
    if isinstance(error, IndexError):
        return (
            "Print the index, and the length of what it looks into. Where does counting begin, and where does it end?",
        )
    if isinstance(error, KeyError):
        return ("Print what keys there are. Which of them did you expect, and who should have put it there?",)
    if isinstance(error, (RuntimeError, ValueError)) and _SHAPES.search(str(error)):
        return (
            "Print the shape of each thing that meets in that line. What does each axis count, and which must agree?",
            "Give every axis a name on paper, such as heads, tokens, numbers. Axes of one name must be as long as each "
            "other.",
        )
    return ()


def _last_own_frame(trace: TracebackType | None, files: set[str]) -> tuple[str, int] | None:
    """Function name and line of the innermost frame that is the learner's own code."""
    found = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename in files or trace.tb_frame.f_globals.get("__name__") == "__main__":
            found = (code.co_name, trace.tb_lineno)
        trace = trace.tb_next
    return found
