"""Exercise 4.3, page by page: the reference answer, and what is said of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from minikv.course.chapters.carried import explain_carried
from minikv.course.chapters.moved import most_held
from minikv.course.chapters.paged import Attend, Call, differ, made_up, right
from minikv.course.chapters.reading import OVERFLOW, SHAPES, judge_call, judge_in_engine, one_buffer
from minikv.course.chapters.wrong_numbers import explain_numbers, wrong_by
from minikv.course.declare import Verdict, ok, wrong

if TYPE_CHECKING:
    import torch


def attend_by_page(query: Any, keys: Any, values: Any, table: list[int], written: int, scale: float) -> Any:
    """Attention for one token, page after page: no copy of the request's keys and values is ever made."""
    import torch

    page_size, kv_heads, width = keys.shape[1:]
    grouped = query.reshape(kv_heads, -1, width)
    largest = torch.full((*grouped.shape[:2], 1), float("-inf"), dtype=query.dtype, device=query.device)
    weight = torch.zeros_like(largest)
    mixed = query.new_zeros(*grouped.shape[:2], values.shape[3])
    for place, page in enumerate(table[: -(-written // page_size)]):
        filled = min(page_size, written - place * page_size)
        key, value = keys[page, :filled].transpose(0, 1), values[page, :filled].transpose(0, 1)
        scores = grouped @ key.transpose(1, 2) * scale
        before, largest = largest, torch.maximum(largest, scores.amax(dim=2, keepdim=True))
        fresh, shrink = torch.exp(scores - largest), torch.exp(before - largest)
        weight = weight * shrink + fresh.sum(dim=2, keepdim=True)
        mixed = mixed * shrink + fresh @ value
    return (mixed / weight).reshape(query.shape[0], -1)


MEAN = (
    "Does a page of 5 tokens count as much as one of 16?",
    "A page counts as much as the weights of its tokens add up to. So its result alone is not enough: keep the sum of "
    "its weights beside it.",
    "Page A: scores 3 and 1. Page B: scores 4 and 2. With powers of 2 in place of exp, add up the weights of each "
    "page. Which page has more to say?",
)
MEAN_BY_TOKENS = (
    "In the lesson, pages A and B had two tokens each. Did they count the same?",
    "Not the tokens count, their weights do. Add up the weights of a page, and keep the sum beside its result.",
    "Page A: scores 3 and 1. Page B: scores 4 and 2. With powers of 2 in place of exp, add up the weights of each "
    "page. Which page has more to say?",
)
RESCALE = (
    "A later page has a larger score than all before. From which score were the older weights measured?",
    "Weights that were measured from different scores cannot be added. Each time that the largest score rises, what is "
    "kept must be measured anew: the weight and the weighted sum, both.",
    "Page A: score 3, value 10. Page B: score 4, value 30. With powers of 2: measured from 3, A weighs 1. How much "
    "does it weigh when measured from 4?",
)
UNDERFLOW = (
    "What is the largest score before the first page? Must it be 0?",
    "Begin with something that is smaller than any score. 0 is not: exp of a score far below it is 0, and the weights "
    "add up to 0.",
    "One token with score -1000. Its weight must be 1. From which score must it be measured?",
)
HEADS = (
    "One head's scores are around 1,000, another's around -1,000. From which score is the second measured?",
    "Each query head has a softmax of its own, and so a largest score of its own.",
    "Head 0 has the score 1000, head 1 the score -1000, one token written. What should both weights be?",
)
UNKNOWN = (
    "Print what you carry after each page, for one head. After the first page, is weighted sum / weight what 4.2 gives "
    "for the tokens of that page alone?",
    "Three things for each query head: the largest score so far, the weight, and the weighted sum, both measured from "
    "that score.",
    "Take pages A, B and C of the lesson, with powers of 2, and play your lines on paper. After B you should hold 4, "
    "1.875 and 52.5.",
)
COPIES = (
    "Which line makes a new tensor? How many slots does it hold?",
    "Take one page at a time, use it up, and keep a few numbers for each query head. keys[page, :n] is a view and "
    "copies nothing; a list of numbers in brackets, torch.cat and torch.stack do copy.",
    "A request of three pages. Write down what your code holds after the first page, after the second, after the "
    "third. Does it grow?",
)


# So much may be held at the same time, in pages of keys and values: one page, also in float64, and what is worked out
# from it. As Python's numbers a page takes eight times its room.
_PAGES_IN_TORCH, _PAGES_IN_PYTHON = 8, 24


def judge_by_page(thing: Any) -> Verdict:
    if not callable(thing):
        said = f"this is {thing!r:.40}."
        return wrong("not-a-function", said, 'Hand over the function itself: check("ex-4.3", attend_by_page).')
    for seed, shape in enumerate(SHAPES):
        call = made_up(*shape, seed=seed, spread=0.3)
        found = judge_call(thing, call, lambda call, given: _numbers(thing, call, given))
        if found is not None:
            return found
    return (
        _rising_and_falling(thing)
        or _far_from_zero(thing)
        or _rising_and_falling(thing, 4.0)
        or _copies(thing)
        or one_buffer(thing)
        or judge_in_engine(thing)
        or ok()
    )


def _numbers(attend: Attend, call: Call, given: Any) -> Verdict:
    """The right slots were read, and the numbers are wrong."""
    if not differ(given, _mean_of_pages(call, by_tokens=False), 1e-4):
        said = "you took the mean of the pages' results, as if all pages counted the same."
        return wrong("mean-of-pages", f"{said} So {wrong_by(call, given)}.", *MEAN)
    if not differ(given, _mean_of_pages(call, by_tokens=True), 1e-4):
        said = "you took the mean of the pages' results, and each page counted by its tokens."
        return wrong("mean-by-tokens", f"{said} So {wrong_by(call, given)}.", *MEAN_BY_TOKENS)
    known = explain_carried(call, given) or explain_numbers(call, given)
    level = replace(call, query=call.query * 1e-6)
    if known.kind == "numbers":
        known = wrong(known.kind, known.said, *UNKNOWN)
    if known.kind == "numbers" and not differ(level.answer(attend), right(level), 1e-4):
        return _rising_and_falling(attend) or known
    return known


def _mean_of_pages(call: Call, *, by_tokens: bool) -> torch.Tensor:
    """Each page's own result, averaged: what many write first."""
    total, weight = None, 0.0
    for place, page in enumerate(call.table):
        filled = min(call.page_size, call.written - place * call.page_size)
        if filled <= 0:
            break
        part = right(replace(call, table=(page,), written=filled)) * (filled if by_tokens else 1)
        total = part if total is None else total + part
        weight += filled if by_tokens else 1
    assert total is not None
    return total / weight


def _rising_and_falling(attend: Attend, steep: float = 0.25) -> Verdict | None:
    """Pages whose scores rise from one to the next, and pages whose scores fall."""
    for rise in (steep, -steep):
        call = _with_scores(made_up(seed=21), lambda token, head, rise=rise: rise * token)  # type: ignore[misc]
        given = call.answer(attend)
        if not differ(given, right(call), 2e-3):
            continue
        level = replace(call, query=call.query * 1e-6)
        on_level = level.answer(attend)
        fine = "you are right" if not differ(on_level, right(level), 1e-4) else wrong_by(level, on_level)
        where = "last" if rise > 0 else "first"
        said = (
            f"where all scores are the same, {fine}. Where the {where} page has the largest score, "
            f"{wrong_by(call, given)}."
        )
        return wrong("not-rescaled", said, *RESCALE)
    return None


def _far_from_zero(attend: Attend) -> Verdict | None:
    """Scores so large or so small that exp of them is no number, or 0."""
    for kind, scores, where, hints in (
        ("overflow", lambda token, head: 1000.0, "all scores are around 1,000", OVERFLOW),
        ("underflow", lambda token, head: -1000.0, "all scores are around -1,000", UNDERFLOW),
        ("one-maximum", _apart, "one head's scores are around 1,000 and another's around -1,000", HEADS),
    ):
        call = _with_scores(made_up(seed=22), scores)
        given = call.answer(attend)
        if differ(given, right(call), 1e-2):
            said = f"right on small scores. Where {where}, {wrong_by(call, given)}."
            return wrong(kind, said, *hints)
    return None


def _apart(token: int, head: int) -> float:
    return 1000.0 if head % 2 == 0 else -1000.0


def _with_scores(call: Call, score: Callable[[int, int], float]) -> Call:
    """The same call with `score(token, query head)` added to each score.

    A number of the key and one of the query are used up for it; for a score that is the same for all tokens of a head
    the key's is 1, for one that is the same for all heads the query's.
    """
    query, keys = call.query.clone(), call.keys.clone()
    first = score(0, 0)
    by_head = [score(0, head) for head in range(query.shape[0])]
    if any(value != first for value in by_head):
        query[:, 0] = query.new_tensor(by_head) / call.scale
        keys[..., 0] = 1.0
    else:
        query[:, 0] = 1.0 / call.scale
        slots = call.slots(0, call.written)
        scores = keys.new_tensor([score(token, 0) for token in range(call.written)])
        keys.flatten(0, 1)[slots, :, 0] = scores[:, None]
    return replace(call, query=query, keys=keys)


def _copies(attend: Attend) -> Verdict | None:
    """Whether copies of the keys and values of a long request are ever there together, in one piece or in many."""
    call = made_up(kv_heads=4, group=1, width=64, page_size=32, written=1000, extra=0, seed=23)
    page = (call.keys[0].numel() + call.values[0].numel()) * call.keys.element_size()
    in_torch, in_python = (bytes_held / page for bytes_held in most_held(attend, call))
    if in_torch < _PAGES_IN_TORCH and in_python < _PAGES_IN_PYTHON:
        return None
    slots = min(round(max(in_torch, in_python) * call.page_size), call.written)
    held = f"as much as {slots:,} of {call.written:,} slots"
    return wrong("copies", f"the numbers are right. On the way you held {held} at the same time.", *COPIES)
