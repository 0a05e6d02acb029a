"""How far you are: `minikv course status`."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator

from minikv.course import chapters
from minikv.course.declare import Exercise, Question, chapter_of, of_chapter
from minikv.course.home import ANSWERED, home, noted
from minikv.course.parts import kept_parts

SHORT_PATH = (0, 3, 8, 10)
_CHAPTER = re.compile(r"ch(\d\d)")
_TITLE = re.compile(r"Chapter \d\d, ([^:.]+)")


def status() -> None:
    """Print, for each chapter, the predictions you made and the exercises whose check said [ok], and what is next."""
    done = {*kept_parts(), *_answered()}
    open_ones = [0] if noted("guesses", "cold-open") is None and not done else []
    if home().is_dir():
        print(f"what is yours is kept in {home()}")
    else:
        print(f"nothing is kept in {home()} yet; is your copy of the course in another folder?")
    print()
    print(f"{'chapter':<32}  {'predictions':>11}  exercises")
    for number in numbers():
        questions, exercises = of_chapter(Question, number), of_chapter(Exercise, number)
        made = sum(noted("predictions", question.id) is not None for question in questions)
        shown = "  ".join(f"[{'ok' if one.id in done else ' '}] {one.id[3:]}" for one in exercises)
        print(f"{number:02d} {_title(number):<29}  {f'{made} of {len(questions)}':>11}  {shown}".rstrip())
        if not all(one.id in done for one in exercises):
            open_ones.append(number)
    print()
    print("next: " + (f"chapter {open_ones[0]:02d}, in notebooks/" if open_ones else "nothing is left"))
    short = [number for number in open_ones if number in SHORT_PATH]
    if short and short[0] != open_ones[0]:
        print(f"next on the three-hour path: chapter {short[0]:02d}")


def numbers() -> Iterator[int]:
    """The chapters that have questions or exercises, in order."""
    found = (_CHAPTER.fullmatch(module.name) for module in pkgutil.iter_modules(chapters.__path__))
    return (int(match[1]) for match in found if match)


def _title(number: int) -> str:
    match = _TITLE.match(chapter_of(f"ex-{number}.1").__doc__ or "")
    return match[1] if match else ""


def _answered() -> list[str]:
    return [one.id for number in numbers() for one in of_chapter(Exercise, number) if noted(ANSWERED, one.id)]
