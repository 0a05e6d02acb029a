"""What one token's keys and values weigh, worked out from a configuration alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from minikv.errors import UnsupportedModel

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

GIB = 2**30
ATTENTION_LAYER_TYPES = ("full_attention", "sliding_attention")


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
    """The shape of a model's KV cache, layer by layer."""

    layers: tuple[LayerGeometry, ...]

    @classmethod
    def from_config(cls, config: PreTrainedConfig) -> KVGeometry:
        """Read the geometry off a Hugging Face configuration. No weights are needed.

        Raises:
            UnsupportedModel: if the configuration has layers that keep no keys and values per token, or does
                not say how many heads there are.
        """
        text: Any = config.get_text_config(decoder=True)
        kinds = getattr(text, "layer_types", None) or ()
        for kind in kinds:
            if kind not in ATTENTION_LAYER_TYPES:
                raise UnsupportedModel(
                    f"{text.model_type} cannot be served: it has layers of type {kind!r}, and minikv knows only "
                    f"{' and '.join(ATTENTION_LAYER_TYPES)}"
                )
        num_layers = _need(text, "num_hidden_layers")
        return cls((_layer(text),) * num_layers)

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
    value = getattr(config, name, None)
    if not isinstance(value, int) or value < 1:
        raise UnsupportedModel(f"{config.model_type}: the configuration does not say its {name}")
    return value


def _layer(config: Any) -> LayerGeometry:
    heads = _need(config, "num_attention_heads")
    latent_rank = getattr(config, "kv_lora_rank", None)
    if latent_rank:
        rope = _need(config, "qk_rope_head_dim")
        indexer = getattr(config, "index_head_dim", None) or 0
        return LayerGeometry(
            kv_heads=heads,
            key_dim=_need(config, "qk_nope_head_dim") + rope,
            value_dim=_need(config, "v_head_dim"),
            latent_dim=latent_rank + rope + indexer,
        )
    width = getattr(config, "head_dim", None) or _need(config, "hidden_size") // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    return LayerGeometry(kv_heads=kv_heads, key_dim=width, value_dim=width)
