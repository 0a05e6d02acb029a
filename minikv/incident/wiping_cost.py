"""How fast ordinary traffic is served while pages are wiped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from statistics import median

from minikv.config import NodeConfig
from minikv.disagg.router import Cluster
from minikv.incident.scales import ARTICLE, POCKET
from minikv.incident.wipes import WIPES, Wipe, WipingPool, name_of
from minikv.models.adapter import BoundModel
from minikv.sampling import SamplingParams
from minikv.trace import Trace


@dataclass(frozen=True)
class Traffic:
    """Ordinary requests to measure with.

    Attributes:
        name: as in reports.
        load: brings the model.
        page_size, prefill, decode: of the cluster, large enough for all requests at once.
        requests, prompt_tokens, answer_tokens: what comes, all together.
    """

    name: str
    load: Callable[[], BoundModel]
    page_size: int
    prefill: NodeConfig
    decode: NodeConfig
    requests: int
    prompt_tokens: int
    answer_tokens: int


POCKET_TRAFFIC = Traffic("pocket", POCKET.load, 4, NodeConfig(num_pages=40), NodeConfig(num_pages=64), 6, 16, 24)
ARTICLE_TRAFFIC = Traffic("article", ARTICLE.load, 64, NodeConfig(num_pages=16), NodeConfig(num_pages=32), 4, 96, 24)


@dataclass(frozen=True)
class Speed:
    """Ordinary traffic with one way of wiping.

    Attributes:
        traffic, wipe: names.
        page_size: in token slots.
        tokens_per_second: prompts and answers together, median over the repetitions.
        ratio: to the speed without wiping, median of the ratios to the run beside it.
        share: of the time, spent on wiping itself; median. It is steadier than the ratio, and leaves out what wiping
            pushes out of the processor's caches.
        pages_wiped: in one repetition.
    """

    traffic: str
    wipe: str
    page_size: int
    tokens_per_second: float
    ratio: float
    share: float
    pages_wiped: int


def measure_speed(traffic: Traffic, wipes: Iterable[Wipe | None] = WIPES, *, repetitions: int = 5) -> list[Speed]:
    """Tokens a second with each way of wiping, in one run.

    All clusters exist side by side. Right beside each measurement the cluster that wipes nothing is measured, before it
    in one round and behind it in the next, so a machine that is busy for a while slows down both. The first round is
    not counted.

    Args:
        traffic: what is served.
        wipes: ways to wipe; to wipe nothing is always measured, too.
        repetitions: rounds that count, at least 1.
    """
    model = traffic.load()
    plain = _Run(traffic, model, None)
    runs = [_Run(traffic, model, wipe) for wipe in wipes if wipe]
    for round_number in range(repetitions + 1):
        for run in runs:
            pair = (plain, run) if round_number % 2 else (run, plain)
            for each in pair:
                each.serve()
            if round_number:
                run.note(plain)
    return [plain.speed(), *(run.speed() for run in runs)]


class _Run:
    """One cluster, and how long it took each time."""

    def __init__(self, traffic: Traffic, model: BoundModel, wipe: Wipe | None) -> None:
        self.traffic = traffic
        self.wipe = wipe
        self.cluster = Cluster(
            model,
            prefill=traffic.prefill,
            decode=traffic.decode,
            page_size=traffic.page_size,
            pool=partial(WipingPool, wipe=wipe),
            ledger=False,
            trace=Trace(enabled=False),
        )
        self.pools: list[WipingPool] = [node.pool for node in self.cluster.nodes]  # type: ignore[misc]
        ids = POCKET.attack(model, traffic.prompt_tokens + traffic.requests)
        self.prompts = [ids[first : first + traffic.prompt_tokens] for first in range(traffic.requests)]
        self.params = SamplingParams(max_tokens=traffic.answer_tokens, ignore_eos=True)
        self.last = self.wiping = 0.0  # seconds of the last round: all, and on wiping
        self.pages = 0
        self.rounds: list[tuple[float, float, float]] = []  # seconds, of them on wiping, seconds without wiping

    def serve(self) -> None:
        before = [(pool.seconds, pool.pages_wiped) for pool in self.pools]
        start = time.perf_counter()
        for done in self.cluster.generate(self.prompts, self.params):
            if done.error is not None:
                raise done.error
        self.last = time.perf_counter() - start
        self.wiping = sum(pool.seconds - old for pool, (old, _) in zip(self.pools, before, strict=True))
        self.pages = sum(pool.pages_wiped - old for pool, (_, old) in zip(self.pools, before, strict=True))

    def note(self, plain: _Run) -> None:
        """Keep the last round, with the one beside it that wiped nothing."""
        self.rounds.append((self.last, self.wiping, plain.last))
        plain.rounds.append((plain.last, 0.0, plain.last))

    def speed(self) -> Speed:
        traffic = self.traffic
        tokens = traffic.requests * (traffic.prompt_tokens + traffic.answer_tokens)
        return Speed(
            traffic.name,
            name_of(self.wipe),
            traffic.page_size,
            tokens / median(seconds for seconds, _, _ in self.rounds),
            median(plain / seconds for seconds, _, plain in self.rounds),
            median(wiping / seconds for seconds, wiping, _ in self.rounds),
            self.pages,
        )
