"""Texts with what they share: two side by side, or one with marks for whose words stand in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from minikv.viz.palette import colour_of, ink_on, letters_for

SHARED_COLOUR = "#F0E442"
_CELL = "text-align:left;vertical-align:top;white-space:normal;max-width:30em"


@dataclass(frozen=True, repr=False)
class TextTable:
    """An HTML table with a caption, and the same in plain letters."""

    table: str
    text: str

    def _repr_html_(self) -> str:
        return self.table

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Run:
    """Words that stand in two texts in the same order: `size` words from `left` in one, from `right` in the other."""

    left: int
    right: int
    size: int


def shared_runs(left: Sequence[str], right: Sequence[str], *, least: int = 3) -> list[Run]:
    """The longest runs of at least `least` words that two texts share, in the order of the left one.

    No word is in two runs. Commas and the like belong to the word that they stand at.
    """
    runs: list[Run] = []
    taken: set[int] = set()

    def length(start: int, other: int) -> int:
        size = 0
        while start + size < len(left) and other + size < len(right) and other + size not in taken:
            if left[start + size] != right[other + size]:
                break
            size += 1
        return size

    start = 0
    while start + least <= len(left):
        size, place = max((length(start, other), -other) for other in range(len(right) + 1))
        if size >= least:
            runs.append(Run(start, -place, size))
            taken.update(range(-place, size - place))
        start += size if size >= least else 1
    return runs


def side_by_side(left_title: str, left: str, right_title: str, right: str, *, least: int = 3) -> TextTable:
    """Two texts in two columns; what they share is in numbered brackets, and coloured.

    Args:
        left_title, right_title: heads of the columns.
        left, right: the texts.
        least: words in a row that count as shared.
    """
    words, others = left.split(), right.split()
    runs = shared_runs(words, others, least=least)
    inside = sum(run.size for run in runs)
    caption = (
        f"{inside} of the {len(words)} words on the left stand in the same order on the right, in "
        f"{len(runs)} run{'' if len(runs) == 1 else 's'} of {least} words or more. "
        "Each run is in brackets, with the same number on both sides."
    )
    on_left = [(run.left, run.left + run.size, f"{number}", SHARED_COLOUR) for number, run in enumerate(runs, 1)]
    on_right = sorted(
        (run.right, run.right + run.size, sign, colour) for run, (*_, sign, colour) in zip(runs, on_left, strict=True)
    )
    table = (
        f'<table><caption style="text-align:left">{escape(caption)}</caption><thead><tr>'
        f'<th scope="col" style="{_CELL}">{escape(left_title)}</th>'
        f'<th scope="col" style="{_CELL}">{escape(right_title)}</th></tr></thead><tbody><tr>'
        f'<td style="{_CELL}">{_marked(words, on_left, html=True)}</td>'
        f'<td style="{_CELL}">{_marked(others, on_right, html=True)}</td></tr></tbody></table>'
    )
    plain = "\n".join(
        [
            caption,
            f"{left_title}: {_marked(words, on_left, html=False)}",
            f"{right_title}: {_marked(others, on_right, html=False)}",
        ]
    )
    return TextTable(table, plain)


def marked(text: str, others: Mapping[str, str], *, least: int = 3) -> tuple[str, str]:
    """A text, as HTML and in plain letters, with what it shares with some others in brackets.

    Args:
        text: what was said.
        others: texts by whose they are. The first letter in a bracket says whose, and so does the colour.
        least: words in a row that count as shared.
    """
    words, letters = text.split(), letters_for(others)
    found = [
        (run, name, index)
        for index, (name, other) in enumerate(others.items())
        for run in shared_runs(words, other.split(), least=least)
    ]
    free = [True] * len(words)
    places: list[tuple[int, int, str, str]] = []
    for run, name, index in sorted(found, key=lambda one: -one[0].size):  # the longest first
        if all(free[run.left : run.left + run.size]):
            free[run.left : run.left + run.size] = [False] * run.size
            places.append((run.left, run.left + run.size, letters[name], colour_of(index)))
    places.sort()
    return _marked(words, places, html=True), _marked(words, places, html=False)


def _marked(words: Sequence[str], places: Sequence[tuple[int, int, str, str]], *, html: bool) -> str:
    safe = [escape(word) if html else word for word in words]
    parts: list[str] = []
    done = 0
    for start, stop, sign, colour in places:
        parts += safe[done:start]
        run = f"[{sign}: {' '.join(safe[start:stop])}]"
        parts.append(f'<b style="background:{colour};color:{ink_on(colour)}">{run}</b>' if html else run)
        done = stop
    return " ".join(parts + safe[done:])
