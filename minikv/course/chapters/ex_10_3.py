"""Exercise 10.3, the smallest sets of guards: the reference answer, and what is said of others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

from minikv.course.declare import Verdict, ok, wrong

LETTERS = "abcdefgh"
GOOD = ("right", "refused")
_ALL = ["".join(letters) for size in range(9) for letters in combinations(LETTERS, size)]
Rules = dict[str, Callable[[str], str]]


def smallest_sets(data: dict[str, Any]) -> list[str]:
    """The smallest sets of guards with which every scenario ends right or refused."""
    bad = {row["guards"] for row in data["combinations"] if row["verdict"] not in GOOD}
    covering = [row["guards"] for row in data["combinations"] if row["guards"] not in bad]
    fewest = min((len(guards) for guards in covering), default=0)
    return sorted({guards for guards in covering if len(guards) == fewest})


def made(rules: Rules) -> dict[str, Any]:
    """What `Matrix.as_json()` gives, without the answer; made up from rules: guards to verdict, for each scenario."""
    rows = [
        {"guards": guards, "scenario": name, **_row(rule(guards))} for guards in _ALL for name, rule in rules.items()
    ]
    return {"scenarios": list(rules), "combinations": rows, "streamed": []}


def _row(verdict: str) -> dict[str, Any]:
    status = {"right": 200, "refused": 400, "wrong": 200, "leaks": 200, "hangs": None}[verdict]
    leaked = verdict == "leaks"
    return {"status": status, "stale_slots_read": 30 if leaked else 0, "leaked": leaked, "verdict": verdict}


def _needs(*sets: str, good: str = "refused", bad: str = "leaks", **instead: str) -> Callable[[str], str]:
    """Good if one of the sets is on; else what `instead` says for a letter that is on; else bad."""

    def rule(guards: str) -> str:
        if any(set(each) <= set(guards) for each in sets):
            return good
        return next((verdict for letter, verdict in instead.items() if letter in guards), bad)

    return rule


# One in which a guard alone turns leaks into nonsense, and two sets are the smallest; one for which the greedy choice
# takes one guard too many; one with a single scenario that is hard; one that needs none; one in which nothing helps.
_NONSENSE: Rules = {
    "one": _needs("a", "c", "e", "h", f="wrong"),
    "two": _needs("e", "g", f="wrong"),
    "three": _needs("g", good="right", f="wrong"),
    "four": _needs("e", "h", bad="hangs", f="hangs"),
    "five": lambda _guards: "refused",
}
_GREEDY: Rules = {
    name: _needs(*letters)
    for name, letters in {"one": "ab", "two": "ab", "three": "ac", "four": "ac", "five": "b", "six": "c"}.items()
}
_LAST: Rules = {"one": _needs("a", "b"), "two": _needs("b", "c", good="right"), "three": _needs("cd", "bd")}
_NONE: Rules = {"one": lambda _guards: "refused", "two": lambda _guards: "right"}
_NEVER: Rules = {"one": _needs("a"), "two": lambda guards: "wrong" if "f" in guards else "leaks"}
_CASES = (_GREEDY, _NONSENSE, _LAST, _NONE, _NEVER)

_COVERED = (
    "Is an answer good because no stranger's word is in it?",
    "Right, or refused: these two. Nonsense with status 200 sends a client away with a lie, and silence is no answer.",
    "Five verdicts: right, refused, wrong, leaks, hangs. Mark those with which you would let a client go home.",
)
_EVERY = (
    "How many scenarios does a covering set have to cover?",
    "One row that is not good is enough to disqualify its guards.",
    "Take one set that you gave back, and print its rows, all of them.",
)
_SMALLER = (
    "You gave back sets that cover everything. Is there none with fewer guards?",
    "Whoever takes the best guard first, and then the next best, may end with one too many. Look at all sets instead.",
    "Guards a, b, c. Four scenarios need a or one of the others, one needs b, one needs c. Which two cover all?",
)
_ALL_OF_THEM = (
    "Is it the only one of its size?",
    "Find the size first. Then take every set of that size.",
    "Print all covering sets, sorted by length. How many stand at the front?",
)
_SHAPE = ('Give a list of texts, such as ["ab", "cd"]: the letters of each set.',)


def judge_smallest(thing: Any) -> Verdict:
    for number, rules in enumerate(_CASES):
        data = made(rules)
        before = copy.deepcopy(data)
        got = _sets(thing(data))
        if isinstance(got, Verdict):
            return got
        if data != before:
            return wrong(
                "changes-data", "your function changed the data that it was given.", "Work on copies of your own."
            )
        if got != set(smallest_sets(before)):
            return _why_other(before, got, rules, number)
    return ok(
        "Smallest sets. Right for one in which the greedy choice fails, one that needs no guard, and one hopeless one."
    )


def _sets(answer: Any) -> set[str] | Verdict:
    if isinstance(answer, (str, dict)) or not isinstance(answer, Iterable):
        return wrong("shape", f"you gave back {answer!r:.60}.", *_SHAPE)
    sets = []
    for each in answer:
        if not isinstance(each, Iterable) or isinstance(each, dict):
            return wrong("shape", f"one of your sets is {each!r:.60}.", *_SHAPE)
        letters = [str(letter) for letter in each]
        if set(letters) - set(LETTERS):
            return wrong("shape", f"one of your sets is {each!r:.60}.", *_SHAPE)
        sets.append("".join(sorted(letters)))
    return set(sets)


def _shown(sets: Iterable[str]) -> str:
    listed = [each or "no guard at all" for each in sorted(sets, key=lambda each: (len(each), each))]
    if len(listed) > 4:
        return f"{', '.join(listed[:4])} and {len(listed) - 4} more"
    return ", ".join(listed) or "none"


def _why_other(data: dict[str, Any], got: set[str], rules: Rules, number: int) -> Verdict:
    right = set(smallest_sets(data))
    by_guards: dict[str, list[dict[str, Any]]] = {}
    for row in data["combinations"]:
        by_guards.setdefault(row["guards"], []).append(row)
    if got and number == _CASES.index(_NEVER):
        return wrong("hopeless", f"nothing covers this one, and you gave back {_shown(got)}.", *_EVERY)
    for guards in sorted(got, key=lambda each: (len(each), each)):
        bad = [row for row in by_guards[guards] if row["verdict"] not in GOOD]
        if not bad:
            continue
        said = f"you gave back {guards or 'no guard at all'}. With it, {bad[0]['scenario']!r} ends {bad[0]['verdict']}"
        said += f", with status {bad[0]['status']}."
        if any(row["verdict"] == "hangs" for row in bad) and all(row["verdict"] in ("hangs", "wrong") for row in bad):
            kind = "counts-silence" if all(row["verdict"] == "hangs" for row in bad) else "counts-nonsense"
            return wrong(kind, said, *_COVERED)
        if all(row["verdict"] == "wrong" for row in bad):
            return wrong("counts-nonsense", said, *_COVERED)
        good = len(by_guards[guards]) - len(bad)
        return wrong("one-scenario", f"{said} It covers {good} of {len(by_guards[guards])}.", *_EVERY)
    if not got:
        said = f"you found none. {_shown(right)} would do."
        if right == {""}:
            return wrong("no-guard-needed", "here nothing ever goes wrong, and you found no set.", *_ALL_OF_THEM)
        return wrong("finds-none", said, *_COVERED)
    fewest = min(map(len, right))
    if min(map(len, got)) > fewest:
        size = min(map(len, got))
        said = f"you gave back {_shown(got)}, of {size} guards. A smaller one exists: {fewest} will do."
        return wrong("not-smallest", said, *_SMALLER)
    if max(map(len, got)) > fewest:
        return wrong("too-many", f"you gave back {_shown(got)}. Some of them are larger than others.", *_SMALLER)
    said = f"you gave back {_shown(got)}. There are {len(right)} sets of {fewest}."
    return wrong("not-all", said, *_ALL_OF_THEM)
