"""What every server has in common: prompts come in, each gets exactly one final answer, in order."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from minikv.config import whole_number
from minikv.errors import BrokenRule, ConfigError, EngineFailed, MinikvError, Rejected, RequestAborted, as_minikv
from minikv.models.adapter import BoundModel, Prompt
from minikv.node import Node
from minikv.sampling import SamplingParams
from minikv.scheduling.request import Completion, FinishReason, Request
from minikv.trace import Admit, Finish, Refuse, Trace


class Frontend(ABC):
    """The caller's side of an engine or a cluster. Several threads may use it; one step runs at a time.

    Args:
        model: what answers.
        trace: where events go.
        name: of this server, for events.
    """

    def __init__(self, model: BoundModel, trace: Trace, name: str) -> None:
        if not isinstance(model, BoundModel):
            raise ConfigError(f"the model must come from minikv.load_model, not be a {type(model).__name__}")
        if not isinstance(trace, Trace):
            raise ConfigError(f"trace must be a minikv.trace.Trace, not {type(trace).__name__}")
        self.model = model
        self.trace = trace
        self.name = name
        self.requests: dict[int, Request] = {}  # submitted, answer not yet fetched
        self._next_number = 0
        self._failure: EngineFailed | None = None
        self._lock = threading.RLock()  # several threads may submit, step and abort
        self._stepping = False
        self._aborted: list[Request] = []  # during the step that runs now

    def step(self) -> None:
        """Do one step of work for everybody who runs.

        Raises:
            BrokenRule: if it is called from within a step.
        """
        with self._lock:
            if self._stepping:
                raise BrokenRule("one step at a time", "a step was asked for from within a step")
            self._stepping = True
            self.trace.step += 1
            try:
                self._step()
            finally:
                self._stepping = False
                for request in self._aborted:
                    self._finish(request)
                self._aborted.clear()

    @abstractmethod
    def _step(self) -> None:
        """The step itself."""

    @abstractmethod
    def check(self) -> None:
        """Verify the invariants; raises `BrokenRule` naming the first one that does not hold."""

    @abstractmethod
    def _door(self, request: Request) -> None:
        """Raise `Rejected`, or return and let the request in."""

    @abstractmethod
    def _enqueue(self, request: Request) -> None:
        """Take in a request that the door let through."""

    @abstractmethod
    def _drop(self, request: Request) -> None:
        """Forget a request everywhere and take its pages back."""

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
            One completion a prompt, in order. A prompt that cannot be served has its `error` there and does not
            disturb the others.

        Raises:
            ConfigError: if the arguments themselves do not fit together.
        """
        if isinstance(prompts, str) or not isinstance(prompts, Sequence):
            raise ConfigError("generate takes a list of prompts; for a single one write [prompt]")
        if prompts and isinstance(prompts[0], (int, dict)):
            raise ConfigError("generate takes a list of prompts; for a single one write [prompt]")
        each = _one_for_each("params", SamplingParams() if params is None else params, SamplingParams, len(prompts))
        tenants = _one_for_each("tenant", tenant, str, len(prompts))
        numbers: list[int] = []
        try:
            for one in zip(prompts, each, tenants, strict=True):
                numbers.append(self.submit(*one))
            while any(not self.requests[number].finished for number in numbers):
                self.step()
            return [self.result(number) for number in numbers]
        except BaseException:
            for number in numbers:  # nobody would fetch these answers
                self._forget(number)
            raise

    def submit(self, prompt: Prompt, params: SamplingParams | None = None, tenant: str = "anonymous") -> int:
        """Hand in one prompt and return its number; `step` does the work, `result` has the answer.

        A prompt that is refused gets a number too: its answer is there at once.
        """
        (params,) = _one_for_each("params", SamplingParams() if params is None else params, SamplingParams, 1)
        (tenant,) = _one_for_each("tenant", tenant, str, 1)
        with self._lock:
            number, self._next_number = self._next_number, self._next_number + 1
            request = Request(number, (), params, tenant)
            try:
                request = Request(number, self.model.encode(prompt), params, tenant)
                if self._failure:
                    raise self._failure
                self._door(request)
            except Rejected as refusal:
                self._refuse(request, refusal)
            except EngineFailed as failure:
                self._finish(request, "error", failure)
            else:
                self.trace.add(
                    Admit(self.trace.step, self.name, number, tenant, request.prompt_tokens, params.max_tokens)
                )
                self._enqueue(request)
            self.requests[number] = request
            return number

    def result(self, number: int) -> Completion:
        """Fetch the final answer of a request, once.

        Raises:
            KeyError: if there is no such request or its answer was fetched.
            ConfigError: if it is not finished yet.
        """
        with self._lock:
            request = self.requests[number]
            if request.finish_reason is None or not request.answered:
                raise ConfigError(f"request {number} is not finished; call step() until it is")
            completion = Completion(
                request_id=number,
                tenant=request.tenant,
                prompt_tokens=request.prompt_tokens,
                token_ids=tuple(request.output_ids),
                text=self.model.decode(request.output_ids),
                finish_reason=request.finish_reason,
                error=request.error,
            )
            del self.requests[number]
            return completion

    def abort(self, number: int) -> None:
        """End a request now. Nothing happens if it is finished already.

        Its pages are back when this returns; if a step is running (this is called from within it), when that ends.

        Raises:
            KeyError: if there is no such request or its answer was fetched.
        """
        with self._lock:
            request = self.requests[number]
            if request.finished:
                return
            request.finish("abort", RequestAborted(f"request {number} was aborted by its caller"))
            if self._stepping:
                self._aborted.append(request)
            else:
                self._finish(request)

    def _forget(self, number: int) -> None:
        if number in self.requests:
            self.abort(number)
            del self.requests[number]

    def _refuse(self, request: Request, refusal: Rejected) -> None:
        request.finish("rejected", refusal)
        request.answered = True
        self.trace.add(
            Refuse(
                self.trace.step,
                self.name,
                request.number,
                request.tenant,
                request.prompt_tokens,
                refusal.status,
                str(refusal),
            )
        )

    def _finish(self, request: Request, reason: FinishReason | None = None, error: MinikvError | None = None) -> None:
        """Give the final answer (unless the last token has), and take back everything that the request holds."""
        if reason is not None:
            request.finish(reason, error)
        try:
            self._drop(request)
        except Exception as broken:
            self._stop(broken)
        if request.answered:
            return
        request.answered = True
        status = 200 if request.error is None else request.error.status
        self.trace.add(
            Finish(
                self.trace.step,
                self.name,
                request.number,
                str(request.finish_reason),
                status,
                len(request.output_ids),
            )
        )

    def _run(self, node: Node) -> list[Request]:
        """One step of a node; finished requests get their answer. Returns those that go on."""
        try:
            stepped = node.step()
        except BaseException as error:  # an interrupt leaves half a step behind, as any error does
            self._fail(node.in_step or [*node.scheduler.running, *list(node.scheduler.waiting.values())[:1]], error)
            if not isinstance(error, Exception):
                raise
            return []
        for request in stepped:
            if request.finished:
                self._finish(request)
        return [request for request in stepped if not request.finished]

    def _fail(self, requests: Sequence[Request], error: BaseException) -> None:
        """A step broke: its requests say so to their callers. If the pools are whole, the others go on."""
        failure = as_minikv(error)
        for request in requests:
            self._finish(request, "error", failure)
        try:
            self.check()
        except Exception as broken:
            self._stop(broken)

    def _stop(self, broken: Exception) -> None:
        """The pools cannot be trusted any more: everybody, now and later, is told so."""
        self._failure = self._failure or EngineFailed(f"the engine stopped: {type(broken).__name__}: {broken}")
        for request in self.requests.values():
            if not request.finished:
                request.finish("error", self._failure)
            request.answered = True


Kind = TypeVar("Kind")


def _one_for_each(name: str, given: object, kind: type[Kind], count: int) -> list[Kind]:
    """One value of a kind for each of `count` prompts, from one value or a sequence of them."""
    if isinstance(given, kind):
        return [given] * count
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"{name} must be of type {kind.__name__}, or one for each prompt, not {given!r}")
    if len(given) != count:
        raise ConfigError(f"{count} prompts and {len(given)} values of {name} do not match")
    for one in given:
        if not isinstance(one, kind):
            raise ConfigError(f"{name} must be of type {kind.__name__}, not {one!r}")
    return list(given)


def check_parts(*, ledger: object, allocator: object, attention: object) -> None:
    """Raise `ConfigError` for parts that could only fail later."""
    if not isinstance(ledger, bool):
        raise ConfigError(f"ledger must be True or False, not {ledger!r}")
    for name, part in (("allocator", allocator), ("attention", attention)):
        if not callable(part):
            raise ConfigError(f"{name} must be something that can be called, not {part!r}")


def choose_context(
    model: BoundModel, context_length: int | None, pool_tokens: int, *, node: str, allow_above_pool: bool
) -> int:
    """The context that a server offers.

    Args:
        context_length: what the configuration says; None takes the most that model and pool allow.
        pool_tokens: tokens that the smallest pool holds.

    Raises:
        ConfigError: if it is more than the model was built for, or more than the smallest pool holds and this
            was not allowed.
    """
    if context_length is None:
        if pool_tokens < 2:
            raise ConfigError(f"the pool of the {node} node holds {pool_tokens} token; a prompt and an answer take two")
        return min(model.max_positions or pool_tokens, pool_tokens)
    whole_number("context_length", context_length, least=2)
    if model.max_positions is not None and context_length > model.max_positions:
        raise ConfigError(
            f"context_length={context_length} is more than the {model.max_positions} positions that {model.name} "
            "was built for"
        )
    if context_length > pool_tokens and not allow_above_pool:
        raise ConfigError(
            f"context_length={context_length} is more than the {pool_tokens} tokens that the pool of the {node} "
            f"node holds. Use context_length={pool_tokens}, more pages, or allow_context_above_pool=True: then "
            "requests are refused by what the pools hold"
        )
    return context_length
