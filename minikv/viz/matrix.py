"""The guard matrix: what becomes of each scenario with some guards on, one letter a cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Protocol

from minikv.viz.palette import COLOURS, FREE_COLOUR, ink_on
from minikv.viz.picture import Picture
from minikv.viz.style import bands, quiet_toolbar

if TYPE_CHECKING:
    import plotly.graph_objects as go

LETTERS = {"right": "R", "refused": "N", "wrong": "W", "leaks": "L", "hangs": "H"}
MEANS = {
    "right": "the right answer",
    "refused": "no: refused, loudly and truthfully",
    "wrong": "nonsense, or a status that lies",
    "leaks": "a stranger's words came out",
    "hangs": "no answer, ever",
}
_COLOURS = {
    "right": COLOURS[1],
    "refused": FREE_COLOUR,
    "wrong": COLOURS[3],
    "leaks": COLOURS[5],
    "hangs": COLOURS[7],
}
_VERDICTS = tuple(LETTERS)
_LEFT, _RIGHT = "abcd", "efgh"


class Seen(Protocol):
    """One result; `verdict` is one of those in `MEANS`."""

    @property
    def guards(self) -> str:
        """Letters of the guards that were on."""

    @property
    def scenario(self) -> str:
        """Name of what was played."""

    @property
    def verdict(self) -> str:
        """What became of it."""


class MatrixMap(Picture):
    """Verdicts as a table of letters and as a figure. A notebook shows both."""


def one_guard_map(cells: Iterable[Seen], names: Mapping[str, str]) -> MatrixMap:
    """One row for each set of guards, one column for each scenario, both in the order in which they come.

    Args:
        cells: results; every set of guards with every scenario.
        names: what to call a guard, by letter.

    Raises:
        ValueError: if there is nothing to draw, or a result is missing.
    """
    found, rows, columns = _sorted(cells)
    titles = [_title(guards, names) for guards in rows]
    grid = [[found[guards, scenario] for scenario in columns] for guards in rows]
    return MatrixMap(_table(titles, columns, grid), _figure(titles, columns, grid), _text(titles, columns, grid))


def matrix_map(cells: Iterable[Seen]) -> MatrixMap:
    """All sets of guards: for each scenario a square, a to d down and e to h across.

    Args:
        cells: results of every set of the eight guards with every scenario.

    Raises:
        ValueError: if a result is missing.
    """
    found, _rows, scenarios = _sorted(cells)
    down, across = _subsets(_LEFT), _subsets(_RIGHT)
    titles = [f"{guards or 'none'}" for guards in down]
    heads = [guards or "none" for guards in across]
    grids = {name: [[found[left + right, name] for right in across] for left in down] for name in scenarios}
    counts = [[name, *(_count(grids[name], verdict) for verdict in _VERDICTS)] for name in scenarios]
    text = "\n\n".join(f"{name}\n{_square(titles, grids[name])}" for name in scenarios)
    return MatrixMap(_counts_table(counts), _squares(titles, heads, grids), f"{text}\n\n{_legend()}")


def _sorted(cells: Iterable[Seen]) -> tuple[dict[tuple[str, str], str], list[str], list[str]]:
    found: dict[tuple[str, str], str] = {}
    for cell in cells:
        if cell.verdict not in LETTERS:
            raise ValueError(f"{cell.verdict!r} is no verdict; there are {', '.join(LETTERS)}")
        found[cell.guards, cell.scenario] = cell.verdict
    if not found:
        raise ValueError("there is no result to draw; run the matrix first")
    rows = list(dict.fromkeys(guards for guards, _scenario in found))
    columns = list(dict.fromkeys(scenario for _guards, scenario in found))
    if missing := [(guards, name) for guards in rows for name in columns if (guards, name) not in found]:
        guards, name = missing[0]
        raise ValueError(f"there is no result for {name} with the guards {guards or 'none'}")
    return found, rows, columns


def _title(guards: str, names: Mapping[str, str]) -> str:
    if not guards:
        return "no guard: history"
    if guards in names:
        return f"{names[guards]} ({guards})"
    return f"{'guard' if len(guards) == 1 else 'guards'} {' and '.join(guards)}"


def _subsets(letters: str) -> list[str]:
    numbers = range(1 << len(letters))
    sets = ["".join(each for place, each in enumerate(letters) if number >> place & 1) for number in numbers]
    return sorted(sets, key=lambda each: (len(each), each))


def _legend() -> str:
    return ", ".join(f"{LETTERS[verdict]} {MEANS[verdict]}" for verdict in _VERDICTS)


def _count(grid: Sequence[Sequence[str]], verdict: str) -> int:
    return sum(row.count(verdict) for row in grid)


def _cell(verdict: str) -> str:
    colour = _COLOURS[verdict]
    return (
        f'<td style="background:{colour};color:{ink_on(colour)};text-align:center">'
        f"{LETTERS[verdict]} {escape(verdict)}</td>"
    )


def _table(titles: Sequence[str], columns: Sequence[str], grid: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape(title)}</th>{"".join(map(_cell, row))}</tr>'
        for title, row in zip(titles, grid, strict=True)
    )
    return (
        f'<table><caption style="text-align:left">What becomes of each scenario. {escape(_legend())}.</caption>'
        f'<thead><tr><th scope="col">guards on</th>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _counts_table(counts: Sequence[Sequence[object]]) -> str:
    head = "".join(f'<th scope="col">{LETTERS[verdict]} {escape(verdict)}</th>' for verdict in _VERDICTS)
    body = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape(str(name))}</th>'
        f"{''.join(f'<td>{number}</td>' for number in numbers)}</tr>"
        for name, *numbers in counts
    )
    return (
        f'<table><caption style="text-align:left">Sets of guards by what becomes of each scenario. '
        f'{escape(_legend())}.</caption><thead><tr><th scope="col">scenario</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _text(titles: Sequence[str], columns: Sequence[str], grid: Sequence[Sequence[str]]) -> str:
    wide = max(len(title) for title in titles)
    widths = [max(len(name), len("refused")) for name in columns]
    head = " " * wide + "  " + "  ".join(f"{name:<{width}}" for name, width in zip(columns, widths, strict=True))
    lines = [
        f"{title:<{wide}}  " + "  ".join(f"{verdict:<{width}}" for verdict, width in zip(row, widths, strict=True))
        for title, row in zip(titles, grid, strict=True)
    ]
    return "\n".join(line.rstrip() for line in (head, *lines))


def _square(titles: Sequence[str], grid: Sequence[Sequence[str]]) -> str:
    """Rows that look alike stand in one line, by the sets in it."""
    alike: dict[str, list[str]] = {}
    for title, row in zip(titles, grid, strict=True):
        alike.setdefault("    ".join(LETTERS[verdict] for verdict in row), []).append(title)
    lines = [" " * 14 + "".join(f"{guards or 'none':<5}" for guards in _subsets(_RIGHT)).rstrip()]
    for letters, sets in alike.items():
        who = "all sets" if len(sets) == len(titles) else sets[0] if len(sets) == 1 else f"{sets[0]} ... {sets[-1]}"
        lines.append(f"  {who:<12}{letters}")
    return "\n".join(lines)


def _heatmap(x: Sequence[str], y: Sequence[str], grid: Sequence[Sequence[str]], letters: int) -> go.Heatmap:
    import plotly.graph_objects as go

    return go.Heatmap(
        x=list(x),
        y=list(y),
        z=[[_VERDICTS.index(verdict) for verdict in row] for row in grid],
        text=[[LETTERS[verdict] for verdict in row] for row in grid],
        customdata=[[MEANS[verdict] for verdict in row] for row in grid],
        texttemplate="%{text}",
        textfont={"size": letters},
        hovertemplate="%{y}, %{x}: %{customdata}<extra></extra>",
        colorscale=bands([_COLOURS[verdict] for verdict in _VERDICTS]),
        zmin=0,
        zmax=len(_VERDICTS) - 1,
        showscale=False,
        xgap=1,
        ygap=1,
    )


def _figure(titles: Sequence[str], columns: Sequence[str], grid: Sequence[Sequence[str]]) -> go.Figure:
    import plotly.graph_objects as go

    quiet_toolbar()
    figure = go.Figure(_heatmap(columns, titles, grid, 13))
    figure.update_layout(
        template="none",
        title={"text": _legend(), "font": {"size": 12}},
        height=90 + 34 * len(titles),
        margin={"l": 330, "r": 20, "t": 70, "b": 20},
        plot_bgcolor="#444444",
    )
    figure.update_xaxes(side="top")
    figure.update_yaxes(autorange="reversed")
    return figure


def _squares(titles: Sequence[str], heads: Sequence[str], grids: Mapping[str, Sequence[Sequence[str]]]) -> go.Figure:
    from plotly.subplots import make_subplots

    quiet_toolbar()
    rows = -(-len(grids) // 2)
    figure = make_subplots(rows=rows, cols=2, subplot_titles=list(grids), vertical_spacing=0.09)
    for index, grid in enumerate(grids.values()):
        figure.add_trace(_heatmap(heads, titles, grid, 9), row=index // 2 + 1, col=index % 2 + 1)
    figure.update_layout(
        template="none",
        title={"text": f"Guards a to d down, e to h across. {_legend()}", "font": {"size": 12}},
        height=380 * rows,
        margin={"l": 60, "r": 20, "t": 80, "b": 50},
        plot_bgcolor="#444444",
    )
    figure.update_xaxes(tickfont={"size": 9}, tickangle=-90)
    figure.update_yaxes(autorange="reversed", tickfont={"size": 9}, type="category")
    figure.update_xaxes(type="category")
    return figure
