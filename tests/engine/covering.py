"""Few rows in which every combination of some values occurs: a test grid that is too large, cut down."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

Row = tuple[Any, ...]
Part = tuple[tuple[int, Any], ...]  # some of a row's values, with their places


def parts(row: Row, strength: int) -> Iterator[Part]:
    """All choices of `strength` values of a row."""
    return itertools.combinations(enumerate(row), strength)


def covering(factors: Sequence[Sequence[Any]], strength: int) -> list[Row]:
    """Rows in which every combination of values of any `strength` factors occurs.

    Greedy, for one value of the first factor after the other: rows with the same one come together, so that what they
    share is built once. The same arguments give the same rows.
    """
    chance = random.Random(0)
    rest = list(itertools.product(*factors[1:]))
    missing = {part for row in itertools.product(*factors) for part in parts(row, strength)}
    rows: list[Row] = []
    for first in factors[0]:
        chance.shuffle(rest)  # so that equals do not always fall to the same row
        candidates = [(first, *row) for row in rest]
        mine = {part for part in missing if part[0] == (0, first)}
        while mine:
            best = max(candidates, key=lambda row: sum(part in missing for part in parts(row, strength)))
            rows.append(best)
            missing.difference_update(parts(best, strength))
            mine &= missing
    for part in sorted(missing, key=repr):  # of all factors but the first
        if part in missing:
            chosen = dict(part)
            row = tuple(chosen.get(place, values[0]) for place, values in enumerate(factors))
            rows.append(row)
            missing.difference_update(parts(row, strength))
    return rows
