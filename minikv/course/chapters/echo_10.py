"""A model that echoes: each next word is the one that stands some words back. Built by hand, so that leaks are words.

One layer, one head. Its weights say: look at the key a fixed way back, carry that word over, and say it. It has learned
nothing and knows nothing; whatever it says, it has read in the pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikv.models.adapter import BoundModel

BACK = 5  # the word said next is the one so many positions before the newest
_SHARPNESS = 8.0
_ROTATION = 100.0  # base of the rotary angles; small, so that neighbours are told apart


def word_tokenizer(words: Sequence[str]):  # type: ignore[no-untyped-def]
    """One token for each word; words are separated by blanks."""
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(["<none>", *words])}
    tokenizer = Tokenizer(WordLevel(vocab=vocabulary, unk_token="<none>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


@cache
def echo_model(words: tuple[str, ...], said_as: tuple[tuple[str, str], ...] = ()) -> BoundModel:
    """The model for these words; `<none>`, number 0, is what it says of an empty slot.

    Args:
        words: all that it knows.
        said_as: pairs: where it read the first, it says the second.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from minikv.models.adapter import BoundModel

    count = len(words) + 1
    width = -(-count // 2) * 2  # of a head: one number for each word
    config = LlamaConfig(
        vocab_size=count,
        hidden_size=2 * width + 2,
        intermediate_size=2,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=width,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": _ROTATION},
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        _write_weights(model, count, width)
        for word, other in said_as:
            read, said = words.index(word) + 1, words.index(other) + 1
            model.lm_head.weight[[read, said], width + read] = torch.tensor([0.0, 1.0])
    return BoundModel(model, word_tokenizer(words), name="echo")


def _write_weights(model, count: int, width: int) -> None:  # type: ignore[no-untyped-def]
    """Numbers [0, width) of a token are its word, [width, 2 width) what was carried over; one more is always 1."""
    import torch

    for weight in model.parameters():
        weight.zero_()
    one = 2 * width
    model.model.embed_tokens.weight[:, :count] = torch.eye(count)
    model.model.embed_tokens.weight[:, one] = 1.0
    layer = model.model.layers[0]
    for norm in (layer.input_layernorm, layer.post_attention_layernorm, model.model.norm):
        norm.weight.fill_(1.0)
    half = width // 2
    frequencies = _ROTATION ** -(torch.arange(half, dtype=torch.float64) * 2 / width)
    angles = BACK * frequencies
    attention = layer.self_attn
    attention.q_proj.weight[:half, one] = _SHARPNESS
    # The key of an empty slot is all zeros: it has no angle, and is not looked at.
    attention.k_proj.weight[:half, one] = torch.cos(angles).float()
    attention.k_proj.weight[half:, one] = torch.sin(angles).float()
    attention.v_proj.weight[:count, :count] = torch.eye(count)
    attention.o_proj.weight[width : 2 * width, :] = torch.eye(width)
    model.lm_head.weight[:, width : width + count] = torch.eye(count)
