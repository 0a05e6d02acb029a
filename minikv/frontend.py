"""What every server has in common: prompts come in, each gets exactly one final answer, in order."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Generator, Sequence
from dataclasses import fields
from typing import Any

from minikv.config import ServerConfig, made_of, one_for_each, refuse_unknown
from minikv.errors import BrokenRule, ConfigError, EngineFailed, MinikvError, Rejected, RequestAborted, as_minikv
from minikv.health.invariants import check_server
from minikv.health.stats import Stats, stats_of
from minikv.models.adapter import BoundModel, Prompt
from minikv.node import Node
from minikv.parts import Parts
from minikv.sampling import SamplingParams
from minikv.scheduling.request import Completion, FinishReason, Request
from minikv.streaming import Chunk, chunks, chunks_async
from minikv.trace import Admit, Finish, Refuse, Trace


class Frontend(ABC):
    """The caller's side of an engine or a cluster. Several threads may use it; one step runs at a time.

    Args:
        model: what answers, from `load_model`.
        config: the settings; None builds them from `options`.
        kind: what class they are of.
        trace: where events go; a new `Trace` if not given.
        options: single fields of `kind` and of `Parts`.
        name: of this server, for events.
    """

    nodes: Sequence[Node]
    between: Collection[Request] = ()  # on their way from one node to the next

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
        self.config = config
        self.model = model
        self.trace = trace if trace is not None else Trace()
        self.name = name
        self.requests: dict[int, Request] = {}  # submitted, answer not yet fetched
        self.finished: dict[str, int] = {}  # final answers so far, by reason
        self._next_number = 0
        self._failure: EngineFailed | None = None
        self.lock = threading.RLock()  # several threads may submit, step and abort
        self._stepping = False
        self._aborted: list[Request] = []  # during the step that runs now

    def _open_door(self, context_length: int) -> None:
        """Build the door, once the nodes are there."""
        capacities = [node.capacity for node in self.nodes]
        self.context_length = context_length
        self.admission = self.parts.admission(context_length, capacities, self.config)
        self.parts.require("admission", self.admission, "check")

    def step(self) -> None:
        """Do one step of work for everybody who runs.

        Raises:
            BrokenRule: if it is called from within a step.
        """
        with self.lock:
            if self._stepping:
                raise BrokenRule("one step at a time", "a step was asked for from within a step")
            self._stepping = True
            self.trace.step += 1
            before = self._progress()
            try:
                self._step()
            finally:
                self._stepping = False
                self._take_back_aborted()
            if self._progress() == before:
                self._refuse_to_idle()

    def _take_back_aborted(self) -> None:
        """Finish those that were aborted while a node computed; no node computes now."""
        while self._aborted:
            self._finish(self._aborted.pop())

    @abstractmethod
    def _step(self) -> None:
        """The step itself."""

    @abstractmethod
    def _drop(self, request: Request) -> None:
        """Forget a request everywhere and take its pages back."""

    def _progress(self) -> tuple[int, ...]:
        """Numbers of which one at least changes in a step that has work to do."""
        return (sum(self.finished.values()), *(node.num_steps for node in self.nodes))

    def _refuse_to_idle(self) -> None:
        """A step in which nothing happened will be followed by more of its kind: nobody is left to wait for them."""
        stuck = [request for request in list(self.requests.values()) if not request.answered]
        if stuck:
            self._fail(
                stuck,
                BrokenRule("a step with work to do does some", f"{len(stuck)} requests wait, and nobody was computed"),
            )

    def check(self) -> None:
        """Verify the invariants of the design, after any step.

        Raises:
            BrokenRule: naming the first rule that does not hold.
        """
        with self.lock:
            check_server(self)

    def stats(self) -> Stats:
        """Counts of pages, requests, steps and tokens, as they are now."""
        with self.lock:
            return stats_of(self)

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
        numbers: list[int] = []
        try:
            for prompt, wanted, whose in zip(prompts, each, tenants, strict=True):
                for index, each_of_n in enumerate(wanted.each()):
                    numbers.append(self._submit(prompt, each_of_n, whose, index))
            while any(not self.requests[number].answered for number in numbers):
                self.step()
            return [self.result(number) for number in numbers]
        except BaseException:
            for number in numbers:  # nobody would fetch these answers
                self.forget(number)
            raise

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
        return self._submit(prompt, params, tenant, 0)

    def _submit(self, prompt: Prompt, params: SamplingParams, tenant: str, index: int) -> int:
        ids, problem = self._read(prompt, params)
        decode = self.model.decode if self.model.tokenizer else None
        with self.lock:
            number, self._next_number = self._next_number, self._next_number + 1
            request = Request(number, ids, params, tenant, index=index, eos_ids=self.model.eos_ids, decode=decode)
            self.requests[number] = request
            try:
                self._let_in(request, problem or self._failure)
            except Rejected as refusal:
                self._refuse(request, refusal)
            except Exception as error:
                if not request.answered:
                    request.finish_reason = request.error = None  # whatever a wrong door has made of it
                self._finish(request, "error", as_minikv(error, self.trace.step))
            except BaseException:
                self.forget(number)
                raise
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
        self.nodes[0].scheduler.add(request)

    def result(self, number: int) -> Completion:
        """Fetch the final answer of a request, once.

        Raises:
            KeyError: if there is no such request or its answer was fetched.
            ConfigError: if it is not finished yet.
        """
        with self.lock:
            request = self.requests[number]
            if request.finish_reason is None or not request.answered:
                raise ConfigError(f"request {number} is not finished; call step() until it is")
            completion = Completion(
                request_id=number,
                tenant=request.tenant,
                prompt_tokens=request.prompt_tokens,
                token_ids=tuple(request.output_ids),
                text=request.read_text(),
                finish_reason=request.finish_reason,
                error=request.error,
                max_tokens=request.max_tokens,
                logprobs=tuple(request.logprobs),
                index=request.index,
            )
            del self.requests[number]
            return completion

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

    def _refuse(self, request: Request, refusal: Rejected) -> None:
        request.finish("rejected", refusal)
        request.answered = True
        self.finished["rejected"] = self.finished.get("rejected", 0) + 1
        why = (request.prompt_tokens, refusal.status, str(refusal))
        self.trace.add(Refuse(self.trace.step, self.name, request.number, request.tenant, *why))

    def _finish(self, request: Request, reason: FinishReason | None = None, error: MinikvError | None = None) -> None:
        """Give the final answer (unless the last token has), and take back everything that the request holds."""
        if reason is not None:
            request.finish(reason, error)
        try:
            self._drop(request)
            if any(request.number in node.pool.tables for node in self.nodes):
                raise BrokenRule("who is finished holds nothing", f"request {request.number} still has pages")
        except Exception as broken:
            self._stop(broken)
        self._answer(request)

    def _answer(self, request: Request) -> None:
        """Give the final answer out, once."""
        if request.answered:
            return
        request.answered = True
        why = str(request.finish_reason)
        self.finished[why] = self.finished.get(why, 0) + 1
        status = 200 if request.error is None else request.error.status
        self.trace.add(Finish(self.trace.step, self.name, request.number, why, status, len(request.output_ids)))

    def _run(self, node: Node) -> list[Request]:
        """One step of a node; finished requests get their answer. Returns those that got a token and go on."""
        self._take_back_aborted()  # nobody who is finished is planned
        try:
            stepped = node.step()
        except BaseException as error:  # an interrupt leaves half a step behind, as any error does
            self._fail(node.at_risk, error, half_done=bool(node.in_step))
            if not isinstance(error, Exception):
                raise
            return []
        for request in node.in_step:
            if request.finished:
                self._finish(request)
        return [request for request in stepped if not request.finished]

    def _fail(self, requests: Sequence[Request], error: BaseException, half_done: bool = False) -> None:
        """A step broke: its requests say so to their callers. If the pools are whole, the others go on.

        An error may name the one request that it concerns, unless the step was half done: then what counts as
        written may never have been stored, for any of its requests.
        """
        failure = as_minikv(error, self.trace.step)
        one = failure.request if isinstance(failure, BrokenRule) and not half_done else None
        numbers = {getattr(request, "number", None) for request in requests} if one is None else {one}
        unanswered = [request for request in list(self.requests.values()) if not request.answered]
        for request in [each for each in unanswered if each.number in numbers] or unanswered:
            self._finish(request, "error", failure)
        try:
            for node in self.nodes:
                node.pool.check()
        except Exception as broken:
            self._stop(broken)

    def _stop(self, broken: Exception) -> None:
        """The pools cannot be trusted any more: everybody, now and later, is told so."""
        why = as_minikv(broken, self.trace.step)
        self._failure = self._failure or EngineFailed(f"the engine stopped: {why}")
        for request in list(self.requests.values()):
            if not request.finished:
                request.finish("error", self._failure)
            self._answer(request)
