"""One node that does both jobs: it reads prompts and writes answers."""

from __future__ import annotations

from collections.abc import Callable

from minikv.attention import torch_backend
from minikv.attention.metadata import AttentionBackend
from minikv.config import NodeConfig, whole_number
from minikv.frontend import Frontend, check_parts, choose_context
from minikv.memory import FreeList, Ledger, PageAllocator, PagePool, pages_needed
from minikv.models.adapter import BoundModel
from minikv.node import Node
from minikv.scheduling.admission import Admission
from minikv.scheduling.request import Request
from minikv.trace import Trace

DEFAULT_CONTEXT = 8192
DEFAULT_POOL_BYTES = 2**30


class Engine(Frontend):
    """Serves a model from a paged KV cache.

    Args:
        model: from `load_model`.
        page_size: token slots per page.
        num_pages: pages in the pool; by default as many as 1 GiB holds, and no more than a full batch can use.
        context_length: most tokens of one request, prompt and answer together; by default as many as model and
            pool allow.
        max_batch_size: the most requests that share a step.
        max_batch_tokens: the most tokens computed in one step; a longer prompt has a step to itself.
        allow_context_above_pool: accept a context that the pool cannot hold; requests are then refused by what
            the pool holds.
        ledger: keep the shadow record and refuse stale reads; costs some time, so benchmarks switch it off.
        trace: where events go; a new `Trace` if not given.
        allocator: builds the part that chooses pages, from their number.
        attention: reads the pages.

    Raises:
        ConfigError: for settings that cannot work, before anything is allocated.
    """

    def __init__(
        self,
        model: BoundModel,
        *,
        page_size: int = 16,
        num_pages: int | None = None,
        context_length: int | None = None,
        max_batch_size: int = 32,
        max_batch_tokens: int = 8192,
        allow_context_above_pool: bool = False,
        ledger: bool = True,
        trace: Trace | None = None,
        allocator: Callable[[int], PageAllocator] = FreeList,
        attention: AttentionBackend = torch_backend.attend,
    ) -> None:
        super().__init__(model, trace if trace is not None else Trace(), name="engine")
        whole_number("page_size", page_size, least=1)
        whole_number("max_batch_size", max_batch_size, least=1)
        if context_length is not None:
            whole_number("context_length", context_length, least=2)
        check_parts(ledger=ledger, allocator=allocator, attention=attention)
        if num_pages is None:
            num_pages = _default_pages(model, page_size, context_length, max_batch_size)
        config = NodeConfig(num_pages=num_pages, max_batch_size=max_batch_size, max_batch_tokens=max_batch_tokens)
        pool_tokens = num_pages * page_size
        self.context_length = choose_context(
            model, context_length, pool_tokens, node=self.name, allow_above_pool=allow_context_above_pool
        )
        self.node = Node(
            self.name,
            model,
            config,
            page_size,
            ledger=Ledger if ledger else None,
            trace=self.trace,
            allocator=allocator,
            attention=attention,
        )
        self.admission = Admission(self.context_length, [self.node.capacity])

    @property
    def pool(self) -> PagePool:
        """The node's pages."""
        return self.node.pool

    def _step(self) -> None:
        """The next token of everybody who runs, and the prompts that join."""
        self._run(self.node)

    def check(self) -> None:
        """Verify that every page is free or lent once, and that nobody reads more than was written.

        Raises:
            BrokenRule: naming the first rule that does not hold.
        """
        self.pool.check()

    def _door(self, request: Request) -> None:
        self.admission.check(request)

    def _enqueue(self, request: Request) -> None:
        self.node.scheduler.add(request)

    def _drop(self, request: Request) -> None:
        self.node.release(request)


def _default_pages(model: BoundModel, page_size: int, context_length: int | None, batch: int) -> int:
    fit = DEFAULT_POOL_BYTES // (model.geometry.bytes_per_token(model.dtype) * page_size)
    context = context_length or min(model.max_positions or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    one_request = pages_needed(context, page_size)
    return max(1, one_request if context_length else 1, min(fit, batch * one_request))
