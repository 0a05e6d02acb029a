"""Answers to the exercises of chapter 10: the wrong ones with the kind of verdict that each must get, and right ones.

All are sources, as a learner would write them in a cell. A right one may name a word that its `[ok]` must say.
"""

from __future__ import annotations

from answers import Answers

from minikv.course.chapters.stand_10 import OWN

# 10.1

_WHY = 'def why(self): return "The fence first. It does not stop a client from waiting for ever."'
_INIT = "def __init__(self): self.lent = {}"
_POOL = "def pool(self, own, pools): return min(pools.values())"
_LEND = "def lend(self, page):\n        self.lent[page] = self.lent.get(page, 0) + 1\n        return self.lent[page]"
_WRITE = "def write(self, page, ticket): return self.lent[page] == ticket"
_STATUS = (
    "def status(self, prefill, decode):\n"
    "        bad = [s for s in (prefill, decode) if s is not None and s >= 400]\n"
    "        return bad[0] if bad else decode"
)


def _guards(
    *more: str,
    init: str = _INIT,
    pool: str = _POOL,
    lend: str = _LEND,
    write: str = _WRITE,
    status: str = _STATUS,
    why: str = _WHY,
) -> str:
    parts = [part for part in (init, pool, lend, write, status, why, *more) if part]
    return "class MyGuards:\n" + "".join(f"    {part}\n\n" for part in parts)


def _told(rule: str) -> str:
    return _guards(pool=f"def pool(self, own, pools): return {rule}")


def _said(*lines: str) -> str:
    return _guards(status="def status(self, prefill, decode):\n" + "".join(f"        {line}\n" for line in lines))


_WIPE = "def free(self, pages, wipe):\n        for page in {}: wipe(page)"
_IN_PAGES = """
from minikv.course.chapters.ch07 import digest_of

def by_pages(node, request, handoff):
    if request in node.accepted:
        raise ValueError("it was taken before")
    pages = node.reserved[request]
    own, came = (*node.keys, *node.values), (*handoff.keys, *handoff.values)
    counts = [len(tensor) for tensor in came]
    if handoff.request != request or counts != [len(pages)] * len(own) or handoff.digest != digest_of(handoff):
        node.give_back(request)
        raise ValueError("not as many pages as expected")
    for mine, theirs in zip(own, came, strict=True):
        mine[pages] = theirs
    node.accepted.add(request)
    node.send(request, handoff.first_token)

"""
_NOT_OVER = (
    "def admit(self, request, server):\n"
    "        tokens = len(request.prompt) + request.max_tokens\n"
    "        if tokens > server.context or tokens - 1 > server.pool + 1:\n"
    "            return 'refuse', 'too long'\n"
    "        return 'serve' if tokens - 1 <= server.free else 'wait'"
)

GUARDS_WRONG = {
    "each door knows its own pool": (_guards(pool="", status=""), "own-pool"),
    "the own pool, returned": (_guards(pool="def pool(self, own, pools): return own", status=""), "own-pool"),
    "the status will do": (_guards(pool=""), "status-only"),
    "decode's pool": (_told("pools['decode']"), "decode-pool"),
    "prefill's pool": (_told("pools['prefill']"), "prefill-pool"),
    "the largest pool": (_told("max(pools.values())"), "largest-pool"),
    "all pools together": (_told("sum(pools.values())"), "sum-of-pools"),
    "one less than the smallest": (_told("min(pools.values()) - 1"), "other-pool"),
    "the smallest name": (_told("min(pools)"), "pool-type"),
    "no fence": (_guards(lend="", write=""), "no-fence"),
    "everybody may write": (_guards(write="def write(self, page, ticket): return True"), "no-fence"),
    "no tickets": (
        _guards(lend="", write="def write(self, page, ticket): return self.lent.get(page) == ticket"),
        "no-ticket",
    ),
    "no tickets, and an error": (_guards(lend=""), "raised KeyError"),
    "the page is the ticket": (
        _guards(lend="def lend(self, page): return page", write="def write(self, page, ticket): return ticket == page"),
        "same-ticket",
    ),
    "lent to anybody": (
        _guards(
            "def free(self, pages, wipe): self.out -= set(pages)",
            init="def __init__(self): self.out, self.count = set(), 0",
            lend="def lend(self, page):\n        self.out.add(page)\n        self.count += 1\n"
            "        return self.count",
            write="def write(self, page, ticket): return page in self.out",
        ),
        "lent-is-enough",
    ),
    "old tickets pass": (
        _guards(write="def write(self, page, ticket): return ticket <= self.lent[page]"),
        "older-passes",
    ),
    "forgotten when it comes back": (
        _guards("def free(self, pages, wipe):\n        for page in pages: self.lent.pop(page, None)"),
        "same-ticket",
    ),
    "a ticket that comes round": (
        _guards(
            lend="def lend(self, page):\n        self.lent[page] = (self.lent.get(page, 0) + 1) % 2\n"
            "        return self.lent[page]"
        ),
        "comes-round",
    ),
    "one number for all pages": (
        _guards(
            init="def __init__(self): self.count, self.free_now = 0, False",
            lend="def lend(self, page):\n        self.count += 1\n        return self.count",
            write="def write(self, page, ticket): return ticket == self.count",
        ),
        "keeps-all-out",
    ),
    "one number, counted when pages come back": (
        _guards(
            "def free(self, pages, wipe): self.count += 1",
            init="def __init__(self): self.count = 0",
            lend="def lend(self, page): return self.count",
            write="def write(self, page, ticket): return ticket == self.count",
        ),
        "one-for-all",
    ),
    "nobody may write": (_guards(write="def write(self, page, ticket): return False"), "keeps-all-out"),
    "the first holder keeps it": (
        _guards(
            lend="def lend(self, page):\n        if page in self.lent: return object()\n"
            "        self.lent[page] = object()\n        return self.lent[page]",
            write="def write(self, page, ticket): return ticket is self.lent[page]",
        ),
        "keeps-new-out",
    ),
    "zeroing when pages come back": (_guards(_WIPE.format("pages"), lend="", write=""), "wiped"),
    "zeroing all but the last page": (_guards(_WIPE.format("pages[:-1]"), lend="", write=""), "wiped-in-part"),
    "decode alone is asked": (_guards(status=""), "decode-only"),
    "prefill alone is asked": (_said("return prefill"), "too-early"),
    "the better status": (
        _said(
            "if decode is None: return prefill if (prefill or 0) >= 400 else None",
            "if prefill is None: return decode",
            "return min(prefill, decode)",
        ),
        "best-status",
    ),
    "waits until both have ended": (
        _said("if prefill is None or decode is None: return None", "return max(prefill, decode)"),
        "waits",
    ),
    "an answer as soon as one is there": (
        _said("return max([s for s in (prefill, decode) if s], default=None)"),
        "too-early",
    ),
    "always 500": (
        _said("bad = [s for s in (prefill, decode) if s and s >= 400]", "return 500 if bad else decode"),
        "other-status",
    ),
    "a lost return": (
        _said("if prefill and prefill >= 400: return prefill", "if decode and decode >= 400: return decode"),
        "says-nothing",
    ),
    "a receiver that counts pages": (
        _IN_PAGES + _guards("receive = staticmethod(by_pages)"),
        "receive: pages-for-tokens",
    ),
    "a door with > for >=": (_guards(_NOT_OVER), "admit: one-too-many"),
    "no reason": (_guards(why=""), "no-reason"),
    "dots for a reason": (_guards(why='why = "..."'), "no-reason"),
    "an object": ("MyGuards = 7\n", "not-a-class"),
}

GUARDS_RIGHT = {
    "the reference": (_guards(), "nobody leaks"),
    "objects for tickets": (
        _guards(
            lend="def lend(self, page):\n        self.lent[page] = object()\n        return self.lent[page]",
            write="def write(self, page, ticket): return self.lent.get(page) is ticket",
        ),
        "",
    ),
    "one counter for all tickets": (
        _guards(
            init="def __init__(self): self.count, self.now = 0, {}",
            lend="def lend(self, page):\n        self.count += 1\n        self.now[page] = self.count\n"
            "        return self.count",
            write="def write(self, page, ticket): return self.now[page] == ticket",
        ),
        "",
    ),
    "pages that came back are closed at once": (
        _guards("def free(self, pages, wipe):\n        for page in pages: self.lent[page] += 1"),
        "",
    ),
    "wipes as well": (_guards(_WIPE.format("pages")), ""),
    "the reason as a text": (
        _guards(why='why = "Fence first, since nobody else sees the old writer. It stops no wait."'),
        "",
    ),
    "the largest error": (
        _said("worst = max(prefill or 0, decode or 0)", "return worst if worst >= 400 else decode"),
        "",
    ),
    "prefill's error first": (
        _said("if prefill is not None and prefill != 200: return prefill", "return decode"),
        "",
    ),
    "in four cases": (
        _said(
            "match (prefill, decode):",
            "    case (None | 200, _): return decode",
            "    case (bad, None | 200): return bad",
            "    case (bad, worse): return max(bad, worse)",
        ),
        "",
    ),
    "sorted pools": (_told("sorted(pools.values())[0]"), ""),
    "tickets in a set": (
        _guards(
            "def free(self, pages, wipe):\n        self.good = {t for t in self.good if t[0] not in pages}",
            init="def __init__(self): self.good, self.count = set(), 0",
            lend="def lend(self, page):\n        self.count += 1\n        self.good.add((page, self.count))\n"
            "        return self.count",
            write="def write(self, page, ticket): return (page, ticket) in self.good",
        ),
        "",
    ),
}

# 10.2

_ASK = """
for wire in WIRES:
    for tokens in (18, 31):
        for stream in (False, True):
            server = start(wire=wire)
            server.visit("ada", "ben", "cleo")
            answer = server.ask(tokens, stream)
            if answer.status is None or theirs & set(answer.words) or (tokens == 31 and answer.status == 200):
                return True
return False
"""
_PARTS = """
if parts.door(31, 8): return True
if parts.refuse(18) != (18, False): return True
if parts.enter(True): return True
if parts.room(1, 31): return True
if parts.take(18, 18, 4): return True
if parts.readable(18, 4) > 4: return True
if parts.write(True): return True
if parts.status(400, 200) != 400: return True
return False
"""
_HEAD = (
    "from minikv.course.chapters.ch10 import TEXTS, WIRES, SECRETS, canaries\n"
    "theirs = set().union(*[canaries(name) for name in TEXTS])\n"
)


def _suite(content: str = _ASK, parts: str = _PARTS) -> str:
    def body(lines: str) -> str:
        return "".join(f"        {line}\n" for line in lines.strip().splitlines())

    return (
        f"{_HEAD}class Suite:\n    def content(self, start):\n{body(content)}\n"
        f"    def invariants(self, parts):\n{body(parts)}"
    )


def _without(line: str) -> str:
    return _suite(parts="\n".join(each for each in _PARTS.splitlines() if line not in each))


TESTS_WRONG = {
    "the status only": (
        _suite(
            _ASK.replace("theirs & set(answer.words)", "answer.status == 500").replace(
                " or (tokens == 31 and answer.status == 200)", ""
            )
        ),
        "status-only",
    ),
    "the status, and what should have been refused": (
        _suite(_ASK.replace(" or theirs & set(answer.words)", "")),
        "status-only",
    ),
    "the exact canary only": (
        _suite(_ASK.replace("theirs & set(answer.words)", "any(s in answer.text for s in SECRETS.values())")),
        "exact-canary",
    ),
    "two canaries side by side": (
        _suite(
            _ASK.replace(
                "theirs & set(answer.words)",
                "any(a in theirs and b in theirs and a != b for a, b in zip(answer.words, answer.words[1:]))",
            )
        ),
        "exact-canary",
    ),
    "a fresh server": (_suite(_ASK.replace('server.visit("ada", "ben", "cleo")', "pass")), "fresh-server"),
    "equal pools": (_suite(_ASK.replace("start(wire=wire)", "start(decode=28, wire=wire)")), "equal-pools"),
    "only far out": (_suite(_ASK.replace("31", "131")), "far-out"),
    "ordinary lengths only": (_suite(_ASK.replace("(18, 31)", "(9, 18)")), "only-ordinary"),
    "only the end of a stream": (_suite(_ASK.replace("(False, True)", "(False, False)")), "end-of-stream"),
    "words only where the status is 200": (
        _suite(_ASK.replace("theirs & set(answer.words)", "answer.status == 200 and theirs & set(answer.words)")),
        "words-then-error",
    ),
    "nonsense passes": (_suite(_ASK.replace(" or (tokens == 31 and answer.status == 200)", "")), "nonsense"),
    "a wire that always works": (_suite(_ASK.replace("for wire in WIRES", "for wire in ['works']")), "quiet-wire"),
    "one wire forgotten": (
        _suite(_ASK.replace("for wire in WIRES", "for wire in [w for w in WIRES if w != 'delivers twice']")),
        "quiet-wire",
    ),
    "a past that is too short": (
        _suite(_ASK.replace('"ada", "ben", "cleo"', '"ada"').replace("31", "44")),
        "short-past",
    ),
    "silence is fine": (_suite(_ASK.replace("answer.status is None or ", "")), "no-answer"),
    "any word of theirs": (
        _suite(
            _ASK.replace(
                "theirs & set(answer.words)", "any(w in t.split() for t in TEXTS.values() for w in answer.words)"
            )
        ),
        "shared-words",
    ),
    "any word that is not the tester's": (
        _suite(
            f"own = set({OWN!r}.split())\n"
            + _ASK.strip().replace("theirs & set(answer.words)", "set(answer.words) - own")
        ),
        "shared-words",
    ),
    "a refusal is a failure": (
        _suite(_ASK.replace("answer.status is None", "answer.status != 200")),
        "refusal-is-right",
    ),
    "red for everything": (_suite("return True"), "red-unasked"),
    "asks nothing": (_suite("return False"), "asks-nothing"),
    "no part but the whole": (_suite(parts="return parts.door(18, 8) and parts.take(18, 18, 5)"), "red-invariant"),
    "more readable than it should be": (
        _suite(parts=_PARTS.replace("parts.readable(18, 4) > 4", "parts.readable(18, 4) != 18")),
        "red-invariant",
    ),
    "no invariants": (_suite(parts="return False"), "missed-a"),
    "refusals are not looked at": (_without("refuse"), "missed-a"),
    "the queue is not asked": (_without("enter"), "missed-b"),
    "the room is asked for one length": (_suite(parts=_PARTS.replace("room(1, 31)", "room(31, 31)")), "missed-c"),
    "the door is asked far out": (_suite(parts=_PARTS.replace("door(31, 8)", "door(600, 8)")), "missed-d"),
    "the receiver gets another's digest": (_without("take"), "missed-e"),
    "readable, where all was written": (
        _suite(parts=_PARTS.replace("readable(18, 4) > 4", "readable(18, 18) > 18")),
        "missed-f",
    ),
    "the fence is not asked": (_without("write"), "missed-g"),
    "the status of a failed decode": (_suite(parts=_PARTS.replace("status(400, 200)", "status(200, 400)")), "missed-h"),
    "one layer": (_suite().partition("    def invariants")[0], "no-layer"),
    "a function": ("def Suite(): return 7\n", "no-layer"),
    "a number": ("Suite = 15\n", "not-a-class"),
}

TESTS_RIGHT = {
    "the reference": (_suite(), "7 of 7"),
    "one tenant, and a shorter prompt": (
        _suite(_ASK.replace('"ada", "ben", "cleo"', '"ada"').replace("31", "29")),
        "8 of 8",
    ),
    "other pools": (_suite(_ASK.replace("start(wire=wire)", "start(28, 96, wire)")), ""),
    "lists and any": (
        _suite(
            "def bad(wire, tokens, stream):\n"
            "    server = start(wire=wire)\n"
            "    for name in TEXTS: server.visit(name)\n"
            "    answer = server.ask(tokens, stream=stream)\n"
            "    if answer.status is None or tokens > 28 and answer.status < 400: return True\n"
            "    return bool(theirs.intersection(answer.words))\n"
            "return any(bad(w, t, s) for w in WIRES for t in (18, 35) for s in (0, 1))",
            "return any([parts.door(40, 1), parts.refuse(5)[0] != 5, parts.refuse(5)[1], parts.enter(True), "
            "parts.room(2, 30), parts.take(18, 1, 1), parts.take(18, 17, 5), parts.readable(18, 1) != 1, "
            "parts.write(True), parts.status(400, 200) < 400])",
        ),
        "",
    ),
    "own canaries": (
        _suite(
            "others = {n: set(' '.join(t for m, t in TEXTS.items() if m != n).split()) for n in TEXTS}\n"
            f"weather = {OWN!r}\n"
            "mine = set(weather.split()) | {'a', 'was', 'would'}\n"
            "known = set().union(*[set(TEXTS[n].split()) - others[n] - mine for n in TEXTS])\n"
            + _ASK.strip().replace("theirs", "known")
        ),
        "",
    ),
    "counts what it finds": (
        _suite(
            "found = 0\n" + _ASK.strip().replace("return True", "found += 1").replace("return False", "return found"),
            "bad = 0\n" + _PARTS.strip().replace("return True", "bad += 1").replace("return False", "return bad"),
        ),
        "",
    ),
}

# 10.3


def _small(body: str) -> str:
    return "def smallest_sets(data):\n" + "".join(f"    {line}\n" for line in body.strip().splitlines())


def _by(bad: str, last: str = "return [g for g in good if len(g) == min(map(len, good))]") -> str:
    return _small(
        "rows = data['combinations']\n"
        f"good = {{r['guards'] for r in rows}} - {{r['guards'] for r in rows if {bad}}}\n" + last
    )


_OPEN = "r['verdict'] not in ('right', 'refused')"

SMALLEST_WRONG = {
    "nonsense counts as covered": (_by("r['verdict'] in ('leaks', 'hangs')"), "counts-nonsense"),
    "only leaks count": (_by("r['leaked']"), "counts-nonsense"),
    "whoever answers is covered": (_by("r['verdict'] in ('leaks', 'wrong')"), "counts-silence"),
    "one scenario": (_by(f"r['scenario'] == data['scenarios'][0] and {_OPEN}"), "one-scenario"),
    "the last scenario": (_by(f"r['scenario'] == data['scenarios'][-1] and {_OPEN}"), "one-scenario"),
    "good in any scenario": (
        _small(
            "good = {r['guards'] for r in data['combinations'] if r['verdict'] in ('right', 'refused')}\n"
            "return [g for g in good if len(g) == min(map(len, good))]"
        ),
        "one-scenario",
    ),
    "greedy": (
        _small(
            "ok = ('right', 'refused')\n"
            "def covered(g): return sum(r['verdict'] in ok for r in data['combinations'] if r['guards'] == g)\n"
            "chosen = ''\n"
            "while covered(chosen) < len(data['scenarios']):\n"
            "    if len(chosen) == 8: return []\n"
            "    chosen = max((''.join(sorted(chosen + x)) for x in 'abcdefgh' if x not in chosen), key=covered)\n"
            "return [chosen]"
        ),
        "not-smallest",
    ),
    "the first one": (_by(_OPEN, "return sorted(good, key=len)[:1]"), "not-all"),
    "all that cover": (_by(_OPEN, "return list(good)"), "too-many"),
    "only what is right": (_by("r['verdict'] != 'right'"), "finds-none"),
    "no set of no guards": (
        _by(_OPEN, "good = {g for g in good if g}\nreturn [g for g in good if len(g) == min(map(len, good))]"),
        "not-smallest",
    ),
    "something for the hopeless one": (
        _by(_OPEN, "return [g for g in good if len(g) == min(map(len, good))] or ['abcdefgh']"),
        "hopeless",
    ),
    "one text": (_by(_OPEN, "return min(good, key=len, default='')"), "shape"),
    "rows": (_by(_OPEN, "return [r for r in rows if r['guards'] in good]"), "shape"),
    "a number": (_by(_OPEN, "return len(good)"), "shape"),
    "eats the data": (
        _small(
            "rows = data['combinations']\n"
            f"bad = {{r['guards'] for r in rows if {_OPEN}}}\n"
            "data['combinations'] = [r for r in rows if r['guards'] not in bad]\n"
            "good = {r['guards'] for r in data['combinations']}\n"
            "return [g for g in good if len(g) == min(map(len, good))]"
        ),
        "changes-data",
    ),
}

SMALLEST_RIGHT = {
    "the reference": (_by(_OPEN), "greedy"),
    "sets of letters": (_by(_OPEN, "return [set(g) for g in good if len(g) == min(map(len, good))]"), ""),
    "a set of texts": (_by(_OPEN, "return {g for g in good if len(g) == min(map(len, good))}"), ""),
    "by size": (
        _small(
            "from collections import defaultdict\n"
            "ends = defaultdict(list)\n"
            "for row in data['combinations']:\n"
            "    ends[row['guards']].append(row['verdict'])\n"
            "for size in range(9):\n"
            "    found = [g for g, v in ends.items() if len(g) == size and set(v) <= {'right', 'refused'}]\n"
            "    if found: return found\n"
            "return []"
        ),
        "",
    ),
    "letters in another order": (_by(_OPEN, "return [g[::-1] for g in good if len(g) == min(map(len, good))]"), ""),
}

ANSWERS = {
    "ex-10.1": Answers(
        "MyGuards",
        GUARDS_WRONG,
        GUARDS_RIGHT,
        likely=(
            "own-pool",
            "status-only",
            "decode-pool",
            "no-fence",
            "lent-is-enough",
            "older-passes",
            "wiped",
            "wiped-in-part",
            "decode-only",
            "waits",
            "receive: pages-for-tokens",
            "admit: one-too-many",
        ),
    ),
    "ex-10.2": Answers(
        "Suite",
        TESTS_WRONG,
        TESTS_RIGHT,
        likely=(
            "status-only",
            "exact-canary",
            "fresh-server",
            "equal-pools",
            "far-out",
            "end-of-stream",
            "shared-words",
            "refusal-is-right",
            "nonsense",
            "quiet-wire",
            "no-answer",
            *(f"missed-{letter}" for letter in "abcdefgh"),
        ),
    ),
    "ex-10.3": Answers(
        "smallest_sets",
        SMALLEST_WRONG,
        SMALLEST_RIGHT,
        likely=("counts-nonsense", "one-scenario", "not-smallest", "not-all"),
    ),
}
