"""Who runs in the next step."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from minikv.config import NodeConfig
from minikv.errors import BrokenRule
from minikv.memory import PagePool, pages_needed
from minikv.scheduling.request import Request


@dataclass(frozen=True)
class Scheduled:
    """One request's share of a step: it computes `num_tokens` tokens after those already written."""

    request: Request
    num_tokens: int


def never_fits(request: Request) -> BrokenRule:
    """The error for a request that gets no pages though nobody else holds any."""
    return BrokenRule(
        "whoever the door lets in is served",
        f"request {request.number} gets no pages, though nobody else holds any",
    )


class Scheduler:
    """Continuous batching, first come first served: requests join and leave between steps.

    A request joins when all the pages it can ever need on this node are free and promised to nobody, so nobody who
    runs has to be thrown out again.

    Args:
        pool: the node's pages.
        config: the node's limits.
        generates_all: False on a prefill node, where a request needs slots for its prompt only.

    Attributes:
        waiting: requests not yet started by number, oldest first; any of them can leave in O(1).
        running: requests that take part in every step, oldest first.
    """

    def __init__(self, pool: PagePool, config: NodeConfig, *, generates_all: bool = True) -> None:
        self.pool = pool
        self.config = config
        self.generates_all = generates_all
        self.waiting: OrderedDict[int, Request] = OrderedDict()
        self.running: list[Request] = []
        self._promised: dict[int, int] = {}  # pages that a request may still ask for

    def add(self, request: Request) -> None:
        """Put a request at the end of the queue."""
        self.waiting[request.number] = request

    def schedule(self) -> list[Scheduled]:
        """Plan a step: every running request's next token, then whole prompts in order while they fit.

        Pages for the step are lent here.

        Raises:
            BrokenRule: if requests wait, nobody runs, and still the first one gets no pages.
        """
        running = self.running[: self.config.max_batch_tokens]  # the oldest, if there is no token for each
        plan = [Scheduled(request, self._missing(request)) for request in running]
        budget = self.config.max_batch_tokens - sum(item.num_tokens for item in plan)
        while self.waiting:
            request = next(iter(self.waiting.values()))
            if (plan and request.prompt_tokens > budget) or not self.reserve(request):
                break
            self.waiting.popitem(last=False)
            plan.append(Scheduled(request, request.prompt_tokens))
            budget -= request.prompt_tokens
        if self.waiting and not plan and not self.pool.tables:
            raise never_fits(next(iter(self.waiting.values())))
        for item in plan:
            self._grow(item)
        return plan

    def reserve(self, request: Request) -> bool:
        """Let a request run: lend it the pages of its prompt, promise it the rest. False if there is no room now."""
        if len(self.running) >= self.config.max_batch_size:
            return False
        slots = request.last_slots if self.generates_all else request.prompt_tokens
        need = pages_needed(slots, self.pool.page_size)
        if need > self.pool.num_free - sum(self._promised.values()):
            return False
        now = pages_needed(request.prompt_tokens, self.pool.page_size)
        self.pool.lend(request.number, now)
        self._promised[request.number] = need - now
        self.running.append(request)
        return True

    def pause(self, request: Request) -> None:
        """Take a request out of the coming steps; it keeps its pages."""
        self.running.remove(request)

    def remove(self, request: Request) -> None:
        """Forget a request and take its pages back, if it has any here. Safe to call more than once."""
        self.waiting.pop(request.number, None)
        if request in self.running:
            self.running.remove(request)
        self._promised.pop(request.number, None)
        if table := self.pool.tables.get(request.number):
            self.pool.free(table)

    def _missing(self, request: Request) -> int:
        written = self.pool.tables[request.number].written
        missing = request.prompt_tokens + len(request.output_ids) - written
        if missing < 1:
            raise BrokenRule(
                "what is written was computed", f"request {request.number} has {written} positions written, and no more"
            )
        return missing

    def _grow(self, item: Scheduled) -> None:
        table = self.pool.tables[item.request.number]
        more = pages_needed(table.written + item.num_tokens, self.pool.page_size) - len(table.pages)
        if more > 0:
            self.pool.extend(table, more)
            self._promised[item.request.number] -= more
