"""Runs of a learner's `plan_step`, watched: what it did in each step, and what is common to the two exercises."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from minikv.course.chapters.counting import (
    BUDGET,
    ENDS,
    GIVEN,
    HANDED,
    HANDS_OFF,
    ONCE,
    PAIRS,
    Request,
    Step,
    Visit,
    ask,
    steps,
)
from minikv.course.declare import Verdict, wrong
from minikv.errors import BrokenRule

FIRST_THINGS = (
    "Somebody is reading this answer. When does the next token come?",
    "An answer that has begun needs one token in every step. Give these first; prompts share what is left.",
    "Budget 6. R1 and R2 miss one token each, R3 waits with 6. Write down two steps, and who got what.",
)
EMPTY_BATCH = (
    "The step had tokens left. What kept the first of those who wait out of it?",
    "Requests end at different times. Whenever the budget has room, the next can join those who run.",
    "Budget 8. R1 and R2 run, R3 waits with 3 tokens. How many tokens does the step compute if R3 waits, and if not?",
)
OVERTAKING = (
    "What does your code do when the first of those who wait does not fit?",
    "If shorter prompts may go past, there may always be one more of them. Whoever does not fit ends the plan.",
    "Budget 8. R1 runs, R2 waits with 8 tokens, and in each step a new request with 2 comes. When does R2 start?",
)
IN_TOKENS = (
    "What do you compare each share with, and what do you take off the budget for it?",
    "The budget counts tokens. A request takes as much of it as it computes, which may be one token or hundreds.",
    "Budget 10, three prompts of 4 tokens. How much is left after the first, the second, the third?",
)
EXACT = (
    "With how many tokens left does a prompt of 5 fit?",
    "Exactly enough is enough.",
    "Budget 6, nobody runs, R1 waits with 6. Play your lines one by one. What does your comparison say?",
)
NOBODY_SERVED = (
    "Which of the two lists did your code go through in this step?",
    "Whoever has started stands in `running` from then on, and needs one token in every step.",
    "R1 waits with 4 tokens, budget 8. Write down both lists before step 1 and before step 2, and the two plans.",
)
A_FLOAT = (
    "Tokens are whole numbers. Which of your lines makes something else of them?",
    "`/` always gives a float, also where nothing is left over. `//`, `min` and `-` of whole numbers do not.",
)
LEFT_OVER = (
    "Whom could you have given what was left?",
    "A step costs a pass through all weights, however few tokens are in it. So use the budget as far as the rules let.",
    "Budget 8. Write down who waits, who runs and what is left after each line of your plan.",
)
ZERO = (
    "What is left of the budget when you come to this request?",
    "A share of 0 computes nothing, and yet it takes a place in the step. Whoever gets nothing is not in the plan.",
    "Budget 4. R1 waits with 4 tokens, R2 with 4. What does your line for the share give for R2?",
)
_A_PAIR = (
    "Look at the exercise once more: a list of pairs, each a request that you were given and a number of tokens.",
    "Each entry must say two things: who, and how many tokens. `(request, 1)` is such a pair.",
)
_NOTHING_BACK = (
    "Your function went through to its end, or to a bare `return`. Where does it give the plan back?",
    "It must give a plan back on every way through it: also if nobody waits, or nobody runs, or the budget is used up.",
)
REMEMBERS = (
    "Each step asks for a plan of its own. Where in your code does an empty plan begin?",
    "What stands outside the function, or in its `def` line, is made once. What stands inside is made in each call.",
)
_ENDLESS = (
    "You give the pairs one by one. Which line of yours gives the last one?",
    "A plan is for one step. Everybody stands in it once at most, and then it is complete.",
)
_ON_THE_QUIET = (
    "The engine writes, and then it counts. What would it do with a request that counts by itself?",
    "A plan says what shall be done. Keep what you need in variables of your own, such as what is left of the budget.",
)


class Run:
    """A run of a plan: its steps so far, and the rule that ended it, if one did."""

    def __init__(self, plan_step: Any, visits: Sequence[Visit], budget: int, most: int = 200) -> None:
        self.visits = {visit.name: visit for visit in visits}
        self.budget = budget
        self.steps: list[Step] = []
        self.broken: BrokenRule | None = None
        try:
            for step in steps(plan_step, visits, budget, most):
                self.steps.append(step)
        except BrokenRule as broken:
            self.broken = broken

    def spoke(self, name: str) -> list[int]:
        """The steps in which a request got a token."""
        return [
            step.number
            for step in self.steps
            for one in (*step.running, *step.waiting)
            if one.name == name and step.plan.get(name) == one.known - one.written
        ]

    def gap(self, names: Iterator[str] | Sequence[str]) -> tuple[str, int]:
        """Who of some waited longest for the next token, and how many steps; until the end if none came."""
        found = ("", 0)
        for name in names:
            spoke = self.spoke(name)
            if spoke and len(spoke) < self.visits[name].answer:
                spoke.append(self.steps[-1].number)
            longest = max((b - a for a, b in itertools.pairwise(spoke)), default=0)
            found = max(found, (name, longest), key=lambda one: one[1])
        return found

    def start(self, name: str) -> int | None:
        """The step in which a request got its first share."""
        return next((step.number for step in self.steps if name in step.plan), None)


def rule_broken(broken: BrokenRule, plan_step: Any) -> Verdict:
    """What is said of a plan that breaks one of the rules that `ask` looks at."""
    said = f"step {broken.step}: {broken.detail}." if broken.step else f"{broken.detail}."
    if broken.rule == PAIRS and broken.detail.startswith("None "):
        return wrong("shape", f"{said} {PAIRS[0].upper()}{PAIRS[1:]}.", *_NOTHING_BACK)
    if broken.rule == PAIRS:
        return wrong("shape", f"{said} {PAIRS[0].upper()}{PAIRS[1:]}.", *_A_PAIR)
    if broken.rule in (GIVEN, HANDED):
        return wrong("unknown", f"{said} {broken.rule[0].upper()}{broken.rule[1:]}.", *_A_PAIR)
    if broken.rule == ENDS:
        return wrong("endless", f"{said} Does your plan come to an end?", *_ENDLESS)
    if broken.rule == ONCE:
        return wrong(
            "twice",
            said,
            "Which two of your lines can add the same request?",
            "A request runs or waits, never both. In a plan it stands once, with all the tokens that it gets.",
        )
    if broken.rule == HANDS_OFF:
        return wrong("changes", f"{said} A plan changes no request.", *_ON_THE_QUIET)
    if broken.rule == BUDGET:
        return _over_budget(said, plan_step)
    return wrong("rule", said, "What is written, what is known, and what is the difference?")


def remembers(plan_step: Any) -> Verdict | None:
    """Whether a plan still names who was in the one before, as with a list that is made once for all calls."""
    for name in ("R1", "R2"):
        given = plan_step([Request(name, 2)], [], 8)
        pairs = list(itertools.islice(given, 9)) if isinstance(given, Iterable) else []  # it may have no end
        parts = [part for pair in pairs if isinstance(pair, Iterable) for part in itertools.islice(pair, 3)]
        named = [part.name for part in parts if isinstance(part, Request)]
        if gone := [one for one in named if one != name]:
            said = f"{gone[0]} was in an earlier plan. It is in the next one too, but it neither waits nor runs now."
            return wrong("remembers", said, *REMEMBERS)
    return None


def a_few(tokens: int) -> str:
    """A number of tokens, in words."""
    return f"{tokens} token" if tokens == 1 else f"{tokens} tokens"


def youngest_first(plan: Mapping[str, int], oldest: int) -> Verdict | None:
    """Whether decodes R8, R9 and so on, oldest first, were passed over for others when not all of them fitted."""
    due = [f"R{k}" for k in range(8, 8 + oldest)]
    if set(plan) >= set(due):
        return None
    said = f"five run, R8 the oldest, R12 the youngest, and the budget is {oldest}: {', '.join(plan)} got a token."
    return wrong(
        "overtakes",
        said,
        "In which order do you go through those who run?",
        "The lists come in order: the oldest first. If not all find room, those who came last wait.",
        "Budget 2. R1, R2 and R3 run, and all have long answers. Write down three steps. When does R1 get a token?",
    )


def _over_budget(said: str, plan_step: Any) -> Verdict:
    """Which way of counting goes over the budget: tried on states small enough to tell."""
    if _sum(plan_step, [], [Request(f"R{k}", 9, 8) for k in range(5)], 3) > 3 and (
        _sum(plan_step, [Request("R1", 4), Request("R2", 4), Request("R3", 4)], [], 8) <= 8
        and _sum(plan_step, [Request("R9", 6)], [Request("R1", 9, 8), Request("R2", 9, 8), Request("R3", 9, 8)], 8) <= 8
    ):
        return wrong(
            "many-decodes",
            f"{said} All of them are decodes.",
            "More requests may run than the budget has tokens. Who checks?",
            "The budget holds for the whole step, also for those who run. The oldest get their token, the others wait.",
            "Budget 2, and R1, R2 and R3 miss one token each. What does your first loop do with the third?",
        )
    if _sum(plan_step, [Request("R1", 20)], [], 16) > 16:
        return wrong("counts-requests", f"{said} A prompt of 20 tokens goes into your step of 16.", *IN_TOKENS)
    if 16 < _sum(plan_step, [Request("R1", 20), Request("R2", 20)], [], 16) < 32:
        return wrong("counts-requests", f"{said} You take off too little for what is planned.", *IN_TOKENS)
    if _sum(plan_step, [Request("R1", 4), Request("R2", 4), Request("R3", 4)], [], 8) > 8:
        more = "Each of the prompts alone fits into it."
        return wrong("each-alone", f"{said} {more}", *IN_TOKENS)
    return wrong(
        "decodes-free",
        f"{said} The prompts alone would fit.",
        "What do those who run take off the budget?",
        "One token each is little, but it is counted as well. The prompts share what is left after that.",
        "Budget 8, R1 and R2 run, R3 waits with 7. How much is left when you come to R3?",
    )


def _sum(plan_step: Any, waiting: list[Request], running: list[Request], budget: int) -> int:
    try:
        return sum(ask(plan_step, waiting, running, budget).values())
    except BrokenRule as broken:
        return int(broken.detail.split()[0]) if broken.rule == BUDGET else 0


def readers_wait(run: Run, step: Step) -> Verdict | None:
    """Whether somebody's answer stood still in a step; prompts that went first are named."""
    decodes = [one for one in step.running if one.known - one.written == 1]
    served = [one for one in decodes if one.name in step.plan]
    if len(served) >= min(len(decodes), run.budget):
        return None
    name, gap = run.gap([one.name for one in decodes if one.name not in step.plan])
    if not name:
        name, gap = next(one.name for one in decodes if one.name not in step.plan), 1
    if set(step.plan) - {one.name for one in decodes}:
        said = f"{name} waited {gap} steps for its next token, while prompts were read."
        return wrong("prompts-first", said, *FIRST_THINGS)
    said = f"{name} waited {gap} steps for its next token, though the step had tokens left."
    return wrong("left-out", said, "Who runs and is not in your plan?", *FIRST_THINGS[1:])


def in_engine(plan_step: Any, max_batch_tokens: int) -> Verdict | None:
    """Run a plan inside the engine, with a random model; None if the answers are the engine's own."""
    from minikv import Engine, SamplingParams
    from minikv.course.chapters.small import small_model
    from minikv.course.seats.scheduler import as_scheduler

    model = small_model(2)
    prompts = [[(7 * i + j) % 250 for j in range(5 + 3 * i)] for i in range(6)]
    answers: list[list[Sequence[int]]] = []
    parts: tuple[dict[str, Any], ...] = ({}, {"scheduler": as_scheduler(plan_step)})
    for part in parts:
        engine = Engine(model, page_size=4, num_pages=24, max_batch_tokens=max_batch_tokens, **part)
        done = engine.generate(prompts, SamplingParams(max_tokens=6, ignore_eos=True))
        broken = next((each.error for each in done if each.error is not None), None)
        if broken is not None:
            return wrong("engine", f"inside the engine: {broken}", "Which of your plans gave the engine this?")
        engine.check()
        answers.append([each.token_ids for each in done])
    if answers[0] != answers[1]:
        return wrong("engine", "inside the engine the answers changed.", "Which of your plans gave the engine this?")
    return None
