"""A prefill node, a decode node, and the one door in front of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from minikv.config import ClusterConfig
from minikv.disagg.handoff import Contract, HandoffContract
from minikv.disagg.nodes import DecodeNode, PrefillNode
from minikv.errors import ConfigError, HandoffRefused, as_minikv
from minikv.frontend import Frontend
from minikv.memory import Ledger, refuse_size
from minikv.models.adapter import BoundModel
from minikv.scheduling.request import Request
from minikv.trace import Trace


class Cluster(Frontend):
    """Serves a model from two nodes in one process, each with a pool of its own size.

    `Cluster(model, prefill=NodeConfig(num_pages=28), decode=NodeConfig(num_pages=64), page_size=16)`.

    Args:
        model: from `load_model`; both nodes use it.
        config: a `ClusterConfig`; if not given, it is built from `options`.
        trace: where events go; a new `Trace` if not given.
        handoff: builds both sides of a handoff; see `HandoffContract`.
        options: fields of `ClusterConfig` (prefill, decode, page_size, context_length, over_limit, max_waiting,
            allow_context_above_pool, ledger), and parts as for `Engine`; each node builds its own of most.

    Raises:
        ConfigError: for settings that cannot work, before anything is allocated.
    """

    prefill_type: type[PrefillNode] = PrefillNode
    decode_type: type[DecodeNode] = DecodeNode

    def __init__(
        self,
        model: BoundModel,
        config: ClusterConfig | None = None,
        *,
        trace: Trace | None = None,
        handoff: Callable[[], HandoffContract] = Contract,
        **options: Any,
    ) -> None:
        super().__init__(model, config, ClusterConfig, trace, options, name="router")
        if not callable(handoff):
            raise ConfigError(f"handoff must be something that can be called, not {handoff!r}")
        settings: Any = self.config
        sizes = {"prefill": settings.prefill, "decode": settings.decode}
        smallest = min(sizes, key=lambda role: sizes[role].num_pages)
        pool_tokens = sizes[smallest].num_pages * settings.page_size
        context_length = settings.context(model.max_positions, pool_tokens, model=model.name, node=smallest)
        slots = (settings.prefill.num_pages + settings.decode.num_pages) * settings.page_size
        refuse_size(model.geometry, slots, model.dtype, model.device)
        common: dict[str, Any] = {
            "page_size": settings.page_size,
            "ledger": self._ledger_type() if settings.ledger else None,
            "trace": self.trace,
            "parts": self.parts,
        }
        self.prefill = self.prefill_type("prefill", model, settings.prefill, **common)
        self.decode = self.decode_type("decode", model, settings.decode, **common)
        self.prefill.contract = self.decode.contract = handoff()
        self.parts.require("handoff", self.prefill.contract, "pack verify")
        self.nodes = (self.prefill, self.decode)
        self.between: deque[Request] = deque()  # prompt done, handoff not yet taken
        self._open_door(context_length)

    def _ledger_type(self) -> Callable[[int, int], Ledger]:
        return Ledger

    def _step(self) -> None:
        """One step of the prefill node, the handoffs that find room, one step of the decode node."""
        self.between.extend(self._run(self.prefill))
        self._hand_over_all()
        self._run(self.decode)

    def _hand_over_all(self) -> None:
        """Move requests to the decode node, oldest first, until one finds no room."""
        while self.between:
            request = self.between.popleft()
            try:
                moved = self._hand_over(request)
            except Exception as error:
                self._fail([request], error, half_done=True)  # whatever the error names, it is this one's
                continue
            except BaseException as interrupt:
                request.finish("error", as_minikv(interrupt, self.trace.step))
                raise
            if not moved:
                self.between.appendleft(request)
                return

    def _hand_over(self, request: Request) -> bool:
        """Move a request to the decode node; False if that has no room yet."""
        if not self.decode.reserve(request):
            return False
        try:
            handoff = self.prefill.export(request)
            if not request.finished:  # it may have been aborted meanwhile
                self.decode.receive(request, handoff)
        except HandoffRefused as refusal:
            self._finish(request, "error", refusal)
        else:
            request.handed_over = True
            self.prefill.release(request)
        return True

    def may_read(self, request: Request) -> bool:
        """Not before the decode node has taken the handoff whole: prefill's first token alone is no answer."""
        return request.handed_over or request.finish_reason in ("length", "stop")

    def _drop(self, request: Request) -> None:
        if request in self.between:
            self.between.remove(request)
        try:
            self.prefill.release(request)
        finally:
            self.decode.release(request)
