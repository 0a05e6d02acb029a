"""The shadow record: for every slot of a pool, who wrote it, in which generation of the page, for which position.

The page table says who *owns* a page. The ledger says who *wrote* a slot. Reading is right only where both agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minikv.errors import StaleRead
from minikv.memory.page_table import PageTable

NOBODY = -1


@dataclass(frozen=True)
class SlotRecords:
    """What the ledger knows about a run of slots; travels with the pages of a handoff.

    Attributes:
        writer, position: int64 [slots]; NOBODY where nothing was ever written.
        current: bool [slots]; True where the contents belong to the page's present generation.
    """

    writer: np.ndarray
    position: np.ndarray
    current: np.ndarray


class Ledger:
    """Writer, generation and position of each slot of one pool.

    Attributes:
        writer, generation, position: int64 [num_slots], NOBODY where nothing was written.
    """

    def __init__(self, num_slots: int, page_size: int) -> None:
        self.page_size = page_size
        self.writer = np.full(num_slots, NOBODY, dtype=np.int64)
        self.generation = np.full(num_slots, NOBODY, dtype=np.int64)
        self.position = np.full(num_slots, NOBODY, dtype=np.int64)

    def record_write(self, table: PageTable, start: int, stop: int) -> None:
        """The table's owner wrote positions [start, stop)."""
        slots = table.slots(start, stop)
        self.writer[slots] = table.owner
        self.position[slots] = np.arange(start, stop)
        self.generation[slots] = self.generations_of(table, start, stop)

    def check_read(self, table: PageTable, stop: int) -> np.ndarray:
        """The table's owner is about to read positions [0, stop). Returns the slots that are stale, int64.

        Raises:
            StaleRead: if any slot was written by another request, in an earlier generation of its page, for
                another position, or never.
        """
        slots = table.slots(0, stop)
        stale = (
            (self.writer[slots] != table.owner)
            | (self.position[slots] != np.arange(stop))
            | (self.generation[slots] != self.generations_of(table, 0, stop))
        )
        if stale.any():
            self.on_stale(table, slots[stale])
        found: np.ndarray = slots[stale]
        return found

    def on_stale(self, table: PageTable, slots: np.ndarray) -> None:
        """What happens at a stale read: it is refused."""
        writers = ", ".join(self.describe(slots))
        raise StaleRead(f"request {table.owner} was about to read {len(slots)} slots written by {writers}")

    def describe(self, slots: np.ndarray) -> list[str]:
        """The writers of some slots in words, most slots first."""
        numbers, counts = np.unique(self.writer[slots], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return [f"{'nobody' if numbers[i] == NOBODY else f'request {numbers[i]}'} ({counts[i]})" for i in order]

    def records(self, table: PageTable, num_pages: int) -> SlotRecords:
        """Records of all slots, written or not, in the first `num_pages` pages of a table."""
        stop = num_pages * self.page_size
        slots = table.slots(0, stop)
        current = self.generation[slots] == self.generations_of(table, 0, stop)
        return SlotRecords(self.writer[slots].copy(), self.position[slots].copy(), current)

    def adopt(self, table: PageTable, records: SlotRecords) -> None:
        """Whole pages arrived from another pool: their slots keep their writers.

        Contents of the present generation there become contents of the present generation here; older ones
        stay recognisably old.
        """
        stop = len(records.writer)
        slots = table.slots(0, stop)
        self.writer[slots] = records.writer
        self.position[slots] = records.position
        self.generation[slots] = np.where(records.current, self.generations_of(table, 0, stop), NOBODY)

    def generations_of(self, table: PageTable, start: int, stop: int) -> np.ndarray:
        """For positions [start, stop): in which generation their pages were lent to the table, int64."""
        size = self.page_size
        pages = np.asarray(table.generations[start // size : -(-stop // size)], dtype=np.int64)
        offset = start // size * size
        return np.repeat(pages, size)[start - offset : stop - offset]
