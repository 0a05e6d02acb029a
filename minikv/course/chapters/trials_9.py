"""The laboratory of exercise 9.3: the incident in the small, with one thing changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from minikv.course.chapters.small import plainly
from minikv.incident.defects import DEFECTS

if TYPE_CHECKING:
    from minikv.incident.scales import Scale, Visit
    from minikv.models.adapter import BoundModel

UNCHANGED = "unchanged"
SEEN = {
    "status": "of the answer: 200, 400, 500, 502",
    "reserved": "pages that decode reserved",
    "written": "of these, pages into which the handoff put something of the request's own",
    "stale pages": "the others",
    "stale slots": "different slots that were read though another request, or nobody, had filled them",
    "answer": "'same' as without the change, 'other', or 'none'",
    "disagree": "the part at which two lengths are first seen, or 'nowhere'",
}


@dataclass(frozen=True)
class Change:
    """One change: what it is in words, and how it is made."""

    words: str
    settings: Mapping[str, Any]
    scale: Callable[[Scale], Scale] = lambda scale: scale
    past: bool = True
    wiped: tuple[str, ...] = ()
    question: int = 0
    tenant: str = "attacker"


def _decode_pages(pages: int) -> Callable[[Scale], Scale]:
    from minikv.config import NodeConfig

    return lambda scale: replace(scale, decode=NodeConfig(num_pages=pages))


def _prefill_pages(pages: int) -> Callable[[Scale], Scale]:
    from minikv.config import NodeConfig

    return lambda scale: replace(scale, prefill=NodeConfig(num_pages=pages))


def _pages_of_two(scale: Scale) -> Scale:
    from minikv.config import NodeConfig

    half = [NodeConfig(num_pages=2 * node.num_pages) for node in (scale.prefill, scale.decode)]
    return replace(scale, page_size=2, prefill=half[0], decode=half[1])


def _other_texts(scale: Scale) -> Scale:
    from minikv.incident.counterfactual import changed

    def visits(model: BoundModel) -> list[list[Visit]]:
        return [[changed(visit) for visit in group] for group in scale.visits(model)]

    return replace(scale, visits=visits)


@cache
def changes() -> dict[str, Change]:
    """All changes, by name."""
    return {
        UNCHANGED: Change("as it was", {}),
        **{
            f"without {letter}": Change(f"this is mended: {words}", {"defects": "".join(set(DEFECTS) - {letter})})
            for letter, words in DEFECTS.items()
        },
        "equal pools": Change("decode's pool is as small as prefill's: 28 slots", {}, _decode_pages(7)),
        "large prefill": Change("prefill's pool is as large as decode's: 256 slots", {}, _prefill_pages(64)),
        "pages of 2": Change("pages of 2 slots in place of 4; the pools hold as many slots", {}, _pages_of_two),
        "shorter prompt": Change("21 tokens in place of 31", {}, lambda scale: replace(scale, attack_tokens=21)),
        "other question": Change("31 tokens about something else", {}, question=1),
        "other name": Change("another tenant asks the same question", {}, tenant="visitor"),
        "other past": Change("the earlier tenants had sent other texts of the same length", {}, _other_texts),
        "no past": Change("a freshly started server", {}, past=False),
        "wiped": Change("all free pages of both nodes are filled with zeros before the request", {}, wiped=("both",)),
        "wiped decode": Change("the same on the decode node alone", {}, wiped=("decode",)),
        "longer answer": Change("an answer of 24 tokens, not 16", {}, lambda scale: replace(scale, answer_tokens=24)),
        "other order": Change("the allocator lends the page that came back last", {"allocator": _LastFirst}),
    }  # fmt: skip


class _LastFirst:
    def __init__(self, num_pages: int) -> None:
        self.pages = list(range(num_pages))

    def allocate(self, n: int) -> list[int]:
        return [self.pages.pop() for _ in range(n)]

    def free(self, pages: list[int]) -> None:
        self.pages.extend(pages)


@cache
def outcome(name: str) -> dict[str, object]:
    """What is seen after one change: a value for each of `SEEN`."""
    tokens, found = _run(changes()[name])
    before, _ = _run(changes()[UNCHANGED]) if name != UNCHANGED else (tokens, found)
    shared = min(len(tokens), len(before))
    same = "none" if not tokens else "same" if tokens[:shared] == before[:shared] else "other"
    return {**found, "answer": same}


def _run(change: Change) -> tuple[tuple[int, ...], dict[str, object]]:
    from minikv.course.chapters.ex_9_2 import first_disagreement
    from minikv.incident.history import HistoricalCluster
    from minikv.incident.scales import POCKET
    from minikv.incident.stage import Stage, build
    from minikv.trace import Length

    scale = change.scale(POCKET)
    with plainly():
        model = scale.load()
        stage = Stage(scale, model, build(scale, model, HistoricalCluster, **change.settings))
        if change.past:
            stage.play_past()
        cluster = stage.cluster
        for pool in (cluster.prefill.pool, cluster.decode.pool):
            if "both" in change.wiped or pool.node in change.wiped:
                pool.fill_unwritten(0.0)
        prompt = tuple(token + change.question for token in scale.attack(model))
        done = cluster.generate([prompt], scale.attack_params, tenant=change.tenant)[0]
        counts = stage.measure(done)
    first = first_disagreement(cluster.trace)
    at = first.part if isinstance(first, Length) else "nowhere" if first is None else "attention"
    numbers = (done.status, counts.pages_reserved, counts.pages_written, counts.pages_stale, counts.stale_slots_read)
    found = dict(zip(("status", "reserved", "written", "stale pages", "stale slots"), numbers, strict=True))
    return done.token_ids if done.error is None else (), {**found, "disagree": at}


def laboratory() -> None:
    """Print what can be changed and what can be seen."""
    print("one change:")
    for name, change in changes().items():
        if name != UNCHANGED:
            print(f"  {chr(34) + name + chr(34):18} {change.words}")
    print("\nwhat is seen, and what it is without a change:")
    before = outcome(UNCHANGED)
    for name, words in SEEN.items():
        print(f"  {chr(34) + name + chr(34):14} {before[name]!r:10} {words}")


def run_trials(trials: object) -> None:
    """Print, for each trial, what was expected and what was seen."""
    from minikv.course.chapters.ex_9_3 import holds, sound

    if not sound(trials):
        print("[ ] nothing to run yet: three trials, each (sentence, change, expectation)")
        return
    for sentence, name, expected in trials:  # type: ignore[attr-defined]
        seen = outcome(name)
        print(f"{sentence}\n  change: {name}")
        for key, value in expected.items():
            mark = "as expected" if holds({key: value}, seen) else "NOT as expected"
            print(f"  {key:12} expected {value!r:14} seen {seen[key]!r:14} {mark}")
        print()
