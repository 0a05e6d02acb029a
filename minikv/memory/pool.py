"""All pages of one node: who holds which, and the tensors themselves."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
import torch

from minikv.config import whole_number
from minikv.errors import BrokenRule, ConfigError, OutOfPages, StaleRead, StaleWrite
from minikv.memory.allocator import GRANT_RULE, FreeList, PageAllocator, page_numbers
from minikv.memory.ledger import NOBODY, Ledger, SlotRecords
from minikv.memory.page_table import PageTable
from minikv.models.geometry import KVGeometry
from minikv.trace import Trace
from minikv.trace import pages as events


def _not_the_holder(detail: str) -> BrokenRule:
    return BrokenRule("a page has one holder", detail)


class PagePool:
    """The pages of one node, with their owners and their contents.

    Args:
        geometry: what one token's keys and values look like in each layer.
        num_pages, page_size: how many pages, and how many token slots each has.
        dtype, device: of the stored keys and values.
        node: name of the node, for messages and events.
        allocator: builds the part that chooses pages; `FreeList` if not given.
        ledger: builds the shadow record from (num_slots, page_size); None keeps none.
        trace: where events go.

    Attributes:
        keys, values: one tensor a layer, [num_pages, page_size, kv_heads, key width or value width].
        owner: int64 [num_pages], NOBODY where the page is free.
        generation: int64 [num_pages], how many times the page has been lent.
        tables: page tables by request number.

    Raises:
        ConfigError: for a page size or a number of pages that cannot work.
    """

    def __init__(
        self,
        geometry: KVGeometry,
        num_pages: int,
        page_size: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        node: str = "engine",
        allocator: Callable[[int], PageAllocator] = FreeList,
        ledger: Callable[[int, int], Ledger] | None = Ledger,
        trace: Trace | None = None,
    ) -> None:
        self.num_pages = whole_number("num_pages", num_pages, least=1)
        self.page_size = whole_number("page_size", page_size, least=1)
        self.geometry = geometry
        self.node = node
        self.trace = trace if trace is not None else Trace(enabled=False)
        refuse_size(geometry, self.num_slots, dtype, torch.device(device))
        self.keys = [self._zeros(layer.kv_heads, layer.key_dim, dtype, device) for layer in geometry.layers]
        self.values = [self._zeros(layer.kv_heads, layer.value_dim, dtype, device) for layer in geometry.layers]
        self._build_allocator = allocator
        self.allocator = allocator(num_pages)
        self.ledger = ledger(self.num_slots, page_size) if ledger else None
        self.owner = np.full(num_pages, NOBODY, dtype=np.int64)
        self.generation = np.zeros(num_pages, dtype=np.int64)
        self.tables: dict[int, PageTable] = {}
        self._num_lent = 0

    def _zeros(self, heads: int, width: int, dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
        return torch.zeros(self.num_pages, self.page_size, heads, width, dtype=dtype, device=device)

    @property
    def num_slots(self) -> int:
        """Token slots in all pages."""
        return self.num_pages * self.page_size

    @property
    def num_free(self) -> int:
        """Pages that nobody holds."""
        return self.num_pages - self._num_lent

    def lend(self, owner: int, num_pages: int) -> PageTable:
        """Open a page table for a request and lend it its first pages. Contents are left as they are.

        Raises:
            OutOfPages: if fewer pages are free; nothing is lent then.
            BrokenRule: if the request has a table already, or the allocator hands out a page wrongly.
        """
        if owner in self.tables:
            raise BrokenRule("one page table per request and node", f"request {owner} has one on {self.node}")
        table = PageTable(owner, self.page_size)
        self.extend(table, num_pages)
        self.tables[owner] = table
        return table

    def extend(self, table: PageTable, num_pages: int) -> None:
        """Lend a table `num_pages` more pages. Raises as `lend` does."""
        if num_pages > self.num_free:
            raise OutOfPages(f"{num_pages} pages were asked for and {self.num_free} are free on {self.node}")
        pages = self._granted(num_pages) if num_pages else []
        for page in pages:
            self.owner[page] = table.owner
            self.generation[page] += 1
            table.pages.append(page)
            table.generations.append(int(self.generation[page]))
        self._num_lent += len(pages)
        if self.trace.enabled:
            first = len(table.pages) - len(pages)
            self.trace.extend(events.allocated(self.trace.step, self.node, table, first))

    def _granted(self, wanted: int) -> list[int]:
        try:
            grant = self.allocator.allocate(wanted)
        except OutOfPages as error:
            raise BrokenRule(GRANT_RULE, f"{wanted} pages were asked for, {self.num_free} are free: {error}") from error
        pages = page_numbers(grant, wanted)
        for page in pages:
            if not 0 <= page < self.num_pages:
                raise BrokenRule(GRANT_RULE, f"{page} is no page of this pool (0 to {self.num_pages - 1})")
            if self.owner[page] != NOBODY:
                raise BrokenRule(GRANT_RULE, f"page {page} was handed out, but request {self.owner[page]} holds it")
        return pages

    def free(self, table: PageTable) -> None:
        """Take all pages of a table back. The contents stay; overwriting them is the next holder's job.

        Raises:
            BrokenRule: if the table was given back before, or its pages are not (or no longer) its own.
        """
        if self.tables.get(table.owner) is not table:
            raise BrokenRule("a page is freed once", f"request {table.owner} holds no such table on {self.node}")
        self._check_held(table, _not_the_holder)
        del self.tables[table.owner]
        self.owner[table.pages] = NOBODY
        if self.trace.enabled:
            self.trace.extend(events.freed(self.trace.step, self.node, table))
        self._num_lent -= len(table.pages)
        self.allocator.free(list(table.pages))

    def clear(self) -> None:
        """Take all pages back, in whatever state the tables are; contents and generations stay."""
        if self.trace.enabled:
            held = np.flatnonzero(self.owner != NOBODY)
            each = zip(held.tolist(), self.owner[held].tolist(), self.generation[held].tolist(), strict=True)
            self.trace.extend(events.taken_back(self.trace.step, self.node, each))
        self.tables.clear()
        self.owner[:] = NOBODY
        self._num_lent = 0
        self.allocator = self._build_allocator(self.num_pages)

    def _check_held(self, table: PageTable, error: Callable[[str], BrokenRule]) -> None:
        pages = np.asarray(table.pages, dtype=np.int64)
        lost = (self.owner[pages] != table.owner) | (self.generation[pages] != np.asarray(table.generations))
        if lost.any():
            page = int(pages[lost][0])
            raise error(
                f"page {page} on {self.node} is in generation {self.generation[page]} and held by "
                f"{self.owner[page]}; the table of request {table.owner} is out of date"
            )

    def begin_write(self, table: PageTable, start: int, stop: int) -> np.ndarray:
        """Announce that positions [start, stop) are written in this step. Returns their slots, int64.

        Raises:
            StaleWrite: if the table's pages are not its own any more.
            BrokenRule: if the write leaves a gap behind `written` or goes past the pages held.
        """
        if start > table.written:
            raise BrokenRule(
                "positions are written in order",
                f"request {table.owner} wrote {table.written} positions and now starts at {start}",
            )
        slots = table.slots(start, stop)
        self._check_held(table, StaleWrite)
        if self.ledger:
            self.ledger.record_write(table, start, stop)
        table.written = max(table.written, stop)
        if self.trace.enabled:
            self.trace.extend(events.written(self.trace.step, self.node, table, start, stop))
        return slots

    def begin_read(self, table: PageTable) -> np.ndarray:
        """Announce that the owner reads all its written positions. Returns their slots, int64 [written].

        Raises:
            StaleRead: if the table's pages are not its own any more, or the ledger is on and a slot does not hold
                what the owner wrote there.
        """
        self._check_held(table, StaleRead)
        stale = self.ledger.check_read(table, table.written) if self.ledger else ()
        if self.trace.enabled:
            writers = self._writers if len(stale) else None
            self.trace.extend(events.read(self.trace.step, self.node, table, writers))
        return table.slots(0, table.written)

    def store(self, layer: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Put keys and values of one layer into slots.

        Args:
            layer: layer number.
            slots: int64 [tokens], from `begin_write`.
            key, value: [tokens, kv_heads, width].
        """
        self.keys[layer].flatten(0, 1).index_copy_(0, slots, key.to(self.keys[layer].dtype))
        self.values[layer].flatten(0, 1).index_copy_(0, slots, value.to(self.values[layer].dtype))

    def export_pages(self, table: PageTable) -> tuple[list[torch.Tensor], list[torch.Tensor], SlotRecords | None]:
        """Copy out the pages that hold a table's written positions.

        Returns:
            Keys and values, one tensor a layer, [pages, page_size, kv_heads, width], and what the ledger knows
            about their slots. Pages are copied whole: slots past `written` come along as they are.
        """
        self._check_held(table, _not_the_holder)
        count = -(-table.written // self.page_size)
        pages = torch.tensor(table.pages[:count], dtype=torch.long)
        keys = [tensor[pages.to(tensor.device)] for tensor in self.keys]
        values = [tensor[pages.to(tensor.device)] for tensor in self.values]
        return keys, values, self.ledger.records(table, count) if self.ledger else None

    def import_pages(
        self,
        table: PageTable,
        keys: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        records: SlotRecords | None,
        written: int,
    ) -> None:
        """Copy pages into the first pages of a table and declare positions [0, written) readable.

        Args:
            keys, values, records: from `export_pages` of another pool with the same page size.
            written: positions that the pages really hold.

        Raises:
            StaleWrite: if the table's pages are not its own any more.
        """
        self._check_held(table, StaleWrite)
        count = self._count_pages(table, keys, values, written)
        pages = torch.tensor(table.pages[:count], dtype=torch.long)
        for own, new in zip((*self.keys, *self.values), (*keys, *values), strict=True):
            own[pages.to(own.device)] = new.to(own)
        table.written = written
        if self.ledger and records:
            self.ledger.adopt(table, records)
        elif self.ledger:
            self.ledger.record_write(table, 0, written)
        if self.trace.enabled:
            writers = [table.owner] * count * self.page_size if records is None else records.writer.tolist()
            self.trace.extend(events.imported(self.trace.step, self.node, table, writers))

    def _count_pages(
        self, table: PageTable, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], written: int
    ) -> int:
        """How many pages came; raises `BrokenRule` unless every layer brings as many, in this pool's shape."""
        own = [tuple(tensor.shape[1:]) for tensor in (*self.keys, *self.values)]
        came = [tuple(tensor.shape) for tensor in (*keys, *values)]
        count = came[0][0] if came and came[0] else 0
        fits = count <= len(table.pages) and 0 <= written <= table.allocated
        if came != [(count, *shape) for shape in own] or not fits:
            raise BrokenRule(
                "what is imported fits the pages that were lent for it",
                f"{written} positions of request {table.owner} in {count} pages came for {len(table.pages)} pages",
            )
        return count

    def fill_unwritten(self, value: float) -> None:
        """Overwrite every slot that nobody may read: free pages, and lent slots past `written`.

        With NaN this is the poison test: not one bit of any answer may change.
        """
        unwritten = torch.ones(self.num_slots, dtype=torch.bool)
        for table in self.tables.values():
            unwritten[torch.from_numpy(table.slots(0, table.written))] = False
        for tensor in (*self.keys, *self.values):
            tensor.flatten(0, 1)[unwritten.to(tensor.device)] = value

    def check(self) -> None:
        """Verify the pool's invariants.

        Raises:
            BrokenRule: naming the first rule that does not hold.
        """
        lent = [page for table in self.tables.values() for page in table.pages]
        if len(set(lent)) != len(lent):
            raise BrokenRule("a page has one holder", f"a page stands in two tables on {self.node}")
        if lent and (min(lent) < 0 or max(lent) >= self.num_pages):
            raise BrokenRule("a page has one holder", f"a table on {self.node} holds a page that does not exist")
        if len(lent) + self.num_free != self.num_pages:
            raise BrokenRule(
                "free + lent == total", f"{self.num_free} + {len(lent)} != {self.num_pages} on {self.node}"
            )
        for number, table in self.tables.items():
            if table.owner != number:
                raise BrokenRule("a page has one holder", f"request {number} holds the table of request {table.owner}")
            if table.written > table.allocated:
                raise BrokenRule(
                    "allocated >= written", f"request {table.owner} wrote {table.written} of {table.allocated} slots"
                )
        if (held := int((self.owner != NOBODY).sum())) != self._num_lent:
            raise BrokenRule(
                "free + lent == total", f"{held} pages have owners, {self._num_lent} are lent on {self.node}"
            )
        for table in self.tables.values():
            self._check_held(table, _not_the_holder)

    def _writers(self, page: int, slots: int) -> tuple[tuple[int, int], ...]:
        if self.ledger is None:
            return ()
        written = self.ledger.writer[page * self.page_size : page * self.page_size + slots]
        numbers, counts = np.unique(written, return_counts=True)
        return tuple((int(number), int(count)) for number, count in zip(numbers, counts, strict=True))


def refuse_size(geometry: KVGeometry, num_slots: int, dtype: torch.dtype, device: torch.device) -> None:
    """Raise `ConfigError` for pools that no memory holds, before it is touched: the system would kill us later."""
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what an engine that is gone has left counts as free
        memory = torch.cuda.mem_get_info(device)[0]
    elif hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    else:
        return
    if (num_bytes := geometry.bytes_per_token(dtype) * num_slots) > memory:
        raise ConfigError(
            f"pages for {num_slots:,} tokens need {num_bytes / 2**30:,.3f} GiB, and {device} has room for "
            f"{memory / 2**30:,.3f} GiB; use fewer pages"
        )
