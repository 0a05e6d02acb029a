"""Exercise 1.2, what changes: the reference answer, and what is said of others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from minikv.course.chapters.gentle import gentle_model
from minikv.course.declare import Verdict, ok, wrong

_MOST = 1000  # layers, and positions of a layer, that are read
MOVED = 1e-4  # differences up to this are rounding

Layers = list[Any]  # one tensor for each layer, [positions, ...]
Places = list[set[int]]  # for each layer, positions


def changed(look: Callable[[list[int]], Layers], ids: Sequence[int], extra: int, where: int) -> list[list[int]]:
    """For each layer, the old positions whose numbers change when `extra` is put in at `where`."""
    longer = [*ids[:where], extra, *ids[where:]]
    now_at = [position + (position >= where) for position in range(len(ids))]
    result = []
    for old, new in zip(look(list(ids)), look(longer), strict=True):
        moved = (new[now_at] - old).abs().flatten(1).amax(dim=1) > MOVED
        result.append(moved.nonzero().flatten().tolist())
    return result


SHIFTED = (
    "Which old token stands at position 1, once another one is in front? With whom did you compare it?",
    "A token that moved must be found at its new position, and be compared with itself.",
    "Old text: a b c. A token x at position 1: a x b c. Draw a line from each old letter to the same letter below.",
)
ALWAYS_SHIFTED = (
    "Which tokens move when one is put into the middle, and which stay where they are?",
    "Only what stands at `where` or after it moves. What stands before it keeps its position.",
    SHIFTED[2],
)
_BOUNDARY = (
    "One is put in at position 5. Where does the token stand now that stood at 5 before?",
    ALWAYS_SHIFTED[1],
    SHIFTED[2],
)
ONE_LAYER = (
    "Is what is true of layer 0 true of the others?",
    "Each layer has keys and values of its own, made from what the layer before gave it. So each is a new question.",
    "Print, for each layer, the largest difference at position 0 after a token was put in front.",
)
NEW_TOO = (
    "How many old tokens are there, and which of your positions is none of theirs?",
    "The new token has no earlier self to be compared with. The question is about the old ones alone.",
    SHIFTED[2],
)
NUMBERING = (
    "The text has two numberings now, before and after. Which one do your answers use?",
    "The question is about old tokens, so name each by the position that it had in the old text.",
    SHIFTED[2],
)
EXACT = (
    "Is a difference in the seventh digit a change, or rounding?",
    "Computers round. The same sum in another order gives other last digits. So allow for a small difference.",
    "In Python: is 0.1 + 0.2 the same as 0.3? And abs(0.1 + 0.2 - 0.3) > 0.0001?",
)
_SIGN = (
    "A number went from 5 to 2. What is the difference, and is it larger than 0.0001?",
    "A change can go up or down. It is the size of the difference that counts.",
)
_CANCEL = (
    "One number of a token went up by 1, another went down by 1. Has the token changed?",
    "Look at the largest of the differences. In a sum or a mean, they cancel each other out.",
)
_COARSE = (
    "How much did the number change that you did not notice, and from which size on does a change count?",
    "A token changed if any single number of it differs by more than 0.0001. A mean makes one small change smaller.",
    "Four numbers, of which one changes by 0.0003. What is the largest difference, and what is their mean?",
)
_ALL = (
    "Only one number of a token changed, the others are as before. Has the token changed?",
    "A token's numbers are the same if all of them are. It changed if any of them did.",
)
_PART = (
    "A token has several heads in each layer. How many of them did you look at?",
    "A layer's tensor has positions first. Everything after that axis belongs to one token.",
)
_LENGTHS = (
    "The longer text has one position more. Which of its rows belongs to which old token?",
    "Before you compare, pick from the longer text the rows of the old tokens, in their old order.",
    SHIFTED[2],
)
_BELIEF = (
    "Would your answer be another one if `look` gave you other numbers?",
    "This is an experiment. It should say what happened, whatever you expect.",
)
_OTHER = (
    "Print, for that layer, the largest difference at each position. Which of them are above 0.0001?",
    "For each old token: find its row before and its row after, and take the largest of the differences.",
    SHIFTED[2],
)
BY_TOKEN = (
    "How did your code find an old token in the longer text? What if the same token stands there twice?",
    "An id says which token it is, and not where it stands. The same token at two positions has keys and values at "
    "each of them. Go by positions.",
    "Old text: a b a. A token x at position 1: a x b a. Where is the second a afterwards? And what does "
    "`list('axba').index('a')` give?",
)
SAME_TOKEN = (
    "How does your code know which row of the longer text is the new token's?",
    "An id says which token it is, and not where it stands. The new token may be one that the text has already.",
    "Old text: a b a. Another a at position 1: a a b a. Which of the three is the new one? What told you?",
)
FIXED = (
    "Which number in your code is the length of the first text? Where else could it come from?",
    "Texts have different lengths. `len(ids)` tells how many old tokens there are.",
    "Old text: a b c, and then d e. Write down all old positions, for each. Which of your lines gives them?",
)
_SAYS = "Give a list with one entry for each layer: the old positions that changed, as whole numbers."


def judge_changed(thing: Any) -> Verdict:
    import torch

    with torch.no_grad():
        return _judge(thing)


def _judge(thing: Any) -> Verdict:
    cases: list[_Case] = [_Case(_real(part), where) for part in (1, 0) for where in (0, 5, _Case.usual)]
    cases += [_Case(_Invented(), where) for where in (0, 7, _Case.usual)]
    cases += [
        _Case(_real(part), where, ids) for ids, where in ((_LONGER, 6), (_TWICE, 9), (_SAME, 6)) for part in (1, 0)
    ]
    edited = False
    for case in cases:
        ids = list(case.ids)
        try:
            answer = thing(case.look, ids, case.extra, case.where)
            if hasattr(answer, "__next__"):  # a generator looks only when it is read
                answer = list(itertools.islice(answer, _MOST))
        except (RuntimeError, ValueError, IndexError) as error:
            if isinstance(error, NotImplementedError) or not case.asked_rightly():
                raise
            said = f"{case} your code raised {type(error).__name__}: {' '.join(str(error).split())[:120]}"
            before = [other for other in cases[: cases.index(case)] if other.given]
            fine = all(other.given == other.right() for other in before)
            if case.ids == _SAME and fine:
                return wrong("same-token", f"you are right where the new token is no old one. With {said}", *SAME_TOKEN)
            if case.length != _Case.usual and fine:
                return wrong("fixed-length", f"with {_Case.usual} tokens you are right. With {said}", *FIXED)
            return wrong("lengths", said, *_LENGTHS)
        edited |= ids != list(case.ids)
        if (verdict := case.read(answer)) is not None:
            return verdict
    if not all(case.given == case.right() for case in cases):
        return _why(cases)
    if edited:
        return ok(
            "What changes. The positions are right. You put the token into the list that I gave you, so my text "
            "changed as well. `list(ids)` makes one of your own."
        )
    return ok()


def _real(part: int) -> Callable[[list[int]], Layers]:
    """Keys (0) or values (1) of a model with random weights."""
    from minikv.course.chapters.looking import keys_and_values

    return lambda ids: [layer[part] for layer in keys_and_values(gentle_model(), ids)]


class _Invented:
    """Numbers in which it is known what changed: a little rounding everywhere, and a few real changes of every kind."""

    def __init__(self) -> None:
        self.first: list[int] | None = None

    def __call__(self, ids: list[int]) -> Layers:
        import torch

        random = torch.Generator().manual_seed(4)
        layers = [torch.randn(_Case.usual, 3, 8, generator=random) for _ in range(5)]
        if len(ids) == _Case.usual:
            return layers
        where = ids.index(_Case.extra)
        for index, layer in enumerate(layers):
            layer += 4e-5 * (torch.rand(layer.shape, generator=random) - 0.5)
            for position in ((), (0, 4), (1, 6, 7), (3,), (5, 11))[index]:
                head, number = position % 3, position % 7
                layer[position, head, number] += 0.3  # one number goes up and another down by as much
                layer[position, head, number + 1] -= 0.3
            if index == 3:
                layer[10] -= 0.7  # all go down
                layer[8] += 0.7  # all go up
            if index == 4:
                layer[9, 1, 2] += 0.0015  # a small one, which a mean would hide
        # what stands in the new token's place must not matter
        return [torch.cat([layer[:where], torch.full((1, 3, 8), 1e6), layer[where:]]) for layer in layers]


def _ids(length: int) -> tuple[int, ...]:
    return tuple((37 * position + 11) % 151 for position in range(length))


_LONGER = _ids(17)  # more texts: all the same to whoever goes by positions
_TWICE = (5, 9, 5, 7, 5, 9, 30, 7, 41, 5, 60, 9)
_SAME = (5, 11, 200, 7, 31, 9, 30, 2, 41, 77, 60, 8)  # the token that is put in stands there already


class _Case:
    """One text, one place, and what was said about it."""

    usual, extra = 12, 200

    def __init__(self, look: Callable[[list[int]], Layers], where: int, ids: tuple[int, ...] | None = None) -> None:
        self.where, self._look = where, look
        self.ids = ids or _ids(self.usual)
        self.length = len(self.ids)
        self.asked: list[list[int]] = []
        self.given: Places = []
        longer = [*self.ids[:where], self.extra, *self.ids[where:]]
        self.before, self.after = look(list(self.ids)), look(longer)
        self.texts = [list(self.ids), longer]

    def __str__(self) -> str:
        return f"{self.length} tokens, one put in at {self.where}:"

    def look(self, ids: Any) -> Layers:
        """What the learner's code looks with."""
        given = [int(token) for token in ids]
        self.asked.append(given)
        if given not in self.texts:
            # an invented model knows two texts; any other gets the numbers of the one that is as long
            given = self.texts[len(given) > self.length]
        return self._look(given)

    def asked_rightly(self) -> bool:
        """Whether both texts were looked at, and no other."""
        return all(text in self.asked for text in self.texts) and all(text in self.texts for text in self.asked)

    def right(self) -> Places:
        return self.compared()

    def compared(
        self,
        at: Callable[[int], int] | None = None,
        has_changed: Callable[[Any], bool] | None = None,
    ) -> Places:
        """Old positions that changed, if each is looked for `at(position)` and judged by its differences."""
        at = at or (lambda position: position + (position >= self.where))
        has_changed = has_changed or (lambda difference: bool(difference.abs().max() > MOVED))
        return [
            {i for i in range(self.length) if has_changed(new[at(i)] - old[i])}
            for old, new in zip(self.before, self.after, strict=True)
        ]

    def read(self, answer: Any) -> Verdict | None:
        """Read the answer into `given`, or say what is wrong with its form or with the texts that were looked at."""
        if not self.asked:
            said = "you never looked at the model. An answer that nobody measured is a belief."
            return wrong("no-look", said, "Which two texts do you want to compare? Look at each: `look(...)`.")
        if (verdict := self._texts()) is not None:
            return verdict
        if answer is None:
            return wrong("no-return", "your function gave nothing back.", _SAYS)
        if isinstance(answer, dict) or not hasattr(answer, "__len__") or not hasattr(answer, "__iter__"):
            return wrong("shape", f"{self} you gave back {_shown(answer)}.", _SAYS)
        if len(answer) and all(isinstance(each, int) for each in answer):
            said = f"{self} you gave back one list of numbers, and there are {len(self.before)} layers."
            return wrong("one-layer", said, *ONE_LAYER)
        for layer, each in enumerate(answer):
            places = each.tolist() if hasattr(each, "tolist") else each
            if isinstance(places, dict) or not hasattr(places, "__iter__"):
                return wrong("shape", f"{self} for layer {layer} you gave back {_shown(each)}.", _SAYS)
            places = [place.item() if hasattr(place, "item") else place for place in itertools.islice(places, _MOST)]
            if any(isinstance(place, bool) for place in places):
                return wrong("mask", f"{self} for layer {layer} you gave back yes and no.", _SAYS)
            if any(not isinstance(place, int) for place in places):
                return wrong("shape", f"{self} for layer {layer} you gave back {_shown(places)}.", _SAYS)
            if len(set(places)) < len(places):
                twice = next(place for place in places if places.count(place) > 1)
                if self._again(twice):
                    said = f"{self} in layer {layer} you name position {twice} {places.count(twice)} times."
                    return wrong("by-token", f"{said} Its token stands in the text more than once.", *BY_TOKEN)
                said = f"{self} in layer {layer} you name position {twice} {places.count(twice)} times."
                return wrong(
                    "twice", said, "How many numbers does one token have, and how often do you want to name it?"
                )
            self.given.append(set(places))
        if len(self.given) < len(self.before):
            said = f"{self} your list has {len(self.given)} entries, and there are {len(self.before)} layers."
            return wrong("one-layer", said, *ONE_LAYER)
        if len(self.given) > len(self.before):
            said = f"{self} you gave back {len(self.given)} lists, and there are {len(self.before)} layers."
            return wrong("shape", said, _SAYS)
        return None

    def _again(self, place: int) -> bool:
        return 0 <= place < self.length and self.ids.count(self.ids[place]) > 1

    def _texts(self) -> Verdict | None:
        old, longer = self.texts
        stranger = next((text for text in self.asked if text not in self.texts), None)
        if stranger is None:
            missing = next((text for text in self.texts if text not in self.asked), None)
            if missing is None:
                return None
            which = "the text as it was" if missing == old else "the text with the new token"
            said = f"{self} you never looked at {which}."
            tell = "Is one list changed while you use it?"
            if missing == longer:
                tell = "You need two looks, and a comparison: one at the text as it was, one with the new token in it."
            return wrong("one-text", said, "Which two texts do you compare? Print both.", tell)
        said = f"{self} you looked at {len(stranger)} tokens, {_shown(stranger)}."
        if len(stranger) == self.length:
            return wrong(
                "replaced", f"{said} An old token is gone.", "A token is put in. Which of the old ones leaves?"
            )
        if sorted(stranger) == sorted(longer):
            at = stranger.index(self.extra)
            return wrong("place", f"{said} The new one stands at {at}.", "At which position must the new token stand?")
        return wrong("other-text", said, "The text with one token more: which tokens does it have, in which order?")


def _shown(thing: object) -> str:
    text = " ".join(repr(thing).split())
    return text if len(text) <= 60 else f"{text[:60]}..."


def _why(cases: list[_Case]) -> Verdict:
    """Find the mistake that gives the same answers in all cases."""

    def always(guess: Callable[[_Case], Places]) -> bool:
        return all(case.given == guess(case) for case in cases)

    def judged(has_changed: Callable[[Any], bool]) -> bool:
        return always(lambda case: case.compared(has_changed=has_changed))

    first = next(case for case in cases if case.given != case.right())
    layer = next(i for i, (a, b) in enumerate(zip(first.given, first.right(), strict=True)) if a != b)
    said = f"{first} in layer {layer} you name {_places(first.given[layer])}. Changed: {_places(first.right()[layer])}."

    if always(lambda case: case.compared(at=lambda i: i)):
        return wrong("shifted", f"{said} You compared each position with the same position.", *SHIFTED)
    if always(lambda case: case.compared(at=lambda i: i + 1)):
        return wrong("always-shifted", f"{said} You compared each position with the next one.", *ALWAYS_SHIFTED)
    if always(lambda case: case.compared(at=lambda i: i + (i > case.where))):
        said = f"{said} You compared old token {first.where} with the new one."
        return wrong("boundary", said, *_BOUNDARY)
    if always(lambda case: [case.right()[0]] * len(case.before)):
        return wrong("one-layer", f"{said} For each layer you give what is true of layer 0.", *ONE_LAYER)
    if always(lambda case: [{i + (i >= case.where) for i in each} for each in case.right()]):
        return wrong("numbering", said, *NUMBERING)
    if always(lambda case: [{i + (i >= case.where) for i in each} | {case.where} for each in case.right()]):
        return wrong("new-too", f"{said} The new token is among yours.", *NEW_TOO)
    if always(lambda case: [each | {case.where} for each in case.right()]):
        return wrong("new-too", f"{said} The new token's position is always among yours.", *NEW_TOO)
    if always(lambda case: [set(range(case.length)) - each for each in case.right()]):
        return wrong("unchanged", f"{said} Yours are those that stayed the same.", "Which ones were asked for?")
    if judged(lambda difference: bool(difference.abs().max() > 0)):
        return wrong("exact", f"{said} The others differ by less than 0.0001.", *EXACT)
    if judged(lambda difference: bool(difference.max() > MOVED)) or judged(lambda d: bool((-d).max() > MOVED)):
        return wrong("sign", said, *_SIGN)
    if judged(lambda d: bool(d.sum().abs() > MOVED)) or judged(lambda d: bool(d.mean().abs() > MOVED)):
        return wrong("cancel", said, *_CANCEL)
    if judged(lambda d: bool(d.abs().max() > 0.01)):
        return wrong("coarse", f"{said} The one that you miss changed by less than 0.01.", *_COARSE)
    if judged(lambda difference: bool(difference.abs().min() > MOVED)):
        return wrong("all", said, *_ALL)
    if judged(lambda d: bool(d[0].abs().max() > MOVED)) or judged(lambda d: bool(d.flatten()[0].abs() > MOVED)):
        return wrong("part", said, *_PART)
    for groups, kind, words, hints in (
        ((_LONGER,), "fixed-length", f"with {_Case.usual} tokens you are right.", FIXED),
        ((_SAME,), "same-token", "you are right where the new token is no old one.", SAME_TOKEN),
        ((_TWICE, _SAME), "by-token", "where no token stands twice you are right.", BY_TOKEN),
    ):
        if all(case.given == case.right() for case in cases if case.ids not in groups):
            return wrong(kind, f"{words} With {said}", *hints)
    for layer_too in (False, True):
        if always(lambda case, too=layer_too: _believed(case, too)):  # type: ignore[misc]
            return wrong("belief", f"{said} The numbers play no part in your answer.", *_BELIEF)
    extra, missed = first.given[layer] - first.right()[layer], first.right()[layer] - first.given[layer]
    if extra and not missed and isinstance(first._look, _Invented):
        return wrong("exact", f"{said} Some differ by less than 0.0001.", *EXACT)
    return wrong("other", said, *_OTHER)


def _believed(case: _Case, layer_0_too: bool) -> Places:
    """What theory says: everything from the new token on, with or without layer 0."""
    behind = set(range(case.where, case.length))
    return [behind if layer_0_too else set(), *[behind] * (len(case.before) - 1)]


def _places(places: set[int]) -> str:
    ordered = sorted(places)
    if not ordered:
        return "none"
    if len(ordered) > 3 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]} to {ordered[-1]}"
    return ", ".join(map(str, ordered))
