"""Where keys and values live."""

from minikv.memory.allocator import FreeList, PageAllocator
from minikv.memory.ledger import Ledger, SlotRecords
from minikv.memory.page_table import PageTable, pages_needed
from minikv.memory.pool import PagePool, refuse_size

__all__ = [
    "FreeList",
    "Ledger",
    "PageAllocator",
    "PagePool",
    "PageTable",
    "SlotRecords",
    "pages_needed",
    "refuse_size",
]
