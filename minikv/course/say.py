"""How the course talks: short lines, wrapped, so that they read the same in every viewer."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """One moving line in a notebook that says what happens now, and is gone at the end; silent anywhere else.

    Committed outputs are made with MINIKV_CI=1 and never hold it.
    """
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if os.environ.get("MINIKV_CI") == "1" or not hasattr(shell, "kernel"):
        yield lambda _text: None
        return
    from IPython.display import Pretty, clear_output, display

    line: Any = display(Pretty("..."), display_id=True)  # type: ignore[no-untyped-call]
    started = time.monotonic()

    def now(text: str) -> None:
        line.update(Pretty(f"... {text} ({time.monotonic() - started:.0f} s so far)"))  # type: ignore[no-untyped-call]

    try:
        yield now
    finally:
        clear_output()  # type: ignore[no-untyped-call]
