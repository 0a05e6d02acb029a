"""Exercise 9.1, a detector of stale reads: the reference answer, and what is said of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minikv.course.chapters import detecting
from minikv.course.chapters.detecting import Call, Play
from minikv.course.declare import Verdict, ok, wrong


class Detector:
    """Knows for each slot who has filled it since its page was lent."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.writer = [-1] * (num_pages * page_size)

    def lent(self, page: int, generation: int, owner: int) -> None:
        """What is in the page is nobody's now."""
        first = page * self.page_size
        self.writer[first : first + self.page_size] = [-1] * self.page_size

    def wrote(self, slots: list[int], writer: int) -> None:
        """`writer` has filled these slots."""
        for slot in slots:
            self.writer[slot] = writer

    def reads(self, slots: list[int], reader: int) -> list[int]:
        """Those of the slots that `reader` has not filled itself."""
        return [slot for slot in slots if self.writer[slot] != reader]


@dataclass(frozen=True)
class Seen:
    """How a detector did in one play.

    Attributes:
        missed, invented: (reader, slot) pairs that are stale and were not reported, and the other way round.
        beside: slots that were reported and not read.
        first: the first read at which it was wrong, and what it reported there.
        alarm: the first false alarm: the place of the call, and a slot that was reported there and is not stale.
    """

    play: Play
    missed: set[tuple[int, int]]
    invented: set[tuple[int, int]]
    beside: set[int]
    first: tuple[Call, set[int]] | None
    alarm: tuple[int, int] | None

    @property
    def found(self) -> int:
        """Stale slots that it reported."""
        return len(self.play.stale - self.missed)


class _Shape(Exception):
    pass


Build = Callable[[int, int], Any]


def watch(build: Build, play: Play) -> Seen:
    """Let a detector see one play."""
    from minikv.course.seats.detector import read_report

    detector = build(play.num_pages, play.page_size)
    reported: set[tuple[int, int]] = set()
    sound: set[tuple[int, int]] = set()  # reported though it was not stale at that moment
    beside: set[int] = set()
    first: tuple[Call, set[int]] | None = None
    alarm: tuple[int, int] | None = None
    for place, call in enumerate(play.calls):
        args = tuple(list(each) if isinstance(each, list) else each for each in call.args)
        given = getattr(detector, call.method)(*args)
        if call.method != "reads":
            continue
        found = read_report(given)
        if found is None:
            raise _Shape(f"{given!r:.60}")
        slots, reader = call.args
        beside |= found - set(slots)
        reported |= {(reader, slot) for slot in found}
        unfounded = found & set(slots) - call.stale
        sound |= {(reader, slot) for slot in unfounded}
        if alarm is None and unfounded:
            alarm = (place, min(unfounded))
        if first is None and found != call.stale:
            first = (call, found)
    return Seen(play, play.stale - reported, sound, beside, first, alarm)


def judge_detector(thing: Any) -> Verdict:
    if not callable(thing):
        said = f"you gave an object of type {type(thing).__name__}, and not a class."
        return wrong("shape", said, "One detector is made for each node. What can make several?")
    try:
        seen = {play.__name__: watch(thing, play()) for play in detecting.PLAYS}
    except _Shape as strange:
        said = f"`reads` gave back {strange}, and not a collection of slot numbers."
        return wrong("shape", said, *_SHAPE)
    except AttributeError as error:
        if getattr(error, "name", None) in ("lent", "wrote", "reads") and isinstance(thing, type):
            return wrong("shape", f"your class has no method `{error.name}`.", *_SHAPE)
        raise
    for look in (_beside, _shared, _false_alarm, _nothing, _never_written, _by_page, _late, _own_past, _unknown, _rest):
        if verdict := look(thing, seen):
            return verdict
    incident, ordinary = seen["incident"], seen["ordinary"]
    return ok(
        f"{incident.found} stale slots in the incident, and no alarm in {ordinary.play.requests:,} ordinary requests. "
        "The owner of a page says nothing about what is in it: ask who filled the slot, and since when."
    )


_SHAPE = ("`reads` is asked about some slots. Give back those of them that are stale, in a list or a set.",)


_ONE_EACH = (
    "How many things do you hold for a page: one, or one for each slot?",
    "Whoever looks at pages finds a page good or bad. In the incident one page has one good slot, the placeholder, and "
    "63 bad ones.",
    "Page 2 holds slots 8 to 11. R3 fills all four, then R7 gets the page and fills slot 8. R7 reads all four. How "
    "many of them are R3's? What does your code hold about page 2?",
)


def _beside(_build: Build, seen: dict[str, Seen]) -> Verdict | None:
    for one in seen.values():
        if one.beside and one.first:
            call, found = one.first
            extra = sorted(found - set(call.args[0])) or sorted(one.beside)
            return wrong(
                "unread",
                f"request {call.args[1]} read {len(call.args[0])} slots. You also reported {len(extra)} that it did "
                f"not read, such as slot {extra[0]}.",
                "Reserved, written and read are three numbers of slots. Which of them are you asked about?",
                "A slot that is held and not read has done nobody any harm yet. Only what is read can come out.",
                "A page of 4 slots is lent, slot 8 is filled, and slot 8 is read. Slots 9 to 11 hold old words. How "
                "many stale reads are that?",
            )
    return None


def _shared(build: Build, _seen: dict[str, Seen]) -> Verdict | None:
    """Two nodes have a detector each, and both count their slots from 0."""
    from minikv.course.seats.detector import read_report

    one, other = build(4, 4), build(4, 4)
    one.lent(2, 1, 5)
    one.wrote([8], 5)
    alone = read_report(one.reads([8], 5))
    other.lent(2, 1, 6)
    other.wrote([8], 6)
    if alone or not read_report(one.reads([8], 5)):
        return None
    return wrong(
        "shared",
        "two detectors were made, as for two nodes. On its own node, request 5 filled slot 8 of page 2; on the other, "
        "request 6 did. What was told to the second has changed what the first one says.",
        "Where is what you remember kept: in each detector, or in one place for all of them?",
        "Names that are set in the body of the class belong to all that are made from it.",
    )


def _told_of(play: Play, place: int, slot: int) -> str:
    """What a detector was told about a slot before a call, since its page was lent last."""
    told: list[str] = []
    for call in play.calls[:place]:
        if call.method == "lent" and call.args[0] == slot // play.page_size:
            told = [f"page {call.args[0]} lent to request {call.args[2]}"]
        if call.method == "wrote" and slot in call.args[0]:
            slots, writer = call.args
            who = f"request {writer}" if writer >= 0 else "somebody unknown"
            others = f" and {len(slots) - 1} others between {min(slots)} and {max(slots)}" if len(slots) > 1 else ""
            told.append(f"{who} filled slot {slot}{others}")
    return "; ".join(told[:1] + told[1:][-2:])


def _false_alarm(_build: Build, seen: dict[str, Seen]) -> Verdict | None:
    for name in ("ordinary", "ordinary_pair", "incident", "short_transfer", "late_write", "own_past", "unknown_writer"):
        one = seen[name]
        if not one.invented:
            continue
        assert one.alarm is not None
        place, slot = one.alarm
        reader = one.play.calls[place].args[1]
        page, size = slot // one.play.page_size, one.play.page_size
        if any((reader, other) in one.play.stale for other in range(page * size, (page + 1) * size)):
            said = (
                f"{one.play.name}: in page {page} you reported slot {slot} as well, which request {reader} has filled."
            )
            return wrong("whole-pages", f"{said} The slots beside it are stale.", *_ONE_EACH)
        return wrong(
            "false-alarm",
            f"{one.play.name}: {len(one.invented):,} false alarms. The first: request {reader} reads slot {slot}, in "
            f"page {page}, and has filled that slot itself. You were told: {_told_of(one.play, place, slot)}.",
            "Go through these lines with your code. What does it hold about this slot after each of them?",
            "Almost every page that is lent was used before, and almost every read is right. That a page has a past "
            "is no ground for suspicion. What is?",
            "Page 2 is lent to R3, who fills slots 8 to 11, then to R7, who fills slots 8 and 9. R7 reads 8 and 9. "
            "Then it fills slot 10, and reads 8 to 10. What do you hold about each of these slots, line by line?",
        )
    return None


def _nothing(_build: Build, seen: dict[str, Seen]) -> Verdict | None:
    incident = seen["incident"]
    if incident.found:
        return None
    return wrong(
        "owner",
        f"0 of {len(incident.play.stale)} stale slots found in the incident, and no false alarm either. Yet strangers' "
        "words came out.",
        "Whom does your code compare with the reader? Who was lent the page, or who filled the slot?",
        "In the incident every page that is read belongs to its reader, rightly. Only somebody who is told of each "
        "`wrote` can know better.",
        "Page 2 is lent to R3. R3 fills slots 8 to 11. Page 2 is lent to R7, who reads slot 9. Whose page is it? Whose "
        "words?",
    )


def _never_written(_build: Build, seen: dict[str, Seen]) -> Verdict | None:
    fresh = seen["fresh_start"]
    if not fresh.missed or seen["incident"].missed:
        return None
    return wrong(
        "never-written",
        f"{fresh.play.name}: {len(fresh.play.stale)} slots were read that nobody ever filled. You found {fresh.found}.",
        "What does your code know of a slot of which it was never told anything?",
        "A slot that nobody has filled was not filled by its reader. What stands for \"nobody\" in what you keep?",
        "A new server: page 0 is lent to R1, who reads slot 2. Nothing was written. Is that read all right?",
    )  # fmt: skip


def _by_page(build: Build, seen: dict[str, Seen]) -> Verdict | None:
    """Whole pages: who looks at pages misses slots that lie beside the reader's own."""
    incident, short = seen["incident"], seen["short_transfer"]
    if not incident.missed:
        return None
    first_page = _in_first_page(incident)
    if not first_page:
        return wrong(
            "untouched",
            f"you found {incident.found} of {len(incident.play.stale)} stale slots: those that came along with the "
            "handoff. Of the pages into which nothing came you said nothing.",
            "What does your code know of a slot of which it was told nothing since its page was lent?",
            "In the incident nobody does anything to these slots. That is the fault: nothing was written, and it is "
            "read.",
        )
    if not short.found and _knows_generations(build):
        return wrong(
            "generation",
            f"you found {incident.found} of {len(incident.play.stale)} stale slots in the incident, and none in "
            f"`{short.play.name}`, where the last page of a handoff was lost: right page, right generation, and its "
            "tail was never written.",
            "What do you hold for a page of which one slot was filled, and the others not?",
            "The generation says when a page was lent. It does not say how much of the page was filled since.",
            "Page 2 is lent to R7, generation 5. R7 fills slot 8, and reads slots 8 and 9. Is the generation right? "
            "Is slot 9?",
        )
    return wrong(
        "whole-pages",
        f"you found {incident.found} of {len(incident.play.stale)} stale slots. Of these you missed {first_page} in "
        "the first page of the request, where one slot is its own.",
        *_ONE_EACH,
    )


def _in_first_page(incident: Seen) -> int:
    """Missed slots in the page that holds position 0 of the request."""
    reader = max(reader for reader, _slot in incident.play.stale)
    first = next(call for call in incident.play.calls if call.method == "reads" and call.args[1] == reader)
    page = first.args[0][0] // incident.play.page_size
    return sum(slot // incident.play.page_size == page for _reader, slot in incident.missed)


def _knows_generations(build: Build) -> bool:
    """Whether it tells a page that was lent anew to the same request from the old one."""
    one = build(4, 4)
    one.lent(2, 1, 9)
    one.wrote([8, 9, 10, 11], 9)
    one.lent(2, 2, 9)
    return bool(one.reads([8, 9], 9))


_LATE = (
    "Who may write into a page, by your code? And who did?",
    "A handoff that is late writes to the pages that it was promised, whoever holds them by now. The newest contents "
    "of a slot are what counts.",
    "Page 2 is R7's, and R7 has filled slot 8. Then R3's old handoff arrives, in slots 8 to 11. Now R7 reads slot 8. "
    "Whose words?",
)


def _late(_build: Build, seen: dict[str, Seen]) -> Verdict | None:
    late = seen["late_write"]
    if not late.missed:
        return None
    return wrong(
        "late-write",
        f"`{late.play.name}`: the reader had filled its slots, and then an old handoff arrived in them. You reported "
        f"{late.found} of {len(late.play.stale)} slots.",
        *_LATE,
    )


def _own_past(_build: Build, seen: dict[str, Seen]) -> Verdict | None:
    past = seen["own_past"]
    if not past.missed:
        return None
    return wrong(
        "own-past",
        "request 9 had filled a page, gave it back and got it again. It read slots that it had not filled since, and "
        f"you reported {past.found} of {len(past.play.stale)}.",
        "Who filled the slot: request 9. For which of its positions, and when?",
        "The same page, lent anew, is in another generation. What was in it belongs to the one before, whoever wrote "
        "it.",
        "Page 2 is lent to R9 and filled. R9 gives it back, and gets it again for other positions of its text. What is "
        "in slot 9 now? What do you forget, and when?",
    )


def _unknown(_build: Build, seen: dict[str, Seen]) -> Verdict | None:
    if not seen["unknown_writer"].missed:
        return None
    return wrong(
        "unknown",
        "request 7 had filled slot 9. Then you were told `wrote([9], -1)`: something else is in it now, and nobody "
        "knows whose. Request 7 read slot 9, and you reported nothing.",
        "What is in slot 9 now? Is it still what request 7 put there?",
        "A writer that nobody knows is not the reader. What did your code do when it was told of one?",
    )


def _rest(_build: Build, seen: dict[str, Seen]) -> Verdict | None:
    for one in seen.values():
        if one.first and not one.missed:
            call, found = one.first
            return wrong(
                "once",
                f"{one.play.name}: a read with {len(call.stale)} stale slots, of which you reported {len(found)}. The "
                "others you had reported before. They are still there, and were read again.",
                "Has anybody filled these slots since your last report?",
                "`reads` is a question. What changes in your detector when it is asked?",
            )
        if one.missed:
            reader, slot = min(one.missed)
            return wrong(
                "other",
                f"{one.play.name}: you reported {one.found} of {len(one.play.stale)} stale slots. One that you missed: "
                f"slot {slot}, read by request {reader}.",
                "Write down, for this one slot, what was lent and written, in order. Who filled it last?",
            )
    return None
