"""Models whose layers choose what a token attends to (DSA: an indexer scores every earlier token, the best are read).

They need all keys of a request, not only the result of an attention, so they are given a cache object that is made of
pages: latent keys and values, and the indexer's key of each token. Checked with glm_moe_dsa and deepseek_v32.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from minikv.models.geometry import KVGeometry
from minikv.models.options import StepAttention


class RequestCache:
    """Stands where a model expects a cache object: one request's pages, for one forward pass.

    Given positions and a mask, a model asks a cache for nothing else than these two methods.
    """

    def __init__(self, meta: StepAttention, index: int, geometry: KVGeometry) -> None:
        self.meta, self.index, self.geometry = meta, index, geometry

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer_idx: int, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take [1, heads, tokens, width], give back [1, heads, positions, width]."""
        key, value = key[0].transpose(0, 1), value[0].transpose(0, 1)
        keys, values = self.meta.exchange(layer_idx, self.index, key, value)
        return keys.transpose(0, 1).unsqueeze(0), values.transpose(0, 1).unsqueeze(0)

    def update_indexer(self, key: torch.Tensor, layer_idx: int) -> torch.Tensor:
        """Take [1, tokens, width], give back [1, positions, width]."""
        row, key = self.geometry.index_row(layer_idx), key[0].unsqueeze(1)
        keys, _none = self.meta.exchange(row, self.index, key, key[..., :0])
        return keys.squeeze(1).unsqueeze(0)


def forward_one_by_one(
    hf: Any,
    geometry: KVGeometry,
    input_ids: torch.Tensor,
    position_ids: torch.Tensor,
    last: torch.Tensor,
    meta: StepAttention,
) -> torch.Tensor:
    """As `BoundModel.forward`, with a pass for each request.

    An indexer breaks ties by what else is in the pass, and no answer may hang on its neighbours.
    """
    known = inspect.signature(hf.forward).parameters
    argument = "cache" if "cache" in known else "past_key_values"  # its name before transformers 5.24
    rows = []
    for index, view in enumerate(meta.sequences):
        mine = slice(view.start, view.start + view.length)
        output = hf(
            input_ids=input_ids[None, mine],
            position_ids=position_ids[None, mine],
            attention_mask=meta.visible(index)[None, None],
            use_cache=False,
            logits_to_keep=last[(last >= mine.start) & (last < mine.stop)] - mine.start,
            **{argument: RequestCache(meta, index, geometry)},
        )
        rows.append(output.logits[0])
    return torch.cat(rows)
