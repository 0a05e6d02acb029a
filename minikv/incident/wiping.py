"""Wiping pages, on its own: what it costs, what it stops, and what it only hides.

It is none of the eight guards. A wiped page holds nobody's words, but whoever reads it still reads what was never
written for them: the answer is nonsense with status 200, or, with NaN, an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from minikv.incident.defects import DEFECTS
from minikv.incident.history import HistoricalCluster
from minikv.incident.matrix import Laboratory
from minikv.incident.pages import UNREAD, Witness
from minikv.incident.scales import POCKET, Scale
from minikv.incident.scenarios import SCENARIOS, Scenario
from minikv.incident.stage import build
from minikv.incident.wipes import WIPES, Wipe, WipingHistoricalPool, name_of
from minikv.incident.wiping_cost import ARTICLE_TRAFFIC, POCKET_TRAFFIC, Speed, Traffic, measure_speed
from minikv.memory.ledger import NOBODY
from minikv.models.adapter import BoundModel
from minikv.trace import Trace


class WipedLaboratory(Laboratory):
    """The laboratory of the guard matrix, in which pages are wiped from the first tenant on.

    Args:
        wipe: how.
        model: as for `Laboratory`.
    """

    def __init__(self, wipe: Wipe | None, model: BoundModel | None = None) -> None:
        self.wipe = wipe
        super().__init__(model)

    def build(self, scale: Scale, guards: str) -> HistoricalCluster:
        """As in `Laboratory`, with pools that wipe."""
        pool = partial(WipingHistoricalPool, wipe=self.wipe, fenced="g" in guards)
        defects = "".join(letter for letter in DEFECTS if letter not in guards)
        return build(scale, self.model, HistoricalCluster, defects=defects, pool=pool, trace=Trace(enabled=False))

    def slots_read(self, scenario: Scenario) -> tuple[int, int]:
        """Stale slots that were read, and how many of them still held what a stranger wrote."""
        cluster = self.cluster("", equal_pools=scenario.equal_pools)
        scenario.run(cluster, self.prompts())
        ledger = cluster.decode.pool.ledger
        if not isinstance(ledger, Witness):
            return 0, 0
        read = [writers[writers != UNREAD] for writers in ledger.stale_reads.values()]
        return sum(len(each) for each in read), sum(int((each != NOBODY).sum()) for each in read)


@dataclass(frozen=True)
class Effect:
    """One scenario in history, which has no guard, with one way of wiping.

    Attributes:
        wipe, scenario: names.
        verdict, status, leaked: as in the guard matrix.
        stale_slots_read: slots read for the client that its request had not written.
        strangers_slots_read: those of them that still held a stranger's keys and values.
    """

    wipe: str
    scenario: str
    verdict: str
    status: int | None
    leaked: bool
    stale_slots_read: int
    strangers_slots_read: int


def measure_effects(
    wipes: Iterable[Wipe | None] = WIPES,
    scenarios: Iterable[Scenario] = tuple(SCENARIOS.values()),
    *,
    model: BoundModel | None = None,
) -> list[Effect]:
    """Every way of wiping against every scenario, with all eight defects in place, at pocket scale."""
    model = model or POCKET.load()
    scenarios = list(scenarios)
    found = []
    for wipe in wipes:
        laboratory = WipedLaboratory(wipe, model)
        for scenario in scenarios:
            cell = laboratory.cell("", scenario)
            effect = (cell.verdict, cell.status, cell.leaked, *laboratory.slots_read(scenario))
            found.append(Effect(name_of(wipe), scenario.name, *effect))
    return found


@dataclass(frozen=True)
class Wiping:
    """What wiping costs, beside what it stops.

    Attributes:
        speeds: of ordinary traffic.
        effects: on the six scenarios.
    """

    speeds: tuple[Speed, ...]
    effects: tuple[Effect, ...]

    def effect(self, wipe: str, scenario: str) -> Effect:
        """The result for a way of wiping and a scenario, by name."""
        return next(each for each in self.effects if (each.wipe, each.scenario) == (wipe, scenario))

    @property
    def text(self) -> str:
        """Two tables in plain letters."""
        scenarios = list(dict.fromkeys(each.scenario for each in self.effects))
        wipes = list(dict.fromkeys(each.wipe for each in self.effects))
        verdicts = [[wipe, *(_in_words(self.effect(wipe, name)) for name in scenarios)] for wipe in wipes]
        costs = [
            [
                each.traffic,
                str(each.page_size),
                each.wipe,
                f"{each.tokens_per_second:,.0f}",
                f"{each.ratio:.3f}",
                f"{each.share:.2%}",
                str(each.pages_wiped),
            ]
            for each in self.speeds
        ]
        head = ["traffic", "page", "wiping", "tokens/s", "ratio", "time spent wiping", "pages wiped"]
        stops = "Verdict, and in brackets the slots read that still held a stranger's words, of all stale slots read"
        return "\n".join(
            [stops, *_aligned([["wiping", *scenarios], *verdicts]), "", "Ordinary traffic", *_aligned([head, *costs])]
        )

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"speeds": [vars(each) for each in self.speeds], "effects": [vars(each) for each in self.effects]}


def _in_words(effect: Effect) -> str:
    """A right answer from slots that were never written for it is luck: there were too few to change a token."""
    luck = " by luck" if effect.verdict == "right" and effect.stale_slots_read else ""
    read = f" ({effect.strangers_slots_read} of {effect.stale_slots_read})" if effect.stale_slots_read else ""
    return effect.verdict + luck + read


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def measure_wiping(
    traffics: Iterable[Traffic] = (POCKET_TRAFFIC, ARTICLE_TRAFFIC),
    wipes: Iterable[Wipe | None] = WIPES,
    *,
    repetitions: int = 5,
) -> Wiping:
    """Costs and effects of wiping, in one run.

    Args:
        traffics: ordinary traffic to measure the speed with; the article's takes the real model.
        wipes: ways to wipe.
        repetitions: of each measurement of a speed.
    """
    wipes = list(wipes)
    speeds = [speed for traffic in traffics for speed in measure_speed(traffic, wipes, repetitions=repetitions)]
    return Wiping(tuple(speeds), tuple(measure_effects(wipes)))
