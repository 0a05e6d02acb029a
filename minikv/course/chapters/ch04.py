"""Chapter 04, reading through a page table: how does attention find its tokens, and where must it stop?"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from minikv.course.chapters.ex_4_1 import judge_mapping, slot_mapping
from minikv.course.chapters.ex_4_2 import attend, judge_gather
from minikv.course.chapters.ex_4_3 import attend_by_page, judge_by_page
from minikv.course.chapters.moved import bytes_read, bytes_written
from minikv.course.chapters.paged import NAN, ZEROS, Attend, Call, made_up, slots_that_matter
from minikv.course.declare import Exercise, Option, Question, register
from minikv.viz.reads import Reads

__all__ = [
    "REFERENCE",
    "Busy",
    "Call",
    "attend",
    "attend_by_page",
    "bytes_read",
    "bytes_written",
    "made_up",
    "minikv_attend",
    "reads",
    "slot_mapping",
]


class Busy:
    """An allocator that lends pages in no order, as on a server that has been busy for a while."""

    def __init__(self, num_pages: int) -> None:
        self.pages = random.Random(num_pages).sample(range(num_pages), num_pages)

    def allocate(self, n: int) -> list[int]:
        """Lend `n` pages."""
        return [self.pages.pop(0) for _ in range(n)]

    def free(self, pages: Iterable[int]) -> None:
        """Take pages back."""
        self.pages += pages


def minikv_attend(query: Any, keys: Any, values: Any, table: list[int], written: int, scale: float) -> Any:
    """The engine's own attention, asked for one token."""
    import torch

    from minikv.attention import torch_backend
    from minikv.attention.metadata import SequenceView
    from minikv.models.options import AttentionOptions

    slots = torch.tensor(slot_mapping(table, 0, written, keys.shape[1]))
    view = SequenceView(start=0, length=1, seq_len=written, slots=slots)
    pool = keys.flatten(0, 1), values.flatten(0, 1)
    return torch_backend.attend(query.unsqueeze(0), *pool, [view], AttentionOptions(scaling=scale))[0]


def reads(attend: Attend, call: Call, written: int | None = None) -> Reads:
    """The slots that a function reads for a call, or for the same call with another number of written tokens.

    A slot is read if what is in it can change the answer. So NaN goes into one slot at a time; if the answer is
    another one then, the slot was read. This works for every way to write the function.
    """
    asked = replace(call, table=tuple(call.table), written=written or call.written)
    clean = asked.filled(ZEROS)
    found = slots_that_matter(attend, clean, range(call.keys.shape[0] * call.page_size), NAN)
    return Reads(asked.table, asked.page_size, asked.written, tuple(found))


ORDER = Question(
    "p-4.1",
    "Ada's letter lies in full pages, and one that is not full. (1) All pages move to other places in the pool, and "
    "the table is corrected. (2) Nothing moves, but the full pages change places in the table. When does the answer "
    "change?",
    {
        "A": Option(
            "in both cases",
            "After (1) the table finds every token where it is now. And in (2), attention adds up: it never asks which "
            "page came first.",
        ),
        "B": Option(
            "only after (1), moving",
            "The table says where the tokens are, so nothing is lost by moving them.",
        ),
        "C": Option(
            "only after (2), another order in the table",
            "A key carries its position in itself, from the moment it is written. And attention is a sum over tokens. "
            "A sum has no order.",
        ),
        "D": Option(
            "in neither case",
            "Moving loses nothing if the table follows. Another order loses nothing either: a key carries its position "
            "in itself, and a sum has no order.",
        ),
    },
    answer="D",
)

STOP = Question(
    "p-4.2",
    "A request has three pages of 16 slots, and 37 of its tokens are written. Behind them lie 11 slots with whatever "
    "was left there. Attention goes through the pages. By what does it know, in the third page, where to stop?",
    {
        "A": Option(
            "it stops at the first slot that holds zeros",
            "Nobody looks at that. And in a page that was lent before, the slots behind the last token hold no zeros.",
        ),
        "B": Option(
            "each slot of the pool has a mark: written or not",
            "minikv keeps such a record, for its own checks. Attention never sees it: it gets numbers, and a "
            "slot that nobody wrote has numbers too.",
        ),
        "C": Option(
            "by one number that it is told; with a larger one it reads on",
            "Told 37, it reads 37. Told 40, it reads 40, and nothing holds it back.",
        ),
        "D": Option(
            "it need not stop: what is not written gets the weight 0",
            "Every slot that is read gets a score, and from it a weight. Nothing is known of it but its numbers.",
        ),
    },
    answer="C",
)

ZERO = Question(
    "p-4.3",
    "Now attention reads all 48 slots. The pool is fresh, so the last 11 hold zeros. What changes?",
    {
        "A": Option(
            "nothing: zeros add nothing",
            "A value of zeros adds nothing. But a key of zeros gets the score 0, and exp(0) is 1: each of the 11 takes "
            "weight away from the words.",
        ),
        "B": Option(
            "the logits change, the next word does not",
            "Each zero takes some weight from the words, so the logits move. The largest stays the largest, and that "
            "is all that a reader sees.",
        ),
        "C": Option(
            "the next word is another one",
            "It could be. But the right word was far ahead, and stays ahead.",
        ),
        "D": Option(
            "it crashes, or gives NaN",
            "Zeros are ordinary numbers. Nothing in the sum can tell that nobody wrote them.",
        ),
    },
    answer="B",
)

TOGETHER = Question(
    "p-4.4",
    "One head, values of one number. Attention over page A alone gives 12, over page B alone 36. Each page has two "
    "tokens. What does attention over both give?",
    {
        "A": Option(
            "24",
            "That would be right if both pages had the same weight. They have the same number of tokens, which is not "
            "the same.",
        ),
        "B": Option("48", "Each result is a mean already. Two means do not add up to a mean."),
        "C": Option("36", "The larger value does not win. It only counts for as much as its weight."),
        "D": Option(
            "something from 12 to 36; the two results do not say what",
            "It depends on how much weight each page has, and the results do not tell. Whoever goes page by page must "
            "keep the weight too.",
        ),
    },
    answer="D",
)

MAPPING = Exercise(
    "ex-4.1",
    "Slot mapping",
    minutes=8,
    lines=3,
    done_when="every token has its slot, wherever a page begins or ends",
    idea="A token's place is found in two looks: which page, and where in it.",
    judge=judge_mapping,
)
GATHER = Exercise(
    "ex-4.2",
    "Gather, then attend",
    minutes=22,
    lines=7,
    done_when="the numbers are right, and nothing that nobody wrote for this request can change them",
    idea="It ran inside the engine, with NaN in every slot that it must not read. The answers were the engine's own.",
    judge=judge_gather,
    seconds=40.0,
)
BY_PAGE = Exercise(
    "ex-4.3",
    "Page by page",
    minutes=40,
    lines=14,
    done_when="the numbers are those of 4.2, and no more than a page is ever copied",
    idea="Three things kept for each query head are enough: the largest score, the weight, the weighted sum.",
    judge=judge_by_page,
    seconds=40.0,
)

REFERENCE = {"ex-4.1": slot_mapping, "ex-4.2": attend, "ex-4.3": attend_by_page}

register(ORDER, STOP, ZERO, TOGETHER, MAPPING, GATHER, BY_PAGE)
