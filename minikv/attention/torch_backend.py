"""Paged attention in plain torch: correct everywhere, and the reference for every other backend.

Only slots that a request may read are ever touched. Query heads that share a key/value head are folded into rows
of one matrix product, so keys and values are never repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minikv.attention.metadata import SequenceView

QUERY_ROWS = 256  # query tokens scored at once: bounds the memory that a long prompt needs


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    sequences: Sequence[SequenceView],
    *,
    scaling: float,
    window: int | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attend for one layer; arguments and result as in `AttentionBackend`."""
    output = query.new_empty(query.shape[0], query.shape[1], values.shape[2])
    decodes = [view for view in sequences if view.length == 1]
    if decodes:
        rows = torch.tensor([view.start for view in decodes], device=query.device)
        output[rows] = _decode(query[rows], keys, values, decodes, scaling, window, softcap, sinks)
    for view in sequences:
        if view.length == 1:
            continue
        key, value = keys[view.slots], values[view.slots]
        for first in range(0, view.length, QUERY_ROWS):
            rows = slice(view.start + first, view.start + min(first + QUERY_ROWS, view.length))
            offset = view.seq_len - view.length + first
            seen = min(view.seq_len, offset + QUERY_ROWS)  # later keys lie in every row's future
            output[rows] = _prefill(
                query[rows], key[:seen], value[:seen], offset, scaling, window, softcap, sinks
            )
    return output


def _decode(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    views: Sequence[SequenceView],
    scaling: float,
    window: int | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """One query token each: query [n, query heads, width], result [n, query heads, value width]."""
    lengths = torch.tensor([view.seq_len for view in views], device=query.device)
    longest = int(lengths.max())
    # Shorter rows are filled up with slots of their own, which the mask then hides.
    slots = torch.stack(
        [torch.cat([view.slots, view.slots[:1].expand(longest - view.seq_len)]) for view in views]
    )
    position = torch.arange(longest, device=query.device)
    visible = position < lengths[:, None]
    if window is not None:
        visible &= position >= lengths[:, None] - window
    n, heads, width = query.shape
    kv_heads = keys.shape[1]
    grouped = query.view(n, kv_heads, heads // kv_heads, width)
    key = keys[slots].permute(0, 2, 3, 1)  # [n, kv_heads, width, longest]
    value = values[slots].transpose(1, 2)  # [n, kv_heads, longest, value width]
    weights = _weights(grouped @ key, visible[:, None, None, :], scaling, softcap, _per_group(sinks, kv_heads))
    return (weights.to(value.dtype) @ value).view(n, heads, -1).to(query.dtype)


def _prefill(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    offset: int,
    scaling: float,
    window: int | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Consecutive query tokens of one request, the first at position `offset`; shapes as in `attend`."""
    length, heads, width = query.shape
    seen, kv_heads = key.shape[0], key.shape[1]
    group = heads // kv_heads
    folded = query.view(length, kv_heads, group, width).permute(1, 2, 0, 3).reshape(kv_heads, -1, width)
    scores = (folded @ key.permute(1, 2, 0)).view(kv_heads, group, length, seen)
    query_position = torch.arange(offset, offset + length, device=query.device)[:, None]
    key_position = torch.arange(seen, device=query.device)
    visible = key_position <= query_position
    if window is not None:
        visible &= key_position > query_position - window
    per_group = _per_group(sinks, kv_heads)
    weights = _weights(scores, visible, scaling, softcap, per_group).to(value.dtype)
    mixed = weights.view(kv_heads, group * length, seen) @ value.transpose(0, 1)
    return mixed.view(kv_heads, group, length, -1).permute(2, 0, 1, 3).reshape(length, heads, -1).to(query.dtype)


def _per_group(sinks: torch.Tensor | None, kv_heads: int) -> torch.Tensor | None:
    return None if sinks is None else sinks.view(kv_heads, -1, 1, 1)


def _weights(
    scores: torch.Tensor,
    visible: torch.Tensor,
    scaling: float,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Softmax in float32 over the visible positions (last axis); sinks take weight but give no value."""
    scores = scores.float() * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~visible, float("-inf"))
    if sinks is None:
        return torch.softmax(scores, dim=-1)
    with_sink = torch.cat([scores, sinks.float().expand(*scores.shape[:-1], 1)], dim=-1)
    return torch.softmax(with_sink, dim=-1)[..., :-1]
