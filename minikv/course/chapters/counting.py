"""Requests that only count: what a plan may say about them, and a run of plans without a model."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from minikv.errors import BrokenRule
from minikv.trace import Admit, Finish, Trace, Write

PAIRS = "a plan is a list of pairs (request, tokens)"
GIVEN = "a plan names requests that wait or run"
HANDED = "a plan names requests that it was given"
ENDS = "a plan comes to an end"
ONCE = "a request stands in a plan once"
WHOLE = "a share is a whole number of tokens, 1 at least"
MISSING = "a share is at most what the request misses"
BUDGET = "a step computes no more tokens than its budget"
HANDS_OFF = "a plan changes no request"
WORK = "a step with work to do does some"

_ENOUGH = 1000  # entries of a plan that seems to have no end; they are counted and not kept

PlanStep = Callable[[list[Any], list[Any], int], Any]


@dataclass(eq=False)  # two requests are never the same one, and a plan may be a dict
class Request:
    """A request as `plan_step` sees it.

    Attributes:
        name: such as "R3".
        known: tokens that are known: the prompt, and what was answered so far.
        written: how many of them are written. The others are missing.
    """

    name: str
    known: int
    written: int = 0
    number: int | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Visit:
    """A request that is to come: tokens of its prompt and of its answer, and the step in which it is first there."""

    name: str
    prompt: int
    answer: int
    arrives: int = 1


@dataclass(frozen=True)
class Step:
    """One step of a counting run: who waited and who ran before it, and the tokens that each was given."""

    number: int
    waiting: tuple[Request, ...]
    running: tuple[Request, ...]
    plan: Mapping[str, int]

    @property
    def tokens(self) -> int:
        """Tokens computed in it, of all requests together."""
        return sum(self.plan.values())


def ask(plan_step: PlanStep, waiting: Sequence[Request], running: Sequence[Request], budget: int) -> dict[str, int]:
    """Ask for the plan of a step and check it. Gives the tokens by name, in the order of the plan.

    Raises:
        BrokenRule: naming the first rule that the plan breaks; whether it is empty is not looked at here.
    """
    before = [(one, one.name, one.known, one.written, one.number) for one in (*running, *waiting)]
    given = plan_step(list(waiting), list(running), budget)
    pairs = _pairs(given, len(before) + 1)
    by_name = {name: (known, written, number) for _one, name, known, written, number in before}
    plan: dict[str, int] = {}
    for one, name, known, written, number in before:
        if (one.name, one.known, one.written) != (name, known, written):
            said = f"{name} had {written} of {known} tokens written; now it says {one.written} of {one.known}"
            raise BrokenRule(HANDS_OFF, said, number)
        if one.number != number:
            raise BrokenRule(HANDS_OFF, f"the number of {name} was {number}; now it is {one.number!r:.20}", number)
    for request, share in pairs:
        if not isinstance(request, Request) or not isinstance(request.name, str) or request.name not in by_name:
            raise BrokenRule(GIVEN, f"{request!r:.80} is in it")
        known, written, number = by_name[request.name]
        if (request.known, request.written) != (known, written):  # a true copy is as good as the one that it was given
            said = f"{request!r:.80} is in it, and {request.name} has {written} of {known} tokens written"
            raise BrokenRule(HANDED, said, number)
        if request.name in plan:
            raise BrokenRule(ONCE, f"{request.name} stands in it twice", number)
        tokens = _whole(share)
        if tokens is None or tokens < 1:
            raise BrokenRule(WHOLE, f"{request.name} gets {share!r:.40}", number)
        if tokens > known - written:
            said = f"{request.name} misses {known - written} of {known} tokens and gets {tokens}"
            raise BrokenRule(MISSING, said, number)
        plan[request.name] = tokens
    if sum(plan.values()) > budget:
        raise BrokenRule(BUDGET, f"{sum(plan.values())} tokens are planned, the budget is {budget}")
    return plan


def _pairs(given: object, most: int) -> list[tuple[Any, Any]]:
    """The first pairs of a plan. With more than one for each request, some rule is broken, and no more are read."""
    if isinstance(given, Mapping):
        given = given.items()
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BrokenRule(PAIRS, f"{given!r:.80} came")
    pairs = []
    entries = iter(given)
    for pair in itertools.islice(entries, most):
        if (
            isinstance(pair, str)
            or not isinstance(pair, Iterable)
            or len(both := tuple(itertools.islice(pair, 3))) != 2
        ):
            raise BrokenRule(PAIRS, f"{pair!r:.80} is in it")
        pairs.append(both)
    if len(pairs) == most and entries is given and next(itertools.islice(entries, _ENOUGH, None), None) is not None:
        raise BrokenRule(ENDS, f"more than {_ENOUGH} entries came, and there are {most - 1} requests")
    return pairs


def _whole(share: Any) -> int | None:
    """A share as an int; numpy's and one-element tensors are fine, True and 2.0 are not."""
    if isinstance(share, bool):
        return None
    try:
        return int(operator.index(share))
    except TypeError:
        return None


def nothing_planned(waiting: Sequence[Request], running: Sequence[Request], budget: int) -> BrokenRule:
    """The error for an empty plan though there is work. If only the first who waits is in the way, it names it."""
    if running:
        return BrokenRule(WORK, f"{len(running)} requests run, and none of them is in the plan")
    head = waiting[0]
    missing = head.known - head.written
    said = f"{head.name} misses {missing} tokens and stands first, a step has {budget}, and the plan is empty"
    if missing > budget:
        said += ": without chunks it would wait for ever, and everybody behind it"
    return BrokenRule(WORK, said, head.number)


def steps(plan_step: PlanStep, visits: Iterable[Visit], budget: int, most: int = 2000) -> Iterator[Step]:
    """Play a run of counting requests, one step after the other.

    After a step, whoever has all known tokens written knows one more: the next of its answer. With its last token a
    request leaves. Steps in which nobody is there are left out; after `most` of them it ends, whoever is still there.

    Raises:
        BrokenRule: with the step, if a plan breaks a rule.
    """
    coming = sorted(visits, key=lambda visit: visit.arrives)
    left = {visit.name: visit.answer for visit in coming}
    waiting: list[Request] = []
    running: list[Request] = []
    number = 0
    while (coming or waiting or running) and number < most:
        number += 1
        while coming and coming[0].arrives <= number:
            waiting.append(Request(coming[0].name, coming.pop(0).prompt))
        if not waiting and not running:
            continue
        before = tuple(map(replace, waiting)), tuple(map(replace, running))
        try:
            plan = ask(plan_step, list(map(replace, waiting)), list(map(replace, running)), budget)
            if not plan:
                raise nothing_planned(waiting, running, budget)
        except BrokenRule as broken:
            broken.step = number
            raise
        yield Step(number, *before, plan)
        running += [one for one in waiting if one.name in plan]
        waiting = [one for one in waiting if one.name not in plan]
        for one in running:
            one.written += plan.get(one.name, 0)
            if one.written == one.known and one.name in plan:
                one.known += 1
                left[one.name] -= 1
        running = [one for one in running if left[one.name] > 0]


def plan_static(waiting: list[Request], running: list[Request], budget: int) -> list[tuple[Request, int]]:
    """Fill a batch, and start nobody else until the last one in it is through."""
    plan = [(request, 1) for request in running[:budget]]
    for request in [] if running else waiting:
        if request.known > budget:
            break
        plan.append((request, request.known))
        budget -= request.known
    return plan


def play(plan_step: PlanStep, visits: Iterable[Visit], budget: int) -> Trace:
    """Play a run of counting requests and give back what an engine would report of it: its trace."""
    visits = sorted(visits, key=lambda visit: visit.arrives)
    trace = Trace()
    numbers = {visit.name: number for number, visit in enumerate(visits)}
    left = {visit.name: visit.answer for visit in visits}
    for number, visit in enumerate(visits):
        trace.add(Admit(visit.arrives - 1, "counting", number, visit.name, visit.prompt, visit.answer))
    for step in steps(plan_step, visits, budget):
        for one in (*step.running, *step.waiting):
            if tokens := step.plan.get(one.name, 0):
                who, stop = numbers[one.name], one.written + tokens
                trace.add(Write(step.number, "counting", who, who, 1, who, one.written, stop))
                if stop == one.known:
                    left[one.name] -= 1
                    if not left[one.name]:
                        length = next(visit.answer for visit in visits if visit.name == one.name)
                        trace.add(Finish(step.number, "counting", who, "length", 200, length))
    return trace


def look_at(plan_step: PlanStep, visits: Iterable[Visit], budget: int) -> None:
    """Print the lanes of a run, or which rule ended it. A stub says what is to be written."""
    from minikv.viz.lanes import lanes

    try:
        print(lanes(play(plan_step, visits, budget)).text)
    except NotImplementedError as todo:
        print(f"[ ] {todo}")
    except BrokenRule as broken:
        print(broken)
