"""Exercise 2.2, what fits and what was promised: the reference answer, and what is said of others."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any

from minikv.course.chapters.ex_2_1 import Configuration, bytes_per_token, no_such_field, twelve
from minikv.course.declare import Verdict, ok, wrong

GIB, GB = 2**30, 10**9
BYTES = 2  # of a weight and of a stored number: everything at 16 bit


def gap(config: Configuration, params: int, card: float, piece: int) -> tuple[int, int]:
    """Tokens that fit on a card beside the weights, and how many are missing from the advertised context."""
    context = config.get("max_position_embeddings") or config["n_positions"]
    left = max(0, card * 2**30 - 2 * params)
    fits = int(left // (bytes_per_token(config, 2) * piece)) * piece
    return fits, context - fits


@dataclass(frozen=True)
class Case:
    """One model on one card, with memory in pieces of so many tokens."""

    model: str
    card: float
    piece: int


CASES = (
    Case("llama-3.1-8b", 24, 16),
    Case("llama-3.1-8b", 24, 1024),
    Case("llama-2-7b", 16, 16),
    Case("qwen3-0.6b", 8, 16),
    Case("gpt2", 8, 64),
    Case("mixtral-8x7b", 80, 16),
)  # these are shown, with their answers
_HIDDEN = (
    Case("smollm2-135m", 8, 16),
    Case("qwen2.5-7b", 16, 256),
    Case("gpt-oss-20b", 48, 16),
    Case("qwen3-32b", 80, 64),
    Case("llama-3.1-70b", 141, 16),
    Case("llama-3.1-8b", 15, 4096),
    Case("deepseek-v3", 1280, 64),
    Case("deepseek-v3", 80, 64),
    Case("gpt2", 1, 4096),
)


def shown_cases() -> list[tuple[Case, int, tuple[int, int]]]:
    """The cases of the exercise: each with its model's parameters and the answer."""
    configs, params = twelve(), parameters()
    return [
        (case, params[case.model], gap(configs[case.model], params[case.model], case.card, case.piece))
        for case in CASES
    ]


def parameters() -> dict[str, int]:
    """How many parameters each of the twelve models has."""
    from minikv.course.configs import about

    return {name: about(name).params for name in twelve()}


@dataclass(frozen=True)
class _Rule:
    """A way to count, right in everything but what is set here."""

    card: str = ""
    number: str = ""
    weights: str = ""
    piece: str = ""
    sign: str = ""

    def fits(self, config: Configuration, params: int, case: Case) -> int:
        card = case.card * (GB if self.card == "gb" else GIB)
        token = {"": BYTES, "per-byte": 1, "token-at-32-bit": 4, "bits": 16}[self.number]
        weight = 16 if self.number == "bits" else BYTES
        each = {"": weight, "no-weights": 0, "weights-in-bytes": 1, "weights-at-32-bit": 4}[self.weights]
        left = card - each * params
        left = left if self.sign == "below-zero" else max(0, left)
        tokens = left / bytes_per_token(config, token)
        pieces = tokens / case.piece
        how = {
            "": int(pieces // 1) * case.piece,
            "part-of-a-piece": int(tokens // 1),
            "rounded-up": int(-(-pieces // 1)) * case.piece,
            "rounded": round(pieces) * case.piece,
            "in-pieces": int(pieces // 1),
            "sixteens": int(tokens // 16) * 16,
        }
        return how[self.piece]

    def mistakes(self) -> list[str]:
        return [getattr(self, field.name) for field in fields(self) if getattr(self, field.name)]


_RULES = sorted(
    (
        _Rule(card, number, weights, piece, sign)
        for card in ("", "gb")
        for number in ("", "per-byte", "token-at-32-bit", "bits")
        for weights in ("", "no-weights", "weights-in-bytes", "weights-at-32-bit")
        for piece in ("", "part-of-a-piece", "rounded-up", "rounded", "in-pieces", "sixteens")
        for sign in ("", "below-zero")
    ),
    key=lambda rule: len(rule.mistakes()),
)

HINTS: dict[str, tuple[str, ...]] = {
    "gb": (
        "How many bytes are 24 GiB?",
        "A giga is a thousand thousand thousand, and a gibi is 1,024 times 1,024 times 1,024. Here a card is "
        "counted in the second.",
        "Write down both numbers for 8, and how many tokens of 131,072 bytes lie between them.",
    ),
    "weights": (
        "What lies on the card before the first prompt comes? How many bytes is it?",
        "The whole model lies there, all the time. Only what it leaves is for keys and values.",
        "A card of 24, a model that takes 15, tokens of 1 each. How many tokens fit?",
    ),
    "piece": (
        "Can anybody use a piece that is only half there?",
        "Memory is given out in whole pieces. What is left over at the end is less than one piece, and no use.",
        "Room for 100 tokens, in pieces of 16. How many whole pieces, and how many tokens are in them?",
    ),
    "in-pieces": (
        "What is asked for: how many pieces there are, or how many tokens are in them?",
        "A piece is room for several tokens, and the context is a number of tokens. Only like can be compared.",
        "Room for 100 tokens, in pieces of 16. How many whole pieces, and how many tokens are in them?",
    ),
    "number": (
        "How many bytes does one number of 16 bits take?",
        "Eight bits are one byte. Weights, keys and values all have the same precision here.",
        "A model of 10 weights, and a token of 3 numbers, all with 16 bits. How many bytes is each of the two?",
    ),
    "below-zero": (
        "How many tokens fit if not even the weights do?",
        "Less than nothing cannot be stored. But the promise is still made, and all of it is missing.",
        "A card of 8, a model that takes 15. How many tokens fit, and how many of 4,096 are missing?",
    ),
    "context": (
        "Where does your number come from: from the card, or from the configuration?",
        "The context is what a model was made for, and what is promised. Whether there is room for it depends on the "
        "card. The two know nothing of each other.",
        "The same model on a card of 16 and on one of 80. Does its configuration change? Does what fits?",
    ),
    "gap": (
        "What should the gap be if exactly as much fits as was promised? And if ten tokens more fit?",
        "It counts what is missing. So it grows with the promise, and it falls below zero where there is more room "
        "than was promised.",
        "Promised 100. Write down the gap if 60 fit, if 100 fit, and if 250 fit.",
    ),
    "shape": ("Give two whole numbers back: `return fits, missing`.",),
}
_GROUP = {"no-weights": "weights", "weights-in-bytes": "weights", "weights-at-32-bit": "weights"} | {
    kind: "piece" for kind in ("part-of-a-piece", "rounded-up", "rounded", "sixteens")
}
_GROUP |= {kind: "number" for kind in ("per-byte", "token-at-32-bit", "bits")}
_SAID = {
    "gb": "You took 1 GiB for 1,000,000,000 bytes.",
    "no-weights": "You gave the whole card to keys and values.",
    "weights-in-bytes": "You took one byte for each weight.",
    "weights-at-32-bit": "You took four bytes for each weight.",
    "part-of-a-piece": "That is not a whole number of pieces: you counted a part of one.",
    "rounded-up": "The last piece of these is only partly there.",
    "rounded": "You rounded to the nearest piece. Sometimes that is one that is only partly there.",
    "in-pieces": "That is a number of pieces, not of tokens.",
    "sixteens": "These are whole pieces of 16 tokens, and not all pieces have 16.",
    "per-byte": "You took one byte for each number of a token.",
    "token-at-32-bit": "You took four bytes for each number of a token.",
    "bits": "You took 16 bytes for each number.",
    "below-zero": "The weights alone are larger than this card.",
}
_ASKED = (
    "Follow one case by hand: the card in bytes, less the weights in bytes, and what one token takes.",
    "Three sizes, all in bytes: the card, the weights, one token. Then whole pieces.",
    "Take round numbers: a card of 100 bytes, weights of 40, tokens of 7 and pieces of 2 tokens. What fits?",
)


def judge_gap(thing: Any) -> Verdict:
    configs, params = twelve(), parameters()
    got: dict[Case, tuple[float, float]] = {}
    for case in (*CASES, *_HIDDEN):
        answer = _answer(thing, case, configs[case.model], params[case.model])
        if isinstance(answer, Verdict):
            return answer
        got[case] = answer
    right = {case: gap(configs[case.model], params[case.model], case.card, case.piece) for case in got}
    context = {case: sum(right[case]) for case in got}
    off = [case for case in got if got[case][0] != right[case][0]]
    if off:
        return _why(off, got, right, context, configs, params)
    for case, (fits, missing) in got.items():
        if missing == right[case][1]:
            continue
        said = f"{_name(case)}: {fits:,.0f} of the {context[case]:,} promised tokens fit, and you say {missing:,.0f} "
        if all(got[one][1] == -right[one][1] for one in got):
            return wrong("turned-round", f"{said}are missing. Plus and minus are exchanged.", *HINTS["gap"])
        if all(got[one][1] == abs(right[one][1]) for one in got):
            return wrong("no-sign", f"{said}are missing. There is more room than was promised.", *HINTS["gap"])
        if all(got[one][1] == max(0, right[one][1]) for one in got):
            said = f"{said}are missing. None is, and the cases also say how much room is left over."
            return wrong("cut-at-zero", said, *HINTS["gap"])
        if all(got[one][1] == right[one][1] / one.piece for one in got):
            return wrong("gap-in-pieces", f"{said}are missing: that counts pieces.", *HINTS["gap"])
        return wrong("other-gap", f"{said}are missing. It is {right[case][1]:,}.", *HINTS["gap"])
    return ok()


def _answer(thing: Any, case: Case, config: dict[str, Any], params: int) -> tuple[float, float] | Verdict:
    try:
        answer = thing(deepcopy(config), params, case.card, case.piece)
    except KeyError as error:
        name = error.args[0] if error.args else ""
        if name in config or not isinstance(name, str):
            raise
        return wrong(
            "field",
            no_such_field(case.model, config, name),
            "Print the keys of this configuration. Under which name does it advertise its context?",
            "Model families chose names of their own. Ask for a name in a way that survives its absence.",
            "Write the two names beside each other, for gpt2 and for llama-2-7b, with what they say.",
        )
    try:
        numbers = [float(number) for number in answer]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != 2:
        return wrong("shape", f"{_name(case)}: you gave back {_short(answer)}, not two numbers.", *HINTS["shape"])
    if any(number != number // 1 for number in numbers):
        said = f"{_name(case)}: you gave back {numbers[0]:,.2f} and {numbers[1]:,.2f}."
        return wrong("not-whole", f"{said} Nobody can store a part of a token.", *HINTS["piece"])
    return numbers[0], numbers[1]


def _why(
    off: list[Case],
    got: Mapping[Case, tuple[float, float]],
    right: Mapping[Case, tuple[int, int]],
    context: Mapping[Case, int],
    configs: Mapping[str, Configuration],
    params: Mapping[str, int],
) -> Verdict:
    """Which rule gives the learner's numbers of tokens that fit."""
    case = off[0]
    said = f"{_name(case)}: you say that {got[case][0]:,.0f} tokens fit, and it is {right[case][0]:,}."
    if all(got[one][0] == context[one] for one in got):
        return wrong("context-as-room", f"{said} Yours is the advertised context.", *HINTS["context"])
    if all(got[one][0] == min(context[one], right[one][0]) for one in got):
        said = f"{said} You stopped at the advertised context. There is room for more: for other users."
        return wrong("cut-at-context", said, *HINTS["context"])
    if all(got[one] == right[one][::-1] for one in got):
        return wrong("shape", f"{said} You gave back the gap first.", *HINTS["shape"])
    for rule in _RULES:
        if all(got[one][0] == rule.fits(configs[one.model], params[one.model], one) for one in got):
            kind, *more = rule.mistakes()
            alone = _Rule(**{field.name: kind for field in fields(_Rule) if getattr(rule, field.name) == kind})
            hit = [one for one in got if alone.fits(configs[one.model], params[one.model], one) != right[one][0]]
            case = hit[0]
            said = f"{_name(case)}: you say that {got[case][0]:,.0f} tokens fit, and it is {right[case][0]:,}."
            said = f"{said} {_SAID[kind]}" + (" (Something else is off too; this first.)" if more else "")
            return wrong(kind, said, *HINTS.get(_GROUP.get(kind, kind), _ASKED))
    return wrong("other", said, *_ASKED)


def _name(case: Case) -> str:
    return f"{case.model} on {case.card:g} GiB, pieces of {case.piece}"


def _short(answer: object) -> str:
    text = " ".join(repr(answer).split())
    return text if len(text) <= 60 else f"{text[:60]}..."
