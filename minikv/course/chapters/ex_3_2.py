"""Exercise 3.2, an allocator: the reference answer, and what is said of others."""

from __future__ import annotations

import inspect
import itertools
import math
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from minikv.course.chapters.small import small_model
from minikv.course.declare import Verdict, error_of, ok, wrong


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
ALL_OR_NOTHING = (
    "At which moment did you know that there are too few? What had you changed by then?",
    "Lend everything that was asked for, or nothing. So ask first whether it can be done, and then do it.",
    "A pool of 3 free pages. Play allocate(4) line by line, and write down what is free after each line.",
)
_TOO_FEW = ("Who learns that there were too few?", *ALL_OR_NOTHING[1:])
FREED_TWICE = (
    "How does your code know that a page which comes back was out?",
    "free must be able to ask, for each page: is it lent right now? Keep something that answers this at once.",
    "A pool of 2 pages. Play allocate(1), free of that page, free of it again, allocate(1), allocate(1). Who has what?",
)
OWN_LIST = (
    "Who else holds the very list that your pool works with?",
    "A list that two parts share can be changed by both. Give out a list that nobody else keeps, and keep your own.",
    "Try it: a = [1, 2]; b = a; b.append(3). What is a now? Which of your lines does the same as `b = a`?",
)
CHANGES = (
    "Whose list is it that comes to free, and who needs it afterwards?",
    "The caller's list says what the caller held. Look through it and leave it as it is; to take one apart, copy it.",
    "a = [3, 1], then pool.free(a). What should a be now? Which of your lines changes it?",
)
SHARED = (
    "Who else uses the very thing in which you note what is lent?",
    "What is written in the class, outside of its functions, exists once, for all pools. What is set on `self` in "
    "`__init__` belongs to one pool.",
    "Make two pools, a and b. Lend a page from a. Print what b believes to be lent.",
)
_GRANTS = (
    "Must the pages of one call of free come from one call of allocate?",
    "A page is lent or not lent, one by one. From which call it came does not matter.",
    "A pool of 4. allocate(1), allocate(2), then free of all three in one call. What does your code look for?",
)
SLOW = (
    "Which line looks at many pages, or moves many, in order to handle one?",
    "`in`, `remove`, `index`, `pop(0)`, `min` and slices go through a list. Which structure gives or finds one thing "
    "at once, whatever its size?",
    "Pool of 4 pages, then of 8. Count how many entries one allocate(1) touches, those that Python moves included.",
)


def judge_allocator(thing: Any) -> Verdict:
    try:
        if not callable(thing):
            _found(
                "not-a-class",
                "you handed over one pool, and the check builds its own.",
                'Hand over the class: check("ex-3.2", Allocator).',
            )
        for look in (
            _lends,
            _says_no,
            _takes_back,
            _notices,
            _keeps_apart,
            _shares_nothing,
            _leaves_alone,
            _stays_fast,
            _runs_in_engine,
        ):
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
        _found(
            "not-a-list",
            f"allocate({n}) gave back {answer!r}.",
            "Give a list or another collection, also for one page.",
        )
    pages = list(itertools.islice(answer, 2 * total + n + 2))  # it may have no end
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
        if raised or not hasattr(grant, "__iter__") or not (grant := list(itertools.islice(grant, 2 * total + 2))):
            break
        pages.extend(grant)
    return pages


def _lends(make: Any) -> None:
    pool = make(8)
    given = pool.allocate(3)
    first = _looked_at(given, 3, 8, ())
    more = pool.allocate(4)
    if more is given:
        _found("own-list", "two calls of allocate gave back the very same list. It is the pool's own.", *OWN_LIST)
    second = _looked_at(more, 4, 8, first)
    _looked_at(pool.allocate(0), 0, 8, first + second)
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
            got = list(itertools.islice(got, 2 * total + 2)) if hasattr(got, "__iter__") else got
            said = f"{asked} pages were asked for, {left} were free, and nothing was raised: you gave back {got!r}."
            if isinstance(got, list) and 0 < len(got) < asked:
                _found("short-grant", said, *_TOO_FEW)
            _found("no-exception", said, *_TOO_FEW)
        rest = _drained(pool, total)
        if len(rest) < left:
            gone = left - len(rest)
            said = f"allocate({asked}) raised, as it should with {left} free. Now {_count(gone)} neither free nor lent."
            _found("partial", said, *ALL_OR_NOTHING)
        if sorted(rest + lent) != list(range(total)):
            _found("lent-twice", f"after an allocate({asked}) that raised, a page was lent twice.", *_TWO_OWNERS)


def _count(pages: int) -> str:
    return "1 page is" if pages == 1 else f"{pages} pages are"


def _takes_back(make: Any) -> None:
    pool = make(8)
    first, second = _granted(pool, 3, 8), _granted(pool, 5, 8)
    for back in ([*second, *first][::-1], [3], [0, 7], list(range(8))):
        error = error_of(lambda pool=pool, back=back: pool.free(list(back)))  # type: ignore[misc]
        if error is not None:
            how = "from two grants" if len(back) > 1 else "out of a larger grant"
            said = f"free() of pages {how}, all lent, raised {type(error).__name__}: {error}"
            _found("grants", said, *_GRANTS)
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
        _found("silent-double-free", said, *FREED_TWICE)
    pool = make(8)
    lent = _granted(pool, 2, 8)
    _try(pool.free, [lent[0], lent[0]])
    _no_two_owners(pool, 8, lent[1:])
    for stranger in (99, -1, -8):
        pool = make(8)
        _granted(pool, 8, 8)
        if not _try(pool.free, [stranger])[0]:
            said = f"a pool of 8 pages took page {stranger} back, which it never lent."
            first = f"How do you know that {stranger} is out?" if stranger > 0 else "Which numbers can a page have?"
            _found("foreign-page", said, first, *FREED_TWICE[1:])


def _no_two_owners(pool: Any, total: int, lent: Sequence[int]) -> None:
    pages = [*_drained(pool, total), *lent]
    twice = next((page for page in pages if pages.count(page) > 1), None)
    if twice is not None:
        said = f"page {twice} was freed twice, and then lent twice: page {twice} now has two owners."
        _found("double-free", said, *FREED_TWICE)


def _keeps_apart(make: Any) -> None:
    """A server may have two pools: they must not know of each other."""
    one, other, third = make(4), make(4), make(4)
    _granted(one, 4, 4)
    raised, got = _try(other.allocate, 4)
    if raised or sorted(got) != list(range(4)):
        _found(
            "shared",
            "I made two pools of 4 pages. When the first had lent all of its own, the second could not.",
            *SHARED,
        )
    if not _try(third.free, [0])[0]:
        said = "I made three pools, and only the others lent a page 0. The third took page 0 back all the same."
        _found("shared", said, *SHARED)


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
            _found("own-list", said, *OWN_LIST)
        again = _drained(pool, 8)
        _unshared(sorted(again), "I appended to the list that I gave back to you")
        pool.free(again)


def _leaves_alone(make: Any) -> None:
    """What was given out stays as it is, and so does what is handed in."""
    pool = make(8)
    given = pool.allocate(3)
    before = list(given)
    pool.allocate(3)
    if list(given) != before:
        said = f"allocate(3) gave back {before}. After the next allocate(3) the first answer reads {list(given)}."
        _found("own-list", said, *OWN_LIST)
    back = [*before[1:], before[0]]
    pool.free(back)
    if back != [*before[1:], before[0]]:
        said = f"the list that I gave back to you was {[*before[1:], before[0]]}, and after your free it is {back}."
        _found("changes-list", said, *CHANGES)
    error = error_of(lambda: pool.free([]))
    if error is not None:
        said = f"free of an empty list raised {type(error).__name__}: {error}"
        _found("nothing-back", said, "Who is wronged if no page comes back?", "It asks for nothing to be done.")


def _unshared(pages: list[int], did: str) -> None:
    if pages != list(range(8)):
        grew = "grew" if len(pages) > 8 or max(pages, default=0) > 7 else "changed"
        _found("own-list", f"{did}, and your pool {grew}.", *OWN_LIST)


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
            _found("slow", said, *SLOW)


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

    model = small_model(2)
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
