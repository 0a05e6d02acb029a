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
from minikv.memory import Ledger, PageTable
from minikv.models.adapter import BoundModel
from minikv.scheduling.admission import Admission
from minikv.scheduling.request import FinishReason, Request

DEFECTS = {
    "a": "a refusal swaps in a one-token placeholder and queues it anyway",
    "b": "admission reads a status field that the verdict is not in",
    "c": "the capacity check measures the placeholder",
    "d": "prefill and decode validate alone, against different pools",
    "e": "the receiver trusts 'success' without a length",
    "f": "decode's length comes from the request, not from what was written",
    "g": "a page lent on carries the past, and nobody checks who wrote it",
    "h": "the pending refusal is overwritten by 'length' and becomes HTTP 200",
}
PLACEHOLDER = 0
UNREAD = -2


def historical_limit(context_length: int, pool_tokens: int) -> int:
    """A prompt of this length or more was refused: `managers/tp_worker.py`, get_worker_info."""
    return min(context_length - 1, pool_tokens - 1) - 5


class Witness(Ledger):
    """Defect g: sees every stale read and stops none.

    Attributes:
        stale_reads: by reading request, int64 [num_slots]: the writer of each slot when it was first read
            stale, UNREAD where it was not.
    """

    def __init__(self, num_slots: int, page_size: int) -> None:
        super().__init__(num_slots, page_size)
        self.stale_reads: dict[int, np.ndarray] = {}

    def on_stale(self, table: PageTable, slots: np.ndarray) -> None:
        """Note the writers of the slots; the read goes on."""
        seen = self.stale_reads.setdefault(table.owner, np.full(len(self.writer), UNREAD, dtype=np.int64))
        new = slots[seen[slots] == UNREAD]
        seen[new] = self.writer[new]


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
        request.prompt_tokens = handoff.num_tokens  # go on behind what was written
        request.prompt_ids = request.prompt_ids[: handoff.num_tokens]
        return handoff.num_tokens

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
        self.to_finish: Rejected | None = None


class HistoricalCluster(Cluster):
    """The right cluster with some of the eight defects put in.

    Args:
        defects: letters of `DEFECTS`; by default all, as in history. A letter left out is a guard that is on.
        Others: as for `Cluster`; the context may exceed the pools, as it did.
    """

    def __init__(self, model: BoundModel, *, defects: str = "abcdefgh", **settings: Any) -> None:
        if unknown := set(defects) - set(DEFECTS):
            raise ConfigError(f"unknown defects {sorted(unknown)}; there are {''.join(DEFECTS)}")
        self.defects = frozenset(defects)
        self.decode_type = partial(HistoricalDecodeNode, defects=self.defects)  # type: ignore[assignment]
        super().__init__(model, **{"allow_context_above_pool": True, **settings})
        self._legs: dict[int, PrefillLeg] = {}

    def _ledger_type(self) -> Callable[[int, int], Ledger]:
        return Witness if "g" in self.defects else Ledger

    def _door(self, request: Request) -> int:
        """d: the decode node looks at its own pool only; the prefill node does the same, later."""
        if "d" not in self.defects:
            return super()._door(request)
        granted = Admission(self.context_length, [self.decode.capacity]).check(request)
        self._historical_check(request, self.decode.pool.num_slots)
        return granted

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
        length = leg.prompt_tokens if "c" in self.defects else request.prompt_tokens
        if length > self.prefill.pool.num_slots:
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
        if not self.decode.reserve(own):
            return False
        handoff = self.prefill.export(request)
        try:
            self.decode.receive(own, handoff)
        except HandoffRefused as refusal:
            self._finish(own, "error", refusal)
            return True
        self.prefill.release(request)
        own.append(handoff.first_token)
        if own.finished:
            self._finish(own)
        return True

    def _finish(self, request: Request, reason: FinishReason | None = None, error: MinikvError | None = None) -> None:
        """h: `process_disagg_prefill_inflight_queue` says "length" over a verdict that is still pending."""
        leg = self._legs.get(request.number)
        if leg and leg.to_finish and error is None and "h" not in self.defects:
            reason, error = "rejected", leg.to_finish
            request.output_ids.clear()
        super()._finish(request, reason, error)

    def _drop(self, request: Request) -> None:
        leg = self._legs.pop(request.number, None)
        if leg is not None:
            super()._drop(leg)
        super()._drop(request)
