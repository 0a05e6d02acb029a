"""Exercise 5.2, chunks: the reference answer, and what is said of others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minikv.course.chapters.counting import MISSING, WHOLE, WORK, Request, Step, Visit, ask
from minikv.course.chapters.watched import (
    A_FLOAT,
    EMPTY_BATCH,
    IN_TOKENS,
    LEFT_OVER,
    NOBODY_SERVED,
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


def plan_step(waiting: list[Request], running: list[Request], budget: int) -> list[tuple[Request, int]]:
    """Whoever misses one token first, then the rest of prompts and new prompts, as far as the budget goes."""
    plan = []
    for request in sorted(running, key=lambda one: one.known - one.written > 1) + waiting:
        share = min(request.known - request.written, budget)
        if share > 0:
            plan.append((request, share))
            budget -= share
    return plan


REST = (
    "How many of these tokens were written before this step?",
    "A chunk starts where the last one ended. What is left of a prompt is what is known less what is written.",
    "A prompt of 10, budget 4. Write down `known` and `written` before each step, and the chunk.",
)
TOO_FAR = (
    "Which token would the last one of these be?",
    "The next token of an answer comes out of a step. Before the step nobody knows it, so nobody can compute it.",
    "R1 knows 5 tokens and has written 4. The step computes 1. What are these two numbers after it?",
)
ONE_SHORT = (
    "When has a prompt been read to its end?",
    "The last token of a prompt is a token like the others. It is the one from which the answer starts.",
    "A prompt of 4, budget 4. How many chunks should it take, and how many does yours?",
)
DRIPS = (
    "It runs, but does it answer already? How can you tell from `known` and `written`?",
    "Among those who run are some who answer, and some whose prompt is not finished. These miss more than one token.",
    "A prompt of 10, budget 4. After the first step it runs. How much does it miss, and how much is free for it?",
)
FORGOTTEN = (
    "After its first chunk a request runs. Which of your lines gives it the second?",
    "Three kinds want tokens: those who answer, those who run and are still in their prompt, and those who wait.",
    "A prompt of 10, budget 4. In which of the two lists does it stand in step 2?",
)
IN_ORDER = (
    "Who came first, and who got the tokens?",
    "Finish what was begun before something new begins: else many prompts are half read, and nobody answers.",
    "Budget 4, two prompts of 8. When does each get its first token, one after the other? And if they take turns?",
)
STARTS = (
    "Nobody runs in the first step, and R1 waits. How much does your code want to give R1?",
    "Whoever waits has written nothing. What it misses is all that it knows.",
    "R1 waits with 3 tokens: known 3, written 0. What does your line for the share give?",
)
OWN_LIMIT = (
    "Which number in your code is not the budget, and limits a chunk all the same?",
    "The budget is the only limit of a step. How large it is differs from server to server, and your function is told.",
    "Budget 100, nobody else is there, R1 waits with 90 tokens. How many steps should it take, and how many do yours?",
)
IN_PIECES = (
    "Does a prompt have to fit into one step?",
    "Now a prompt may be cut. What does not fit in this step is read in the next.",
    "Budget 4, a prompt of 10. How many tokens does it get in step 1, 2 and 3?",
)


def _runs() -> list[tuple[list[Visit], int]]:
    return [
        ([Visit("R1", 3, 12), Visit("R2", 2, 12), Visit("R3", 40, 4, 3), Visit("R4", 5, 3, 4)], 16),
        ([Visit("R1", 4, 30), Visit("R2", 9, 3), Visit("R3", 120, 3, 2), Visit("R4", 30, 2, 3)], 16),
        ([Visit("R1", 8, 3), Visit("R2", 1, 3), Visit("R3", 1, 3), Visit("R4", 16, 3, 3), Visit("R5", 9, 2, 3)], 8),
        ([Visit(f"R{k}", 1 + 5 * k % 37, 2 + k % 4, 1 + k // 3) for k in range(1, 25)], 10),
        ([Visit("R1", 7, 4), Visit("R2", 5, 4, 2)], 3),
        ([Visit("R1", 3, 5), Visit("R2", 2500, 2, 2), Visit("R3", 700, 2, 2)], 1100),  # a large server
        ([Visit(f"R{k}", 1 + k % 2, 4) for k in range(1, 41)], 64),  # many at once
    ]


def judge_chunks(thing: Any) -> Verdict:
    """Judge `plan_step` with chunks."""
    if (found := remembers(thing)) is not None:
        return found
    runs = [Run(thing, visits, budget) for visits, budget in _runs()]
    for run in runs:
        if run.broken is not None and run.broken.rule not in (MISSING, WHOLE, WORK):
            return rule_broken(run.broken, thing)
    for look in (_rules, _readers, _shares):
        for run in runs:
            if (found := look(run)) is not None:
                return found
    return _many_decodes(thing) or in_engine(thing, 7) or ok()


def _rules(run: Run) -> Verdict | None:
    broken = run.broken
    if broken is None:
        return None
    said = f"step {broken.step}: {broken.detail}"
    if broken.rule == WHOLE:
        if broken.detail.endswith(" 0"):
            return wrong("zero", f"{said}. A share of 0 is no share.", *ZERO)
        return wrong("not-whole", f"{said}.", *A_FLOAT)
    if broken.rule == MISSING:
        return _too_much(said, broken)
    return _too_little(run, said, broken)


def _too_much(said: str, broken: BrokenRule) -> Verdict:
    name, _, missing, _, known, _, _, _, tokens = broken.detail.split()
    written = int(known) - int(missing)
    if int(tokens) == int(missing) + 1 and written + int(tokens) > int(known):
        return wrong("too-far", f"{said}: that is one more than there is.", *TOO_FAR)
    computed = f"{name} would have computed {written + int(tokens)} of {known} tokens"
    return wrong("whole-again", f"{said}. {computed}.", *REST)


def _too_little(run: Run, said: str, broken: BrokenRule) -> Verdict:
    """The plan was empty though there was work: what had the last steps left undone?"""
    if (found := _shares(run)) is not None:
        return found
    if not run.steps and "without chunks" in broken.detail:
        return wrong("no-chunks", f"{said}.", *IN_PIECES)
    if not run.steps:
        return wrong("empty", f"{said}.", *STARTS)
    last = run.steps[-1]
    if any(one.known - one.written - last.plan.get(one.name, 0) > 1 for one in (*last.running, *last.waiting)):
        return wrong("forgotten", f"{said}. In the step before, a prompt had got a part of its tokens.", *FORGOTTEN)
    return wrong("empty", f"{said}.", *NOBODY_SERVED)


def _readers(run: Run) -> Verdict | None:
    return next((found for step in run.steps if (found := readers_wait(run, step))), None)


@dataclass(frozen=True)
class _Less:
    """A prompt that got less than it should have got, and who of those behind it got something."""

    step: Step
    one: Request
    got: int
    want: int
    later: list[Request]

    @property
    def missing(self) -> int:
        return self.one.known - self.one.written


def _shares(run: Run) -> Verdict | None:
    found = [less for step in run.steps if (less := _first_less(run, step)) is not None]
    return _why(run, found) if found else None


def _first_less(run: Run, step: Step) -> _Less | None:
    """The first prompt of a step that got less than it should have got."""
    decodes = [one for one in step.running if one.known - one.written == 1]
    left = run.budget - sum(one.name in step.plan for one in decodes)
    order = [*(one for one in step.running if one not in decodes), *step.waiting]
    for index, one in enumerate(order):
        got, want = step.plan.get(one.name, 0), min(one.known - one.written, max(left, 0))
        left -= got
        if got < want:
            return _Less(step, one, got, want, [each for each in order[index + 1 :] if each.name in step.plan])
    return None


def _why(run: Run, found: list[_Less]) -> Verdict:
    less = found[0]
    one, got, want, missing, later = less.one, less.got, less.want, less.missing, less.later
    step = less.step
    where = f"step {step.number}: {one.name}"
    if got and all(each.got == each.missing - 1 for each in found if each.got):
        said = f"{where} missed {missing} tokens, {want} would have fitted, and it got {got}. One was left out."
        return wrong("one-short", said, *ONE_SHORT)
    if run.budget > 100 and len(found) > 1 and 1 < got == max(each.got for each in found) < want:
        said = f"{where} missed {missing:,} tokens, {want:,} of {run.budget:,} were free for it, and it got {got:,}."
        return wrong("own-limit", f"{said} On a small server all was right.", *OWN_LIMIT)
    runs_on = [each.plan.get(one.name, 0) for each in run.steps if _reads_on(each, one.name)]
    if runs_on and got == 1 and max(runs_on) == 1:
        said = f"{where} had read {one.written} of its {one.known} tokens, {want} were free for it, and it got 1"
        return wrong("drips", f"{said}. So it went on for {len(runs_on)} steps.", *DRIPS)
    if runs_on and max(runs_on) == 0:
        said = f"{where} had read {one.written} of its {one.known} tokens, and never got another one."
        return wrong("forgotten", said, *FORGOTTEN)
    if later:
        said = f"{where} missed {missing} tokens and got {got}, while {later[0].name}, who stands behind it, got "
        return wrong("overtakes", f"{said}{step.plan[later[0].name]}.", *IN_ORDER)
    if got == 0 and missing > run.budget and run.start(one.name) is None:
        said = f"{one.name} has {missing} tokens, a step has {run.budget}, and it never started."
        return wrong("no-chunks", said, *IN_PIECES)
    if got == 0:
        busy = [each for each in run.steps if each.running]
        if all(each.plan.keys().isdisjoint(waits.name for waits in each.waiting) for each in busy):
            said = (
                f"{where} waited, though {want} tokens of the budget were left: you start nobody while somebody runs."
            )
            return wrong("waits-for-empty", said, *EMPTY_BATCH)
    waits = "" if any(each.name == one.name for each in step.running) else ", who waits,"
    free = f"{a_few(want)} of the budget {'was' if want == 1 else 'were'} left for it"
    said = f"{where}{waits} missed {a_few(missing)}, {free}, and it got {got}."
    return wrong("leaves-room", said, *LEFT_OVER)


def _reads_on(step: Step, name: str) -> bool:
    """Whether a request was in the middle of its prompt before a step."""
    return any(one.name == name and one.known - one.written > 1 for one in step.running)


def _many_decodes(thing: Any) -> Verdict | None:
    running = [Request(f"R{k}", 9, 8) for k in range(8, 13)]
    try:
        plan = ask(thing, [Request("R13", 2)], running, 3)
    except BrokenRule as broken:
        said = f"five miss one token each, the budget is 3: {broken.detail}."
        if broken.rule == WHOLE:
            return wrong("zero", said, *ZERO)
        return wrong("over-budget", said, "When is nothing left?", *IN_TOKENS[1:])
    if len(plan) < 3 or "R13" in plan:
        said = f"five miss one token each, the budget is 3, and your plan is {plan}."
        return wrong("leaves-room", said, *LEFT_OVER)
    return youngest_first(plan, 3)
