"""One request, from the door to its one final answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from minikv.errors import MinikvError
from minikv.sampling import SamplingParams
from minikv.text import Detokenizer

FinishReason = Literal["stop", "length", "rejected", "abort", "error"]

# The worst status wins: a finished request can only be made worse.
SEVERITY: dict[FinishReason, int] = {"stop": 0, "length": 0, "abort": 1, "error": 2, "rejected": 3}


@dataclass(frozen=True)
class Completion:
    """The one final answer to one prompt.

    Attributes:
        request_id: the request's number.
        tenant: whose request it was.
        prompt_tokens: length of the prompt, recorded at the door; 0 if the prompt could not be read.
        token_ids: generated tokens, with the token that ended the answer if there was one.
        text: their text, without special tokens and without the stop text or stop token that ended it.
        finish_reason: "stop" (end of sequence, stop token or stop text), "length" (`max_tokens` reached),
            "rejected", "abort" or "error".
        error: why, for the last three; otherwise None.
        max_tokens: the most tokens that the door granted (of a refused request: that it asked for).
        logprobs: for each token, log probabilities by token id; empty unless asked for.
        index: which of the `n` answers to its prompt this is.
    """

    request_id: int
    tenant: str
    prompt_tokens: int
    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    error: MinikvError | None = None
    max_tokens: int = 0
    logprobs: tuple[dict[int, float], ...] = ()
    index: int = 0

    @property
    def status(self) -> int:
        """The HTTP status that says the same: 200, or that of the error."""
        return 200 if self.error is None else self.error.status


class Request:
    """A prompt on its way through a server.

    Args:
        number: unique in its engine or cluster.
        prompt_ids: the prompt's tokens; never changed, their number is recorded once.
        params: what the caller asked for.
        tenant: whose request it is.
        index: which of the answers to its prompt it is.
        eos_ids: the model's end-of-sequence tokens.
        decode: text of some tokens; None for a model without a tokenizer.

    Attributes:
        max_tokens: the most tokens that it may generate; the door may grant fewer than were asked for.
        output_ids: tokens generated so far. The newest has no keys and values yet.
        text: the answer's text as it grows; fed at once if a stop text must be seen, else when it is read.
        logprobs: one dict a token, if they were asked for.
        handed_over: another node took it over, complete, and writes the answer.
        finish_reason, error: the final answer; None while there is none.
        answered: the final answer was given out, and nothing can change it any more.
    """

    def __init__(
        self,
        number: int,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        tenant: str = "anonymous",
        *,
        index: int = 0,
        eos_ids: frozenset[int] = frozenset(),
        decode: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        self.number = number
        self.prompt_ids = tuple(prompt_ids)
        self.prompt_tokens = len(self.prompt_ids)
        self.prompt_hash = hash(self.prompt_ids)
        self.params = params
        self.tenant = tenant
        self.index = index
        self.max_tokens = params.max_tokens
        self.stop_ids = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else eos_ids)
        self.generator = params.generator()
        self.processors = params.processors(self.prompt_tokens, self.stop_ids)
        self.warpers = params.warpers()
        self.text = Detokenizer(decode or (lambda _ids: ""), self.prompt_ids, params.stop)
        self.output_ids: list[int] = []
        self._num_pushed = 0  # of the output, into the text
        self.logprobs: list[dict[int, float]] = []
        self.handed_over = False
        self.finish_reason: FinishReason | None = None
        self.error: MinikvError | None = None
        self.answered = False

    @property
    def finished(self) -> bool:
        """Whether the final answer stands. The only predicate that anybody may ask."""
        return self.finish_reason is not None

    @property
    def num_tokens(self) -> int:
        """Tokens known so far: the prompt and what was generated."""
        return self.prompt_tokens + len(self.output_ids)

    def tokens(self, start: int, stop: int) -> list[int]:
        """Tokens at positions [start, stop) of prompt and output together."""
        return [
            self.prompt_ids[i] if i < self.prompt_tokens else self.output_ids[i - self.prompt_tokens]
            for i in range(start, stop)
        ]

    def append(self, token: int) -> None:
        """Add a generated token, and finish if it was the last one."""
        if self.finished:
            return  # aborted while the token was computed
        self.output_ids.append(token)
        if self.params.stop:
            self.read_text()
        if token in self.stop_ids or self.text.stopped:
            self.finish("stop")
        elif len(self.output_ids) == self.max_tokens:
            self.finish("length")

    def read_text(self) -> str:
        """The final text so far; all of it once the request is finished."""
        for index in range(self._num_pushed, len(self.output_ids)):
            if self.output_ids[index] not in self.stop_ids:
                self.text.push(self.output_ids[index], may_stop=index + 1 >= self.params.min_tokens)
        self._num_pushed = len(self.output_ids)
        if self.finished:
            self.text.finish()
        return self.text.text

    def finish(self, reason: FinishReason, error: MinikvError | None = None) -> None:
        """Settle the final answer. Until it is given out a worse one replaces it; a better one never does."""
        if self.answered:
            return
        if self.finish_reason is not None and SEVERITY[reason] <= SEVERITY[self.finish_reason]:
            return
        self.finish_reason = reason
        self.error = error
