"""The bet of chapter 10: three yes or no for each guard alone, beside what the run says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikv.disagg.router import Cluster
    from minikv.incident.matrix import Cell
    from minikv.incident.stage import Stage

QUESTIONS = ("words out", "right or refused", "status true")


def three_answers(cell: Cell) -> tuple[bool, bool, bool]:
    """Did a stranger's words come out; was the end right or a loud refusal; was the status true?"""
    good = cell.verdict in ("right", "refused")
    return cell.leaked, good, good


def compare_bets(cells: Mapping[str, Cell], bets: Mapping[str, object], names: Mapping[str, str]) -> None:
    """Print each row of the run, with the learner's bet beside it where there is one.

    Args:
        cells: the over-length scenario, by the letter of the one guard that is on.
        bets: by letter, three letters y or n, such as "nyy"; anything else is no bet.
        names: of the guards, by letter.
    """
    wide = max(map(len, names.values()))
    print(f"{'one guard on':<{wide + 2}}" + "".join(f"{each:<18}" for each in QUESTIONS) + "your bet")
    hits = made = 0
    for letter, cell in cells.items():
        run = "".join("ny"[each] for each in three_answers(cell))
        bet = str(bets.get(letter, "")).strip().lower()
        valid = len(bet) == 3 and set(bet) <= {"y", "n"}
        hits, made = hits + (bet == run), made + valid
        shown = "".join(f"{'yes' if each == 'y' else 'no':<18}" for each in run)
        print(f"{names[letter]:<{wide + 2}}{shown}{'-' if not valid else bet if bet == run else bet + ', otherwise'}")
    print(f"\nrows as you said: {hits} of {made}" if made else "\nyou made no bet")


def stage_with(server: Callable[..., Cluster], model: Any, answer_tokens: int = 8, **settings: Any) -> Stage:
    """The article's sizes, quennell's morning visit, and an answer of a few tokens: what counts need."""
    from dataclasses import replace

    from minikv.course.chapters.day_08 import busy_day
    from minikv.incident.stage import Stage, build

    day = busy_day()
    (visit,) = day.visits(model)[0]  # with this answer it passes a door that counts all that may be written
    scale = replace(day, answer_tokens=answer_tokens, visits=lambda _model: [[replace(visit, max_tokens=24)]])
    kind: Any = server
    return Stage(scale, model, build(scale, model, kind, **settings))


def zeroed(model: Any) -> Stage:
    """The same with pools that fill every page with zeros when it comes back, on both nodes."""
    from functools import partial

    from minikv.incident.history import HistoricalCluster
    from minikv.incident.wipes import Wipe, WipingHistoricalPool

    pool = partial(WipingHistoricalPool, wipe=Wipe(0.0, "free"), fenced=False)
    return stage_with(HistoricalCluster, model, 24, pool=pool)


class OneTruth:
    """Guards that are only one number: each door is told the smallest pool of all nodes."""

    def pool(self, own: int, pools: Mapping[str, int]) -> int:
        """What fits there fits everywhere."""
        return min(pools.values())
