"""Each defect alone: which layer of the tests turns red, and which stays green."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Protocol

from minikv.viz.palette import COLOURS, FREE_COLOUR, ink_on
from minikv.viz.picture import Picture
from minikv.viz.style import bands, quiet_toolbar

if TYPE_CHECKING:
    import plotly.graph_objects as go

LAYERS = {
    "content": "content: what comes back",
    "invariant": "invariants: watched while traffic runs",
    "probe": "probes: a part asked alone",
}
_STATES = ("green", "RED")
_MARKS = {"green": "\N{MIDDLE DOT}", "RED": "R"}
_COLOURS = {"green": FREE_COLOUR, "RED": COLOURS[5]}
_MEANS = {"green": "sees nothing", "RED": "sees it"}
_LEGEND = f"{_MARKS['RED']} red: the layer sees it, {_MARKS['green']} green: it does not"


class Seen(Protocol):
    """One defect; `seen_by` names the layers that see it, of those in `LAYERS`."""

    @property
    def letter(self) -> str:
        """Of the defect."""

    @property
    def defect(self) -> str:
        """In words."""

    @property
    def seen_by(self) -> tuple[str, ...]:
        """Names of layers."""


class DefectMarks(Picture):
    """Defects and layers as a table of marks and as a figure. A notebook shows both."""


def defect_marks(defects: Iterable[Seen], layers: Sequence[str] = tuple(LAYERS)) -> DefectMarks:
    """One row for each defect, one column for each layer.

    Args:
        defects: what was found, in order.
        layers: of those in `LAYERS`, in order.

    Raises:
        ValueError: if there is nothing to draw, or a layer is unknown.
    """
    rows = list(defects)
    if not rows or not layers:
        raise ValueError("there is nothing to draw; run the kit against a defect first")
    named = [*layers, *(layer for row in rows for layer in row.seen_by)]
    if unknown := [layer for layer in named if layer not in LAYERS]:
        raise ValueError(f"{unknown[0]!r} is no layer; there are {', '.join(LAYERS)}")
    titles = [f"{row.letter}  {row.defect}" for row in rows]
    grid = [[_STATES[layer in row.seen_by] for layer in layers] for row in rows]
    return DefectMarks(_table(titles, layers, grid), _figure(titles, layers, grid), _text(titles, layers, grid))


def _table(titles: Sequence[str], layers: Sequence[str], grid: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(LAYERS[layer])}</th>' for layer in layers)
    body = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape(title)}</th>{"".join(map(_cell, row))}</tr>'
        for title, row in zip(titles, grid, strict=True)
    )
    return (
        f'<table><caption style="text-align:left">Each defect alone, all other guards on. {_LEGEND}.</caption>'
        f'<thead><tr><th scope="col">defect</th>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _cell(state: str) -> str:
    colour = _COLOURS[state]
    return (
        f'<td style="background:{colour};color:{ink_on(colour)};text-align:center">'
        f"{_MARKS[state]} {escape(_MEANS[state])}</td>"
    )


def _text(titles: Sequence[str], layers: Sequence[str], grid: Sequence[Sequence[str]]) -> str:
    wide = max(map(len, titles))
    lines = [f"{'':<{wide}}  {'  '.join(layers)}"]
    for title, row in zip(titles, grid, strict=True):
        marks = "  ".join(f"{_MARKS[state]:<{len(layer)}}" for state, layer in zip(row, layers, strict=True))
        lines.append(f"{title:<{wide}}  {marks}".rstrip())
    return "\n".join([*lines, _LEGEND])


def _figure(titles: Sequence[str], layers: Sequence[str], grid: Sequence[Sequence[str]]) -> go.Figure:
    import plotly.graph_objects as go

    quiet_toolbar()
    figure = go.Figure(
        go.Heatmap(
            x=list(layers),
            y=list(titles),
            z=[[_STATES.index(state) for state in row] for row in grid],
            text=[[_MARKS[state] for state in row] for row in grid],
            customdata=[[_MEANS[state] for state in row] for row in grid],
            texttemplate="%{text}",
            textfont={"size": 14},
            hovertemplate="%{y}, %{x}: %{customdata}<extra></extra>",
            colorscale=bands([_COLOURS[state] for state in _STATES]),
            zmin=0,
            zmax=len(_STATES) - 1,
            showscale=False,
            xgap=1,
            ygap=1,
        )
    )
    figure.update_layout(
        template="none",
        title={"text": f"Each defect alone. {_LEGEND}", "font": {"size": 12}},
        height=90 + 34 * len(titles),
        margin={"l": 490, "r": 20, "t": 70, "b": 20},
        plot_bgcolor="#444444",
    )
    figure.update_xaxes(side="top")
    figure.update_yaxes(autorange="reversed")
    return figure
