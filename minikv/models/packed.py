"""Linear layers whose weights oneDNN has laid out for the CPU at hand: answers as before, and often sooner.

torch offers this to its own compiler only, as `torch.ops.mkldnn`; whether it works here is tried on small numbers
before a model is touched. `torch.utils.mkldnn`, the public way, copies every input and output and gains less.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from minikv.errors import ConfigError

PACKED_DTYPES = (torch.float32, torch.bfloat16)


class PackedLinear(torch.nn.Module):
    """Stands in for a linear layer, without gradients.

    Args:
        weight: [outputs, inputs]; it is copied, and not needed afterwards.
        bias: [outputs], or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.nn.Parameter | None) -> None:
        super().__init__()
        self.bias = bias
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach())  # opaque: neither parameter nor buffer

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """As of `torch.nn.Linear`."""
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self.packed, self.bias, "none", [], "")
        return output


def refuse_unless_packable(dtype: torch.dtype, device: torch.device) -> None:
    """Try a small layer.

    Raises:
        ConfigError: if weights of this kind cannot be packed here.
    """
    if device.type != "cpu" or dtype not in PACKED_DTYPES:
        raise ConfigError(
            f"linear layers are packed for torch.float32 or torch.bfloat16 on a CPU, not for {dtype} on {device}; "
            "change dtype or device, or leave packed=False"
        )
    weight = torch.arange(64.0, dtype=dtype).view(8, 8)  # exact in either type, as are the products
    try:
        bias = torch.nn.Parameter(weight[0], requires_grad=False)
        same = torch.equal(PackedLinear(weight, bias)(torch.eye(8, dtype=dtype)), weight.T + bias)
    except (AttributeError, RuntimeError, TypeError) as error:
        raise ConfigError(f"torch {torch.__version__} cannot pack {dtype} here ({error}); use packed=False") from error
    if not same:
        raise ConfigError(f"torch {torch.__version__} packs {dtype} wrongly on this machine; use packed=False")


def pack_linears(model: torch.nn.Module) -> None:
    """Replace a model's linear layers in place, one by one, so that memory never holds all weights twice.

    Embeddings stay; an output layer that shared its weight with one gets its own copy. The packed weights are in
    no `state_dict` any more, so the model must not be saved, copied, trained, or moved to another type or device. Its
    own `generate` goes on working, through the same layers.

    Raises:
        ConfigError: if the model's weights cannot be packed here; nothing is replaced then.
    """
    kinds = (torch.nn.Linear, Conv1D)
    first = next(model.parameters())
    refuse_unless_packable(first.dtype, first.device)
    for parent in [module for module in model.modules() if type(module) not in kinds]:
        layers: list[tuple[str, Any]] = [each for each in parent.named_children() if type(each[1]) in kinds]
        for name, layer in layers:
            if layer.weight.dtype in PACKED_DTYPES:
                weight = layer.weight.T if type(layer) is Conv1D else layer.weight
                setattr(parent, name, PackedLinear(weight, layer.bias))
