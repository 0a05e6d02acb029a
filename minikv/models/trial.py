"""A model is tried before it is served: a few tokens, and the answer must be the model's own."""

from __future__ import annotations

import torch

from minikv.errors import UnsupportedModel
from minikv.models.options import AttentionOptions, Rows

TRIAL_TOKENS = 8
LARGEST_DIFFERENCE = {torch.float32: 1e-3}  # of the logits, relative to their norm
LARGEST_DIFFERENCE_ROUNDED = 5e-2  # for types of fewer bits


class DenseAttention:
    """Stands in for a step on pages: plain causal attention over the tokens of one forward pass.

    Args:
        positions: of the tokens, int64 [tokens].

    Attributes:
        shapes: by layer, its KV heads, key width and value width.
        windows: of the layers, in the order of their calls.
    """

    def __init__(self, positions: torch.Tensor) -> None:
        self.distance = positions[:, None] - positions
        self.shapes: dict[int, tuple[int, int, int]] = {}
        self.windows: list[int | None] = []
        self.sequences = (Rows(0, len(positions)),)

    def exchange(
        self, row: int, index: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As `StepAttention.exchange`: there is no past, so what comes is all there is."""
        if row in self.shapes:
            raise UnsupportedModel(f"layer {row} stores its keys twice, so they would overwrite each other")
        self.shapes[row] = (key.shape[1], key.shape[2], value.shape[2])
        return key, value

    def visible(self, index: int) -> torch.Tensor:
        """As `StepAttention.visible`."""
        return self.distance >= 0

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
        self.windows.append(options.window)
        group = query.shape[1] // key.shape[1]
        keys, values = (tensor.repeat_interleave(group, dim=1).float() for tensor in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query.float(), keys) * options.scaling
        if options.softcap is not None:
            scores = options.softcap * torch.tanh(scores / options.softcap)
        hidden = self.distance < 0
        if options.window is not None:
            hidden |= self.distance >= options.window
        scores = scores.masked_fill(hidden, float("-inf"))
        if options.sinks is not None:
            sinks = options.sinks.float().view(-1, 1, 1).expand(-1, len(query), 1)
            weights = torch.softmax(torch.cat([scores, sinks], dim=-1), dim=-1)[..., :-1]
        else:
            weights = torch.softmax(scores, dim=-1)
        return torch.einsum("hqk,khd->qhd", weights, values).to(query.dtype)


def trial_tokens(vocabulary: int, most: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens of the trial and the order to give them in, both int64 [tokens]; always the same ones.

    Out of order, a model that ignores `position_ids` or `logits_to_keep`, or carries something from row to row, shows.
    """
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(vocabulary, (TRIAL_TOKENS,), generator=generator)[:most]
    return ids, torch.randperm(len(ids), generator=generator)


def refuse_if_different(ours: torch.Tensor, own: torch.Tensor, dtype: torch.dtype) -> None:
    """Compare logits of the trial, [TRIAL_TOKENS, vocabulary], with those of the model left alone.

    Raises:
        UnsupportedModel: if they differ by more than rounding.
    """
    ours, own = ours.float(), own.float()
    each = (ours - own).norm(dim=-1) / own.norm(dim=-1).clamp_min(1e-30)
    # With fewer bits a router may send a token or two to another expert, rightly.
    difference = float(each.max() if dtype == torch.float32 else each.median())
    if not difference <= LARGEST_DIFFERENCE.get(dtype, LARGEST_DIFFERENCE_ROUNDED):
        raise UnsupportedModel(
            f"on pages it answers differently than by itself (logits differ by {difference:.2g} of their size); it may "
            "look at later tokens, or have a mask or positions of its own"
        )
