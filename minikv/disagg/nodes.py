"""The two kinds of node: one reads prompts, the other writes answers."""

from __future__ import annotations

from typing import Any

from minikv.disagg.handoff import Contract, Handoff, HandoffContract
from minikv.errors import BrokenRule, HandoffRefused
from minikv.memory import pages_needed
from minikv.node import Node
from minikv.scheduling.request import Request
from minikv.scheduling.scheduler import never_fits
from minikv.trace import HandoffDone, Length


class PrefillNode(Node):
    """Computes prompts and their first token, and keeps the pages until they are handed over."""

    contract: HandoffContract = Contract()

    def step(self) -> list[Request]:
        """As `Node.step`; requests that got their first token leave the scheduler and keep their pages."""
        stepped = super().step()
        for request in stepped:
            self.scheduler.remove(request)
            written = self.pool.tables[request.number].written
            self.trace.add(Length(self.trace.step, self.name, request.number, "wire", written))
        return stepped

    def export(self, request: Request) -> Handoff:
        """Copy out what was written for a request whose prompt is done."""
        handoff = self.contract.pack(self.pool, self.pool.tables[request.number], request.output_ids[0])
        if not isinstance(handoff, Handoff):
            raise BrokenRule("what is packed is a Handoff", f"{type(handoff).__name__} came", request.number)
        return handoff


class DecodeNode(Node):
    """Takes handoffs in and generates the rest of each answer.

    Attributes:
        expecting: numbers of requests that have pages here and whose handoff has not come yet.
    """

    contract: HandoffContract = Contract()

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.expecting: set[int] = set()

    def reserve(self, request: Request) -> bool:
        """Lend pages for a handoff that is to come; False if there is no room now.

        Whoever gave way here goes first: while one waits, or is being computed anew, nobody else joins.

        Raises:
            BrokenRule: if there will never be room.
        """
        scheduler, size, tables = self.scheduler, self.pool.page_size, self.pool.tables
        behind = any(each.num_tokens - tables[each.number].written > 1 for each in scheduler.running)
        joined = len(scheduler.running) + len(self.expecting)
        if scheduler.waiting or behind or joined >= self.config.max_batch_size:
            return False
        if pages_needed(request.prompt_tokens + 1, size) > self.pool.num_free:  # with the first token's own slot
            if not self.pool.tables:
                raise never_fits(request)
            return False
        self.pool.lend(request.number, pages_needed(request.prompt_tokens, size))
        self.trace.add(Length(self.trace.step, self.name, request.number, "page table", request.prompt_tokens))
        self.expecting.add(request.number)
        return True

    def receive(self, request: Request, handoff: Handoff) -> None:
        """Take a handoff over, complete or not at all, and let its request run.

        Raises:
            HandoffRefused: if it was not expected (or came before), or is not complete and intact.
        """
        if request.number not in self.expecting:
            raise HandoffRefused(f"no handoff is expected for request {request.number}; it may have come before")
        self.verify(request, handoff)
        self.expecting.remove(request.number)
        table = self.pool.tables[request.number]
        written = self.readable(request, handoff)
        self.pool.import_pages(table, handoff.keys, handoff.values, handoff.records, written)
        self.scheduler.add(request)
        received = min(handoff.num_tokens, handoff.keys[0].shape[0] * self.pool.page_size)
        sizes = (request.prompt_tokens, handoff.num_tokens, received)
        self.trace.add(HandoffDone(self.trace.step, self.name, request.number, *sizes, tuple(table.pages)))

    def verify(self, request: Request, handoff: Handoff) -> None:
        """Raise `HandoffRefused` unless the handoff is all that the door's record of the request promises."""
        said: object = self.contract.verify(  # type: ignore[func-returns-value]
            handoff, self.pool, request=request.number, expected_tokens=request.prompt_tokens
        )
        if said is not None:
            raise BrokenRule("a handoff is refused by raising HandoffRefused", f"{said!r:.60} came", request.number)

    def readable(self, request: Request, handoff: Handoff) -> int:
        """Positions that may be read after the handoff: those that were written, no more."""
        came = min((tensor.shape[0] for tensor in handoff.keys), default=0) * self.pool.page_size
        if came < handoff.num_tokens:
            raise BrokenRule(
                "what is imported fits the pages that were lent for it",
                f"{handoff.num_tokens} positions are promised, and pages for {came} came",
                request.number,
            )
        return handoff.num_tokens

    def reset(self) -> None:
        """As `Node.reset`; no handoff is expected any more."""
        super().reset()
        self.expecting.clear()

    def release(self, request: Request) -> None:
        """As `Node.release`; a handoff that comes later is refused."""
        self.expecting.discard(request.number)
        super().release(request)
