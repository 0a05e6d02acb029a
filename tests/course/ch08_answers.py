"""Answers to the exercises of chapter 08: the wrong ones with the kind of verdict that each must get, and right ones.

All are sources, as a learner would write them in a cell. A right one may name a word that its `[ok]` must say.
"""

from __future__ import annotations

from answers import Answers

PLAN_NAME, COUNT_NAME, OLD_NAME = "plan", "slots_read", "old_tokens"

_B = 'lab.send("halverson", prompt=403, answer=64)'
_A = 'lab.send("quennell", prompt=382, answer=72)'
_RUN = "lab.run()"


def _plan(*lines: str) -> str:
    return "def plan(lab):\n" + "".join(f"    {line}\n" for line in lines)


def _attacked(tokens: int) -> str:
    return _plan(_B, _RUN, _A, _RUN, _A, _RUN, f"lab.attack({tokens})")


PLAN_WRONG = {
    "below the window": (_attacked(441), "served"),
    "far below the window": (_attacked(40), "served"),
    "at decode's limit": (_attacked(1530), "both-refused"),
    "the lesson's upper end": (_attacked(4089), "both-refused"),
    "victims still running": (_plan(_B, _A, "lab.attack(490)"), "running"),
    "all at once": (_plan(_B, _A, _A, "lab.attack(490)"), "running"),
    "only the last one still running": (_plan(_A, _RUN, _A, _RUN, _B, "lab.attack(490)"), "running"),
    "no victims": (_plan("lab.attack(490)"), "no-past"),
    "only the attacker": (_plan(_RUN, "lab.attack(490)"), "no-past"),
    "too short to leave seven pages": (
        _plan('lab.send("halverson", prompt=300, answer=64)', _RUN, _A, _RUN, _A, _RUN, "lab.attack(490)"),
        "too-short",
    ),
    "short by one slot": (
        _plan('lab.send("halverson", prompt=381, answer=4)', _RUN, _A, _RUN, _A, _RUN, "lab.attack(490)"),
        "too-short",
    ),
    "last in, first out": (_plan(_A, _RUN, _B, _RUN, "lab.attack(490)"), "order"),
    "first in, too early": (_plan(_B, _RUN, _A, _RUN, "lab.attack(490)"), "order"),
    "quennell in front": (_plan(_A, _RUN, _B, _RUN, _A, _RUN, "lab.attack(490)"), "order"),
    "six stale pages": (_attacked(448), "not-seven"),
    "nine stale pages": (_attacked(600), "not-seven"),
    "halverson never came": (_plan(_A, _RUN, _A, _RUN, _A, _RUN, "lab.attack(490)"), "no-b"),
    "quennell never came": (_plan(_B, _RUN, _B, _RUN, _B, _RUN, "lab.attack(490)"), "no-a"),
    "quennell only after the attack": (
        _plan(_B, _RUN, _B, _RUN, _B, _RUN, "lab.attack(490)", _A, _RUN),
        "too-late",
    ),
    "a flood": (_plan(_A, _RUN, _B, _RUN, _B, _RUN, _B, _RUN, "lab.attack(490)"), "flooded"),
    "a line that goes round and round": (
        _plan(*[_A, _RUN] * 3, _B, _RUN, *[_A, _RUN] * 2, "lab.attack(480)"),
        "flooded",
    ),
    "the last page half filled": (
        _plan(
            'lab.send("quennell", prompt=382, answer=130)',
            *[_RUN, _A, _RUN, _A, _RUN],
            'lab.send("halverson", prompt=403, answer=50)',
            *[_RUN, _A, _RUN, _A, _RUN, "lab.attack(490)"],
        ),
        "last-page",
    ),
    "no attack": (_plan(_B, _RUN, _A, _RUN), "no-attack"),
    "two attacks": (_plan(_B, _RUN, _A, _RUN, _A, _RUN, "lab.attack(490)", "lab.attack(490)"), "two-attacks"),
    "no such tenant": (_plan('lab.send("orrin", 100, 10)', "lab.attack(490)"), "raised ValueError"),
}

PLAN_RIGHT = {
    "the reference": (_attacked(490), "quennell lie in the first page"),
    "shortest with seven": (_attacked(449), ""),
    "longest with seven": (_attacked(512), ""),
    "a loop": (
        _plan("for name in ('halverson', 'quennell', 'quennell'):", "    lab.send(name, 382, 70)", "    lab.run()")
        + "    lab.attack(500)\n",
        "",
    ),
    "twice halverson": (_plan(_B, _RUN, _B, _RUN, _A, _RUN, "lab.attack(480)"), ""),
    "keywords left out": (_plan('lab.send("halverson", 400, 80)', _RUN, *[_A, _RUN] * 2, "lab.attack(455)"), ""),
}


def _count(
    where: str = 'type(e).__name__ == "Read" and e.node == "decode" and e.owner == number',
    step: str = "e.step == first",
    add: str = "for w, n in e.writers: counts[names.get(w, 'nobody')] += n",
) -> str:
    return (
        "from collections import Counter\n"
        "def slots_read(events, number):\n"
        "    names = {e.request: e.tenant for e in events if type(e).__name__ == 'Admit'}\n"
        f"    reads = [e for e in events if {where}]\n"
        "    first = reads[0].step\n"
        "    counts = Counter()\n"
        "    for e in reads:\n"
        f"        if {step}:\n"
        f"            {add}\n"
        "    return dict(counts)\n"
    )


COUNT_WRONG = {
    "eight pages": (
        _count(add="counts['fay' if e.owner != number else 'attacker'] += 0; counts['fay'] += 4"),
        "reserved",
    ),
    "seven pages": (
        _count(add="own = e is reads[0]; counts['attacker' if own else 'gus'] += 2 if own else 4"),
        "whole-pages",
    ),
    "reserved for read": (
        _count(add="counts['attacker'] += 4; counts['attacker' if e.writers[0][0] == number else 'gus'] += 0"),
        "owner",
    ),
    "reserved, own ones told apart": (
        _count(
            add="own = dict(e.writers).get(number, 0); counts['attacker'] += own; counts['gus'] += 4 - own",
        ),
        "reserved",
    ),
    "counted by owner": (_count(add="counts[names[e.owner]] += e.slots"), "owner"),
    "every step": (_count(step="True"), "every-step"),
    "the prefill node too": (_count(where='type(e).__name__ == "Read" and e.owner == number'), "other-node"),
    "whoever is served in the step": (
        _count(where='type(e).__name__ == "Read" and e.node == "decode"', step="e.step == first").replace(
            "first = reads[0].step", "first = next(e.step for e in reads if e.owner == number)"
        ),
        "other-request",
    ),
    "the first step of both nodes": (
        _count(where='type(e).__name__ == "Read" and e.owner == number', step="e.step == first and e.node == 'decode'"),
        "other-first-step",
    ),
    "its own left out": (
        _count(add="for w, n in e.writers: counts[names.get(w, 'nobody')] += n * (w != number)"),
        "own-left-out",
    ),
    "replaced, not added": (
        _count(add="counts.update() or [counts.__setitem__(names.get(w, 'nobody'), n) for w, n in e.writers]"),
        "replaced",
    ),
    "the first page": (_count(step="e is reads[0]"), "first-page"),
    "no name for nobody": (_count(add="for w, n in e.writers: counts[names[w]] += n"), "nobody"),
    "numbers for names": (_count(add="for w, n in e.writers: counts[w] += n"), "numbers"),
    "nobody is -1": (_count(add="for w, n in e.writers: counts[names.get(w, w)] += n"), "numbers"),
    "one writer a page": (
        _count(add="counts[names.get(max(e.writers, key=lambda x: x[1] - 9 * (x[0] == number))[0])] += e.slots"),
        "one-writer",
    ),
    "a number": ("def slots_read(events, number):\n    return 29\n", "shape"),
    "nothing": ("def slots_read(events, number):\n    return {}\n", "other"),
}

COUNT_RIGHT = {
    "the reference": (_count(), ""),
    "the smallest step": (_count(step="e.step == min(r.step for r in reads)"), ""),
    "a Counter": (_count().replace("return dict(counts)", "return counts"), ""),
    "from the writes": (
        "def slots_read(events, number):\n"
        "    names, filled, counts, first = {-1: 'nobody'}, {}, {}, None\n"
        "    for e in events:\n"
        "        kind = type(e).__name__\n"
        "        if kind == 'Admit':\n"
        "            names[e.request] = e.tenant\n"
        "        if e.node != 'decode':\n"
        "            continue\n"
        "        if kind == 'Write':\n"
        "            for slot in range(e.start, e.stop):\n"
        "                filled[e.page, slot] = e.writer\n"
        "        if kind == 'Read' and e.owner == number and first in (None, e.step):\n"
        "            first = e.step\n"
        "            for slot in range(e.slots):\n"
        "                name = names[filled.get((e.page, slot), -1)]\n"
        "                counts[name] = counts.get(name, 0) + 1\n"
        "    return counts\n",
        "",
    ),
}


def _old(expression: str) -> str:
    return f"def old_tokens(read_page, pool, pages, hf):\n    return {expression}\n"


OLD_WRONG = {
    "all eight": (_old("[t for page in pages for t in read_page(pool, page, hf)]"), "page-0"),
    "sorted": (_old("[t for page in sorted(pages[1:]) for t in read_page(pool, page, hf)]"), "order"),
    "backwards": (_old("[t for page in pages[:0:-1] for t in read_page(pool, page, hf)]"), "order"),
    "places for numbers": (_old("[t for page in range(1, 8) for t in read_page(pool, page, hf)]"), "place"),
    "a list for each page": (_old("[list(read_page(pool, page, hf)) for page in pages[1:]]"), "shape"),
    "all but the last": (_old("[t for page in pages[:-1] for t in read_page(pool, page, hf)]"), "other-seven"),
    "only one page": (_old("read_page(pool, pages[1], hf)"), "other"),
    "a number": (_old("7"), "shape"),
}

OLD_RIGHT = {
    "the reference": (_old("[t for page in pages[1:] for t in read_page(pool, page, hf)]"), ""),
    "sum": (_old("sum((list(read_page(pool, page, hf)) for page in pages[1:]), [])"), ""),
    "a tuple": (_old("tuple(t for page in pages[1:] for t in read_page(pool, page, hf))"), ""),
    "in a loop": (
        "def old_tokens(read_page, pool, pages, hf):\n"
        "    tokens = []\n"
        "    for place in range(1, len(pages)):\n"
        "        tokens.extend(read_page(pool, pages[place], hf))\n"
        "    return tokens\n",
        "",
    ),
}

COUNT_WRONG |= {
    "its last step": (
        "from collections import Counter\n"
        "from minikv.trace import Admit, Read\n"
        "def slots_read(events, number):\n"
        "    names = {-1: 'nobody'}\n"
        "    names.update((e.request, e.tenant) for e in events if isinstance(e, Admit))\n"
        "    reads = [e for e in events if isinstance(e, Read) and e.node == 'decode' and e.owner == "
        "number]\n"
        "    counts = Counter()\n"
        "    for e in [e for e in reads if e.step == reads[-1].step]:\n"
        "        for w, n in e.writers:\n"
        "            counts[names[w]] += n\n"
        "    return dict(counts)\n",
        "other",
    ),
    "counts writers, not slots": (
        "from collections import Counter\n"
        "from minikv.trace import Admit, Read\n"
        "def slots_read(events, number):\n"
        "    names = {-1: 'nobody'}\n"
        "    names.update((e.request, e.tenant) for e in events if isinstance(e, Admit))\n"
        "    reads = [e for e in events if isinstance(e, Read) and e.node == 'decode' and e.owner == "
        "number]\n"
        "    counts = Counter()\n"
        "    for e in [e for e in reads if e.step == reads[0].step]:\n"
        "        for w, n in e.writers:\n"
        "            counts[names[w]] += 1\n"
        "    return dict(counts)\n",
        "other",
    ),
    "the step after the admission": (
        "from collections import Counter\n"
        "from minikv.trace import Admit, Read\n"
        "def slots_read(events, number):\n"
        "    names = {-1: 'nobody'}\n"
        "    names.update((e.request, e.tenant) for e in events if isinstance(e, Admit))\n"
        "    reads = [e for e in events if isinstance(e, Read) and e.node == 'decode' and e.owner == "
        "number]\n"
        "    counts = Counter()\n"
        "    for e in [e for e in reads if e.step == next(x.step for x in events if isinstance(x, "
        "Admit) and x.request == number) + 2]:\n"
        "        for w, n in e.writers:\n"
        "            counts[names[w]] += n\n"
        "    return dict(counts)\n",
        "other-node",
    ),
}
COUNT_RIGHT |= {
    "by itertools, in a defaultdict": (
        "from itertools import groupby\n"
        "from collections import defaultdict\n"
        "from minikv.trace import Admit, Read\n"
        "def slots_read(events, number):\n"
        "    who = defaultdict(lambda: 'nobody', {e.request: e.tenant for e in events if "
        "isinstance(e, Admit)})\n"
        "    mine = filter(lambda e: isinstance(e, Read) and (e.node, e.owner) == ('decode', "
        "number), events)\n"
        "    _, first = next(groupby(mine, key=lambda e: e.step))\n"
        "    found = defaultdict(int)\n"
        "    for e in first:\n"
        "        for w, n in e.writers:\n"
        "            found[who[w]] += n\n"
        "    return found\n",
        "",
    ),
    "numpy and a match": (
        "import numpy as np\n"
        "from collections import Counter\n"
        "from minikv.trace import Admit, Read\n"
        "def slots_read(events, number):\n"
        "    names, step, rows = {-1: 'nobody'}, None, []\n"
        "    for e in events:\n"
        "        match e:\n"
        "            case Admit(request=r, tenant=t):\n"
        "                names[r] = t\n"
        "            case Read(node='decode', owner=o, step=s, writers=w) if o == number and step in "
        "(None, s):\n"
        "                step = s\n"
        "                rows += w\n"
        "    a = np.array(rows)\n"
        "    return {names[w]: a[[names[x] == names[w] for x in a[:, 0]], 1].sum() for w in set(a[:, "
        "0].tolist())}\n",
        "",
    ),
}
OLD_WRONG |= {
    "ids without an end": (
        "from itertools import count\ndef old_tokens(read_page, pool, pages, hf):\n    return count()\n",
        "other",
    ),
    "seven, always": (
        "def old_tokens(read_page, pool, pages, hf):\n"
        "    return [t for i in range(1, 8) for t in read_page(pool, pages[i], hf)]\n",
        "one-length",
    ),
    "the last seven": (
        "def old_tokens(read_page, pool, pages, hf):\n"
        "    return [t for p in pages[-7:] for t in read_page(pool, p, hf)]\n",
        "one-length",
    ),
    "by a set": (
        "def old_tokens(read_page, pool, pages, hf):\n"
        "    return [t for p in set(pages) - {pages[0]} for t in read_page(pool, p, hf)]\n",
        "order",
    ),
    "wipes them afterwards": (
        "def old_tokens(read_page, pool, pages, hf):\n"
        "    out = [t for p in pages[1:] for t in read_page(pool, p, hf)]\n"
        "    for t in (*pool.keys, *pool.values):\n"
        "        t[pages[1:]] = 0\n"
        "    return out\n",
        "changes-the-pool",
    ),
}
OLD_RIGHT |= {
    "a chain": (
        "from itertools import chain\n"
        "def old_tokens(read_page, pool, pages, hf):\n"
        "    del pages[0]\n"
        "    return chain(*(read_page(pool, p, hf) for p in pages))\n",
        "",
    ),
    "a tensor": (
        "import torch\n"
        "def old_tokens(read_page, pool, pages, hf):\n"
        "    first, *rest = pages\n"
        "    return torch.cat([torch.tensor(list(read_page(pool, p, hf))) for p in rest])\n",
        "",
    ),
}

ANSWERS = {
    "ex-8.1": Answers(COUNT_NAME, COUNT_WRONG, COUNT_RIGHT),
    "ex-8.2": Answers(OLD_NAME, OLD_WRONG, OLD_RIGHT),
    "ex-8.3": Answers(PLAN_NAME, PLAN_WRONG, PLAN_RIGHT),
}
