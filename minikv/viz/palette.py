"""Colours and letters: Okabe and Ito's colours, and never a colour without its letter."""

from __future__ import annotations

from collections.abc import Iterable

FREE, NOBODY = "\N{MIDDLE DOT}", "\N{EN DASH}"
FREE_COLOUR, NOBODY_COLOUR = "#FFFFFF", "#DDDDDD"
COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999")
DARK = frozenset({"#0072B2", "#D55E00", "#009E73"})


def letters_for(names: Iterable[str]) -> dict[str, str]:
    """One letter a name: a letter of the name itself where one is free, else the next of the alphabet."""
    letters: dict[str, str] = {}
    for name in names:
        if name in letters:
            continue
        wanted = [c.upper() for c in name if c.isalnum()] + [chr(code) for code in range(65, 91)]
        free = (letter for letter in wanted if letter not in letters.values())
        letters[name] = next(free, f"{len(letters)}")
    return letters


def colour_of(index: int) -> str:
    """Colour of the `index`-th name; they repeat after eight, the letters do not."""
    return COLOURS[index % len(COLOURS)]


def ink_on(colour: str) -> str:
    """Black or white, whichever is readable on a colour."""
    return "#FFFFFF" if colour in DARK else "#000000"
