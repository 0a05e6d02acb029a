"""Paged attention in plain torch: correct everywhere, and the reference for every other backend.

Only slots that a request may read are ever touched. Query heads that share a key/value head are folded into rows
of one matrix product, so keys and values are never repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minikv.attention.metadata import SequenceView
from minikv.models.options import AttentionOptions

QUERY_ROWS = 256  # query tokens scored at once: bounds the memory that a long prompt needs


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    sequences: Sequence[SequenceView],
    options: AttentionOptions,
) -> torch.Tensor:
    """Attend for one layer; arguments and result as in `AttentionBackend`."""
    output = query.new_empty(query.shape[0], query.shape[1], values.shape[2])
    decodes = [view for view in sequences if view.length == 1]
    if decodes:
        rows = torch.tensor([view.start for view in decodes], device=query.device)
        output[rows] = _decode(query[rows], keys, values, decodes, options)
    for view in sequences:
        if view.length == 1:
            continue
        key, value = keys[view.slots], values[view.slots]
        for first in range(0, view.length, QUERY_ROWS):
            block = slice(view.start + first, view.start + min(first + QUERY_ROWS, view.length))
            offset = view.seq_len - view.length + first
            seen = min(view.seq_len, offset + QUERY_ROWS)  # later keys lie in every row's future
            output[block] = _prefill(query[block], key[:seen], value[:seen], offset, options)
    return output


def decode_weights(
    query: torch.Tensor,
    keys: torch.Tensor,
    views: Sequence[SequenceView],
    options: AttentionOptions,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention weights of one query token a request.

    Args:
        query: [n, query heads, key width].
        keys: one layer as slots, [num_slots, kv_heads, key width].
        views: the n requests.
        options: what the layer asks for.

    Returns:
        Weights [n, kv_heads, group, longest], zero past each request's length, and the slots they fall on,
        int64 [n, longest].
    """
    lengths = torch.tensor([view.seq_len for view in views], device=query.device)
    longest = max(view.seq_len for view in views)
    # Shorter rows are filled up with slots of their own, which the mask then hides.
    slots = torch.stack([torch.cat([view.slots, view.slots[:1].expand(longest - view.seq_len)]) for view in views])
    position = torch.arange(longest, device=query.device)
    hidden = position >= lengths[:, None]
    if options.window is not None:
        hidden |= position < lengths[:, None] - options.window
    n, heads, width = query.shape
    kv_heads = keys.shape[1]
    grouped = query.view(n, kv_heads, heads // kv_heads, width)
    key = keys[slots].permute(0, 2, 3, 1)  # [n, kv_heads, width, longest]
    scores = _cap((grouped @ key).float(), options)
    scores.masked_fill_(hidden[:, None, None, :], float("-inf"))
    return _softmax(scores, _per_group(options.sinks, kv_heads, 1)), slots


def _decode(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    views: Sequence[SequenceView],
    options: AttentionOptions,
) -> torch.Tensor:
    """One query token each: query [n, query heads, width], result [n, query heads, value width]."""
    weights, slots = decode_weights(query, keys, views, options)
    value = values[slots].transpose(1, 2)  # [n, kv_heads, longest, value width]
    return (weights.to(value.dtype) @ value).view(query.shape[0], query.shape[1], -1).to(query.dtype)


def _prefill(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    offset: int,
    options: AttentionOptions,
) -> torch.Tensor:
    """Consecutive query tokens of one request, the first at position `offset`; shapes as in `attend`."""
    length, heads, width = query.shape
    seen, kv_heads = key.shape[0], key.shape[1]
    group = heads // kv_heads
    folded = query.view(length, kv_heads, group, width).permute(1, 2, 0, 3).reshape(kv_heads, -1, width)
    scores = (folded @ key.permute(1, 2, 0)).view(kv_heads, group, length, seen)
    scores = _cap(scores.float(), options)
    _hide_future(scores, offset, options.window)
    weights = _softmax(scores, _per_group(options.sinks, kv_heads, 2)).to(value.dtype)
    mixed = weights.view(kv_heads, group * length, seen) @ value.transpose(0, 1)
    return mixed.view(kv_heads, group, length, -1).permute(2, 0, 1, 3).reshape(length, heads, -1).to(query.dtype)


def _hide_future(scores: torch.Tensor, offset: int, window: int | None) -> None:
    """Mask, in place, what a query token at position offset + row may not see; scores [..., length, seen]."""
    length, seen = scores.shape[-2:]
    first = offset if window is None else 0  # without a window, all rows see everything before `offset`
    query_position = torch.arange(offset, offset + length, device=scores.device)[:, None]
    key_position = torch.arange(first, seen, device=scores.device)
    hidden = key_position > query_position
    if window is not None:
        hidden |= key_position <= query_position - window
    scores[..., first:].masked_fill_(hidden, float("-inf"))


def _cap(scores: torch.Tensor, options: AttentionOptions) -> torch.Tensor:
    """Scale scores in place, and bend them if there is a soft cap."""
    scores.mul_(options.scaling)
    return scores if options.softcap is None else options.softcap * torch.tanh(scores / options.softcap)


def _per_group(sinks: torch.Tensor | None, kv_heads: int, axes: int) -> torch.Tensor | None:
    """Sinks as [kv_heads, group], with `axes` axes of length 1 behind."""
    return None if sinks is None else sinks.view(kv_heads, -1, *[1] * axes)


def _softmax(scores: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """Softmax in float32 over the last axis; sinks take weight but give no value."""
    if sinks is None:
        return torch.softmax(scores, dim=-1)
    with_sink = torch.cat([scores, sinks.float().expand(*scores.shape[:-1], 1)], dim=-1)
    return torch.softmax(with_sink, dim=-1)[..., :-1]
