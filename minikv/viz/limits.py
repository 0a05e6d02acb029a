"""The line of lengths: where a door serves, lets wait and refuses, at each moment of a run, and what was ever sent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

from minikv.viz.columns import aligned
from minikv.viz.palette import COLOURS, NOBODY_COLOUR, ink_on
from minikv.viz.picture import Picture

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Word: colour, hatch. The colours are light enough for black letters and hatches, and differ in grey.
_STYLES = {"serve": ("#FFFFFF", ""), "wait": (COLOURS[1], "/"), "refuse": (COLOURS[0], "x"), "?": (NOBODY_COLOUR, ".")}
_WHO = "who has tested here?"
_DOOR, _SENT = 1.0, 0.0  # heights in the figure
_HEIGHTS = (1.62, 2.02, 1.62)  # of the limits: the second above the first, which may be close to it
_SHORTEST = 2  # one token in, one out


@dataclass(frozen=True)
class Asked:
    """What a door said at one moment.

    Attributes:
        step: of the server.
        free: slots that nobody held then.
        words: its answer to a request of 2, 3, 4, ... tokens, prompt and answer together.
    """

    step: int
    free: int
    words: tuple[str, ...]


class LimitLine(Picture):
    """A line of lengths as a table and as a figure. A notebook shows both.

    Attributes:
        table: HTML, of the most telling moment: all answers in it, and few free slots.
        figure: all moments, with a slider.
        text: the table in plain letters.
    """


def limit_line(asked: Sequence[Asked], *, pool: int, context: int, sent: Iterable[int] = ()) -> LimitLine:
    """Draw what a door says to every length.

    Args:
        asked: its answers, moment by moment.
        pool: slots of the server.
        context: most positions of one request.
        sent: lengths, prompt and answer together, of requests that were really sent.

    Raises:
        ValueError: if nothing was asked, or not about as many lengths at each moment, or a number has no place on
            the line.
    """
    if not asked or not asked[0].words or len({len(each.words) for each in asked}) > 1:
        raise ValueError("ask about the same lengths at each moment, and about one at least")
    lengths = sorted(sent)
    if lengths and not lengths[0] >= 1:
        raise ValueError(f"a request that was sent has a length of 1 or more, not {lengths[0]}")
    if least := next((each.free for each in asked if not each.free >= 0), None):
        raise ValueError(f"free slots are 0 or more, not {least}")
    if not (pool >= 0 and context >= 1):
        raise ValueError(f"a pool has 0 slots or more and a context 1 token or more, not {pool} and {context}")
    told = min(asked, key=lambda each: (-len(set(each.words)), each.free))
    rows = _rows(told, pool, context, lengths)
    caption = f"Step {told.step}: {told.free} of {pool} slots free, context {context}. Length is prompt and answer."
    return LimitLine(
        table=_table(caption, rows),
        figure=_figure(asked, asked.index(told), pool, context, lengths),
        text=_text(caption, rows),
    )


_HEAD = ("lengths", "they", "the door says", "sent")


def _limits(free: int, pool: int, context: int) -> list[tuple[str, int]]:
    """Longest length that keeps each limit, from the smallest; one more than slots, as the last token needs none."""
    lasting = [("pool", pool + 1), ("context", context)]
    return [("free now", free + 1), *sorted(lasting, key=lambda each: each[1])]


def _rows(told: Asked, pool: int, context: int, sent: Sequence[int]) -> list[tuple[str, str, str, str]]:
    (_, free), (first, lower), (second, upper) = _limits(told.free, pool, context)
    free, longest = min(free, lower), len(told.words) + _SHORTEST - 1
    borders = [_SHORTEST - 1, free, lower, upper, longest]
    they = (
        "fit what is free now",
        f"fit the {first} when it is free" if first == "pool" else "fit the context",
        f"fit the {second}, not the {first}",
        f"fit neither {first} nor {second}",
    )
    rows = []
    for index, what in enumerate(they):
        start, stop = (max(min(borders[at], longest), _SHORTEST - 1) for at in (index, index + 1))
        if start >= stop:
            continue
        tried = sum(start < length <= stop for length in sent)
        if index == 3:  # what is longer than the line belongs to its end
            tried = sum(start < length for length in sent)
        count = f"{tried}" if tried or index != 2 else f"0: {_WHO}"
        rows.append(
            (_span(start + 1, stop), what, _said(told.words[start - _SHORTEST + 1 : stop - _SHORTEST + 1]), count)
        )
    return rows


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _said(words: Sequence[str]) -> str:
    """One word, or how many of each: "wait 3, refuse 1"."""
    counts = {word: words.count(word) for word in dict.fromkeys(words)}
    return next(iter(counts)) if len(counts) == 1 else ", ".join(f"{word} {count}" for word, count in counts.items())


def _table(caption: str, rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in _HEAD)
    body = ""
    for lengths, they, said, count in rows:
        colour = _STYLES.get(said, _STYLES["?"])[0]
        style = f"background:{colour};color:{ink_on(colour)}"
        body += (
            f'<tr><th scope="row">{lengths}</th><td style="text-align:left">{escape(they)}</td>'
            f'<td style="{style}">{escape(said)}</td><td>{escape(count)}</td></tr>'
        )
    return (
        f'<table><caption style="text-align:left">{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _text(caption: str, rows: Sequence[tuple[str, ...]]) -> str:
    lines = [_HEAD, *rows]
    return "\n".join([caption, *aligned(lines)])


def _at(length: float) -> float:
    """Place of a length on the line: each doubling is as wide as the one before."""
    return round(math.log2(length), 4)


def _figure(asked: Sequence[Asked], active: int, pool: int, context: int, sent: Sequence[int]) -> go.Figure:
    import plotly.graph_objects as go

    from minikv.viz.style import quiet_toolbar, slider_steps

    quiet_toolbar()
    frames = [
        go.Frame(
            name=str(index),
            data=_traces(moment, pool, context, sent),
            layout={"title": {"text": _title(moment, pool)}},
        )
        for index, moment in enumerate(asked)
    ]
    steps = slider_steps(str(moment.step) for moment in asked)
    longest = len(asked[0].words) + _SHORTEST - 1
    ticks = [2**power for power in range(1, longest.bit_length())]
    figure = go.Figure(data=frames[active].data, frames=frames)
    figure.update_layout(
        template="none",
        title={"text": _title(asked[active], pool), "font": {"size": 14}},
        height=330,
        margin={"l": 90, "r": 20, "t": 60, "b": 20},
        barmode="overlay",
        showlegend=False,
        xaxis={
            "title": {"text": "tokens, prompt and answer together"},
            "range": [_at(1), _at(longest + 0.5)],
            "tickvals": [_at(tick) for tick in ticks],
            "ticktext": [str(tick) for tick in ticks],
        },
        yaxis={"range": [-0.6, 2.45], "tickvals": [_SENT, _DOOR], "ticktext": ["sent", "the door"], "showgrid": False},
        sliders=[{"active": active, "steps": steps, "currentvalue": {"prefix": "step "}, "pad": {"t": 45}}],
    )
    return figure


def _title(moment: Asked, pool: int) -> str:
    return f"step {moment.step}: {moment.free} of {pool} slots free"


def _traces(moment: Asked, pool: int, context: int, sent: Sequence[int]) -> list[Any]:
    import plotly.graph_objects as go

    traces: list[Any] = []
    zones = _zones(moment.words)
    for word, (colour, hatch) in _STYLES.items():
        own = [(start, stop) for start, stop, said in zones if (said if said in _STYLES else "?") == word]
        traces.append(
            go.Bar(
                orientation="h",
                y=[_DOOR] * len(own),
                base=[_at(start - 0.5) for start, _stop in own],
                x=[round(_at(stop + 0.5) - _at(start - 0.5), 4) for start, stop in own],
                width=0.7,
                text=[word] * len(own),
                textposition="inside",
                insidetextanchor="middle",
                textfont={"color": "#000000", "size": 13},
                marker={
                    "color": colour,
                    "line": {"color": "#000000", "width": 1},
                    "pattern": {"shape": hatch, "bgcolor": colour, "fgcolor": "#555555", "size": 9, "solidity": 0.12},
                },
                hovertext=[f"{word}: {_span(start, stop)}" for start, stop in own],
                hoverinfo="text",
            )
        )
    limits = _limits(moment.free, pool, context)
    x, y = list[Any](), list[Any]()
    for (_name, longest), height in zip(limits, _HEIGHTS, strict=True):
        x += [_at(longest + 0.5)] * 2 + [None]
        y += [-0.5, height, None]
    line = {"color": "#000000", "width": 1, "dash": "dot"}
    traces.append(go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip"))
    traces.append(  # on its own: beside empty texts, plotly loses the first label when the slider moves
        go.Scatter(
            x=[_at(longest + 0.5) for _name, longest in limits],
            y=list(_HEIGHTS),
            text=[f"{name} {longest}" for name, longest in limits],
            mode="text",
            textposition="top center",
            hoverinfo="skip",
        )
    )
    traces.append(
        go.Scatter(
            x=[_at(length) for length in sent],
            y=[_SENT] * len(sent),
            mode="markers",
            marker={"symbol": "diamond", "size": 11, "color": "#000000"},
            hovertext=[f"{length} tokens" for length in sent],
            hoverinfo="text",
        )
    )
    _, (_, lower), (_, upper) = limits
    empty = lower < upper and not any(lower < length <= upper for length in sent)
    middle = round((_at(lower + 0.5) + _at(upper + 0.5)) / 2, 4)
    traces.append(
        go.Scatter(x=[middle], y=[_SENT], text=[_WHO if empty else ""], mode="text", hoverinfo="skip")
    )  # fmt: skip
    return traces


def _zones(words: Sequence[str]) -> list[tuple[int, int, str]]:
    """Runs of equal answers: first and last length, and the word."""
    zones = []
    length = _SHORTEST - 1
    for word, run in groupby(words):
        size = len(list(run))
        zones.append((length + 1, length + size, word))
        length += size
    return zones
