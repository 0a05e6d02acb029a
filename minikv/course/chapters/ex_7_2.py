"""Exercise 7.2, deceive three receivers: the receivers, the reference answer, and what is said of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from minikv.course.chapters.ex_7_1 import Found, found, receive
from minikv.course.chapters.handover import DecodeSide, Handoff, digest_of
from minikv.course.chapters.trial_7 import REQUEST, Outcome, Trial
from minikv.course.declare import Verdict, ok, wrong

Receiver = Callable[[DecodeSide, int, Handoff], None]


def deceive(honest: Handoff) -> tuple[list[Handoff], list[Handoff], list[Handoff]]:
    """For each of the three receivers, what to deliver to it, in this order."""
    few = replace(honest, num_tokens=honest.num_tokens - 1)
    few = replace(few, digest=digest_of(few))
    little = replace(honest, keys=[k[:1] for k in honest.keys], values=[v[:1] for v in honest.values])
    little = replace(little, digest=digest_of(little))
    return [few], [little], [honest, honest]


# The receivers. Each asks for all but one thing.


def counts_pages(node: DecodeSide, request: int, handoff: Handoff) -> None:
    """Takes what names the request, has the digest it should have, and as many pages in each layer as are reserved."""
    _first_time(node, request)
    _named_and_undamaged(node, request, handoff)
    _pages_there(node, request, handoff)
    _take(node, request, handoff)


def reads_the_promise(node: DecodeSide, request: int, handoff: Handoff) -> None:
    """Takes what names the request, has the digest it should have, and promises as many tokens as are expected."""
    _first_time(node, request)
    _named_and_undamaged(node, request, handoff)
    _promise_right(node, request, handoff)
    _take(node, request, handoff)


def forgets(node: DecodeSide, request: int, handoff: Handoff) -> None:
    """Asks for tokens, pages and digest. Keeps no note of what it took."""
    _named_and_undamaged(node, request, handoff)
    _promise_right(node, request, handoff)
    _pages_there(node, request, handoff)
    _take(node, request, handoff)


RECEIVERS: dict[str, Receiver] = {
    "counts_pages": counts_pages,
    "reads_the_promise": reads_the_promise,
    "forgets": forgets,
}


class Refused(Exception):
    """A given receiver refuses a handoff."""


def _refuse(node: DecodeSide, request: int, why: str) -> None:
    node.give_back(request)
    raise Refused(why)


def _first_time(node: DecodeSide, request: int) -> None:
    if request in node.accepted:
        raise Refused("I have taken one for this request")


def _named_and_undamaged(node: DecodeSide, request: int, handoff: Handoff) -> None:
    if request not in node.reserved:
        raise Refused("no pages are reserved for it here")
    if handoff.request != request:
        _refuse(node, request, "it is for another request")
    if handoff.digest != digest_of(handoff):
        _refuse(node, request, "its digest does not match")


def _promise_right(node: DecodeSide, request: int, handoff: Handoff) -> None:
    if handoff.num_tokens != (expected := node.expected[request]):
        _refuse(node, request, f"{expected} tokens were expected, {handoff.num_tokens} are promised")


def _pages_there(node: DecodeSide, request: int, handoff: Handoff) -> None:
    reserved = len(node.reserved[request])
    if len(handoff.keys) != len(node.keys) or len(handoff.values) != len(node.values):
        _refuse(node, request, "a layer is missing")
    for tensor in (*handoff.keys, *handoff.values):
        if len(tensor) != reserved:
            _refuse(node, request, f"{reserved} pages are reserved, {len(tensor)} came in one of the layers")


def _take(node: DecodeSide, request: int, handoff: Handoff) -> None:
    for own, came in ((node.keys, handoff.keys), (node.values, handoff.values)):
        for mine, theirs in zip(own, came, strict=False):
            for page, content in zip(node.reserved[request], theirs, strict=False):
                mine[page] = content
    node.accepted.add(request)
    node.send(request, handoff.first_token)


# Trying and judging


def sample() -> Handoff:
    """A complete handoff of 30 tokens, with 8 pages of 4 slots in each of 3 layers."""
    return Trial(30).complete


def tried(receiver: Receiver, *handoffs: Handoff) -> list[str]:
    """Deliver handoffs to a receiver that waits for `sample()`, one after the other: "taken", or why not."""
    outcomes = _deliveries(receiver, Trial(30), handoffs)
    return ["taken" if outcome.error is None else f"refused: {_words(outcome.error)}" for outcome in outcomes]


def _words(error: Exception) -> str:
    """What a receiver says. The text of a KeyError is a bare key, and some have no text."""
    plain = isinstance(error, KeyError) or not str(error)
    return f"{type(error).__name__} {error}".strip() if plain else str(error)


def _deliveries(receiver: Receiver, trial: Trial, handoffs: Iterable[Handoff]) -> list[Outcome]:
    return [trial.deliver(receiver, handoff) for handoff in handoffs]


_HONEST = (
    "What would you object to in this handoff, if you were the receiver?",
    "It must lack something that every receiver should ask for, and this one does not ask for it. Put what it asks for "
    "beside what you asked for in exercise 7.1.",
    "Deliver it to your own receiver: `tried(receive, ...)`. As long as that says taken, nobody is deceived.",
)
_UNSEEN = (
    "What does a receiver know before anything comes? Does that speak against what you changed?",
    "What is in the pages, and which token comes first, only the sender knows. But how much must come, and how often, "
    "a receiver can know. Change that.",
    "Write down what a receiver can count or compare. Which of it does this receiver leave out?",
)
_REFUSED = (
    "It says what it did not like. Did you mean to change that?",
    "Leave everything as it is that this receiver looks at. If you change a handoff, its digest no longer fits: who "
    "can work out a new one?",
    "Change one thing at a time and look at `tried(receiver, ...)` after each.",
)
_HONEST_FIRST = (
    "The honest one needs no help from you. What did this receiver say to the other?",
    "Each receiver waits for one handoff. Whoever keeps a note of it takes no second one, and whoever keeps none asks "
    "for all the rest. What do you deliver first?",
    "Deliver each of your handoffs alone: `tried(receiver, one)`. Which of them is taken and should not be?",
)
_ONE_SIZE = (
    "With the handoff of `sample()` it went well. Which number in your code is right for that one alone?",
    "A handoff says how many tokens it has, and `len` says how many pages. Work out from these what you change.",
    "One handoff has 30 tokens and one has 29. For each, which numbers of tokens would be a lie? And in your code?",
)
_SHAPE = (
    "Give three things back, one for each receiver: a list of the handoffs to deliver, in their order.",
    "A list may hold one handoff or more: `return [a], [b], [c, d]`.",
)
_KEEP = (
    "Where do you write into a tensor that is not yours?",
    "dataclasses.replace makes a new record. The tensors in it are still the old ones, unless you copy or slice them.",
)


_SIZES = ((30, 4), (29, 4), (100, 16))
_MOST = 40  # handoffs to one receiver that are delivered


def judge_deceive(thing: Any) -> Verdict:
    import torch

    if not callable(thing):
        hint = 'Hand over the function: check("ex-7.2", deceive).'
        return wrong("not-a-function", "you handed over no function.", hint)
    try:
        with torch.no_grad():
            for expected, size in _SIZES:
                _judge_one(thing, expected, size, first=(expected, size) == _SIZES[0])
    except Found as end:
        return end.verdict
    return ok()


def _judge_one(thing: Any, expected: int, size: int, first: bool) -> None:
    honest = Trial(expected, size).complete
    answer = _lists(thing(honest))
    if not _same(honest, Trial(expected, size).complete):
        found("changed-honest", "you changed the honest handoff itself, and a second look at it was different.", *_KEEP)
    for number, ((name, receiver), handoffs) in enumerate(zip(RECEIVERS.items(), answer, strict=True), 1):
        which = f"receiver {number}, {name}"
        if not handoffs:
            found("nothing", f"{which}: you delivered nothing.", *_SHAPE)
        given = _deliveries(receiver, Trial(expected, size), handoffs)
        right = _deliveries(receive, Trial(expected, size), handoffs)
        taken = [outcome.error is None for outcome in given]
        if any(took and strict.error is not None for took, strict in zip(taken, right, strict=True)):
            continue
        size_said = "" if first else f" (This time the honest one has {expected} tokens in pages of {size}.)"
        kind, told, more = _nobody_deceived(honest, handoffs, given)
        if not first:
            kind, more = "one-size", _ONE_SIZE
        found(kind, f"{which}, {told}{size_said}", *more)


def _nobody_deceived(
    honest: Handoff, handoffs: list[Handoff], given: list[Outcome]
) -> tuple[str, str, tuple[str, str, str]]:
    """Kind, words and hints for handoffs of which a receiver took none that a right one refuses."""
    why = next((outcome.error for outcome in given if outcome.error is not None), None)
    words = f"refused it: {why}." if isinstance(why, Refused) else f"could not read it: {why!r}."
    took = [one for one, outcome in zip(handoffs, given, strict=True) if outcome.error is None]
    if not took:
        return "refused", words, _REFUSED
    if _differ(honest, took):
        lie = "What you changed, nobody can see: the digest fits, and it is no signature."
        return "unseen", f"took it, and so would a right one. {lie}", _UNSEEN
    if _differ(honest, handoffs):
        return "honest-first", f"took the honest one. As for the other, it {words}", _HONEST_FIRST
    return "honest", "took it, and so would a right one. What you delivered is honest.", _HONEST


def _lists(answer: Any) -> list[list[Handoff]]:
    if isinstance(answer, Mapping):
        answer = list(answer.values())
    if isinstance(answer, Handoff) or not isinstance(answer, Iterable) or isinstance(answer, str):
        found("shape", f"you gave back one {type(answer).__name__}.", *_SHAPE)
    parts = [[part] if isinstance(part, Handoff) else part for part in islice(answer, _MOST)]
    if len(parts) != len(RECEIVERS):
        found("shape", f"there are {len(RECEIVERS)} receivers, and you gave back {len(parts)} things.", *_SHAPE)
    lists = []
    for part in parts:
        handoffs = list(islice(part, _MOST)) if isinstance(part, Iterable) and not isinstance(part, str) else [part]
        if other := next((one for one in handoffs if not isinstance(one, Handoff)), None):
            found("shape", f"one of the things to deliver is no Handoff but {type(other).__name__}.", *_SHAPE)
        lists.append(handoffs)
    return lists


def _same(one: Handoff, other: Handoff) -> bool:
    pairs = zip((*one.keys, *one.values), (*other.keys, *other.values), strict=False)
    return len(one.keys) == len(other.keys) and all(a.equal(b) for a, b in pairs) and one.digest == other.digest


def _differ(honest: Handoff, handoffs: list[Handoff]) -> bool:
    return any(one.digest != honest.digest for one in handoffs)


__all__ = ["RECEIVERS", "REQUEST", "counts_pages", "deceive", "forgets", "judge_deceive", "reads_the_promise", "sample"]
