"""Answers piece by piece, for a loop and for an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minikv.errors import RequestAborted
from minikv.models.adapter import Prompt
from minikv.sampling import SamplingParams
from minikv.scheduling.request import Completion

if TYPE_CHECKING:
    from minikv.frontend import Frontend


@dataclass(frozen=True)
class Chunk:
    """A piece of an answer; `str` of it is its text.

    Attributes:
        request_id: the request's number, for `abort`.
        text: the next whole characters; empty where the model has no tokenizer.
        token_ids: tokens generated since the last piece; their text may come with the next one.
        completion: the whole answer, in the last piece; None before.
    """

    request_id: int
    text: str
    token_ids: tuple[int, ...]
    completion: Completion | None = None

    def __str__(self) -> str:
        return self.text


class _Reader:
    """What of one request was given out already."""

    def __init__(self, server: Frontend) -> None:
        self.server = server
        self.number = -1
        self._letters = self._tokens = 0
        self._seen = -1  # the step after which it was looked at last
        self._left = False

    def submit(self, prompt: Prompt, params: SamplingParams | None, tenant: str) -> None:
        """Hand the prompt in, unless the caller left while this thread waited for a step to end."""
        with self.server.lock:
            if not self._left:
                self.number = self.server.submit(prompt, params, tenant)

    def leave(self) -> None:
        """Nobody reads on."""
        with self.server.lock:
            self._left = True
            self.server.forget(self.number)

    def look(self) -> Chunk | None:
        """What is new, after a step if nobody has done one since the last look; None if there is nothing yet.

        One step at most, so that many readers share the threads of an event loop. Raises the error of an answer that
        has one.
        """
        with self.server.lock:
            chunk = self._news()
            if chunk is None and self._seen == self.server.trace.step:
                self.server.step()
                chunk = self._news()
            self._seen = self.server.trace.step
            return chunk

    def _news(self) -> Chunk | None:
        request = self.server.requests.get(self.number)
        if request is None:
            raise RequestAborted(f"the answer to request {self.number} was fetched or forgotten by somebody else")
        may = self.server.may_read(request)
        if not request.answered and (not may or len(request.output_ids) == self._tokens):
            return None
        text = request.read_text()[self._letters :] if may else ""
        ids = tuple(request.output_ids[self._tokens :]) if may else ()
        last = request.answered and not (request.error and (ids or text))  # an error comes after the pieces
        completion = self.server.result(self.number) if last else None
        if completion and completion.error:
            raise completion.error
        self._letters, self._tokens = self._letters + len(text), len(request.output_ids)
        return Chunk(self.number, text, ids, completion)


def chunks(
    server: Frontend, prompt: Prompt, params: SamplingParams | None, tenant: str
) -> Generator[Chunk, None, None]:
    """See `Frontend.stream`."""
    reader = _Reader(server)
    try:
        reader.submit(prompt, params, tenant)
        while True:
            if (chunk := reader.look()) is None:
                continue
            yield chunk
            if chunk.completion:
                return
    finally:
        reader.leave()


async def chunks_async(
    server: Frontend, prompt: Prompt, params: SamplingParams | None, tenant: str
) -> AsyncGenerator[Chunk, None]:
    """See `Frontend.stream_async`."""
    reader = _Reader(server)
    try:
        await asyncio.to_thread(reader.submit, prompt, params, tenant)
        while True:
            if (chunk := await asyncio.to_thread(reader.look)) is None:
                continue
            yield chunk
            if chunk.completion:
                return
    finally:
        # A future and not a task: a loop that ends cancels its tasks, even before they have begun.
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, reader.leave))
