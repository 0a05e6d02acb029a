"""A cluster with a past, and what is counted when the request that should be refused meets it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from minikv.disagg.router import Cluster
from minikv.errors import Rejected
from minikv.incident.history import HistoricalDecodeNode
from minikv.incident.pages import UNREAD, Witness
from minikv.incident.scales import Scale, Visit
from minikv.incident.whose import Spoken, WatchedAnswer, watch
from minikv.models.adapter import BoundModel
from minikv.sampling import SamplingParams
from minikv.scheduling.request import Completion
from minikv.trace import Allocate, HandoffDone, Read, Write

Say = Callable[[str], None]
Kind = TypeVar("Kind", bound=Cluster)


@dataclass(frozen=True)
class Outcome:
    """What one cluster did with the request that it should refuse. Counts come from its pools and its ledger.

    Attributes:
        completion: the answer as the client gets it.
        pages_reserved, pages_written, pages_stale: of the decode node when it took the handoff.
        stale_page_writers: tenants whose contents lay in the stale pages, with pages.
        stale_slots_read: different slots read though the request had not written them.
        stale_writers: tenants who had written those slots, with slots.
        attention: share of the decode node's attention that fell on slots of each tenant, largest first.
        spoken: the answer token by token, with whose slots were read for each.
        leaked: what came out, see `Report`.
        tested: for random weights, how many tenants' prompts were changed to find that out.
    """

    completion: Completion
    pages_reserved: int = 0
    pages_written: int = 0
    pages_stale: int = 0
    stale_page_writers: dict[str, int] = field(default_factory=dict)
    stale_slots_read: int = 0
    stale_writers: dict[str, int] = field(default_factory=dict)
    attention: dict[str, float] = field(default_factory=dict)
    spoken: tuple[Spoken, ...] = ()
    leaked: list[str] = field(default_factory=list)
    tested: int = 0


class Stage:
    """A model and a cluster with a past: earlier tenants have come, been served, and gone.

    Args:
        scale: which sizes.
        model: already loaded, so that several stages can share it.
        cluster: the cluster to fill; of any kind, just built.

    Attributes:
        names: tenant by request number.
    """

    def __init__(self, scale: Scale, model: BoundModel, cluster: Cluster) -> None:
        self.scale = scale
        self.model = model
        self.cluster = cluster
        self.names: dict[int, str] = {}
        self.visits = scale.visits(model)

    def play_past(self, say: Say = lambda _text: None) -> None:
        """Serve the earlier tenants, group after group.

        A tenant who is told to ask for fewer tokens does so. The right door says that at article scale, where it
        wants a request to fit on either node; the historical one let it pass.
        """
        for group in self.visits:
            say(f"served now: {_listed([visit.tenant.name for visit in group])}")
            for done, visit in zip(self._serve(group), group, strict=True):
                fewer = _fewer_tokens(done, visit.max_tokens)
                if fewer:
                    say(f"{visit.tenant.name} asked for {visit.max_tokens} tokens; now for {fewer}: {done.error}")
                    (done,) = self._serve([replace(visit, max_tokens=fewer)])
                if done.error is not None:
                    raise done.error

    def _serve(self, group: list[Visit]) -> list[Completion]:
        completions = self.cluster.generate(
            [visit.prompt for visit in group],
            [SamplingParams(max_tokens=visit.max_tokens, ignore_eos=True) for visit in group],
            tenant=[visit.tenant.name for visit in group],
        )
        self.names.update({done.request_id: done.tenant for done in completions})
        return completions

    def watched_attack(self, length: int | None = None) -> WatchedAnswer:
        """As `attack`; also notes for each token whose slots were read for it."""
        prompt = self.scale.attack(self.model, length)
        (answer,) = watch(self.cluster, [prompt], [self.scale.attack_params], ["attacker"], self.name)
        self.names[answer.completion.request_id] = answer.completion.tenant
        return answer

    def attack(self, length: int | None = None) -> Completion:
        """Send the request that must be refused, and return the answer."""
        prompt = self.scale.attack(self.model, length)
        return self.cluster.generate([prompt], self.scale.attack_params, tenant="attacker")[0]

    def measure(self, completion: Completion) -> Outcome:
        """Count in pools and ledger what the request had and read."""
        number = completion.request_id
        decode = self.cluster.decode
        if not isinstance(decode, HistoricalDecodeNode) or number not in decode.commits:
            return self._measure_trace(completion)
        commit = decode.commits[number]
        writers = self._stale_reads(number)
        return Outcome(
            completion,
            pages_reserved=commit.pages_reserved,
            pages_written=commit.pages_written,
            pages_stale=len(commit.stale_page_writers),
            stale_page_writers=dict(Counter(self.name(w) for w in commit.stale_page_writers)),
            stale_slots_read=len(writers),
            stale_writers=dict(Counter(self.name(int(w)) for w in writers)),
        )

    def _measure_trace(self, completion: Completion) -> Outcome:
        """The same for a request that no historical decode node took."""
        number = completion.request_id
        events = [event for event in self.cluster.trace if event.node == self.cluster.decode.name]
        handed = [event for event in events if isinstance(event, HandoffDone) and event.request == number]
        reserved = (
            set(handed[0].pages)
            if handed
            else {event.page for event in events if isinstance(event, Allocate) and event.owner == number}
        )
        written = {event.page for event in events if isinstance(event, Write) and event.writer == number}
        foreign: Counter[str] = Counter()
        for event in events:
            if isinstance(event, Read) and event.owner == number:
                foreign.update({self.name(writer): slots for writer, slots in event.writers if writer != number})
        return Outcome(
            completion,
            pages_reserved=len(reserved),
            pages_written=len(reserved & written),
            pages_stale=len(reserved - written),
            stale_slots_read=foreign.total(),
            stale_writers=dict(foreign),
        )

    def _stale_reads(self, number: int) -> np.ndarray:
        ledger = self.cluster.decode.pool.ledger
        if not isinstance(ledger, Witness) or number not in ledger.stale_reads:
            return np.empty(0, dtype=np.int64)
        writers = ledger.stale_reads[number]
        stale: np.ndarray = writers[writers != UNREAD]
        return stale

    def name(self, number: int) -> str:
        """Tenant of a request number; "nobody" for slots that were never written."""
        return self.names.get(number, "nobody")


def build(scale: Scale, model: BoundModel, kind: type[Kind], **settings: Any) -> Kind:
    """A cluster of either kind in the sizes of a scale."""
    return kind(
        model,
        prefill=scale.prefill,
        decode=scale.decode,
        page_size=scale.page_size,
        context_length=scale.context_length,
        allow_context_above_pool=True,
        **settings,
    )


def _fewer_tokens(done: Completion, asked: int) -> int:
    """What a refused client may ask for instead; 0 if it was not refused or nothing would do."""
    if not isinstance(done.error, Rejected) or done.error.limit is None:
        return 0
    return max(0, done.error.limit + asked - done.prompt_tokens)


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{names[0]} ... {names[-1]} ({len(names)} tenants)"
