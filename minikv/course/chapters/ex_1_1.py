"""Exercise 1.1, the greedy loop without a cache: the reference answer, and what is said of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minikv.course.chapters.small import small_model
from minikv.course.declare import Verdict, ok, wrong


def greedy(scores: Callable[[list[int]], Any], ids: Sequence[int], n: int) -> list[int]:
    """The `n` tokens that follow `ids`, each time the one with the best score."""
    text = list(ids)
    for _ in range(n):
        text.append(int(scores(text)[-1].argmax()))
    return text[len(ids) :]


LAST_ONLY = (
    "The model has no memory of its own. In that round, what did it see?",
    "A model knows nothing but the ids of this one call. What it should continue has to be in them, all of it.",
    "Somebody shows you one word, `is`, and asks what comes next. What would you have to be shown in order to know?",
)
FIRST_ROW = (
    "There is one row for each position. What had the model read when it made the first of them?",
    "The row of a position is a guess about what follows that position. You want to know what follows the whole text.",
    "Take `The capital of France is` in the lesson. Find the row that guesses ` Paris`. Which of the five is it?",
)
WINDOW = (
    "Short texts went well. What does the model know of the first ids of this one?",
    LAST_ONLY[1],
    "A text of 300 words asks at its end for the name in its first line. You are shown the last 12. What can you say?",
)
OTHER_ROW = (
    "How many rows were there in that round? Which position does yours belong to, and what stands after it?",
    *FIRST_ROW[1:],
)
SCORE_FOR_ID = (
    "You know how good the best one is. Which token is it?",
    "The largest score is a number out of the row. Its place in the row is the id.",
    "Three scores: 0.2, 5.1, 1.7. Which is the largest, and at which place, counted from 0?",
)
OTHER_TEXT = (
    "Ids are not text. Where did your ids change on their way from one round to the next?",
    "One text can be cut into tokens in several ways. What the model chose are ids, so go on with these very ids.",
    "In the lesson, two lists of ids gave the same text. Turn one of them into text and back. Do you get it again?",
)
SAME_TEXT = (
    "What is different from one round to the next?",
    "Each new token becomes part of the text, and the next round starts from that longer text.",
    "Write down the ids that the model gets in rounds 1, 2 and 3. How many are there in each?",
)
ONE_CALL = (
    "When the model gave you these rows, which of your new tokens had it seen?",
    "The second new token depends on the first. So it can only be found once the first one is in the text.",
    "For n = 2: write down, in order, everything that has to happen before the second token can be chosen.",
)
AXIS = (
    "The scores have two axes, positions and tokens. Along which one did you look for the largest?",
    "First take the one row that you need. What is left has one number for each token, and you want the place of the "
    "largest.",
    "Draw 2 rows of 3 scores. Circle the largest of the second row. Which column is it in?",
)
_BEST = (
    "Which token has the best score in the row that you took?",
    "Greedy means: always the token with the largest score, nothing drawn by chance.",
)
_COUNT = (
    "Which part of your list is new?",
    "The caller has the prompt already. Give back what the model added, one id for each round.",
)
_TOO_FEW = (
    "After which round does your function end, and what does it hold by then?",
    "One round gives one new token, so `n` of them take `n` rounds. What each round found has to be given back.",
    "Play n = 2 by hand, line by line. When is the second token found, and is your function still running?",
)

_LONG = 20  # ids; a longer text cannot be shown in a line

# A prompt and how many tokens to add.
_CASES = (
    ((11, 48, 85, 122, 159), 6),
    ((3,), 3),
    ((5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16), 1),
    (tuple((29 * position + 7) % 251 for position in range(300)), 2),  # no window is as long
)


class _Found(Exception):
    """Carries a verdict out of the black box, through the learner's own code."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.said)
        self.verdict = verdict


def judge_greedy(thing: Any) -> Verdict:
    import torch

    changed = False
    with torch.no_grad():
        for prompt, n in _CASES:
            box = _BlackBox()
            mine = list(prompt)
            try:
                answer = thing(box, mine, n)
            except _Found as found:
                # an impossible id is chosen in the round before, so look there first
                return _path(box, list(prompt)) or found.verdict
            changed |= mine != list(prompt)
            verdict = _look(answer, box, list(prompt), n)
            if verdict is not None:
                return verdict
    if changed:
        return ok(
            "Greedy loop. The tokens are right. You appended to the list that I gave you, so my prompt grew as well. "
            "Whoever uses it next would be surprised: `list(ids)` makes one of your own."
        )
    return ok()


class _BlackBox:
    """`scores(ids)` of a small model, which remembers what it was asked."""

    def __init__(self) -> None:
        self.model = small_model(2)
        self.asked: list[list[int]] = []

    def __call__(self, ids: Any) -> Any:
        given = self._checked(ids)
        self.asked.append(given)
        return self.rows(given)

    def rows(self, ids: list[int]) -> Any:
        """Scores, one row for each position."""
        import torch

        return self.model.hf(torch.tensor([ids]), use_cache=False).logits[0]

    def _checked(self, ids: Any) -> list[int]:
        if ids is None:
            said = "you gave the model None as the text."
            _found("none-in", said, "Print the text after each line of your loop. Which line turns it into None?")
        if isinstance(ids, str):
            _found("text-in", f"you gave the model a text, {ids[:20]!r}.", "It takes a list of ids.", *OTHER_TEXT[1:])
        given = ids.reshape(-1).tolist() if hasattr(ids, "reshape") else [_plain(token) for token in ids]
        if not given:
            _found("no-text", "you gave the model an empty list.", *LAST_ONLY)
        for token in given:
            if isinstance(token, float):
                _found("score-for-id", f"you gave the model {token:.2f} as an id. That is a score.", *SCORE_FOR_ID)
            if not isinstance(token, int) or not 0 <= token < self.model.vocabulary:
                said = (
                    f"you gave the model {_shown(token)} as an id. There are {self.model.vocabulary} tokens, from 0 on."
                )
                _found("no-such-id", said, *AXIS)
        return given


def _found(kind: str, said: str, *hints: str) -> None:
    raise _Found(wrong(kind, said, *hints))


def _plain(token: Any) -> Any:
    return token.item() if hasattr(token, "item") else token


def _shown(thing: object) -> str:
    text = " ".join(repr(thing).split())
    return text if len(text) <= 60 else f"{text[:60]}..."


def _look(answer: Any, box: _BlackBox, prompt: list[int], n: int) -> Verdict | None:
    """What is wrong with one answer; None if nothing is."""
    right = greedy(box.rows, prompt, n)
    if answer is None:
        return wrong("no-return", "your function gave nothing back.", "Which ids does the caller want to have?")
    if isinstance(answer, str):
        return wrong(
            "text", f"you gave back text: {answer[:20]!r}.", "Give the ids. Turning them into text comes later."
        )
    if isinstance(answer, (int, float)) or not hasattr(answer, "__iter__"):
        return wrong(
            "not-a-list", f"you gave back {_shown(answer)}.", "Give a list of ids, also when there is only one."
        )
    given = answer.reshape(-1).tolist() if hasattr(answer, "reshape") else [_plain(token) for token in answer]
    if given == right:
        return None
    if not box.asked:
        return wrong("no-model", "you never asked the model.", "Where do the scores come from?")
    if verdict := _path(box, prompt):
        return verdict
    said = f"{len(prompt)} tokens, {n} more: you gave back {_shown(given)}."
    if given == prompt + right:
        return wrong("prompt-too", f"{said} The first {len(prompt)} of them are the prompt.", *_COUNT)
    if len(given) < n and given == right[: len(given)]:
        return wrong("too-few", f"{said} That is {len(given)}.", *_TOO_FEW)
    if len(given) < n and given == right[-len(given) :]:
        return wrong("too-few", f"{said} These are the last of them.", *_TOO_FEW)
    if n > 1 and len(box.asked) < n:
        return wrong("one-call", f"{said} You asked the model {_times(len(box.asked))}.", *ONE_CALL)
    if len(given) != n:
        return wrong("count", f"{said} That is {len(given)}.", *_COUNT)
    return wrong("not-best", f"{said} By the best scores it is {right}.", *_BEST)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _path(box: _BlackBox, prompt: list[int]) -> Verdict | None:
    """Follow what the model was shown, round by round; None if it was always the text so far."""
    shown = [prompt]
    new: list[int] = []
    for number, now in enumerate(box.asked, 1):
        before = shown[-1]
        if now == before:  # asked once more in the same round
            if box.asked[:number].count(now) > 2:
                said = f"you showed the model the same {len(now)} ids again and again."
                return wrong("same-text", said, *SAME_TEXT)
            continue
        if number == 1 or now[:-1] != before:
            return _elsewhere(box, number, now, before, prompt, new)
        if verdict := _choice(box, before, now[-1]):
            return verdict
        shown.append(now)
        new.append(now[-1])
    return None


def _elsewhere(
    box: _BlackBox, number: int, now: list[int], before: list[int], prompt: list[int], new: list[int]
) -> Verdict:
    said = f"round {number}: you showed the model {_shown(now)}."
    so_far = f"The text so far {'is' if number == 1 else 'was'} {_shown(before)}"
    if len(now) == 1:
        return wrong("last-only", f"{said} {so_far}.", *LAST_ONLY)
    if len(now) < len(prompt) and now[:-1] == new:
        return wrong("no-prompt", f"{said} These are the new tokens alone.", *LAST_ONLY)
    if now[1:] == before:
        said = f"{said} The new token stands in front."
        return wrong("front", said, "In which direction does a text grow?", *SAME_TEXT[1:])
    if len(now) <= len(before) and now[:-1] == before[len(before) - len(now) + 1 :]:
        return wrong("cut", f"{said} The oldest token is gone: {so_far[0].lower()}{so_far[1:]}.", *LAST_ONLY)
    if number == 1 and now == before[-len(now) :]:
        if len(now) > len(before) // 2 or len(before) <= _LONG:
            return wrong("cut", f"{said} Its beginning is gone: {so_far[0].lower()}{so_far[1:]}.", *LAST_ONLY)
        said = f"round 1: the text has {len(before)} ids, and you showed the model the last {len(now)} of them."
        return wrong("cut", said, *WINDOW)
    if number == 1:
        return wrong("other-text", f"{said} {so_far}.", *OTHER_TEXT)
    differs = next((i for i, (a, b) in enumerate(zip(now, before, strict=False)) if a != b), min(len(now), len(before)))
    said = f"round {number}: the text that you showed the model is not the one before with a token added."
    return wrong("other-text", f"{said} It differs from position {differs} on.", *OTHER_TEXT)


def _choice(box: _BlackBox, before: list[int], chosen: int) -> Verdict | None:
    """What is wrong with the token that was added to `before`; None if it is the best."""
    rows = box.rows(before)
    best = rows.argmax(dim=-1).tolist()
    if chosen == best[-1]:
        return None
    said = f"after {len(before)} ids you added token {chosen}."
    if chosen == best[0]:
        return wrong("first-row", f"{said} It is the best one of the first row.", *FIRST_ROW)
    if chosen in best:
        said = f"{said} It is the best one of row {best.index(chosen)}, counted from 0."
        return wrong("other-row", said, *OTHER_ROW)
    if chosen in (int(rows.argmax()), *rows.argmax(dim=0)[[0, -1]].tolist()):
        return wrong("axis", f"{said} You looked for the largest over more than one row.", *AXIS)
    if chosen == int(rows[-1].argmin()):
        return wrong("not-best", f"{said} It has the smallest score of all.", *_BEST)
    if chosen == int(rows[-1].max()):
        said = f"{said} The largest score of the last row is {float(rows[-1].max()):.2f}."
        return wrong("score-for-id", said, *SCORE_FOR_ID)
    place = int((rows[-1] > rows[-1][chosen]).sum())
    better = "one other has" if place == 1 else f"{place} others have"
    return wrong("not-best", f"{said} In the last row, {better} a better score.", *_BEST)
