"""How the course talks: short lines, wrapped, so that they read the same in every viewer."""

from __future__ import annotations

import textwrap

WIDTH = 96
INDENT = "    "


def say(first: str, *more: str) -> None:
    """Print `first`, then each of `more` indented by four; everything wrapped at 96 characters."""
    print(_wrapped(first, ""))
    for text in more:
        print(_wrapped(text, INDENT))


def _wrapped(text: str, indent: str) -> str:
    return "\n".join(
        textwrap.fill(
            line,
            WIDTH,
            initial_indent=indent,
            subsequent_indent=" " * (len(line) - len(line.lstrip())) + (indent or INDENT),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.splitlines() or [""]
    )
