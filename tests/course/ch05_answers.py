"""Answers to the exercises of chapter 05: the wrong ones with the kind of verdict that each must get, and right ones.

All are sources, as a learner would write them in a cell.
"""

from __future__ import annotations

from answers import Answers


def _code(name: str, body: str) -> str:
    lines = body.strip("\n").splitlines()
    return f"def {name}(waiting, running, budget):\n" + "".join(f"    {line}\n" for line in lines)


def _whole(body: str) -> str:
    return _code("plan_whole", body)


def _chunks(body: str) -> str:
    return _code("plan_step", body)


_DECODES = "plan = [(r, 1) for r in running[:budget]]\nleft = budget - len(plan)\n"
_PROMPTS = (
    "for r in waiting:\n    if r.known > left:\n        break\n    plan.append((r, r.known))\n    left -= r.known\n"
)
_END = "return plan"
_ONE_LOOP = (
    "for r in running + waiting:\n    n = r.known - r.written\n    if n > budget:\n        break\n"
    "    plan.append((r, n))\n    budget -= n\nreturn plan"
)

WHOLE_WRONG = {
    "prompts first": (
        _whole(
            "plan, left = [], budget\n"
            + _PROMPTS
            + "for r in running:\n    if left > 0:\n        plan.append((r, 1))\n"
            "        left -= 1\nreturn plan"
        ),
        "prompts-first",
    ),
    "only prompts while there are some": (
        _whole("plan, left = [], budget\n" + _PROMPTS + "return plan or [(r, 1) for r in running[:budget]]"),
        "prompts-first",
    ),
    "prompts first by sorting": (
        _whole(
            "plan = []\nfor r in waiting + running:\n    n = r.known - r.written\n    if n > budget:\n        break\n"
            "    plan.append((r, n))\n    budget -= n\nreturn plan"
        ),
        "prompts-first",
    ),
    "waits for an empty batch": (
        _whole(
            "if running:\n    return [(r, 1) for r in running[:budget]]\nplan, left = [], budget\n" + _PROMPTS + _END
        ),
        "waits-for-empty",
    ),
    "jumps over the head": (_whole(_DECODES + _PROMPTS.replace("break", "continue") + _END), "overtakes"),
    "shortest first": (
        _whole(_DECODES + _PROMPTS.replace("in waiting", "in sorted(waiting, key=lambda r: r.known)") + _END),
        "overtakes",
    ),
    "last come first": (_whole(_DECODES + _PROMPTS.replace("in waiting", "in waiting[::-1]") + _END), "skips"),
    "budget in requests": (
        _whole(
            _DECODES
            + "for r in waiting:\n    if left == 0:\n        break\n    plan.append((r, r.known))\n    left -= 1\n"
            "return plan"
        ),
        "counts-requests",
    ),
    "budget in requests by slices": (
        _whole("return ([(r, 1) for r in running] + [(r, r.known) for r in waiting])[:budget]"),
        "counts-requests",
    ),
    "no budget": (
        _whole("return [(r, 1) for r in running] + [(r, r.known) for r in waiting]"),
        "counts-requests",
    ),
    "each prompt against the whole budget": (
        _whole(_DECODES + _PROMPTS.replace("    left -= r.known\n", "") + _END),
        "each-alone",
    ),
    "decodes cost nothing": (
        _whole("plan = [(r, 1) for r in running[:budget]]\nleft = budget\n" + _PROMPTS + _END),
        "decodes-free",
    ),
    "decodes without a limit": (
        _whole("plan = [(r, 1) for r in running]\nleft = budget - len(plan)\n" + _PROMPTS + _END),
        "many-decodes",
    ),
    "exactly enough is too much": (_whole(_DECODES + _PROMPTS.replace(">", ">=") + _END), "exact-fit"),
    "one token of the budget kept": (
        _whole(_DECODES.replace("len(plan)", "len(plan) - 1") + _PROMPTS + _END),
        "exact-fit",
    ),
    "one new prompt a step": (
        _whole(
            _DECODES
            + "if waiting and waiting[0].known <= left:\n    plan.append((waiting[0], waiting[0].known))\n"
            + _END
        ),
        "leaves-room",
    ),
    "computes everything again": (
        _whole("plan = []\n" + _PROMPTS.replace("in waiting", "in running + waiting").replace("left", "budget") + _END),
        "recomputes",
    ),
    "chunks already": (
        _whole(
            _DECODES + "for r in waiting:\n    if left == 0:\n        break\n    n = min(r.known, left)\n"
            "    plan.append((r, n))\n    left -= n\nreturn plan"
        ),
        "pieces",
    ),
    "running forgotten": (_whole("plan, left = [], budget\n" + _PROMPTS + _END), "empty"),
    "waiting forgotten": (_whole("return [(r, 1) for r in running[:budget]]"), "empty"),
    "one decode a step": (
        _whole("plan = [(r, 1) for r in running[:1]]\nleft = budget - len(plan)\n" + _PROMPTS + _END),
        "prompts-first",
    ),
    "one at a time": (
        _whole("plan, left = [(r, 1) for r in running[:1]], budget\nif running:\n    return plan\n" + _PROMPTS + _END),
        "left-out",
    ),
    "nothing given back": (_whole("plan = []\nfor r in running:\n    plan.append((r, 1))"), "shape"),
    "names": (_whole("return [(r.name, 1) for r in running] + [(r.name, r.known) for r in waiting]"), "unknown"),
    "requests without tokens": (_whole("return running[:budget] + waiting"), "shape"),
    "counts by itself": (
        _whole(_DECODES + _PROMPTS.replace("    left -=", "    r.written = r.known\n    left -=") + _END),
        "changes",
    ),
    "floats": (_whole(_DECODES + _PROMPTS.replace("(r, r.known)", "(r, r.known / 1)") + _END), "not-whole"),
    "shares of 0": (
        _whole(
            _DECODES + "for r in waiting:\n    n = r.known if r.known <= left else 0\n    plan.append((r, n))\n"
            "    left -= n\nreturn plan"
        ),
        "zero",
    ),
    "everybody twice": (_whole(_DECODES + _PROMPTS + "return plan + plan"), "twice"),
    "the youngest decode first": (
        _whole("plan = [(r, 1) for r in running[::-1][:budget]]\nleft = budget - len(plan)\n" + _PROMPTS + _END),
        "overtakes",
    ),
    "takes out of the list that it goes through": (
        _whole(_DECODES + _PROMPTS + "    waiting.remove(r)\nreturn plan"),
        "skips",
    ),
    "one list for all calls": ("plan = []\n\n" + _whole(_ONE_LOOP), "remembers"),
    "one list in the def line": (
        "def plan_whole(waiting, running, budget, plan=[]):\n"
        + "".join(f"    {line}\n" for line in _ONE_LOOP.splitlines()),
        "remembers",
    ),
    "gives back only if somebody waits": (
        _whole(
            _DECODES + "for r in waiting:\n    if r.known <= left:\n        plan.append((r, r.known))\n    return plan"
        ),
        "shape",
    ),
    "a pair turned round": (
        _whole(_DECODES.replace("(r, 1)", "(1, r)") + _PROMPTS.replace("(r, r.known)", "(r.known, r)") + _END),
        "unknown",
    ),
    "a too long prompt, if nobody else is there": (
        _whole(_DECODES + _PROMPTS.replace("r.known > left:", "r.known > left and plan:") + _END),
        "too-long-alone",
    ),
    "the first of all is never turned away": (
        _whole(
            _DECODES
            + "n = len(plan)\n"
            + _PROMPTS.replace("r.known > left:", "r.known > left and len(plan) > 0:")
            + _END
        ),
        "too-long-alone",
    ),
    "cut to the budget, if nobody else is there": (
        _whole(
            _DECODES
            + "if not running and waiting and waiting[0].known > budget:\n    return [(waiting[0], budget)]\n"
            + _PROMPTS
            + _END
        ),
        "pieces",
    ),
    "never a prompt as long as the whole budget": (
        _whole(_DECODES + _PROMPTS.replace("r.known > left:", "r.known > left or r.known >= budget:") + _END),
        "exact-fit",
    ),
    "a plan without an end": (
        _whole("while True:\n    for r in running + waiting:\n        yield r, 1"),
        "endless",
    ),
    "breaks by index": (_whole("return [(waiting[k], waiting[k].known) for k in range(9)]"), "raised IndexError"),
}

WHOLE_RIGHT = {
    "loops": (
        _whole(
            "plan = []\nfor r in running:\n    if budget == 0:\n        break\n"
            "    plan.append((r, 1))\n    budget -= 1\n"
            "for r in waiting:\n    if r.known > budget:\n        return plan\n    plan.append((r, r.known))\n"
            "    budget -= r.known\nreturn plan"
        ),
        "",
    ),
    "slices": (_whole(_DECODES + _PROMPTS + _END), ""),
    "a generator": (
        _whole(
            "for r in running[:budget]:\n    yield r, 1\nbudget -= len(running[:budget])\nfor r in waiting:\n"
            "    budget -= r.known\n    if budget < 0:\n        return\n    yield r, r.known"
        ),
        "",
    ),
    "a dict": (
        _whole(
            "plan = {r: 1 for r in running[:budget]}\nfor r in waiting:\n"
            "    if sum(plan.values()) + r.known > budget:\n        break\n    plan[r] = r.known\nreturn plan"
        ),
        "",
    ),
    "eats its lists": (
        _whole(
            "plan = []\nwhile running and budget:\n    plan.append([running.pop(0), 1])\n    budget -= 1\n"
            "while waiting and waiting[0].known <= budget:\n    r = waiting.pop(0)\n    budget -= r.known\n"
            "    plan.append([r, r.known])\nreturn tuple(plan)"
        ),
        "",
    ),
    "one loop": (
        _whole(
            "plan = []\nfor r in [*running, *waiting]:\n    n = r.known - r.written\n"
            "    if n > budget:\n        break\n"
            "    plan.append((r, n))\n    budget -= n\nreturn plan"
        ),
        "",
    ),
    "accumulate": (
        "from itertools import accumulate\n"
        + _whole(
            "both = [*running, *waiting]\nsums = accumulate(r.known - r.written for r in both)\n"
            "return [(r, r.known - r.written) for r, total in zip(both, sums) if total <= budget]"
        ),
        "",
    ),
    "numpy": (
        "import numpy as np\n"
        + _whole(
            "both = running + waiting\nmissing = np.array([r.known - r.written for r in both], dtype=int)\n"
            "fits = missing.cumsum() <= budget\nreturn [(both[k], missing[k]) for k in np.flatnonzero(fits)]"
        ),
        "",
    ),
    "each loop stops by itself": (
        _whole(
            "if running and budget > 0:\n    return [(running[0], 1)] + plan_whole(waiting, running[1:], budget - 1)\n"
            "if running or not waiting or waiting[0].known > budget:\n    return []\n"
            "first = waiting[0]\n"
            "return [(first, first.known)] + plan_whole(waiting[1:], [], budget - first.known)"
        ),
        "",
    ),
}

_SHARE = "    n = min(r.known - r.written, budget)\n    if n:\n        plan.append((r, n))\n        budget -= n\n"
_LOOP = "plan = []\nfor r in running + waiting:\n" + _SHARE + "return plan"

CHUNKS_WRONG = {
    "from the whole prompt": (
        _chunks(_LOOP.replace("r.known - r.written", "r.known if r.known - r.written > 1 else 1")),
        "whole-again",
    ),
    "everything again": (_chunks(_LOOP.replace("r.known - r.written", "r.known")), "whole-again"),
    "a token after an unfinished prompt": (
        _chunks(
            _DECODES + "for r in waiting:\n    n = min(r.known, left)\n    if n:\n        plan.append((r, n))\n"
            "        left -= n\nreturn plan"
        ),
        "drips",
    ),
    "one more than is known": (_chunks(_LOOP.replace("r.known - r.written", "r.known - r.written + 1")), "too-far"),
    "shares of 0": (_chunks(_LOOP.replace("    if n:\n    ", "").replace("        budget", "    budget")), "zero"),
    "shares of 0 for the last": (
        _chunks(
            "plan = [(r, 1) for r in running if r.known - r.written == 1][:budget]\nleft = budget - len(plan)\n"
            "for r in [r for r in running if r.known - r.written > 1] + waiting:\n"
            "    n = max(0, min(r.known - r.written, left))\n    plan.append((r, n))\n    left -= n\nreturn plan"
        ),
        "zero",
    ),
    "last chunk one short": (
        _chunks(
            "plan = []\nfor r in running + waiting:\n    n = r.known - r.written\n"
            "    n = min(n if n == 1 else n - 1, budget)\n"
            "    if n:\n        plan.append((r, n))\n        budget -= n\nreturn plan"
        ),
        "one-short",
    ),
    "always one short": (_chunks(_LOOP.replace("r.known - r.written", "r.known - r.written - 1")), "one-short"),
    "the rest is forgotten": (
        _chunks(
            "plan = []\nfor r in running:\n    if r.known - r.written == 1 and budget:\n        plan.append((r, 1))\n"
            "        budget -= 1\nfor r in waiting:\n" + _SHARE + "return plan"
        ),
        "forgotten",
    ),
    "prompts first": (_chunks(_LOOP.replace("running + waiting", "waiting + running")), "prompts-first"),
    "new prompts before begun ones": (
        _chunks(
            "plan = []\nones = [r for r in running if r.known - r.written == 1]\n"
            "rest = [r for r in running if r.known - r.written > 1]\nfor r in ones + waiting + rest:\n" + _SHARE + _END
        ),
        "overtakes",
    ),
    "everybody the same": (
        _chunks(
            "plan = []\nfor r in running:\n    if r.known - r.written == 1 and budget:\n        plan.append((r, 1))\n"
            "        budget -= 1\nrest = [r for r in running if r.known - r.written > 1] + waiting\n"
            "for r in rest:\n    n = min(r.known - r.written, budget // len(rest))\n    if n:\n"
            "        plan.append((r, n))\n"
            "return plan"
        ),
        "overtakes",
    ),
    "shortest first": (
        _chunks(_LOOP.replace("running + waiting", "sorted(running + waiting, key=lambda r: r.known - r.written)")),
        "overtakes",
    ),
    "no chunks": (
        _chunks(
            "plan = []\nfor r in running + waiting:\n    n = r.known - r.written\n    if n > budget:\n        break\n"
            "    plan.append((r, n))\n    budget -= n\nreturn plan"
        ),
        "no-chunks",
    ),
    "chunks of four": (_chunks(_LOOP.replace("budget)", "budget, 4)")), "leaves-room"),
    "one prompt a step": (
        _chunks(
            "plan = []\nprompts = 0\nfor r in running + waiting:\n    n = min(r.known - r.written, budget)\n"
            "    if n and (r.known - r.written == 1 or not prompts):\n        prompts += r in waiting or n > 1\n"
            "        plan.append((r, n))\n        budget -= n\nreturn plan"
        ),
        "leaves-room",
    ),
    "waits for an empty batch": (
        _chunks(_LOOP.replace("running + waiting", "running or waiting")),
        "waits-for-empty",
    ),
    "budget in requests": (_chunks(_LOOP.replace("budget -= n", "budget -= 1")), "counts-requests"),
    "never subtracted": (_chunks(_LOOP.replace("        budget -= n\n", "")), "each-alone"),
    "no budget": (_chunks("return [(r, r.known - r.written) for r in running + waiting]"), "counts-requests"),
    "halves": (
        _chunks(_LOOP.replace("min(r.known - r.written, budget)", "min(r.known - r.written, budget / 2)")),
        "not-whole",
    ),
    "nothing given back": (_chunks(_LOOP.replace("return plan", "")), "shape"),
    "the youngest first": (_chunks(_LOOP.replace("running + waiting", "running[::-1] + waiting")), "prompts-first"),
    "one list for all calls": ("plan = []\n\n" + _chunks(_LOOP.replace("plan = []\n", "")), "remembers"),
    "the larger of the two": (_chunks(_LOOP.replace("min(", "max(")), "counts-requests"),
    "written for missing": (_chunks(_LOOP.replace("r.known - r.written", "r.written")), "empty"),
    "decodes and rests twice": (
        _chunks(
            "plan = [(r, 1) for r in running[:budget]]\nbudget -= len(plan)\n"
            "for r in running:\n    n = min(r.known - r.written - 1, budget)\n    if n:\n        plan.append((r, n))\n"
            "        budget -= n\nfor r in waiting:\n" + _SHARE + "return plan"
        ),
        "twice",
    ),
    "who misses one first, waiting or not": (
        _chunks(_LOOP.replace("running + waiting", "sorted(running + waiting, key=lambda r: r.known - r.written > 1)")),
        "overtakes",
    ),
    "new prompts of one token forgotten": (
        _chunks(
            "plan = [(r, 1) for r in running if r.known - r.written == 1][:budget]\nbudget -= len(plan)\n"
            "for r in running + waiting:\n    n = min(r.known - r.written, budget)\n"
            "    if r.known - r.written > 1 and n:\n        plan.append((r, n))\n        budget -= n\nreturn plan"
        ),
        "leaves-room",
    ),
    "nothing given back at the end": (
        _chunks(
            "plan = []\nfor r in running + waiting:\n    n = min(r.known - r.written, budget)\n"
            "    plan.append((r, n))\n    budget -= n\n    if budget == 0:\n        return plan"
        ),
        "shape",
    ),
    "chunks of 16": (
        _chunks(
            "plan = []\nfor r in sorted(running, key=lambda o: o.known - o.written > 1) + waiting:\n"
            + _SHARE.replace("budget)", "budget, 16)", 1)
            + "return plan"
        ),
        "own-limit",
    ),
    "chunks of 512": (
        _chunks(
            "plan = []\nfor r in sorted(running, key=lambda o: o.known - o.written > 1) + waiting:\n"
            + _SHARE.replace("budget)", "budget, 512)", 1)
            + "return plan"
        ),
        "own-limit",
    ),
    "a plan without an end": (
        _chunks("while True:\n    for r in running + waiting:\n        yield r, 1"),
        "endless",
    ),
    "the same one for ever": (
        _chunks("from itertools import repeat\nreturn repeat(((running + waiting)[0], 1))"),
        "endless",
    ),
    "pairs without an end": (
        _chunks("from itertools import repeat\nreturn [repeat(r) for r in running + waiting]"),
        "shape",
    ),
    "counts by itself": (_chunks(_LOOP.replace("        budget", "        r.written += n\n        budget")), "changes"),
}

CHUNKS_RIGHT = {
    "one loop": (_chunks(_LOOP), ""),
    "three kinds": (
        _chunks(
            "plan = [(r, 1) for r in running if r.known - r.written == 1][:budget]\nleft = budget - len(plan)\n"
            "for r in [r for r in running if r.known - r.written > 1] + waiting:\n    if left == 0:\n        break\n"
            "    share = min(left, r.known - r.written)\n    plan.append((r, share))\n    left -= share\nreturn plan"
        ),
        "",
    ),
    "sorted": (
        _chunks(
            "plan = []\nfor r in sorted(running, key=lambda r: r.known - r.written > 1) + waiting:\n"
            "    if budget <= 0:\n        break\n    n = min(budget, r.known - r.written)\n    budget -= n\n"
            "    plan.append((r, n))\nreturn plan"
        ),
        "",
    ),
    "a generator": (
        _chunks(
            "for r in [*running, *waiting]:\n    n = min(budget, r.known - r.written)\n    budget -= n\n"
            "    if n > 0:\n        yield [r, n]"
        ),
        "",
    ),
    "a dict": (
        _chunks(
            "plan = {}\nfor r in running + waiting:\n"
            "    if n := min(r.known - r.written, budget - sum(plan.values())):\n"
            "        plan[r] = n\nreturn plan"
        ),
        "",
    ),
    "token by token": (
        _chunks(
            "plan = {}\nfor r in running + waiting:\n    for _ in range(r.written, r.known):\n        if budget:\n"
            "            plan[r] = plan.get(r, 0) + 1\n            budget -= 1\nreturn list(plan.items())"
        ),
        "",
    ),
    "numpy": (
        "import numpy as np\n"
        + _chunks(
            "both = running + waiting\nmissing = np.array([r.known - r.written for r in both], dtype=int)\n"
            "before = missing.cumsum() - missing\nshares = np.clip(budget - before, 0, missing)\n"
            "return [(r, n) for r, n in zip(both, shares) if n]"
        ),
        "",
    ),
    "on top of 5.1": (
        _whole("plan = []\n" + _ONE_LOOP)
        + "\n\n"
        + _chunks(
            "plan = plan_whole(waiting, running, budget)\nleft = budget - sum(n for _, n in plan)\n"
            "others = [r for r in running + waiting if r not in [p for p, _ in plan]]\n"
            "if others and left:\n    plan.append((others[0], left))\nreturn plan"
        ),
        "",
    ),
    "sorts the list that it was given": (
        _chunks(
            "running.sort(key=lambda r: r.known - r.written > 1)\nplan = []\nfor r in running + waiting:\n"
            + _SHARE
            + "return plan"
        ),
        "",
    ),
    "with a helper": (
        "def missing(r):\n    return r.known - r.written\n\n"
        + _chunks(
            "plan = []\nwhile (running or waiting) and budget:\n    r = (running or waiting).pop(0)\n"
            "    plan.append((r, min(missing(r), budget)))\n    budget -= plan[-1][1]\nreturn plan"
        ),
        "",
    ),
}

WHOLE_WRONG |= {
    "looks at the first eight who wait": (
        "def plan_whole(waiting, running, budget):\n"
        "    plan = [(r, 1) for r in running[:budget]]\n"
        "    left = budget - len(plan)\n"
        "    for r in waiting[:8]:\n"
        "        if r.known > left:\n"
        "            break\n"
        "        plan.append((r, r.known))\n"
        "        left -= r.known\n"
        "    return plan\n",
        "leaves-room",
    ),
    "32 at most run": (
        "def plan_whole(waiting, running, budget):\n"
        "    plan = [(r, 1) for r in running[:min(budget, 32)]]\n"
        "    left = budget - len(plan)\n"
        "    for r in waiting[:budget]:\n"
        "        if r.known > left:\n"
        "            break\n"
        "        plan.append((r, r.known))\n"
        "        left -= r.known\n"
        "    return plan\n",
        "left-out",
    ),
    "sorted by name": (
        "def plan_whole(waiting, running, budget):\n"
        "    plan = [(r, 1) for r in sorted(running, key=lambda r: r.name)[:budget]]\n"
        "    left = budget - len(plan)\n"
        "    for r in waiting:\n"
        "        if r.known > left:\n"
        "            break\n"
        "        plan.append((r, r.known))\n"
        "        left -= r.known\n"
        "    return plan\n",
        "overtakes",
    ),
    "keeps one token for each who may run": (
        "def plan_whole(waiting, running, budget):\n"
        "    plan = [(r, 1) for r in running[:budget]]\n"
        "    left = budget - len(plan)\n"
        "    for r in waiting[:budget]:\n"
        "        if r.known > left - (1 if running and len(plan) > 8 else 0):\n"
        "            break\n"
        "        plan.append((r, r.known))\n"
        "        left -= r.known\n"
        "    return plan\n",
        "exact-fit",
    ),
}
WHOLE_RIGHT |= {
    "pops both lists, deep copies": (
        "import copy\n"
        "def plan_whole(waiting, running, budget):\n"
        "    plan = []\n"
        "    while running and budget:\n"
        "        plan.append((copy.deepcopy(running.pop(0)), 1))\n"
        "        budget -= 1\n"
        "    while waiting and waiting[0].known <= budget:\n"
        "        r = copy.copy(waiting.pop(0))\n"
        "        budget -= r.known\n"
        "        plan.append([r, r.known])\n"
        "    return reversed(plan)\n",
        "",
    ),
    "recursion": (
        "def plan_whole(waiting, running, budget):\n"
        "    if budget > 0 and running:\n"
        "        return {running[0]: 1, **dict(plan_whole(waiting, running[1:], budget - 1))}\n"
        "    if running or not waiting or waiting[0].known > budget:\n"
        "        return {}\n"
        "    return {waiting[0]: waiting[0].known, **dict(plan_whole(waiting[1:], [], budget - "
        "waiting[0].known))}\n",
        "",
    ),
    "takewhile, torch numbers": (
        "import torch\n"
        "from itertools import takewhile\n"
        "def plan_whole(waiting, running, budget):\n"
        "    first = running[:budget]\n"
        "    need = torch.tensor([r.known for r in waiting], dtype=torch.long).cumsum(0)\n"
        "    rest = takewhile(lambda pair: pair[1] <= budget - len(first), zip(waiting, need))\n"
        "    yield from ((r, torch.tensor(1)) for r in first)\n"
        "    for r, _ in rest:\n"
        "        yield r, r.known\n",
        "",
    ),
}
CHUNKS_WRONG |= {
    "looks at the first eight who wait": (
        "def plan_step(waiting, running, budget):\n"
        "    plan = []\n"
        "    \n"
        "    for r in sorted(running, key=lambda r: r.known - r.written > 1) + waiting[:8]:\n"
        "        n = min(r.known - r.written, budget)\n"
        "        if n > 0:\n"
        "            plan.append((r, n))\n"
        "            budget -= n\n"
        "    return plan\n",
        "leaves-room",
    ),
    "nobody new while a prompt is read": (
        "def plan_step(waiting, running, budget):\n"
        "    plan = []\n"
        "    \n"
        "    for r in sorted(running, key=lambda r: r.known - r.written > 1) + waiting*(not "
        "any(r.known - r.written > 1 for r in running)):\n"
        "        n = min(r.known - r.written, budget)\n"
        "        if n > 0:\n"
        "            plan.append((r, n))\n"
        "            budget -= n\n"
        "    return plan\n",
        "leaves-room",
    ),
    "chunks in whole pages of 4 unless it is the last": (
        "def plan_step(waiting, running, budget):\n"
        "    plan = []\n"
        "    \n"
        "    for r in sorted(running, key=lambda r: r.known - r.written > 1) + waiting:\n"
        "        n = min(r.known - r.written, budget)\n"
        "        if n < r.known - r.written: n = n // 4 * 4 or n\n"
        "        if n > 0:\n"
        "            plan.append((r, n))\n"
        "            budget -= n\n"
        "    return plan\n",
        "leaves-room",
    ),
    "half of the budget for prompts once somebody answers": (
        "def plan_step(waiting, running, budget):\n"
        "    plan = []\n"
        "    most = budget if not running else budget - budget // 50\n"
        "    for r in sorted(running, key=lambda r: r.known - r.written > 1) + waiting:\n"
        "        n = min(r.known - r.written, budget if r.known - r.written == 1 else min(budget, "
        "most))\n"
        "        if n > 0:\n"
        "            plan.append((r, n))\n"
        "            budget -= n\n"
        "    return plan\n",
        "own-limit",
    ),
}
CHUNKS_RIGHT |= {
    "a heap": (
        "import heapq\n"
        "def plan_step(waiting, running, budget):\n"
        "    heap = [(0 if r in running and r.known - r.written == 1 else 1, i, r) for i, r in "
        "enumerate(running + waiting)]\n"
        "    heapq.heapify(heap)\n"
        "    plan = {}\n"
        "    while heap and budget:\n"
        "        _, _, r = heapq.heappop(heap)\n"
        "        plan[r] = min(budget, r.known - r.written)\n"
        "        budget -= plan[r]\n"
        "    return plan.items()\n",
        "",
    ),
    "cumulated, cut with numpy, given in another order": (
        "import numpy as np\n"
        "def plan_step(waiting, running, budget):\n"
        "    miss = lambda r: r.known - r.written\n"
        "    order = [*filter(lambda r: miss(r) == 1, running), *filter(lambda r: miss(r) != 1, "
        "running), *waiting]\n"
        "    ends = np.minimum(np.cumsum([0] + [miss(r) for r in order]), budget)\n"
        "    shares = np.diff(ends)\n"
        "    return [(r, s) for r, s in zip(order, shares) if s][::-1]\n",
        "",
    ),
}

ANSWERS = {
    "ex-5.1": Answers(
        "plan_whole",
        WHOLE_WRONG,
        WHOLE_RIGHT,
        likely=("prompts-first", "waits-for-empty", "overtakes", "counts-requests", "exact-fit", "recomputes"),
    ),
    "ex-5.2": Answers(
        "plan_step",
        CHUNKS_WRONG,
        CHUNKS_RIGHT,
        likely=("whole-again", "drips", "zero", "one-short", "forgotten", "prompts-first", "overtakes"),
    ),
}
