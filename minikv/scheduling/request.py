"""One request, from the door to its one final answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from minikv.errors import MinikvError
from minikv.sampling import SamplingParams

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
        token_ids: generated tokens, with the end-of-sequence token if there was one.
        text: their text, without special tokens.
        finish_reason: "stop" (end of sequence), "length" (`max_tokens` reached), "rejected", "abort" or "error".
        error: why, for the last three; otherwise None.
    """

    request_id: int
    tenant: str
    prompt_tokens: int
    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    error: MinikvError | None = None

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

    Attributes:
        output_ids: tokens generated so far. The newest has no keys and values yet.
        finish_reason, error: the final answer; None while there is none.
        answered: the final answer was given out, and nothing can change it any more.
    """

    def __init__(
        self, number: int, prompt_ids: Sequence[int], params: SamplingParams, tenant: str = "anonymous"
    ) -> None:
        self.number = number
        self.prompt_ids = tuple(prompt_ids)
        self.prompt_tokens = len(self.prompt_ids)
        self.params = params
        self.tenant = tenant
        self.generator = params.generator()
        self.output_ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.error: MinikvError | None = None
        self.answered = False

    @property
    def finished(self) -> bool:
        """Whether the final answer stands. The only predicate that anybody may ask."""
        return self.finish_reason is not None

    @property
    def last_slots(self) -> int:
        """Slots that it needs on a node that generates all its tokens: the last token is never written."""
        return self.prompt_tokens + self.params.max_tokens - 1

    def tokens(self, start: int, stop: int) -> list[int]:
        """Tokens at positions [start, stop) of prompt and output together."""
        return [
            self.prompt_ids[i] if i < self.prompt_tokens else self.output_ids[i - self.prompt_tokens]
            for i in range(start, stop)
        ]

    def append(self, token: int, eos_ids: frozenset[int]) -> None:
        """Add a generated token, and finish if it was the last one."""
        if self.finished:
            return  # aborted while the token was computed
        self.output_ids.append(token)
        if token in eos_ids and not self.params.ignore_eos:
            self.finish("stop")
        elif len(self.output_ids) == self.params.max_tokens:
            self.finish("length")

    def finish(self, reason: FinishReason, error: MinikvError | None = None) -> None:
        """Settle the final answer. Until it is given out a worse one replaces it; a better one never does."""
        if self.answered:
            return
        if self.finish_reason is not None and SEVERITY[reason] <= SEVERITY[self.finish_reason]:
            return
        self.finish_reason = reason
        self.error = error
