"""Ways to look into a model while it works, with plain tensors: what chapter 01 experiments with."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from minikv.viz.steps import Round

if TYPE_CHECKING:
    import torch


class KeysAndValues(NamedTuple):
    """What one layer keeps of a text: two tensors, [positions, heads, numbers]."""

    keys: torch.Tensor
    values: torch.Tensor


class NewToken(NamedTuple):
    """The last token of a text in one head of one layer, and what is kept of the tokens before it.

    Attributes:
        query, own_key, own_value: of the last token, [numbers].
        old_keys, old_values: of the tokens before it, [positions, numbers].
        result: what this head of the model itself makes of them, [numbers].
    """

    query: torch.Tensor
    own_key: torch.Tensor
    own_value: torch.Tensor
    old_keys: torch.Tensor
    old_values: torch.Tensor
    result: torch.Tensor


def keys_and_values(model: Any, ids: Sequence[int]) -> list[KeysAndValues]:
    """The keys and values of a text, one entry for each layer, as transformers itself keeps them."""
    import torch

    with torch.no_grad():
        output = model.hf(torch.tensor([list(ids)]), use_cache=True)
    # [1, heads, positions, numbers] becomes [positions, heads, numbers]
    return [
        KeysAndValues(*(each[0].transpose(0, 1) for each in (layer.keys, layer.values))) for layer in _cache(output)
    ]


def one_token(model: Any, ids: Sequence[int], layer: int, head: int) -> NewToken:
    """Look at the last token of `ids` in one head, for models whose layers look like Llama's.

    Where several queries share the keys of one head, this takes the first of them.
    """
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    attention = model.hf.model.layers[layer].self_attn
    group = attention.num_key_value_groups
    seen: dict[str, torch.Tensor] = {}

    def note_query(_module: Any, _args: Any, given: dict[str, Any]) -> None:
        rows = given["hidden_states"]
        query = attention.q_proj(rows).view(*rows.shape[:-1], -1, attention.head_dim).transpose(1, 2)
        query, _ = apply_rotary_pos_emb(query, query, *given["position_embeddings"])
        seen["query"] = query[0, head * group, -1]

    def note_result(_module: Any, args: tuple[torch.Tensor]) -> None:
        seen["result"] = args[0][0, -1].view(-1, attention.head_dim)[head * group]

    hooks = [
        attention.register_forward_pre_hook(note_query, with_kwargs=True),
        attention.o_proj.register_forward_pre_hook(note_result),
    ]
    try:
        kept = keys_and_values(model, ids)[layer]
    finally:
        for hook in hooks:
            hook.remove()
    keys, values = kept.keys[:, head], kept.values[:, head]
    return NewToken(seen["query"], keys[-1], values[-1], keys[:-1], values[:-1], seen["result"])


@contextmanager
def watching(model: Any) -> Iterator[list[Round]]:
    """Record what goes through the first layer of a model: a list that grows by one `Round` each time."""
    rounds: list[Round] = []

    def note(_module: Any, _args: Any, given: dict[str, Any]) -> None:
        kept = given.get("cache", given.get("past_key_values"))
        read = 0 if kept is None else kept.get_seq_length()
        rounds.append(Round(tuple(given["position_ids"][0].tolist()), tuple(range(read))))

    hook = model.hf.model.layers[0].register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield rounds
    finally:
        hook.remove()


def only_new(model: Any) -> Callable[[Sequence[int], Any], tuple[torch.Tensor, Any]]:
    """A function `more(ids, kept)` that sends only `ids` through the model.

    `kept` holds the keys and values of everything before; None if there is nothing before. Gives back the scores,
    one row for each of `ids`, and a new `kept` with `ids` added; the old one stays as it was.
    """
    import torch

    # transformers 5.24 gave the argument a new name
    name = "cache" if "cache" in inspect.signature(model.hf.forward).parameters else "past_key_values"

    def more(ids: Sequence[int], kept: Any) -> tuple[torch.Tensor, Any]:
        with torch.no_grad():
            # transformers adds to the very cache that it gets
            output = model.hf(torch.as_tensor(list(ids))[None], use_cache=True, **{name: copy.deepcopy(kept)})
        return output.logits[0], output[name]

    return more


def _cache(output: Any) -> Any:
    """The layers of a model's own cache, whatever this version of transformers calls it."""
    return (output["cache"] if "cache" in output else output["past_key_values"]).layers
