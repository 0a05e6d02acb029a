"""Exercise 6.1, the door: the reference answer, and what is said of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import FrozenInstanceError, dataclass
from itertools import chain
from typing import Any

from minikv.course.chapters import hints_6_1 as hints
from minikv.course.declare import Verdict, ok, wrong
from minikv.course.seats.door import WORDS, Request, Server, read_answer, what_changed
from minikv.errors import MinikvError


def admit(request: Request, server: Server) -> str | tuple[str, str]:
    """Serve what fits whole now, let wait what would fit if all were free, refuse the rest and say why."""
    tokens = len(request.prompt) + request.max_tokens
    slots = tokens - 1  # the last token is never written
    if tokens > server.context:
        return "refuse", f"{tokens} positions of context are needed, there are {server.context}"
    if slots > server.pool:
        return "refuse", f"{slots} slots are needed, there are {server.pool}"
    return "serve" if slots <= server.free else "wait"


@dataclass(frozen=True)
class _Case:
    prompt: int
    max_tokens: int
    server: Server

    @property
    def slots(self) -> int:
        return self.prompt + self.max_tokens - 1

    @property
    def tokens(self) -> int:
        return self.prompt + self.max_tokens

    @property
    def want(self) -> str:
        if self.tokens > self.server.context or self.slots > self.server.pool:
            return "refuse"
        return "serve" if self.slots <= self.server.free else "wait"

    def request(self) -> Request:
        return Request([(7 * i + 11) % 23 for i in range(self.prompt)], self.max_tokens)

    def __str__(self) -> str:
        free, pool = self.server.free, self.server.pool
        now = "all free" if free == pool else f"{free} of them free"
        given = "1 token" if self.prompt == 1 else f"{self.prompt} tokens"
        return f"{given} in, {self.max_tokens} out, {pool} slots, {now}, context {self.server.context}"


# Free, pool, context. In the third the context is the smaller limit by one token, in the fourth by far.
_SERVERS = tuple(
    Server(*sizes)
    for sizes in (
        (28, 28, 512), (8, 28, 512), (28, 28, 28), (64, 64, 32), (20, 64, 32), (112, 112, 4096), (0, 112, 4096),
        (45, 112, 113), (1000, 1200, 2000),
    )
)  # fmt: skip


def _cases() -> Iterator[_Case]:
    for server in _SERVERS:
        limits = (server.free, server.pool, server.context - 1)
        wanted = {slots + off for slots in limits for off in (-9, -1, 0, 1, 2, 9)} | {1, 5, 13, server.context + 90}
        for slots in sorted(wanted):
            for max_tokens in (1, 2, 4, 8, 24, 300):
                if slots >= max_tokens:
                    yield _Case(slots - max_tokens + 1, max_tokens, server)


_REFUSALS = (ValueError, RuntimeError, MemoryError, OverflowError, MinikvError)  # what some raise to say no
Found = tuple[_Case, str]  # a case, and what the learner's door says to it


def judge_admit(thing: Any) -> Verdict:
    if not callable(thing):
        return wrong(
            "not-callable", f"you handed over {thing!r:.60}.", 'Hand over the function: check("ex-6.1", admit).'
        )
    got: list[Found] = []
    reasons: list[str] = []
    for case in _cases():
        looked = _asked(thing, case)
        if isinstance(looked, Verdict):
            return looked
        got.append((case, looked[0]))
        reasons += [looked[1]] if looked[0] == "refuse" else []
    for case, word in reversed(got):
        again = _asked(thing, case)
        if isinstance(again, Verdict):
            return again
        if again[0] != word:
            said = f"{case}: first you say {word}, and when asked again {again[0]}."
            return wrong("remembers", said, *hints.REMEMBERS)
    found = [(case, word) for case, word in got if word != case.want]
    if found:
        return _why(found)
    if not all(reasons):
        return ok(_NO_REASON)
    return ok() if any(letter.isdigit() for reason in reasons for letter in reason) else ok(_NO_NUMBER)


_NO_REASON = (
    "The door. Serve, wait and refuse, each where it belongs. Your refusals carry no reason. Would you know what to "
    "change, as the caller?"
)
_NO_NUMBER = (
    "The door. Serve, wait and refuse, each where it belongs. Your reason names no number. Would you know how much is "
    "too much, as the caller?"
)


def _asked(thing: Any, case: _Case) -> tuple[str, str] | Verdict:
    """What the door says to a case, with its reason; or what is to be said of a door that changes things."""
    shown = case.request()
    try:
        given = thing(shown, case.server)
    except FrozenInstanceError as error:
        said = f"your door wrote to the server's record ({error})."
        return wrong("edits-server", said, *hints.EDITS_SERVER)
    except _REFUSALS as error:
        if case.want != "refuse" or isinstance(error, (NotImplementedError, RecursionError)):
            raise
        said = f"{case}: you raised {type(error).__name__}. A door gives its answer back, this one too."
        return wrong("raises", said, *hints.RAISES)
    changed = what_changed(shown, case.request())
    answer = read_answer(given)
    if changed:
        return _edited(case, shown, changed, "nothing" if answer is None else answer.word)
    if given is None:
        return wrong("no-answer", f"{case}: you gave nothing back.", *hints.NO_ANSWER)
    if answer is None and isinstance(given, str) and given.startswith(WORDS):
        return wrong("reason-in-word", f"{case}: you gave back {given!r:.60}.", *hints.REASON)
    if answer is None:
        words = [isinstance(each, str) and each in WORDS for each in given] if isinstance(given, (tuple, list)) else []
        kind, hint = "not-a-word", hints.NOT_A_WORD
        if words == [True, False]:
            kind, hint = "reason-no-text", hints.REASON_NO_TEXT
        elif words == [False, True]:
            kind, hint = "reason-first", hints.FIRST
        return wrong(kind, f"{case}: you gave back {given!r:.60}.", *hint)
    return answer.word, answer.reason


def _edited(case: _Case, shown: Request, changed: str, word: str) -> Verdict:
    if changed == "max_tokens":
        said = f"{case}: you changed max_tokens from {case.max_tokens} to {shown.max_tokens!r:.20}, and said {word}."
        return wrong("capped", f"{said} The caller asked for {case.max_tokens}.", *hints.CAPPED)
    try:
        length: object = len(shown.prompt)
    except TypeError:
        length = "no"
    if case.want == "refuse" and word in ("serve", "wait"):
        said = f"{case}: you made a prompt of {length} tokens of it and said {word}."
        return wrong("cut", f"{said} The client pays for an answer to another question.", *hints.CUT)
    said = f"{case}: you said {word}, and left a prompt that is not what came; it has {length} tokens."
    told = "You changed the caller's prompt: whoever measures it next measures your version."
    return wrong("edited", f"{said} {told}", *hints.EDITED)


# What is looked for, in this order: what is far off before what is off by one.
Rule = Callable[[_Case, str], bool]


def _why(found: list[Found]) -> Verdict:
    in_ = ("serve", "wait")
    rules: Iterable[tuple[str, Rule, str, tuple[str, ...]]] = chain(_far_rules(found), _border_rules())
    for kind, applies, remark, three in rules:
        for case, word in sorted(found, key=lambda each: each[0].max_tokens == 1):  # they teach least
            if applies(case, word):
                return wrong(kind, f"{case}: you say {word}. {remark.format(**_numbers(case))}", *three)
    case, word = found[0]
    remark = "It does not fit." if word in in_ else "It fits."
    return wrong("other", f"{case}: you say {word}. {remark}", *hints.OTHER)


def _numbers(case: _Case) -> dict[str, int]:
    server = case.server
    return {
        "slots": case.slots,
        "tokens": case.tokens,
        "prompt": case.prompt,
        "out": case.max_tokens,
        "pool": server.pool,
        "free": server.free,
        "context": server.context,
        "missing": case.slots - server.free,
    }


def _far_rules(found: list[Found]) -> list[tuple[str, Rule, str, tuple[str, ...]]]:
    never = any(c.want == "refuse" and c.prompt > max(c.server.context, c.server.pool) + 9 for c, _word in found)

    def too_long(case: _Case) -> bool:  # by its prompt alone, for the pool
        return case.prompt > case.server.pool + 2

    def past_context(case: _Case) -> bool:  # which is the smaller limit here
        return case.prompt > case.server.context + 2 and case.slots < case.server.pool

    def by_answer(case: _Case) -> bool:
        server = case.server
        return (
            case.prompt <= min(server.pool, server.context)
            and (case.slots > server.pool + 1 or case.tokens > server.context + 1)
        )  # fmt: skip

    def away(case: _Case) -> bool:  # from the limits that last
        return case.slots < case.server.pool and case.tokens < case.server.context

    return [
        ("refused-with-room", lambda c, w: c.want == "serve" and w == "refuse" and away(c)
         and c.slots < c.server.free, "It needs {slots} slots, and {free} are free.", hints.WITH_ROOM),
        ("refused-for-now", lambda c, w: c.want == "wait" and w == "refuse" and away(c),
         "It would fit as soon as others are through.", hints.FOR_NOW),
        ("queues-forever", lambda c, w: never and too_long(c) and w == "wait",
         "It will never fit, and everybody behind it waits for ever.", hints.FOR_EVER),
        ("no-refusal", lambda c, w: never and too_long(c) and w == "serve",
         "There are not that many slots in the building.", hints.FOR_EVER),
        ("pool-forgotten", lambda c, w: too_long(c) and w != "refuse",
         "The context allows it, and {pool} slots cannot hold {slots}.", hints.POOL),
        ("context-forgotten", lambda c, w: past_context(c) and w != "refuse",
         "There is room for it, but {tokens} positions are more than the context has.", hints.CONTEXT),
        ("max-tokens-forgotten", lambda c, w: c.want == "refuse" and by_answer(c) and w != "refuse",
         "The prompt fits. Where does the answer go?", hints.ANSWER),
        ("no-room", lambda c, w: c.want == "wait" and w == "serve" and c.prompt > c.server.free + 1,
         "It needs {slots} slots, and {free} are free.", hints.NO_ROOM),
        ("served-on-the-prompt", lambda c, w: c.want == "wait" and w == "serve" and c.prompt <= c.server.free
         and c.slots > c.server.free + 1,
         "The prompt has room now. In the middle of the answer {missing} slots will be missing.", hints.HALF),
        ("waits-with-room", lambda c, w: c.want == "serve" and w == "wait" and c.slots < c.server.free,
         "It needs {slots} slots, and {free} are free.", hints.WITH_ROOM),
    ]  # fmt: skip


def _border_rules() -> list[tuple[str, Rule, str, tuple[str, ...]]]:
    return [
        ("last-token-counted", lambda c, w: c.want != "refuse" and w == "refuse" and c.slots == c.server.pool
         and c.tokens < c.server.context,
         "One slot would stay empty. Which token did you keep it for?", hints.LAST_TOKEN),
        ("one-too-many", lambda c, w: c.want == "refuse" and w != "refuse" and c.slots == c.server.pool + 1
         and c.tokens <= c.server.context, "One length gets through that does not fit: this one.", hints.ONE_TOO_MANY),
        ("context-one-too-few", lambda c, w: c.want != "refuse" and w == "refuse" and c.tokens == c.server.context,
         "It takes {tokens} positions, and there are {context}.", hints.CONTEXT_BORDER),
        ("context-one-too-many", lambda c, w: c.want == "refuse" and w != "refuse"
         and c.tokens == c.server.context + 1,
         "It takes {tokens} positions, and the context has {context}. One length gets through.", hints.CONTEXT_BORDER),
        ("free-one-too-few", lambda c, w: c.want == "serve" and w == "wait" and c.slots == c.server.free,
         "It needs {slots} slots, and {free} are free. What is it waiting for?", hints.FREE_BORDER),
        ("free-one-too-many", lambda c, w: c.want == "wait" and w == "serve" and c.slots == c.server.free + 1,
         "It needs {slots} slots, and {free} are free. Its last step finds none.", hints.FREE_BORDER),
    ]  # fmt: skip
