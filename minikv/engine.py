"""One node that does both jobs: it reads prompts and writes answers."""

from __future__ import annotations

from typing import Any

from minikv.config import EngineConfig
from minikv.frontend import Frontend
from minikv.memory import Ledger, PagePool, pages_needed
from minikv.models.adapter import BoundModel
from minikv.node import Node
from minikv.scheduling.request import Request
from minikv.trace import Trace

DEFAULT_CONTEXT = 8192
DEFAULT_POOL_BYTES = 2**30


class Engine(Frontend):
    """Serves a model from a paged KV cache.

    `Engine(model, page_size=16, num_pages=64)` or `Engine(model, EngineConfig(page_size=16, num_pages=64))`.

    Args:
        model: from `load_model`.
        config: an `EngineConfig`; if not given, it is built from `options`.
        trace: where events go; a new `Trace` if not given.
        options: fields of `EngineConfig` (page_size, num_pages, context_length, max_batch_size, max_batch_tokens,
            over_limit, max_waiting, allow_context_above_pool, ledger), and parts from `Parts` (allocator, pool,
            attention, scheduler, admission, sampler).

    Raises:
        ConfigError: for settings that cannot work, before anything is allocated.
    """

    def __init__(
        self, model: BoundModel, config: EngineConfig | None = None, *, trace: Trace | None = None, **options: Any
    ) -> None:
        super().__init__(model, config, EngineConfig, trace, options, name="engine")
        settings: Any = self.config
        num_pages = settings.num_pages or _default_pages(model, settings)
        context_length = settings.context(
            model.max_positions, num_pages * settings.page_size, model=model.name, node=self.name
        )
        self.node = Node(
            self.name,
            model,
            settings.node(num_pages),
            settings.page_size,
            ledger=Ledger if settings.ledger else None,
            trace=self.trace,
            parts=self.parts,
        )
        self.nodes = (self.node,)
        self._open_door(context_length)

    @property
    def pool(self) -> PagePool:
        """The node's pages."""
        return self.node.pool

    def _step(self) -> None:
        """The next token of everybody who runs, and the prompts that join."""
        self._run(self.node)

    def _drop(self, request: Request) -> None:
        self.node.release(request)


def _default_pages(model: BoundModel, config: EngineConfig) -> int:
    fit = DEFAULT_POOL_BYTES // (model.geometry.bytes_per_token(model.dtype) * config.page_size)
    context = config.context_length or min(model.max_positions or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    one_request = pages_needed(context, config.page_size)
    return max(1, one_request if config.context_length else 1, min(fit, config.max_batch_size * one_request))
