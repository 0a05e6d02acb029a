"""Exercise 6.2, six requests: the reference answer, the doors that it has to do with, and what is said of others."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from minikv.course.declare import Verdict, ok, wrong

POOL, CONTEXT = 28, 512
MOST = 6  # requests
_FEWEST = 2
_RIGHT = "the right one"


@dataclass(frozen=True)
class Reply:
    """What a server answers: the status, and how many tokens of the prompt it has read (if refused: was sent)."""

    status: int
    prompt_tokens: int

    def __eq__(self, other: object) -> bool:
        """Like another reply? `send(27, 2) == 200` would always be False, and nobody would see why."""
        if not isinstance(other, Reply):
            raise TypeError("a reply is not a number: compare what is in it, .status and .prompt_tokens")
        return (self.status, self.prompt_tokens) == (other.status, other.prompt_tokens)


Send = Callable[[int, int], Reply]


def is_broken(send: Send) -> bool:
    """Whether the door behind `send` answers one of a few well chosen requests otherwise than it should."""
    for prompt, max_tokens, status in [(27, 2, 200), (27, 3, 400), (14, 16, 400)]:
        reply = send(prompt, max_tokens)
        if (reply.status, reply.prompt_tokens) != (status, prompt):
            return True
    return False


# The doors. All of 28 slots, context 512, and nobody else is there.
Door = Callable[[int, int], Reply]


def right_door(prompt: int, max_tokens: int) -> Reply:
    fits = prompt + max_tokens - 1 <= POOL and prompt + max_tokens <= CONTEXT
    return Reply(200 if fits else 400, prompt)


def _anna(prompt: int, max_tokens: int) -> Reply:
    """Exactly full is refused."""
    return Reply(200 if prompt + max_tokens <= POOL else 400, prompt)


def _ben(prompt: int, max_tokens: int) -> Reply:
    """One too many gets in."""
    return Reply(200 if prompt + max_tokens - 1 <= POOL + 1 else 400, prompt)


def _cleo(prompt: int, max_tokens: int) -> Reply:
    """Short prompts pass without a look at `max_tokens`."""
    return Reply(200, prompt) if prompt <= POOL // 2 else right_door(prompt, max_tokens)


def _dan(prompt: int, max_tokens: int) -> Reply:
    """Long prompts are served, and only their end is read."""
    reply = right_door(prompt, max_tokens)
    return Reply(200, min(prompt, 20)) if reply.status == 200 else reply


BROKEN: dict[str, Door] = {"Anna": _anna, "Ben": _ben, "Cleo": _cleo, "Dan": _dan}


class _TooMany(BaseException):
    """The answer has sent more than it may. No Exception, so that `except Exception` lets it pass."""


class _Probe:
    """One door with a count of what was sent to it."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.sent: list[tuple[int, int]] = []

    def __call__(self, prompt: int, max_tokens: int) -> Reply:
        if not all(isinstance(number, int) and number >= 1 for number in (prompt, max_tokens)):
            raise ValueError(f"send takes two whole numbers of at least 1, not {prompt!r} and {max_tokens!r}")
        self.sent.append((prompt, max_tokens))
        if len(self.sent) > MOST:
            raise _TooMany
        return self.door(prompt, max_tokens)


_TOO_MANY = (
    "Which of your requests taught you nothing that another had not?",
    "A mistake shows at a limit or nowhere. Far from every limit all five doors agree.",
    "A door for 4 slots. Which two requests tell `<= 4` from `<= 3` and from `<= 5`?",
)
_FAR = (
    "How far from a limit are your requests? Where do two doors differ that differ by one token?",
    "A limit is tested with exactly as much as fits, and with one more.",
    "A door for 4 slots with `<= 5` in place of `<= 4`. Try 1, 2, ... up to 9 slots. At which does it show?",
)
_ONE_SIDE = (
    "What would a door have to do wrong so that you see it on the other side?",
    "A limit has two sides. On one a door lets in too much, on the other it turns away what fits.",
    "A door for 4 slots that says no to everything. Which of your requests shows that it is broken?",
)
_NO_ANSWER = (
    "What do all your requests have in common, apart from the prompt?",
    "The same number of slots can be a long prompt with a short answer, or the other way round. A door may look at "
    "one of the two only.",
    "10 slots. Name two requests that both write exactly 11. Which one would a door miss that looks at the prompt?",
)
_STATUS = (
    "A reply has two parts. Which one did you not look at?",
    "200 says that there is an answer. It does not say to which question.",
    "You send a prompt of 27 tokens, and the reply says that 20 were read. Is that door all right?",
)
_ACCUSED = (
    "Which reply did you not expect, and what does the rule say about that very request?",
    "Work out slots and positions for each of your requests by hand. Then write down the status, and only then ask.",
    "(27, 2): how many slots does it write? And (28, 1)? And (1, 28)?",
)
_SPLIT = (
    "Long prompt and short answer, short prompt and long answer: does your list have both, on both sides?",
    "An author thinks of some requests and not of others. Read once more what the four said they were thinking of.",
    "Which requests with a prompt of at most 14 tokens must be refused? Have you sent one?",
)


_OWN_COUNT = (
    "The door was the same both times. What was different in your code?",
    "You do not learn in which order the doors come, and the same door may come again. What counts are the replies of "
    "this door, to the requests of this call.",
    "Call your function twice with the same right door. Which name outside the function has changed in between?",
)
_UNASKED = (
    "How would a broken door give itself away?",
    "A limit is tested with exactly as much as fits, and with one more. Each door must be asked anew.",
)


def judge_probe(thing: Any) -> Verdict:
    if not callable(thing):
        said = f"you handed over {thing!r:.60}."
        return wrong("not-callable", said, 'Hand over the function itself: check("ex-6.2", is_broken).')
    verdicts: dict[str, tuple[bool, list[tuple[int, int]]]] = {}
    doors: dict[str, Door] = {_RIGHT: right_door, **BROKEN}
    for name in [*doors, *_another_order(list(doors))]:  # twice, so that nobody can go by the order
        probe = _Probe(doors[name])
        try:
            answer = thing(probe)
        except _TooMany:
            return wrong("too-many", f"you sent more than {MOST} requests to one door.", *_TOO_MANY)
        if getattr(answer, "dtype", None) is not None:  # numpy's True
            answer = bool(answer)
        if not isinstance(answer, bool):
            said = f"you gave back {answer!r:.60}."
            return wrong("not-yes-or-no", said, "Give True for a door that is broken, False for one that is not.")
        if name in verdicts and answer != verdicts[name][0]:
            return _once_so_once_so(name, answer, verdicts[name][1], probe.sent)
        verdicts.setdefault(name, (answer, probe.sent))
    if not all(sent for _found, sent in verdicts.values()) and any(found for found, _sent in verdicts.values()):
        unasked = next(name for name, (_found, sent) in verdicts.items() if not sent)
        said = f"you sent nothing to {_door(unasked)} and gave back {verdicts[unasked][0]}."
        return wrong("no-requests", said, *_UNASKED)
    accused, asked = verdicts.pop(_RIGHT)
    missed = [name for name, (found, _sent) in verdicts.items() if not found]
    sent = {name: requests for name, (_found, requests) in verdicts.items()}
    if accused:
        return _accuses(asked)
    if missed:
        return _misses(asked, missed, sent)
    used = max(len(requests) for requests in [asked, *sent.values()])
    more = "Fewer will not do." if used <= _FEWEST else f"It can be done with {_FEWEST}."
    return ok(f"Six requests at most, and you sent {used}. {more}")


def _another_order(names: list[str]) -> list[str]:
    """The doors in some other order, in which none stands where it stood."""
    mixed = list(names)
    while any(a == b for a, b in zip(mixed, names, strict=True)):
        random.Random().shuffle(mixed)
    return mixed


def _door(name: str) -> str:
    return "the right door" if name == _RIGHT else f"{name}'s door"


def _once_so_once_so(
    name: str, answer: bool, before: Sequence[tuple[int, int]], now: Sequence[tuple[int, int]]
) -> Verdict:
    """A door came twice and was not judged alike."""
    if not before or not now:
        said = f"{_door(name)} came twice. You gave back {not answer} and then {answer}, and sent it nothing"
        return wrong("no-requests", f"{said}{' once' if before or now else ''}.", *_UNASKED)
    said = f"{_door(name)} came twice, among others. You gave back {not answer} at first, and {answer} later."
    return wrong("own-count", said, *_OWN_COUNT)


def _listed(requests: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"({prompt}, {max_tokens})" for prompt, max_tokens in requests) or "nothing"


def _accuses(asked: Sequence[tuple[int, int]]) -> Verdict:
    if not asked:
        return wrong("no-requests", "you sent nothing and said that the right door is broken.", *_ACCUSED)
    replies = ", ".join(f"({p}, {n}) gives {right_door(p, n).status}" for p, n in asked)
    return wrong("accused", f"you said that the right door is broken. Of it you know: {replies}.", *_ACCUSED)


def _misses(asked: Sequence[tuple[int, int]], missed: Sequence[str], sent: dict[str, list[tuple[int, int]]]) -> Verdict:
    """What was sent to the right door is all that was sent to a door in which nothing was found, or more."""
    names = " and ".join(filter(None, [", ".join(missed[:-1]), missed[-1]]))
    said = f"you sent {_listed(asked)}. {names} {'was' if len(missed) == 1 else 'were'} not found."
    slots = [prompt + max_tokens - 1 for prompt, max_tokens in asked]
    if not asked:
        return wrong("no-requests", said, "How would a broken door give itself away?", *_FAR[1:])
    if not any(each in (POOL, POOL + 1) for each in slots):
        return wrong("far-out", f"{said} All five doors treat these alike.", *_FAR)
    shown = {name: [r for r in sent[name] if BROKEN[name](*r) != right_door(*r)] for name in missed}
    by_status = [name for name in missed if any(BROKEN[name](*r).status != right_door(*r).status for r in shown[name])]
    if by_status:
        name, request = by_status[0], shown[by_status[0]][0]
        status = BROKEN[name](*request).status
        said = f"{said} {name}'s door answered ({request[0]}, {request[1]}) with {status}, and you took it."
        return wrong("not-compared", said, "Which status must this request get, exactly?", *_ACCUSED[1:])
    if missed == ["Dan"] and shown["Dan"]:
        request = shown["Dan"][0]
        said = f"{said} It read {BROKEN['Dan'](*request).prompt_tokens} tokens of your {request[0]}, with status 200."
        return wrong("status-only", said, *_STATUS)
    if all(max_tokens == 1 for _prompt, max_tokens in asked):
        return wrong("no-max-tokens", f"{said} All that you asked for is one token.", *_NO_ANSWER)
    if all(each > POOL for each in slots) or all(each <= POOL for each in slots):
        side = "too much for the pool" if slots[0] > POOL else "small enough"
        return wrong("one-side", f"{said} All of yours are {side}.", *_ONE_SIDE)
    return wrong("missed", said, *_SPLIT)
