"""The stretch of chapter 05: counting requests that also hold pages, in a pool too small for all they announce."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from minikv.course.chapters.counting import Request, ask, nothing_planned
from minikv.errors import BrokenRule

POOL, PAGE_SIZE, BUDGET = 40, 16, 20
ANNOUNCED = 96  # the longest answer that each of them may get
RECOMPUTED, GAP, USED = 2, 2, 0.90  # the targets

PlanPages = Callable[[list[Any], list[Any], int, int], Any]


@dataclass(eq=False)
class Holder(Request):
    """A request that holds pages.

    Attributes:
        pages: pages that it holds now.
        left: tokens that its answer may still get, as announced. Most answers end earlier.
        answered: tokens that its answer has so far.
    """

    pages: int = 0
    left: int = ANNOUNCED
    answered: int = 0

    def more_pages(self, tokens: int) -> int:
        """Pages that it lacks to compute `tokens` more tokens."""
        return max(0, -(-(self.written + tokens) // PAGE_SIZE) - self.pages)


@dataclass
class _Life:
    seen: Holder
    arrives: int
    answer: int
    last: int = 0  # the step of its newest token


def people(count: int = 60, seed: int = 5) -> list[tuple[int, int, int]]:
    """The step in which each request comes, the tokens of its prompt, and those of its answer, unknown to anybody."""
    draw = random.Random(seed)
    return [(1 + k // 2, draw.randint(16, 56), min(ANNOUNCED, 6 + int(draw.expovariate(1 / 22)))) for k in range(count)]


@dataclass(frozen=True)
class Score:
    """What a way of planning with few pages came to."""

    finished: int
    all_requests: int
    steps: int
    recomputed: int
    gap: int
    used: float

    @property
    def reached(self) -> bool:
        """Whether all four targets are met."""
        return all(holds for _name, _target, _value, holds in self._rows())

    def _rows(self) -> list[tuple[str, str, str, bool]]:
        return [
            ("answers", f"all {self.all_requests}", str(self.finished), self.finished == self.all_requests),
            ("computed again", f"at most {RECOMPUTED}", str(self.recomputed), self.recomputed <= RECOMPUTED),
            ("longest gap", f"at most {GAP} steps", str(self.gap), self.gap <= GAP),
            ("budget used", f"at least {USED:.0%}", f"{self.used:.0%}", self.used >= USED),
        ]

    def __str__(self) -> str:
        lines = [f"{'':16}{'target':18}yours"]
        for name, target, value, holds in self._rows():
            lines.append(f"{name:16}{target:18}{value:6}{'reached' if holds else 'not yet'}")
        return "\n".join([*lines, f"steps: {self.steps}"])


def score(plan_pages: PlanPages, visits: Sequence[tuple[int, int, int]] | None = None, most: int = 3000) -> Score:
    """Serve everybody from a pool of 40 pages, and count.

    `plan_pages(waiting, running, budget, free)` gives a plan, and a list of those who first give all their pages back:
    they wait again, in front, with nothing written. The budget counts as used by what was computed for the first time,
    in the steps in which somebody waited.

    Raises:
        BrokenRule: with the step, if a plan breaks a rule, or nothing can go on.
    """
    lives = {f"R{k}": _Life(Holder(f"R{k}", p, number=k), s, a) for k, (s, p, a) in enumerate(visits or people(), 1)}
    coming = sorted(lives.values(), key=lambda life: life.arrives)
    waiting: list[Holder] = []
    running: list[Holder] = []
    number = finished = recomputed = gap = wasted = computed = room = 0
    while (coming or waiting or running) and number < most:
        number += 1
        while coming and coming[0].arrives <= number:
            waiting.append(coming.pop(0).seen)
        if not waiting and not running:
            continue
        try:
            plan, back = _asked(plan_pages, waiting, running)
        except BrokenRule as broken:
            broken.step = number
            raise
        busy = bool(waiting)
        for one in [one for one in running if one.name in back]:
            recomputed += 1
            wasted += one.written
            one.written = one.pages = 0
            running.remove(one)
            waiting.insert(0, one)
        running += [one for one in waiting if one.name in plan]
        waiting = [one for one in waiting if one.name not in plan]
        if busy:
            computed, room = computed + sum(plan.values()), room + BUDGET
        for one in list(running):
            tokens, life = plan.get(one.name, 0), lives[one.name]
            one.pages += one.more_pages(tokens)
            one.written += tokens
            if not tokens or one.written < one.known:
                continue
            gap = max(gap, number - life.last) if one.answered else gap
            life.last = number
            one.known, one.left, one.answered = one.known + 1, one.left - 1, one.answered + 1
            if one.answered == life.answer:
                running.remove(one)
                finished += 1
    return Score(finished, len(lives), number, recomputed, gap, max(0, computed - wasted) / room if room else 0.0)


def _asked(plan_pages: PlanPages, waiting: list[Holder], running: list[Holder]) -> tuple[dict[str, int], set[str]]:
    """The tokens of each in the plan, and the names of those who give back; both checked."""
    free = POOL - sum(one.pages for one in running)
    back: set[str] = set()

    def planned(seen_waiting: list[Any], seen_running: list[Any], budget: int) -> Any:
        answer = plan_pages(seen_waiting, seen_running, budget, free)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise BrokenRule("a plan comes with those who give back", f"{answer!r:.80} came, not `plan, back`")
        plan, give = answer
        back.update(getattr(one, "name", "") for one in give)
        return plan

    plan = ask(planned, [replace(one) for one in waiting], [replace(one) for one in running], BUDGET)
    runs = {one.name for one in running}
    if strangers := back - runs:
        raise BrokenRule("only those who run can give pages back", f"{min(strangers) or 'something else'} does not")
    if both := back & set(plan):
        raise BrokenRule("who gives back is not in the plan", f"{sorted(both)[0]} is in both")
    free += sum(one.pages for one in running if one.name in back)
    wanted = sum(one.more_pages(plan.get(one.name, 0)) for one in (*running, *waiting))
    if wanted > free:
        raise BrokenRule("pages are lent before they are written", f"the plan takes {wanted} pages, {free} are free")
    if not plan and not back:
        raise nothing_planned(waiting, running, BUDGET)
    return plan, back
