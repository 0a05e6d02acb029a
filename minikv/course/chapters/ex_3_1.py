"""Exercise 3.1, pages needed: the reference answer, and what is said of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minikv.course.declare import Verdict, ok, wrong
from minikv.course.guard import TimeUp, guarded


def pages_and_empty(tokens: int, page_size: int) -> tuple[int, int]:
    """Pages that hold `tokens` tokens, and how many of their slots stay empty."""
    pages = -(-tokens // page_size)
    return pages, pages * page_size - tokens


_CASES = (
    (0, 16),
    (64, 64),
    (65, 64),
    (1, 64),
    (30, 16),
    (128, 16),
    (100, 64),
    (33, 16),
    (7, 1),
    (5, 8),
    (2**20 + 1, 64),
)
_HUGE = (2**60 + 1, 64)
_PATIENCE = 0.5  # seconds for the huge case, in which whoever counts page by page would go on for years

LAST_PAGE = (
    "What must be true of the number of pages, so that every token has a slot and no page is empty?",
    "A page that is half full is a whole page. Only a page without a single token is not needed.",
    "Page size 4. Draw the pages for 3, 4 and 5 tokens, and write the number of pages under each.",
)
_FULL_PAGE = (
    "How many slots of the last page are used, and how many are left?",
    "Used and empty slots together are all slots of the pages. You know two of these three numbers.",
    "Page size 4. For 3, 4 and 5 tokens: count the empty squares in your drawing.",
)


def judge_pages(thing: Any) -> Verdict:
    answers = {case: _pair(thing(*case), case) for case in _CASES}
    for answer in answers.values():
        if isinstance(answer, Verdict):
            return answer
    got: dict[tuple[int, int], tuple[Any, Any]] = {k: v for k, v in answers.items() if not isinstance(v, Verdict)}

    def always(part: int, guess: Callable[[int, int], Any]) -> bool:
        return all(got[case][part] == guess(*case) for case in _CASES)

    if not always(0, lambda n, p: pages_and_empty(n, p)[0]):
        if always(0, lambda n, p: n // p + 1):
            return wrong(
                "one-too-many", "64 tokens, page of 64: you took 2 pages, and the second is empty.", *LAST_PAGE
            )
        if always(0, lambda n, p: n // p):
            return wrong(
                "rounded-down", "65 tokens, page of 64: you took 1 page, and one token has no slot.", *LAST_PAGE
            )
        if always(0, lambda n, p: round(n / p)) or always(0, lambda n, p: int(n / p + 0.5)):
            return wrong(
                "rounded",
                f"65 tokens, page of 64: you took {got[65, 64][0]} page, and one token has no slot. "
                "You rounded to the nearest whole number.",
                "When is the nearest whole number too small?",
                "One token more than fits is enough to need a further page. Half a page is not the border.",
                "Page size 4. Divide 5 by 4 and round. Where does the fifth token go?",
            )
        return _first_difference(got, 0, "pages", LAST_PAGE)
    if not always(1, lambda n, p: pages_and_empty(n, p)[1]):
        if always(1, lambda n, p: n % p):
            said = (
                "100 tokens, pages of 64: you say that 36 slots stay empty. These are the used ones of the last page."
            )
            return wrong("used-for-empty", said, *_FULL_PAGE)
        if always(1, lambda n, p: p - n % p):
            return wrong(
                "full-page-empty", "64 tokens, page of 64: you say that 64 slots of it stay empty.", *_FULL_PAGE
            )
        return _first_difference(got, 1, "empty slots", _FULL_PAGE)
    huge = guarded(lambda: thing(*_HUGE), _PATIENCE)
    if isinstance(huge.error, TimeUp):
        return ok("Pages needed. Right. You count page by page; a division gives the number at once.")
    if huge.error is not None or huge.value is None or tuple(huge.value) != pages_and_empty(*_HUGE):
        return ok(
            "Pages needed. Right for every pool that exists. You divide with floats, and these cannot tell 2**53 "
            "from 2**53 + 1. Whole-number division has no such limit."
        )
    return ok()


def _pair(answer: object, case: tuple[int, int]) -> tuple[Any, Any] | Verdict:
    shape = "Give two whole numbers back: `return pages, empty`."
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        return wrong("shape", f"{case[0]} tokens, page of {case[1]}: you gave back {answer!r}, not two numbers.", shape)
    if not all(isinstance(number, int) for number in answer):
        said = f"{case[0]} tokens, page of {case[1]}: you gave back {answer[0]!r} and {answer[1]!r}."
        return wrong("not-whole", f"{said} Nobody can lend {float(answer[0])!r} pages.", shape)
    return answer[0], answer[1]


def _first_difference(
    got: dict[tuple[int, int], tuple[Any, Any]], part: int, name: str, hints: tuple[str, ...]
) -> Verdict:
    case = next(case for case in _CASES if got[case][part] != pages_and_empty(*case)[part])
    said = f"{case[0]} tokens, page of {case[1]}: you say {got[case][part]} {name}."
    return wrong(f"other {name}", f"{said} It is {pages_and_empty(*case)[part]}.", *hints)
