"""The right slots are read and the numbers are wrong: compare with what known mistakes give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from minikv.course.chapters.paged import Call, differ, right
from minikv.course.declare import Verdict, wrong

if TYPE_CHECKING:
    import torch

Guess = tuple[str, Callable[[Call], "torch.Tensor"], str, tuple[str, ...]]

GROUPS = (
    "Which three query heads share KV head 0?",
    "Query heads sit next to each other in their groups: 0, 1, 2 belong to KV head 0, then 3, 4, 5 to KV head 1.",
    "Write the nine query heads in a row, and under each the KV head that your code gives it. Where is the first that "
    "differs from the drawing in the exercise?",
)
OTHER_HEADS = (
    "Write down the query heads of this case, and under each the KV head that it should use. What do yours do?",
    "How many neighbours share one KV head depends on the model: 3 with 9 and 3, 2 with 4 and 2, 1 with 4 and 4. Which "
    "of your numbers should change from model to model, and from what do you work it out?",
    "4 query heads, 2 KV heads: heads 0 and 1 share, and 2 and 3. Work out your rule for query head 2, by hand.",
)
SCALE = (
    "By what are the scores multiplied before the softmax? Who says so?",
    "The factor is an argument, since models differ in it. It may not be 1 / sqrt(width).",
    "Two scores, 2 and 4, and the factor 0.5. Which numbers go into the softmax?",
)
ZERO_SCORE = (
    "Which weight does a score of 0 get in a softmax?",
    "exp(0) is 1. A score of 0 is an ordinary score, often a large one. It does not mean: do not look here.",
    "The softmax of the scores 0, 0, 0: three weights of one third. Now you want to leave out the last. What should it "
    "be instead of 0?",
)
_OTHERS = (
    "The slots are the right ones. For one head, print your weights: do they add up to 1?",
    "For each query head: a score for each token, a softmax over the tokens, and then the values, weighted.",
    "One token written: all weights are 1 then. What must the answer be, and what is yours?",
)


def explain_numbers(call: Call, given: torch.Tensor | None) -> Verdict:
    """What is known of such an answer; of the kind "numbers" if nothing is."""
    heads, kv_heads = call.query.shape[0], call.keys.shape[2]
    for kind, guess, said, hints in _guesses(heads, kv_heads):
        if not differ(given, guess(call), 1e-4):
            return wrong(kind, said, *hints)
    for behind in {call.in_last_page - call.written, call.reserved - call.written} - {0}:
        if not differ(given, _with(call, weigh=partial(_beside_zeros, behind=behind)), 1e-4):
            return zero_score(call.written, behind)
    return _heads_mixed(call, given) or wrong(
        "numbers", f"you read the right slots, and {wrong_by(call, given)}.", *_OTHERS
    )


def _heads_mixed(call: Call, given: torch.Tensor | None) -> Verdict | None:
    """Each row would be right, had its query head another KV head."""
    heads, kv_heads = call.query.shape[0], call.keys.shape[2]
    if given is None or kv_heads == 1:
        return None
    by_kv_head = [_with(call, of=lambda head, kv_head=kv_head: kv_head) for kv_head in range(kv_heads)]  # type: ignore[misc]
    used = []
    for head in range(heads):
        fits = (kv_head for kv_head in range(kv_heads) if not differ(given[head], by_kv_head[kv_head][head], 1e-4))
        used.append(next(fits, None))
    if None in used:
        return None
    said = f"with {heads} query heads and {kv_heads} KV heads, yours used the KV heads {', '.join(map(str, used))}."
    return wrong("other-heads", said, *OTHER_HEADS)


def zero_score(written: int, behind: int) -> Verdict:
    """What is said of slots that get the score 0 where they should get none."""
    slots = "1 slot" if behind == 1 else f"{behind} slots"
    said = f"{written} tokens are written. You gave {slots} behind them the score 0, and a score of 0 brings weight."
    return wrong("zero-score", said, *ZERO_SCORE)


def wrong_by(call: Call, given: torch.Tensor | None) -> str:
    """The same as the end of a sentence. (Not "off by 1": that sounds like another mistake.)"""
    by = off_by(call, given)
    return "your answer is NaN" if by == "NaN" else f"the largest error in your answer is {by}"


def off_by(call: Call, given: torch.Tensor | None) -> str:
    """How far an answer is from the right one, in a word."""
    if given is None or bool(given.isnan().any()):
        return "NaN"
    return f"{float((given - right(call)).abs().max()):.1g}"


def _guesses(heads: int, kv_heads: int) -> Sequence[Guess]:
    group = heads // kv_heads
    guesses: list[Guess] = []
    if group > 1:
        if kv_heads > 1:
            said = f"query head 1 used KV head {1 % kv_heads}, where query head 0 used KV head 0. They are neighbours."
            guesses.append(("repeat", lambda call: _with(call, of=lambda head: head % kv_heads), said, GROUPS))
        guesses.append(("one-head", lambda call: _with(call, of=lambda head: 0), "all heads used KV head 0.", GROUPS))
    for kind, scale, said in (
        ("no-scale", lambda call: 1.0, "your scores are not scaled."),
        (
            "own-scale",
            lambda call: call.query.shape[-1] ** -0.5,
            "you scaled by 1 / sqrt(width). This call asked for another factor.",
        ),
        ("scale-twice", lambda call: call.scale**2, "you scaled twice."),
        ("scale-upside-down", lambda call: 1 / call.scale, "you divided by the factor."),
    ):
        guesses.append((kind, lambda call, scale=scale: _with(call, scale=scale(call)), said, SCALE))  # type: ignore[misc]
    for kind, weigh, said in (
        ("no-softmax", lambda scores: scores, "your weights are the scores themselves, without a softmax."),
        ("undivided", lambda scores: scores.exp(), "your weights do not add up to 1: nobody divided by their sum."),
        ("same-weight", lambda scores: scores * 0 + 1 / len(scores), "every token got the same weight."),
    ):
        guesses.append((kind, lambda call, weigh=weigh: _with(call, weigh=weigh), said, _OTHERS))  # type: ignore[misc]
    said = "your softmax runs over the heads: for each token, the weights of all heads add up to 1."
    return [*guesses, ("over-heads", _over_heads, said, _OTHERS)]


def _gathered(call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    slots = call.slots(0, call.written)
    return call.keys.flatten(0, 1)[slots].double(), call.values.flatten(0, 1)[slots].double()


def _with(
    call: Call,
    *,
    of: Callable[[int], int] | None = None,
    scale: float | None = None,
    weigh: Callable[[Any], Any] | None = None,
) -> torch.Tensor:
    """Attention with one thing changed: which KV head a query head uses, the factor, or scores into weights."""
    import torch

    keys, values = _gathered(call)
    group = call.query.shape[0] // keys.shape[1]
    rows = []
    for head, query in enumerate(call.query.double()):
        kv_head = of(head) if of else head // group
        scores = keys[:, kv_head] @ query * (call.scale if scale is None else scale)
        weights = weigh(scores) if weigh else torch.softmax(scores, dim=0)
        rows.append(weights @ values[:, kv_head])
    return torch.stack(rows)


def _beside_zeros(scores: torch.Tensor, behind: int) -> torch.Tensor:
    """Weights of some scores when so many scores of 0 stand behind them."""
    import torch

    return torch.softmax(torch.cat([scores, scores.new_zeros(behind)]), dim=0)[: len(scores)]


def _over_heads(call: Call) -> torch.Tensor:
    import torch

    keys, values = (
        tensor.repeat_interleave(call.query.shape[0] // tensor.shape[1], dim=1) for tensor in _gathered(call)
    )
    scores = torch.einsum("hd,shd->hs", call.query.double(), keys) * call.scale
    return torch.einsum("hs,shd->hd", torch.softmax(scores, dim=0), values)
