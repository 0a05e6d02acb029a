"""What one token's keys and values weigh, worked out from a configuration alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig

from minikv.errors import ConfigError, UnsupportedModel

GIB = 2**30
ATTENTION_LAYER_TYPES = ("full_attention", "sliding_attention")
INDEXED_LAYER_TYPES = {"indexed_attention", "deepseek_sparse_attention"}  # the second is its name in transformers 5.17


@dataclass(frozen=True)
class LayerGeometry:
    """One layer's share of a token slot.

    Attributes:
        kv_heads: key/value heads.
        key_dim, value_dim: width of one head's key and value.
        latent_dim: numbers a token that the layer could store instead of keys and values, if its keys and
            values are expanded from a latent vector (multi-head latent attention); None if they are not.
    """

    kv_heads: int
    key_dim: int
    value_dim: int
    latent_dim: int | None = None

    @property
    def numbers_per_token(self) -> int:
        """Numbers stored per token: all keys and all values of this layer."""
        return self.kv_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True)
class KVGeometry:
    """The shape of a model's KV cache, layer by layer.

    Attributes:
        layers: one a layer of the model, then one for each indexer: its keys, one head wide, without values.
        indexers: the layers that choose what a token attends to, and store keys for that.
    """

    layers: tuple[LayerGeometry, ...]
    indexers: tuple[int, ...] = ()

    def index_row(self, layer: int) -> int:
        """Where in `layers`, and in a pool, the keys of a layer's indexer are."""
        return len(self.layers) - len(self.indexers) + self.indexers.index(layer)

    @classmethod
    def from_config(cls, config: PreTrainedConfig) -> KVGeometry:
        """Read the geometry off a Hugging Face configuration. No weights are needed.

        Raises:
            UnsupportedModel: if the configuration has layers that keep no keys and values per token, or does
                not say how many heads there are.
        """
        if not isinstance(config, PreTrainedConfig):
            raise ConfigError(f"a geometry is read off a PreTrainedConfig, not off {type(config).__name__}")
        if config.is_encoder_decoder:
            raise UnsupportedModel(f"{config.model_type} is no decoder-only language model")
        text: Any = config.get_text_config(decoder=True)
        kinds = getattr(text, "layer_types", None) or ()
        if kinds and set(kinds) <= INDEXED_LAYER_TYPES:
            return cls._indexed(text, _need(text, "num_hidden_layers"))
        for kind in kinds:
            if kind not in ATTENTION_LAYER_TYPES:
                raise UnsupportedModel(
                    f"{text.model_type} has layers of type {kind!r}, and minikv knows only "
                    f"{' and '.join(ATTENTION_LAYER_TYPES)}"
                )
        num_layers = _need(text, "num_hidden_layers")
        if getattr(text, "is_heterogeneous", False):
            return cls(tuple(_layer(text.per_layer_config[layer]) for layer in range(num_layers)))
        return cls((_layer(text),) * num_layers)

    @classmethod
    def _indexed(cls, text: Any, num_layers: int) -> KVGeometry:
        """Latent vectors and keys of indexers, as transformers caches them from 5.18 on; the trial corrects it."""
        kinds = _stated(text, "indexer_types") or ["full"] * num_layers
        indexers = tuple(layer for layer, kind in enumerate(kinds) if kind == "full")
        index = LayerGeometry(kv_heads=1, key_dim=_need(text, "index_head_dim"), value_dim=0)
        latent = LayerGeometry(1, _need(text, "kv_lora_rank"), _need(text, "qk_rope_head_dim"))
        return cls((latent,) * num_layers + (index,) * len(indexers), indexers)

    def bytes_per_token(self, dtype: torch.dtype = torch.float16) -> int:
        """Bytes that one token takes in all layers, as this engine stores it."""
        return sum(layer.numbers_per_token for layer in self.layers) * dtype.itemsize

    def latent_bytes_per_token(self, dtype: torch.dtype = torch.float16) -> int:
        """Bytes that one token would take if latent layers stored their latent vector; other layers as they are."""
        numbers = sum(
            layer.numbers_per_token if layer.latent_dim is None else layer.latent_dim for layer in self.layers
        )
        return numbers * dtype.itemsize

    def tokens_per_gib(self, dtype: torch.dtype = torch.float16) -> int:
        """Whole tokens that fit into 2**30 bytes, as this engine stores them."""
        return GIB // self.bytes_per_token(dtype)


def _need(config: Any, name: str) -> int:
    value = _stated(config, name)
    if not isinstance(value, int) or value < 1:
        raise UnsupportedModel(f"{config.model_type}: the configuration does not say its {name}")
    return value


def _stated(config: Any, name: str) -> Any:
    """What a configuration says of all its layers alike; None if it says nothing."""
    try:
        return getattr(config, name, None)
    except Exception as error:  # some configurations refuse to answer for all layers at once
        raise UnsupportedModel(f"{config.model_type}: {error}") from error


def _layer(config: Any) -> LayerGeometry:
    heads = _need(config, "num_attention_heads")
    latent_rank = _stated(config, "kv_lora_rank")
    if latent_rank:
        rope = _need(config, "qk_rope_head_dim")
        indexer = _stated(config, "index_head_dim") or 0
        return LayerGeometry(
            kv_heads=heads,
            key_dim=_need(config, "qk_nope_head_dim") + rope,
            value_dim=_need(config, "v_head_dim"),
            latent_dim=latent_rank + rope + indexer,
        )
    width = _stated(config, "head_dim") or _need(config, "hidden_size") // heads
    one_for_all = _stated(config, "multi_query") and not _stated(config, "new_decoder_architecture")
    kv_heads = 1 if one_for_all else _stated(config, "num_key_value_heads") or _stated(config, "num_kv_heads") or heads
    return LayerGeometry(kv_heads=kv_heads, key_dim=width, value_dim=width)
