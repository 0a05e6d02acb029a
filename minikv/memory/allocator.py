"""Which free page is lent next."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Protocol

from minikv.errors import BrokenRule, OutOfPages

GRANT_RULE = "an allocator lends as many free pages as it was asked for, each once"


class PageAllocator(Protocol):
    """Decides which free page is lent next. Built as `Allocator(num_pages)`; all pages are free at first."""

    def allocate(self, n: int) -> Sequence[int]:
        """Lend `n` different free pages; raise `OutOfPages` and lend none if fewer are free."""

    def free(self, pages: Sequence[int]) -> None:
        """Take pages back."""


class FreeList:
    """Last in, first out, so that warm pages are used again first; O(1) a page.

    A table that is given back comes out again in the same order: its first page is lent next.
    """

    def __init__(self, num_pages: int) -> None:
        self._stack = list(range(num_pages - 1, -1, -1))

    def allocate(self, n: int) -> list[int]:
        """Lend `n` pages.

        Raises:
            OutOfPages: if fewer are free; none is lent then.
        """
        if n > len(self._stack):
            raise OutOfPages(f"{n} pages were asked for and {len(self._stack)} are free")
        return [self._stack.pop() for _ in range(n)]

    def free(self, pages: Sequence[int]) -> None:
        """Take pages back, so that `pages[0]` is lent next."""
        self._stack.extend(reversed(pages))


def page_numbers(grant: object, wanted: int) -> list[int]:
    """The pages that an allocator handed out, as ints (numpy's are fine too).

    Raises:
        BrokenRule: if it handed out something else, too many, too few, or one page twice.
    """
    if not isinstance(grant, Iterable):
        raise BrokenRule(GRANT_RULE, f"{wanted} pages were asked for, and {grant!r} came back instead of a list")
    pages = []
    for page in grant:
        if isinstance(page, bool) or not hasattr(page, "__index__"):
            raise BrokenRule(GRANT_RULE, f"{page!r} is no page number")
        pages.append(operator.index(page))
    if len(pages) != wanted:
        raise BrokenRule(GRANT_RULE, f"{wanted} pages were asked for and {len(pages)} handed out: {pages[:9]}")
    if len(set(pages)) != len(pages):
        raise BrokenRule(GRANT_RULE, f"a page was handed out twice in one grant: {pages[:9]}")
    return pages
