"""One model replica with one page pool: plans a step, computes it, and gives pages back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import islice

import torch

from minikv.attention import torch_backend
from minikv.attention.metadata import AttentionMetadata
from minikv.config import NodeConfig
from minikv.errors import BrokenRule, ConfigError, as_minikv
from minikv.health.guards import as_token, check_plan
from minikv.memory import Ledger, PagePool
from minikv.models.adapter import BoundModel
from minikv.parts import Parts
from minikv.sampling import log_probabilities
from minikv.scheduling.admission import NodeCapacity
from minikv.scheduling.request import Request
from minikv.scheduling.scheduler import Scheduled
from minikv.trace import Trace


class Node:
    """A model, its pool and its scheduler.

    Args:
        name: for messages and events.
        model: the bound model; several nodes may share it.
        config: the size of the pool and of a step.
        page_size: token slots per page.
        ledger: builds the shadow record; None keeps none.
        trace: where events go.
        parts: what it is put together from.

    Attributes:
        in_step: the requests of the step that runs now or ran last.
        num_steps, num_computed_tokens: steps that computed something, and tokens computed in them.
    """

    def __init__(
        self,
        name: str,
        model: BoundModel,
        config: NodeConfig,
        page_size: int,
        *,
        ledger: Callable[[int, int], Ledger] | None = Ledger,
        trace: Trace,
        parts: Parts,
    ) -> None:
        if model.geometry.indexers and parts.attention is not torch_backend.attend:
            raise ConfigError(f"{model.name} reads its pages itself, so an attention part would never be asked")
        self.name = name
        self.model = model
        self.config = config
        self.attention = parts.attention
        self.sampler = parts.sampler
        self.trace = trace
        self.pool = parts.pool(
            model.geometry,
            config.num_pages,
            page_size,
            dtype=model.dtype,
            device=model.device,
            node=name,
            allocator=parts.allocator,
            ledger=ledger,
            trace=trace,
        )
        if not isinstance(self.pool, PagePool):
            raise ConfigError(f"pool must be a PagePool, not {type(self.pool).__name__}")
        self.parts = parts
        self.scheduler = parts.scheduler(self.pool, config)
        parts.require("scheduler", self.scheduler, "waiting running add schedule remove")
        self.in_step: list[Request] = []
        self.num_steps = self.num_computed_tokens = 0

    @property
    def capacity(self) -> NodeCapacity:
        """What the door must know about this node."""
        return NodeCapacity(self.name, self.pool.num_slots)

    @property
    def queue(self) -> Collection[Request]:
        """The requests that wait, in order; a policy may keep them in a dict by number or in any collection."""
        waiting = self.scheduler.waiting
        return waiting.values() if isinstance(waiting, Mapping) else waiting

    @property
    def at_risk(self) -> list[Request]:
        """Whom an error in the step concerns: its requests, or those for whom one was being planned."""
        return self.in_step or [*self.scheduler.running, *islice(self.queue, 1)]

    def step(self) -> list[Request]:
        """Plan and compute one step; returns the requests that got a token. Does nothing if nobody can run."""
        self.in_step = []
        plan = check_plan(self.scheduler.schedule(), self.pool, self.config)
        # Who was aborted while this was planned leaves after the step.
        plan = [share for share in plan if not share.request.finished]
        self.in_step = [share.request for share in plan]
        if type(self.pool) is not PagePool:
            PagePool.check(self.pool)
        if not plan:
            return []
        ends = [self._is_last(share) for share in plan]
        logits = self._compute(plan, ends)
        self.num_steps += 1
        self.num_computed_tokens += sum(share.num_scheduled_tokens for share in plan)
        stepped = [share.request for share, end in zip(plan, ends, strict=True) if end]
        for request, row in zip(stepped, logits, strict=False):
            self._append(request, row)
        return stepped

    def _is_last(self, share: Scheduled) -> bool:
        """Whether a share computes the last known token, so that its logits tell the next one."""
        return self.pool.tables[share.request.number].written + share.num_scheduled_tokens == share.request.num_tokens

    def _compute(self, plan: list[Scheduled], ends: list[bool]) -> torch.Tensor:
        """Run the model; returns a row of logits for each share that yields a token (one row if none does)."""
        tables = [self.pool.tables[share.request.number] for share in plan]
        ids: list[int] = []
        for share, table in zip(plan, tables, strict=True):
            ids += share.request.tokens(table.written, table.written + share.num_scheduled_tokens)
        step = AttentionMetadata(self.pool, tables, [share.num_scheduled_tokens for share in plan], self.attention)
        rows = [view.start + view.length - 1 for view, end in zip(step.sequences, ends, strict=True) if end]
        device = self.model.device
        input_ids, last = torch.tensor(ids, device=device), torch.tensor(rows or [0], device=device)
        return self.model.forward(input_ids, step.position_ids, last, step)

    def _append(self, request: Request, logits: torch.Tensor) -> None:
        """Choose a request's next token; what goes wrong here is its error alone."""
        try:
            before = len(request.output_ids)
            token = as_token(self.sampler(logits, request), len(logits))
            if len(request.output_ids) != before:
                raise BrokenRule("a sampler leaves the request alone", f"it added {request.output_ids[before:]}")
            if request.params.logprobs is not None and not request.finished:
                request.logprobs.append(log_probabilities(logits, token, request.params.logprobs))
            request.append(token)
        except Exception as error:
            request.finish("error", as_minikv(error, self.trace.step))

    def reset(self) -> None:
        """Take all pages back and forget all requests, in whatever state an interrupt has left them."""
        self.pool.clear()
        self.scheduler = self.parts.scheduler(self.pool, self.config)
        self.in_step = []

    def release(self, request: Request) -> None:
        """Forget a request and take its pages back, if it has any here. Safe to call more than once."""
        try:
            self.scheduler.remove(request)
        finally:
            if table := self.pool.tables.get(request.number):
                self.pool.free(table)
