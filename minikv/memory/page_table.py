"""One request's pages, in the order of its positions."""

from __future__ import annotations

import numpy as np

from minikv.errors import BrokenRule


class PageTable:
    """Where a request's tokens lie: position `p` is in slot `pages[p // page_size] * page_size + p % page_size`.

    Attributes:
        owner: number of the request that holds the pages.
        page_size: token slots per page.
        pages: page numbers, append-only.
        generations: for each page, the generation in which it was lent to this table.
        written: positions [0, written) hold this request's keys and values (vLLM counts them as
            num_computed_tokens). Always `written <= allocated`; what lies beyond is reserved, not readable.
    """

    def __init__(self, owner: int, page_size: int) -> None:
        self.owner = owner
        self.page_size = page_size
        self.pages: list[int] = []
        self.generations: list[int] = []
        self.written = 0

    @property
    def allocated(self) -> int:
        """Token slots in the pages held."""
        return len(self.pages) * self.page_size

    def slots(self, start: int, stop: int) -> np.ndarray:
        """Slots of positions [start, stop), int64 [stop - start].

        Raises:
            BrokenRule: if a position has no page yet.
        """
        if not 0 <= start <= stop <= self.allocated:
            raise BrokenRule(
                "allocated >= written >= readable",
                f"positions {start} to {stop - 1} of request {self.owner} were asked for, but its "
                f"{len(self.pages)} pages hold positions 0 to {self.allocated - 1}",
            )
        first_page = start // self.page_size
        last_page = -(-stop // self.page_size)
        pages = np.asarray(self.pages[first_page:last_page], dtype=np.int64)
        slots = (pages[:, None] * self.page_size + np.arange(self.page_size)).ravel()
        offset = first_page * self.page_size
        return slots[start - offset : stop - offset]


def pages_needed(tokens: int, page_size: int) -> int:
    """Pages that hold `tokens` token slots: `tokens / page_size`, rounded up."""
    return -(-tokens // page_size)
