"""The learner's guards in the historical cluster: `GuardedCluster(model, guards=MyGuards(), ...)`.

All eight defects are in. What stands against them is the learner's own: a door at each node (`admit`, chapter 06), a
receiver (`receive`, chapter 07), and an object with any of these methods:

    pool(own, pools)         slots that a node's door is told; `own` are the node's, `pools` those of all, by name
    lend(page)               a page of the decode node is lent; gives back a ticket, which goes to whoever may write
    free(pages, wipe)        pages of the decode node came back; `wipe(page)` fills one with zeros
    write(page, ticket)      a page comes over the wire, with the ticket of its sender; True lets it in
    status(prefill, decode)  a leg has ended; gives back the client's status, or None: the client waits

A method that is missing does what history did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from minikv.course.seats.door import Admit, LearnersDoor, as_admission
from minikv.course.seats.receiver import Receive, as_handoff
from minikv.disagg.handoff import Handoff
from minikv.disagg.nodes import DecodeNode
from minikv.errors import BrokenRule, HandoffRefused, MinikvError, StaleWrite
from minikv.incident.history import HistoricalCluster
from minikv.incident.pages import HistoricalPool
from minikv.incident.wire import NothingCame
from minikv.memory import PageTable, SlotRecords
from minikv.memory.ledger import NOBODY
from minikv.models.adapter import BoundModel
from minikv.scheduling.request import FinishReason, Request


class AsHistory:
    """The five methods as history had them: nobody asks anybody."""

    def pool(self, own: int, pools: Mapping[str, int]) -> int:
        """Each door knows its own pool."""
        return own

    def lend(self, page: int) -> object:
        """Nothing is noted."""
        return None

    def free(self, pages: Sequence[int], wipe: Callable[[int], None]) -> None:
        """Nothing is wiped."""

    def write(self, page: int, ticket: object) -> bool:
        """Whoever knows the page may write."""
        return True

    def status(self, prefill: int | None, decode: int | None) -> int | None:
        """What decode says."""
        return decode


METHODS = ("pool", "lend", "free", "write", "status")


def completed(guards: object) -> Any:
    """The learner's object, with history's methods where it has none."""

    class Completed(AsHistory):
        pass

    whole = Completed()
    for name in METHODS:
        if callable(method := getattr(guards, name, None)):
            setattr(whole, name, method)
    return whole


class GuardedPool(HistoricalPool):
    """The decode node's pool, whose writers from elsewhere show a ticket."""

    def __init__(self, *args: Any, guards: Any, **settings: Any) -> None:
        self._guards = guards
        self._tickets: dict[PageTable, list[object]] = {}
        super().__init__(*args, fenced=False, **settings)

    def extend(self, table: PageTable, num_pages: int) -> None:
        """As ever; each page gets a ticket."""
        before = len(table.pages)
        super().extend(table, num_pages)
        if self.node == "decode":
            self._tickets.setdefault(table, []).extend(self._guards.lend(page) for page in table.pages[before:])

    def free(self, table: PageTable) -> None:
        """As ever; the learner hears of it."""
        super().free(table)
        if self.node == "decode":
            self._guards.free(list(table.pages), self.wipe)

    def wipe(self, page: int) -> None:
        """Fill a page with zeros."""
        for tensor in (*self.keys, *self.values):
            tensor[page] = 0.0
        if self.ledger:
            here = slice(page * self.page_size, (page + 1) * self.page_size)
            for records in (self.ledger.writer, self.ledger.generation, self.ledger.position):
                records[here] = NOBODY

    def land(self, table: PageTable, handoff: Handoff) -> None:
        """What comes late goes where the learner lets it in.

        Raises:
            StaleWrite: if a page was not let in.
        """
        count = len(handoff.keys[0])
        let_in = [self._let_in(table, index) for index in range(count)]
        pages = torch.tensor(table.pages[:count], dtype=torch.long)
        here = torch.tensor(let_in, dtype=torch.bool)
        for own, new in zip((*self.keys, *self.values), (*handoff.keys, *handoff.values), strict=True):
            own[pages[here]] = new[here].to(own)
        if self.ledger and handoff.records and all(let_in):
            self.ledger.adopt(table, handoff.records)
        self._refuse_unless(let_in, table)

    def import_pages(
        self,
        table: PageTable,
        keys: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        records: SlotRecords | None,
        written: int,
    ) -> None:
        """A handoff that comes in time shows its tickets, too."""
        self._refuse_unless([self._let_in(table, index) for index in range(len(keys[0]))], table)
        super().import_pages(table, keys, values, records, written)

    def _let_in(self, table: PageTable, index: int) -> bool:
        return bool(self._guards.write(table.pages[index], self._tickets[table][index]))

    def _refuse_unless(self, let_in: Sequence[bool], table: PageTable) -> None:
        if not all(let_in):
            page = table.pages[list(let_in).index(False)]
            raise StaleWrite(f"request {table.owner} was not let into page {page}")


class GuardedCluster(HistoricalCluster):
    """History, with what the learner puts in its way.

    Args:
        model: from `load_model`.
        guards: an object with any of the five methods.
        admit: the door of both nodes; history's rule if not given.
        receive: the receiver; history's trust if not given.
        settings: as for `HistoricalCluster`.
    """

    def __init__(
        self,
        model: BoundModel,
        *,
        guards: object = None,
        admit: Admit | None = None,
        receive: Receive | None = None,
        **settings: Any,
    ) -> None:
        self._guards = completed(guards)
        self._admit = admit
        if receive is not None:
            settings["handoff"] = as_handoff(receive)
        super().__init__(model, **{**settings, "pool": partial(GuardedPool, guards=self._guards)})
        if receive is not None:
            node: Any = self.decode
            node.verify = partial(DecodeNode.verify, node)
            node.receive_again = self._receive_again

    def _told(self, own: int) -> int:
        pools = {node.name: node.pool.num_slots for node in self.nodes}
        return int(self._guards.pool(own, pools))

    def _asked(self, request: Request, own: int) -> int:
        """Ask the learner's door, as it stands at the node with this pool."""
        assert self._admit is not None
        told = self._told(own)
        door: LearnersDoor = as_admission(self._admit, pool=lambda _nodes: told)(self.context_length, [])
        return door.check(request)

    def _door(self, request: Request) -> int:
        if self._admit is None:
            return super()._door(request)
        return self._asked(request, self.decode.pool.num_slots)

    def _historical_check(self, request: Request, pool_tokens: int) -> None:
        if self._admit is None:
            super()._historical_check(request, pool_tokens)
        else:
            self._asked(request, pool_tokens)

    def _receive_again(self, handoff: Handoff) -> None:
        """The learner's receiver sees the same handoff once more; if it takes it, the pages are written."""
        pool = self.decode.pool
        table = pool.tables.get(handoff.request)
        if table is None or not isinstance(pool, HistoricalPool):
            raise HandoffRefused(f"request {handoff.request} has ended")
        expected = self.requests[handoff.request].prompt_tokens
        try:
            self.decode.contract.verify(handoff, pool, request=handoff.request, expected_tokens=expected)
            pool.land(table, handoff)
        except BrokenRule as broken:  # complete, and refused all the same: that is right, the second time
            raise HandoffRefused(str(broken)) from broken

    def _nothing_came(self, request: Request, silence: NothingCame) -> None:
        super()._nothing_came(request, silence)
        self._merge(request, None)

    def _merge(self, request: Request, decode: int | None) -> None:
        """A leg has ended: ask what the client is told."""
        leg = self._legs.get(request.number)
        if leg is None or request.answered:
            return
        verdict = leg.to_finish
        prefill = 200 if verdict is None and decode is not None else verdict and verdict.status
        told = self._guards.status(prefill, decode)
        if isinstance(told, int) and told >= 400:
            request.output_ids.clear()
            super()._finish(request, "rejected", verdict or HandoffRefused(f"the guard said {told}"))

    def _finish(self, request: Request, reason: FinishReason | None = None, error: MinikvError | None = None) -> None:
        if error is None and request.error is None:
            self._merge(request, 200)
        super()._finish(request, reason, error)
