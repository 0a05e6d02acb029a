"""Each defect alone, behind the seven guards of the others: which layer of the kit sees it?

No traffic reaches a, b, c and h alone: with one truth at the door (d) nobody behind it refuses, so there is no verdict
to swap, to overlook or to overwrite, and no placeholder to measure. Nor does it reach f: where the receiver takes a
handoff only whole (e), what was written is as long as the request. So these parts are asked directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from minikv.incident.defects import DEFECTS
from minikv.incident.history import HistoricalCluster
from minikv.incident.isolation.kit import Make, check_isolation
from minikv.incident.scales import POCKET
from minikv.models.adapter import BoundModel

LAYERS = {"content": "C", "invariant": "I", "probe": "P"}


@dataclass(frozen=True)
class Single:
    """One defect alone.

    Attributes:
        letter, defect: which.
        content, invariant, probe: rules that did not hold, by layer.
    """

    letter: str
    defect: str
    content: tuple[str, ...]
    invariant: tuple[str, ...]
    probe: tuple[str, ...]

    @property
    def seen_by(self) -> tuple[str, ...]:
        """Names of the layers that see it."""
        return tuple(layer for layer in LAYERS if getattr(self, layer))


@dataclass(frozen=True)
class SingleDefects:
    """All eight, each alone.

    Attributes:
        rows: by letter, in order.
    """

    rows: tuple[Single, ...]

    @property
    def unseen_by_content(self) -> str:
        """Letters of the defects that no answer shows."""
        return "".join(row.letter for row in self.rows if not row.content)

    @property
    def unseen(self) -> str:
        """Letters of the defects that nothing shows, alone."""
        return "".join(row.letter for row in self.rows if not row.seen_by)

    @property
    def text(self) -> str:
        """The table in plain letters."""
        lines = ["alone  content  invariant  probe  what shows it"]
        for row in self.rows:
            marks = [LAYERS[layer] if getattr(row, layer) else "\N{MIDDLE DOT}" for layer in LAYERS]
            why = next((rules[0] for rules in (row.content, row.invariant, row.probe) if rules), "nothing")
            lines.append(f"{row.letter:<5}  {marks[0]:<7}  {marks[1]:<9}  {marks[2]:<5}  {why}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        rows = [{**vars(row), "seen_by": list(row.seen_by)} for row in self.rows]
        return {"defects": rows, "unseen_by_content": self.unseen_by_content, "unseen": self.unseen}


def pocket_history(model: BoundModel, defects: str) -> Make:
    """Builds historical clusters at pocket scale, with some defects."""
    return partial(
        HistoricalCluster,
        model,
        defects=defects,
        prefill=POCKET.prefill,
        decode=POCKET.decode,
        page_size=POCKET.page_size,
        context_length=POCKET.context_length,
    )


def single_defects(
    model: BoundModel | None = None,
    letters: Iterable[str] = DEFECTS,
    *,
    requests: int = 20,
    advance: Callable[[], None] = lambda: None,
) -> SingleDefects:
    """Run the kit against each defect alone, at pocket scale.

    Args:
        model: what answers; the pocket scale's own if not given.
        letters: of the defects.
        requests: as for `check_isolation`.
        advance: is called after each defect.
    """
    model = model or POCKET.load()
    rows = []
    for letter in letters:
        report = check_isolation(pocket_history(model, letter), requests=requests)
        content, invariant, probe = (tuple(report.rules(layer)) for layer in LAYERS)
        rows.append(Single(letter, DEFECTS[letter], content, invariant, probe))
        advance()
    return SingleDefects(tuple(rows))
