"""Exercise 8.1, slots read by writer: the reference answer, and what is said of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from minikv.course.declare import Verdict, ok, wrong

if TYPE_CHECKING:
    from minikv.trace import Event


def slots_read(events: Iterable[Event], number: int) -> dict[str, int]:
    """Slots read for request `number` in its first step on the decode node, by the tenant that wrote them."""
    from minikv.trace import Admit, Read

    events = list(events)
    names = {event.request: event.tenant for event in events if isinstance(event, Admit)}
    reads = [e for e in events if isinstance(e, Read) and e.node == "decode" and e.owner == number]
    counts: Counter[str] = Counter()
    for read in reads:
        if read.step == reads[0].step:
            for writer, slots in read.writers:
                counts[names.get(writer, "nobody")] += slots
    return dict(counts)


@dataclass(frozen=True)
class _Case:
    events: tuple[Event, ...]
    number: int
    expected: dict[str, int]  # from the ledger, not from the events
    reserved: int  # slots
    stale_pages: int
    every_step: int  # slots read in all steps together
    first_page: dict[str, int]  # counts of the first page alone
    replaced: dict[str, int]  # counts if each page replaces what was counted before
    beside: int  # slots read in the same step for somebody else

    @property
    def own(self) -> int:
        return self.expected["attacker"]

    @property
    def foreign(self) -> int:
        return sum(self.expected.values()) - self.own


@cache
def _cases() -> tuple[_Case, ...]:
    """Attacks on a random model: two with a past, one on a fresh server, one that waits while others are served."""
    return (_case(30, past=True), _case(38, past=True), _case(27, past=False), _case(30, past=False, others=True))


def _case(length: int, *, past: bool, others: bool = False) -> _Case:
    from minikv import NodeConfig, SamplingParams
    from minikv.incident.history import HistoricalCluster
    from minikv.incident.scales import POCKET
    from minikv.incident.stage import Stage, build
    from minikv.trace import Read

    scale = replace(POCKET, answer_tokens=6, decode=NodeConfig(num_pages=22) if others else POCKET.decode)
    stage = Stage(scale, scale.load(), build(scale, scale.load(), HistoricalCluster))
    if past:
        stage.play_past()
    if others:  # two hold so many pages that the attack waits for the first of them, and meets the second
        for name, tokens in (("hal", 24), ("ida", 34)):
            params = SamplingParams(max_tokens=tokens, ignore_eos=True)
            stage.names[stage.cluster.submit(list(range(1, 18)), params, name)] = name
        for _ in range(13):
            stage.cluster.step()
    done = stage.attack(length)
    outcome = stage.measure(done)
    events = tuple(stage.cluster.trace)
    decoded = [e for e in events if isinstance(e, Read) and e.node == "decode"]
    reads = [e for e in decoded if e.owner == done.request_id]
    first = [e for e in reads if e.step == reads[0].step]
    pages = [{stage.names.get(w, "nobody" if w < 0 else "attacker"): n for w, n in e.writers} for e in first]
    return _Case(
        events,
        done.request_id,
        {**outcome.stale_writers, "attacker": length + 1 - outcome.stale_slots_read},
        outcome.pages_reserved * scale.page_size,
        outcome.pages_stale,
        sum(read.slots for read in reads),
        pages[0],
        {name: slots for page in pages for name, slots in page.items()},
        sum(e.slots for e in decoded if e.step == first[0].step and e.owner != done.request_id),
    )


_WHO_WROTE = (
    "Who holds these pages, and who filled them? Which of the two did you ask?",
    "The owner of a page is not the writer of its slots. A Read event carries both.",
    "Take one Read event of the attack and print it. Which of its fields has more than one name in it?",
)
_READ_NOT_RESERVED = (
    "Reserved, written, read: which of the three numbers is this?",
    "Attention stops at the length that it believes. The last page is read only so far.",
    "Page size 4, 3 pages, a length of 10. How many slots are reserved, and how many are read?",
)
_ONE_STEP = (
    "How many steps did you add up?",
    "Every step reads everything again. The exercise asks for the first one.",
    "Print the steps of the Read events of this request. Which of them are the first step?",
)


def judge_slots(thing: Any) -> Verdict:
    for case in _cases():
        try:
            got = thing(list(case.events), case.number)
        except KeyError as error:
            if error.args != (-1,):
                raise
            return wrong(
                "nobody",
                "your code raised KeyError: -1.",
                "A slot nobody wrote has writer -1.",
                'Which name do you give to -1? The exercise calls it "nobody".',
            )
        if not isinstance(got, dict):
            return wrong("shape", f"you gave back {type(got).__name__}.", "Give a dict: tenant to number of slots.")
        got = {name: slots for name, slots in got.items() if slots}
        if got != case.expected:
            return _why_other(case, got)
    return ok("Slots read, by writer. The server's own book counts the same, and your program has only seen the trace.")


def _why_other(case: _Case, got: dict[Any, Any]) -> Verdict:
    if any(not isinstance(name, str) for name in got):
        number = next(name for name in got if not isinstance(name, str))
        return wrong(
            "numbers",
            f"you count for {number!r}, which is no tenant.",
            "A slot nobody wrote has writer -1. What is it called here?"
            if number == -1
            else f"Who is request {number}? One kind of event knows tenant and number together.",
            'Admit events carry both. Slots that were never written have the writer -1: call that "nobody".',
        )
    total = sum(got.values())
    own = got.get("attacker", 0)
    foreign = total - own
    if case.beside and total == case.own + case.foreign + case.beside:
        said = f"you count {total} slots. {case.beside} of them were read in the same step for another request."
        return wrong(
            "other-request",
            said,
            "Whose reads are these? One step serves several requests.",
            "Each Read event names the request for which it was read. Which field is that?",
        )
    if total == 0 and case.beside:
        return wrong(
            "other-first-step",
            "you found no slot at all for an attack that had to wait before decode took it.",
            "The first step on which node?",
            "This request was read for on both nodes, and not in the same step. Look for the first on decode.",
        )
    if own == 0 and total == case.foreign:
        said = f"the foreign slots are right, and the {case.own} own ones are missing."
        return wrong("own-left-out", said, "Its own slots count too.")
    if got == case.first_page:
        said = f"you count {total} slots, those of one page. {case.own + case.foreign} were read."
        return wrong("first-page", said, "How many Read events are there in that step? Each is about one page.")
    if got == case.replaced:
        said = f"you count {total} slots. {case.own + case.foreign} were read."
        return wrong("replaced", said, "Two pages of one tenant: added, or replaced?")
    if foreign == 0 and own:
        said = "you found 0 foreign slots: all are the attacker's. Yet strangers' words came out."
        return wrong("owner", said, *_WHO_WROTE)
    size = case.reserved // (case.stale_pages + 1)
    if foreign == case.stale_pages * size:
        said = f"{foreign} foreign slots: that is {case.stale_pages} pages of {size}. It is {case.foreign}."
        return wrong(
            "whole-pages",
            said,
            "What about page 0? And was the last page read to its end?",
            "A page that counts as written has one own slot. A page that is read last is not read whole.",
            "Page size 4, three pages, one slot written, a length of 10. Count the foreign slots page by page.",
        )
    if foreign == case.foreign and own == case.own + 1:
        return wrong(
            "other-node",
            f"the foreign slots are right, but you count {own} own ones. It is {case.own}.",
            "On which nodes was something read for this request?",
            "Prefill read a slot too: the one of the placeholder. The question is about decode.",
        )
    if case.reserved in (total, foreign) or foreign == case.reserved - case.own:
        said = f"you count {total} slots. That many were reserved; {case.own + case.foreign} were read."
        return wrong("reserved", said, *_READ_NOT_RESERVED)
    if total >= case.every_step:
        return wrong("every-step", f"you count {total} slots, far more than any step reads.", *_ONE_STEP)
    if own == 0 and total == case.own + case.foreign:
        said = f"you count {total} slots, all foreign. {case.own} of them the attacker wrote."
        return wrong("one-writer", said, "Can one page have two writers? What is in `writers` then?")
    said = f"you say {dict(sorted(got.items()))}, together {total}. {case.own + case.foreign} slots were read."
    return wrong("other", said, *_READ_NOT_RESERVED)
