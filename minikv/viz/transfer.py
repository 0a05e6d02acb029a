"""The transfer map: two pools, an arrow, and under it three numbers of tokens: expected, promised, received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from minikv.viz.palette import COLOURS, FREE, FREE_COLOUR, NOBODY, NOBODY_COLOUR, ink_on
from minikv.viz.picture import Picture

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_FRAMES = 40
MAX_PAGES = 64  # of one pool in the figure
SAME, DIFFERENT = "=", "X"
SENT, CAME, EMPTY = "S", "C", NOBODY
COUNTERS = ("expected", "promised", "received")
_COLOURS = {SENT: COLOURS[0], CAME: COLOURS[1], EMPTY: NOBODY_COLOUR, FREE: FREE_COLOUR}
_EQUAL_COLOUR, _UNEQUAL_COLOUR = COLOURS[2], COLOURS[5]
_MEANS = {
    SENT: "sent from here",
    CAME: "reserved, and a page came for it",
    EMPTY: "reserved, and nothing came",
    FREE: "has to do with other requests or with none",
}
_PREFILL_COLUMNS, _DECODE_COLUMNS, _DECODE_FROM = 4, 8, 8


@dataclass(frozen=True)
class Transfer:
    """One handoff, as the receiving node met it.

    Attributes:
        request: its number.
        expected: tokens that the door wrote down.
        promised: tokens that the sender says it wrote.
        received: how many of these have slots in every layer.
        sent, reserved: page numbers, of the prefill node and of the decode node.
        came: pages that came for the reserved ones.
        taken: whether the receiver took it.
        why: what it said if not.
    """

    request: int
    expected: int
    promised: int
    received: int
    sent: tuple[int, ...]
    reserved: tuple[int, ...]
    came: int
    taken: bool
    why: str = ""

    @property
    def mark(self) -> str:
        """ "=" if all three numbers of tokens are equal, else "X"."""
        return SAME if self.expected == self.promised == self.received else DIFFERENT

    @property
    def verdict(self) -> str:
        """ "taken" or "refused"."""
        return "taken" if self.taken else "refused"


class TransferMap(Picture):
    """Handoffs as a table and as a figure with a slider. A notebook shows both; `text` is the table in letters."""


def transfer_map(transfers: Transfer | Sequence[Transfer], pools: tuple[int, int]) -> TransferMap:
    """Draw what went from a prefill node to a decode node.

    Args:
        transfers: the handoffs, oldest first.
        pools: pages of the prefill pool and of the decode pool.

    Raises:
        ValueError: if there is nothing to draw.
    """
    shown = [transfers] if isinstance(transfers, Transfer) else list(transfers)[-MAX_FRAMES:]
    if not shown:
        raise ValueError("no handoff was delivered; run something first")
    return TransferMap(_table(shown), _figure(shown, pools), _text(shown))


HEAD = ("request", "prefill pages", "decode pages", *COUNTERS, "equal", "receiver")


def _cells(one: Transfer) -> list[str]:
    came = [str(page) if place < one.came else f"({page})" for place, page in enumerate(one.reserved)]
    sent = " ".join(map(str, one.sent)) or NOBODY
    counts = (one.expected, one.promised, one.received)
    return [str(one.request), sent, " ".join(came) or NOBODY, *(f"{n:,}" for n in counts), one.mark, one.verdict]


def _caption(shown: Sequence[Transfer]) -> str:
    said = (
        f'Each row is one handoff. Three numbers of tokens: "{SAME}" if they are equal, "{DIFFERENT}" if not. '
        "Pages stand in the order of their tokens."
    )
    if any(one.came < len(one.reserved) for one in shown):
        said += " A page in brackets was reserved, and nothing came for it."
    return said


def _table(shown: Sequence[Transfer]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in HEAD)
    body = ""
    for one in shown:
        first, *cells = _cells(one)
        colours = dict.fromkeys(HEAD, FREE_COLOUR)
        colours["equal"] = _EQUAL_COLOUR if one.mark == SAME else _UNEQUAL_COLOUR
        row = "".join(
            f'<td style="background:{colours[name]};color:{ink_on(colours[name])};text-align:center">'
            f"{escape(cell)}</td>"
            for name, cell in zip(HEAD[1:], cells, strict=True)
        )
        body += f'<tr><th scope="row">{escape(first)}</th>{row}</tr>'
    caption = escape(_caption(shown))
    return (
        f'<table><caption style="text-align:left">{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _text(shown: Sequence[Transfer]) -> str:
    rows = [list(HEAD), *map(_cells, shown)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([_caption(shown), *lines])


def _title(one: Transfer) -> str:
    equal = "all equal" if one.mark == SAME else f"{DIFFERENT}: not equal"
    return (
        f"request {one.request}: {one.expected:,} expected, {one.promised:,} promised, {one.received:,} received, "
        f"{equal}, {one.verdict}"
    )


def _figure(shown: Sequence[Transfer], pools: tuple[int, int]) -> go.Figure:
    import plotly.graph_objects as go

    from minikv.viz.style import quiet_toolbar, slider_steps

    quiet_toolbar()
    most = max(1, *(max(one.expected, one.promised, one.received) for one in shown))
    frames = [
        go.Frame(name=str(index), data=_drawn(one, pools), layout={"title": {"text": _title(one)}})
        for index, one in enumerate(shown)
    ]
    steps = slider_steps((str(one.request) for one in shown), transition={"duration": 0})
    told = _most_telling(shown)
    several = len(frames) > 1
    figure = go.Figure(data=frames[told].data, frames=frames if several else [])
    rows = max(-(-len(pages) // per_row) for pages, per_row in _pools(shown[told], pools))
    arrow = {"x": _DECODE_FROM - 0.9, "ax": _PREFILL_COLUMNS - 0.1, "y": 0, "ay": 0, "axref": "x", "ayref": "y"}
    legend = f"{SENT} sent, {CAME} came, {EMPTY} reserved and nothing came, {FREE} not of this request"
    figure.update_layout(
        template="none",
        title={"text": _title(shown[told]), "font": {"size": 13}, "x": 0.02},
        height=260 + 30 * rows + (100 if several else 0),
        margin={"l": 80, "r": 20, "t": 50, "b": 20},
        showlegend=False,
        xaxis={"domain": [0, 1], "range": [-0.7, _DECODE_FROM + _DECODE_COLUMNS - 0.3], "visible": False},
        yaxis={"domain": [0.42, 1], "range": [rows - 0.2, -1.6], "visible": False},
        xaxis2={"domain": [0, 1], "range": [0, most * 1.15], "anchor": "y2", "title": {"text": "tokens"}},
        yaxis2={"domain": [0, 0.3], "anchor": "x2", "type": "category", "autorange": "reversed"},
        annotations=[
            {**arrow, "showarrow": True, "arrowhead": 2, "arrowwidth": 2, "text": ""},
            _words(_PREFILL_COLUMNS / 2 - 0.5, "prefill"),
            _words(_DECODE_FROM + _DECODE_COLUMNS / 2 - 0.5, "decode"),
            {
                "x": 0,
                "y": 0.36,
                "xref": "paper",
                "yref": "paper",
                "xanchor": "left",
                "showarrow": False,
                "text": legend,
            },
        ],
    )
    if several:
        slider = {"active": told, "steps": steps, "currentvalue": {"prefix": "request "}, "pad": {"t": 45}}
        figure.update_layout(sliders=[slider])
    return figure


def _most_telling(shown: Sequence[Transfer]) -> int:
    """The last handoff whose numbers differ, else the last that was refused, else the last."""
    for odd in (lambda one: one.mark == DIFFERENT, lambda one: not one.taken):
        if found := [index for index, one in enumerate(shown) if odd(one)]:
            return found[-1]
    return len(shown) - 1


def _words(x: float, text: str) -> dict[str, Any]:
    return {"x": x, "y": -1.1, "text": text, "showarrow": False, "font": {"size": 14}}


def _pools(one: Transfer, pools: tuple[int, int]) -> list[tuple[list[int], int]]:
    """Pages to draw of both pools, and how many stand in a row."""
    return [
        (_some(pools[0], one.sent), _PREFILL_COLUMNS),
        (_some(pools[1], one.reserved), _DECODE_COLUMNS),
    ]


def _some(total: int, wanted: Sequence[int]) -> list[int]:
    return list(range(total)) if total <= MAX_PAGES else sorted(wanted)[:MAX_PAGES]


def _drawn(one: Transfer, pools: tuple[int, int]) -> list[Any]:
    import plotly.graph_objects as go

    states = [
        dict.fromkeys(one.sent, SENT),
        {page: CAME if place < one.came else EMPTY for place, page in enumerate(one.reserved)},
    ]
    traces: list[Any] = []
    for (pages, per_row), state, left in zip(_pools(one, pools), states, (0, _DECODE_FROM), strict=True):
        letters = [state.get(page, FREE) for page in pages]
        traces.append(
            go.Scatter(
                x=[left + place % per_row for place in range(len(pages))],
                y=[place // per_row for place in range(len(pages))],
                mode="markers+text",
                marker={
                    "symbol": "square",
                    "size": 20,
                    "color": [_COLOURS[letter] for letter in letters],
                    "line": {"color": "#666666", "width": 1},
                },
                text=letters,
                hovertext=[f"page {page}: {_MEANS[letter]}" for page, letter in zip(pages, letters, strict=True)],
                hoverinfo="text",
            )
        )
    counts = (one.expected, one.promised, one.received)
    short = [count != one.expected for count in counts]
    traces.append(
        go.Bar(
            x=list(counts),
            y=list(COUNTERS),
            orientation="h",
            xaxis="x2",
            yaxis="y2",
            marker={
                "color": [_UNEQUAL_COLOUR if other else _EQUAL_COLOUR for other in short],
                "pattern": {"shape": ["/" if other else "" for other in short]},
            },
            text=[f"{count:,} {DIFFERENT if other else SAME}" for count, other in zip(counts, short, strict=True)],
            textposition="outside",
            hoverinfo="skip",
        )
    )
    return traces
