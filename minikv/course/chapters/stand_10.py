"""The test stand of exercise 10.2: servers with a few defects in them, tenants with words, a wire that can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from minikv.course.chapters.echo_10 import echo_model

if TYPE_CHECKING:
    from minikv.disagg.router import Cluster
    from minikv.incident.scenarios import Scenario
    from minikv.incident.snapshot import Snapshot
    from minikv.models.adapter import BoundModel

PAGE = 4
PREFILL, DECODE = 28, 64  # slots of the two pools, unless the tester says otherwise
ANSWER = 8  # words of each answer, unless one is refused
CONTEXT = 512
TESTER = "tester"
TEXTS = {
    "ada": "please tell nobody that the rent is late and my new code at the door is 7731 9024 cedar gravel otter",
    "ben": "the boss must not know I have an interview in Vienna is there a night train on Tuesday from Brenner Pass",
    "cleo": "what does it mean that the blood count is low I have not told Marla or Tobias in Hollowmere Larkmoor "
    "Saltash",
}
SECRETS = {"ada": "7731 9024 cedar gravel", "ben": "Tuesday from Brenner Pass", "cleo": "Tobias in Hollowmere Larkmoor"}
OWN = "what is the weather in the north and will the roads be free of snow on the way to the old harbour"
SAID_AS = {"is": "was", "the": "a", "will": "would"}  # the echo says these words in another way
WIRES = {
    "works": "over-length",
    "loses the last page": "short-transfer",
    "is late": "late-write",
    "gives up": "lost-abort",
    "delivers twice": "duplicate",
}


class Answer:
    """What a client got.

    Attributes:
        status: 200, or that of an error; None if no answer ever came.
        looked_into: whether anybody has read its words.
    """

    def __init__(self, status: int | None, words: tuple[str, ...]) -> None:
        self.status = status
        self.looked_into = False
        self._words = words

    @property
    def words(self) -> tuple[str, ...]:
        """What was said. Of an answer that is read along (`stream=True`), all that went out before it ended."""
        self.looked_into = True
        return self._words

    @property
    def text(self) -> str:
        """The words in one line."""
        return " ".join(self.words)

    def __repr__(self) -> str:
        return f"Answer(status={self.status}, text={self.text!r})"


@dataclass(frozen=True)
class Sent:
    """One request of the tester, and on what kind of server: kept to say what a test has not tried."""

    prefill: int
    decode: int
    wire: str
    visits: tuple[str, ...]
    tokens: int
    stream: bool
    answer: Answer
    status: int | None
    words: tuple[str, ...]

    @property
    def said(self) -> str:
        """The words in one line."""
        return " ".join(self.words)


@cache
def model() -> BoundModel:
    """The echo, for all words on this stand."""
    words = " ".join([*TEXTS.values(), OWN, *SAID_AS.values()]).split()
    return echo_model(tuple(dict.fromkeys(words)), tuple(SAID_AS.items()))


def canaries(name: str) -> set[str]:
    """The words of a tenant that stand in nobody else's text, and that the echo says of no other word."""
    others = " ".join(text for other, text in {**TEXTS, TESTER: OWN}.items() if other != name).split()
    return set(TEXTS[name].split()) - set(others) - set(SAID_AS.values())


@dataclass
class Stand:
    """Servers of one kind, each started anew.

    Args:
        defects: letters of what is wrong with them; None for the right engine.
        only: the one thing that a wire can do here beside working; None for all.
    """

    defects: str | None
    only: str | None = None
    sent: list[Sent] = field(default_factory=list)

    def start(self, prefill: int = PREFILL, decode: int = DECODE, wire: str = "works") -> Server:
        """A new server: the slots of its two pools, and what its wire does."""
        if wire not in WIRES:
            raise ValueError(f"no wire {wire!r}; there are {', '.join(map(repr, WIRES))}")
        for name, slots in (("prefill", prefill), ("decode", decode)):
            if slots < 2 * PAGE or slots % PAGE:
                raise ValueError(f"{name}={slots}: a pool has at least {2 * PAGE} slots, in pages of {PAGE}")
        return Server(self, prefill, decode, wire)


class Server:
    """A server under test."""

    def __init__(self, stand: Stand, prefill: int, decode: int, wire: str) -> None:
        self._stand = stand
        self._sizes = (prefill, decode)
        self._wire = wire
        self._visits: tuple[str, ...] = ()

    def visit(self, *names: str) -> None:
        """Tenants send their texts, all at the same time, are answered, and leave."""
        if unknown := set(names) - set(TEXTS):
            raise ValueError(f"there is no tenant {min(unknown)!r}; there are {', '.join(TEXTS)}")
        if self._sizes[0] < PREFILL:
            raise ValueError(f"the tenants' texts need a prefill pool of {PREFILL} slots or more")
        self._visits += (" ".join(names),) if names else ()

    def ask(self, tokens: int, stream: bool = False) -> Answer:
        """The tester sends so many words of its own, and asks for `ANSWER` words."""
        from minikv.incident.scenarios import SCENARIOS

        if not 1 <= tokens < 2 * CONTEXT:
            raise ValueError(f"ask for 1 to {2 * CONTEXT - 1} tokens, not {tokens}")
        wire = self._wire if self._stand.only in (None, self._wire) else "works"
        scenario = replace(SCENARIOS[WIRES[wire]], streamed=bool(stream))
        status, words = _played(self._stand.defects, self._sizes, self._visits, scenario, tokens)
        answer = Answer(status, words)
        visits = tuple(name for names in self._visits for name in names.split())
        self._stand.sent.append(Sent(*self._sizes, self._wire, visits, tokens, bool(stream), answer, status, words))
        return answer


@lru_cache(maxsize=4096)
def _played(
    defects: str | None, sizes: tuple[int, int], visits: tuple[str, ...], scenario: Scenario, tokens: int
) -> tuple[int | None, tuple[str, ...]]:
    """Every request meets the past that the visits left, and nothing of earlier requests of the tester."""
    from minikv.incident.scenarios import Prompts

    cluster = _built(defects, sizes)
    if visits:
        _past(sizes, visits).restore(cluster)
    encode = model().encode
    own = tuple(encode(OWN))
    prompt = (own * (tokens // len(own) + 1))[:tokens]
    stranger = tuple(encode(TEXTS[visits[-1].split()[-1]] if visits else OWN))[:18]
    ending = scenario.run(cluster, Prompts(prompt, prompt, stranger, ANSWER))
    return ending.status, tuple(model().decode(ending.token_ids).split())


def _built(defects: str | None, sizes: tuple[int, int]) -> Cluster:
    from minikv.config import NodeConfig
    from minikv.disagg.router import Cluster
    from minikv.incident.history import HistoricalCluster
    from minikv.trace import Trace

    prefill, decode = (NodeConfig(num_pages=slots // PAGE) for slots in sizes)
    settings: dict[str, Any] = {
        "prefill": prefill,
        "decode": decode,
        "page_size": PAGE,
        "context_length": CONTEXT,
        "allow_context_above_pool": True,
        "trace": Trace(enabled=False),
    }
    if defects is None:
        return Cluster(model(), **settings)
    return HistoricalCluster(model(), defects=defects, **settings)


@cache
def _past(sizes: tuple[int, int], visits: tuple[str, ...]) -> Snapshot:
    """What visits leave in the pages; ordinary requests leave the same whatever the defects."""
    from minikv.incident.snapshot import Snapshot
    from minikv.sampling import SamplingParams

    cluster = _built(None, sizes)
    for names in visits:
        prompts: Iterable[str] = [TEXTS[name] for name in names.split()]
        cluster.generate(list(prompts), SamplingParams(max_tokens=ANSWER, ignore_eos=True), tenant=names.split())
    return Snapshot(cluster)


Start = Callable[..., Server]
