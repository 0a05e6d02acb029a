"""Whoever answers prompts: what is sent to it, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from minikv.frontend import Frontend
from minikv.sampling import SamplingParams
from minikv.scheduling.request import Request

PATIENCE = 64  # steps beyond those that the tokens take at one a step


@dataclass(frozen=True)
class Ask:
    """One prompt of one tenant.

    Attributes:
        tenant: whose it is.
        prompt: token ids; a target that reads text decodes them.
        max_tokens: how many tokens are asked for, exactly.
        kind: why it is sent: "ordinary", "pool+1", ...
        streamed: its client reads along.
        leaves_after: tokens after which its client goes away; None: stays.
        comes_at: step at which it comes, counted from the first.
    """

    tenant: str
    prompt: tuple[int, ...]
    max_tokens: int
    kind: str = "ordinary"
    streamed: bool = False
    leaves_after: int | None = None
    comes_at: int = 0


@dataclass(frozen=True)
class Answer:
    """What its client got.

    Attributes:
        status: of the one final answer, also if it came inside a stream that had begun with 200; None: there was none.
        token_ids: that went out, whether or not an error came after them; empty if the target tells no ids.
        text: their text; empty where there is no tokenizer.
        prompt_tokens: what the target counted; None if it does not say.
        error: the message; empty for 200.
        left: the client went away before the end.
        granted: the most tokens that the door gave, which may be fewer than were asked for; None if it does not say.
    """

    status: int | None
    token_ids: tuple[int, ...] = ()
    text: str = ""
    prompt_tokens: int | None = None
    error: str = ""
    left: bool = False
    granted: int | None = None


Pair = tuple[Ask, Answer]


class Target(Protocol):
    """Anything that answers prompts."""

    def serve(self, asks: Sequence[Ask]) -> list[Answer]:
        """Send all, side by side; return their answers in order. Never waits for ever."""


class ServerTarget:
    """An engine or a cluster in this process.

    Args:
        server: that answers.
    """

    def __init__(self, server: Frontend) -> None:
        self.server = server

    def serve(self, asks: Sequence[Ask]) -> list[Answer]:
        """As the protocol says; each answer is fetched as soon as it is there."""
        clients = [_Client(self.server, ask) for ask in asks]
        last = max((ask.comes_at for ask in asks), default=0)
        patience = last + sum(len(ask.prompt) + ask.max_tokens for ask in asks) + PATIENCE
        for step in range(patience):
            for client in clients:
                if client.ask.comes_at == step:
                    client.come()
            if step >= last and all(client.answer for client in clients):
                break
            self.server.step()
            for client in clients:
                client.read()
        return [client.answer or client.give_up() for client in clients]


class _Client:
    def __init__(self, server: Frontend, ask: Ask) -> None:
        self.server = server
        self.ask = ask
        self.number = -1
        self.sent: tuple[int, ...] = ()
        self.left = False
        self.answer: Answer | None = None

    def come(self) -> None:
        params = SamplingParams(max_tokens=self.ask.max_tokens, ignore_eos=True)
        self.number = self.server.submit(self.ask.prompt, params, self.ask.tenant)
        self.read()

    def read(self) -> None:
        """Take what may be read, and the final answer if it is there."""
        if self.number < 0 or self.answer:
            return
        request = self.server.requests[self.number]
        if self.ask.streamed and self.server.may_read(request):
            self.sent += tuple(request.output_ids[len(self.sent) :])
        if self.ask.leaves_after is not None and len(request.output_ids) >= self.ask.leaves_after:
            self.left = self.left or not request.answered
            self.server.abort(self.number)
        if request.answered:
            self.answer = self._final(request)

    def _final(self, request: Request) -> Answer:
        done = self.server.result(self.number)
        if done.error is None:  # an error has no words, but those that went out before are out
            self.sent = done.token_ids
        return Answer(
            done.status,
            self.sent,
            self._text(),
            done.prompt_tokens,
            error=str(done.error or ""),
            left=self.left,
            granted=done.max_tokens,
        )

    def _text(self) -> str:
        return self.server.model.decode(self.sent) if self.server.model.tokenizer and self.sent else ""

    def give_up(self) -> Answer:
        self.server.forget(self.number)
        return Answer(None, self.sent, self._text(), left=self.left)
