"""The window: between which lengths two nodes disagree, and what came of the lengths that were sent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from minikv.viz.columns import aligned
from minikv.viz.palette import COLOURS, NOBODY_COLOUR
from minikv.viz.picture import Picture
from minikv.viz.texts import marked

if TYPE_CHECKING:
    import plotly.graph_objects as go

SERVED, WINDOW, DECODE_REFUSES, REFUSED = "served", "window: leaks", "decode refuses", "refused by both"
# Colour, hatch. The colours are light enough for black letters, and differ in grey.
_STYLES = {
    SERVED: ("#FFFFFF", ""),
    WINDOW: (COLOURS[0], "x"),
    DECODE_REFUSES: (COLOURS[1], "/"),
    REFUSED: (NOBODY_COLOUR, "."),
}
_LINE, _SENT = 1.0, 0.0  # heights in the figure
_LIMIT_HEIGHTS = (1.62, 2.02, 2.42)
_STAGGER = (0.0, -0.34, -0.68)  # heights of lengths that stand close to each other


@dataclass(frozen=True)
class Doors:
    """From how many tokens on each part of a server refuses a prompt."""

    prefill: int
    decode: int
    context: int

    @property
    def both(self) -> int:
        """From here on the decode node, or the door before both, refuses too."""
        return min(self.decode, self.context)

    @property
    def window(self) -> range:
        """Lengths that prefill refuses and decode does not; empty if there are none."""
        return range(self.prefill, self.both)

    def zones(self) -> list[tuple[str, int, int | None]]:
        """Zones from 1 on: name, first length, and the first length behind it; the last one has no end."""
        lower, upper = sorted((self.prefill, self.both))
        middle = WINDOW if self.prefill < self.both else DECODE_REFUSES
        found: list[tuple[str, int, int | None]] = [(SERVED, 1, lower), (middle, lower, upper), (REFUSED, upper, None)]
        return [zone for zone in found if zone[2] is None or zone[1] < zone[2]]

    def zone(self, length: int) -> str:
        """In which zone a length is."""
        return next(name for name, _first, stop in self.zones() if stop is None or length < stop)


@dataclass(frozen=True)
class Sent:
    """A prompt that was sent, and what came of it.

    Attributes:
        tokens: its length.
        status: as its client got it.
        text: the answer, or the error in words.
        reserved, written: pages on the decode node.
        read: slots that the first step on the decode node read.
        foreign: how many of these others had written, by tenant.
    """

    tokens: int
    status: int
    text: str
    reserved: int = 0
    written: int = 0
    read: int = 0
    foreign: Mapping[str, int] = field(default_factory=dict)

    def said(self) -> str:
        """The counts in a sentence or two."""
        if not self.read:
            return f"Status {self.status}. Nothing was reserved, written or read."
        foreign = ", ".join(f"{slots:,} written by {name}" for name, slots in self.foreign.items())
        return (
            f"Status {self.status}. {self.reserved} pages reserved, {self.written} written. The first step read "
            f"{self.read:,} slots, {foreign or 'all its own'}."
        )


class WindowLine(Picture):
    """The line of lengths and what was sent, as tables and as a figure. A notebook shows both."""


def window_line(doors: Doors, sent: Sequence[Sent] = (), *, texts: Mapping[str, str] | None = None) -> WindowLine:
    """Draw which lengths are served, leak and are refused, and mark those that were sent.

    Args:
        doors: the limits.
        sent: prompts that were sent; no length twice.
        texts: of tenants, by name. What an answer shares with them is marked.

    Raises:
        ValueError: if a limit or a length is no place on the line.
    """
    lengths = [one.tokens for one in sent]
    if min([doors.prefill, doors.decode, doors.context, *lengths]) < 1:
        raise ValueError("limits and lengths are 1 token or more")
    if len(set(lengths)) < len(lengths):
        raise ValueError(f"a length was sent twice: {sorted(lengths)}; what it came to belongs in one row")
    zones, answers = _zone_rows(doors, lengths), [_answer_row(doors, one, texts or {}) for one in sent]
    tables = _table(_caption(doors), _ZONES_HEAD, [[escape(cell) for cell in row] for row in zones])
    text = _lines(_caption(doors), _ZONES_HEAD, zones)
    if answers:
        said = _answers_caption(texts or {})
        tables += _table(said, _ANSWERS_HEAD, [[*map(escape, row[:-2]), row[-2]] for row in answers])
        text += "\n\n" + _lines(said, _ANSWERS_HEAD, [[*row[:-2], row[-1]] for row in answers])
    return WindowLine(tables, figure_of(doors, lengths), text)


_ZONES_HEAD = ("prompt tokens", "prefill", "decode", "the client gets", "sent")
_ANSWERS_HEAD = ("tokens", "zone", "status", "reserved", "written", "read", "of others", "answer")
_SAY = {
    SERVED: ("serves", "serves", "200 and an answer"),
    WINDOW: ("refuses", "serves", "200 and what lies in the pages"),
    DECODE_REFUSES: ("serves", "refuses", "400"),
    REFUSED: ("refuses", "refuses", "400"),
}


def _caption(doors: Doors) -> str:
    window = doors.window
    between = f"The window is {window.start:,} to {window.stop - 1:,}." if window else "There is no window."
    return f"Prefill refuses from {doors.prefill:,} tokens on, decode from {doors.both:,} on. {between}"


def _answers_caption(texts: Mapping[str, str]) -> str:
    marks = f" In brackets: three words or more in a row that also stand in a text of {' or '.join(texts)}." * bool(
        texts
    )
    return f"What was sent: pages reserved and written, and slots read in the first step on decode.{marks}"


def _zone_rows(doors: Doors, lengths: Sequence[int]) -> list[list[str]]:
    rows = []
    for name, first, stop in doors.zones():
        span = f"{first:,} and more" if stop is None else f"{first:,} to {stop - 1:,}"
        count = sum(doors.zone(length) == name for length in lengths)
        rows.append([span, *_SAY[name], f"{count}"])
    return rows


def _answer_row(doors: Doors, one: Sent, texts: Mapping[str, str]) -> list[str]:
    counts = [f"{one.tokens:,}", doors.zone(one.tokens), f"{one.status}", f"{one.reserved}", f"{one.written}"]
    return [*counts, f"{one.read:,}", f"{sum(one.foreign.values()):,}", *marked(one.text, texts)]


def _table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heads = "".join(f'<th scope="col">{name}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row">{first}</th>'
        + "".join(f'<td style="text-align:left;white-space:normal;max-width:30em">{cell}</td>' for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<table><caption style="text-align:left">{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    )


def _lines(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, *rows]
    return "\n".join([caption, *aligned(lines)])


def _at(length: float) -> float:
    """Place of a length on the line: each doubling is as wide as the one before."""
    return round(math.log2(length), 4)


def figure_of(doors: Doors, lengths: Sequence[int]) -> go.Figure:
    """The line with its zones and limits, and a mark with a number for each length."""
    import plotly.graph_objects as go

    from minikv.viz.style import quiet_toolbar

    quiet_toolbar()
    everything = [doors.prefill, doors.both, doors.context, *lengths]
    left, right = max(0, int(_at(min(everything))) - 2), math.ceil(_at(max(everything) * 1.5))
    figure = go.Figure(data=[*_zone_bars(doors, left, right), *_limits(doors), *_marks(lengths)])
    ticks = range(left, right + 1)
    figure.update_layout(
        template="none",
        title={"text": _caption(doors), "font": {"size": 13}, "x": 0.02},
        height=330,
        margin={"l": 80, "r": 20, "t": 50, "b": 50},
        barmode="overlay",
        showlegend=False,
        xaxis={
            "title": {"text": "tokens of the prompt"},
            "range": [left, right],
            "tickvals": list(ticks),
            "ticktext": [f"{2**tick:,}" for tick in ticks],
        },
        yaxis={"range": [-1.1, 2.9], "tickvals": [_SENT, _LINE], "ticktext": ["sent", "lengths"], "showgrid": False},
    )
    return figure


def _zone_bars(doors: Doors, left: int, right: int) -> list[Any]:
    import plotly.graph_objects as go

    bars = []
    for name, first, stop in doors.zones():
        start, end = max(left, _at(max(1, first - 0.5))), right if stop is None else _at(stop - 0.5)
        colour, hatch = _STYLES[name]
        bars.append(
            go.Bar(
                orientation="h",
                y=[_LINE],
                base=[start],
                x=[round(end - start, 4)],
                width=0.7,
                text=[name],
                textposition="inside",
                insidetextanchor="middle",
                textfont={"color": "#000000", "size": 13},
                marker={
                    "color": colour,
                    "line": {"color": "#000000", "width": 1},
                    "pattern": {"shape": hatch, "bgcolor": colour, "fgcolor": "#555555", "size": 9, "solidity": 0.12},
                },
                hoverinfo="skip",
            )
        )
    return bars


def _limits(doors: Doors) -> list[Any]:
    import plotly.graph_objects as go

    limits = [
        ("prefill refuses from", doors.prefill),
        ("decode refuses from", doors.decode),
        ("context", doors.context),
    ]
    x, y = list[Any](), list[Any]()
    for (_name, length), height in zip(limits, _LIMIT_HEIGHTS, strict=True):
        x += [_at(length - 0.5)] * 2 + [None]
        y += [1.35, height, None]
    line = {"color": "#000000", "width": 1, "dash": "dot"}
    return [
        go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip"),
        go.Scatter(
            x=[_at(length - 0.5) for _name, length in limits],
            y=list(_LIMIT_HEIGHTS),
            text=[f"{name} {length:,}" for name, length in limits],
            mode="text",
            textposition=["top center", "top left", "top center"],
            hoverinfo="skip",
        ),
    ]


def _marks(lengths: Sequence[int]) -> list[Any]:
    import plotly.graph_objects as go

    heights = [_STAGGER[place % len(_STAGGER)] for place in range(len(lengths))]
    return [
        go.Scatter(
            x=[_at(length) for length in lengths],
            y=heights,
            text=[f" {length:,}" for length in lengths],
            mode="markers+text",
            textposition="middle right",
            marker={"symbol": "diamond", "size": 11, "color": "#000000"},
            hoverinfo="skip",
        )
    ]
