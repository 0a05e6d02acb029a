"""Answers to the exercises of chapter 06: wrong ones with the kind of verdict that each must get, and right ones."""

from __future__ import annotations

from answers import Answers


def _admit(body: str, head: str = "") -> str:
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return f"{head}def admit(request, server):\n{lines}"


_TWO = "tokens = len(request.prompt) + request.max_tokens\nslots = tokens - 1\n"
_LASTING = "if tokens > server.context or slots > server.pool:\n    return 'refuse', f'{tokens} tokens do not fit'\n"
_NOW = "if slots > server.free:\n    return 'wait'\nreturn 'serve'"

ADMIT_WRONG = {
    "compares with what is free now": (
        _admit(_TWO + "if tokens > server.context or slots > server.free:\n    return 'refuse', 'x'\nreturn 'serve'"),
        "refused-for-now",
    ),
    "free before pool": (
        _admit(_TWO + "if slots > server.free:\n    return 'refuse', 'no room'\n" + _LASTING + "return 'wait'"),
        "refused-for-now",
    ),
    "everybody may wait": (_admit(_TWO + _NOW), "queues-forever"),
    "always wait": (_admit("return 'wait'"), "queues-forever"),
    "waits before it refuses": (
        _admit(_TWO + "if slots > server.free:\n    return 'wait'\n" + _LASTING + "return 'serve'"),
        "queues-forever",
    ),
    "always serve": (_admit("return 'serve'"), "no-refusal"),
    "knows the context alone": (
        _admit(_TWO + "if tokens > server.context:\n    return 'refuse', 'x'\n" + _NOW),
        "pool-forgotten",
    ),
    "the worked example": (
        _admit(
            "if len(request.prompt) > server.context:\n    return 'refuse', f'at most {server.context}'\nreturn 'serve'"
        ),
        "pool-forgotten",
    ),
    "pool only": (_admit(_TWO + "if slots > server.pool:\n    return 'refuse', 'x'\n" + _NOW), "context-forgotten"),
    "the larger limit": (
        _admit(_TWO + "if slots > max(server.pool, server.context):\n    return 'refuse', 'x'\n" + _NOW),
        "pool-forgotten",
    ),
    "forgets max_tokens": (
        _admit(
            "n = len(request.prompt)\nif n > server.context or n > server.pool:\n    return 'refuse', 'x'\n"
            "return 'serve' if n <= server.free else 'wait'"
        ),
        "max-tokens-forgotten",
    ),
    "prompt and answer one by one": (
        _admit(
            "most = min(server.pool, server.context)\n"
            "if len(request.prompt) > most or request.max_tokens > most:\n    return 'refuse', 'x'\n" + _TWO + _NOW
        ),
        "max-tokens-forgotten",
    ),
    "max_tokens for the context only": (
        _admit(
            _TWO + "if tokens > server.context or len(request.prompt) > server.pool:\n    return 'refuse', 'x'\n" + _NOW
        ),
        "max-tokens-forgotten",
    ),
    "room for the prompt is enough": (
        _admit(_TWO + _LASTING + "return 'serve' if len(request.prompt) <= server.free else 'wait'"),
        "served-on-the-prompt",
    ),
    "nobody waits": (_admit(_TWO + _LASTING + "return 'serve'"), "no-room"),
    "both limits at once": (
        _admit(_TWO + "if tokens > server.context and slots > server.pool:\n    return 'refuse', 'x'\n" + _NOW),
        "pool-forgotten",
    ),
    "the answer takes no slot": (
        _admit(
            "n = len(request.prompt)\nif n + request.max_tokens > server.context or n > server.pool:\n"
            "    return 'refuse', 'x'\nreturn 'serve' if n <= server.free else 'wait'"
        ),
        "max-tokens-forgotten",
    ),
    "the right pool, one off for free": (
        _admit(
            "n = len(request.prompt) + request.max_tokens\nif n > server.context or n - 1 > server.pool:\n"
            "    return 'refuse', f'{n}'\nreturn 'wait' if n > server.free else 'serve'"
        ),
        "free-one-too-few",
    ),
    "counts the answer, not capped in the request": (
        _admit(
            "room = min(server.context - len(request.prompt), server.pool - len(request.prompt) + 1)\n"
            "if room < 1:\n    return 'refuse', 'x'\nslots = len(request.prompt) + min(request.max_tokens, room) - 1\n"
            "return 'serve' if slots <= server.free else 'wait'"
        ),
        "max-tokens-forgotten",
    ),
    "the prompt is a number": (
        _admit("slots = request.prompt + request.max_tokens - 1\nreturn 'serve' if slots <= server.free else 'wait'"),
        "raised TypeError",
    ),
    "the reason first": (
        _admit(_TWO + "if tokens > server.context or slots > server.pool:\n    return f'{slots}', 'refuse'\n" + _NOW),
        "reason-first",
    ),
    "a number as the reason": (
        _admit(_TWO + "if tokens > server.context or slots > server.pool:\n    return 'refuse', slots\n" + _NOW),
        "reason-no-text",
    ),
    "a dict as the reason": (
        _admit(
            _TWO + "if tokens > server.context or slots > server.pool:\n    return ['refuse', {'limit': 28}]\n" + _NOW
        ),
        "reason-no-text",
    ),
    "everybody waits who fits": (_admit(_TWO + _LASTING + "return 'wait'"), "waits-with-room"),
    "waits until all is free": (
        _admit(_TWO + _LASTING + "return 'serve' if server.free == server.pool else 'wait'"),
        "waits-with-room",
    ),
    "a margin": (
        _admit(
            _TWO + "if tokens > 0.9 * server.context or slots > 0.9 * server.pool:\n    return 'refuse', 'x'\n" + _NOW
        ),
        "refused-with-room",
    ),
    "counts the last token": (
        _admit(
            _TWO.replace("tokens - 1", "tokens") + _LASTING + _NOW,
        ),
        "last-token-counted",
    ),
    "strictly less than the pool": (
        _admit(_TWO + "if tokens > server.context or slots >= server.pool:\n    return 'refuse', 'x'\n" + _NOW),
        "last-token-counted",
    ),
    "one too many in the pool": (
        _admit(_TWO + "if tokens > server.context or slots > server.pool + 1:\n    return 'refuse', 'x'\n" + _NOW),
        "one-too-many",
    ),
    "subtracts twice": (
        _admit(_TWO + "if tokens > server.context or slots - 1 > server.pool:\n    return 'refuse', 'x'\n" + _NOW),
        "one-too-many",
    ),
    "slots for the context": (
        _admit(_TWO + "if slots > min(server.context, server.pool):\n    return 'refuse', 'x'\n" + _NOW),
        "context-one-too-many",
    ),
    "strictly less than the context": (
        _admit(_TWO + "if tokens >= server.context or slots > server.pool:\n    return 'refuse', 'x'\n" + _NOW),
        "context-one-too-few",
    ),
    "strictly less than free": (
        _admit(_TWO + _LASTING + "return 'serve' if slots < server.free else 'wait'"),
        "free-one-too-few",
    ),
    "one too many for free": (
        _admit(_TWO + _LASTING + "return 'serve' if slots - 1 <= server.free else 'wait'"),
        "free-one-too-many",
    ),
    "cuts to the pool": (
        _admit("del request.prompt[server.pool:]\n" + _TWO + _LASTING + _NOW),
        "cut",
    ),
    "keeps the end": (
        _admit(
            "most = min(server.pool, server.context - 1) - request.max_tokens + 1\n"
            "if most < 1:\n    return 'refuse', 'x'\n"
            "request.prompt = request.prompt[-most:]\n" + _TWO + _LASTING + _NOW
        ),
        "cut",
    ),
    "makes the answer shorter": (
        _admit(
            "room = min(server.context - len(request.prompt), server.pool + 1 - len(request.prompt))\n"
            "if room < 1:\n    return 'refuse', 'x'\n"
            "request.max_tokens = min(request.max_tokens, room)\n" + _TWO + _NOW
        ),
        "capped",
    ),
    "a stand-in for what is refused": (
        _admit(
            _TWO + "if tokens > server.context or slots > server.pool:\n    request.prompt = [0]\n"
            "    return 'refuse', 'too long'\n" + _NOW
        ),
        "edited",
    ),
    "counts by taking tokens away": (
        _admit(
            "tokens = request.max_tokens\nwhile request.prompt:\n    request.prompt.pop()\n    tokens += 1\n"
            "slots = tokens - 1\n" + _LASTING + _NOW
        ),
        "edited",
    ),
    "prompt becomes its length": (
        _admit(
            "request.prompt = len(request.prompt)\ntokens = request.prompt + request.max_tokens\nslots = tokens - 1\n"
            + _LASTING
            + _NOW
        ),
        "edited",
    ),
    "books the slots": (
        _admit(_TWO + _LASTING + "if slots > server.free:\n    return 'wait'\nserver.free -= slots\nreturn 'serve'"),
        "edits-server",
    ),
    "books them elsewhere": (
        _admit(
            _TWO + _LASTING + "if slots > server.free - sum(booked):\n    return 'wait'\nbooked.append(slots)\n"
            "return 'serve'",
            "booked = []\n",
        ),
        "remembers",
    ),
    "every second time": (
        _admit(_TWO + _LASTING + "asked.append(1)\nif len(asked) > 500:\n    return 'wait'\n" + _NOW, "asked = []\n"),
        "remembers",
    ),
    "says nothing when it fits": (
        _admit(_TWO + _LASTING + "if slots > server.free:\n    return 'wait'"),
        "no-answer",
    ),
    "prints": (_admit(_TWO + "print('serve')"), "no-answer"),
    "a yes and no": (_admit(_TWO + "return slots <= server.free"), "not-a-word"),
    "a status": (
        _admit(
            _TWO + "if tokens > server.context or slots > server.pool:\n    return 400\n"
            "return 200 if slots <= server.free else 429"
        ),
        "not-a-word",
    ),
    "the reason in the word": (
        _admit(_TWO + "if tokens > server.context or slots > server.pool:\n    return f'refuse: {tokens}'\n" + _NOW),
        "reason-in-word",
    ),
    "a capital letter": (
        _admit(_TWO + _LASTING + "return 'Serve' if slots <= server.free else 'Wait'"),
        "not-a-word",
    ),
    "raises": (
        _admit(_TWO + "if tokens > server.context or slots > server.pool:\n    raise ValueError('too long')\n" + _NOW),
        "raises",
    ),
    "a result": ("admit = 'refuse'\n", "not-callable"),
}

ADMIT_RIGHT = {
    "two numbers, three questions": (_admit(_TWO + _LASTING + _NOW), ""),
    "one lasting limit": (
        _admit(
            "slots = len(request.prompt) + request.max_tokens - 1\n"
            "if slots > min(server.pool, server.context - 1):\n    return ('refuse', f'{slots} are too many')\n"
            "return 'wait' if slots > server.free else 'serve'"
        ),
        "",
    ),
    "without reasons": (
        _admit(_TWO + "if tokens > server.context or slots > server.pool:\n    return 'refuse'\n" + _NOW),
        "no reason",
    ),
    "prints its reason": (
        _admit(
            _TWO
            + "if tokens > server.context or slots > server.pool:\n    return 'refuse', print(f'{slots} slots')\n"
            + _NOW
        ),
        "no reason",
    ),
    "always two": (
        _admit(
            _TWO + "if tokens > server.context or slots > server.pool:\n    return 'refuse', f'{slots} slots'\n"
            "if slots > server.free:\n    return 'wait', None\nreturn 'serve', None"
        ),
        "A promise is kept",
    ),
    "always two, with texts": (
        _admit(
            _TWO + "if tokens > server.context or slots > server.pool:\n    return 'refuse', f'{slots} slots'\n"
            "if slots > server.free:\n    return 'wait', 'come later'\nreturn 'serve', ''"
        ),
        "A promise is kept",
    ),
    "a reason without a number": (
        _admit(
            _TWO + "if tokens > server.context:\n    return 'refuse', 'more positions than the context has'\n"
            "if slots > server.pool:\n    return 'refuse', 'more slots than the pool has'\n" + _NOW
        ),
        "names no number",
    ),
    "a class with a call": (
        "class Door:\n"
        "    def __call__(self, request, server):\n"
        "        slots = len(request.prompt) + request.max_tokens - 1\n"
        "        if slots + 1 > server.context or slots > server.pool:\n"
        "            return 'refuse', f'{slots} slots'\n"
        "        return 'wait' if slots > server.free else 'serve'\n\n\n"
        "admit = Door()\n",
        "",
    ),
    "how much room after this prompt": (
        _admit(
            "room = min(server.context - 1, server.pool) - len(request.prompt) + 1\n"
            "if request.max_tokens > room:\n    return 'refuse', f'at most {room} after this prompt'\n"
            "return 'wait' if request.max_tokens > server.free - len(request.prompt) + 1 else 'serve'"
        ),
        "A promise is kept",
    ),
    "a list with an f-string": (
        _admit(
            _TWO + "if tokens > server.context or slots > server.pool:\n"
            "    return ['refuse', f'at most {server.pool + 1 - request.max_tokens} prompt tokens']\n" + _NOW
        ),
        "",
    ),
    "serve first": (
        _admit(
            _TWO + "if tokens <= server.context:\n    if slots <= server.free:\n        return 'serve'\n"
            "    if slots <= server.pool:\n        return 'wait'\nreturn 'refuse', f'{slots} slots'"
        ),
        "",
    ),
    "by index": (
        _admit(
            _TWO + "answers = ['serve', 'wait', ('refuse', f'{tokens} do not fit')]\n"
            "never = tokens > server.context or slots > server.pool\n"
            "return answers[2 if never else slots > server.free]"
        ),
        "",
    ),
    "strict comparisons of tokens": (
        _admit(
            "tokens = len(request.prompt) + request.max_tokens\n"
            "if not (tokens <= server.context and tokens <= server.pool + 1):\n    return 'refuse', 'too long'\n"
            "return 'serve' if tokens < server.free + 2 else 'wait'"
        ),
        "",
    ),
    "writes token by token": (
        _admit(
            "written, known = len(request.prompt), len(request.prompt) + 1\n"
            "for _ in range(request.max_tokens - 1):\n    written, known = written + 1, known + 1\n"
            "if known > server.context or written > server.pool:\n    return 'refuse', f'{written} slots'\n"
            "return 'serve' if written <= server.free else 'wait'"
        ),
        "",
    ),
    "what is left": (
        _admit(
            "left = server.pool - len(request.prompt) - (request.max_tokens - 1)\n"
            "positions = server.context - len(request.prompt) - request.max_tokens\n"
            "if min(left, positions) < 0:\n    return 'refuse', f'{-min(left, positions)} too many'\n"
            "held = server.pool - server.free\nreturn 'serve' if left >= held else 'wait'"
        ),
        "",
    ),
    "a copy may be changed": (
        _admit(
            "tokens = list(request.prompt)\ntokens.extend([0] * request.max_tokens)\n"
            "if len(tokens) > server.context:\n    return 'refuse', 'context'\ntokens.pop()\n"
            "if len(tokens) > server.pool:\n    return 'refuse', 'pool'\n"
            "return 'serve' if len(tokens) <= server.free else 'wait'"
        ),
        "",
    ),
    "numpy": (
        _admit(
            "tokens = len(request.prompt) + request.max_tokens\n"
            "never = np.any(np.array([tokens, tokens - 1]) > [server.context, server.pool])\n"
            "word = np.where(never, 'refuse', np.where(tokens - 1 <= server.free, 'serve', 'wait'))\n"
            "return word[()]",
            "import numpy as np\n",
        ),
        "no reason",
    ),
    "words by name": (
        _admit(
            _TWO + "if tokens > server.context or slots > server.pool:\n    return REFUSE, f'{slots}'\n"
            "return SERVE if slots <= server.free else WAIT",
            "SERVE, WAIT, REFUSE = 'serve', 'wait', 'refuse'\n",
        ),
        "",
    ),
    "with a helper": (
        "def needs(request):\n    total = len(request.prompt) + request.max_tokens\n    return total - 1, total\n\n\n"
        + _admit(
            "slots, tokens = needs(request)\n" + _LASTING + _NOW,
        ),
        "",
    ),
    "match": (
        _admit(
            _TWO + "match (tokens <= server.context and slots <= server.pool, slots <= server.free):\n"
            "    case (False, _):\n        return 'refuse', f'{slots}'\n    case (_, True):\n        return 'serve'\n"
            "    case _:\n        return 'wait'"
        ),
        "",
    ),
    "prints as it goes": (_admit(_TWO + "print(slots)\n" + _LASTING + _NOW), ""),
}


def _probe(requests: str, test: str = "(reply.status, reply.prompt_tokens) != (status, prompt)") -> str:
    return (
        "def is_broken(send):\n"
        f"    for prompt, max_tokens, status in {requests}:\n"
        "        reply = send(prompt, max_tokens)\n"
        f"        if {test}:\n"
        "            return True\n"
        "    return False\n"
    )


_GOOD = "[(27, 2, 200), (27, 3, 400), (14, 16, 400)]"

PROBE_WRONG = {
    "far out": (_probe("[(5, 4, 200), (600, 4, 400)]"), "far-out"),
    "far out, six of them": (
        _probe("[(1, 1, 200), (5, 4, 200), (16, 4, 200), (100, 1, 400), (512, 1, 400), (600, 4, 400)]"),
        "far-out",
    ),
    "the context's limit": (_probe("[(510, 1, 400), (511, 1, 400), (512, 1, 400), (5, 5, 200)]"), "far-out"),
    "only what is too long": (_probe("[(27, 3, 400), (14, 16, 400), (28, 2, 400)]"), "one-side"),
    "only what fits": (_probe("[(27, 2, 200), (14, 15, 200), (1, 28, 200)]"), "one-side"),
    "one answer token": (_probe("[(28, 1, 200), (29, 1, 400), (5, 1, 200), (30, 1, 400)]"), "no-max-tokens"),
    "looks at the status alone": (_probe(_GOOD, "reply.status != status"), "status-only"),
    "looks at success alone": (_probe(_GOOD, "(reply.status == 200) != (status == 200)"), "status-only"),
    "short prompts are forgotten": (_probe("[(27, 2, 200), (27, 3, 400), (26, 3, 200), (26, 4, 400)]"), "missed"),
    "reads short prompts only": (_probe("[(14, 15, 200), (14, 16, 400)]"), "missed"),
    "only the prompt's length": (_probe(_GOOD, "reply.prompt_tokens != prompt"), "not-compared"),
    "does not look": (
        "def is_broken(send):\n    send(27, 2), send(27, 3), send(14, 16)\n    return False\n",
        "not-compared",
    ),
    "seven": (
        _probe("[(27, 2, 200), (28, 1, 200), (1, 28, 200), (27, 3, 400), (28, 2, 400), (1, 29, 400), (14, 16, 400)]"),
        "too-many",
    ),
    "all lengths": (
        "def is_broken(send):\n    return any((send(n, 2).status == 200) != (n + 1 <= 28) for n in range(1, 600))\n",
        "too-many",
    ),
    "random": (
        "import random\n\n\ndef is_broken(send):\n    draw = random.Random(0)\n    for _ in range(1000):\n"
        "        p, a = draw.randint(1, 600), draw.randint(1, 200)\n        try:\n"
        "            if (send(p, a).status == 200) != (p + a - 1 <= 28):\n                return True\n"
        "        except Exception:\n            pass\n    return False\n",
        "too-many",
    ),
    "counts the last token": (_probe("[(27, 2, 400), (27, 1, 200), (14, 16, 400)]"), "accused"),
    "thinks that one more fits": (_probe("[(27, 2, 200), (27, 3, 200), (14, 16, 400)]"), "accused"),
    "takes the context for the pool": (_probe("[(100, 4, 200), (510, 2, 200), (511, 2, 400)]"), "accused"),
    "everybody is guilty": ("def is_broken(send):\n    return True\n", "no-requests"),
    "everybody is guilty, with a request": (
        "def is_broken(send):\n    return send(27, 2).status in (200, 400)\n",
        "accused",
    ),
    "nobody is": ("def is_broken(send):\n    return False\n", "no-requests"),
    "compares the reply itself": (
        "def is_broken(send):\n    return send(27, 2) != 200 or send(27, 3) != 400\n",
        "raised TypeError",
    ),
    "takes the reply apart by tuple": (
        "def is_broken(send):\n    return send(27, 2) != (200, 27) or send(14, 16) != (400, 14)\n",
        "raised TypeError",
    ),
    "the other way round": (
        "def is_broken(send):\n    full, more = send(27, 2), send(14, 16)\n"
        "    return full.status == 200 and full.prompt_tokens == 27 and more.status == 400\n",
        "accused",
    ),
    "far prompts for Dan": (_probe("[(27, 3, 400), (1, 28, 200), (1, 29, 400), (300, 2, 400)]"), "missed"),
    "a refusal has read nothing": (
        "def is_broken(send):\n    for p, a, status in [(27, 2, 200), (27, 3, 400), (14, 16, 400)]:\n"
        "        reply = send(p, a)\n"
        "        if (reply.status, reply.prompt_tokens) != (status, p if status == 200 else 0):\n"
        "            return True\n    return False\n",
        "accused",
    ),
    "a word back": (
        "def is_broken(send):\n    right = send(27, 2).prompt_tokens == 27 and send(14, 16).status == 400\n"
        "    return 'right' if right else 'broken'\n",
        "not-yes-or-no",
    ),
    "what it found": (
        "def is_broken(send):\n    cases = {(27, 2): 200, (27, 3): 400}\n"
        "    return [case for case in cases if send(*case).status != cases[case]]\n",
        "not-yes-or-no",
    ),
    "prints": ("def is_broken(send):\n    print(send(27, 2), send(27, 3), send(14, 16))\n", "not-yes-or-no"),
    "nothing back": ("def is_broken(send):\n    send(27, 2)\n", "not-yes-or-no"),
    "a status back": ("def is_broken(send):\n    return send(27, 2).status\n", "not-yes-or-no"),
    "a list of lengths": ("is_broken = [27, 28, 29]\n", "not-callable"),
    "counts its calls and sends nothing": (
        "calls = []\ndef is_broken(send):\n    calls.append(1)\n    return len(calls) > 1\n",
        "no-requests",
    ),
    "counts its calls by five": (
        "calls = []\ndef is_broken(send):\n    calls.append(1)\n    return len(calls) % 5 != 1\n",
        "no-requests",
    ),
    "counts its calls and sends for show": (
        "calls = []\ndef is_broken(send):\n    calls.append(send(27, 2))\n    return len(calls) > 1\n",
        "own-count",
    ),
    "counts its calls by five and sends for show": (
        "calls = []\ndef is_broken(send):\n    calls.append(send(27, 2))\n    return len(calls) % 5 != 1\n",
        "own-count",
    ),
    "the first door is taken for the right one": (
        "known = {}\ndef is_broken(send):\n    replies = [(r.status, r.prompt_tokens) for r in "
        "(send(27, 2), send(27, 3), send(14, 16))]\n    before = known.get('last', replies)\n"
        "    known['last'] = replies\n    return replies != before\n",
        "own-count",
    ),
    "no answer tokens": (_probe("[(28, 0, 200), (29, 0, 400)]"), "raised ValueError"),
}

PROBE_RIGHT = {
    "three requests": (_probe(_GOOD), "done with 2"),
    "two requests": (_probe("[(27, 2, 200), (14, 16, 400)]"), "Fewer will not do"),
    "six requests": (
        _probe("[(27, 2, 200), (28, 1, 200), (1, 28, 200), (27, 3, 400), (1, 29, 400), (14, 16, 400)]"),
        "you sent 6",
    ),
    "by the rule": (
        "def is_broken(send):\n"
        "    for prompt, answer in ((28, 1), (28, 2), (2, 27), (2, 28)):\n"
        "        reply = send(prompt, answer)\n"
        "        expected = 200 if prompt + answer - 1 <= 28 else 400\n"
        "        if reply.status != expected or reply.prompt_tokens < prompt:\n"
        "            return True\n"
        "    return False\n",
        "",
    ),
    "one expression": (
        "def is_broken(send):\n"
        "    a, b = send(24, 5), send(3, 27)\n"
        "    return not (a.status == 200 and a.prompt_tokens == 24 and b.status == 400)\n",
        "",
    ),
    "any": (
        "CASES = {(27, 2): 200, (27, 3): 400, (10, 19): 200, (10, 20): 400}\n\n\n"
        "def is_broken(send):\n"
        "    replies = {case: send(*case) for case in CASES}\n"
        "    return any(replies[c].status != CASES[c] or replies[c].prompt_tokens != c[0] for c in CASES)\n",
        "",
    ),
    "numpy": (
        "import numpy as np\n\n\ndef is_broken(send):\n"
        "    got = [send(27, 2), send(14, 16)]\n"
        "    seen = np.array([[r.status, r.prompt_tokens] for r in got])\n"
        "    return np.any(seen != [[200, 27], [400, 14]])\n",
        "",
    ),
    "looks at the prompt where it was served": (
        "def is_broken(send):\n"
        "    for p, a in [(27, 2), (27, 3), (1, 29), (100, 4)]:\n"
        "        fits = p + a - 1 <= 28\n        reply = send(p, a)\n"
        "        if (reply.status == 200) != fits:\n            return True\n"
        "        if fits and reply.prompt_tokens != p:\n            return True\n"
        "    return False\n",
        "you sent 4",
    ),
    "just over twenty": (
        "def is_broken(send):\n"
        "    seen = [(r.status, r.prompt_tokens) for r in (send(21, 8), send(21, 9), send(2, 28))]\n"
        "    return seen != [(200, 21), (400, 21), (400, 2)]\n",
        "you sent 3",
    ),
    "stops early": (
        "def is_broken(send):\n"
        "    if send(27, 3).status == 200 or send(8, 22).status != 400:\n        return True\n"
        "    full = send(27, 2)\n    return full.status != 200 or full.prompt_tokens != 27\n",
        "",
    ),
}

ADMIT_WRONG |= {
    "different tokens": (
        "def admit(request, server):\n"
        "    n = len(set(request.prompt))\n"
        "    slots = n + request.max_tokens - 1\n"
        "    if slots + 1 > server.context or slots > server.pool:\n"
        "        return 'refuse', f'{slots}'\n"
        "    return 'serve' if slots <= server.free else 'wait'\n",
        "queues-forever",
    ),
    "tokens that are not 0": (
        "def admit(request, server):\n"
        "    n = sum(1 for t in request.prompt if t)\n"
        "    slots = n + request.max_tokens - 1\n"
        "    if slots + 1 > server.context or slots > server.pool:\n"
        "        return 'refuse', f'{slots}'\n"
        "    return 'serve' if slots <= server.free else 'wait'\n",
        "pool-forgotten",
    ),
    "an answer of 100 at most": (
        "def admit(request, server):\n"
        "    n = len(request.prompt)\n"
        "    slots = n + min(request.max_tokens, 100) - 1\n"
        "    if slots + 1 > server.context or slots > server.pool:\n"
        "        return 'refuse', f'{slots}'\n"
        "    return 'serve' if slots <= server.free else 'wait'\n",
        "max-tokens-forgotten",
    ),
    "edits the server through its dict": (
        "def admit(request, server):\n"
        "    n = len(request.prompt)\n"
        "    slots = n + request.max_tokens - 1\n"
        "    if slots + 1 > server.context or slots > server.pool:\n"
        "        return 'refuse', f'{slots}'\n"
        "    server.__dict__['free'] -= 0 if slots > server.free else slots\n"
        "    return 'serve' if slots <= server.free else 'wait'\n",
        "remembers",
    ),
}
ADMIT_RIGHT |= {
    "bisect over the limits": (
        "from bisect import bisect_left\n"
        "def admit(request, server):\n"
        "    limits = sorted((min(server.free, server.pool, server.context - 1), min(server.pool, "
        "server.context - 1)))\n"
        "    place = bisect_left(limits, len(request.prompt) + request.max_tokens - 1)\n"
        "    return [('serve', None), ('wait', None), ('refuse', 'over %d slots' % "
        "limits[-1])][place]\n",
        "",
    ),
    "a chain of handlers, deleting its own copy": (
        "from copy import deepcopy\n"
        "def admit(request, server):\n"
        "    mine = deepcopy(request)\n"
        "    room = {'serve': min(server.free, server.context - 1), 'wait': min(server.pool, "
        "server.context - 1)}\n"
        "    for _ in range(mine.max_tokens - 1):\n"
        "        mine.prompt.append(0)\n"
        "    for word, slots in room.items():\n"
        "        left = mine.prompt[:]\n"
        "        del left[:slots]\n"
        "        if not left:\n"
        "            return word\n"
        "    return ['refuse', f'{len(left)} too many']\n",
        "",
    ),
}
PROBE_WRONG |= {
    "prompt_tokens only when it is 400": (
        "def is_broken(send):\n"
        "    return any(send(p, a).status != s or (s == 400 and send(p, a).prompt_tokens != p) for "
        "p, a, s in [(27, 2, 200), (27, 3, 400), (14, 16, 400)][:2]) or send(14, 16).status != 400\n",
        "status-only",
    ),
    "a prompt of 20 for Dan": (
        "def is_broken(send):\n"
        "    for p, a, s in [(20, 9, 200), (20, 10, 400), (14, 16, 400)]:\n"
        "        r = send(p, a)\n"
        "        if (r.status, r.prompt_tokens) != (s, p):\n"
        "            return True\n"
        "    return False\n",
        "missed",
    ),
    "context and pool in one": (
        "def is_broken(send):\n"
        "    for p, a, s in [(27, 2, 200), (512, 1, 400), (14, 499, 400)]:\n"
        "        r = send(p, a)\n"
        "        if (r.status, r.prompt_tokens) != (s, p):\n"
        "            return True\n"
        "    return False\n",
        "missed",
    ),
    "swallows what stops it": (
        "def is_broken(send):\n"
        "    bad = 0\n"
        "    for p in range(1, 40):\n"
        "        try:\n"
        "            bad += send(p, 2).status != (200 if p + 1 <= 28 else 400)\n"
        "            bad += send(p, 20).status != (200 if p + 19 <= 28 else 400)\n"
        "        except BaseException:\n"
        "            pass\n"
        "    return bad > 0 or send(27, 2).prompt_tokens != 27\n",
        "too-many",
    ),
}
PROBE_RIGHT |= {
    "two requests, through sets": (
        "def is_broken(send):\n"
        "    right = {(28, 1): 200, (1, 29): 400}\n"
        "    replies = {(*asked, send(*asked).status) for asked in right} | {(0, 0, 200) if send(28, "
        "1).prompt_tokens == 28 else (0, 0, 0)}\n"
        "    return replies != {(*asked, status) for asked, status in right.items()} | {(0, 0, 200)}\n",
        "",
    ),
    "numpy and a loop with else": (
        "import numpy as np\n"
        "def is_broken(send):\n"
        "    asked = np.array([[14, 15], [14, 16], [27, 2], [29, 1], [25, 4]])\n"
        "    for p, a in asked.tolist():\n"
        "        reply = send(p, a)\n"
        "        if reply.prompt_tokens - p or (reply.status == 200) is not (p + a <= 29) or "
        "reply.status not in (200, 400):\n"
        "            break\n"
        "    else:\n"
        "        return np.bool_(False)\n"
        "    return np.bool_(True)\n",
        "",
    ),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def is_broken(send):\n"
        "    with ThreadPoolExecutor(2) as pool:\n"
        "        replies = list(pool.map(send, (27, 27, 14), (2, 3, 16)))\n"
        "    return [(r.status, r.prompt_tokens) for r in replies] != [(200, 27), (400, 27), (400, "
        "14)]\n",
        "",
    ),
}

ANSWERS = {
    "ex-6.1": Answers(
        "admit",
        ADMIT_WRONG,
        ADMIT_RIGHT,
        likely=(
            "refused-for-now", "queues-forever", "no-refusal", "pool-forgotten", "context-forgotten",
            "max-tokens-forgotten", "served-on-the-prompt", "last-token-counted", "one-too-many",
            "context-one-too-many", "context-one-too-few", "free-one-too-few", "free-one-too-many", "cut", "capped",
            "edited", "edits-server",
        ),
    ),
    "ex-6.2": Answers(
        "is_broken",
        PROBE_WRONG,
        PROBE_RIGHT,
        likely=("far-out", "one-side", "no-max-tokens", "status-only", "missed", "too-many", "accused"),
    ),
}  # fmt: skip
