"""What a caller may ask of the next token, and how it is chosen."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch

from minikv.config import whole_number
from minikv.errors import ConfigError, EngineFailed


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How one request is continued.

    Attributes:
        max_tokens: the most tokens to generate, at least 1.
        temperature: 0 takes the most likely token (greedy); above 0 draws from softmax(logits / temperature).
        ignore_eos: go on after an end-of-sequence token, until `max_tokens`.
        seed: makes the draws of this request repeatable, alone or in any batch; unused by greedy.

    Raises:
        ConfigError: at construction, if a value cannot work.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    ignore_eos: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        whole_number("max_tokens", self.max_tokens, least=1)
        temperature = self.temperature
        if isinstance(temperature, bool) or not isinstance(temperature, (int, float)):
            raise ConfigError(f"temperature must be a number, not {temperature!r}")
        if not 0.0 <= temperature <= sys.float_info.max:
            raise ConfigError(f"temperature must be 0 (greedy) or a positive number, not {temperature}")
        if not isinstance(self.ignore_eos, bool):
            raise ConfigError(f"ignore_eos must be True or False, not {self.ignore_eos!r}")
        if self.seed is not None:
            whole_number("seed", self.seed, least=0)
            if self.seed >= 2**64:
                raise ConfigError(f"seed must be below 2**64, not {self.seed}")

    def generator(self) -> torch.Generator | None:
        """The request's own source of randomness; None for greedy, which needs none."""
        if self.temperature == 0.0:
            return None
        generator = torch.Generator()
        if self.seed is None:
            generator.seed()
        else:
            generator.manual_seed(self.seed)
        return generator


def next_token(logits: torch.Tensor, params: SamplingParams, generator: torch.Generator | None) -> int:
    """Choose one token.

    Args:
        logits: [vocabulary], any float dtype.
        params: how to choose.
        generator: from `params.generator()`, the same object for the whole request.

    Raises:
        EngineFailed: if the logits are not numbers.
    """
    if torch.isnan(logits.max()):
        raise EngineFailed("the model's output is not a number; nothing can be chosen from it")
    if generator is None:
        return int(logits.argmax())
    scores = logits.double().cpu()
    weights = torch.softmax((scores - scores.max()) / params.temperature, dim=-1)  # the largest is 0: no overflow
    return int(torch.multinomial(weights, 1, generator=generator))
