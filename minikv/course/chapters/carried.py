"""What comes out if a softmax is carried from page to page with a known mistake (exercise 4.3)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from minikv.course.chapters.paged import Call, differ
from minikv.course.declare import Verdict, wrong

if TYPE_CHECKING:
    import torch

HALF = (
    "Which things do you carry from page to page? Which of them were measured from the old largest score?",
    "The answer is the weighted sum, divided by the weight. Both must be measured from the same score.",
    "In the lesson: page A has 1.25 and 15, measured from 3. Measured from 4, both are halved. What comes out if you "
    "halve only one of them?",
)
UPSIDE_DOWN = (
    "The largest score rises from 3 to 4. Seen from 4, does a token with the score 3 weigh more than before, or less?",
    "Weights are measured from the largest, and none is above 1. A higher summit makes all others smaller.",
    "Page A: weight 1.25, measured from 3. Work out what your factor does to it when the largest becomes 4.",
)
FALLS = (
    "After a page with the scores 4 and 2 comes one with the score 1. What is your largest so far?",
    "What is kept is measured from the largest of all pages up to now. A page of small scores does not change it.",
    "Page A: score 4, value 10. Page B: score 3, value 30. With powers of 2, measured from 4: how much does B weigh?",
)
HALVED = (
    "In the lesson the largest rose by 1 each time. What if it rises by 3, or by 0.2?",
    "Halving is 2 to the power of (3 - 4). The factor says how far the largest has risen. And here it is exp.",
    "Page A: score 1. Page B: score 4. With powers of 2: measured from 1, A weighs 1. And measured from 4?",
)
TWOS = (
    "With powers of 2, one more in the score makes a weight twice as large. How much does it with exp?",
    "The lesson took powers of 2 so that it could be done by hand. The softmax of the model is made with exp.",
)
DIVIDED = (
    "After page one you have a weighted sum, and after the division a mean. What do you add to it at page two?",
    "The weight and the weighted sum can be added up, page after page. A mean cannot. So the division waits.",
    "In the lesson: pages A and B together have weight 30 and weighted sum 840. How often is divided there?",
)
SHARED = (
    "Print what you carry when the second head begins. What should it be?",
    "Each query head has a softmax of its own: its own largest, its own weight, its own sum, from the first page on.",
    "Two heads, one page. What does your code hold after head 0, and with what does head 1 begin?",
)
UNDIVIDED = (
    "You have carried a weight along. Where is it used?",
    "At the very end, the weighted sum is divided by the weight.",
    "One token with the score 3 and the value 10, and another with the same: weight 2, weighted sum 20. The answer?",
)

_MISTAKES: tuple[tuple[str, dict[str, Any], str, tuple[str, ...]], ...] = (
    (
        "half-rescaled",
        {"total": "none"},
        "when the largest score rises, you measure the weight anew, and not the weighted sum.",
        HALF,
    ),
    (
        "half-rescaled",
        {"weight": "none"},
        "when the largest score rises, you measure the weighted sum anew, and not the weight.",
        HALF,
    ),
    (
        "upside-down",
        {"weight": "up", "total": "up"},
        "when the largest score rises, what you kept grows, where it should shrink.",
        UPSIDE_DOWN,
    ),
    (
        "largest-falls",
        {"largest": "page"},
        "when a page brings no larger score, you measure from that page's largest all the same.",
        FALLS,
    ),
    (
        "always-half",
        {"weight": "half", "total": "half"},
        "when the largest score rises, you halve what you kept, however far it rises.",
        HALVED,
    ),
    ("powers-of-2", {"base": 2.0}, "your weights are powers of 2.", TWOS),
    (
        "divides-each-page",
        {"divide": "each"},
        "after each page you divide by the weight, and go on with that.",
        DIVIDED,
    ),
    ("heads-go-on", {"apart": False}, "query head 0 is right. Head 1 goes on with what head 0 left.", SHARED),
    ("undivided", {"divide": "never"}, "you gave the weighted sum. Nobody divided it by the weight.", UNDIVIDED),
)


def explain_carried(call: Call, given: torch.Tensor | None) -> Verdict | None:
    """The mistake that gives such an answer, if one is known; what is never measured anew is told elsewhere."""
    for kind, change, said, hints in _MISTAKES:
        for start in (-math.inf, 0.0):
            if not differ(given, _carried(call, start, **change), 1e-4):
                return wrong(kind, said, *hints)
    return None


def _carried(
    call: Call,
    start: float,
    *,
    largest: str = "running",
    weight: str = "down",
    total: str = "down",
    divide: str = "end",
    base: float = math.e,
    apart: bool = True,
) -> torch.Tensor:
    import torch

    group = call.query.shape[0] // call.keys.shape[2]
    rows = []
    top, heavy, mixed = start, 0.0, call.values.new_zeros(call.values.shape[3]).double()
    for head, query in enumerate(call.query.double()):
        if apart:
            top, heavy, mixed = start, 0.0, torch.zeros_like(mixed)
        for first in range(0, call.written, call.page_size):
            page, filled = call.table[first // call.page_size], min(call.page_size, call.written - first)
            keys, values = (pool[page, :filled, head // group].double() for pool in (call.keys, call.values))
            scores = keys @ query * call.scale
            here = float(scores.max())
            new = here if largest == "page" else max(top, here)
            rise = 0.0 if top == -math.inf else max(0.0, new - top)
            factors = {"down": base**-rise, "up": base**rise, "half": 0.5 if rise else 1.0, "none": 1.0}
            weights = base ** (scores - new)
            heavy = heavy * factors[weight] + float(weights.sum())
            mixed = mixed * factors[total] + weights @ values
            mixed = mixed / heavy if divide == "each" else mixed
            top = new
        rows.append(mixed / heavy if divide == "end" else mixed)
    return torch.stack(rows)
