"""Texts as tables: two texts with what they share, and an answer with whose slots were read for each word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from minikv.viz.palette import colour_of, ink_on, letters_for

SHARED_COLOUR = "#F0E442"
WORDS_PER_ROW = 8
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
    on_left = [(run.left, run.left + run.size, number) for number, run in enumerate(runs, 1)]
    on_right = sorted((run.right, run.right + run.size, number) for number, run in enumerate(runs, 1))
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


def _marked(words: Sequence[str], places: Sequence[tuple[int, int, int]], *, html: bool) -> str:
    safe = [escape(word) if html else word for word in words]
    parts: list[str] = []
    done = 0
    for start, stop, number in places:
        parts += safe[done:start]
        run = f"[{number}: {' '.join(safe[start:stop])}]"
        parts.append(f'<b style="background:{SHARED_COLOUR};color:#000000">{run}</b>' if html else run)
        done = stop
    return " ".join(parts + safe[done:])


def words_by_writer(words: Sequence[tuple[str, Mapping[str, float]]]) -> TextTable:
    """An answer, word by word, with the letter of the writer whose slots were read most for it.

    Args:
        words: each word with the shares (0 to 1) of what was read, by writer.
    """
    totals: dict[str, float] = {}
    for _word, shares in words:
        for name, share in shares.items():
            totals[name] = totals.get(name, 0.0) + share
    names = sorted(totals, key=lambda name: (-totals[name], name))
    letters = letters_for(names)
    colours = {name: colour_of(index) for index, name in enumerate(names)}
    legend = ", ".join(f"{letter} {name}" for name, letter in letters.items())
    caption = f"Under each word: whose slots were read most for it, and the share of that writer. {legend}."
    rows, lines = "", [caption]
    for start in range(0, len(words), WORDS_PER_ROW):
        part = words[start : start + WORDS_PER_ROW]
        most = [max(shares, key=lambda name: (shares[name], name)) for _word, shares in part]
        marks = [f"{letters[name]} {shares[name]:.0%}" for name, (_word, shares) in zip(most, part, strict=True)]
        heads = "".join(f'<td style="text-align:center">{escape(word)}</td>' for word, _shares in part)
        cells = "".join(
            f'<td style="background:{colours[name]};color:{ink_on(colours[name])};text-align:center">{mark}</td>'
            for name, mark in zip(most, marks, strict=True)
        )
        rows += f'<tr><th scope="row">word</th>{heads}</tr><tr><th scope="row">read most</th>{cells}</tr>'
        widths = [max(len(word), len(mark)) for (word, _shares), mark in zip(part, marks, strict=True)]
        lines.append("  ".join(f"{word:<{w}}" for (word, _shares), w in zip(part, widths, strict=True)).rstrip())
        lines.append("  ".join(f"{mark:<{w}}" for mark, w in zip(marks, widths, strict=True)).rstrip())
    table = f'<table><caption style="text-align:left">{escape(caption)}</caption><tbody>{rows}</tbody></table>'
    return TextTable(table, "\n".join(lines))
