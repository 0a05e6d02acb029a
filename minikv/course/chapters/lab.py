"""The lab of chapter 08: two test tenants and the historical cluster, at the sizes of the article scale."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from minikv.incident.history import Commit, HistoricalDecodeNode
    from minikv.models.adapter import BoundModel
    from minikv.scheduling.request import Completion


TENANTS = {"quennell": 382, "halverson": 403}  # and how many tokens their texts have
PAGE_SIZE, PREFILL_PAGES, DECODE_PAGES = 64, 7, 24
CONTEXT = 8192
ANSWER = 32


@dataclass(frozen=True)
class Attack:
    """What one attack met and did.

    Attributes:
        tokens: length of its prompt.
        completion: what its client got.
        commit: what lay in its pages when decode took the handoff; None if it never came so far.
        foreign: slots that were read though others had written them, by tenant ("nobody": never written).
        stale: for each stale page, the tenants whose slots were read in it; ("nobody",) if it was never written.
        running: tenants that were still running when it was sent.
        came: whose requests were sent before it, one entry for each.
    """

    tokens: int
    completion: Completion
    commit: Commit | None
    foreign: dict[str, int]
    stale: tuple[tuple[str, ...], ...]
    running: tuple[str, ...]
    came: tuple[str, ...]


class Lab:
    """A historical cluster that you may attack, because both of its tenants are yours.

    Its allocator lends the page that has been free longest. An attack asks for as many answer tokens as fit.

    Args:
        model: what answers. Without one, a random model of one layer does the work: the same pages and the same
            doors, in a blink, but no words.
        decode_pages: pages in the decode node's pool.

    Attributes:
        attacks: all attacks so far.
    """

    def __init__(self, model: BoundModel | None = None, *, decode_pages: int = DECODE_PAGES) -> None:
        from minikv.config import NodeConfig
        from minikv.course.chapters.ch03 import Allocator
        from minikv.incident.history import HistoricalCluster

        self.readable = model is not None
        self.model = model or one_layer()
        self.cluster = HistoricalCluster(
            self.model,
            prefill=NodeConfig(num_pages=PREFILL_PAGES),
            decode=NodeConfig(num_pages=decode_pages),
            page_size=PAGE_SIZE,
            context_length=CONTEXT,
            allocator=Allocator,
        )
        self.names: dict[int, str] = {}
        self.pages_left: Counter[str] = Counter()  # by tenant, the most pages that one of its requests held
        self.attacks: list[Attack] = []
        self._open: list[int] = []

    def send(self, tenant: str, prompt: int, answer: int) -> None:
        """A tenant sends the first `prompt` tokens of its text and asks for `answer` tokens. Nothing runs yet."""
        from minikv import SamplingParams

        if tenant not in TENANTS:
            raise ValueError(f"there is no tenant {tenant!r} here; there are {' and '.join(TENANTS)}")
        if not 1 <= prompt <= TENANTS[tenant]:
            raise ValueError(f"the text of {tenant} has {TENANTS[tenant]} tokens; {prompt} is not a part of it")
        params = SamplingParams(max_tokens=answer, ignore_eos=True)
        number = self.cluster.submit(self._ids(tenant)[:prompt], params, tenant)
        self.names[number] = tenant
        self._open.append(number)

    def run(self) -> None:
        """Serve until everybody who was sent has an answer and has given the pages back."""
        while any(not self.cluster.requests[number].finished for number in self._open):
            self._step()
        self._fetch()

    def attack(self, prompt: int) -> str:
        """Send the attack, `prompt` tokens about the weather, and serve until it is answered. Returns the answer."""
        from minikv import SamplingParams
        from minikv.incident.pages import UNREAD, Witness

        pool = self.cluster.decode.pool
        unanswered = [number for number in self._open if not self.cluster.requests[number].finished]
        running = tuple(sorted({self.names[number] for number in unanswered}))
        came = tuple(self.names.values())
        ids = self._ids("weather")
        fitting = max(1, min(ANSWER, pool.num_slots - prompt + 1))
        params = SamplingParams(max_tokens=fitting, ignore_eos=True)
        number = self.cluster.submit((ids * (prompt // len(ids) + 1))[:prompt], params, "attacker")
        self.names[number] = "attacker"
        while not self.cluster.requests[number].finished:
            self._step()
        completion = self.cluster.result(number)
        commit = self._node.commits.get(number)
        foreign: Counter[str] = Counter()
        stale: list[tuple[str, ...]] = []
        if isinstance(pool.ledger, Witness) and number in pool.ledger.stale_reads and commit:
            writers = pool.ledger.stale_reads[number].reshape(-1, PAGE_SIZE)
            for page in self._pages_of(number):
                found = Counter(self.name(int(writer)) for writer in writers[page] if writer != UNREAD)
                foreign += found
                stale.append(tuple(sorted(name for name in found if name != "nobody")) or ("nobody",))
            stale = stale[commit.pages_written :]
        self.attacks.append(Attack(prompt, completion, commit, dict(foreign), tuple(stale), running, came))
        return completion.text

    @property
    def _node(self) -> HistoricalDecodeNode:
        return cast("HistoricalDecodeNode", self.cluster.decode)

    def _pages_of(self, number: int) -> tuple[int, ...]:
        from minikv.trace import HandoffDone

        handoffs = [event for event in self.cluster.trace if isinstance(event, HandoffDone)]
        return next(event.pages for event in handoffs if event.request == number)

    def name(self, number: int) -> str:
        """Tenant of a request number; "nobody" for slots that were never written."""
        return self.names.get(number, "nobody")

    def _step(self) -> None:
        self.cluster.step()
        for number, table in self.cluster.decode.pool.tables.items():
            self.pages_left[self.names[number]] = max(self.pages_left[self.names[number]], len(table.pages))

    def _fetch(self) -> None:
        for number in self._open:
            error = self.cluster.result(number).error
            if error is not None:
                raise error
        self._open.clear()

    def _ids(self, name: str) -> tuple[int, ...]:
        from minikv.incident.scales import QUESTION
        from minikv.incident.tenants import tenant

        if self.readable:
            return tuple(self.model.encode(QUESTION if name == "weather" else tenant(name).text))
        return tuple((len(name) + 7 * i) % 251 for i in range(TENANTS.get(name, 21)))


@cache
def one_layer() -> BoundModel:
    from minikv.incident.scales import one_layer

    return one_layer(CONTEXT)
