"""Exercise 4.1, slot mapping: the reference answer, and what is said of others."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

from minikv.course.declare import Verdict, ok, wrong

Case = tuple[tuple[int, ...], int, int, int]  # table, start, stop, page size


def slot_mapping(table: Sequence[int], start: int, stop: int, page_size: int) -> list[int]:
    """Slots of the tokens start to stop - 1."""
    return [table[token // page_size] * page_size + token % page_size for token in range(start, stop)]


_FIRST: tuple[Case, ...] = (
    ((7, 2, 5), 0, 4, 4),
    ((7, 2, 5), 0, 5, 4),
    ((7, 2, 5), 6, 11, 4),
    ((7, 2, 5), 8, 9, 4),
    ((7, 2, 5), 3, 4, 4),
    ((9, 4), 16, 20, 16),
    ((3,), 2, 2, 8),
    ((6, 1, 8), 0, 3, 1),
    ((7, 2, 5), 10, 14, 12),
)


def _cases() -> list[Case]:
    random_numbers = random.Random(4)
    cases = list(_FIRST)
    for _ in range(40):
        size = random_numbers.choice((1, 2, 4, 16, 64))
        table = tuple(random_numbers.sample(range(40), random_numbers.randint(1, 6)))
        start, stop = sorted(random_numbers.choices(range(len(table) * size + 1), k=2))
        cases.append((table, start, stop, size))
    for size in (3, 5, 12, 20) * 4:  # and sizes that are no power of 2
        table = tuple(random_numbers.sample(range(40), random_numbers.randint(3, 6)))
        start, stop = sorted(random_numbers.choices(range(6, len(table) * size + 1), k=2))
        cases.append((table, start, stop, size))
    cases.append(((*range(90, 50, -1),), 0, 40 * 16, 16))  # a long request
    cases.append(((20_001, 4_000, 30_002), 50, 190, 64))  # in a large pool
    return cases


BOUNDARY = (
    "Where does your code turn from one page to the next? Before or after the first token of that page?",
    "A page of 4 holds four tokens. The first page holds the tokens 0, 1, 2, 3, so token 4 begins the second page.",
    "Page size 2, table 5, 3. Write the slots of the tokens 0, 1, 2, 3 in a row. Which two of them share a page?",
)
PAGE_ID = (
    "The second page of a request: is it page 1 of the pool?",
    "Two numbers go by the name of page here: the place in the table, and what stands at that place.",
    "Table 5, 3, page size 2. The pool's slots 0 and 1 are page 0, 2 and 3 are page 1, and so on. Where is token 0?",
)
INSIDE = (
    "The page before is full up to a certain slot. Who wrote the slots that you gave out now?",
    "Tokens begin where the last one stopped, and that may be in the middle of a page.",
    "Table 5, 3, page size 2. Token 0 is written. Now token 1 comes, alone. Which slot is left in page 5?",
)
RUNS_ON = (
    "What lies behind the last slot of a page? The request's next page?",
    "In the pool, behind page 7 comes page 8, and it may be anybody's. The table says where the request goes on.",
    "Table 5, 3, page size 2. Token 1 is in slot 11, the last of page 5. Where is token 2?",
)


SPOILS = (
    "Whose table is it, and who needs it after you?",
    "The list that you are given is the request's own page table. To take one apart, make a copy first.",
)
SHIFTS = (
    "Your answers are right for pages of 1, 2, 4, 8, 16 slots and so on. What do these sizes have in common?",
    "Shifting by some bits divides by 2, 4, 8, ..., and masking with `size - 1` gives the rest of such a division, and "
    "of no other. A page may have any number of slots.",
    "Page size 12, table 7, 2. Token 13: by hand, in which place of the table is its page, and which slot of that page "
    "is it? And what do `13 >> 3` and `13 & 11` give?",
)
ENDLESS = (
    "Which line ends your loop?",
    "There is one slot for each token from start to stop - 1. After the last of them nothing more is to be given.",
)
LARGE = (
    "Your answers are right where page numbers are small. What is the largest number that your numbers can hold?",
    "Some kinds of numbers end early: 16 bits hold whole numbers up to 32,767 only, half precision counts to 2,048. A "
    "pool can have many more slots.",
    "Page 4,000, page size 64: how many slots lie before it? Does that fit into what you calculate with?",
)
LONG = (
    "Which number in your code is not one of the four that you were given?",
    "A request may hold any number of pages. Where it goes on stands in the table, to its very end.",
    "Page size 2, a table of eight pages. Which place of the table has token 13?",
)
ONE_LIST = (
    "Who else still holds the list that you gave back last time?",
    "Each call has an answer of its own. What is given back belongs to the caller, and must not change any more.",
    "Call it twice, keep both answers, and print the first one.",
)
TIMES = (
    "How many slots of the pool lie before page 7, with 4 slots in a page?",
    "Page 0 begins at slot 0, page 1 at slot 4, page 2 at slot 8. You have found the right page; where does it begin?",
    "Table 5, 3, page size 2. Draw the pool's slots, two in a page. Which is the first slot of page 5?",
)


def judge_mapping(thing: Any) -> Verdict:
    cases = _cases()
    got: dict[Case, list[int] | None] = {}
    past_the_table: IndexError | None = None
    for case in cases:
        table, start, stop, size = case
        try:
            its = list(table)
            read = _read(thing(its, start, stop, size), case)
        except IndexError as error:  # some mistakes run past the table where others give a wrong slot
            got[case], past_the_table = None, error
            continue
        if isinstance(read, Verdict):
            return read
        if its != list(table):
            return wrong("spoils-the-table", f"{_called(case)} left the table as {its}.", *SPOILS)
        got[case] = read

    def always(guess: Callable[[Sequence[int], int, int, int], list[int]]) -> bool:
        return all(got[case] == _guessed(guess, case) for case in cases)

    if always(slot_mapping):
        return _one_list(thing) or ok()
    for kind, guess, said, hints in _MISTAKES:
        if always(guess):
            return wrong(kind, said, *hints)
    odd = next((case for case in cases if got[case] != slot_mapping(*case) and case[3] & (case[3] - 1)), None)
    if odd and all(got[case] == slot_mapping(*case) or case[3] & (case[3] - 1) for case in cases):
        given = got[odd]
        where = "looked past the table's end" if given is None else f"gave {_short(given)}"
        right = ", ".join(map(str, slot_mapping(*odd)[:4]))
        more = "right for pages of 1, 2, 4, 16 and 64 slots"
        return wrong("powers-only", f"{more}. But {_called(odd)} {where}. They begin with {right}.", *SHIFTS)
    if all(got[case] == slot_mapping(*case) for case in cases[:-2]):
        kind, hints = ("long-table", LONG) if got[cases[-2]] != slot_mapping(*cases[-2]) else ("large-pages", LARGE)
        return _far(cases[-2 if kind == "long-table" else -1], got, kind, hints)
    for case in cases:
        given = got[case]
        if given is not None and given != slot_mapping(*case):
            return _other(case, given)
    assert past_the_table is not None
    raise past_the_table


def _far(case: Case, got: dict[Case, list[int] | None], kind: str, hints: tuple[str, ...]) -> Verdict:
    """Only the long table is wrong, or the large pool."""
    table, start, stop, size = case
    given, right = got[case], slot_mapping(*case)
    where = "looked past the table's end"
    if given is not None:
        at = next((i for i, slot in enumerate(right) if i >= len(given) or given[i] != slot), len(right))
        put = f"slot {given[at]:,}" if at < len(given) else "no slot"
        where = f"gave token {start + at} {put}"
    pages = f"a table of {len(table)} pages, from page {table[0]:,} on, page size {size}"
    return wrong(kind, f"right for the others. With {pages}, tokens {start} to {stop - 1}, you {where}.", *hints)


def _one_list(thing: Any) -> Verdict | None:
    """Whether an answer changes when the next one is asked for."""
    first, second = _FIRST[0], _FIRST[2]
    answer = thing(list(first[0]), *first[1:])
    if not hasattr(answer, "__len__"):  # read once, and gone
        return None
    thing(list(second[0]), *second[1:])
    now = _read(answer, first)
    if now == slot_mapping(*first):
        return None
    return wrong("one-list", "I asked twice. With the second answer, the first one changed.", *ONE_LIST)


def _read(answer: Any, case: Case) -> list[int] | Verdict:
    """Whole numbers, from a list, an array, a tensor or a range."""
    called = _called(case)
    shape = "Give a list of slots, one for each token."
    if answer is None:
        return wrong("no-return", f"{called} gave nothing back.", "Who needs to know the slots?")
    if hasattr(answer, "tolist"):
        answer = answer.tolist()
    if isinstance(answer, (int, float, str, dict)) or not hasattr(answer, "__iter__"):
        return wrong("shape", f"{called} gave {_short(answer)}.", shape)
    _table, _start, stop, size = case
    most = stop + 2 * size + 1  # no mistake that has a name gives more, and some answers have no end
    slots = list(itertools.islice(answer, most + 1))
    if len(slots) > most and not hasattr(answer, "__len__"):
        said = f"{called} gave {len(slots)} slots, and more would have come. Is there an end?"
        return wrong("endless", said, *ENDLESS)
    slots = [slot.item() if hasattr(slot, "item") else slot for slot in slots]
    if any(isinstance(slot, (tuple, list)) for slot in slots):
        return wrong(
            "pairs",
            f"{called} gave {_short(slots)}: a page and a place in it, for each token.",
            "The pool counts its slots through all pages. How many slots lie before page 7?",
        )
    if any(isinstance(slot, float) for slot in slots):
        return wrong("not-whole", f"{called} gave {_short(slots)}.", "Which of your divisions leaves a fraction?")
    if not all(isinstance(slot, int) for slot in slots):
        return wrong("shape", f"{called} gave {_short(slots)}.", shape)
    return slots


def _called(case: Case) -> str:
    table, start, stop, size = case
    tokens = {0: "no token", 1: f"token {start}"}.get(stop - start, f"tokens {start} to {stop - 1}")
    return f"table {', '.join(map(str, table))}, page size {size}, {tokens}: you"


def _short(answer: object) -> str:
    text = " ".join(repr(answer).split())
    return text if len(text) <= 60 else f"{text[:60]}..."


def _guessed(guess: Callable[[Sequence[int], int, int, int], list[int]], case: Case) -> list[int] | None:
    try:
        return guess(*case)
    except IndexError:
        return None


def _page_start(table: Sequence[int], start: int, stop: int, size: int) -> list[int]:
    first = start // size
    return slot_mapping(table, first * size, first * size + stop - start, size)


def _runs_on(table: Sequence[int], start: int, stop: int, size: int) -> list[int]:
    if start == stop:
        return []
    first = table[start // size] * size + start % size
    return list(range(first, first + stop - start))


def _too_early(table: Sequence[int], start: int, stop: int, size: int) -> list[int]:
    return [table[max(token - 1, 0) // size] * size + token % size for token in range(start, stop)]


def _too_late(table: Sequence[int], start: int, stop: int, size: int) -> list[int]:
    return [table[(token + 1) // size] * size + token % size for token in range(start, stop)]


def _whole_pages(table: Sequence[int], start: int, stop: int, size: int) -> list[int]:
    return slot_mapping(table, start // size * size, min(-(-stop // size), len(table)) * size, size)


_MISTAKES: tuple[
    tuple[str, Callable[[Sequence[int], int, int, int], list[int]], str, tuple[str, ...]],
    ...,
] = (
    (
        "page-start",
        _page_start,
        "table 7, 2, 5, page size 4, tokens 6 to 10: token 6 went to slot 8, the first of page 2. Token 4 was in "
        "there, and is gone now.",
        INSIDE,
    ),
    (
        "index-for-id",
        lambda table, start, stop, size: list(range(start, stop)),
        "table 7, 2, 5, page size 4: token 0 went to slot 0. That slot is in page 0, and page 0 is not in the table.",
        PAGE_ID,
    ),
    (
        "runs-on",
        _runs_on,
        "table 7, 2, 5, page size 4: tokens 0 to 3 are in page 7, and token 4 went to slot 32. That is page 8, and it "
        "may belong to somebody else.",
        RUNS_ON,
    ),
    (
        "page-too-early",
        _too_early,
        "table 7, 2, 5, page size 4: token 4 went to slot 28, where token 0 is. You turned to the next page one token "
        "too late.",
        BOUNDARY,
    ),
    (
        "page-too-late",
        _too_late,
        "table 7, 2, 5, page size 4: token 3 did not go to slot 31, the last of page 7. You turned to the next page "
        "one token too early.",
        BOUNDARY,
    ),
    (
        "from-the-start",
        lambda table, start, stop, size: slot_mapping(table, 0, stop, size),
        "table 7, 2, 5, page size 4, tokens 6 to 10: you gave 11 slots, from token 0 on. Six were written before.",
        ("Which tokens are new?", "Only the slots of the new tokens are asked for: start to stop - 1."),
    ),
    (
        "last-left-out",
        lambda table, start, stop, size: slot_mapping(table, start, max(start, stop - 1), size),
        "start 0, stop 4: you gave 3 slots, and token 3 has none.",
        ("How many tokens are there from start to stop - 1?", "As with Python's range, stop itself is not included."),
    ),
    (
        "one-more",
        lambda table, start, stop, size: slot_mapping(table, start, stop + 1, size),
        "start 0, stop 4: you gave 5 slots, and there are 4 tokens.",
        ("How many tokens are there from start to stop - 1?", "As with Python's range, stop itself is not included."),
    ),
    (
        "inside-only",
        lambda table, start, stop, size: [token % size for token in range(start, stop)],
        "table 7, 2, 5, page size 4: tokens 0 and 4 both went to slot 0. You said where in a page they are, and not in "
        "which page.",
        ("How many slots of the pool lie before page 7?", "The pool counts its slots through all its pages."),
    ),
    (
        "page-only",
        lambda table, start, stop, size: [table[token // size] for token in range(start, stop)],
        "table 7, 2, 5, page size 4: tokens 0 to 3 all went to slot 7. That is the number of their page.",
        ("How many slots of the pool lie before page 7?", "The pool counts its slots through all its pages."),
    ),
    (
        "not-times-size",
        lambda table, start, stop, size: [table[token // size] + token % size for token in range(start, stop)],
        "table 7, 2, 5, page size 4: token 0 went to slot 7. Page 7 is the right page, but it does not begin there: "
        "slot 7 is in page 1.",
        TIMES,
    ),
    *(
        (
            "own-page-size",
            lambda table, start, stop, size, own=own: slot_mapping(table, start, stop, own),
            f"your pages have {own} slots, whatever the page size is.",
            ("Which of your numbers would change on a server with larger pages?",),
        )
        for own in (4, 16)
    ),
    (
        "whole-pages",
        _whole_pages,
        "table 7, 2, 5, page size 4, tokens 6 to 10: you gave 8 slots for 5 tokens, all slots of two pages.",
        ("Which of these slots get a token now?", "A page is lent whole. It is written slot by slot."),
    ),
)


def _other(case: Case, slots: list[int]) -> Verdict:
    expected = slot_mapping(*case)
    _table, start, stop, _size = case
    hints = (
        "Take the first token that is not where it should be. In which place of the table is its page?",
        "Three numbers make a slot: the place of the page in the table, the page that stands there, the place in it.",
        "Table 5, 3, page size 2: write down the slots of the tokens 0, 1, 2 and 3 by hand, and compare.",
    )
    if len(slots) != len(expected):
        said = f"{_called(case)} gave {len(slots)} slots, and there are {len(expected)} tokens."
        return wrong("count", said, *hints)
    token = next(start + i for i in range(stop - start) if slots[i] != expected[i])
    return wrong("other slots", f"{_called(case)} put token {token} into slot {slots[token - start]}.", *hints)
