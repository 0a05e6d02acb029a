"""Exercise 5.1, a step without chunks: the reference answer, and what is said of others."""

from __future__ import annotations

import itertools
from typing import Any

from minikv.course.chapters.counting import BUDGET, HANDS_OFF, MISSING, WHOLE, Request, Step, Visit, ask
from minikv.course.chapters.watched import (
    A_FLOAT,
    EMPTY_BATCH,
    EXACT,
    LEFT_OVER,
    NOBODY_SERVED,
    OVERTAKING,
    ZERO,
    Run,
    a_few,
    in_engine,
    readers_wait,
    remembers,
    rule_broken,
    youngest_first,
)
from minikv.course.declare import Verdict, ok, wrong
from minikv.errors import BrokenRule


def plan_whole(waiting: list[Request], running: list[Request], budget: int) -> list[tuple[Request, int]]:
    """Decodes first, then whole prompts in their order, as far as the budget goes."""
    plan = [(request, 1) for request in running[:budget]]
    left = budget - len(plan)
    for request in waiting:
        if request.known > left:
            break
        plan.append((request, request.known))
        left -= request.known
    return plan


def _stream(first: int, count: int, prompt: int, answer: int, start: int) -> list[Visit]:
    """One request a step."""
    return [Visit(f"R{first + k}", prompt, answer, start + k) for k in range(count)]


def _runs() -> list[tuple[list[Visit], int]]:
    return [
        ([Visit("R1", 3, 40), Visit("R2", 4, 4), Visit("R3", 3, 3), Visit("R4", 5, 3, 4), Visit("R5", 2, 9, 4)], 16),
        ([Visit("R1", 3, 14), Visit("R2", 4, 14), *_stream(3, 9, 10, 2, 2)], 12),
        ([Visit("R1", 2, 9), Visit("R2", 2, 9), Visit("R3", 11, 2, 2), *_stream(4, 40, 2, 3, 3)], 12),
        ([Visit("R1", 4, 5), Visit("R2", 9, 3, 2), Visit("R3", 8, 3, 3), Visit("R4", 2, 6, 3)], 10),
        ([Visit(f"R{k}", 1 + k % 5, 3 + k % 4, 1 + k // 3) for k in range(1, 25)], 11),
        ([Visit(f"R{k}", 1 + k % 2, 4) for k in range(1, 41)], 64),  # many at once
        ([Visit("R1", 3, 6), Visit("R2", 150, 2, 2), Visit("R3", 90, 2, 2)], 300),  # a large server
    ]


_RECOMPUTED = (
    "Of the tokens that R1 knows, which ones have no key and value yet?",
    "Who runs has everything written but the newest token. Only that one is computed; the others are read.",
    "R1 has a prompt of 4, and its first token is there. Written 4, known 5. What does the next step compute?",
)


_SKIPPING = (
    "Whom does your loop look at first, second, third?",
    "Go through those who wait as they stand, from first to last. A list that shrinks during the loop skips some.",
    "Budget 8, and R1, R2 and R3 wait with 2 tokens each. Play your loop by hand. Whom does it look at, and when?",
)


_NO_PIECES = "Here a prompt is read whole or not at all. Pieces come in exercise 5.2: keep your idea for it."
_TOO_LONG = (
    "Nobody else is in the plan yet. What does your code ask before it takes this prompt?",
    "The budget holds for every step, also for one that would be empty otherwise. A whole prompt that is longer has no "
    "place in any step: that is what exercise 5.2 is about.",
    "Budget 16, nobody runs, R1 waits with 17 tokens. Play your lines one by one. Which of them lets R1 in?",
)


def judge_whole(thing: Any) -> Verdict:
    """Judge `plan_whole`, a plan without chunks."""
    if (found := remembers(thing)) is not None:
        return found
    runs = [Run(thing, visits, budget) for visits, budget in _runs()]
    for look in (_rules, _readers, _pieces, _order, _room):
        for run in [runs[1], *runs] if look is _readers else runs:  # the stream of prompts shows it best
            if (found := look(run, thing)) is not None:
                return found
    return _many_decodes(thing) or _alone(thing) or _somebody_back(thing) or in_engine(thing, 64) or ok()


def _rules(run: Run, thing: Any) -> Verdict | None:
    broken = run.broken
    if broken is None:
        return None
    if broken.rule == MISSING:
        return wrong("recomputes", f"step {broken.step}: {broken.detail}. The rest is written already.", *_RECOMPUTED)
    if broken.rule == WHOLE:
        if broken.detail.endswith(" 0"):
            return wrong("zero", f"step {broken.step}: {broken.detail}. A share of 0 is no share.", *ZERO)
        return wrong("not-whole", f"step {broken.step}: {broken.detail}.", *A_FLOAT)
    if broken.rule.startswith("a step with work"):
        return _nothing(run, broken)
    return rule_broken(broken, thing)


def _nothing(run: Run, broken: BrokenRule) -> Verdict:
    said = f"step {broken.step}: {broken.detail}."
    if not run.steps:
        return wrong("empty", said, "Nobody runs in the first step. Where do those who wait come into your plan?")
    return wrong("empty", said, *NOBODY_SERVED)


def _readers(run: Run, _thing: Any) -> Verdict | None:
    return next((found for step in run.steps if (found := readers_wait(run, step))), None)


def _pieces(run: Run, _thing: Any) -> Verdict | None:
    for step in run.steps:
        for one in step.waiting:
            if 0 < step.plan.get(one.name, 0) < one.known:
                said = f"step {step.number}: {one.name} has {one.known} tokens, and you planned {step.plan[one.name]}."
                return wrong(
                    "pieces",
                    f"{said} That is a piece of a prompt.",
                    _NO_PIECES,
                )
    return None


def _order(run: Run, _thing: Any) -> Verdict | None:
    for step in run.steps:
        started = [one.name in step.plan for one in step.waiting]
        if any(later and not before for before, later in itertools.pairwise(started)):
            head = step.waiting[started.index(False)]
            if (found := _skipped(step, head, run.budget)) is not None:
                return found
            began, arrived = run.start(head.name), run.visits[head.name].arrives
            behind = list(run.visits)[list(run.visits).index(head.name) + 1 :]
            starts = [start for name in behind if (start := run.start(name)) is not None]
            passed = sum(began is None or start < began for start in starts)
            end = f"had not run by step {run.steps[-1].number}" if began is None else f"ran in step {began}"
            said = f"{head.name} came in step {arrived} and {end}. {passed} who came after it started before it."
            return wrong("overtakes", said, *OVERTAKING)
    return None


def _skipped(step: Step, head: Request, budget: int) -> Verdict | None:
    """Whether the head would have fitted, and somebody behind it started in its place."""
    names = [one.name for one in step.waiting]
    later = [name for name in names[names.index(head.name) + 1 :] if name in step.plan]
    left = budget - sum(tokens for name, tokens in step.plan.items() if name not in later)
    if head.known > left:
        return None
    said = f"step {step.number}: {head.name} stood before {later[0]} and would have fitted, but {later[0]} started."
    return wrong("skips", said, *_SKIPPING)


def _room(run: Run, _thing: Any) -> Verdict | None:
    """Steps in which one more whole prompt would have fitted."""
    missed = [(step, head, left) for step in run.steps for head, left in [_next(step, run.budget)] if head is not None]
    if not missed:
        return None
    step, head, left = missed[0]
    busy = [each for each in run.steps if each.running]
    if missed and all(each.plan.keys().isdisjoint(one.name for one in each.waiting) for each in busy):
        waited = max(len([s for s, h, _ in missed if h is not None and h.name == who]) for who in run.visits)
        who = max(run.visits, key=lambda name: len([s for s, h, _ in missed if h is not None and h.name == name]))
        said = f"{who} waited {waited} steps though the budget had room for it: you start nobody while somebody runs."
        return wrong("waits-for-empty", said, *EMPTY_BATCH)
    were = f"{a_few(left)} {'was' if left == 1 else 'were'} left"
    if all(h is not None and h.known == rest for _s, h, rest in missed):
        said = f"step {step.number}: {were}, {head.name} has {head.known}, and you left it waiting."
        return wrong("exact-fit", said, *EXACT)
    said = f"step {step.number}: {were}, {head.name} stood first with {head.known}, and did not start."
    return wrong("leaves-room", said, *LEFT_OVER)


def _next(step: Step, budget: int) -> tuple[Request | None, int]:
    """The first who still waits although what is left would do, and what is left."""
    left = budget - step.tokens
    head = next((one for one in step.waiting if one.name not in step.plan), None)
    return (head, left) if head is not None and head.known <= left else (None, left)


def _many_decodes(thing: Any) -> Verdict | None:
    """More run than the budget has tokens, which happens on a machine that gets requests from another."""
    running = [Request(f"R{k}", 9, 8) for k in range(8, 13)]
    try:
        plan = ask(thing, [Request("R13", 2)], running, 3)
    except BrokenRule as broken:
        if broken.rule in (HANDS_OFF, WHOLE):
            return wrong("not-whole", f"five run, the budget is 3: {broken.detail}.", "What is left after the third?")
        return rule_broken(BrokenRule(broken.rule, f"five run, the budget is 3: {broken.detail}"), thing)
    if len(plan) < 3 or "R13" in plan:
        said = f"five run, the budget is 3, and your plan is {plan}."
        return wrong(
            "many-decodes", said, "Who gets these 3 tokens?", "The oldest get theirs, and the budget is used up."
        )
    return youngest_first(plan, 3)


def _alone(thing: Any) -> Verdict | None:
    """One prompt and nobody else, as long as the whole budget and one longer."""
    for budget in (16, 1, 5, 300):
        plan = _asked(thing, budget, budget)
        if plan != {"R1": budget}:
            said = (
                f"budget {budget}, R1 waits with {a_few(budget)}, nobody else is there: your plan is {_in_words(plan)}."
            )
            return wrong("exact-fit", f"{said} R1 would never start.", *EXACT)
        plan = _asked(thing, budget + 1, budget)
        if plan:
            said = f"budget {budget}, R1 waits with {a_few(budget + 1)}, nobody else is there: your plan is "
            said += f"{_in_words(plan)}."
            if plan["R1"] <= budget:
                return wrong("pieces", f"{said} That is a piece of a prompt.", _NO_PIECES)
            return wrong("too-long-alone", f"{said} That is over the budget.", *_TOO_LONG)
    return None


def _asked(thing: Any, prompt: int, budget: int) -> dict[str, int]:
    try:
        return ask(thing, [Request("R1", prompt)], [], budget)
    except BrokenRule as broken:
        return {"R1": prompt} if broken.rule == BUDGET else {}


def _in_words(plan: dict[str, int]) -> str:
    return ", ".join(f"{name}: {tokens}" for name, tokens in plan.items()) or "empty"


def _somebody_back(thing: Any) -> Verdict | None:
    """Who gave its pages back waits with a part of its answer known: its prompt has grown."""
    plan = ask(thing, [Request("R2", 7), Request("R3", 3)], [Request("R1", 5, 4)], 8)
    if plan != {"R1": 1, "R2": 7}:
        said = f"budget 8, R1 misses 1, R2 waits with 7, R3 with 3: your plan is {plan}."
        return wrong("leaves-room", said, *LEFT_OVER)
    return None
