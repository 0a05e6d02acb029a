"""What a learner's attention reads, and what it makes of it: the verdicts that exercises 4.2 and 4.3 share."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

from minikv.course.chapters.paged import (
    NAN,
    NOISE,
    ZEROS,
    Attend,
    Call,
    answer_or_none,
    differ,
    made_up,
    right,
    slots_that_matter,
)
from minikv.course.chapters.raised import explain_error
from minikv.course.chapters.small import small_model
from minikv.course.chapters.wrong_numbers import explain_numbers, zero_score
from minikv.course.declare import Verdict, wrong
from minikv.errors import BrokenRule

LAST_PAGE = (
    "How many tokens does the last page hold? And how many of its slots did your code look at?",
    "A page is lent whole and written slot by slot. How far it is written stands in one number that you were given.",
    "Page size 4, table 5, 3, six tokens written. Draw the eight slots, and cross out those that nobody wrote for you. "
    "Which slots does your code look at?",
)
RESERVED = (
    "Does the length of the table say how many tokens there are?",
    "The table says which slots are reserved, `written` says how many of them are filled. Only one of the two may be "
    "read.",
    "Page size 4, table 5, 3, 8, six tokens written. Your code reads how many slots? How many of them hold a token?",
)
EMPTY_PAGE = (
    "How many tokens of that page are yours? What does your code take it for? Print it for each page.",
    "A request may hold more pages than it needs yet. And in a slice, a negative number counts from the end.",
    "Page size 4, table 5, 3, 8, six tokens written. For each of the three pages: how many of its slots does your code "
    "read?",
)
TIMES_ZERO = (
    "What is 0 times a number that is no number?",
    "0 times NaN is NaN. A weight of 0 hides every content but that one. A slot that is never touched can hold "
    "anything.",
    'Type 0 * float("nan"). Then think of three values, the last of them NaN, with the weights 0.5, 0.5 and 0.',
)
OWN_TOKEN = (
    "Is the token that asks among those it looks at?",
    "Its key and value are in the pool already, and `written` counts it.",
    "One token written, the very first. What does your code read, and what should the answer be?",
)
AXIS = (
    "Print the shape of what you gathered, and of what you give to one head. Which axis counts the tokens?",
    "The axes are tokens, KV heads, numbers. One head needs all tokens of one KV head. A single index in "
    "brackets goes to the first axis.",
    "A list of 5 rows and 3 columns: a[1] is a row, as long as there are columns. How do you write column 1?",
)
PAGES = (
    "What do you do with the numbers in the table before you look into the pool?",
    "The request's tokens lie in the pages that stand in its table, and in no others. Your slot mapping finds them.",
    "Page size 4, table 5, 3, one token written. It is in slot 20 of the pool. Which slot does your code read?",
)
_WRITES = (
    "Whose slots are these, besides yours?",
    "All requests share the pool. Attention reads it. What you want to change, change in a copy.",
    "Two requests, one pool. The first sets everything that is not its own to 0. What does the second one read?",
)

OVERFLOW = (
    "How large may a score be, so that exp of it is still a number?",
    "A softmax stays the same if all scores are lowered by the same amount. So lower them until the largest is 0.",
    "Try torch.tensor(100.0).exp(). Then: scores 1000 and 999. What would the weights be with scores 1 and 0?",
)
_ONE_BUFFER = (
    "Who else still holds the tensor in which you gave back your last answer?",
    "Each call has an answer of its own. What is given back belongs to the caller, and must not change any more.",
    "a = attend(...), b = attend(...) of another token. Print a once more. Is it what it was?",
)

Shape = tuple[int, int, int, int, int, int]  # KV heads, query heads for each, width, page size, written, extra pages


def _drawn(count: int) -> Iterator[Shape]:
    """Shapes by chance, always the same ones; half of them end at the end of a page, or one token before or after."""
    chance = random.Random(4)
    for _ in range(count):
        size, pages = chance.choice((1, 3, 4, 16)), chance.randint(1, 4)
        near_the_end = pages * size + chance.choice((-1, 0, 1))
        written = max(1, chance.choice((near_the_end, chance.randint(1, pages * size))))
        yield (*chance.choice(((3, 3, 8), (1, 2, 4), (2, 4, 8), (4, 1, 16))), size, written, chance.randint(0, 2))


# The first shape is that of the lesson.
SHAPES: tuple[Shape, ...] = (
    (3, 3, 16, 16, 37, 1),
    (3, 3, 16, 16, 37, 0),
    (3, 3, 16, 16, 1, 0),
    (3, 3, 16, 16, 32, 1),
    (3, 3, 16, 16, 33, 0),
    (1, 1, 8, 4, 4, 0),
    (2, 2, 8, 1, 7, 2),
    (1, 4, 8, 4, 6, 1),
    (4, 1, 8, 16, 48, 0),
    (2, 3, 4, 2, 11, 3),
    *_drawn(12),
    (1, 2, 8, 64, 150, 1),
    (2, 1, 8, 5, 203, 0),
)


def judge_reading(attend: Attend) -> Verdict | None:
    """Look at made-up calls, one after the other; None if nothing is wrong with any."""
    for seed, shape in enumerate(SHAPES):
        call = made_up(*shape, seed=seed)
        found = judge_call(attend, call)
        if found is not None:
            return found
    return one_buffer(attend)


def one_buffer(attend: Attend) -> Verdict | None:
    """Whether an answer changes when the next one is asked for."""
    import torch

    first, second = made_up(seed=1), made_up(seed=2)
    answer = first.ask(attend)
    before = copy.deepcopy(answer)
    second.ask(attend)
    rows = zip(answer, before, strict=True)
    if all(torch.equal(torch.as_tensor(now), torch.as_tensor(was)) for now, was in rows):
        return None
    said = "I asked for the answers of two tokens. With the second, the first one changed: both are the same tensor."
    return wrong("one-buffer", said, *_ONE_BUFFER)


def judge_call(attend: Attend, call: Call, numbers: Callable[[Call, Any], Verdict] = explain_numbers) -> Verdict | None:
    """What is wrong with the answer to one call; `numbers` says it where only the numbers are wrong.

    Slots that must not be read hold NaN first, and something else later: whoever reads none gives the same each time.
    """
    try:
        found = _form(attend, call.filled(ZEROS))
    except NotImplementedError:
        raise
    except Exception as error:
        found = explain_error(attend, call, error)
        if found is None:
            raise
    if found is not None:
        return found
    expected = right(call)
    given = {fill: answer_or_none(attend, call.filled(fill)) for fill in (NAN, NOISE, ZEROS)}
    if all(not differ(given[fill], expected, 1e-4) for fill in (NAN, NOISE)):
        return None
    if any(differ(given[fill], given[ZEROS]) for fill in (NAN, NOISE)):
        return _over_read(attend, call.filled(ZEROS))
    return _missed(attend, call.filled(ZEROS)) or numbers(call, given[ZEROS])


def _form(attend: Attend, call: Call) -> Verdict | None:
    """Whether anything of the right shape comes back, and the pool is left alone."""
    query, keys, values = call.query.clone(), call.keys.clone(), call.values.clone()
    answer = attend(query, keys, values, list(call.table), call.written, call.scale)
    heads, width = call.query.shape[0], call.values.shape[-1]
    if answer is None:
        return wrong("no-return", "your function gave nothing back.", "Which line has the answer, and who gets it?")
    if call.answer(attend) is None:
        came = f"{list(answer.shape)}" if hasattr(answer, "shape") else f"a {type(answer).__name__}"
        said = f"the query has {heads} heads of {width} numbers, and you gave back {came}."
        return wrong("shape", said, f"Give one row for each query head: [{heads}, {width}] here.")
    for name, tensor, before in (("keys", keys, call.keys), ("values", values, call.values)):
        if not bool((tensor == before).all()):
            return wrong("writes", f"you changed the {name} in the pool.", *_WRITES)
    return None


def _over_read(attend: Attend, call: Call) -> Verdict:
    """Slots that must not be read can change the answer: which, and how."""
    others, written = call.others(), call.written
    read = set(slots_that_matter(attend, call, others, NOISE))
    if not read:
        hidden = _slots(len(slots_that_matter(attend, call, others, NAN)) or len(others))
        said = (
            f"{written} tokens are written. You gave {hidden} behind them the weight 0, and still multiplied by what "
            "they hold. One held NaN, and now the answer is NaN."
        )
        return wrong("times-zero", said, *TIMES_ZERO)
    more = _slots(len(read))
    in_page, in_table = (set(call.slots(written, stop)) for stop in (call.in_last_page, call.reserved))
    if read <= in_table and not slots_that_matter(attend, call, others, NOISE, values=False):
        return zero_score(written, len(read))
    pages = f"{len(call.table)} page{'s' if len(call.table) > 1 else ''} of {call.page_size}"
    if read < in_table and not read & in_page:
        page = min(read) // call.page_size
        said = f"{written} tokens are written. You read {more} of page {page}, which is reserved and still empty."
        return wrong("empty-page", said, *EMPTY_PAGE)
    if read == in_table and in_table != in_page:
        said = f"{written} tokens are written. You read all {call.reserved} slots of {pages}, all that was reserved."
        return wrong("reserved", f"{said} {_in_a_sentence(attend, 'The others')}", *RESERVED)
    if read == in_page and len(read) > 1:
        return wrong("whole-last-page", f"you read {more} nobody wrote for you. {_in_a_sentence(attend)}", *LAST_PAGE)
    if read <= in_table:
        said = f"{written} tokens are written, in {pages}. You read {more} more, and nobody wrote there for you."
        return wrong("one-too-many" if len(read) == 1 else "over-read", said, *LAST_PAGE)
    strange = sorted({slot // call.page_size for slot in read} - set(call.table))
    if strange:
        said = f"the table is {', '.join(map(str, call.table))}. You read page {strange[0]}, which is somebody else's."
        return wrong("other-pages", said, *PAGES)
    return wrong("over-read", f"you read {more} that nobody wrote for you.", *LAST_PAGE)


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"


def _in_a_sentence(attend: Attend, they: str = "They") -> str:
    """What reading on does to the next word of a small model whose pool is fresh: seen here, not assumed."""
    try:
        same = next_token(attend) == next_token(None)
    except Exception:
        word = ""
    else:
        word = ", so the word stayed right" if same else ", and still the word changed"
    return f"{they} held zeros{word}. Remember this line: chapter 08."


def next_token(attend: Attend | None) -> int:
    """A small model's word after 37 written tokens, on a pool that nobody has used; None asks the engine's own."""
    from minikv import Engine, SamplingParams
    from minikv.course.seats.attention import as_attention

    prompt = [(29 * position + 5) % 251 for position in range(36)]
    part: dict[str, Any] = {} if attend is None else {"attention": as_attention(attend, prompts=False)}
    engine = Engine(small_model(2), page_size=16, num_pages=3, **part)
    answer = engine.generate([prompt], SamplingParams(max_tokens=2, ignore_eos=True))[0]
    if answer.error is not None:
        raise answer.error
    return int(answer.token_ids[1])


def _missed(attend: Attend, call: Call) -> Verdict | None:
    """Slots of the request whose contents cannot change the answer."""
    own = call.slots(0, call.written)
    read = set(slots_that_matter(attend, call, own, NAN))
    missed = [slot for slot in own if slot not in read]
    if not missed and not slots_that_matter(attend, call, own, NAN, keys=False):
        return wrong(
            "keys-for-values",
            "no value was read. Your answer is made of keys alone.",
            "Keys say where to look. What is carried away?",
            "The keys give the weights. What is added up with these weights are the values.",
            "One token written: its weight is 1. Which row of numbers must come out?",
        )
    if not missed:
        return None
    said = f"{call.written} tokens are written, and you read {len(read)} of them."
    if not read:
        said = f"{call.written} tokens are written, and your answer is the same whatever they hold."
        return wrong("nothing-read", said, "Where in your code do you look into the pool?", *PAGES[1:])
    if read == set(own[: call.keys.shape[2]]) and call.keys.shape[2] > 1:
        said = f"{said} These are the first {len(read)}, as many as there are KV heads."
        return wrong("wrong-axis", said, *AXIS)
    if missed == own[-1:]:
        return wrong("own-token", f"{said} The one you left out is the token that asks.", *OWN_TOKEN)
    if missed == own[call.written // call.page_size * call.page_size :]:
        return wrong(
            "full-pages-only",
            f"{said} You left out the last page, which is not full.",
            "How many tokens are in the page behind the full ones?",
            "Full pages are the rule, and the last one is the exception: it holds what is left.",
            "Page size 4, six tokens written. Which slots does your code read in the second page?",
        )
    return wrong(
        "missed",
        f"{said} The first one left out is token {own.index(missed[0])}.",
        "Which of your loops or slices ends too early, or begins too late?",
        "A token looks at every token written before it, and at itself.",
        "Page size 2, table 5, 3, four tokens written. Which slots should be read, and which does your code read?",
    )


def judge_in_engine(attend: Attend) -> Verdict | None:
    """The function inside the engine: several requests at once, a small pool, NaN in what must not be read."""
    from minikv import Engine, SamplingParams
    from minikv.course.seats.attention import NUMBERS, as_attention

    prompts = [[(7 * i + j) % 250 for j in range(5 + 3 * i)] for i in range(4)]
    answers = []
    for part in ({}, {"attention": as_attention(attend, poison=True, page_size=4)}):
        settings: dict[str, Any] = {"page_size": 4, "num_pages": 11, "max_batch_tokens": 16, **part}
        done = Engine(small_model(2), **settings).generate(prompts, SamplingParams(max_tokens=4, ignore_eos=True))
        broken = next((each.error for each in done if each.error is not None), None)
        if broken is not None:
            said = " ".join(str(broken).split())
            if isinstance(broken, BrokenRule) and broken.rule == NUMBERS:
                return wrong("overflow", f"right on small scores. Inside the engine: {said}", *OVERFLOW)
            return wrong("engine", f"inside the engine: {said}", "Which of your lines gave the engine this?")
        answers.append([each.token_ids for each in done])
    if answers[0] != answers[1]:
        return wrong(
            "engine",
            "inside the engine the answers changed.",
            "Does your function keep something from one call to the next? It is asked for many requests in turn.",
        )
    return None
