"""Answers to the exercises of chapter 09: the wrong ones with the kind of verdict that each must get, and right ones.

All are sources, as a learner would write them in a cell. A right one may name a word that its `[ok]` must say.
"""

from __future__ import annotations

import textwrap

from answers import Answers

DETECTOR_NAME, FIRST_NAME, TRIALS_NAME = "Detector", "first_disagreement", "my_trials"


def _detector(init: str = "pass", lent: str = "pass", wrote: str = "pass", reads: str = "return []") -> str:
    def body(lines: str) -> str:
        return textwrap.indent(textwrap.dedent(lines).strip(), " " * 8)

    return (
        "class Detector:\n"
        "    def __init__(self, num_pages, page_size):\n"
        f"        self.page_size = page_size\n{body(init)}\n"
        f"    def lent(self, page, generation, owner):\n{body(lent)}\n"
        f"    def wrote(self, slots, writer):\n{body(wrote)}\n"
        f"    def reads(self, slots, reader):\n{body(reads)}\n"
    )


_WRITERS = "self.writer = {}"
_FORGET = """
    for slot in range(page * self.page_size, (page + 1) * self.page_size):
        self.writer.pop(slot, None)
"""
_NOTE = "for slot in slots: self.writer[slot] = writer"
_COMPARE = "return [slot for slot in slots if self.writer.get(slot) != reader]"
_OWNERS = "self.owner, self.page_of = {}, lambda slot: slot // page_size"

DETECTOR_WRONG = {
    "owner for writer": (
        _detector(
            _OWNERS,
            "self.owner[page] = owner",
            reads="return [s for s in slots if self.owner[self.page_of(s)] != reader]",
        ),
        "owner",
    ),
    "only writes of another than the owner": (
        _detector(
            "self.owner, self.bad = {}, set()",
            "self.owner[page] = owner; self.bad -= set(range(page * self.page_size, (page + 1) * self.page_size))",
            "page = slots[0] // self.page_size\n"
            "if self.owner.get(page) != writer and writer >= 0: self.bad |= set(slots)\n"
            "else: self.bad -= set(slots)",
            "return [s for s in slots if s in self.bad]",
        ),
        "untouched",
    ),
    "never says anything": (_detector(), "owner"),
    "page generation only": (
        _detector(
            "self.now, self.filled = {}, {}",
            "self.now[page] = generation",
            "for s in slots: self.filled[s // self.page_size] = self.now.get(s // self.page_size)",
            "return [s for s in slots if self.filled.get(s // self.page_size) != self.now[s // self.page_size]]",
        ),
        "generation",
    ),
    "fresh pages": (
        _detector(
            "self.fresh = set()",
            "self.fresh.add(page)",
            "for s in slots: self.fresh.discard(s // self.page_size)",
            "return [s for s in slots if s // self.page_size in self.fresh]",
        ),
        "generation",
    ),
    "every reused page": (
        _detector(
            "self.times = {}",
            "self.times[page] = generation",
            reads="return [s for s in slots if self.times[s // self.page_size] > 1]",
        ),
        "false-alarm",
    ),
    "the first writer stays": (
        _detector(_WRITERS, wrote="for s in slots: self.writer.setdefault(s, writer)", reads=_COMPARE),
        "false-alarm",
    ),
    "the first writer since it was lent": (
        _detector(
            "self.first = {}",
            "self.first.pop(page, None)",
            "for s in slots: self.first.setdefault(s // self.page_size, writer)",
            "return [s for s in slots if self.first.get(s // self.page_size) != reader]",
        ),
        "generation",
    ),
    "whoever has been in the page": (
        _detector(
            "self.been = {}",
            wrote="for s in slots: self.been.setdefault(s // self.page_size, set()).add(writer)",
            reads="return [s for s in slots if reader not in self.been.get(s // self.page_size, ())]",
        ),
        "whole-pages",
    ),
    "one writer a page": (
        _detector(
            "self.last = {}",
            wrote="for s in slots: self.last[s // self.page_size] = writer",
            reads="return [s for s in slots if self.last.get(s // self.page_size) != reader]",
        ),
        "whole-pages",
    ),
    "reserved but unread": (
        _detector(
            "self.writer, self.held = {}, {}",
            "self.held.setdefault(owner, set()).add(page)" + "\n" + textwrap.dedent(_FORGET).strip(),
            _NOTE,
            "held = [p * self.page_size + i for p in self.held[reader] for i in range(self.page_size)]\n"
            "return [s for s in held if self.writer.get(s) != reader]",
        ),
        "unread",
    ),
    "the rest of the page as well": (
        _detector(
            _WRITERS,
            _FORGET,
            _NOTE,
            "size = self.page_size\n"
            "pages = {s // size for s in slots}\n"
            "return [s for p in pages for s in range(p * size, p * size + size) if self.writer.get(s) != reader]",
        ),
        "unread",
    ),
    "nobody is fine": (
        _detector(_WRITERS, "pass", _NOTE, "return [s for s in slots if self.writer.get(s, reader) != reader]"),
        "never-written",
    ),
    "minus one is fine": (
        _detector(
            "self.writer = [-1] * (num_pages * page_size)",
            "pass",
            _NOTE,
            "return [s for s in slots if self.writer[s] not in (reader, -1)]",
        ),
        "never-written",
    ),
    "only its owner may write": (
        _detector(
            "self.writer, self.owner = {}, {}",
            "self.owner[page] = owner\n" + textwrap.dedent(_FORGET).strip(),
            "for s in slots:\n    if self.owner.get(s // self.page_size) == writer: self.writer[s] = writer",
            _COMPARE,
        ),
        "late-write",
    ),
    "a set for each writer": (
        _detector(
            "self.mine = {}",
            "self.mine.get(owner, set()).difference_update(range(page * self.page_size, (page + 1) * self.page_size))",
            "self.mine.setdefault(writer, set()).update(slots)",
            "return [s for s in slots if s not in self.mine.get(reader, ())]",
        ),
        "late-write",
    ),
    "never forgets": (_detector(_WRITERS, "pass", _NOTE, _COMPARE), "own-past"),
    "forgets for others only": (
        _detector(
            "self.writer, self.owner = {}, {}",
            "if self.owner.get(page) != owner:\n"
            + textwrap.indent(textwrap.dedent(_FORGET).strip(), "    ")
            + "\nself.owner[page] = owner",
            _NOTE,
            _COMPARE,
        ),
        "own-past",
    ),
    "unknown writers are not noted": (
        _detector(_WRITERS, _FORGET, "if writer != -1:\n    for slot in slots: self.writer[slot] = writer", _COMPARE),
        "unknown",
    ),
    "each slot is reported once": (
        _detector(
            _WRITERS,
            _FORGET,
            _NOTE,
            "stale = [s for s in slots if self.writer.get(s) != reader]\n"
            "for s in stale: self.writer[s] = reader\n"
            "return stale",
        ),
        "once",
    ),
    "one dict for all nodes": (
        _detector("pass", _FORGET, _NOTE, _COMPARE).replace("Detector:\n", "Detector:\n    writer = {}\n"),
        "shared",
    ),
    "forgets one slot too late": (
        _detector(
            _WRITERS,
            _FORGET.replace("range(page * self.page_size,", "range(page * self.page_size + 1,").replace(
                "(page + 1) * self.page_size)", "(page + 1) * self.page_size + 1)"
            ),
            _NOTE,
            _COMPARE,
        ),
        "false-alarm",
    ),
    "from the first slot to the last": (
        _detector(_WRITERS, _FORGET, "for s in range(slots[0], slots[-1]): self.writer[s] = writer", _COMPARE),
        "false-alarm",
    ),
    "pages of four": (
        _detector(_WRITERS, _FORGET.replace("self.page_size", "4"), _NOTE, _COMPARE),
        "false-alarm",
    ),
    "an instance": (_detector(_WRITERS, _FORGET, _NOTE, _COMPARE) + "\nDetector = Detector(8, 4)\n", "shape"),
    "the pages": (
        _detector(
            _WRITERS, _FORGET, _NOTE, "return {s // self.page_size for s in slots if self.writer.get(s) != reader}"
        ),
        "unread",
    ),
    "a count": (_detector(_WRITERS, _FORGET, _NOTE, _COMPARE.replace("[", "len([").replace("]", "])")), "shape"),
    "yes or no": (
        _detector(_WRITERS, _FORGET, _NOTE, "return any(self.writer.get(s) != reader for s in slots)"),
        "shape",
    ),
    "pairs": (
        _detector(
            _WRITERS, _FORGET, _NOTE, "return [(s, self.writer.get(s)) for s in slots if self.writer.get(s) != reader]"
        ),
        "shape",
    ),
    "a method forgotten": (
        "class Detector:\n    def __init__(self, n, size): pass\n    def reads(self, slots, reader): return []\n",
        "shape",
    ),
    "it stops the read": (
        _detector(_WRITERS, _FORGET, _NOTE, "assert all(self.writer.get(s) == reader for s in slots), 'stale'"),
        "raised AssertionError",
    ),
}

DETECTOR_RIGHT = {
    "the reference": (
        _detector(
            "self.writer = [-1] * (num_pages * page_size)",
            "first = page * self.page_size\nself.writer[first:first + self.page_size] = [-1] * self.page_size",
            _NOTE,
            "return [s for s in slots if self.writer[s] != reader]",
        ),
        "489 stale slots",
    ),
    "a dict": (_detector(_WRITERS, _FORGET, _NOTE, _COMPARE), ""),
    "generations beside writers": (
        _detector(
            "self.now, self.filled = {}, {}",
            "self.now[page] = generation",
            "for s in slots: self.filled[s] = (writer, self.now.get(s // self.page_size))",
            "return {s for s in slots if self.filled.get(s) != (reader, self.now[s // self.page_size])}",
        ),
        "",
    ),
    "numpy": (
        "import numpy as np\n"
        + _detector(
            "self.writer = np.full((num_pages, page_size), -1)",
            "self.writer[page] = -1",
            "self.writer.ravel()[slots] = writer",
            "slots = np.asarray(slots)\nreturn slots[self.writer.ravel()[slots] != reader]",
        ),
        "",
    ),
    "torch": (
        "import torch\n"
        + _detector(
            "self.writer = torch.full((num_pages * page_size,), -1)",
            "self.writer.view(-1, self.page_size)[page] = -1",
            "self.writer[torch.tensor(slots)] = writer",
            "slots = torch.tensor(slots)\nreturn slots[self.writer[slots] != reader]",
        ),
        "",
    ),
    "nothing instead of an empty list": (
        _detector(_WRITERS, _FORGET, _NOTE, _COMPARE.replace("return", "stale =") + "\nif stale: return stale"),
        "",
    ),
    "a generator": (
        _detector(_WRITERS, _FORGET, _NOTE, "for s in slots:\n    if self.writer.get(s) != reader: yield s"),
        "",
    ),
    "a clock": (
        _detector(
            "self.time, self.lent_at, self.last = 0, [0] * num_pages, {}",
            "self.time += 1; self.lent_at[page] = self.time",
            "self.time += 1\nfor s in slots: self.last[s] = self.time, writer",
            "def bad(s):\n"
            "    when, who = self.last.get(s, (0, None))\n"
            "    return who != reader or when < self.lent_at[s // self.page_size]\n"
            "return filter(bad, slots)",
        ),
        "",
    ),
    "a diary, read backwards": (
        _detector(
            "self.diary = []",
            "self.diary.append(('lent', page, None))",
            "self.diary.append(('wrote', set(slots), writer))",
            "def writer_of(slot):\n"
            "    for what, where, who in reversed(self.diary):\n"
            "        if what == 'lent' and where == slot // self.page_size: return None\n"
            "        if what == 'wrote' and slot in where: return who\n"
            "return tuple(s for s in slots if writer_of(s) != reader)",
        ),
        "",
    ),
    "bits for each page": (
        _detector(
            "self.owner, self.bits = [None] * num_pages, [0] * num_pages",
            "self.owner[page], self.bits[page] = owner, 0",
            "for s in slots:\n"
            "    page, bit = s // self.page_size, 1 << s % self.page_size\n"
            "    if writer == self.owner[page]: self.bits[page] |= bit\n"
            "    else: self.bits[page] &= ~bit",
            "def good(s):\n"
            "    page = s // self.page_size\n"
            "    return self.owner[page] == reader and self.bits[page] >> s % self.page_size & 1\n"
            "return [s for s in slots if not good(s)]",
        ),
        "",
    ),
    "a list for each page": (
        _detector(
            "self.pages = {}",
            "self.pages[page] = [None] * self.page_size",
            "for s in slots: self.pages[s // self.page_size][s % self.page_size] = writer",
            "return [s for s in slots if self.pages[s // self.page_size][s % self.page_size] != reader]",
        ),
        "",
    ),
    "a function that builds it, other names, a dict made anew": (
        "class Watch:\n"
        "    def __init__(self, n, k): self.k, self.w = k, {}\n"
        "    def lent(self, p, g, o): self.w = {s: w for s, w in self.w.items() if s // self.k != p}\n"
        "    def wrote(self, where, who): self.w.update(dict.fromkeys(where, f'R{who}'))\n"
        "    def reads(self, where, who): return {s for s in where if self.w.get(s) != f'R{who}'}\n"
        "def Detector(n, k):\n"
        "    return Watch(n, k)\n",
        "",
    ),
    "a set of the reader's own slots": (
        _detector(
            "self.mine = {}",
            "for own in self.mine.values():\n"
            "    own.difference_update(range(page * self.page_size, (page + 1) * self.page_size))",
            "for own in self.mine.values(): own.difference_update(slots)\n"
            "self.mine.setdefault(writer, set()).update(slots)\n"
            "self.mine = {w: own for w, own in self.mine.items() if own}",
            "return set(slots) - self.mine.get(reader, set())",
        ),
        "",
    ),
}


def _first(body: str, head: str = "") -> str:
    return (
        f"{head}def first_disagreement(events):\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n"
    )


_IMPORTS = (
    "from collections import Counter\nfrom minikv.trace import *\nfrom minikv.trace import Allocate, HandoffDone\n"
)
_LENGTHS_ONLY = """
    believed = {}
    for e in events:
        if isinstance(e, Length) and believed.setdefault(e.request, e.tokens) != e.tokens:
            return e
"""
_REFERENCE = """
    read, first, believed = Counter(), {}, {}
    for e in events:
        if isinstance(e, Read) and e.node == "decode":
            read[e.owner, e.step] += e.slots
    for e in events:
        if isinstance(e, Length):
            who, tokens = e.request, e.tokens
        elif isinstance(e, Read) and e.node == "decode" and first.setdefault(e.owner, e.step) == e.step:
            who, tokens = e.owner, read[e.owner, e.step] - 1
        else:
            continue
        if believed.setdefault(who, tokens) != tokens:
            return e
"""

_BY_KIND = """
    told = {{}}
    for e in events:
        if isinstance(e, Length): told.setdefault(e.request, e.tokens)
    def noted():
        return next((e for e in events if isinstance(e, Length) and e.tokens != told[e.request]), None)
    def attention():
        for number, tokens in told.items():
            reads = [e for e in events if isinstance(e, Read) and (e.node, e.owner) == ("decode", number)]
            step = [e for e in reads if e.step == reads[0].step]
            if step and sum(e.slots for e in step) != tokens + 1: return step[0]
    return {first}() or {then}()
"""

FIRST_WRONG = {
    "the symptom": (
        """
        prompt = {e.request: e.tokens for e in events if isinstance(e, Length) and e.part == "client"}
        for e in events:
            if isinstance(e, Read) and any(w != e.owner for w, n in e.writers):
                return e
        """,
        "symptom",
    ),
    "backwards": (
        """
        believed = {}
        found = None
        for e in events:
            if isinstance(e, Length) and believed.setdefault(e.request, e.tokens) != e.tokens:
                found = e
        return found
        """,
        "later",
    ),
    "the jump back": (
        """
        last = {}
        for e in events:
            if isinstance(e, Length):
                if last.get(e.request, e.tokens) < e.tokens:
                    return e
                last[e.request] = e.tokens
        """,
        "later",
    ),
    "pages compared": (
        """
        for e in events:
            if isinstance(e, HandoffDone) and len(e.pages) * 4 - e.received >= 4:
                return e
        """,
        "pages",
    ),
    "counters of the handoff": (
        """
        for e in events:
            if isinstance(e, HandoffDone) and e.expected != e.received:
                return e
        """,
        "pages",
    ),
    "pages lent": (
        """
        pages = Counter()
        for e in events:
            if isinstance(e, Allocate):
                pages[e.owner, e.node] += 1
                if e.node == "decode" and pages[e.owner, "decode"] > pages[e.owner, "prefill"]:
                    return e
        """,
        "pages",
    ),
    "growth": (_REFERENCE.replace("e.step] - 1", "e.step]"), "growth"),
    "every step": (
        _REFERENCE.replace(" and first.setdefault(e.owner, e.step) == e.step", ""),
        "growth",
    ),
    "different requests": (
        """
        before = None
        for e in events:
            if isinstance(e, Length):
                if before is not None and before != e.tokens:
                    return e
                before = e.tokens
        """,
        "mixed",
    ),
    "one read is one page": (
        """
        believed = {}
        for e in events:
            if isinstance(e, Length):
                if believed.setdefault(e.request, e.tokens) != e.tokens:
                    return e
            if isinstance(e, Read) and e.node == "decode" and e.slots < 4 and e.slots != believed[e.owner] + 1:
                return e
            if isinstance(e, Read) and e.node == "decode" and believed[e.owner] > 4:
                return e
        """,
        "one-page",
    ),
    "a page against the prompt": (
        """
        believed, seen = {}, set()
        for e in events:
            if isinstance(e, Length):
                if believed.setdefault(e.request, e.tokens) != e.tokens:
                    return e
            if isinstance(e, Read) and e.node == "decode" and e.owner not in seen:
                seen.add(e.owner)
                if e.slots - 1 != believed[e.owner]:
                    return e
        """,
        "one-page",
    ),
    "prefill's reads": (
        _REFERENCE.replace(' and e.node == "decode"', "").replace("e.step] - 1", "e.step]"),
        "other-node",
    ),
    "both ends": (
        """
        first = {}
        for e in events:
            if isinstance(e, Length) and e.part in ("client", "page table"):
                if first.setdefault(e.request, e.tokens) != e.tokens:
                    return e
        """,
        "none",
    ),
    "the last that agreed": (
        """
        before = {}
        for e in events:
            if isinstance(e, Length):
                if e.request in before and before[e.request].tokens != e.tokens:
                    return before[e.request]
                before[e.request] = e
        """,
        "before",
    ),
    "the last request": (
        """
        last = max(e.request for e in events if isinstance(e, Length))
        row = [e for e in events if isinstance(e, Length) and e.request == last]
        return next((e for e in row if e.tokens != row[0].tokens), None)
        """,
        "one-request",
    ),
    "the library's row, of the last request": (
        """
        row = lengths(events)
        return next((e for e in row if e.tokens - (e.part == "attention") != row[0].tokens), None)
        """,
        "one-request",
    ),
    "only what is noted": (_LENGTHS_ONLY, "only-lengths"),
    "first all lengths, then all reads": (_BY_KIND.format(first="noted", then="attention"), "order"),
    "first all reads, then all lengths": (_BY_KIND.format(first="attention", then="noted"), "order"),
    "one request after the other": (
        """
        for number in sorted({e.request for e in events if isinstance(e, Length)}):
            row = [e for e in events if isinstance(e, Length) and e.request == number]
            for e in row:
                if e.tokens != row[0].tokens: return e
            reads = [e for e in events if isinstance(e, Read) and (e.node, e.owner) == ("decode", number)]
            step = [e for e in reads if e.step == reads[0].step]
            if step and sum(e.slots for e in step) != row[0].tokens + 1:
                return step[0]
        """,
        "order",
    ),
    "a place in the list": (
        _LENGTHS_ONLY.replace("for e in events", "for i, e in enumerate(events)").replace("return e", "return i"),
        "shape",
    ),
    "the name of the part": (_LENGTHS_ONLY.replace("return e", "return e.part"), "shape"),
    "both of them": (_LENGTHS_ONLY.replace("return e", "return believed[e.request], e.tokens"), "shape"),
}
FIRST_WRONG = {title: (_first(body, _IMPORTS), kind) for title, (body, kind) in FIRST_WRONG.items()}

FIRST_RIGHT = {
    "the reference": (_first(_REFERENCE, _IMPORTS), ""),
    "by name of the class": (
        _first(_REFERENCE)
        .replace("isinstance(e, Length)", 'type(e).__name__ == "Length"')
        .replace("isinstance(e, Read)", 'type(e).__name__ == "Read"')
        .replace("def first", "from collections import Counter\ndef first", 1),
        "",
    ),
    "request by request": (
        _first(
            """
            found = []
            for number in {e.request for e in events if isinstance(e, Length)}:
                row = [e for e in events if isinstance(e, Length) and e.request == number]
                reads = [e for e in events if isinstance(e, Read) and (e.node, e.owner) == ("decode", number)]
                step = [e for e in reads if e.step == reads[0].step]
                odd = [e for e in row if e.tokens != row[0].tokens]
                if step and sum(e.slots for e in step) != row[0].tokens + 1:
                    odd += step
                found += odd
            return min(found, key=events.index, default=None)
            """,
            _IMPORTS,
        ),
        "",
    ),
    "with the library": (
        _first(
            """
            found = []
            for number in sorted({e.request for e in events if isinstance(e, Length)}):
                row = lengths(events, number)
                for e in row:
                    if e.tokens - (e.part == "attention") != row[0].tokens:
                        found.append((e.step, e))
                        break
            return min(found, key=lambda pair: pair[0], default=(0, None))[1]
            """,
            _IMPORTS,
        ),
        "",
    ),
    "a running total, checked when the step is over": (
        _first(
            """
            told, seen, over, found = {}, {}, set(), []
            for i, e in enumerate(events):
                if isinstance(e, Length):
                    if told.setdefault(e.request, e.tokens) != e.tokens: found.append((i, e))
                elif isinstance(e, Read) and e.node == "decode" and e.owner not in over:
                    row = seen.setdefault(e.owner, [e.step, 0, i, e])
                    if row[0] == e.step: row[1] += e.slots
                    else: over.add(e.owner)
            found += [(i, e) for who, (_, total, i, e) in seen.items() if total - 1 != told[who]]
            return min(found, key=lambda pair: pair[0])[1] if found else None
            """,
            _IMPORTS,
        ),
        "",
    ),
    "a copy of the event": (
        _first(_REFERENCE.replace("return e", "return replace(e)"), _IMPORTS + "from dataclasses import replace\n"),
        "",
    ),
    "once through, totals as they come": (
        _first(
            """
            believed, left, first = {}, {}, {}
            events = list(events)
            for i, e in enumerate(events):
                if isinstance(e, Length):
                    if believed.setdefault(e.request, e.tokens) != e.tokens:
                        return e
                if isinstance(e, Read) and e.node == "decode":
                    if first.setdefault(e.owner, e.step) == e.step:
                        step = [r for r in events if isinstance(r, Read) and r.step == e.step]
                        mine = sum(r.slots for r in step if r.owner == e.owner and r.node == "decode")
                        if mine != believed[e.owner] + 1:
                            return e
            return None
            """,
            _IMPORTS,
        ),
        "",
    ),
}

_POOLS = '("both nodes refuse if both pools are small", "equal pools", {"status": 400})'
_WIPED = '("zeros take the words away, not the reads", "wiped", {"stale slots": 30, "answer": "other"})'
_NOTHING = '("the question is never read by decode", "other question", {"stale slots": 30, "answer": "same"})'


def _trials(*each: str) -> str:
    return f"my_trials = [\n    {''.join(f'{one},' for one in each)}\n]\n"


TRIALS_WRONG = {
    "an expectation for every weather": (
        _trials(
            '("something will go wrong in some way", "without e", {"status": (200, 400, 500, 502)})', _POOLS, _NOTHING
        ),
        "cannot-fail",
    ),
    "no expectation": (_trials('("the past has to be there", "no past", {})', _POOLS, _NOTHING), "cannot-fail"),
    "zero or more": (
        _trials('("some slots are read, or none", "wiped", {"stale slots": range(31)})', _POOLS, _NOTHING),
        "cannot-fail",
    ),
    "two changes at once": (
        _trials(
            '("it takes the queue and the pools", ("without a", "equal pools"), {"status": 400})', _POOLS, _NOTHING
        ),
        "two-changes",
    ),
    "two changes in one text": (
        _trials('("it takes the queue and the pools", "without a and without b", {"status": 400})', _POOLS, _NOTHING),
        "two-changes",
    ),
    "nothing that must do nothing": (
        _trials(
            _POOLS,
            '("the refusal has to end there", "without a", {"status": 400})',
            '("old pages are needed", "no past", {"answer": "other"})',
        ),
        "no-control",
    ),
    "only what is known": (
        _trials(
            _NOTHING,
            '("a name is only a name", "other name", {"status": 200})',
            '("a longer answer does not matter", "longer answer", {"written": 1})',
        ),
        "no-difference",
    ),
    "two trials": (_trials(_POOLS, _NOTHING), "fewer"),
    "the same change twice": (_trials(_POOLS, _NOTHING, _POOLS), "same-change"),
    "unchanged is no change": (
        _trials(_POOLS, _NOTHING, '("as it was it still leaks", "unchanged", {"status": 200})'),
        "same-change",
    ),
    "no sentence": (_trials(_POOLS, _NOTHING, '("", "wiped", {"status": 200})'), "no-sentence"),
    "dots for a sentence": (_trials(_POOLS, _NOTHING, '("...", "wiped", {"status": 200})'), "no-sentence"),
    "two words": (_trials(_POOLS, _NOTHING, '("wiping cures", "wiped", {"status": 200})'), "no-sentence"),
    "a number in quotation marks": (
        _trials('("a refusal has to end there", "without a", {"status": "400"})', _POOLS, _NOTHING),
        "expectation",
    ),
    "a function for a value": (
        _trials('("smaller pages make more of them", "pages of 2", {"reserved": lambda n: n > 8})', _POOLS, _NOTHING),
        "expectation",
    ),
    "no such answer": (
        _trials('("the answer goes back to nonsense", "wiped", {"answer": "nonsense"})', _POOLS, _NOTHING),
        "expectation",
    ),
    "no such change": (
        _trials(_POOLS, _NOTHING, '("it is the moon and its light", "full moon", {"status": 200})'),
        "change",
    ),
    "words for an expectation": (
        _trials(_POOLS, _NOTHING, '("old words are gone then", "wiped", "the leak is gone")'),
        "expectation",
    ),
    "nobody measures that": (
        _trials(_POOLS, _NOTHING, '("old words are gone then", "wiped", {"leaked": False})'),
        "expectation",
    ),
    "not three things": (_trials(_POOLS, _NOTHING, '("wiped", {"status": 200})'), "shape"),
    "a dict": ('my_trials = {"equal pools": {"status": 400}}\n', "shape"),
}

TRIALS_RIGHT = {
    "all as expected": (_trials(_POOLS, _WIPED, _NOTHING), "3 of 3"),
    "wrong, and open to it": (
        _trials(_POOLS, '("zeros end the stale reads altogether", "wiped", {"stale slots": 0})', _NOTHING),
        "2 of 3 came out as you wrote. Look at wiped",
    ),
    "none as expected": (
        _trials(
            '("it needs the same pools", "equal pools", {"status": 200, "stale slots": 30})',
            '("an old past is needed", "no past", {"stale slots": 0})',
            '("the order of pages is all", "other order", {"reserved": 9})',
        ),
        "0 of 3",
    ),
    "one of several": (
        _trials('("whoever counts refuses loudly", "without e", {"status": {400, 500, 502}})', _POOLS, _NOTHING),
        "3 of 3",
    ),
    "a range, and not always a difference": (
        _trials(_POOLS, '("smaller pages make more of them", "pages of 2", {"stale pages": range(8, 20)})', _NOTHING),
        "3 of 3",
    ),
    "lists and five of them": (
        _trials(_POOLS, _WIPED, _NOTHING, '["mend the queue and all is well", "without a", {"disagree": "nowhere"}]'),
        "4 of 4",
    ),
}

ANSWERS = {
    "ex-9.1": Answers(
        DETECTOR_NAME,
        DETECTOR_WRONG,
        DETECTOR_RIGHT,
        likely=(
            "owner",
            "generation",
            "false-alarm",
            "whole-pages",
            "unread",
            "never-written",
            "late-write",
            "own-past",
        ),
    ),
    "ex-9.2": Answers(
        FIRST_NAME,
        FIRST_WRONG,
        FIRST_RIGHT,
        likely=("symptom", "pages", "growth", "mixed", "later", "one-page", "only-lengths"),
    ),
    "ex-9.3": Answers(
        TRIALS_NAME, TRIALS_WRONG, TRIALS_RIGHT, likely=("cannot-fail", "two-changes", "no-control", "no-difference")
    ),
}
