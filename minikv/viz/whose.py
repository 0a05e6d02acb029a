"""Whose words: an answer token by token, with the share of attention that fell on slots of each writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from minikv.viz.palette import FREE_COLOUR, NOBODY, NOBODY_COLOUR, colour_of, ink_on, letters_for
from minikv.viz.picture import Picture

if TYPE_CHECKING:
    import plotly.graph_objects as go

Pieces = Sequence[tuple[str, Mapping[str, float]]]

ASIDE, NOBODY_NAME = "position 0", "nobody"
PER_ROW = 12  # tokens side by side in the table
_HATCHES = ("/", "", "x", "\\", "-", "|", "+")
_HATCH_ASIDE = "."
_LEAST_FOR_A_LETTER = 0.1  # of a bar: a smaller part has no room for one
_SLACK = 1e-3  # of a sum of shares


class Whose(Picture):
    """An answer with its writers as a table and as stacked shares. A notebook shows both."""


def whose_words(pieces: Pieces, *, aside: str = ASIDE) -> Whose:
    """Draw for each piece of an answer whose slots were read for it.

    Args:
        pieces: text, and shares by writer that sum to 1; {} or all 0 if nothing was read.
        aside: a name that is shown, but does not count when it is asked who was read most.

    Raises:
        ValueError: if there is nothing to draw, or the shares of a piece have another sum.
    """
    key = _Key(pieces, aside)
    return Whose(_table(pieces, key), _figure(pieces, key), "\n".join(_lines(pieces, key)))


def lettered(pieces: Pieces, *, width: int, aside: str = ASIDE) -> list[str]:
    """The answer in lines of at most `width`, and under each piece the letter of the writer read most.

    Raises:
        ValueError: as `whose_words`.
    """
    key = _Key(pieces, aside)
    lines: list[str] = []
    above = below = ""
    for text, shares in pieces:
        word, letter = _seen(text), key.letter_of(shares)
        room = max(len(word), len(letter))
        if above and len(above) + 1 + room > width:
            lines += [above.rstrip(), below.rstrip()]
            above = below = ""
        gap = " " if above else ""
        above += f"{gap}{word:<{room}}"
        below += f"{gap}{letter:<{room}}"
    return [*lines, above.rstrip(), below.rstrip()]


@dataclass(frozen=True)
class _Writer:
    name: str
    letter: str
    colour: str
    hatch: str


class _Key:
    """Letter, colour and hatch of each writer, in the order in which they come; whoever stands aside is last."""

    def __init__(self, pieces: Pieces, aside: str) -> None:
        if not pieces:
            raise ValueError("there is no answer to draw: nothing was said")
        for text, shares in pieces:
            total = sum(shares.values())
            if min(shares.values(), default=0.0) < 0 or (total and abs(total - 1) > _SLACK):
                raise ValueError(f"the shares of {text!r} are {dict(shares)}; they must sum to 1, or to 0")
        sums: dict[str, float] = {}
        for _text, shares in pieces:
            for name, share in shares.items():
                sums[name] = sums.get(name, 0.0) + share
        names = [name for name in sums if name != aside and sums[name] > 0]
        names += [aside] if sums.get(aside) else []
        letters = letters_for(name for name in names if name != NOBODY_NAME)
        self.aside = aside
        self.writers = [self._writer(name, index, letters) for index, name in enumerate(names)]
        self._by_name = {writer.name: writer for writer in self.writers}

    def _writer(self, name: str, index: int, letters: Mapping[str, str]) -> _Writer:
        if name == NOBODY_NAME:
            return _Writer(name, NOBODY, NOBODY_COLOUR, _HATCHES[index % len(_HATCHES)])
        if name == self.aside:
            return _Writer(name, letters[name], FREE_COLOUR, _HATCH_ASIDE)
        return _Writer(name, letters[name], colour_of(index), _HATCHES[index % len(_HATCHES)])

    def most(self, shares: Mapping[str, float]) -> _Writer | None:
        """Whose slots were read most, of those that do not stand aside."""
        rest = [name for name, share in shares.items() if name != self.aside and share > 0]
        return self._by_name[max(rest, key=lambda name: (shares[name], name))] if rest else None

    def letter_of(self, shares: Mapping[str, float]) -> str:
        found = self.most(shares)
        return found.letter if found else " "

    def caption(self) -> str:
        legend = ", ".join(f"{writer.letter} {writer.name}" for writer in self.writers)
        said = "For each token of the answer: how much of the attention fell on slots of which writer (rounded)."
        if any(writer.name == self.aside for writer in self.writers):
            said += f" {self.aside.capitalize()} is left out of {_MOST!r}."
        return f"{said} {legend}."


_MOST = "read most"


def _seen(text: str) -> str:
    """A piece as it can be printed in one line."""
    shown = "".join(
        character if character.isprintable() else " " for character in text.replace("\n", "\N{PILCROW SIGN}")
    )
    return shown.strip() or "\N{OPEN BOX}"


def _blocks(pieces: Pieces) -> Iterator[Pieces]:
    for start in range(0, len(pieces), PER_ROW):
        yield pieces[start : start + PER_ROW]


def _percent(shares: Mapping[str, float], writer: _Writer) -> str:
    return f"{shares.get(writer.name, 0.0):.0%}"


def _table(pieces: Pieces, key: _Key) -> str:
    rows = ""
    for block in _blocks(pieces):
        most = [key.most(shares) for _text, shares in block]
        colours = [writer.colour if writer else FREE_COLOUR for writer in most]
        letters = [writer.letter if writer else "" for writer in most]
        rows += _row("token", [_seen(text) for text, _shares in block], colours)
        rows += _row(_MOST, letters, colours)
        for writer in key.writers:
            cells = [_percent(shares, writer) for _text, shares in block]
            rows += _row(f"{writer.letter} {writer.name}", cells, [FREE_COLOUR] * len(block))
    return f'<table><caption style="text-align:left">{escape(key.caption())}</caption><tbody>{rows}</tbody></table>'


def _row(head: str, cells: Sequence[str], colours: Sequence[str]) -> str:
    inside = "".join(
        f'<td style="background:{colour};color:{ink_on(colour)};text-align:center">{escape(cell)}</td>'
        for cell, colour in zip(cells, colours, strict=True)
    )
    return f'<tr><th scope="row">{escape(head)}</th>{inside}</tr>'


def _lines(pieces: Pieces, key: _Key) -> list[str]:
    lines = [key.caption()]
    for block in _blocks(pieces):
        rows = [
            ("token", [_seen(text) for text, _shares in block]),
            (_MOST, [key.letter_of(shares) for _text, shares in block]),
            *(
                (f"{writer.letter} {writer.name}", [_percent(shares, writer) for _text, shares in block])
                for writer in key.writers
            ),
        ]
        first = max(len(head) for head, _cells in rows)
        widths = [max(len(cells[place]) for _head, cells in rows) for place in range(len(block))]
        for head, cells in rows:
            shown = "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
            lines.append((head.ljust(first) + shown).rstrip())
    return lines


def _figure(pieces: Pieces, key: _Key) -> go.Figure:
    import plotly.graph_objects as go

    from minikv.viz.style import quiet_toolbar

    quiet_toolbar()
    places = list(range(len(pieces)))
    figure = go.Figure(data=[_bars(pieces, writer) for writer in key.writers])
    figure.add_trace(
        go.Scatter(
            x=places,
            y=[1.05] * len(places),
            text=[key.letter_of(shares) for _text, shares in pieces],
            mode="text",
            textfont={"size": 13, "color": "#000000"},
            hoverinfo="skip",
            showlegend=False,
        )
    )
    figure.update_layout(
        template="none",
        title={"text": f"whose slots were read for each token; above it, who was {_MOST}", "font": {"size": 14}},
        barmode="stack",
        bargap=0.08,
        height=430,
        margin={"l": 60, "r": 20, "t": 70, "b": 110},
        legend={"orientation": "h", "y": 1.14, "x": 0, "traceorder": "normal"},
        xaxis={
            "tickvals": places,
            "ticktext": [escape(_seen(text)) for text, _shares in pieces],
            "tickangle": -90,
            "range": [-0.6, len(places) - 0.4],
        },
        yaxis={"title": {"text": "share of attention"}, "tickformat": ".0%", "range": [0, 1.1], "dtick": 0.25},
    )
    return figure


def _bars(pieces: Pieces, writer: _Writer) -> Any:
    import plotly.graph_objects as go

    shares = [each.get(writer.name, 0.0) for _text, each in pieces]
    return go.Bar(
        name=f"{writer.letter} {writer.name}",
        x=list(range(len(pieces))),
        y=[round(share, 4) for share in shares],
        text=[writer.letter if share >= _LEAST_FOR_A_LETTER else "" for share in shares],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        constraintext="none",
        textfont={"color": ink_on(writer.colour), "size": 11},
        marker={
            "color": writer.colour,
            "line": {"color": "#000000", "width": 1},
            "pattern": {"shape": writer.hatch, "bgcolor": writer.colour, "fgcolor": "#555555", "solidity": 0.1},
        },
        hovertext=[f"{escape(_seen(text))}: {_percent(each, writer)} {escape(writer.name)}" for text, each in pieces],
        hoverinfo="text",
    )
