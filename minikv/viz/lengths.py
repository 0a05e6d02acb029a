"""The row of lengths: how long each part took a request to be, one after the other, and where the number jumps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from minikv.trace import Length
from minikv.viz.columns import aligned
from minikv.viz.palette import COLOURS, FREE_COLOUR, ink_on, letters_for
from minikv.viz.picture import Picture

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEAD = ("part", "lane", "step", "tokens", "belief", "jump")
NO_JUMP, DOWN, UP = "", "\N{DOWNWARDS ARROW}", "\N{UPWARDS ARROW}"
_HATCH = ("", "/", "x", "\\", ".", "+", "-", "|")  # a belief has a letter, a colour and a hatch


class LengthsPicture(Picture):
    """A row of lengths as a table and as a figure with a slider. A notebook shows both.

    Attributes:
        table: HTML: a row for each part, in the order of time.
        figure: a bar for each part, in the lane of its node; the slider adds one after the other.
        text: the table in plain letters.
    """


def lengths_picture(row: Sequence[Length], title: str = "") -> LengthsPicture:
    """Draw what `minikv.trace.lengths` found.

    Args:
        row: the lengths of one request, in the order of time.
        title: what request this is.

    Raises:
        ValueError: if there is nothing to draw, or the lengths are of several requests.
    """
    if not row:
        raise ValueError("no part had an idea of this request's length; was it ever sent, with tracing on?")
    if len(numbers := {each.request for each in row}) > 1:
        raise ValueError(f"these are lengths of requests {sorted(numbers)}; draw one request at a time")
    beliefs = _beliefs(row)
    title = title or f"request {row[0].request}"
    caption = f"{title}. {_legend(beliefs)}"
    rows = _rows(row, beliefs)
    return LengthsPicture(_table(rows, beliefs, caption), _figure(row, beliefs, title), _text(rows, caption))


def prompt_tokens(each: Length) -> int:
    """A length without the first token of the answer, which only attention has in it."""
    return each.tokens - 1 if each.part == "attention" else each.tokens


def _beliefs(row: Sequence[Length]) -> dict[int, str]:
    """A letter for each different length, in order of appearance."""
    names = dict.fromkeys(str(prompt_tokens(each)) for each in row)
    letters = letters_for(chr(65 + index) for index in range(len(names)))
    return {int(name): letter for name, letter in zip(names, letters.values(), strict=True)}


def _legend(beliefs: dict[int, str]) -> str:
    said = ", ".join(f"{letter} = {tokens:,}" for tokens, letter in beliefs.items())
    if len(beliefs) == 1:
        return f"All parts hold one length: {said}. Attention has the first token of the answer in it, too (+1)."
    return (
        f"Lengths of the prompt: {said}. An arrow stands where the number jumps. Attention has the first token of the "
        "answer in it, too (+1)."
    )


def _jumps(row: Sequence[Length]) -> list[str]:
    """For each part, which way the length goes from the part before to this one."""
    tokens = [prompt_tokens(each) for each in row]
    pairs = itertools.pairwise(tokens)
    return [NO_JUMP, *(DOWN if after < before else UP if after > before else NO_JUMP for before, after in pairs)]


def _letter(each: Length, beliefs: dict[int, str]) -> str:
    return beliefs[prompt_tokens(each)] + ("+1" if each.part == "attention" else "")


def _rows(row: Sequence[Length], beliefs: dict[int, str]) -> list[tuple[str, ...]]:
    jumps = _jumps(row)
    return [
        (each.part, each.node, str(each.step), f"{each.tokens:,}", _letter(each, beliefs), jump)
        for each, jump in zip(row, jumps, strict=True)
    ]


def _colour(letter: str) -> str:
    return COLOURS[(ord(letter[0]) - 65) % len(COLOURS)]


def _table(rows: list[tuple[str, ...]], beliefs: dict[int, str], caption: str) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in HEAD)
    body = ""
    for part, *cells in rows:
        colour = _colour(cells[3])
        styles = [FREE_COLOUR, FREE_COLOUR, colour, colour, FREE_COLOUR]
        shown = "".join(
            f'<td style="background:{style};color:{ink_on(style)};text-align:center">{escape(cell)}</td>'
            for cell, style in zip(cells, styles, strict=True)
        )
        body += f'<tr><th scope="row" style="text-align:left">{escape(part)}</th>{shown}</tr>'
    return (
        f'<table><caption style="text-align:left">{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _text(rows: list[tuple[str, ...]], caption: str) -> str:
    lines = [HEAD, *rows]
    return "\n".join([caption, *aligned(lines)])


def _figure(row: Sequence[Length], beliefs: dict[int, str], title: str) -> go.Figure:
    import plotly.graph_objects as go

    from minikv.viz.style import quiet_toolbar, slider_steps

    quiet_toolbar()
    frames = [
        go.Frame(name=str(upto), data=[go.Bar(_shown(row, beliefs, upto))], layout={"title": {"text": said}})
        for upto, said in enumerate(_titles(row, beliefs, title), 1)
    ]
    figure = go.Figure(data=[_bars(row, beliefs)], frames=frames)
    steps = slider_steps((each.part for each in row), first=1, transition={"duration": 0})
    figure.update_layout(
        template="none",
        title={"text": frames[-1].layout.title.text, "font": {"size": 13}, "x": 0.02},
        height=440,
        margin={"l": 60, "r": 20, "t": 50, "b": 20},
        showlegend=False,
        yaxis={"title": {"text": "tokens"}, "range": [0, 1.2 * max(each.tokens for each in row)]},
        xaxis={"type": "multicategory", "showdividers": True, "range": [-0.5, len(row) - 0.5], "tickangle": 0},
        sliders=[{"active": len(row) - 1, "steps": steps, "currentvalue": {"prefix": "up to "}, "pad": {"t": 70}}],
    )
    return figure


def _titles(row: Sequence[Length], beliefs: dict[int, str], title: str) -> list[str]:
    """Above the figure, after each part: how many lengths are believed by now."""
    said = []
    for upto in range(1, len(row) + 1):
        held = dict.fromkeys(prompt_tokens(each) for each in row[:upto])
        lengths = " and ".join(f"{tokens:,} ({beliefs[tokens]})" for tokens in held)
        said.append(f"{title}: step {row[upto - 1].step}, believed so far: {lengths}")
    return said


def _shown(row: Sequence[Length], beliefs: dict[int, str], upto: int) -> dict[str, Any]:
    """What differs from frame to frame: the parts that have spoken so far."""
    jumps = _jumps(row)
    labels = [
        f"{each.tokens:,}<br>{_letter(each, beliefs)}{f' {jump}' if jump else ''}"
        for each, jump in zip(row, jumps, strict=True)
    ]
    return {
        "y": [each.tokens if place < upto else 0 for place, each in enumerate(row)],
        "text": [label if place < upto else "" for place, label in enumerate(labels)],
    }


def _bars(row: Sequence[Length], beliefs: dict[int, str]) -> go.Bar:
    import plotly.graph_objects as go

    letters = [beliefs[prompt_tokens(each)] for each in row]
    return go.Bar(
        **_shown(row, beliefs, len(row)),
        x=[_lanes(row), [each.part for each in row]],
        marker={
            "color": [_colour(letter) for letter in letters],
            "pattern": {"shape": [_HATCH[(ord(letter) - 65) % len(_HATCH)] for letter in letters]},
            "line": {"color": "#333333", "width": 1},
        },
        textposition="outside",
        hovertext=[f"{each.part} on {each.node}, step {each.step}: {each.tokens:,} tokens" for each in row],
        hoverinfo="text",
    )


def _lanes(row: Sequence[Length]) -> list[str]:
    """The node of each part; a node that comes a second time is another lane."""
    lanes: list[str] = []
    for each in row:
        again = lanes and lanes[-1].strip() != each.node and each.node in [lane.strip() for lane in lanes]
        lanes.append(lanes[-1] if lanes and lanes[-1].strip() == each.node else each.node + (" " if again else ""))
    return lanes
