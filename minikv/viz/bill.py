"""The memory bill: what the weights take, what keys and values take, what was promised and what fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from minikv.viz.palette import COLOURS
from minikv.viz.picture import Picture

if TYPE_CHECKING:
    import plotly.graph_objects as go

GIB = 2**30
ORANGE, SKY, GREEN, _YELLOW, BLUE, RED, _PINK, GREY = COLOURS
_DASHES = ("solid", "dash", "dashdot", "dot")


class Bill(Picture):
    """A bill as a table and as a figure, from the same numbers. A notebook shows both.

    Attributes:
        table: HTML, one column for each number of users.
        figure: gibibytes over tokens. W is the weights, R what the card has left, C the advertised context,
            M what the memory holds; the strip between C and M is hatched if more is promised than fits.
        text: the table in plain letters.
    """


def bill(
    name: str,
    *,
    token_bytes: float,
    weight_bytes: int,
    context: int,
    card_bytes: int | None = None,
    fits: int | None = None,
    users: Sequence[int] = (1,),
    piece: int = 1,
) -> Bill:
    """Draw what a model's keys and values cost beside its weights.

    Args:
        token_bytes: of one token's keys and values, in all layers.
        context: the most tokens that each user was promised.
        card_bytes: memory of the card. Without it there is no R and no M.
        fits: tokens that the memory holds, of all users together; by default whatever is left, divided.
        users: a line and a column for each of these numbers of users at once.
        piece: memory is given out in pieces of so many tokens, and nobody gets a part of one.

    Raises:
        ValueError: if there is no user, something that has a size has none, or a size is too extreme to be drawn.
    """
    if not users or min(*users, piece, context) < 1 or not token_bytes > 0 or not weight_bytes >= 0:
        raise ValueError("a bill needs at least one user, and sizes above zero")
    try:
        given = None if fits is None else int(fits)  # whatever kind of number a learner's function gives
        token, weights = float(token_bytes), int(weight_bytes)
        sizes = _Sizes(name, token, weights, int(context), card_bytes, given, tuple(users), piece)
        if not math.isfinite(_top(sizes)):
            raise OverflowError
        return Bill(_table(sizes), _figure(sizes), _text(sizes))
    except OverflowError:
        raise ValueError("these sizes are too large, or too far apart, to be drawn") from None


@dataclass(frozen=True)
class _Sizes:
    name: str
    token: float
    weights: int
    context: int
    card: int | None
    given: int | None
    users: tuple[int, ...]
    piece: int

    @property
    def room(self) -> int | None:
        """Bytes that the card has left for keys and values."""
        return None if self.card is None else max(0, self.card - self.weights)

    def fits(self, users: int) -> int | None:
        """Tokens of each user that the memory holds."""
        held = self.given
        if held is None and self.room is not None:
            held = int(self.room // self.token)
        return None if held is None else held // self.piece // users * self.piece

    def gap(self, users: int) -> int:
        """Tokens that each user was promised and that do not fit."""
        fits = self.fits(users)
        return 0 if fits is None else max(0, self.context - fits)

    def crossing(self, users: int) -> int:
        """The first number of tokens of each user at which keys and values outweigh the weights."""
        return int(self.weights // (self.token * users)) + 1

    def rows(self) -> list[tuple[str, list[str]]]:
        """Rows of the table: name and one cell for each number of users."""
        some = self.users
        rows = [
            ("weights", [_gib(self.weights) for _ in some]),
            ("one token", [f"{self.token:,.0f} bytes" for _ in some]),
            ("advertised context", [f"{self.context:,} tokens" for _ in some]),
            ("keys and values at that context", [_gib(self.token * self.context * n) for n in some]),
            ("more than the weights from", [f"{self.crossing(n):,} tokens" for n in some]),
        ]
        if self.card is not None and self.room is not None:
            rows += [
                ("card", [_gib(self.card) for _ in some]),
                ("left for keys and values", [_gib(self.room) for _ in some]),
            ]
        if self.given is not None or self.room is not None:
            rows += [
                ("the memory holds", [f"{self.fits(n):,} tokens" for n in some]),
                ("promised and not there", [f"{self.gap(n):,} tokens" for n in some]),
            ]
        return rows

    def heads(self) -> list[str]:
        return ["1 user" if n == 1 else f"each of {n} users" for n in self.users]

    def caption(self) -> str:
        who = "K keys and values, W weights, C advertised context"
        if self.card is not None:
            who += ", R left on the card, M the memory holds"
        return f"{self.name}: the memory bill. In the figure: {who}."


def _gib(size: float) -> str:
    return f"{size / GIB:,.2f} GiB"


def _table(sizes: _Sizes) -> str:
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in sizes.heads())
    body = ""
    for name, cells in sizes.rows():
        row = "".join(f'<td style="text-align:right">{escape(cell)}</td>' for cell in cells)
        body += f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>{row}</tr>'
    return (
        f'<table><caption style="text-align:left">{escape(sizes.caption())}</caption>'
        f'<thead><tr><th scope="col">row</th>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _text(sizes: _Sizes) -> str:
    rows = [("", sizes.heads()), *sizes.rows()]
    first = max(len(name) for name, _cells in rows)
    widths = [max(len(cells[i]) for _name, cells in rows) for i in range(len(sizes.users))]
    lines = [sizes.caption()]
    for name, cells in rows:
        lines.append(name.ljust(first) + "".join(f"  {c:>{w}}" for c, w in zip(cells, widths, strict=True)))
    return "\n".join(lines)


def _figure(sizes: _Sizes) -> go.Figure:
    import plotly.graph_objects as go

    from minikv.viz.style import quiet_toolbar

    quiet_toolbar()
    figure = go.Figure(data=traces(sizes))
    figure.update_layout(**layout(sizes))
    return figure


def _right_edge(sizes: _Sizes) -> int:
    """Far enough for both marks and for a crossing that is not far behind the context."""
    near = [sizes.context]
    seen = [*(sizes.fits(n) for n in sizes.users), *(sizes.crossing(n) for n in sizes.users)]
    near += [place for place in seen if place is not None and place <= 2 * sizes.context]
    return max(near) * 115 // 100 + 1


def _top(sizes: _Sizes) -> float:
    high = [sizes.weights, sizes.room or 0, *(sizes.token * sizes.context * n for n in sizes.users)]
    return max(high) / GIB * 1.2


def traces(sizes: _Sizes) -> list[Any]:
    """The strip, the flat lines, the slopes and the upright marks: as many for every bill with as many users."""
    edge, top, most = _right_edge(sizes), _top(sizes), max(sizes.users)
    fits, gap = sizes.fits(most), sizes.gap(most)
    low, high = ((fits or 0), sizes.context) if gap else (0, 0)
    drawn = [
        {
            "name": f"promised and not there: {gap:,} tokens",
            "x": [low, high, high, low] if gap else [],
            "y": [0, 0, top, top] if gap else [],
            "mode": "none",
            "fill": "toself",
            "fillcolor": "rgba(0,0,0,0)",
            "fillpattern": {"shape": "/", "fgcolor": RED, "size": 9},
        },
        _line("W", "weights", [0, edge], [sizes.weights / GIB] * 2, "#000000", "dash"),
    ]
    for index, n in enumerate(sizes.users):
        end = min(edge, int(top * GIB / (sizes.token * n)))  # inside the picture, so that its letter is seen
        letter, who = ("K", "1 user") if n == 1 else (f"K×{n}", f"{n} users")
        cache = [0, sizes.token * end * n / GIB]
        drawn.append(_line(letter, f"keys and values, {who}", [0, end], cache, BLUE, _DASHES[index % 4]))
    room, is_there = (sizes.room or 0) / GIB, sizes.room is not None
    drawn += [
        _line("R", "left on the card", [0, edge] if is_there else [], [room] * 2 if is_there else [], GREY, "dot"),
        _mark("C", "advertised context", sizes.context, top, "#000000", "right"),
        _mark("M", "the memory holds", fits, top, RED, "left"),
    ]
    return drawn


def _line(letter: str, name: str, x: list[int], y: list[float], colour: str, dash: str) -> dict[str, Any]:
    return {
        "name": f"{letter} {name}".strip(),
        "x": x,
        "y": y,
        "mode": "lines+text",
        "text": ["", letter] if x else [],
        "textposition": "bottom left",
        "textfont": {"size": 15},
        "line": {"color": colour, "dash": dash, "width": 3},
    }


def _mark(letter: str, name: str, place: int | None, top: float, colour: str, side: str) -> dict[str, Any]:
    x = [] if place is None else [place, place]
    mark = _line(letter, f"{name}: {place:,}" if place is not None else name, x, [0, top] if x else [], colour, "solid")
    return {**mark, "textposition": f"bottom {side}", "line": {**mark["line"], "width": 2}}


def layout(sizes: _Sizes) -> dict[str, Any]:
    """Title, axes and legend."""
    who = ", ".join("1 user" if n == 1 else f"{n} users" for n in sizes.users)
    return {
        "template": "none",
        "title": {"text": f"{sizes.name}, {who}", "font": {"size": 14}},
        "height": 420,
        "margin": {"l": 60, "r": 20, "t": 45, "b": 50},
        "xaxis": {"title": {"text": "tokens of each user"}, "range": [0, _right_edge(sizes)]},
        "yaxis": {"title": {"text": "GiB"}, "range": [0, _top(sizes)]},
        "legend": {"orientation": "h", "y": -0.22},
        "hovermode": "closest",
        "annotations": _said(sizes),
    }


def _said(sizes: _Sizes) -> list[dict[str, Any]]:
    """What is written across the strip; nothing if there is none."""
    most = max(sizes.users)
    fits, gap = sizes.fits(most), sizes.gap(most)
    if fits is None or not gap:
        return []
    text = f"promised and not there<br>{gap:,} tokens"
    middle, height = (fits + sizes.context) / 2, _top(sizes) / 4
    return [{"x": middle, "y": height, "text": text, "showarrow": False, "bgcolor": "#FFFFFF", "borderpad": 3}]
