"""The stretch of chapter 06: a queue in which everything is counted. Who starts next?"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SLOTS, STEPS = 112, 6  # of the pool; that each request runs
TARGET_USE, TARGET_PASSED = 0.95, 3
_LAST = 2000  # a line that is not through by this step never will be


@dataclass
class Waiting:
    """A request in the line.

    Attributes:
        number: in the order in which they came.
        slots: all that it may ever write; it holds them from its start to its end, for `STEPS` steps.
        passed: how many who came later have started before it.
    """

    number: int
    slots: int
    passed: int = 0


Policy = Callable[[Sequence[Waiting], int], int | None]


@dataclass(frozen=True)
class Outcome:
    """How a stream went.

    Attributes:
        use: share of the pool that was held, over all steps in which somebody waited.
        most_passed: how often the one who was passed most was passed.
        served, total: who got their answer, of how many.
    """

    use: float
    most_passed: int
    served: int
    total: int

    @property
    def reached(self) -> bool:
        """Whether all three targets are met."""
        return self.use >= TARGET_USE and self.most_passed <= TARGET_PASSED and self.served == self.total

    def __str__(self) -> str:
        lines = (
            (f"pool in use {self.use:.1%}", f"target {TARGET_USE:.0%}", self.use >= TARGET_USE),
            (f"passed at most {self.most_passed} times", f"target {TARGET_PASSED}", self.most_passed <= TARGET_PASSED),
            (f"served {self.served} of {self.total}", "target all", self.served == self.total),
        )
        return "\n".join(f"{what} ({goal}): {'reached' if met else 'not yet'}" for what, goal, met in lines)


def stream(seed: int = 5, requests: int = 240) -> list[tuple[int, int]]:
    """For each request the step at which it comes and its slots."""
    draw = random.Random(seed)
    found, step = [], 0
    for _ in range(requests):
        found.append((step, draw.randint(10, 44)))
        step += draw.choice((0, 1))
    return found


def play_line(choose: Policy) -> Outcome:
    """Play the stream. `choose(line, free)` is asked until it gives None: who starts now, as an index of `line`?

    The line is sorted by who came first. Whoever does not fit cannot start.
    """
    coming = deque((step, Waiting(number, slots)) for number, (step, slots) in enumerate(stream()))
    total = len(coming)
    line: list[Waiting] = []
    back: Counter[int] = Counter()  # by step, slots that come back
    free, held, there, most_passed = SLOTS, 0, 0, 0
    for step in range(_LAST):
        free += back[step]
        while coming and coming[0][0] <= step:
            line.append(coming.popleft()[1])
        while line and (index := _index(choose, line, free)) is not None:
            started = line.pop(index)
            free -= started.slots
            back[step + STEPS] += started.slots
            for before in line[:index]:
                before.passed += 1
                most_passed = max(most_passed, before.passed)
        if line:
            held, there = held + SLOTS - free, there + SLOTS
        elif not coming:
            break
    return Outcome(held / there if there else 1.0, most_passed, total - len(line) - len(coming), total)


def _index(choose: Policy, line: Sequence[Waiting], free: int) -> int | None:
    index = choose([Waiting(each.number, each.slots, each.passed) for each in line], free)
    if index is None:
        return None
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(line):
        raise ValueError(f"an index from 0 to {len(line) - 1}, or None; not {index!r:.40}")
    if line[index].slots > free:
        raise ValueError(f"number {line[index].number} needs {line[index].slots} slots, and {free} are free")
    return index
