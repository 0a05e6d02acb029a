"""Exercise 8.2, the old words: the reference answer, and what is said of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from minikv.course.declare import Verdict, ok, wrong

if TYPE_CHECKING:
    from minikv.models.adapter import BoundModel


def old_tokens(read_page: Callable[..., Sequence[int]], pool: Any, pages: Sequence[int], hf: Any) -> list[int]:
    """Token ids that lie in the stale pages of a table, in the order of its positions."""
    return [token for page in pages[1:] for token in read_page(pool, page, hf)]


_IN_ORDER = (
    "In which order does a page table list its pages?",
    "Position 64 stands in the second page of the table, whatever number that page has.",
    "A table says [9, 4, 6]. Pages hold two slots each. In which page is position 3?",
)


_ONE_LENGTH = (
    "Which number in your code is right for this table alone?",
    "A table is as long as its request. Its first page is the one that the handoff filled; all others are stale.",
    "A table says [9, 4]. How many stale pages has it, and which?",
)
_MOST = 10_000  # token ids that are read


def _ids(got: Any) -> list[int]:
    return [int(token) for token in islice(got, _MOST)]


def _ids_or_none(call: Callable[[], Any]) -> list[int] | None:
    try:
        return _ids(call())
    except (TypeError, ValueError, LookupError):
        return None


def _put_back(pool: Sequence[Any], before: Sequence[Any]) -> bool:
    """Whether the pool was changed. It is kept for later checks, so what it held is put back."""
    changed = [now for now, was in zip(pool, before, strict=True) if not now.equal(was)]
    for now, was in zip(pool, before, strict=True):
        now.copy_(was)
    return bool(changed)


def judge_old(thing: Any) -> Verdict:
    from minikv.course.chapters.ch03 import read_page

    pool, table, model = _stale_pool()
    wanted = [[int(token) for token in read_page(pool, page, model.hf)] for page in table]
    before = [tensor.clone() for tensor in (*pool.keys, *pool.values)]
    got = thing(read_page, pool, list(table), model.hf)
    try:
        tokens = _ids(got)
    except (TypeError, ValueError):
        said = f"you gave back {type(got).__name__}, and not one token id after the other."
        return wrong("shape", said, "One list for each page, or one list for all of them?")
    flat = [token for page in wanted for token in page]
    first = len(wanted[0])
    if _put_back((*pool.keys, *pool.values), before):
        said = "you changed the pool. It is the evidence, and others read it after you."
        return wrong("changes-the-pool", said, "Which of your lines writes into a tensor of the pool?")
    if tokens == flat[first:]:
        for short in (table[:5], table[:2]):
            right = [token for page in short[1:] for token in read_page(pool, page, model.hf)]
            found = _ids_or_none(partial(thing, read_page, pool, list(short), model.hf))
            if found != right:
                came = "something else" if found is None else f"{len(found)} tokens"
                said = f"right for a table of {len(table)} pages. For one of {len(short)} you gave {came}"
                return wrong("one-length", f"{said}; its stale pages hold {len(right)}.", *_ONE_LENGTH)
        return ok("The stale pages, read without the model. The words are in the pages. The model is not the leak.")
    if tokens == flat:
        return wrong(
            "page-0",
            f"you read {len(table)} pages. Into one of them the handoff delivered something.",
            "Which page of the table is not stale?",
            "A page counts as written as soon as one slot of it is. Seven of the eight are stale.",
        )
    in_order = [token for page in sorted(table[1:]) for token in read_page(pool, page, model.hf)]
    if tokens == in_order or sorted(tokens) == sorted(flat[first:]):
        return wrong("order", "you read the right pages in another order than the table's.", *_IN_ORDER)
    places = [[int(t) for t in read_page(pool, i, model.hf)] for i in range(len(table))]
    if tokens in ([t for page in places[1:] for t in page], [t for page in places for t in page]):
        return wrong(
            "place",
            "you read pages 1, 2, 3 and so on. The table lists other pages.",
            "What is the difference between the place of a page in a table and its number?",
            "The table holds page numbers. Its first entry is the page of position 0, whatever its number.",
        )
    if len(tokens) == len(flat) - first:
        fit = sum(map(int.__eq__, tokens, flat[first:]))
        return wrong(
            "other-seven",
            f"{len(tokens)} tokens, but only {fit} in their place. Is page 1 of the table among them, and the last?",
            "The table has eight pages, and you read seven. Which one did you leave out?",
            "The page to leave out is the one that the handoff filled. It holds position 0.",
        )
    return wrong("other", f"you gave back {len(tokens)} tokens; the stale pages hold {len(flat) - first}.", *_IN_ORDER)


@cache
def _stale_pool() -> tuple[Any, tuple[int, ...], BoundModel]:
    """A decode pool after an attack, and the attack's page table, whose pages do not lie in order."""
    from minikv.incident.history import HistoricalCluster
    from minikv.incident.scales import POCKET
    from minikv.incident.stage import Stage, build
    from minikv.trace import HandoffDone

    stage = Stage(POCKET, POCKET.load(), build(POCKET, POCKET.load(), HistoricalCluster, allocator=_Scattered))
    stage.play_past()
    stage.attack()
    handoff = [event for event in stage.cluster.trace if isinstance(event, HandoffDone)][-1]
    return stage.cluster.decode.pool, handoff.pages, stage.model


class _Scattered:
    """Last in, first out, over pages that lie in no order."""

    def __init__(self, num_pages: int) -> None:
        self.stack = [(19 * i + 5) % num_pages for i in range(num_pages)] if num_pages % 19 else list(range(num_pages))

    def allocate(self, n: int) -> list[int]:
        return [self.stack.pop() for _ in range(n)]

    def free(self, pages: Sequence[int]) -> None:
        self.stack.extend(reversed(pages))
