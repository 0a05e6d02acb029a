"""A prefill node, a decode node, and the one door in front of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from minikv.attention import torch_backend
from minikv.attention.metadata import AttentionBackend
from minikv.config import NodeConfig, whole_number
from minikv.disagg.nodes import DecodeNode, PrefillNode
from minikv.errors import ConfigError, HandoffRefused
from minikv.frontend import Frontend, check_parts, choose_context
from minikv.memory import FreeList, Ledger, PageAllocator
from minikv.models.adapter import BoundModel
from minikv.scheduling.admission import Admission
from minikv.scheduling.request import Request
from minikv.trace import Trace


class Cluster(Frontend):
    """Serves a model from two nodes in one process, each with a pool of its own size.

    Args:
        model: from `load_model`; both nodes use it.
        prefill, decode: sizes of the two nodes.
        page_size: token slots per page, on both.
        context_length: most tokens of one request; by default as many as the model and the smaller pool allow.
        allow_context_above_pool: accept a context that the smaller pool cannot hold; requests are then refused
            by what the pools hold.
        ledger, trace, allocator, attention: as for `Engine`; each node builds its own ledger and allocator.

    Raises:
        ConfigError: for settings that cannot work, before anything is allocated.
    """

    prefill_type: type[PrefillNode] = PrefillNode
    decode_type: type[DecodeNode] = DecodeNode

    def __init__(
        self,
        model: BoundModel,
        *,
        prefill: NodeConfig,
        decode: NodeConfig,
        page_size: int = 16,
        context_length: int | None = None,
        allow_context_above_pool: bool = False,
        ledger: bool = True,
        trace: Trace | None = None,
        allocator: Callable[[int], PageAllocator] = FreeList,
        attention: AttentionBackend = torch_backend.attend,
    ) -> None:
        super().__init__(model, trace if trace is not None else Trace(), name="router")
        whole_number("page_size", page_size, least=1)
        check_parts(ledger=ledger, allocator=allocator, attention=attention)
        for role, config in (("prefill", prefill), ("decode", decode)):
            if not isinstance(config, NodeConfig):
                raise ConfigError(f"{role} must be a NodeConfig, not {type(config).__name__}")
        smallest = min(("prefill", prefill), ("decode", decode), key=lambda pair: pair[1].num_pages)
        self.context_length = choose_context(
            model,
            context_length,
            smallest[1].num_pages * page_size,
            node=smallest[0],
            allow_above_pool=allow_context_above_pool,
        )
        shadow = self._ledger_type() if ledger else None
        self.prefill = self.prefill_type(
            "prefill",
            model,
            prefill,
            page_size,
            generates_all=False,
            ledger=shadow,
            trace=self.trace,
            allocator=allocator,
            attention=attention,
        )
        self.decode = self.decode_type(
            "decode",
            model,
            decode,
            page_size,
            ledger=shadow,
            trace=self.trace,
            allocator=allocator,
            attention=attention,
        )
        self.admission = Admission(self.context_length, [self.prefill.capacity, self.decode.capacity])
        self._ready: deque[Request] = deque()  # prompt done, handoff not yet taken

    def _ledger_type(self) -> Callable[[int, int], Ledger]:
        return Ledger

    def _step(self) -> None:
        """One step of the prefill node, the handoffs that find room, one step of the decode node."""
        self._ready.extend(self._run(self.prefill))
        self._hand_over_all()
        self._run(self.decode)

    def _hand_over_all(self) -> None:
        """Move requests to the decode node, oldest first, until one finds no room."""
        while self._ready:
            request = self._ready.popleft()
            try:
                moved = self._hand_over(request)
            except BaseException as error:
                self._fail([request], error)
                if not isinstance(error, Exception):
                    raise
                continue
            if not moved:
                self._ready.appendleft(request)
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
            self.prefill.release(request)
        return True

    def check(self) -> None:
        """Verify both pools.

        Raises:
            BrokenRule: naming the first rule that does not hold.
        """
        self.prefill.pool.check()
        self.decode.pool.check()

    def _door(self, request: Request) -> None:
        self.admission.check(request)

    def _enqueue(self, request: Request) -> None:
        self.prefill.scheduler.add(request)

    def _drop(self, request: Request) -> None:
        if request in self._ready:
            self._ready.remove(request)
        self.prefill.release(request)
        self.decode.release(request)
