"""The two kinds of node: one reads prompts, the other writes answers."""

from __future__ import annotations

from typing import Any

from minikv.disagg.handoff import Handoff, pack, verify
from minikv.errors import HandoffRefused
from minikv.node import Node
from minikv.scheduling.request import Request
from minikv.scheduling.scheduler import never_fits
from minikv.trace import HandoffDone


class PrefillNode(Node):
    """Computes prompts and their first token, and keeps the pages until they are handed over."""

    def step(self) -> list[Request]:
        """As `Node.step`; requests that got their first token leave the scheduler and keep their pages."""
        stepped = super().step()
        for request in stepped:
            self.scheduler.pause(request)
        return stepped

    def export(self, request: Request) -> Handoff:
        """Copy out what was written for a request whose prompt is done."""
        return pack(self.pool, self.pool.tables[request.number], request.output_ids[0])


class DecodeNode(Node):
    """Takes handoffs in and generates the rest of each answer.

    Attributes:
        expecting: numbers of requests that have pages here and whose handoff has not come yet.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.expecting: set[int] = set()

    def reserve(self, request: Request) -> bool:
        """Lend pages for a handoff that is to come; False if there is no room now.

        Raises:
            BrokenRule: if there will never be room.
        """
        if not self.scheduler.reserve(request):
            if not self.pool.tables:
                raise never_fits(request)
            return False
        self.scheduler.pause(request)
        self.expecting.add(request.number)
        return True

    def receive(self, request: Request, handoff: Handoff) -> None:
        """Take a handoff over, complete or not at all, and let its request run.

        Raises:
            HandoffRefused: if it was not expected (or came before), or is not complete and authentic.
        """
        if request.number not in self.expecting:
            raise HandoffRefused(f"no handoff is expected for request {request.number}; it may have come before")
        self.verify(request, handoff)
        self.expecting.remove(request.number)
        table = self.pool.tables[request.number]
        written = self.readable(request, handoff)
        self.pool.import_pages(table, handoff.keys, handoff.values, handoff.records, written)
        self.scheduler.running.append(request)
        received = min(handoff.num_tokens, handoff.keys[0].shape[0] * self.pool.page_size)
        self.trace.add(
            HandoffDone(
                self.trace.step,
                self.name,
                request.number,
                request.prompt_tokens,
                handoff.num_tokens,
                received,
                tuple(table.pages),
            )
        )

    def verify(self, request: Request, handoff: Handoff) -> None:
        """Raise `HandoffRefused` unless the handoff is all that the door's record of the request promises."""
        verify(handoff, self.pool, request=request.number, expected_tokens=request.prompt_tokens)

    def readable(self, request: Request, handoff: Handoff) -> int:
        """Positions that may be read after the handoff: those that were written, no more."""
        return handoff.num_tokens

    def release(self, request: Request) -> None:
        """As `Node.release`; a handoff that comes later is refused."""
        self.expecting.discard(request.number)
        super().release(request)
