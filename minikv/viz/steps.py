"""Which positions went through a model in each round, and which were only read: a triangle or a diagonal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from minikv.viz.palette import FREE, FREE_COLOUR, ink_on
from minikv.viz.picture import Picture

if TYPE_CHECKING:
    import plotly.graph_objects as go

COMPUTED, READ = "C", "r"
COMPUTED_COLOUR, READ_COLOUR = "#0072B2", "#F0E442"  # dark and light, also without colour
LEGEND = f"{COMPUTED} computed now (dark), {READ} kept and only read (light), {FREE} not there"
MAX_POSITIONS = 40
MAX_ROUNDS = 40


class Round(NamedTuple):
    """One pass through a model: positions that were computed, and positions whose keys and values were kept."""

    computed: tuple[int, ...]
    read: tuple[int, ...]


class RoundsPicture(Picture):
    """Several runs as tables and as a figure. A notebook shows both.

    Attributes:
        table: HTML, one table a run: rounds down, positions across.
        figure: the runs side by side, with a slider over the rounds.
        text: the tables in plain letters.
    """


def rounds_picture(runs: Mapping[str, Sequence[Round]], tokens: Sequence[str] = ()) -> RoundsPicture:
    """Draw runs, each a list of rounds, under the names given.

    Args:
        runs: by name, its rounds in order.
        tokens: the text of each position, as far as it is known.

    Raises:
        ValueError: if there is nothing to draw, or more than can be seen.
    """
    positions = 1 + max(
        (p for rounds in runs.values() for each in rounds for p in (*each.computed, *each.read)), default=-1
    )
    most = max((len(rounds) for rounds in runs.values()), default=0)
    if not positions:
        raise ValueError("no round was recorded; run something while you watch")
    if positions > MAX_POSITIONS or most > MAX_ROUNDS:
        raise ValueError(
            f"{positions} positions and {most} rounds are too many to see; "
            f"at most {MAX_POSITIONS} and {MAX_ROUNDS} are drawn"
        )
    grids = {name: [_cells(each, positions) for each in rounds] for name, rounds in runs.items()}
    labels = [tokens[position] if position < len(tokens) else "" for position in range(positions)]
    return RoundsPicture(
        table="".join(_table(name, grid, labels) for name, grid in grids.items()),
        figure=_figure(grids, labels, most),
        text="\n\n".join(_text(name, grid) for name, grid in grids.items()),
    )


def _cells(each: Round, positions: int) -> list[str]:
    return [COMPUTED if p in each.computed else READ if p in each.read else FREE for p in range(positions)]


def _count(grid: list[list[str]]) -> int:
    return sum(row.count(COMPUTED) for row in grid)


def _caption(name: str, grid: list[list[str]]) -> str:
    return f"{name}: {_count(grid)} rows in {len(grid)} rounds. {LEGEND}."


def _colour(cell: str) -> str:
    return {COMPUTED: COMPUTED_COLOUR, READ: READ_COLOUR}.get(cell, FREE_COLOUR)


def _table(name: str, grid: list[list[str]], labels: list[str]) -> str:
    head = "".join(f'<th scope="col">{p}<br>{escape(label)}</th>' for p, label in enumerate(labels))
    body = ""
    for number, row in enumerate(grid, 1):
        cells = "".join(
            f'<td style="background:{(colour := _colour(cell))};color:{ink_on(colour)};text-align:center">{cell}</td>'
            for cell in row
        )
        body += f'<tr><th scope="row">round {number}</th>{cells}<td>{row.count(COMPUTED)}</td></tr>'
    return (
        f'<table><caption style="text-align:left">{escape(_caption(name, grid))}</caption>'
        f'<thead><tr><th scope="col">position</th>{head}<th scope="col">rows</th></tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _text(name: str, grid: list[list[str]]) -> str:
    wide = len(str(len(grid)))
    lines = [
        f"round {number:>{wide}}  {' '.join(row)}  {row.count(COMPUTED):>3} rows" for number, row in enumerate(grid, 1)
    ]
    return "\n".join([_caption(name, grid), *lines])


def _figure(grids: dict[str, list[list[str]]], labels: list[str], most: int) -> go.Figure:
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    from minikv.viz.style import quiet_toolbar, slider_steps

    quiet_toolbar()

    def drawn(upto: int) -> list[dict[str, Any]]:
        return [_shown(grid, len(labels), upto, most) for grid in grids.values()]

    def titles(upto: int) -> list[str]:
        return [f"{name}: {_count(grid[:upto])} rows" for name, grid in grids.items()]

    figure = make_subplots(cols=len(grids), shared_yaxes=True, subplot_titles=titles(most), horizontal_spacing=0.04)
    for column, shown in enumerate(drawn(most), 1):
        figure.add_trace(_heatmap(shown, labels, most), row=1, col=column)
    figure.frames = [
        go.Frame(
            name=str(upto),
            data=[go.Heatmap(shown) for shown in drawn(upto)],  # what is not given stays as it is
            layout={
                "annotations": [
                    {**a.to_plotly_json(), "text": t}
                    for a, t in zip(figure.layout.annotations, titles(upto), strict=True)
                ]
            },
        )
        for upto in range(1, most + 1)
    ]
    steps = slider_steps(map(str, range(1, most + 1)), first=1)
    figure.update_xaxes(title={"text": "position"}, dtick=1, range=[-0.5, len(labels) - 0.5])
    figure.update_yaxes(dtick=1, range=[most + 0.5, 0.5])
    figure.update_yaxes(title={"text": "round"}, col=1)
    figure.update_layout(
        template="none",
        height=190 + 26 * most,
        margin={"l": 60, "r": 20, "t": 50, "b": 20},
        sliders=[{"active": most - 1, "steps": steps, "currentvalue": {"prefix": "after round "}, "pad": {"t": 45}}],
    )
    return figure


def _shown(grid: list[list[str]], positions: int, upto: int, most: int) -> dict[str, Any]:
    """What differs from frame to frame: the rounds so far, and nothing below them."""
    shown = grid[:upto] + [[""] * positions] * (most - min(upto, len(grid)))
    states = {COMPUTED: 2, READ: 1}
    words = {COMPUTED: "computed", READ: "read"}
    return {
        "z": [[states.get(cell, 0) for cell in row] for row in shown],
        "text": shown,
        "hovertext": [[words.get(cell, "not there") for cell in row] for row in shown],
    }


def _heatmap(shown: dict[str, Any], labels: list[str], most: int) -> go.Heatmap:
    import plotly.graph_objects as go

    from minikv.viz.style import bands

    return go.Heatmap(
        **shown,
        x=list(range(len(labels))),
        y=list(range(1, most + 1)),
        zmin=-0.5,
        zmax=2.5,
        colorscale=bands((FREE_COLOUR, READ_COLOUR, COMPUTED_COLOUR)),
        showscale=False,
        xgap=2,
        ygap=2,
        texttemplate="%{text}",
        customdata=[[label and f", {label!r}" for label in labels]] * most,
        hovertemplate="round %{y}, position %{x}%{customdata}: %{hovertext}<extra></extra>",
    )
