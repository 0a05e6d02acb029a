"""The laboratory of the guard matrix, with the learner's guards in place of the switches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from minikv.course.seats.guards import GuardedCluster
from minikv.incident.history import HistoricalCluster
from minikv.incident.matrix import Cell, Laboratory
from minikv.incident.scales import Scale
from minikv.incident.scenarios import Ending, Scenario
from minikv.incident.stage import build
from minikv.trace import Trace


class GuardLaboratory(Laboratory):
    """Pasts that were played once, and guarded clusters that start from them."""

    def __init__(self) -> None:
        self._guarded: Callable[[Scale], GuardedCluster] | None = None
        super().__init__()

    def build(self, scale: Scale, guards: str) -> HistoricalCluster:
        """A cluster with the guards in question; while the pasts are played, history."""
        return self._guarded(scale) if self._guarded else super().build(scale, guards)

    def guarded(self, make: Callable[[], object], scenario: Scenario, name: str, *, door: Any, receiver: Any) -> Cell:
        """What becomes of a scenario; guards may bring a door and a receiver of their own."""
        self._use(make, door, receiver)
        try:
            return replace(self.cell("", scenario), guards=name)
        finally:
            self._guarded = None

    def ending(self, make: Callable[[], object], scenario: Scenario, *, door: Any, receiver: Any) -> Ending:
        """How one run of it ends."""
        self._use(make, door, receiver)
        try:
            return self.run("", scenario)
        finally:
            self._guarded = None

    def _use(self, make: Callable[[], object], door: Any, receiver: Any) -> None:
        def guarded(scale: Scale) -> GuardedCluster:
            guards = make()
            return build(
                scale,
                self.model,
                GuardedCluster,
                guards=guards,
                admit=getattr(guards, "admit", door),
                receive=getattr(guards, "receive", receiver),
                trace=Trace(enabled=False),
            )

        self._guarded = guarded
