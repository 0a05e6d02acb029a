"""A model is tried before it is served: a few tokens, and the answer must be the model's own."""

from __future__ import annotations

import torch

from minikv.errors import UnsupportedModel
from minikv.models.options import AttentionOptions

TRIAL_TOKENS = 8
LARGEST_DIFFERENCE = {torch.float32: 1e-3}  # of the logits, relative to their norm
LARGEST_DIFFERENCE_ROUNDED = 5e-2  # for types of fewer bits


class DenseAttention:
    """Stands in for a step on pages: plain causal attention over the tokens of one forward pass.

    Attributes:
        shapes: by layer, its KV heads, key width and value width.
    """

    def __init__(self) -> None:
        self.shapes: dict[int, tuple[int, int, int]] = {}

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        """As `StepAttention.attend`.

        Raises:
            UnsupportedModel: if a layer asks twice.
        """
        if layer in self.shapes:
            raise UnsupportedModel(f"layer {layer} attends more than once, so its keys would overwrite each other")
        self.shapes[layer] = (key.shape[1], key.shape[2], value.shape[2])
        group = query.shape[1] // key.shape[1]
        keys, values = (tensor.repeat_interleave(group, dim=1).float() for tensor in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query.float(), keys) * options.scaling
        if options.softcap is not None:
            scores = options.softcap * torch.tanh(scores / options.softcap)
        distance = torch.arange(len(query), device=query.device)
        distance = distance[:, None] - distance
        hidden = distance < 0
        if options.window is not None:
            hidden |= distance >= options.window
        scores = scores.masked_fill(hidden, float("-inf"))
        if options.sinks is not None:
            sinks = options.sinks.float().view(-1, 1, 1).expand(-1, len(query), 1)
            weights = torch.softmax(torch.cat([scores, sinks], dim=-1), dim=-1)[..., :-1]
        else:
            weights = torch.softmax(scores, dim=-1)
        return torch.einsum("hqk,khd->qhd", weights, values).to(query.dtype)


def trial_ids(vocabulary: int) -> torch.Tensor:
    """The tokens of the trial, int64 [TRIAL_TOKENS]; always the same ones."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary, (TRIAL_TOKENS,), generator=generator)


def refuse_if_different(ours: torch.Tensor, own: torch.Tensor, dtype: torch.dtype) -> None:
    """Compare logits of the trial, [TRIAL_TOKENS, vocabulary], with those of the model left alone.

    Raises:
        UnsupportedModel: if they differ by more than rounding.
    """
    ours, own = ours.float(), own.float()
    difference = float((ours - own).norm() / own.norm().clamp_min(1e-30))
    if not difference <= LARGEST_DIFFERENCE.get(dtype, LARGEST_DIFFERENCE_ROUNDED):
        raise UnsupportedModel(
            f"with causal attention it answers differently than by itself (logits differ by {difference:.2g} of their "
            "size); it may look at later tokens, or use a mask of its own"
        )
