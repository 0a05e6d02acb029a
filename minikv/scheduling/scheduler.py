"""Who runs in the next step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from minikv.config import NodeConfig
from minikv.errors import BrokenRule
from minikv.memory import PagePool, pages_needed
from minikv.scheduling.request import Request
from minikv.trace import Preempt


@dataclass(frozen=True)
class Scheduled:
    """One request's share of a step: it computes `num_scheduled_tokens` tokens after those already written.

    A share that ends with the last known token yields a new one; a chunk that ends before yields nothing.
    """

    request: Request
    num_scheduled_tokens: int


class SchedulingPolicy(Protocol):
    """Plans steps. Built as `Policy(pool, config)` for each node; `Scheduler` is the right one.

    What a request misses is `request.num_tokens - table.written`, with `table = pool.tables.get(request.number)`, or
    all of its tokens if it has no table yet. `pool.lend(request.number, n)` opens a table with n pages and
    `pool.extend(table, n)` adds some; `pool.free(table)` takes all back, and the request is computed from its start.
    Who gives way when `pool.num_free` is too small is the policy's business: nobody else frees anything. Useful, too:
    `pool.page_size`, `table.allocated` and `minikv.memory.pages_needed`.
    """

    @property
    def waiting(self) -> Collection[Any]:
        """Requests that hold no pages and wait to start, or to start again: a collection, or a dict by number."""

    @property
    def running(self) -> Sequence[Request]:
        """Requests that hold pages, oldest first."""

    def add(self, request: Request) -> None:
        """Take a request in. If the pool has a page table for it (a handoff came), it has its pages and runs on."""

    def schedule(self) -> Sequence[Scheduled]:
        """Plan a step: at most `config.max_batch_size` shares, `config.max_batch_tokens` tokens together.

        A longer prompt is cut into chunks. Before this returns, each planned request's table must hold
        `written + num_scheduled_tokens` slots. A plan may be empty; but if nobody on any node is computed, everybody
        who waits is told that nothing will happen any more.
        """

    def remove(self, request: Request) -> None:
        """Forget a request, whether it is known or not; its pages are the node's business.

        On a prefill node this comes when the prompt is done, and the pages stay lent until the handoff is taken.
        """


class Scheduler:
    """Continuous batching with chunked prefill, first come first served.

    Decodes come first, then prefill chunks of those who run, then new requests, while the step has tokens left. Pages
    are lent as they are needed. When none is free, the request that joined last gives its pages back, goes to the
    front of the queue, and is computed anew when there is room; so the oldest is never held up.

    Args:
        pool: the node's pages.
        config: the node's limits.

    Attributes:
        waiting: by number, first to start first; any of them can leave in O(1).
        running: requests that hold pages, oldest first.
        num_preemptions: how often a request gave its pages back; for `stats`, which does without in other policies.
    """

    def __init__(self, pool: PagePool, config: NodeConfig) -> None:
        self.pool = pool
        self.config = config
        self.waiting: OrderedDict[int, Request] = OrderedDict()
        self.running: list[Request] = []
        self.num_preemptions = 0

    def add(self, request: Request) -> None:
        """Put a request at the end of the queue; one whose pages are here already runs at once."""
        if request.number in self.pool.tables:
            self.running.append(request)
        else:
            self.waiting[request.number] = request

    def schedule(self) -> list[Scheduled]:
        """Plan a step, and lend the pages for it.

        Raises:
            BrokenRule: if a request can get no pages though nobody else holds any.
        """
        plan: list[Scheduled] = []
        budget, before = self.config.max_batch_tokens, self.num_preemptions
        for request in sorted(self.running, key=lambda each: self._missing(each) > 1):
            if budget == 0 or request not in self.running:  # it may have given way
                continue
            share = Scheduled(request, min(self._missing(request), budget))
            if self._make_room(share, plan):
                plan.append(share)
                budget -= share.num_scheduled_tokens
        while self.waiting and budget and self.num_preemptions == before:
            request = next(iter(self.waiting.values()))
            share = Scheduled(request, min(request.num_tokens, budget))
            if not self._start(share):
                break
            plan.append(share)
            budget -= share.num_scheduled_tokens
        return plan

    def remove(self, request: Request) -> None:
        """Forget a request. Safe to call more than once."""
        self.waiting.pop(request.number, None)
        if request in self.running:
            self.running.remove(request)

    def _missing(self, request: Request) -> int:
        written = self.pool.tables[request.number].written
        if request.num_tokens <= written:
            raise BrokenRule(
                "what is written was computed",
                f"request {request.number} has {written} positions written, and no more",
                request.number,
            )
        return request.num_tokens - written

    def _start(self, share: Scheduled) -> bool:
        """Let the first in the queue run if all its known tokens find room now; lend the pages of its share."""
        request, size = share.request, self.pool.page_size
        if pages_needed(request.num_tokens, size) > self.pool.num_free:
            if not self.pool.tables:
                raise never_fits(request)
            return False
        if len(self.running) >= self.config.max_batch_size:
            return False
        self.pool.lend(request.number, pages_needed(share.num_scheduled_tokens, size))
        del self.waiting[request.number]
        self.running.append(request)
        return True

    def _make_room(self, share: Scheduled, plan: list[Scheduled]) -> bool:
        """Lend a running request the pages of its share; the last to join give way. False if it gave way itself."""
        table = self.pool.tables[share.request.number]
        more = pages_needed(table.written + share.num_scheduled_tokens, self.pool.page_size) - len(table.pages)
        while more > self.pool.num_free:
            last = self.running[-1]
            if last is share.request and len(self.running) == 1:
                if len(self.pool.tables) == 1:
                    raise never_fits(last)
                return False  # handoffs hold the other pages, and will give them back
            self._preempt(last, plan)
            if last is share.request:
                return False
        if more > 0:
            self.pool.extend(table, more)
        return True

    def _preempt(self, request: Request, plan: list[Scheduled]) -> None:
        plan[:] = [share for share in plan if share.request is not request]
        table = self.pool.tables[request.number]
        self.pool.trace.add(Preempt(self.pool.trace.step, self.pool.node, request.number, table.written))
        self.pool.free(table)
        self.running.remove(request)
        self.waiting[request.number] = request
        self.waiting.move_to_end(request.number, last=False)
        self.num_preemptions += 1


def never_fits(request: Request) -> BrokenRule:
    """The error for a request that gets no pages though nobody else holds any."""
    return BrokenRule(
        "whoever the door lets in is served",
        f"request {request.number} gets no pages, though nobody else holds any",
        request.number,
    )
