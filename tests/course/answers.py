"""What a file of answers to a chapter's exercises gives to `test_answers.py`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Answers:
    """Answers to one exercise, as sources that a learner would write in a cell.

    Attributes:
        name: what the source defines and `check` gets: a function, a class or a variable.
        wrong: by title, a source and the kind of verdict it must get.
        right: by title, a source and words that its `[ok]` must say ("" for none).
        likely: kinds of mistakes that many make; each must have three hints.
    """

    name: str
    wrong: dict[str, tuple[str, str]]
    right: dict[str, tuple[str, str]]
    likely: tuple[str, ...] = ()
