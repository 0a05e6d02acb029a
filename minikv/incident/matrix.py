"""All 256 combinations of guards against all scenarios: who leaks, who lies, who is refused in time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from minikv.config import NodeConfig
from minikv.disagg.router import Cluster
from minikv.errors import ConfigError
from minikv.incident.counterfactual import changed
from minikv.incident.defects import DEFECTS, GUARDS
from minikv.incident.history import HistoricalCluster
from minikv.incident.scales import POCKET, Scale
from minikv.incident.scenarios import ORDINARY_TOKENS, SCENARIOS, STREAMED, Ending, Prompts, Scenario
from minikv.incident.snapshot import Snapshot
from minikv.incident.stage import Stage, build
from minikv.models.adapter import BoundModel
from minikv.trace import Trace

Verdict = Literal["right", "refused", "wrong", "leaks", "hangs"]
COVERED: frozenset[Verdict] = frozenset({"right", "refused"})
ALL_GUARDS = tuple("".join(letters) for n in range(9) for letters in itertools.combinations(GUARDS, n))
SHIFTS = (0, 47, 23, 11)  # by how far the strangers' characters are moved: the past itself, and three other ones
ORDINARY = "What is the way to the station? "
STRANGER = "My PIN is 7731. "


@dataclass(frozen=True)
class Cell:
    """One scenario with some guards on.

    Attributes:
        guards: letters of the guards that are on, in order; "" for history itself.
        scenario: its name.
        status: of the client's answer; None if it never came.
        stale_slots_read: slots read for the client that its request had not written.
        leaked: what the client got changes when only other tenants' prompts change.
        verdict: "right"; "refused", loudly and truthfully; "wrong": no stranger's words, but nonsense or a status that
            lies; "leaks"; "hangs".
    """

    guards: str
    scenario: str
    status: int | None
    stale_slots_read: int
    leaked: bool
    verdict: Verdict


@dataclass(frozen=True)
class Matrix:
    """What became of each scenario under each combination of guards.

    Attributes:
        scenarios: names of the six, in order.
        cells: one for each combination and scenario.
        streamed: the same for `over-length` read along by its client.
    """

    scenarios: tuple[str, ...]
    cells: tuple[Cell, ...]
    streamed: tuple[Cell, ...]

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], Cell]:
        return {(cell.guards, cell.scenario): cell for cell in (*self.cells, *self.streamed)}

    def cell(self, guards: str, scenario: str) -> Cell:
        """The result for some guards, in any order, and a scenario."""
        return self._by_name["".join(sorted(guards)), scenario]

    def covers(self, guards: str) -> bool:
        """Whether with these guards no scenario leaks, lies, is wrong or hangs."""
        return all(self.cell(guards, name).verdict in COVERED for name in self.scenarios)

    def smallest_covering_sets(self) -> list[str]:
        """The sets of guards that cover all scenarios, of the smallest size that does."""
        covering = [guards for guards in ALL_GUARDS if self.covers(guards)]
        return [guards for guards in covering if len(guards) == len(covering[0])]

    def as_json(self) -> dict[str, Any]:
        """Plain data. `streamed` is the seventh column, for guard h; `combinations` has the six scenarios."""
        return {
            "scenarios": list(self.scenarios),
            "combinations": [vars(cell) for cell in self.cells],
            "smallest_covering_sets": self.smallest_covering_sets(),
            "streamed": [vars(cell) for cell in self.streamed],
        }


class Laboratory:
    """Pasts that were played once, and clusters that start from them.

    Args:
        model: what answers; the pocket scale's own if not given.
    """

    def __init__(self, model: BoundModel | None = None) -> None:
        self.model = model or POCKET.load()
        self._pasts = {(equal, shift): self._play_past(equal, shift) for equal in (False, True) for shift in SHIFTS}
        self._right: dict[str, Ending] = {}

    def _scale(self, equal_pools: bool, shift: int = 0) -> Scale:
        def visits(model: BoundModel) -> list[list[Any]]:
            return [[changed(visit, shift) for visit in group] for group in POCKET.visits(model)]

        decode: NodeConfig = POCKET.prefill if equal_pools else POCKET.decode
        return replace(POCKET, visits=visits, decode=decode)

    def build(self, scale: Scale, guards: str) -> HistoricalCluster:
        """A historical cluster with some guards on and nothing in its pages."""
        if unknown := set(guards) - set(GUARDS):
            raise ConfigError(f"unknown guards {sorted(unknown)}; there are {''.join(GUARDS)}")
        defects = "".join(letter for letter in DEFECTS if letter not in guards)
        return build(scale, self.model, HistoricalCluster, defects=defects, trace=Trace(enabled=False))

    def _play_past(self, equal_pools: bool, shift: int) -> Snapshot:
        stage = Stage(self._scale(equal_pools, shift), self.model, self.build(self._scale(equal_pools), ""))
        stage.play_past()
        return Snapshot(stage.cluster)

    def prompts(self, shift: int = 0) -> Prompts:
        """What is sent; `shift` changes the stranger's words and nothing else."""
        from minikv.incident.scales import FIRST_CHARACTER, NUM_CHARACTERS

        encode, first, count = self.model.encode, FIRST_CHARACTER, NUM_CHARACTERS
        stranger = "".join(chr(first + (ord(each) - first + shift) % count) for each in STRANGER * 2)
        return Prompts(
            attack=POCKET.attack(self.model),
            ordinary=tuple(encode(ORDINARY)[:ORDINARY_TOKENS]),
            stranger=tuple(encode(stranger)[:ORDINARY_TOKENS]),
            answer_tokens=POCKET.answer_tokens,
        )

    def cluster(self, guards: str, *, equal_pools: bool = False, shift: int = 0) -> HistoricalCluster:
        """A historical cluster with some guards on and strangers' past in its pages."""
        built = self.build(self._scale(equal_pools), guards)
        self._pasts[equal_pools, shift].restore(built)
        return built

    def run(self, guards: str, scenario: Scenario, shift: int = 0) -> Ending:
        """One scenario on a fresh copy of a past."""
        cluster = self.cluster(guards, equal_pools=scenario.equal_pools, shift=shift)
        return scenario.run(cluster, self.prompts(shift))

    def right(self, scenario: Scenario) -> Ending:
        """What the right engine answers, whose wire works."""
        if scenario.name not in self._right:
            cluster = build(self._scale(scenario.equal_pools), self.model, Cluster, trace=Trace(enabled=False))
            self._right[scenario.name] = scenario.run(cluster, self.prompts())
        return self._right[scenario.name]

    def cell(self, guards: str, scenario: Scenario) -> Cell:
        """Play a scenario, and if words went out, play it again after other pasts: does the answer change?"""
        ending = self.run(guards, scenario)
        leaked = bool(ending.token_ids) and any(
            self.run(guards, scenario, shift).token_ids != ending.token_ids for shift in SHIFTS[1:]
        )
        verdict = self._verdict(ending, leaked, scenario)
        return Cell(guards, scenario.name, ending.status, ending.stale_slots_read, leaked, verdict)

    def _verdict(self, ending: Ending, leaked: bool, scenario: Scenario) -> Verdict:
        if leaked:
            return "leaks"
        if ending.status is None:
            return "hangs"
        right = self.right(scenario)
        if ending.status != 200:  # what was sent before it must have been true, too
            return "refused" if ending.token_ids == right.token_ids[: len(ending.token_ids)] else "wrong"
        return "right" if (ending.status, ending.token_ids) == (right.status, right.token_ids) else "wrong"


def run_matrix(
    combinations: Iterable[str] = ALL_GUARDS,
    *,
    laboratory: Laboratory | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Matrix:
    """Every combination against every scenario.

    Args:
        combinations: of letters of `GUARDS`; all 256 if not given.
        laboratory: to be used again; a new one if not given.
        advance: is called after each of the cells.
    """
    laboratory = laboratory or Laboratory()

    def row(guards: str, scenarios: Sequence[Scenario]) -> list[Cell]:
        cells = []
        for scenario in scenarios:
            cells.append(laboratory.cell(guards, scenario))
            advance()
        return cells

    cells: list[Cell] = []
    streamed: list[Cell] = []
    for guards in combinations:
        cells += row(guards, list(SCENARIOS.values()))
        streamed += row(guards, [STREAMED])
    return Matrix(tuple(SCENARIOS), tuple(cells), tuple(streamed))
