"""What a caller may ask of the next token, and how it is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from minikv.config import ABOVE_0, number, several, whole_number, yes_or_no
from minikv.errors import ConfigError, EngineFailed

if TYPE_CHECKING:
    from minikv.scheduling.request import Request

MOST_ANSWERS = 1024
RANGES = {
    "temperature": (0.0, float("inf")),
    "top_p": (ABOVE_0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (ABOVE_0, float("inf")),
    "presence_penalty": (-2.0, 2.0),
}


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How one request is continued.

    Attributes:
        max_tokens: the most tokens to generate, at least 1.
        min_tokens: do not stop before this many tokens.
        temperature: 0 takes the most likely token (greedy); above 0 draws from softmax(logits / temperature).
        top_k: draw from the `top_k` most likely tokens; 0 for all.
        top_p: draw from the fewest most likely tokens whose probabilities reach `top_p`.
        min_p: draw from tokens with at least `min_p` times the largest probability.
        repetition_penalty: above 1, tokens of prompt and answer become less likely (arXiv 1909.05858).
        presence_penalty: subtracted from the logits of tokens that the answer has already.
        seed: makes the draws of this request repeatable, alone or in any batch; unused by greedy.
        stop: a text, or several, that end the answer; the answer's text ends before it.
        stop_token_ids: tokens that end the answer, beside the model's own end of sequence.
        ignore_eos: go on after an end-of-sequence token, until `max_tokens`.
        logprobs: report the log probability of each generated token and of this many most likely ones (by the
            model's own logits, before any of the above); None for nothing.
        n: how many answers to the prompt; with a seed, answer `i` draws with `seed + i`. Greedy ones are all the same.

    Raises:
        ConfigError: at construction, if a value cannot work.
    """

    max_tokens: int = 16
    min_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    n: int = 1

    def __post_init__(self) -> None:
        for name, least in (("max_tokens", 1), ("min_tokens", 0), ("top_k", 0), ("n", 1)):
            whole_number(name, getattr(self, name), least=least)
        for name in ("seed", "logprobs"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), least=0)
        for name, (least_number, most) in RANGES.items():
            number(name, getattr(self, name), least_number, most)
        yes_or_no("ignore_eos", self.ignore_eos)
        if self.min_tokens > self.max_tokens:
            raise ConfigError(f"min_tokens={self.min_tokens} is more than max_tokens={self.max_tokens}")
        if self.seed is not None and self.seed >= 2**64:
            raise ConfigError(f"seed must be below 2**64, not {self.seed}")
        if self.n > MOST_ANSWERS:
            raise ConfigError(f"n must be at most {MOST_ANSWERS}, not {self.n}")
        stop = (self.stop,) if isinstance(self.stop, str) else several("stop", self.stop)
        if not all(isinstance(text, str) and text for text in stop):
            raise ConfigError(f"stop must be a text or a list of texts, none of them empty, not {self.stop!r}")
        ids = tuple(
            whole_number("each of stop_token_ids", token, least=0)
            for token in several("stop_token_ids", self.stop_token_ids)
        )
        if any(token >= 2**63 for token in ids):
            raise ConfigError(f"each of stop_token_ids must be below 2**63, not {max(ids)}")
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "stop_token_ids", ids)

    def each(self) -> list[SamplingParams]:
        """The parameters of each of the `n` answers."""
        seeds = [None if self.seed is None else (self.seed + i) % 2**64 for i in range(self.n)]
        return [replace(self, n=1, seed=seed) for seed in seeds]

    def generator(self) -> torch.Generator | None:
        """The request's own source of randomness; None for greedy, which needs none."""
        if self.temperature == 0.0:
            return None
        seed = torch.Generator().seed() if self.seed is None else self.seed
        return torch.Generator().manual_seed(seed)

    def processors(self, prompt_tokens: int, stop_ids: frozenset[int]) -> LogitsProcessorList:
        """What changes the logits before a token is chosen, whether greedily or by a draw."""
        chain = LogitsProcessorList()
        if self.repetition_penalty != 1.0:
            chain.append(RepetitionPenaltyLogitsProcessor(float(self.repetition_penalty)))
        if self.presence_penalty:
            chain.append(PresencePenalty(self.presence_penalty, prompt_tokens))
        if self.min_tokens and stop_ids:
            chain.append(MinNewTokensLengthLogitsProcessor(prompt_tokens, self.min_tokens, sorted(stop_ids)))
        return chain

    def warpers(self) -> LogitsProcessorList:
        """What narrows a draw, in the order of `transformers`."""
        chain = LogitsProcessorList()
        if self.temperature not in (0.0, 1.0):
            chain.append(TemperatureLogitsWarper(float(self.temperature)))
        if self.top_k:
            chain.append(TopKLogitsWarper(self.top_k))
        if self.top_p < 1.0:
            chain.append(TopPLogitsWarper(float(self.top_p)))
        if self.min_p:
            chain.append(MinPLogitsWarper(float(self.min_p)))
        return chain


class PresencePenalty(LogitsProcessor):  # type: ignore[misc]
    """Takes `penalty` off the logits of all tokens that were generated before; the prompt does not count."""

    def __init__(self, penalty: float, prompt_tokens: int) -> None:
        self.penalty = penalty
        self.prompt_tokens = prompt_tokens

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """As every `LogitsProcessor`: ids [1, tokens], scores [1, vocabulary]."""
        scores = scores.clone()
        scores[0, input_ids[0, self.prompt_tokens :].unique()] -= self.penalty
        return scores


class Sampler(Protocol):
    """Chooses tokens. The right one is `sample`."""

    def __call__(self, logits: torch.Tensor, request: Request) -> int:
        """Choose the next token of a request.

        Args:
            logits: [vocabulary], on the model's device and in its dtype; read-only (work on `logits.clone()`).
            request: its `params`, `generator` and tokens are looked at; the engine appends the token, not the sampler.

        Returns:
            A token id, 0 to vocabulary - 1.
        """


def sample(logits: torch.Tensor, request: Request) -> int:
    """Choose one token, as the request's parameters say.

    Args:
        logits: [vocabulary], any float dtype.
        request: whose turn it is; its tokens, parameters and source of randomness are used.

    Raises:
        EngineFailed: if the logits are not numbers, or every token is forbidden.
    """
    if torch.isnan(logits.max()):
        raise EngineFailed("the model's output is not a number; nothing can be chosen from it")
    if request.generator is None and not request.processors:
        return int(logits.argmax())
    ids = torch.tensor([request.tokens(0, request.num_tokens)] if request.processors else [[]])  # warpers need none
    scores = request.processors(ids, logits.float().cpu().unsqueeze(0))
    if scores.max() == float("-inf"):
        raise EngineFailed("every token is forbidden; ask for a smaller min_tokens or fewer stop tokens")
    if request.generator is None:
        return int(scores.argmax())
    narrowed = request.warpers(ids, scores)
    if not torch.isfinite(narrowed.max()):  # so cold that the scores overflow: the limit is greedy
        return int(scores.argmax())
    return int(torch.multinomial(torch.softmax(narrowed[0], dim=-1), 1, generator=request.generator))


def log_probabilities(logits: torch.Tensor, token: int, count: int) -> dict[int, float]:
    """Log probabilities of a chosen token and of the `count` most likely ones, by token, most likely first."""
    logs = torch.log_softmax(logits.float(), dim=-1)
    top = logs.topk(min(count, len(logs)))
    found = dict(zip(top.indices.tolist(), top.values.tolist(), strict=True))
    return found | {token: float(logs[token])}
