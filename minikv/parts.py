"""The parts that can be exchanged, with the right ones as defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from minikv.attention import torch_backend
from minikv.attention.metadata import AttentionBackend
from minikv.config import NodeConfig
from minikv.errors import ConfigError
from minikv.memory import FreeList, PageAllocator, PagePool
from minikv.sampling import Sampler, sample
from minikv.scheduling.admission import Admission, AdmissionPolicy
from minikv.scheduling.scheduler import Scheduler, SchedulingPolicy


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a server is put together from; each may be a learner's own.

    What a part hands back is checked: a broken rule ends the requests concerned, or all where it cannot be told whom
    it harms, with a `BrokenRule` that names the rule and the step. What a part reads, and whether its numbers are
    right, is not checked.

    Attributes:
        allocator: builds what chooses pages, from their number; see `PageAllocator`.
        pool: builds a node's pool, a subclass of `PagePool`.
        attention: reads the pages; see `AttentionBackend`.
        scheduler: builds what plans the steps of a node; see `SchedulingPolicy`.
        admission: builds the door; see `AdmissionPolicy`.
        sampler: chooses the next token; see `Sampler`.
    """

    allocator: Callable[[int], PageAllocator] = FreeList
    pool: Callable[..., PagePool] = PagePool
    attention: AttentionBackend = torch_backend.attend
    scheduler: Callable[[PagePool, NodeConfig], SchedulingPolicy] = Scheduler
    admission: Callable[..., AdmissionPolicy] = Admission
    sampler: Sampler = sample

    def __post_init__(self) -> None:
        for field in fields(self):
            if not callable(part := getattr(self, field.name)):
                raise ConfigError(f"{field.name} must be something that can be called, not {part!r}")

    def require(self, name: str, part: object, methods: str) -> None:
        """Raise `ConfigError` unless a part that was built has all that the server will ask of it."""
        for method in methods.split():
            if not hasattr(part, method):
                raise ConfigError(f"{name} must have {methods}; {type(part).__name__} has no {method}")
