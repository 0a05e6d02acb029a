"""Exercise 10.2, tests in two layers: the reference answer, and what is said of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minikv.course.chapters import hints_10_2 as hints
from minikv.course.chapters.parts_10 import Parts
from minikv.course.chapters.stand_10 import ANSWER, PREFILL, TEXTS, WIRES, Sent, Stand, Start, canaries
from minikv.course.declare import Verdict, ok, wrong

HARMFUL = {
    "over-length": "abcdefgh",
    "over-length, read along": "abcdefg",
    "over-length, with nonsense": "abcdeh",
    "short-transfer": "efg",
    "late-write": "g",
    "lost-abort": "eh",
    "duplicate": "eg",
}
"""For each scenario that harms, defects that harm together and of which none may be missing."""
DEFECTS = "abcdefgh"
NEEDS = {
    "short-transfer": "loses the last page",
    "late-write": "is late",
    "lost-abort": "gives up",
    "duplicate": "delivers twice",
}


def stand_of(name: str) -> Stand:
    """A stand with one of the harmful sets, on which nothing happens but what the set needs."""
    return Stand(HARMFUL[name], NEEDS.get(name, "works"))


class Suite:
    """Content from outside, and each part asked alone."""

    def content(self, start: Start) -> bool:
        """True if a client got what is not its own, or nothing."""
        theirs = set().union(*(canaries(name) for name in TEXTS))
        for wire in WIRES:
            for tokens in (18, 31):
                for stream in (False, True):
                    server = start(wire=wire)
                    server.visit(*TEXTS)
                    answer = server.ask(tokens, stream)
                    if answer.status is None or theirs & set(answer.words):
                        return True
                    if tokens + ANSWER - 1 > PREFILL and answer.status == 200:
                        return True
        return False

    def invariants(self, parts: Parts) -> bool:
        """True if a part breaks a rule that its neighbours hide."""
        return (
            parts.door(31, 8)
            or parts.refuse(18) != (18, False)
            or parts.enter(refused=True)
            or parts.room(copy=1, recorded=31)
            or parts.take(expected=18, promised=18, pages=4)
            or parts.readable(expected=18, written=4) > 4
            or parts.write(lent_on=True)
            or parts.status(prefill=400, decode=200) == 200
        )


def judge_suite(thing: Any) -> Verdict:
    if not callable(thing):
        return wrong("not-a-class", f"you handed over {thing!r:.60}.", 'Hand over the class: check("ex-10.2", Suite).')
    for name in ("content", "invariants"):
        if not callable(getattr(thing, name, None)):
            return wrong("no-layer", f"there is no `{name}` in your class.", *hints.TWO_LAYERS)
    right = Stand(None)
    if thing().content(right.start):
        return _false_alarm(right.sent)
    if thing().invariants(Parts()):
        return wrong(
            "red-invariant",
            "your invariants turn red on the right engine. Your score is 0.",
            *hints.RED_INVARIANT,
        )
    stands = {name: stand_of(name) for name in HARMFUL}
    caught = [name for name, stand in stands.items() if thing().content(stand.start)]
    asked = {letter: Parts(letter) for letter in DEFECTS}
    found = "".join(letter for letter, parts in asked.items() if thing().invariants(parts))
    score = f"{len(caught)} of {len(HARMFUL)} harmful sets, {len(found)} of {len(DEFECTS)} single defects"
    missed = [name for name in HARMFUL if name not in caught]
    if missed:
        loud = [name for name in missed if any(each.status == 200 for each, _words in _leaks(stands[name].sent))]
        first = (loud or missed)[0]  # a leak with status 200 says more of a test than one that ended in an error
        kind, said, more = _why_missed(first, stands[first].sent)
        return wrong(kind, f"{score}. {said}", *more)
    if len(found) < len(DEFECTS):
        letter = next(letter for letter in DEFECTS if letter not in found)
        method, words, more = hints.PARTS[letter]
        said = f"this one passed: {words}"
        how = "You have asked that part, and took its answer for right." if method in asked[letter].asked else ""
        return wrong(f"missed-{letter}", " ".join([f"{score}.", said, how]).strip(), *more)
    return ok(f"Tests in two layers. {score}, and the right engine is green.")


# The right engine turned red


def _false_alarm(sent: list[Sent]) -> Verdict:
    """The last request is the one that made the test turn red."""
    if not sent:
        return wrong(
            "red-unasked", "your content test is red before it has asked anything. Your score is 0.", *hints.ASK
        )
    last = sent[-1]
    what = f"the right engine turned red, so your score is 0. It was asked for {last.tokens} tokens"
    if last.status != 200:
        said = f"{what} and {ANSWER} of answer, which need {last.tokens + ANSWER - 1} slots. It said {last.status}."
        return wrong("refusal-is-right", said, *hints.REFUSAL)
    own = [word for word in last.words if any(word in TEXTS[name].split() for name in TEXTS)]
    said = f'{what} and said "{last.said}".'
    if own:
        return wrong("shared-words", f"{said} {own[0]!r} stands in a stranger's text, too.", *hints.SHARED)
    return wrong("red-answer", said, *hints.SHARED)


# A harmful set stayed green


def _leaks(sent: list[Sent]) -> Iterator[tuple[Sent, list[str]]]:
    for each in sent:
        words = [w for w in each.words if any(w in canaries(name) for name in TEXTS)]
        if words:
            yield each, list(dict.fromkeys(words))


def _why_missed(name: str, sent: list[Sent]) -> tuple[str, str, tuple[str, ...]]:
    """What the test did with a server on which it should have turned red: kind, words, hints."""
    about = f"you missed {name}."
    if not sent:
        return "asks-nothing", f"{about} You have not asked the server anything.", hints.ASK
    blind = not any(each.answer.looked_into for each in sent)
    for each, words in _leaks(sent):
        said = f'{about} One answer was "{each.said}", with status {each.status}: {len(words)} '
        noun = "word" if len(words) == 1 else "words"
        said += f"{noun} that only a stranger could know ({', '.join(words)}), and you said clean."
        if blind:
            return "status-only", said, hints.STATUS
        if each.status != 200:
            return "words-then-error", said, hints.WORDS_THEN_ERROR
        return "exact-canary", said, hints.CANARY
    if not any(each.visits for each in sent):
        return "fresh-server", f"{about} Nobody was on your server before you asked.", hints.FRESH
    if name.startswith("over-length"):
        return _why_missed_length(name, about, sent)
    if not any(each.wire == NEEDS[name] for each in sent):
        wires = ", ".join(sorted({each.wire for each in sent}))
        return "quiet-wire", f"{about} On your stand the wire only ever {wires}.", hints.WIRE
    if any(each.status is None for each in sent):
        return "no-answer", f"{about} A client got no answer at all, and you said clean.", hints.NO_ANSWER
    return "wire-other", f"{about} With the wires and lengths that you tried, nothing came out.", hints.WIRE


def _why_missed_length(name: str, about: str, sent: list[Sent]) -> tuple[str, str, tuple[str, ...]]:
    if all(each.prefill >= each.decode for each in sent):
        pools = f"{sent[0].prefill} and {sent[0].decode}"
        return "equal-pools", f"{about} Your pools have {pools} slots.", hints.EQUAL_POOLS
    plain = [each for each in sent if each.wire == "works"] or sent
    lengths = sorted({each.tokens for each in plain})
    inside = [each for each in plain if each.prefill < each.tokens + ANSWER - 1 and each.tokens < each.decode - 6]
    if not inside:
        far = lengths[-1] >= plain[0].decode - 6
        listed = ", ".join(map(str, lengths[:8]))
        said = f"{about} You asked for {listed} tokens, with pools of {plain[0].prefill} and {plain[0].decode} slots."
        return ("far-out", said, hints.FAR) if far else ("only-ordinary", said, hints.ORDINARY)
    if name.endswith("read along") and not any(each.stream for each in inside):
        said = f"{about} You looked at answers when they had ended. This client read along."
        return "end-of-stream", said, hints.STREAM
    served = next((each for each in inside if each.status == 200), None)
    if served is not None:
        said = (
            f"{about} {served.tokens} tokens do not fit the {served.prefill} slots of one pool, and the answer was "
            f'"{served.said}", with status 200.'
        )
        return "nonsense", said, hints.NONSENSE
    longest = max(each.tokens for each in inside)
    said = f"{about} {longest} tokens reach into pages in which your visitors had left nothing. Who was there: "
    return "short-past", said + f"{', '.join(inside[0].visits)}.", hints.SHORT_PAST
