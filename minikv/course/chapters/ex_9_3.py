"""Exercise 9.3, three hypotheses: the reference, and what is said of others. Nobody has to be right, only exposed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from minikv.course.chapters.trials_9 import SEEN, UNCHANGED, changes, outcome
from minikv.course.declare import Verdict, ok, wrong

TRIALS: list[tuple[str, str, dict[str, object]]] = [
    (
        "It takes two pools of different sizes: if both are small, the request is refused.",
        "equal pools",
        {"status": 400, "reserved": 0},
    ),
    ("Zeros are not a stranger's words, so wiped pages end the stale reads.", "wiped", {"stale slots": 0}),
    (
        "Nobody reads the question, so another one of the same length changes nothing.",
        "other question",
        {"status": 200, "stale slots": 30, "answer": "same"},
    ),
]


def holds(expected: Mapping[str, object], seen: Mapping[str, object]) -> bool:
    """Whether an expectation came true. A collection of values means: one of these."""
    return all(_one_of(value, seen[key]) for key, value in expected.items())


def _one_of(value: object, seen: object) -> bool:
    if isinstance(value, Collection) and not isinstance(value, str):
        return seen in value
    return bool(value == seen)


def sound(trials: object) -> bool:
    """Whether these are trials that can be run."""
    return isinstance(trials, (list, tuple)) and bool(trials) and _form(trials) is None


def _form(trials: Sequence[Any]) -> Verdict | None:
    for number, trial in enumerate(trials, 1):
        if not isinstance(trial, (list, tuple)) or len(trial) != 3:
            said = f"trial {number} is {trial!r:.60}, and not (sentence, change, expectation)."
            return wrong("shape", said, "Three things in brackets: a sentence, the name of a change, and a dict.")
        if verdict := _parts(number, *trial):
            return verdict
    return None


def _parts(number: int, sentence: object, change: object, expected: object) -> Verdict | None:
    if not isinstance(sentence, str) or len(sentence.split()) < 3:
        return wrong(
            "no-sentence",
            f"the sentence of trial {number} is {sentence!r:.40}. That is too short to say what you believe.",
            "What do you believe about the cause, so that this change should matter, or should not?",
        )
    known = changes()
    if not isinstance(change, str) or change not in known:
        several = isinstance(change, Collection) and not isinstance(change, str)
        if several or sum(name in str(change) for name in known) > 1:
            return wrong(
                "two-changes",
                f"trial {number} makes more than one change: {change!r:.60}.",
                "If something happens then, which of the changes did it?",
                "Change one thing and leave everything else as it was. For two changes make two trials.",
                "You mend two of three faults, and the leak is gone. What do you know about each of the two?",
            )
        return wrong("change", f"there is no change {change!r:.40}.", "`laboratory()` prints the names of all changes.")
    if not isinstance(expected, Mapping) or set(expected) - set(SEEN):
        strange = sorted(map(repr, set(expected) - set(SEEN))) if isinstance(expected, Mapping) else [repr(expected)]
        return wrong(
            "expectation",
            f"the expectation of trial {number} names {strange[0]:.40}, which nobody measures.",
            f"What can be seen: {', '.join(SEEN)}. Write what each will be, such as {{'status': 400}}.",
        )
    for key, value in expected.items():
        if all(_of_another_kind(each, key) for each in _several(value)):
            return wrong(
                "expectation",
                f"trial {number} expects {key!r} to be {value!r:.40}. No run can ever show that: it is "
                f"{outcome(UNCHANGED)[key]!r} without a change, and a value of the same kind with one.",
                "Numbers stand without quotation marks. `laboratory()` shows what each value looks like.",
            )
    return None


def _several(value: object) -> list[object]:
    return list(value) if isinstance(value, Collection) and not isinstance(value, str) else [value]


def _of_another_kind(value: object, key: str) -> bool:
    """Whether a value can never be seen under this key, since it is a text for a number or the other way round."""
    usual = outcome(UNCHANGED)[key]
    if key == "answer":
        return value not in ("same", "other", "none")
    return isinstance(value, str) != isinstance(usual, str) or callable(value)


_COULD_FAIL = (
    "What would you have to see in order to say: I was wrong?",
    "An expectation that every run fulfils says nothing about this change. Name a number.",
    "Somebody expects that 'the status is 200 or an error'. Which run of this laboratory could prove them wrong?",
)
_DIFFERENCE = (
    "Does your sentence say that the change matters? What differs then from the unchanged run?",
    "Compare each expectation with what is seen without any change. At least one must differ from it, or you have only "
    "said what you know already.",
    "Unchanged, 30 stale slots are read. You expect 30 after a change as well. What did you say about that change?",
)
_CONTROL = (
    "If everything you touch seems to matter, is it the change that does it, or your measuring?",
    "Include one change that must do nothing, by your own idea of the cause, and expect what is seen without a change.",
    "Somebody presses a switch and the light goes out. What else do you press before you say that it was the switch?",
)


def judge_trials(thing: Any) -> Verdict:
    if not isinstance(thing, (list, tuple)):
        return wrong("shape", f"you gave {type(thing).__name__}, and not a list of trials.", "A list of three trials.")
    if verdict := _form(thing):
        return verdict
    if len(thing) < 3:
        return wrong(
            "fewer", f"{len(thing)} of three trials.", "Which other part could it be? Try to clear it of suspicion."
        )
    names = [change for _sentence, change, _expected in thing]
    if UNCHANGED in names or len(set(names)) < len(names):
        said = f"the changes are {', '.join(names)}: three different ones are asked for."
        return wrong("same-change", said, "What does the same trial tell you the second time?")
    runs = [outcome(name) for name in changes()]
    for number, (_sentence, _change, expected) in enumerate(thing, 1):
        if all(holds(expected, seen) for seen in runs):
            said = (
                f"trial {number} expects {dict(expected)}. That came true in all {len(runs)} runs of this laboratory."
            )
            return wrong("cannot-fail", f"{said} It could not fail.", *_COULD_FAIL)
    nothing = [holds(expected, outcome(UNCHANGED)) for _sentence, _change, expected in thing]
    if all(nothing):
        return wrong("no-difference", "all your expectations are true without any change as well.", *_DIFFERENCE)
    if not any(nothing):
        return wrong("no-control", "you expect a difference of each of your changes.", *_CONTROL)
    return ok(_told(thing))


def _told(trials: Sequence[tuple[str, str, Mapping[str, object]]]) -> str:
    came = [holds(expected, outcome(change)) for _sentence, change, expected in trials]
    said = f"each of these could have failed. {sum(came)} of {len(came)} came out as you wrote."
    wrong_ones = [change for (_sentence, change, _expected), true in zip(trials, came, strict=True) if not true]
    if wrong_ones:
        return f"{said} Look at {', '.join(wrong_ones)} below: an expectation that fails teaches most."
    return f"{said} Whoever is never wrong may have risked too little: try one more, of which you are not sure."
