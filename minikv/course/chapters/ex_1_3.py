"""Exercise 1.3, attention of one new token: the reference answer, and what is said of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from minikv.course.chapters.gentle import gentle_model
from minikv.course.declare import Verdict, ok, wrong

if TYPE_CHECKING:
    import torch

    from minikv.course.chapters.looking import NewToken

    Pair = tuple[torch.Tensor, torch.Tensor]


def attend(
    query: torch.Tensor,
    own_key: torch.Tensor,
    own_value: torch.Tensor,
    old_keys: torch.Tensor,
    old_values: torch.Tensor,
) -> Pair:
    """How much the new token takes from each position, and what it gets."""
    import torch

    keys, values = torch.vstack([old_keys, own_key]), torch.vstack([old_values, own_value])
    weights = torch.softmax(keys @ query / len(query) ** 0.5, dim=0)
    return weights, weights @ values


NO_SCALE = (
    "What does a sum of 64 products do, compared with one of 4?",
    "The more numbers there are, the larger the sum. Before the softmax, the layer makes up for that. The table in the "
    "exercise shows by how much.",
    "From the table: at width 4 the products sum to 6 and to 8, at width 16 to 32. By what is each of them divided?",
)
AXIS = (
    "Whose weights must sum to 1?",
    "The positions share one whole among them. So the softmax runs over the positions.",
    "Two positions, scores 1 and 1. What should the two weights be? Print yours, and their shape.",
)
OWN_LEFT_OUT = (
    "May a token look at itself?",
    "The new token is part of the text as well. It has a key and a value like all the others, and stands after them.",
    "The very first token of a text: how many positions can it look at?",
)
KEYS_CARRIED = (
    "Keys say where to look. What is carried away?",
    "A key is compared with the query, and has then done its work. What is taken from a position is its value.",
    "Two positions with weights 1 and 0, keys (5, 5) and (6, 6), values (1, 2) and (3, 4). What should come out?",
)
_NOT_SUMMED = (
    "How many rows should the result have?",
    "The result is one row: from each position its value, made smaller by its weight, and then everything added up.",
    "Weights 0.25 and 0.75, values (4, 0) and (0, 8). By hand: 0.25 times the first, plus 0.75 times the second.",
)
_NO_EXP = (
    "What happened to your scores on their way to weights?",
    "Weights are the softmax of the scores, which is in the lesson, in two lines: exp, then divided by the sum.",
    "Scores 1 and -1. Divide each by their sum. What goes wrong?",
)
_NOT_ADDED = (
    "How many scores should one position have?",
    "Query and key are multiplied number by number, and these products are added up: one score for each position.",
    "Query (1, 2), key (3, 1). By hand: which single number is the score?",
)
_SAYS = "Give back two things: `return weights, result`, with one weight for each position and one row as the result."


def judge_attend(thing: Any) -> Verdict:
    import torch

    with torch.no_grad():
        cases = list(_cases())
        answers = []
        for token in cases:
            given = [tensor.clone() for tensor in token[:5]]
            answer = _read(thing(*given), token)
            if isinstance(answer, Verdict):
                return answer
            answers.append(answer)
        if all(
            _same(answer, (attend(*token[:5])[0], token.result)) for answer, token in zip(answers, cases, strict=True)
        ):
            return ok()
        return _why(cases, answers)


def _cases() -> Iterator[NewToken]:
    """The last token of a text in several heads of a small model, and in one as wide as SmolLM2's."""
    import torch

    from minikv.course.chapters.looking import NewToken, one_token

    ids = [(37 * position + 11) % 251 for position in range(11)]
    for layer, head in ((0, 0), (2, 0), (5, 1)):
        yield one_token(gentle_model(0.2), ids, layer, head)
    random = torch.Generator().manual_seed(1)
    for width, old in ((64, 12), (16, 5)):
        query, key, value = torch.randn(3, width, generator=random)
        keys, values = torch.randn(2, old, width, generator=random)
        yield NewToken(query, key, value, keys, values, attend(query, key, value, keys, values)[1])


def _read(answer: Any, token: NewToken) -> Pair | Verdict:
    """The two parts of an answer as flat tensors, or what is wrong with its form."""
    import torch

    old, width = token.old_keys.shape
    here = f"{old} old tokens, width {width}:"
    if answer is None:
        return wrong("no-return", "your function gave nothing back.", _SAYS)
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        shape = tuple(answer.shape) if hasattr(answer, "shape") else _shown(answer)
        return wrong("shape", f"{here} you gave back one thing, {shape}.", _SAYS)
    try:
        weights, result = (torch.as_tensor(each, dtype=torch.float32) for each in answer)
    except (TypeError, ValueError, RuntimeError):
        return wrong("shape", f"{here} you gave back {_shown(answer)}.", _SAYS)
    if weights.numel() == width and result.numel() == old + 1 and width != old + 1:
        return wrong("swapped", f"{here} you gave back the result first.", _SAYS)
    if weights.numel() == old:
        said = f"{here} you gave back {old} weights. The text has {old + 1} tokens."
        return wrong("own-left-out", said, *OWN_LEFT_OUT)
    if weights.numel() == (old + 1) * width:
        said = f"{here} you gave back {tuple(weights.shape)} weights, one for each number of each key."
        return wrong("not-added", said, *_NOT_ADDED)
    if weights.numel() != old + 1:
        return wrong("shape", f"{here} you gave back weights of the shape {tuple(weights.shape)}.", _SAYS)
    if result.numel() == (old + 1) * width:
        return wrong("not-summed", f"{here} your result has the shape {tuple(result.shape)}.", *_NOT_SUMMED)
    if result.numel() != width:
        said = f"{here} your result has the shape {tuple(result.shape)}, and a value has {width} numbers."
        return wrong("shape", said, _SAYS)
    return weights.flatten(), result.flatten()


def _shown(thing: object) -> str:
    text = " ".join(repr(thing).split())
    return text if len(text) <= 60 else f"{text[:60]}..."


def _same(answer: Pair, other: Pair) -> bool:
    import torch

    return all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(answer, other, strict=True))


def _why(cases: list[NewToken], answers: list[Pair]) -> Verdict:
    """Find the mistake that gives the same answers in all cases."""
    import torch

    def all_of(token: NewToken) -> Pair:
        return torch.vstack([token.old_keys, token.own_key]), torch.vstack([token.old_values, token.own_value])

    def scores(token: NewToken) -> torch.Tensor:
        return all_of(token)[0] @ token.query

    def root(token: NewToken) -> float:
        return float(len(token.query) ** 0.5)

    def always(weights_of: Callable[[NewToken], torch.Tensor]) -> bool:
        """Whether all weights come about in this way."""
        return all(
            torch.allclose(answer[0], weights_of(token), rtol=1e-3, atol=1e-4, equal_nan=True)
            for token, answer in zip(cases, answers, strict=True)
        )

    token, (weights, _result) = cases[0], answers[0]
    old, width = token.old_keys.shape
    right = attend(*token[:5])[0]
    here = f"{old} old tokens, width {width}:"
    largest = f"{here} your largest weight is {float(weights.max()):.2f}, the model's own is {float(right.max()):.2f}."

    if always(lambda token: attend(*token[:5])[0]):
        return _result_why(cases, answers, here)
    if any(bool(answer[0].isnan().any()) for answer in answers) and always(lambda t: _exp_over_sum(scores(t))):
        return wrong("no-scale", f"{here} some of your weights are not numbers: exp() grew too large.", *NO_SCALE)
    if always(lambda token: torch.softmax(scores(token), 0)):
        return wrong("no-scale", largest, *NO_SCALE)
    for power in (2.0, -1.0, 0.5):
        if always(lambda token, power=power: torch.softmax(scores(token) / root(token) ** power, 0)):  # type: ignore[misc]
            return wrong("other-scale", largest, *NO_SCALE)
    if always(lambda token: torch.softmax(scores(token) / 8, 0)):
        said = f"{largest} At width 64 yours are right."
        return wrong("fixed-scale", said, "What is 8 in terms of 64? And what is it at another width?", *NO_SCALE[1:])
    if always(lambda token: torch.softmax(scores(token) / len(scores(token)) ** 0.5, 0)):
        said = f"{largest} You divide by something that grows with the text."
        return wrong("other-scale", said, "A score is a sum. How many products are added up in it?", *NO_SCALE[1:])
    if all(_scaled(answer[0], scores(token)) for token, answer in zip(cases, answers, strict=True)):
        return wrong("other-scale", largest, *NO_SCALE)
    if always(lambda token: torch.softmax(scores(token), 0) / root(token)):
        said = f"{here} your weights sum to {float(weights.sum()):.2f}. You divided after the softmax."
        return wrong("late-scale", said, *AXIS[:1], NO_SCALE[1], AXIS[2])
    if always(lambda token: torch.ones(len(scores(token)))):
        said = f"{here} each of your weights is 1, so they sum to {old + 1}."
        return wrong("axis", said, *AXIS)
    if always(lambda token: scores(token) / root(token)) or always(scores):
        return wrong(
            "no-softmax", f"{here} your weights sum to {float(weights.sum()):.2f}. These are scores.", *_NO_EXP
        )
    if always(lambda token: scores(token) / scores(token).sum()):
        low = f"the smallest is {float(weights.min()):.2f}" if float(weights.min()) < 0 else "they are no softmax"
        return wrong("no-softmax", f"{here} your weights sum to 1, but {low}.", *_NO_EXP)
    if always(lambda token: torch.exp(scores(token) / root(token))):
        return wrong("not-shared", f"{here} your weights sum to {float(weights.sum()):.2f}.", *AXIS)
    if always(lambda token: attend(*token[:5])[0].roll(1)):
        said = f"{here} your weights are right, but the new token's own is the first."
        return wrong("order", said, "Where does the new token stand in the text?")
    if always(lambda token: torch.softmax(all_of(token)[1] @ token.query / root(token), 0)):
        said = f"{largest} You compared the query with values."
        return wrong("values-asked", said, "By which of its two rows is a token found?", *KEYS_CARRIED[1:])
    if always(lambda token: torch.softmax(all_of(token)[0] @ token.own_key / root(token), 0)):
        said = f"{largest} Your query plays no part."
        return wrong("no-query", said, "What does the new token compare the keys with?", *_NOT_ADDED[1:])
    if abs(float(weights.sum()) - 1) > 1e-3:
        return wrong("axis", f"{here} your weights sum to {float(weights.sum()):.2f}.", *AXIS)
    return wrong("other", largest, *_NOT_ADDED)


def _scaled(weights: torch.Tensor, scores: torch.Tensor) -> bool:
    """Whether these are the softmax of the scores times some number."""
    import torch

    if not bool((weights > 0).all()):
        return False
    logs, sums = weights.log() - weights.log().mean(), scores - scores.mean()
    times = (logs @ sums) / (sums @ sums)
    return abs(float(times)) > 1e-3 and torch.allclose(torch.softmax(times * scores, 0), weights, rtol=1e-2, atol=1e-4)


def _exp_over_sum(scores: torch.Tensor) -> torch.Tensor:
    grown = scores.exp()
    return grown / grown.sum()


def _result_why(cases: list[NewToken], answers: list[Pair], here: str) -> Verdict:
    """The weights are right, and the result is not."""
    import torch

    def always(result_of: Callable[[torch.Tensor, NewToken], torch.Tensor]) -> bool:
        return all(
            torch.allclose(answer[1], result_of(answer[0], token), rtol=1e-3, atol=1e-4)
            for token, answer in zip(cases, answers, strict=True)
        )

    said = f"{here} your weights are right. Your result is not what the model makes of them."
    if always(lambda weights, token: weights @ torch.vstack([token.old_keys, token.own_key])):
        return wrong("keys-carried", f"{said} You added up keys.", *KEYS_CARRIED)
    if always(lambda weights, token: weights[:-1] @ token.old_values):
        return wrong("own-left-out", f"{said} The new token's own value is not in it.", *OWN_LEFT_OUT)
    if always(lambda weights, token: torch.vstack([token.old_values, token.own_value])[weights.argmax()]):
        said = f"{said} It is the value of one position alone."
        return wrong("winner", said, "What do the other weights stand for?", *_NOT_SUMMED[1:])
    if always(lambda weights, token: torch.vstack([token.old_values, token.own_value]).mean(dim=0)):
        return wrong(
            "mean", f"{said} Each position counts as much as any other.", "What are the weights for?", *_NOT_SUMMED[1:]
        )
    if always(lambda weights, token: weights.flip(0) @ torch.vstack([token.old_values, token.own_value])) or always(
        lambda weights, token: weights @ torch.vstack([token.own_value, token.old_values])
    ):
        said = f"{said} Weights and values are in different orders."
        return wrong("order", said, "Whose weight is the first, and whose value?")
    return wrong("result", said, *_NOT_SUMMED)
