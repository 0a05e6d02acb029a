"""Exercise 4.2, gather, then attend: the reference answer, and what is said of others."""

from __future__ import annotations

from typing import Any

from minikv.course.chapters.reading import judge_in_engine, judge_reading
from minikv.course.declare import Verdict, ok, wrong


def attend(query: Any, keys: Any, values: Any, table: list[int], written: int, scale: float) -> Any:
    """Attention for one token, over the slots that are written for its request."""
    import torch

    page_size, kv_heads = keys.shape[1:3]
    slots = [table[token // page_size] * page_size + token % page_size for token in range(written)]
    key, value = keys.flatten(0, 1)[slots], values.flatten(0, 1)[slots]
    group = query.shape[0] // kv_heads
    rows = []
    for head in range(query.shape[0]):
        weights = torch.softmax(key[:, head // group] @ query[head] * scale, dim=0)
        rows.append(weights @ value[:, head // group])
    return torch.stack(rows)


def judge_gather(thing: Any) -> Verdict:
    if not callable(thing):
        said = f"this is {thing!r:.40}."
        return wrong("not-a-function", said, 'Hand over the function itself: check("ex-4.2", attend).')
    return judge_reading(thing) or judge_in_engine(thing) or ok()
