"""The historical cluster: eight defects, each a switch, on top of the right nodes.

What each one did in the original is described where it is re-created. The right code knows nothing of this file.
Sources: sgl-project/sglang issue #30233 and the published wheels 0.5.11 and 0.5.19; paths are relative to
`python/sglang/srt/` there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from minikv.disagg.handoff import Handoff
from minikv.disagg.nodes import DecodeNode
from minikv.disagg.router import Cluster
from minikv.errors import ConfigError, HandoffRefused, MinikvError, Rejected
from minikv.incident.defects import DEFECTS
from minikv.incident.pages import HistoricalPool, Witness
from minikv.incident.wire import NothingCame, PrefillGaveUp, Wire, told
from minikv.memory import Ledger
from minikv.models.adapter import BoundModel
from minikv.scheduling.admission import Admission
from minikv.scheduling.request import FinishReason, Request

PLACEHOLDER = 0


def historical_limit(context_length: int, pool_tokens: int) -> int:
    """A prompt of this length or more was refused: `managers/tp_worker.py`, get_worker_info."""
    return min(context_length - 1, pool_tokens - 1) - 5


@dataclass(frozen=True)
class Commit:
    """What lay in the pages of a request when decode took its handoff, before its first write there.

    Attributes:
        pages_reserved: pages lent to it.
        pages_written: pages into which the handoff delivered at least one slot of its own.
        stale_page_writers: for each other page, the request that wrote most of its slots (-1: nobody).
    """

    pages_reserved: int
    pages_written: int
    stale_page_writers: tuple[int, ...]


class HistoricalDecodeNode(DecodeNode):
    """Defects e and f.

    Attributes:
        commits: by request number.
    """

    def __init__(self, *args: Any, defects: frozenset[str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.defects = defects
        self.commits: dict[int, Commit] = {}

    def verify(self, request: Request, handoff: Handoff) -> None:
        """e: `disaggregation/decode.py`, _commit_transfer_to_req, compares the identity and nothing else."""
        if "e" not in self.defects:
            super().verify(request, handoff)
        elif handoff.request != request.number:
            raise HandoffRefused(f"a handoff for request {handoff.request}, not {request.number}")

    def readable(self, request: Request, handoff: Handoff) -> int:
        """f: `prepare_for_prebuilt` takes the length of the prompt, whatever came."""
        if "f" in self.defects:
            return request.prompt_tokens
        written = min(handoff.num_tokens, len(handoff.keys[0]) * self.pool.page_size)
        request.prompt_tokens = written  # go on behind what was written
        request.prompt_ids = request.prompt_ids[:written]
        return written

    def receive(self, request: Request, handoff: Handoff) -> None:
        """As ever, then look what lies in the reserved pages."""
        super().receive(request, handoff)
        table = self.pool.tables[request.number]
        ledger = self.pool.ledger
        if ledger is None:
            raise ConfigError("the historical cluster is watched by its ledger; leave it on")
        size = self.pool.page_size
        slots = table.slots(0, table.allocated)
        current = ledger.generation[slots] == ledger.generations_of(table, 0, table.allocated)
        writers = ledger.writer[slots].reshape(-1, size)
        own = ((ledger.writer[slots] == table.owner) & current).reshape(-1, size).any(axis=1)
        stale = tuple(_most_common(row) for row in writers[~own])
        self.commits[request.number] = Commit(len(table.pages), int(own.sum()), stale)

    def receive_again(self, handoff: Handoff) -> None:
        """The same handoff comes a second time, while its request runs.

        e: nothing in the original notes that an id was taken before; the pages are written where they were promised.

        Raises:
            HandoffRefused: without defect e, and if the request has ended.
        """
        table = self.pool.tables.get(handoff.request)
        if "e" not in self.defects or table is None:
            raise HandoffRefused(f"the handoff of request {handoff.request} was taken before")
        if isinstance(self.pool, HistoricalPool):
            self.pool.land(table, handoff)


def _most_common(numbers: np.ndarray) -> int:
    values, counts = np.unique(numbers, return_counts=True)
    return int(values[counts.argmax()])


class PrefillLeg(Request):
    """The prefill node's own copy of a request, as each worker of the original had one.

    Attributes:
        to_finish: a verdict that is pending; `finish_reason` stays empty until somebody promotes it.
    """

    def __init__(self, request: Request) -> None:
        params = replace(request.params, ignore_eos=True, max_tokens=max(2, request.params.max_tokens))
        super().__init__(request.number, request.prompt_ids, params, request.tenant)
        self.to_finish: MinikvError | None = None


class HistoricalCluster(Cluster):
    """The right cluster with some of the eight defects put in.

    Args:
        defects: letters of `DEFECTS`; by default all, as in history. A letter left out is a guard that is on.
        wire: what carries the handoffs; by default everything arrives.
        Others: as for `Cluster`; the context may exceed the pools, as it did.
    """

    def __init__(
        self, model: BoundModel, *, defects: str = "abcdefgh", wire: Wire | None = None, **settings: Any
    ) -> None:
        if unknown := set(defects) - set(DEFECTS):
            raise ConfigError(f"unknown defects {sorted(unknown)}; there are {''.join(DEFECTS)}")
        self.defects = frozenset(defects)
        self.wire = wire or Wire()
        self.decode_type = partial(HistoricalDecodeNode, defects=self.defects)  # type: ignore[assignment]
        pool = partial(HistoricalPool, fenced="g" not in self.defects)
        super().__init__(model, **{"allow_context_above_pool": True, "pool": pool, **settings})
        self._legs: dict[int, PrefillLeg] = {}

    def _ledger_type(self) -> Callable[[int, int], Ledger]:
        """g: what is in a page is nobody's business."""
        return Witness if "g" in self.defects else Ledger

    def _door(self, request: Request) -> int:
        """d: each node looks at its own pool only, later. Here is what both agree on: the context.

        An answer is cut to what the decode node's pool holds (`managers/scheduler.py`, init_req_max_new_tokens).
        """
        if "d" not in self.defects:
            return super()._door(request)
        granted = Admission(self.context_length, []).check(request)
        room = self.decode.pool.num_slots + 1 - request.prompt_tokens
        return min(granted, room) if room > 0 else granted

    def _historical_check(self, request: Request, pool_tokens: int) -> None:
        limit = historical_limit(self.context_length, pool_tokens)
        if request.prompt_tokens >= limit:
            raise Rejected(
                f"Input length ({request.prompt_tokens} tokens) exceeds the maximum allowed length ({limit} tokens)",
                limit=limit,
                requested=request.prompt_tokens,
            )

    def _enqueue(self, request: Request) -> None:
        leg = PrefillLeg(request)
        try:
            if "d" in self.defects:
                self.note_length(leg, "door", "prefill")
                self._historical_check(leg, self.prefill.pool.num_slots)
        except Rejected as verdict:
            if "a" not in self.defects:
                self._finish(request, "rejected", verdict)
                return
            self._swap_in_placeholder(leg, verdict)
        if leg.to_finish and "b" not in self.defects:
            self._finish(request, "rejected", leg.to_finish)
            return
        if leg.finished:  # b: the verdict is in `to_finish`; this never sees it
            return
        self.note_length(leg, "queue", "prefill")
        measured = leg if "c" in self.defects else request  # c: the placeholder fits
        self.note_length(measured, "capacity check", "prefill")
        if measured.prompt_tokens > self.prefill.pool.num_slots:
            self._finish(request, "rejected", leg.to_finish)
            return
        self._legs[request.number] = leg
        self.prefill.scheduler.add(leg)

    def _swap_in_placeholder(self, leg: PrefillLeg, verdict: Rejected) -> None:
        """a: `managers/schedule_batch.py`, set_finish_with_abort; the caller queues the request all the same."""
        leg.prompt_ids, leg.prompt_tokens = (PLACEHOLDER,), 1
        leg.to_finish = verdict

    def _hand_over(self, request: Request) -> bool:
        """Pages are reserved by the request's own length; the handoff carries what the prefill leg wrote."""
        own = self.requests[request.number]
        if not self._reserve(own):
            return own.answered
        try:
            handoff = self.wire.carry(self.prefill.export(request))
            self.decode.receive(own, handoff)
        except HandoffRefused as refusal:
            self._finish(own, "error", refusal)
            return True
        except NothingCame as silence:
            self._nothing_came(own, silence)
            return True
        self.prefill.release(request)
        own.handed_over = True
        own.append(handoff.first_token)
        if own.finished:
            self._finish(own)
        return True

    def _reserve(self, request: Request) -> bool:
        """d: the decode node's own door, which knows the decode node's pool and nothing else; then its pages."""
        if "d" in self.defects:
            self.note_length(request, "decode's door", "decode")
            try:
                self._historical_check(request, self.decode.pool.num_slots)
            except Rejected as verdict:
                self._finish(request, "rejected", verdict)
                return False
        return self.decode.reserve(request)

    def _nothing_came(self, request: Request, silence: NothingCame) -> None:
        """The decode node has reserved pages, and waits.

        e: `sender.abort()` marks the sender's own state; the decode node is not told, and waits for its timeout (300 s
        by default). h: the router does not merge the statuses of the two legs, so the client waits, too.
        """
        if isinstance(silence, PrefillGaveUp):
            self._legs[request.number].to_finish = told(silence)
            if not {"e", "h"} <= self.defects:
                self._finish(request, "error", told(silence))
                return
        self.prefill.release(self._legs[request.number])

    def _refuse_to_idle(self) -> None:
        """The original waits for a handoff, however long it takes."""
        if not self.decode.expecting:
            super()._refuse_to_idle()

    def _finish(self, request: Request, reason: FinishReason | None = None, error: MinikvError | None = None) -> None:
        """h: `process_disagg_prefill_inflight_queue` says "length" over a verdict that is still pending."""
        leg = self._legs.get(request.number)
        if leg and leg.to_finish and error is None and "h" not in self.defects:
            reason, error = "rejected", leg.to_finish
            request.output_ids.clear()
        super()._finish(request, reason, error)

    def _drop(self, request: Request) -> None:
        """g: the pages go back at once, though the writer at the other end may still be at work."""
        leg = self._legs.pop(request.number, None)
        if leg is not None:
            super()._drop(leg)
        super()._drop(request)
