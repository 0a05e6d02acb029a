"""What an operator's numbers did in the incident: before, during, and on the right engine, and who would have rung."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Protocol

from minikv.viz.columns import aligned
from minikv.viz.palette import COLOURS, FREE_COLOUR, ink_on
from minikv.viz.picture import Picture

if TYPE_CHECKING:
    import plotly.graph_objects as go

TIMES = ("before", "during", "right engine")
RINGS, SILENT, NO_RULE = "A", "-", ""
MOVES, FLAT = "moves", "flat"
_COLOUR = {RINGS: COLOURS[5], SILENT: COLOURS[1], NO_RULE: FREE_COLOUR}
_LEGEND = f"{RINGS} the alert rings, {SILENT} it is silent, no letter: no alert on this number"


class Named(Protocol):
    """What is needed of a metric."""

    @property
    def name(self) -> str:
        """As a server would export it."""

    @property
    def alert(self) -> float | None:
        """The alert rings above this; None: there is no alert."""

    @property
    def nearest(self) -> str:
        """What came nearest to it on the servers of the time; empty where nothing was looked up."""

    @property
    def mark(self) -> str:
        """How well that is known."""

    @property
    def link(self) -> str:
        """Where that was read; empty if nowhere."""


class Watched(Protocol):
    """What is needed of one metric in three stretches of time."""

    @property
    def metric(self) -> Named:
        """What was counted."""

    @property
    def before(self) -> float:
        """Historical cluster, ordinary requests."""

    @property
    def during(self) -> float:
        """Historical cluster, prompts over prefill's limit among them."""

    @property
    def right(self) -> float:
        """The right engine, the same requests."""

    @property
    def fired(self) -> tuple[bool, bool, bool]:
        """Whether the alert rang, in this order."""

    @property
    def moves(self) -> bool:
        """Whether before and during differ so that one sees it."""


class Alerts(Picture):
    """Metrics as a table and as a figure. A notebook shows both.

    Attributes:
        table: HTML, a row for each metric, with the nearest that the servers of the time had.
        figure: the three stretches of time as fields, with values and letters.
        text: the table in plain letters, without the last column.
    """


def alert_table(rows: Iterable[Watched]) -> Alerts:
    """Draw metrics in three stretches of time.

    Raises:
        ValueError: if there are none.
    """
    found = list(rows)
    if not found:
        raise ValueError("there is no metric to draw")
    rang = sum(row.fired[1] for row in found)
    early, late = sum(row.fired[0] for row in found), sum(row.fired[2] for row in found)
    flat = sum(not row.moves for row in found)
    caption = (
        f"Of {len(found)} numbers {flat} stay flat. Alerts that ring: {early} before, {rang} during, "
        f"{late} on the right engine. {_LEGEND}."
    )
    return Alerts(table=_table(caption, found), figure=_figure(found), text=_text(caption, found))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _cells(row: Watched) -> list[str]:
    """Value and letter of each stretch of time."""
    values = (row.before, row.during, row.right)
    return [f"{_number(value)} {_letter(row, index)}".rstrip() for index, value in enumerate(values)]


def _letter(row: Watched, index: int) -> str:
    if row.metric.alert is None:
        return NO_RULE
    return RINGS if row.fired[index] else SILENT


def _known(metric: Named) -> str:
    said = f"{escape(metric.nearest)} [{escape(metric.mark)}]" if metric.nearest else "nothing looked up"
    return f'{said} <a href="{escape(metric.link)}">source</a>' if metric.link else said


def _table(caption: str, rows: Sequence[Watched]) -> str:
    heads = ("number", *TIMES, "before to during", "nearest on the servers of the time")
    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    body = ""
    for row in rows:
        cells = ""
        for index, cell in enumerate(_cells(row)):
            colour = _COLOUR[_letter(row, index)]
            cells += f'<td style="background:{colour};color:{ink_on(colour)}">{cell}</td>'
        left = 'style="text-align:left;white-space:normal"'
        body += (
            f'<tr><th scope="row" style="text-align:left">{escape(row.metric.name)}</th>{cells}'
            f"<td>{MOVES if row.moves else FLAT}</td><td {left}>{_known(row.metric)}</td></tr>"
        )
    return (
        f'<table><caption style="text-align:left">{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _text(caption: str, rows: Sequence[Watched]) -> str:
    lines = [["number", *TIMES, "before to during"]]
    lines += [[row.metric.name, *_cells(row), MOVES if row.moves else FLAT] for row in rows]
    return "\n".join([caption, *aligned(lines)])


def _figure(rows: Sequence[Watched]) -> go.Figure:
    import plotly.graph_objects as go

    from minikv.viz.style import bands, quiet_toolbar

    quiet_toolbar()
    order = list(_COLOUR)
    figure = go.Figure(
        go.Heatmap(
            x=list(TIMES),
            y=[f"{row.metric.name} ({MOVES if row.moves else FLAT})" for row in rows],
            z=[[order.index(_letter(row, index)) for index in range(len(TIMES))] for row in rows],
            zmin=-0.5,
            zmax=len(order) - 0.5,
            colorscale=bands(list(_COLOUR.values())),
            showscale=False,
            xgap=3,
            ygap=3,
            text=[_cells(row) for row in rows],
            texttemplate="%{text}",
            textfont={"size": 13},
            hoverinfo="skip",
        )
    )
    figure.update_layout(
        template="none",
        title={"text": _LEGEND, "font": {"size": 14}},
        height=130 + 28 * len(rows),
        margin={"l": 330, "r": 20, "t": 80, "b": 20},
        xaxis={"type": "category", "side": "top"},
        yaxis={"type": "category", "autorange": "reversed"},
    )
    return figure
