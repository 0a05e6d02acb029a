"""The events of a page table's life, page by page."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from minikv.trace.events import Allocate, Free, Read, Write


class HeldPages(Protocol):
    """What is needed of a page table."""

    owner: int
    page_size: int
    pages: list[int]
    generations: list[int]
    written: int


def allocated(step: int, node: str, table: HeldPages, first: int) -> Iterator[Allocate]:
    """Pages from the `first` on were lent."""
    for page, generation in zip(table.pages[first:], table.generations[first:], strict=True):
        yield Allocate(step, node, page, table.owner, generation)


def freed(step: int, node: str, table: HeldPages) -> Iterator[Free]:
    """All pages were given back."""
    for page, generation in zip(table.pages, table.generations, strict=True):
        yield Free(step, node, page, table.owner, generation)


def taken_back(step: int, node: str, held: Iterable[tuple[int, int, int]]) -> Iterator[Free]:
    """Pages were given back without their tables; `held` are page, owner and generation of each."""
    for page, owner, generation in held:
        yield Free(step, node, page, owner, generation)


def written(step: int, node: str, table: HeldPages, start: int, stop: int) -> Iterator[Write]:
    """The owner wrote positions [start, stop)."""
    size, owner = table.page_size, table.owner
    for index in range(start // size, -(-stop // size)):
        first, last = max(start - index * size, 0), min(stop - index * size, size)
        yield Write(step, node, table.pages[index], owner, table.generations[index], owner, first, last)


def imported(step: int, node: str, table: HeldPages, writers: Sequence[int]) -> Iterator[Write]:
    """Whole pages came from elsewhere; `writers` says who wrote each of their slots."""
    size, owner = table.page_size, table.owner
    for index in range(len(writers) // size):
        page, generation, first = table.pages[index], table.generations[index], 0
        for writer, run in itertools.groupby(writers[index * size : (index + 1) * size]):
            last = first + sum(1 for _ in run)
            yield Write(step, node, page, owner, generation, writer, first, last)
            first = last


def read(
    step: int, node: str, table: HeldPages, writers: Callable[[int, int], tuple[tuple[int, int], ...]] | None
) -> Iterator[Read]:
    """The owner read all its written positions; `writers` tells a page's writers if they are not the owner alone."""
    size, owner = table.page_size, table.owner
    for index in range(-(-table.written // size)):
        slots, page = min(table.written - index * size, size), table.pages[index]
        whose = ((owner, slots),) if writers is None else writers(page, slots)
        yield Read(step, node, page, owner, table.generations[index], slots, whose)
