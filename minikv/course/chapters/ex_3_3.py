"""Exercise 3.3, read a freed page: the reference answer, and what is said of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minikv.course.chapters.small import small_model
from minikv.course.declare import Verdict, ok, wrong


def read_page(pool: Any, page: int, hf: Any) -> list[int]:
    """Token ids of what lies in a page: the nearest entry in a list of all tokens' values."""
    import torch

    layer = hf.model.layers[0]
    known = layer.self_attn.v_proj(layer.input_layernorm(hf.get_input_embeddings().weight))
    nearest: list[int] = torch.cdist(pool.values[0][page].flatten(1), known).argmin(dim=1).tolist()
    return nearest


KEYS = (
    "Does a token have the same key at position 3 and at position 40? And the same value?",
    "A key is rotated by an angle that depends on its position, a value is not. Which of them can stand in a list "
    "with one entry a token?",
    "Write the word `the` twice into one prompt. Compare its two keys in layer 0, and then its two values.",
)
DEEPER = (
    "What has a token's vector met on its way to this layer?",
    "From layer 1 on a value has mixed in the tokens before it. In layer 0 nothing is mixed in yet.",
    "Two prompts, `red house` and `blue house`. In which layers does `house` have the same value in both?",
)
NORM = (
    "Does the layer take an embedding as it is?",
    "In front of its projections a layer has a norm that scales every vector. Each page was filled behind that norm.",
    "Take one token and layer 0. Compute its value with and without the norm in front, and compare both with the page.",
)
EMBEDDINGS = (
    "A slot holds a value. What did you hold against it?",
    "Compare like with like: take every token the same way that the layer takes it, as far as the value.",
    "One token: print the shape of its embedding and of its value in layer 0. What turns one into the other?",
)
_NEAREST = (
    "You look at the right numbers. How do you decide which token is the closest?",
    "A long vector has a large product with everything. Close means: the difference is small.",
    "Two numbers, 1 and 10, and you look for the one closest to 1. Compare the products 1*1 and 1*10.",
)


def judge_reading(thing: Any) -> Verdict:
    return judge_reading_with(thing, small_model(2))


def judge_reading_with(thing: Any, model: Any) -> Verdict:
    """Judge with any model whose layers look like Llama's."""
    import torch

    with torch.no_grad():
        reader = _Reader(thing, model)
        for page in (3, 1):
            try:
                answer = reader.read(page)
            except (RuntimeError, ValueError, IndexError) as error:
                if isinstance(error, NotImplementedError):
                    raise
                if _takes_embeddings(thing):
                    width = reader.pool.values[0][page].flatten(1).shape[1]
                    said = (
                        f"you compared a value with an embedding: {width} numbers against "
                        f"{model.hf.config.hidden_size} here, 192 against 576 in SmolLM2."
                    )
                    return wrong("embeddings", said, *EMBEDDINGS)
                raise
            if isinstance(answer, str):
                return wrong(
                    "text",
                    f"you gave back text: {answer[:20]!r}.",
                    "Give the token ids. Turning them into text comes later.",
                )
            if reader.touched:
                said = f"page {page} was read, and then held other numbers than before. Somebody may need them."
                return wrong("changes-the-pool", said, "Which line of yours writes? Looking needs none.")
            found = reader.found(answer, page)
            if found is None:
                said = f"page {page} has {reader.size} slots, and you gave back {_shown(answer)}."
                return wrong("shape", said, "Give a list with one token id for each slot of the page.")
            if found < reader.size:
                return _why(reader, page, f"you found {found} of the {reader.size} tokens in page {page}.")
            if not isinstance(reader.given, list | tuple) or any(type(token) is not int for token in reader.given):
                what = f"a list of {type(reader.given[0]).__name__}" if isinstance(reader.given, list | tuple) else None
                said = f"the tokens are right, but you gave back {what or 'a ' + type(reader.given).__name__}."
                return wrong("not-a-list", said, "Give a list of plain ints. `.tolist()` makes one of a tensor.")
        return _with_odd_slots(reader, 3) or ok()


ODD = (
    "What does your code do with a slot whose numbers are in no list?",
    "Do not look for the same numbers. Look for the closest, whatever their distance is: there is always one.",
    "Three tokens with the values 1, 5 and 9. Which is a slot that holds 5.2? And one that holds 0?",
)


def _with_odd_slots(reader: _Reader, page: int) -> Verdict | None:
    """Read a page that was rounded a little, as half precision does, and one whose last slot was never written."""
    import torch

    stored = reader.pool.values[0][page]
    kept = stored.clone()
    noise = torch.randn(stored.shape, generator=torch.Generator().manual_seed(5)) * kept.std() / 200
    try:
        stored.add_(noise)
        if reader.found_whatever(page) != reader.size:
            return wrong("exact", f"page {page} was rounded a little, and you no longer found its tokens.", *ODD)
        stored.copy_(kept)
        stored[-1] = 0.0
        if reader.found_whatever(page) < reader.size - 1:
            return wrong("empty-slot", f"the last slot of page {page} was never written. It holds zeros.", *ODD)
    finally:
        stored.copy_(kept)
    return None


def _shown(answer: object) -> str:
    text = " ".join(repr(answer).split())
    return text if len(text) <= 60 else f"{text[:60]}..."


def _takes_embeddings(thing: Any) -> bool:
    """Whether the code would run if values were as wide as embeddings, and never turns one into the other."""
    reader = _Reader(thing, small_model(4))
    try:
        return not any(reader.minds(reader.weights(f"self_attn.{name}_proj.weight"), 3) for name in "vk")
    except Exception:
        return False


def _why(reader: _Reader, page: int, said: str) -> Verdict:
    """Change one thing at a time and see whether the answer follows: so we know what the code looks at."""
    pool, layers = reader.pool, range(len(reader.pool.values))
    if reader.minds(pool.keys, page):
        return wrong("keys", f"{said} You read keys.", *KEYS)
    if not reader.minds(pool.values, page):
        return wrong(
            "not-read", f"{said} Your answer is the same whatever the pages hold.", "Where is the page in your code?"
        )
    if reader.minds(pool.values[1:], page):
        layer = next(layer for layer in layers if layer and reader.minds([pool.values[layer]], page))
        return wrong("layer", f"{said} You read values of layer {layer}.", *DEEPER)
    if not reader.minds([pool.values[0][page]], page):
        return wrong(
            "page", f"{said} You read another page.", "A layer's tensor has four axes. Which one counts the pages?"
        )
    if not reader.minds(reader.weights("self_attn.v_proj.weight"), page):
        if reader.minds(reader.weights("self_attn.k_proj.weight"), page):
            return wrong("keys", f"{said} You compared values with keys.", *KEYS)
        if reader.minds([w for layer in layers for w in reader.weights("self_attn.v_proj.weight", layer)], page):
            return wrong(
                "layer", f"{said} The page is of layer 0, and your list of tokens is of a deeper one.", *DEEPER
            )
        return wrong("embeddings", f"{said} You compared values with embeddings.", *EMBEDDINGS)
    if not reader.minds(reader.weights("input_layernorm.weight"), page):
        return wrong("norm", f"{said} The norm of layer 0 plays no part in your answer.", *NORM)
    return wrong("nearest", f"{said} The numbers that you look at are the right ones.", *_NEAREST)


class _Reader:
    """A pool with a request's pages, freed and never wiped, and the learner's way to read one."""

    size = 8

    def __init__(self, thing: Any, model: Any) -> None:
        from minikv import Engine, SamplingParams

        self.thing, self.model = thing, model
        self.given: Any = None
        self.touched = False
        self.before: dict[int, str] = {}
        ids = [(37 * position + 11) % 251 for position in range(6 * self.size)]
        engine = Engine(model, page_size=self.size, num_pages=7)
        engine.generate([ids], SamplingParams(max_tokens=1, ignore_eos=True))
        self.pool = engine.pool
        pages = [event.page for event in engine.trace if type(event).__name__ == "Allocate"]  # type: ignore[attr-defined]
        self.inside = {page: ids[i * self.size : (i + 1) * self.size] for i, page in enumerate(pages)}

    def read(self, page: int) -> Any:
        """The learner's answer, as plain numbers if it was an array."""
        before = [tensor.clone() for tensor in (*self.pool.keys, *self.pool.values)]
        answer = self.given = self.thing(self.pool, page, self.model.hf)
        after = (*self.pool.keys, *self.pool.values)
        self.touched = not all(map(_equal, before, after))
        return answer.tolist() if hasattr(answer, "tolist") else answer

    def found(self, answer: Any, page: int) -> int | None:
        """How many tokens are right; None if this is not one id for each slot."""
        try:
            ids = [int(token) for token in answer]
        except (TypeError, ValueError, RuntimeError):
            return None
        right = self.inside[page]
        return sum(map(int.__eq__, ids, right)) if len(ids) == len(right) else None

    def found_whatever(self, page: int) -> int:
        """How many tokens are right; 0 if there is no answer at all."""
        try:
            return self.found(self.read(page), page) or 0
        except (IndexError, ValueError, RuntimeError, TypeError, KeyError):
            return 0

    def weights(self, name: str, layer: int = 0) -> list[Any]:
        """One of a layer's weights."""
        return [self.model.hf.model.layers[layer].get_parameter(name)]

    def minds(self, tensors: list[Any], page: int) -> bool:
        """Whether the answer changes when these numbers do."""
        if page not in self.before:
            self.before[page] = _comparable(self.read(page))
        with _changed(tensors):
            try:
                return _comparable(self.read(page)) != self.before[page]
            except Exception:
                return True


def _equal(one: Any, other: Any) -> bool:
    return bool((one == other).all())


def _comparable(answer: Any) -> str:
    return repr([int(token) for token in answer])


@contextmanager
def _changed(tensors: list[Any]) -> Iterator[None]:
    import torch

    kept = [tensor.clone() for tensor in tensors]
    noise = torch.Generator().manual_seed(1)
    for tensor in tensors:
        tensor.copy_(torch.randn(tensor.shape, generator=noise).exp())
    try:
        yield
    finally:
        for tensor, old in zip(tensors, kept, strict=True):
            tensor.copy_(old)
