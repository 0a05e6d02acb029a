"""The steps of a server, and what becomes of its requests in them: an answer, an error, or a new start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from minikv.errors import BrokenRule, EngineFailed, MinikvError, Rejected, as_minikv
from minikv.health.invariants import check_server
from minikv.health.stats import Stats, stats_of
from minikv.lock import FairLock
from minikv.models.adapter import BoundModel
from minikv.node import Node
from minikv.scheduling.request import FinishReason, Request
from minikv.trace import Finish, Refuse, Trace


class Loop(ABC):
    """One step after the other, for an engine or a cluster. Every request ends once, whatever happens in them.

    Args:
        model: what answers.
        trace: where events go.
        name: of this server, for events.

    Attributes:
        nodes: all nodes; requests come in at the first.
        between: requests on their way from one node to the next.
        requests: by number, those whose answer was not fetched yet.
        finished: final answers so far, by reason.
        lock: held by whoever changes anything; several threads may submit, step and abort.
        context_length: most positions of one request.
    """

    nodes: Sequence[Node]
    between: Collection[Request] = ()
    context_length: int

    def __init__(self, model: BoundModel, trace: Trace, name: str) -> None:
        self.model = model
        self.trace = trace
        self.name = name
        self.requests: dict[int, Request] = {}
        self.finished: dict[str, int] = {}
        self.lock = FairLock(self._mend)
        self._stepping = False
        self._changing = False  # still set by somebody else: they were interrupted
        self._aborted: list[Request] = []  # during the step that runs now
        self._failure: EngineFailed | None = None

    def step(self) -> None:
        """Do one step of work for everybody who runs.

        Raises:
            BrokenRule: if it is called from within a step.
        """
        with self.lock:
            if self._stepping:
                raise BrokenRule("one step at a time", "a step was asked for from within a step")
            self._changing = self._stepping = True
            self.trace.step += 1
            before = self._progress()
            self._step()
            self._stepping = False
            self._take_back_aborted()
            if self._progress() == before:
                self._refuse_to_idle()
            self._changing = False

    def _mend(self) -> None:
        """After an interrupt in the middle of a change: all pages are taken back, and who has no answer starts anew."""
        if not self._changing:
            return
        self._stepping = False
        self._aborted.clear()
        self.between = type(self.between)()
        for node in self.nodes:
            node.reset()
        for request in list(self.requests.values()):
            if request.finished:
                self._answer(request)
            else:  # the last node computes anew who had tokens already, as it does those who gave way
                self.nodes[-1 if request.output_ids else 0].scheduler.add(request)
        self._changing = False

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

    def _refuse(self, request: Request, refusal: Rejected) -> None:
        request.finish("rejected", refusal)
        request.answered = True
        self.finished["rejected"] = self.finished.get("rejected", 0) + 1
        why = (request.prompt_tokens, refusal.status, str(refusal))
        self.trace.add(Refuse(self.trace.step, self.name, request.number, request.tenant, *why))

    def _finish(self, request: Request, reason: FinishReason | None = None, error: MinikvError | None = None) -> None:
        """Give the final answer (unless the last token has), and take back everything that the request holds."""
        outer, self._changing = self._changing, True
        if reason is not None:
            request.finish(reason, error)
        try:
            self._drop(request)
            if any(request.number in node.pool.tables for node in self.nodes):
                raise BrokenRule("who is finished holds nothing", f"request {request.number} still has pages")
        except Exception as broken:
            self._stop(broken)
        self._answer(request)
        self._changing = outer

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
        except Exception as error:
            self._fail(node.at_risk, error, half_done=bool(node.in_step))
            return []
        except BaseException as interrupt:  # the next to come takes back all pages
            for request in node.in_step:
                request.finish("error", as_minikv(interrupt, self.trace.step))
            raise
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
