"""Exercise 10.1, guards of your own: the reference answer, and what is said of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from minikv.course.chapters import hints_10_1 as hints
from minikv.course.chapters.ex_6_1 import admit, judge_admit
from minikv.course.chapters.ex_7_1 import judge_receive, receive
from minikv.course.declare import Verdict, ok, wrong

if TYPE_CHECKING:
    from minikv.course.chapters.guarded_10 import GuardLaboratory
    from minikv.incident.matrix import Cell
    from minikv.incident.scenarios import Ending, Scenario


class MyGuards:
    """One truth about capacity, a fence on the write, and the worst status of both legs."""

    def __init__(self) -> None:
        self.lent: Counter[int] = Counter()

    def pool(self, own: int, pools: Mapping[str, int]) -> int:
        """What fits the smallest pool fits everywhere."""
        return min(pools.values())

    def lend(self, page: int) -> object:
        """The ticket is how many times the page was lent."""
        self.lent[page] += 1
        return self.lent[page]

    def free(self, pages: Sequence[int], wipe: Callable[[int], None]) -> None:
        """Nothing to do: the next lending makes old tickets worthless."""

    def write(self, page: int, ticket: object) -> bool:
        """Only the newest ticket opens a page."""
        return ticket == self.lent[page]

    def status(self, prefill: int | None, decode: int | None) -> int | None:
        """An error of either leg is the answer; without one, decode's."""
        known = [status for status in (prefill, decode) if status is not None]
        return max(known) if known and max(known) >= 400 else decode

    def why(self) -> str:
        """Which would be shipped first, and what it does not stop."""
        return (
            "I would ship the fence first: an old writer passes every door and every receiver, and nobody notices. "
            "It does not stop a client from waiting for ever, so the worst status comes next."
        )


def judge_guards(thing: Any) -> Verdict:
    if not callable(thing):
        return wrong(
            "not-a-class", f"you handed over {thing!r:.60}.", 'Hand over the class: check("ex-10.1", MyGuards).'
        )
    for look in (_pool, _wiping, _fence, _status, _own_parts, _runs, _why):
        found = look(thing)
        if found is not None:
            return found
    return ok("Guards of your own. Over all six scenarios and the streamed one, nobody leaks, lies or waits for ever.")


def _has(thing: Any, name: str) -> bool:
    return callable(getattr(thing, name, None))


# The pool that a door is told

_POOLS = ({"prefill": 28, "decode": 256}, {"prefill": 256, "decode": 28}, {"prefill": 96, "more": 64, "decode": 640})


def _pool(thing: Any) -> Verdict | None:
    def told(pools: dict[str, int], own: str) -> Any:
        return thing().pool(pools[own], dict(pools)) if _has(thing, "pool") else pools[own]

    cases = [(pools, own) for pools in _POOLS for own in pools]
    got = [told(pools, own) for pools, own in cases]
    if any(isinstance(each, bool) or not isinstance(each, int) for each in got):
        return wrong("pool-type", f"`pool` gave back {got[0]!r:.40}.", "Give a number of slots back.")
    if got == [min(pools.values()) for pools, _own in cases]:
        return None
    if got == [pools[own] for pools, own in cases]:
        ending = _alone(thing)
        return wrong(
            "own-pool" if not _has(thing, "status") or _status(thing) is not None else "status-only",
            f"each of your doors is told its own pool. A prompt of 31 tokens came, and without a receiver: "
            f"{ending.stale_slots_read} slots of others were read, and the status is {ending.status}.",
            *(hints.OWN_POOL if not _has(thing, "status") or _status(thing) is not None else hints.STATUS_ONLY),
        )
    for kind, rule, words in _OTHER_POOLS:
        if all(each == rule(pools) for each, (pools, _own) in zip(got, cases, strict=True)):
            said = f"pools of 28 and 256 slots, and your doors are told {got[0]}. {words}"
            return wrong(kind, said, *hints.ONE_POOL)
    each, (pools, _own) = next(
        (each, case) for each, case in zip(got, cases, strict=True) if each != min(case[0].values())
    )
    said = f"pools of {', '.join(map(str, pools.values()))} slots, and your doors are told {each}."
    return wrong("other-pool", said, *hints.ONE_POOL)


_OTHER_POOLS: tuple[tuple[str, Callable[[dict[str, int]], int], str], ...] = (
    ("decode-pool", lambda pools: pools["decode"], "Prefill's pool is the small one."),
    ("prefill-pool", lambda pools: pools["prefill"], "That is right as long as prefill's pool is the small one."),
    ("largest-pool", lambda pools: max(pools.values()), "The request must pass both nodes."),
    ("sum-of-pools", lambda pools: sum(pools.values()), "No node has that many."),
)


def _alone(thing: Any) -> Ending:
    """Over-length with the learner's guards and a right door, but nobody who receives carefully."""
    from minikv.incident.scenarios import SCENARIOS

    return _laboratory().ending(thing, SCENARIOS["over-length"], door=admit, receiver=None)


# The fence


class _Desk:
    """Lends and takes back pages in the learner's name."""

    def __init__(self, guards: Any) -> None:
        self.guards = guards
        self.wiped: list[int] = []

    def lend(self, page: int) -> object:
        return self.guards.lend(page) if _has(self.guards, "lend") else None

    def free(self, *pages: int) -> None:
        if _has(self.guards, "free"):
            self.guards.free(list(pages), self.wiped.append)

    def write(self, page: int, ticket: object) -> bool:
        return bool(self.guards.write(page, ticket)) if _has(self.guards, "write") else True


def _wiping(thing: Any) -> Verdict | None:
    """Wiping is no fence. With a fence it does no harm, and is nobody's business here."""
    if not _has(thing, "free") or _fence(thing) is None:
        return None
    desk = _Desk(thing())
    for page in (3, 4, 5):
        desk.lend(page)
    desk.free(3, 4, 5)
    if not desk.wiped:
        return None
    if missed := sorted({3, 4, 5} - set(desk.wiped)):
        said = f"pages 3, 4 and 5 came back, and you wiped all but page {', '.join(map(str, missed))}."
        return wrong("wiped-in-part", f"{said} {_late(thing)}", *hints.WIPED_IN_PART)
    return wrong("wiped", f"you wipe every page that comes back. {_late(thing)}", *hints.WIPED)


def _late(thing: Any) -> str:
    from minikv.incident.scenarios import SCENARIOS

    seen = _cell(thing, SCENARIOS["late-write"])
    return (
        f"Then the old writer came: {seen.stale_slots_read} slots of its words were read for somebody else, with "
        f"status {seen.status}."
    )


def _fence(thing: Any) -> Verdict | None:
    desk = _Desk(thing())
    first = desk.lend(5)
    if not desk.write(5, first):
        said = "page 5 was lent for the first time, and its own writer was kept out."
        return wrong("keeps-all-out", said, *hints.KEEPS_OUT)
    other = desk.lend(6)
    if not (desk.write(6, other) and desk.write(5, first)):
        said = "page 6 was lent, too, and after that a rightful writer was kept out."
        return wrong("keeps-all-out", said, *hints.KEEPS_OUT)
    desk.free(5)
    second = desk.lend(5)
    if not desk.write(5, second):
        said = "page 5 came back and was lent again, and its new writer was kept out."
        return wrong("keeps-new-out", said, *hints.KEEPS_OUT)
    if desk.write(5, first):
        return _let_in(thing, first, second)
    desk.free(5)
    third = desk.lend(5)
    if not desk.write(5, third):
        said = "page 5 was lent for the third time, and its new writer was kept out."
        return wrong("keeps-new-out", said, *hints.KEEPS_OUT)
    if desk.write(5, first) or desk.write(5, second):
        said = "page 5 was lent three times, and a writer of an earlier time was let in."
        return wrong("comes-round", said, *hints.COMES_ROUND)
    if not desk.write(6, other):
        said = "page 5 was lent again and again, and the writer of page 6 was kept out, though page 6 is still its own."
        return wrong("one-for-all", said, *hints.ONE_FOR_ALL)
    return None


def _let_in(thing: Any, first: object, second: object) -> Verdict:
    said = "page 5 was lent, came back, and was lent on. Then its old writer came, and was let in."
    if not _has(thing, "write"):
        return wrong("no-fence", f"{said} You have no `write`.", *hints.NO_FENCE)
    if not _has(thing, "lend"):
        return wrong("no-ticket", f"{said} You give out no tickets.", *hints.NO_FENCE)
    if first == second and first is not None:
        return wrong("same-ticket", f"{said} Both have the ticket {first!r:.40}.", *hints.COMES_ROUND)
    untaken = _Desk(thing())
    ticket = untaken.lend(5)
    untaken.free(5)
    if first is not None and not untaken.write(5, ticket):
        return wrong("lent-is-enough", f"{said} You do ask whether the page is lent.", *hints.LENT)
    if isinstance(first, int) and isinstance(second, int) and first < second:
        desk = _Desk(thing())
        desk.lend(5)
        if not desk.write(5, second + 1000):  # so tickets are compared, and not for being the same
            return wrong("older-passes", f"{said} Its ticket was {first}, the new one is {second}.", *hints.OLDER)
    return wrong("no-fence", said, *hints.NO_FENCE)


# The status

_STATUSES = (
    (None, None, None), (200, None, None), (200, 200, 200), (502, None, 502), (400, 200, 400), (502, 200, 502),
    (200, 502, 502), (200, 429, 429),
)  # fmt: skip


def _status(thing: Any) -> Verdict | None:
    def told(prefill: int | None, decode: int | None) -> Any:
        return thing().status(prefill, decode) if _has(thing, "status") else decode

    got: dict[tuple[int | None, int | None], Any] = {
        (prefill, decode): told(prefill, decode) for prefill, decode, _want in _STATUSES
    }
    if all(got[prefill, decode] == want for prefill, decode, want in _STATUSES):
        both = told(400, 502)
        if both in (400, 502):
            return None
        said = f"prefill says 400, decode says 502, and your client is told {both}."
        return wrong("other-status", said, *hints.OTHER_STATUS)
    if not isinstance(got[200, 200], int) or isinstance(got[200, 200], bool):
        said = f"both legs say 200, and your client is told {got[200, 200]!r:.40}."
        return wrong("says-nothing", said, *hints.WAITS)
    if any(got[case] is not None for case in ((None, None), (200, None))):
        done = 200 if got[200, None] is not None else None
        said = f"prefill says {done}, decode is still at work, and your client is told {got[done, None]}."
        return wrong("too-early", said, *hints.TOO_EARLY)
    if got[502, None] is None and got[400, 200] == 200:
        return wrong(
            "decode-only",
            "prefill gave up with 502, and your client waits for decode. Prefill says 400, decode 200, and your client "
            "is told 200.",
            *hints.DECODE_ONLY,
        )
    if got[502, None] is None:
        said = "prefill gave up with 502, and your client waits for ever: decode will never say anything."
        return wrong("waits", said, *hints.WAITS)
    if got[400, 200] == 200 or got[200, 502] == 200:
        case = (400, 200) if got[400, 200] == 200 else (200, 502)
        said = f"prefill says {case[0]}, decode says {case[1]}, and your client is told 200."
        return wrong("best-status", said, *hints.DECODE_ONLY)
    prefill, decode, _want = next(case for case in _STATUSES if got[case[:2]] != case[2])
    said = f"prefill says {prefill}, decode says {decode}, and your client is told {got[prefill, decode]!r:.40}."
    return wrong("other-status", said, *hints.OTHER_STATUS)


# Parts that take the place of those from 06 and 07


def _own_parts(thing: Any) -> Verdict | None:
    for name, judge, exercise in (("admit", judge_admit, "6.1"), ("receive", judge_receive, "7.1")):
        if _has(thing, name):
            found = judge(getattr(thing(), name))
            if not found.right:
                said = f"your new `{name}` would not pass exercise {exercise}: {found.said}"
                return wrong(f"{name}: {found.kind}", said, *(found.hints or hints.NEW_PART))
    return None


# All of it together


@cache
def _laboratory() -> GuardLaboratory:
    from minikv.course.chapters.guarded_10 import GuardLaboratory

    return GuardLaboratory()


def cell(make: Callable[[], object], scenario: Scenario, name: str = "", **settings: Any) -> Cell:
    """What becomes of a scenario behind some guards, as in the guard matrix.

    Args:
        make: builds the guards, new ones for each run.
        scenario: what is played.
        name: what the guards are called, in the result.
        settings: `door` and `receiver` in place of those of the reference; None leaves one out.
    """
    return _laboratory().guarded(make, scenario, name, **{"door": admit, "receiver": receive, **settings})


def _cell(thing: Any, scenario: Scenario) -> Cell:
    return cell(thing, scenario)


def _runs(thing: Any) -> Verdict | None:
    """With everything in place, every scenario must be covered."""
    from minikv.incident.matrix import COVERED
    from minikv.incident.scenarios import SCENARIOS, STREAMED

    for scenario in (*SCENARIOS.values(), STREAMED):
        seen = _cell(thing, scenario)
        if seen.verdict not in COVERED:
            said = f"in the scenario {seen.scenario} ({scenario.title}) it still {_IN_WORDS[seen.verdict]}."
            return wrong("still-open", said, *hints.STILL_OPEN)
        if scenario.name == "duplicate" and seen.verdict != "right":
            said = "a handoff that came twice cost its client the answer."
            return wrong("still-open", said, *hints.STILL_OPEN)
    return None


_IN_WORDS = {"leaks": "leaks", "hangs": "hangs", "wrong": "answers wrongly"}


def reason_of(thing: Any) -> str:
    """The two sentences of a class of guards, given by a method or written down as a text; "" if there are none."""
    why = getattr(thing, "why", "")
    why = thing().why() if callable(why) else why
    return " ".join(why.split()) if isinstance(why, str) else ""


def _why(thing: Any) -> Verdict | None:
    """Read by a person, not by a program: it only has to be there."""
    if len(reason_of(thing).split()) >= 6:
        return None
    return wrong("no-reason", "your guards hold. Your two sentences are still missing.", *hints.NO_REASON)
