"""One model replica with one page pool: plans a step, computes it, and gives pages back."""

from __future__ import annotations

from collections.abc import Callable

import torch

from minikv.attention import torch_backend
from minikv.attention.metadata import AttentionBackend, AttentionMetadata
from minikv.config import NodeConfig
from minikv.errors import as_minikv
from minikv.memory import FreeList, Ledger, PageAllocator, PagePool
from minikv.models.adapter import BoundModel
from minikv.sampling import next_token
from minikv.scheduling.admission import NodeCapacity
from minikv.scheduling.request import Request
from minikv.scheduling.scheduler import Scheduled, Scheduler
from minikv.trace import Trace


class Node:
    """A model, its pool and its scheduler.

    Args:
        name: for messages and events.
        model: the bound model; several nodes may share it.
        config: the size of the pool and of a step.
        page_size: token slots per page.
        generates_all: False if the node generates only the first token of each request.
        ledger: builds the shadow record; None keeps none.
        trace: where events go.
        allocator: builds the part that chooses pages, from their number.
        attention: reads the pages.

    Attributes:
        in_step: the requests of the step that runs now or ran last.
    """

    def __init__(
        self,
        name: str,
        model: BoundModel,
        config: NodeConfig,
        page_size: int,
        *,
        generates_all: bool = True,
        ledger: Callable[[int, int], Ledger] | None = Ledger,
        trace: Trace,
        allocator: Callable[[int], PageAllocator] = FreeList,
        attention: AttentionBackend = torch_backend.attend,
    ) -> None:
        self.name = name
        self.model = model
        self.attention = attention
        self.trace = trace
        self.pool = PagePool(
            model.geometry,
            config.num_pages,
            page_size,
            dtype=model.dtype,
            device=model.device,
            node=name,
            allocator=allocator,
            ledger=ledger,
            trace=trace,
        )
        self.scheduler = Scheduler(self.pool, config, generates_all=generates_all)
        self.in_step: list[Request] = []

    @property
    def capacity(self) -> NodeCapacity:
        """What the door must know about this node."""
        return NodeCapacity(self.name, self.pool.num_slots)

    def step(self) -> list[Request]:
        """Plan and compute one step; returns the requests that got a token. Does nothing if nobody can run."""
        self.in_step = []
        plan = self.scheduler.schedule()
        self.in_step = [item.request for item in plan]
        if plan:
            self._compute(plan)
        return self.in_step

    def _compute(self, plan: list[Scheduled]) -> None:
        tables = [self.pool.tables[item.request.number] for item in plan]
        ids: list[int] = []
        for item, table in zip(plan, tables, strict=True):
            ids += item.request.tokens(table.written, table.written + item.num_tokens)
        step = AttentionMetadata(self.pool, tables, [item.num_tokens for item in plan], self.attention)
        input_ids = torch.tensor(ids, device=self.model.device)
        logits = self.model.forward(input_ids, step.position_ids, step.last_tokens, step)
        for item, row in zip(plan, logits, strict=True):
            request = item.request
            try:
                request.append(next_token(row, request.params, request.generator), self.model.eos_ids)
            except Exception as error:  # of this request alone
                request.finish("error", as_minikv(error))

    def release(self, request: Request) -> None:
        """Forget a request and take its pages back, if it has any here. Safe to call more than once."""
        self.scheduler.remove(request)
