"""Chapter 03, pages: why lend pages, and what is in a page when you get it?"""

from __future__ import annotations

import inspect
import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn

from minikv.course.declare import Exercise, Option, Question, Verdict, error_of, ok, register, wrong

# Predictions

HOW_MANY = Question(
    "p-3.1",
    "448 slots. Every request announces up to 128 tokens and then uses 30. How many run at once: "
    "with one block each, and with pages of 16 slots?",
    {
        "A": Option(
            "3 and 3",
            "A page is lent when a token needs it. What a request only announced takes no page.",
        ),
        "B": Option(
            "3 and 14",
            "A block must be as long as the promise: 3 times 128 fits into 448. Pages follow what is really "
            "used: 30 tokens sit in 2 pages, and 14 times 2 pages are all 28.",
        ),
        "C": Option(
            "14 and 14",
            "A block cannot be cut to 30 slots. When it is handed out, nobody knows yet that 30 will do.",
        ),
        "D": Option(
            "3 and 28",
            "28 pages there are, but 30 tokens do not fit into one page of 16. They take two.",
        ),
    },
    answer="B",
)

WHAT_IS_INSIDE = Question(
    "p-3.2",
    "Ada's request ends and Ben's gets her pages. Ben has written nothing yet. What does page 3 hold?",
    {
        "A": Option(
            "zeros: freeing a page wipes it",
            "Nothing here wipes. Taking a page back changes one entry in a list. The numbers stay where they are.",
        ),
        "B": Option("Ada's numbers", "Lending changes who holds the page. It does not touch what is in the page."),
        "C": Option(
            "random numbers",
            "Memory does not decay. It holds what was written last, and that was Ada's.",
        ),
        "D": Option(
            "nothing: reading it would raise an error",
            "The pool is one large tensor that always exists. Every slot of it can be read at any time.",
        ),
    },
    answer="B",
)

CAN_BE_READ = Question(
    "p-3.3",
    "You have the numbers of a page and the model's weights, no text, and you may not run the model. "
    "How much of Ada's text can you get back?",
    {
        "A": Option(
            "nothing: the numbers are as good as encrypted",
            "Encryption needs a secret. Here everything that made the numbers out of the words is public.",
        ),
        "B": Option(
            "roughly what it was about",
            "That would be true for one vector a text. Here it is one vector a token, so the words come one by one.",
        ),
        "C": Option(
            "every token",
            "A value of layer 0 depends on its token alone. So each token has one, and you can look them all up.",
        ),
        "D": Option(
            "every token, but only from unrounded numbers",
            "The vectors of two tokens lie far apart. Rounding to 4 bits moves each a little, and the nearest "
            "token stays the same.",
        ),
    },
    answer="C",
)


# 3.1


def pages_and_empty(tokens: int, page_size: int) -> tuple[int, int]:
    """Pages that hold `tokens` tokens, and how many of their slots stay empty."""
    pages = -(-tokens // page_size)
    return pages, pages * page_size - tokens


_CASES = ((64, 64), (65, 64), (1, 64), (30, 16), (128, 16), (100, 64), (33, 16), (7, 1), (5, 8), (2**20 + 1, 64))
_HUGE = (2**60 + 1, 64)

_LAST_PAGE = (
    "What must be true of the number of pages, so that every token has a slot and no page is empty?",
    "A page that is half full is a whole page. Only a page without a single token is not needed.",
    "Page size 4. Draw the pages for 3, 4 and 5 tokens, and write the number of pages under each.",
)
_FULL_PAGE = (
    "How many slots of the last page are used, and how many are left?",
    "Used and empty slots together are all slots of the pages. You know two of these three numbers.",
    "Page size 4. For 3, 4 and 5 tokens: count the empty squares in your drawing.",
)


def _judge_pages(thing: Any) -> Verdict:
    answers = {case: _pair(thing(*case), case) for case in (*_CASES, _HUGE)}
    for answer in answers.values():
        if isinstance(answer, Verdict):
            return answer
    got: dict[tuple[int, int], tuple[Any, Any]] = {k: v for k, v in answers.items() if not isinstance(v, Verdict)}

    def always(part: int, guess: Callable[[int, int], Any]) -> bool:
        return all(got[case][part] == guess(*case) for case in _CASES)

    if not always(0, lambda n, p: pages_and_empty(n, p)[0]):
        if always(0, lambda n, p: n // p + 1):
            return wrong(
                "one-too-many", "64 tokens, page of 64: you took 2 pages, and the second is empty.", *_LAST_PAGE
            )
        if always(0, lambda n, p: n // p):
            return wrong(
                "rounded-down", "65 tokens, page of 64: you took 1 page, and one token has no slot.", *_LAST_PAGE
            )
        if always(0, lambda n, p: round(n / p)) or always(0, lambda n, p: int(n / p + 0.5)):
            return wrong(
                "rounded",
                f"65 tokens, page of 64: you took {got[65, 64][0]} page, and one token has no slot. "
                "You rounded to the nearest whole number.",
                "When is the nearest whole number too small?",
                "One token more than fits is enough to need a further page. Half a page is not the border.",
                "Page size 4. Divide 5 by 4 and round. Where does the fifth token go?",
            )
        return _first_difference(got, 0, "pages", _LAST_PAGE)
    if not always(1, lambda n, p: pages_and_empty(n, p)[1]):
        if always(1, lambda n, p: n % p):
            said = (
                "100 tokens, pages of 64: you say that 36 slots stay empty. These are the used ones of the last page."
            )
            return wrong("used-for-empty", said, *_FULL_PAGE)
        if always(1, lambda n, p: p - n % p):
            return wrong(
                "full-page-empty", "64 tokens, page of 64: you say that 64 slots of it stay empty.", *_FULL_PAGE
            )
        return _first_difference(got, 1, "empty slots", _FULL_PAGE)
    if got[_HUGE] != pages_and_empty(*_HUGE):
        return ok(
            "Pages needed. Right for every pool that exists. You divide with floats, and these cannot tell 2**53 "
            "from 2**53 + 1. Whole-number division has no such limit."
        )
    return ok()


def _pair(answer: object, case: tuple[int, int]) -> tuple[Any, Any] | Verdict:
    shape = "Give two whole numbers back: `return pages, empty`."
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        return wrong("shape", f"{case[0]} tokens, page of {case[1]}: you gave back {answer!r}, not two numbers.", shape)
    if not all(isinstance(number, int) for number in answer):
        said = f"{case[0]} tokens, page of {case[1]}: you gave back {answer[0]!r} and {answer[1]!r}."
        return wrong("not-whole", f"{said} Nobody can lend {float(answer[0])!r} pages.", shape)
    return answer[0], answer[1]


def _first_difference(
    got: dict[tuple[int, int], tuple[Any, Any]], part: int, name: str, hints: tuple[str, ...]
) -> Verdict:
    case = next(case for case in _CASES if got[case][part] != pages_and_empty(*case)[part])
    said = f"{case[0]} tokens, page of {case[1]}: you say {got[case][part]} {name}."
    return wrong(f"other {name}", f"{said} It is {pages_and_empty(*case)[part]}.", *hints)


# 3.2


class Allocator:
    """Lends pages, the one that has been free longest first."""

    def __init__(self, num_pages: int) -> None:
        self.unused = deque(range(num_pages))
        self.lent: set[int] = set()

    def allocate(self, n: int) -> list[int]:
        """Lend `n` pages, or raise and lend none."""
        if n > len(self.unused):
            raise MemoryError(f"{n} pages were asked for, {len(self.unused)} are free")
        grant = [self.unused.popleft() for _ in range(n)]
        self.lent.update(grant)
        return grant

    def free(self, pages: Sequence[int]) -> None:
        """Take pages back; raise for a page that is not lent."""
        for page in pages:
            self.lent.remove(page)
            self.unused.append(page)


class _Found(Exception):
    """Carries a verdict out of the middle of a judge."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.said)
        self.verdict = verdict


def _found(kind: str, said: str, *hints: str) -> NoReturn:
    raise _Found(wrong(kind, said, *hints))


_TWO_OWNERS = (
    "What did you look at before you lent this page? What could you have looked at?",
    "A page is either free or lent. Lending moves it from one side to the other, and never leaves it on both.",
    "A pool of 2 pages. Write down what is free and what is lent after each call: allocate(1), allocate(1).",
)
_ALL_OR_NOTHING = (
    "At which moment did you know that there are too few? What had you changed by then?",
    "Lend everything that was asked for, or nothing. So ask first whether it can be done, and then do it.",
    "A pool of 3 free pages. Play allocate(4) line by line, and write down what is free after each line.",
)
_FREED_TWICE = (
    "How does your code know that a page which comes back was out?",
    "free must be able to ask, for each page: is it lent right now? Keep something that answers this at once.",
    "A pool of 2 pages. Play allocate(1), free of that page, free of it again, allocate(1), allocate(1). Who has what?",
)
_OWN_LIST = (
    "Who else holds the very list that your pool works with?",
    "A list that two parts share can be changed by both. Give out a list that nobody else keeps, and keep your own.",
    "Try it: a = [1, 2]; b = a; b.append(3). What is a now? Which of your lines does the same as `b = a`?",
)
_SLOW = (
    "Which line looks at many pages, or moves many, in order to handle one?",
    "`in`, `remove`, `index`, `pop(0)`, `min` and slices go through a list. Which structure gives or finds one thing "
    "at once, whatever its size?",
    "Pool of 4 pages, then of 8. Count how many entries one allocate(1) touches, those that Python moves included.",
)


def _judge_allocator(thing: Any) -> Verdict:
    try:
        if not callable(thing):
            _found(
                "not-a-class",
                "you handed over one pool, and the check builds its own.",
                'Hand over the class: check("ex-3.2", Allocator).',
            )
        for look in (_lends, _says_no, _takes_back, _notices, _shares_nothing, _stays_fast, _runs_in_engine):
            look(thing)
    except _Found as found:
        return found.verdict
    if _wipes(thing):
        return ok(
            "Allocator. Correct, and it wipes, which nobody asked for. 16 tokens of SmolLM2 are 737,280 bytes "
            "to overwrite, where your pool only had to note one number. Would it have saved anybody? Chapter 10."
        )
    return ok()


def _granted(pool: Any, n: int, total: int, lent: Sequence[int] = ()) -> list[int]:
    """Ask for pages and look at what comes."""
    return _looked_at(pool.allocate(n), n, total, lent)


def _looked_at(answer: Any, n: int, total: int, lent: Sequence[int]) -> list[int]:
    if answer is None:
        _found("no-return", f"allocate({n}) gave nothing back.", "Who needs to know which pages were lent?")
    if isinstance(answer, (int, str)) or not hasattr(answer, "__iter__"):
        _found("not-a-list", f"allocate({n}) gave back {answer!r}.", "Give a list of page numbers, also for one page.")
    pages = list(answer)
    for page in pages:
        if type(page) is not int:
            said = f"allocate({n}) gave back {page!r}, of type {type(page).__name__}."
            _found("not-int", said, "Page numbers are plain Python ints. Where do yours come from?")
        if not 0 <= page < total:
            _found(
                "no-such-page", f"a pool of {total} pages lent page {page}.", "What are the first and the last page?"
            )
    if len(pages) != n:
        said = f"allocate({n}) gave back {len(pages)} pages: {pages[:9]}."
        _found("wrong-count", said, "How many pages does the caller count on?")
    seen = set(lent)
    for page in pages:
        if page in seen:
            _found("lent-twice", f"page {page} was lent twice and now has two owners.", *_TWO_OWNERS)
        seen.add(page)
    return pages


def _try(call: Callable[[Any], Any], argument: Any) -> tuple[bool, Any]:
    """Whether a call raised, and what it gave back if not."""
    answers: list[Any] = []
    raised = error_of(lambda: answers.append(call(argument))) is not None
    return raised, answers[0] if answers else None


def _drained(pool: Any, total: int) -> list[int]:
    """Lend page after page until the pool says no; stops when it should have long said so."""
    pages: list[int] = []
    while len(pages) < 2 * total + 2:
        raised, grant = _try(pool.allocate, 1)
        if raised or not hasattr(grant, "__iter__") or not (grant := list(grant)):
            break
        pages.extend(grant)
    return pages


def _lends(make: Any) -> None:
    pool = make(8)
    given = pool.allocate(3)
    first = _looked_at(given, 3, 8, ())
    more = pool.allocate(4)
    if more is given:
        _found("own-list", "two calls of allocate gave back the very same list. It is the pool's own.", *_OWN_LIST)
    second = _looked_at(more, 4, 8, first)
    raised, last = _try(pool.allocate, 1)
    if raised:
        said = "one page was free, allocate(1) asked for one, and it raised."
        _found("too-strict", said, "With how many free pages may you still lend n?", "Exactly enough is enough.")
    _looked_at(last, 1, 8, first + second)


def _says_no(make: Any) -> None:
    for total, held, asked in ((8, 5, 4), (6, 6, 1), (4, 0, 5)):
        pool = make(total)
        lent = _granted(pool, held, total) if held else []
        left = total - held
        raised, got = _try(pool.allocate, asked)
        if not raised:
            got = list(got) if hasattr(got, "__iter__") else got
            said = f"{asked} pages were asked for, {left} were free, and nothing was raised: you gave back {got!r}."
            if isinstance(got, list) and 0 < len(got) < asked:
                _found("short-grant", said, *_ALL_OR_NOTHING)
            _found("no-exception", said, *_ALL_OR_NOTHING)
        rest = _drained(pool, total)
        if len(rest) < left:
            gone = left - len(rest)
            said = f"allocate({asked}) raised, as it should with {left} free. Now {_count(gone)} neither free nor lent."
            _found("partial", said, *_ALL_OR_NOTHING)
        if sorted(rest + lent) != list(range(total)):
            _found("lent-twice", f"after an allocate({asked}) that raised, a page was lent twice.", *_TWO_OWNERS)


def _count(pages: int) -> str:
    return "1 page is" if pages == 1 else f"{pages} pages are"


def _takes_back(make: Any) -> None:
    pool = make(8)
    first, second = _granted(pool, 3, 8), _granted(pool, 5, 8)
    for back in ([*second, *first][::-1], [3], [0, 7], list(range(8))):
        pool.free(list(back))
        again = _drained(pool, 8)
        if len(again) < len(back):
            said = f"{len(back)} pages came back, and {len(again)} of them could be lent again."
            _found("lost", said, "Where does a page go in your free?", "What comes back must be free again, all of it.")
        if sorted(again) != sorted(back):
            twice = next((page for page in again if again.count(page) > 1 or page not in back), again[0])
            _found("lent-twice", f"page {twice} was lent twice and now has two owners.", *_TWO_OWNERS)


def _notices(make: Any) -> None:
    pool = make(8)
    lent = _granted(pool, 3, 8)
    pool.free(lent[:1])
    said_no, _ = _try(pool.free, lent[:1])
    _no_two_owners(pool, 8, lent[1:])
    if not said_no:
        said = f"page {lent[0]} was freed twice, and the second time passed without a word."
        _found("silent-double-free", said, *_FREED_TWICE)
    pool = make(8)
    lent = _granted(pool, 2, 8)
    _try(pool.free, [lent[0], lent[0]])
    _no_two_owners(pool, 8, lent[1:])
    for stranger in (99, -1, -8):
        pool = make(8)
        _granted(pool, 8, 8)
        if not _try(pool.free, [stranger])[0]:
            said = f"a pool of 8 pages took page {stranger} back, which it never lent."
            _found("foreign-page", said, "Which numbers can a page have?", *_FREED_TWICE[1:])


def _no_two_owners(pool: Any, total: int, lent: Sequence[int]) -> None:
    pages = [*_drained(pool, total), *lent]
    twice = next((page for page in pages if pages.count(page) > 1), None)
    if twice is not None:
        said = f"page {twice} was freed twice, and then lent twice: page {twice} now has two owners."
        _found("double-free", said, *_FREED_TWICE)


def _shares_nothing(make: Any) -> None:
    pool = make(8)
    for _ in range(2):
        given = pool.allocate(3)
        pages = list(given)
        if isinstance(given, list):
            given[:] = [*given, 90, 91]
        rest = _drained(pool, 8)
        _unshared(sorted([*pages, *rest]), "I appended to the list that you gave me")
        back = list(rest)
        pool.free(back)
        back.append(92)
        said = "I appended to the list that you gave me, and now you do not know your pages."
        if _try(pool.free, list(pages))[0]:
            _found("own-list", said, *_OWN_LIST)
        again = _drained(pool, 8)
        _unshared(sorted(again), "I appended to the list that I gave back to you")
        pool.free(again)


def _unshared(pages: list[int], did: str) -> None:
    if pages != list(range(8)):
        grew = "grew" if len(pages) > 8 or max(pages, default=0) > 7 else "changed"
        _found("own-list", f"{did}, and your pool {grew}.", *_OWN_LIST)


# Small pool, large pool, rounds, and the ratio that is too much. The first sizes let nothing run for long; right
# designs of any kind stay below 1.5 at all of them, `pop(0)` shows at the last.
_SIZES = ((64, 1024, 8, 12.0), (256, 8192, 16, 6.0), (1024, 131_072, 32, 4.0))


def _stays_fast(make: Any) -> None:
    for small, large, rounds, most in _SIZES:
        for _attempt in range(3):  # a busy machine may be slow once
            one, other = _Timed(make, small), _Timed(make, large)
            for _ in range(20):
                one.measure(rounds)
                other.measure(rounds)
            if other.best < most * one.best:
                break
        else:
            said = "the pages are right, but the larger the pool, the longer each page takes to lend or to take back."
            _found("slow", said, *_SLOW)


class _Timed:
    """A half lent pool, and the best time of one round of lending and taking back."""

    def __init__(self, make: Any, num_pages: int) -> None:
        self.pool = make(num_pages)
        self.lent = deque(self.pool.allocate(num_pages // 2))
        self.best = math.inf

    def measure(self, rounds: int) -> None:
        """Lend a page; take back in turn the one lent first and the one lent last."""
        pool, lent = self.pool, self.lent
        start = time.perf_counter()
        for turn in range(rounds):
            lent.extend(pool.allocate(1))
            pool.free([lent.popleft() if turn % 2 else lent.pop()])
        self.best = min(self.best, (time.perf_counter() - start) / rounds)


def _runs_in_engine(make: Any) -> None:
    from minikv import Engine, SamplingParams

    model = _small(2)
    prompts = [[(7 * i + j) % 250 for j in range(5 + 3 * i)] for i in range(6)]
    answers = []
    for allocator in ({}, {"allocator": make}):
        engine = Engine(model, page_size=4, num_pages=24, **allocator)
        done = engine.generate(prompts, SamplingParams(max_tokens=6, ignore_eos=True))
        broken = next((each.error for each in done if each.error is not None), None)
        if broken is not None:
            _found("engine", f"inside the engine: {broken}", "Which of your calls gave the engine this?")
        engine.check()
        answers.append([each.token_ids for each in done])
    if answers[0] != answers[1]:
        _found("engine", "inside the engine the answers changed.", "Which page went to two requests?")


_WIPES = re.compile(r"\b(zero_|zeros|zeros_like|fill_|\w*wipe\w*|\w*erase\w*|\w*scrub\w*)\b", re.IGNORECASE)


def _wipes(thing: Any) -> bool:
    """Whether the source of `free` looks as if it overwrote something. Only adds a remark."""
    try:
        return bool(_WIPES.search(inspect.getsource(thing.free)))
    except (OSError, TypeError, AttributeError):
        return False


# 3.3


def read_page(pool: Any, page: int, hf: Any) -> list[int]:
    """Token ids of what lies in a page: the nearest entry in a list of all tokens' values."""
    import torch

    layer = hf.model.layers[0]
    known = layer.self_attn.v_proj(layer.input_layernorm(hf.get_input_embeddings().weight))
    nearest: list[int] = torch.cdist(pool.values[0][page].flatten(1), known).argmin(dim=1).tolist()
    return nearest


_KEYS = (
    "Does a token have the same key at position 3 and at position 40? And the same value?",
    "Keys are turned by their position, values are not. Which of them can stand in a list with one entry a token?",
    "Write the word `the` twice into one prompt. Compare its two keys in layer 0, and then its two values.",
)
_DEEPER = (
    "What has a token's vector met on its way to this layer?",
    "From layer 1 on a value has mixed in the tokens before it. In layer 0 nothing is mixed in yet.",
    "Two prompts, `red house` and `blue house`. In which layers does `house` have the same value in both?",
)
_NORM = (
    "Does the layer take an embedding as it is?",
    "In front of its projections a layer has a norm that scales every vector. Each page was filled behind that norm.",
    "Take one token and layer 0. Compute its value with and without the norm in front, and compare both with the page.",
)
_EMBEDDINGS = (
    "A slot holds a value. What did you hold against it?",
    "Compare like with like: take every token the same way that the layer takes it, as far as the value.",
    "One token: print the shape of its embedding and of its value in layer 0. What turns one into the other?",
)
_NEAREST = (
    "You look at the right numbers. How do you decide which token is the closest?",
    "A long vector has a large product with everything. Close means: the difference is small.",
    "Two numbers, 1 and 10, and you look for the one closest to 1. Compare the products 1*1 and 1*10.",
)


def _judge_reading(thing: Any) -> Verdict:
    return _judge_reading_with(thing, _small(2))


def _judge_reading_with(thing: Any, model: Any) -> Verdict:
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
                    return wrong("embeddings", said, *_EMBEDDINGS)
                raise
            if isinstance(answer, str):
                return wrong(
                    "text",
                    f"you gave back text: {answer[:20]!r}.",
                    "Give the token ids. Turning them into text comes later.",
                )
            found = reader.found(answer, page)
            if found is None:
                said = f"page {page} has {reader.size} slots, and you gave back {_shown(answer)}."
                return wrong("shape", said, "Give a list with one token id for each slot of the page.")
            if found < reader.size:
                return _why(reader, page, f"you found {found} of the {reader.size} tokens in page {page}.")
    return ok()


def _shown(answer: object) -> str:
    text = " ".join(repr(answer).split())
    return text if len(text) <= 60 else f"{text[:60]}..."


def _takes_embeddings(thing: Any) -> bool:
    """Whether the code would run if values were as wide as embeddings, and never turns one into the other."""
    reader = _Reader(thing, _small(4))
    try:
        return not any(reader.minds(reader.weights(f"self_attn.{name}_proj.weight"), 3) for name in "vk")
    except Exception:
        return False


def _why(reader: _Reader, page: int, said: str) -> Verdict:
    """Change one thing at a time and see whether the answer follows: so we know what the code looks at."""
    pool, layers = reader.pool, range(len(reader.pool.values))
    if reader.minds(pool.keys, page):
        return wrong("keys", f"{said} You read keys.", *_KEYS)
    if not reader.minds(pool.values, page):
        return wrong(
            "not-read", f"{said} Your answer is the same whatever the pages hold.", "Where is the page in your code?"
        )
    if reader.minds(pool.values[1:], page):
        layer = next(layer for layer in layers if layer and reader.minds([pool.values[layer]], page))
        return wrong("layer", f"{said} You read values of layer {layer}.", *_DEEPER)
    if not reader.minds([pool.values[0][page]], page):
        return wrong(
            "page", f"{said} You read another page.", "A layer's tensor has four axes. Which one counts the pages?"
        )
    if not reader.minds(reader.weights("self_attn.v_proj.weight"), page):
        if reader.minds(reader.weights("self_attn.k_proj.weight"), page):
            return wrong("keys", f"{said} You compared values with keys.", *_KEYS)
        if reader.minds([w for layer in layers for w in reader.weights("self_attn.v_proj.weight", layer)], page):
            return wrong(
                "layer", f"{said} The page is of layer 0, and your list of tokens is of a deeper one.", *_DEEPER
            )
        return wrong("embeddings", f"{said} You compared values with embeddings.", *_EMBEDDINGS)
    if not reader.minds(reader.weights("input_layernorm.weight"), page):
        return wrong("norm", f"{said} The norm of layer 0 plays no part in your answer.", *_NORM)
    return wrong("nearest", f"{said} The numbers that you look at are the right ones.", *_NEAREST)


class _Reader:
    """A pool with a request's pages, freed and never wiped, and the learner's way to read one."""

    size = 8

    def __init__(self, thing: Any, model: Any) -> None:
        from minikv import Engine, SamplingParams

        self.thing, self.model = thing, model
        self.before: dict[int, str] = {}
        ids = [(37 * position + 11) % 251 for position in range(6 * self.size)]
        engine = Engine(model, page_size=self.size, num_pages=7)
        engine.generate([ids], SamplingParams(max_tokens=1, ignore_eos=True))
        self.pool = engine.pool
        pages = [event.page for event in engine.trace if type(event).__name__ == "Allocate"]  # type: ignore[attr-defined]
        self.inside = {page: ids[i * self.size : (i + 1) * self.size] for i, page in enumerate(pages)}

    def read(self, page: int) -> Any:
        """The learner's answer, as plain numbers if it was an array."""
        answer = self.thing(self.pool, page, self.model.hf)
        return answer.tolist() if hasattr(answer, "tolist") else answer

    def found(self, answer: Any, page: int) -> int | None:
        """How many tokens are right; None if this is not one id for each slot."""
        try:
            ids = [int(token) for token in answer]
        except (TypeError, ValueError, RuntimeError):
            return None
        right = self.inside[page]
        return sum(map(int.__eq__, ids, right)) if len(ids) == len(right) else None

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


@cache
def _small(kv_heads: int) -> Any:
    """A small random model. Its norms differ from each other, so that no norm can stand in for another."""
    import torch

    from minikv import load_model
    from minikv.models.tiny import tiny_random

    hf, tokenizer = tiny_random(layers=6, kv_heads=kv_heads, seed=3)
    random = torch.Generator().manual_seed(3)
    for name, weight in hf.named_parameters():
        if "norm" in name:
            weight.data.copy_(torch.randn(weight.shape, generator=random).exp())
    return load_model(hf, tokenizer)


PAGES = Exercise(
    "ex-3.1",
    "Pages needed",
    minutes=5,
    lines=2,
    done_when="every token has a slot, no page is without one, and you know how many slots stay empty",
    idea="A page is lent whole, so the last one is rounded up, and what it has too much stays empty.",
    judge=_judge_pages,
)
ALLOCATOR = Exercise(
    "ex-3.2",
    "Allocator",
    minutes=25,
    lines=12,
    done_when="every page is free or lent, never both, and a larger pool is not slower",
    idea="It ran inside the engine, with the same answers as the engine's own.",
    judge=_judge_allocator,
    seconds=20.0,
)
READING = Exercise(
    "ex-3.3",
    "Read a freed page",
    minutes=15,
    lines=4,
    done_when="every token of a freed page is found",
    idea="A value of layer 0 belongs to one token. A page of values is a page of text.",
    judge=_judge_reading,
)

REFERENCE = {"ex-3.1": pages_and_empty, "ex-3.2": Allocator, "ex-3.3": read_page}

register(HOW_MANY, WHAT_IS_INSIDE, CAN_BE_READ, PAGES, ALLOCATOR, READING)
