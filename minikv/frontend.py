"""The caller's side: prompts come in, each gets exactly one final answer, in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import fields
from typing import Any

from minikv.config import ServerConfig, made_of, one_for_each, refuse_unknown
from minikv.errors import BrokenRule, ConfigError, Rejected, RequestAborted, as_minikv
from minikv.loop import Loop
from minikv.models.adapter import BoundModel, Prompt
from minikv.parts import Parts
from minikv.sampling import SamplingParams
from minikv.scheduling.request import Completion, Request
from minikv.streaming import Chunk, chunks, chunks_async
from minikv.trace import Admit, Length, Trace


class Frontend(Loop):
    """The caller's side of an engine or a cluster. Several threads may use it; one step runs at a time.

    Args:
        model: what answers, from `load_model`.
        config: the settings; None builds them from `options`.
        kind: what class they are of.
        trace: where events go; a new `Trace` if not given.
        options: single fields of `kind` and of `Parts`.
        name: of this server, for events.

    Attributes:
        next_number: which the next request will get.
    """

    def __init__(
        self,
        model: BoundModel,
        config: ServerConfig | None,
        kind: type[ServerConfig],
        trace: Trace | None,
        options: dict[str, Any],
        name: str,
    ) -> None:
        if not isinstance(model, BoundModel):
            raise ConfigError(f"the model must come from minikv.load_model, not be a {type(model).__name__}")
        if trace is not None and not isinstance(trace, Trace):
            raise ConfigError(f"trace must be a minikv.trace.Trace, not {type(trace).__name__}")
        self.parts = made_of(Parts, options)
        if config is None:
            config = made_of(kind, options)
        elif beside := sorted({field.name for field in fields(kind)} & set(options)):
            raise ConfigError(f"{', '.join(beside)}: give settings in the config or one by one, not both")
        refuse_unknown(options, kind, Parts)
        if not isinstance(config, kind):
            raise ConfigError(f"config must be of type {kind.__name__}, not {type(config).__name__}")
        super().__init__(model, trace if trace is not None else Trace(), name)
        self.config = config
        self.next_number = 0

    def _open_door(self, context_length: int) -> None:
        """Build the door, once the nodes are there."""
        capacities = [node.capacity for node in self.nodes]
        self.context_length = context_length
        self.admission = self.parts.admission(context_length, capacities, self.config)
        self.parts.require("admission", self.admission, "check")

    def generate(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tenant: str | Sequence[str] = "anonymous",
    ) -> list[Completion]:
        """Answer some prompts together.

        Args:
            prompts: each a text, a list of chat messages or a list of token ids.
            params: for all of them, or one for each; `SamplingParams()` if not given.
            tenant: whose they are; one name, or one for each.

        Returns:
            One completion a prompt, in order; where `n` answers are asked for, `n` completions one after the other.
            A prompt that cannot be served has its `error` there and does not disturb the others.

        Raises:
            ConfigError: if the arguments themselves do not fit together.
        """
        one = isinstance(prompts, str) or not isinstance(prompts, Sequence)
        if one or (prompts and isinstance(prompts[0], (int, dict))):
            raise ConfigError("generate takes a list of prompts; for a single one write [prompt]")
        each = one_for_each("params", SamplingParams() if params is None else params, SamplingParams, len(prompts))
        tenants = one_for_each("tenant", tenant, str, len(prompts))
        requests: list[Request] = []
        try:
            for prompt, wanted, whose in zip(prompts, each, tenants, strict=True):
                for index, each_of_n in enumerate(wanted.each()):
                    self._submit(prompt, each_of_n, whose, index, into=requests)
            while not all(request.answered for request in requests):
                self.step()
            return [self._completion(request) for request in requests]
        finally:
            for request in requests:  # after an error nobody would fetch these answers
                self.forget(request.number)

    def stream(
        self, prompt: Prompt, params: SamplingParams | None = None, tenant: str = "anonymous"
    ) -> Generator[Chunk, None, None]:
        """Answer one prompt piece by piece, as tokens are computed; several streams may run at once.

        Nothing happens before the first piece is asked for. Leaving the loop early aborts the request.

        Yields:
            Pieces of text that together are the answer's text, never cut inside a character; the last one
            carries the completion.

        Raises:
            MinikvError: the error of an answer that has one, after the pieces that came before it.
        """
        return chunks(self, prompt, params, tenant)

    def stream_async(
        self, prompt: Prompt, params: SamplingParams | None = None, tenant: str = "anonymous"
    ) -> AsyncGenerator[Chunk, None]:
        """As `stream`, for `async for`; steps run in a worker thread, so the event loop goes on."""
        return chunks_async(self, prompt, params, tenant)

    def submit(self, prompt: Prompt, params: SamplingParams | None = None, tenant: str = "anonymous") -> int:
        """Hand in one prompt and return its number; `step` does the work, `result` has the answer.

        A prompt that is refused gets a number too: its answer is there at once.
        """
        (params,) = one_for_each("params", SamplingParams() if params is None else params, SamplingParams, 1)
        (tenant,) = one_for_each("tenant", tenant, str, 1)
        if params.n != 1:
            raise ConfigError(
                f"a request has one answer; for n={params.n} use generate, or submit each of params.each()"
            )
        return self._submit(prompt, params, tenant, 0, into=[])

    def _submit(self, prompt: Prompt, params: SamplingParams, tenant: str, index: int, into: list[Request]) -> int:
        """As `submit`; the request is in `into` before anything can go wrong with it."""
        ids, problem = self._read(prompt, params)
        decode = self.model.decode if self.model.tokenizer else None
        with self.lock:
            outer, self._changing = self._changing, True
            number, self.next_number = self.next_number, self.next_number + 1
            request = Request(number, ids, params, tenant, index=index, eos_ids=self.model.eos_ids, decode=decode)
            into.append(request)
            self.requests[number] = request
            try:
                self.note_length(request, "client")
                self._let_in(request, problem or self._failure)
            except Rejected as refusal:
                self._refuse(request, refusal)
            except Exception as error:
                if not request.answered:
                    request.finish_reason = request.error = None  # whatever a wrong door has made of it
                self._finish(request, "error", as_minikv(error, self.trace.step))
            except BaseException:
                self.requests.pop(number, None)  # its caller will never know its number
                raise
            self._changing = outer
            return number

    def _read(self, prompt: Prompt, params: SamplingParams) -> tuple[tuple[int, ...], Exception | None]:
        """A prompt's tokens, or none and what is wrong with it."""
        try:
            if params.stop and self.model.tokenizer is None:
                raise Rejected(f"{self.model.name} has no tokenizer, so no stop text can be seen; use stop_token_ids")
            return self.model.encode(prompt), None
        except Exception as error:
            return (), error

    def _let_in(self, request: Request, problem: Exception | None) -> None:
        """Ask the door, and take the request in, unless there is a problem already."""
        if problem is not None:
            raise problem.with_traceback(None)
        ids, before = request.prompt_ids, (request.number, request.tenant, request.params)
        request.max_tokens = self._door(request)
        if request.prompt_ids is not ids or request.prompt_tokens != len(ids):
            raise BrokenRule("a prompt is immutable", f"the door changed that of request {before[0]}")
        if before != (request.number, request.tenant, request.params) or request.finished or request.output_ids:
            request.number, request.tenant, request.params = before
            request.output_ids.clear()
            raise BrokenRule("the door looks at a request and changes nothing", f"it changed request {before[0]}")
        sizes = (request.prompt_tokens, request.max_tokens)
        self.trace.add(Admit(self.trace.step, self.name, request.number, request.tenant, *sizes))
        self._enqueue(request)

    def _door(self, request: Request) -> int:
        """How many tokens a request may generate; raises `Rejected` if it is not let in."""
        self.note_length(request, "door")
        granted = self.admission.check(request, len(self.nodes[0].scheduler.waiting))
        wanted, most = request.params.max_tokens, self.context_length
        if isinstance(granted, bool) or not isinstance(granted, int) or not 1 <= granted <= wanted:
            raise BrokenRule(f"the door grants 1 to {wanted} tokens, or raises Rejected", f"{granted!r:.60} came")
        if request.prompt_tokens + granted > most:
            raise BrokenRule(
                f"the door keeps the context of {most}", f"{request.prompt_tokens} + {granted} tokens came"
            )
        return granted

    def _enqueue(self, request: Request) -> None:
        """Take in a request that the door let through."""
        self.note_length(request, "queue")
        self.nodes[0].scheduler.add(request)

    def note_length(self, request: Request, part: str, node: str | None = None) -> None:
        """Put on record how long a part takes a request to be; `part` is one of `trace.PARTS`."""
        self.trace.add(Length(self.trace.step, node or self.name, request.number, part, request.prompt_tokens))

    def result(self, number: int) -> Completion:
        """Fetch the final answer of a request, once.

        Raises:
            KeyError: if there is no such request or its answer was fetched.
            ConfigError: if it is not finished yet.
        """
        with self.lock:
            request = self.requests[number]
            if not request.answered:
                raise ConfigError(f"request {number} is not finished; call step() until it is")
            completion = self._completion(request)
            del self.requests[number]
            return completion

    def _completion(self, request: Request) -> Completion:
        return Completion(
            request_id=request.number,
            tenant=request.tenant,
            prompt_tokens=request.prompt_tokens,
            token_ids=tuple(request.output_ids),
            text=request.read_text(),
            finish_reason=request.finish_reason or "error",
            error=request.error,
            max_tokens=request.max_tokens,
            logprobs=tuple(request.logprobs),
            index=request.index,
        )

    def may_read(self, request: Request) -> bool:
        """Whether the tokens that a request has so far may go out."""
        return True

    def abort(self, number: int) -> None:
        """End a request now. Nothing happens if it is finished already.

        Its pages are back when this returns; if a step is running (this is called from within it), when that ends.

        Raises:
            KeyError: if there is no such request or its answer was fetched.
        """
        with self.lock:
            request = self.requests[number]
            if request.finished:
                return
            request.finish("abort", RequestAborted(f"request {number} was aborted by its caller"))
            if self._stepping:
                self._aborted.append(request)
            else:
                self._finish(request)

    def forget(self, number: int) -> None:
        """Abort a request whose answer nobody will fetch. Nothing happens if there is no such request."""
        with self.lock:
            if number in self.requests:
                self.abort(number)
                del self.requests[number]
