"""What chapter 07 works with: a handoff, its digest, and the two sides of the way that it goes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from minikv.models.adapter import BoundModel


@dataclass(frozen=True, eq=False, repr=False)
class Handoff:
    """What a prefill node gives a decode node.

    Attributes:
        request: number of the request that it belongs to.
        num_tokens: how many tokens the sender says it wrote: so many are promised.
        first_token: the first token of the answer; it has no key and no value yet.
        keys, values: one tensor a layer, [pages, page_size, heads, numbers]; pages are sent whole.
        digest: worked out by the sender; `digest_of` works it out again.
    """

    request: int
    num_tokens: int
    first_token: int
    keys: Sequence[torch.Tensor]
    values: Sequence[torch.Tensor]
    digest: str

    def __repr__(self) -> str:
        came = [f"{name}=<{_form(getattr(self, name))}>" for name in ("keys", "values")]
        return (
            f"Handoff(request={self.request}, num_tokens={self.num_tokens}, first_token={self.first_token}, "
            f"{', '.join(came)}, digest={self.digest!r})"
        )


def _form(tensors: Any) -> str:
    try:
        return f"{len(tensors)} layers, first {list(tensors[0].shape)}"
    except Exception:
        return type(tensors).__name__


def digest_of(handoff: Handoff) -> str:
    """A short text worked out from what a handoff says and from all that its written slots hold.

    It covers the request, the number of tokens, the first token, and in every layer that came the first
    `num_tokens` slots of keys and values. Anybody can work it out.
    """
    import torch

    digest = hashlib.blake2b(f"{handoff.request} {handoff.num_tokens} {handoff.first_token}".encode(), digest_size=16)
    for tensor in (*handoff.keys, *handoff.values):
        written = tensor.flatten(0, 1)[: handoff.num_tokens].contiguous().cpu()
        digest.update(written.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def pages_in(handoff: Handoff, layers: int) -> int:
    """Pages that came in every layer, for keys and values alike; 0 if a layer is missing."""
    try:
        if len(handoff.keys) < layers or len(handoff.values) < layers:
            return 0
        return min(len(tensor) for tensor in (*handoff.keys, *handoff.values))
    except (TypeError, ValueError):
        return 0


def received_tokens(handoff: Handoff, layers: int, page_size: int) -> int:
    """How many of the promised tokens have slots in every layer."""
    try:
        return max(0, min(int(handoff.num_tokens), pages_in(handoff, layers) * page_size))
    except (TypeError, ValueError):
        return 0


class DecodeSide:
    """A decode node, as far as a receiver must know it.

    Args:
        keys, values: its memory, one tensor a layer, [all pages, page_size, heads, numbers].
        order: its free pages, in the order in which they are lent; all, from 0, if not given.

    Attributes:
        page_size: slots in a page; `num_pages` and `num_layers` say the rest of its size.
        expected: for each request that waits or runs here, the tokens of its prompt, as the door wrote them down.
        reserved: for each of them, the pages lent to it, in the order of its tokens.
        accepted: for the receiver to keep; empty at first.
        sent: for each request, the tokens that its client has read.
        free: pages that nobody holds.
    """

    def __init__(
        self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], order: Sequence[int] | None = None
    ) -> None:
        self.keys, self.values = list(keys), list(values)
        self.num_pages, self.page_size = (int(size) for size in self.keys[0].shape[:2])
        self.num_layers = len(self.keys)
        self.free = list(range(self.num_pages)) if order is None else list(order)
        self.accepted: set[int] = set()
        self.sent: dict[int, list[int]] = {}
        self._held: dict[int, tuple[int, ...]] = {}
        self._reserved: dict[int, list[int]] = {}
        self._expected: dict[int, int] = {}
        self.reserved: Mapping[int, list[int]] = MappingProxyType(self._reserved)
        self.expected: Mapping[int, int] = MappingProxyType(self._expected)

    @classmethod
    def of_model(cls, model: BoundModel, num_pages: int, page_size: int) -> DecodeSide:
        """A node with a pool for this model."""
        from minikv.memory import PagePool

        pool = PagePool(model.geometry, num_pages, page_size, dtype=model.dtype, ledger=None)
        return cls(pool.keys, pool.values)

    def expect(self, request: int, tokens: int) -> list[int]:
        """The door let a request in and wrote its length down: lend it pages. They hold what they held before."""
        pages = -(-tokens // self.page_size)
        if request in self._held:
            raise ValueError(f"request {request} holds pages here already")
        if pages > len(self.free):
            raise MemoryError(f"{pages} pages were asked for, {len(self.free)} are free")
        grant, self.free = self.free[:pages], self.free[pages:]
        self._held[request], self._reserved[request], self._expected[request] = tuple(grant), list(grant), tokens
        return list(grant)

    def send(self, request: int, token: int) -> None:
        """Send a token of the answer to the client. What was sent cannot be taken back."""
        self.sent.setdefault(request, []).append(int(token))

    def give_back(self, request: int) -> None:
        """The request is over here: its pages are free again."""
        if request not in self._held:
            raise LookupError(f"request {request} holds no page here")
        self.free += self._held.pop(request)
        del self._reserved[request], self._expected[request]

    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of its memory; [] if what stands in its place is no memory."""
        try:
            return [tuple(tensor.shape) for tensor in (*self.keys, *self.values)]
        except (TypeError, AttributeError):
            return []

    def holds(self, request: int) -> tuple[int, ...]:
        """The pages that a request really holds; () if none."""
        return self._held.get(request, ())


class PrefillSide:
    """A prefill node by itself: it reads prompts with a real model and makes handoffs of them."""

    def __init__(self, model: BoundModel, num_pages: int, page_size: int) -> None:
        from minikv.config import NodeConfig
        from minikv.disagg.nodes import PrefillNode
        from minikv.parts import Parts
        from minikv.trace import Trace

        config = NodeConfig(num_pages=num_pages)
        self.node = PrefillNode("prefill", model, config, page_size, trace=Trace(), parts=Parts())

    def read(self, request: int, ids: Sequence[int]) -> Handoff:
        """Read a prompt, and copy out what was written for it. Its pages stay lent until `release`."""
        from minikv.sampling import SamplingParams
        from minikv.scheduling.request import Request

        job = Request(request, ids, SamplingParams(max_tokens=2, ignore_eos=True))
        self.node.scheduler.add(job)
        while not job.output_ids:
            self.node.step()
        return as_course_handoff(self.node.export(job))

    def pages(self, request: int) -> list[int]:
        """The pages that a request holds here."""
        return list(self.node.pool.tables[request].pages)

    def release(self, request: int) -> None:
        """Give the pages of a request back."""
        self.node.pool.free(self.node.pool.tables[request])


def as_course_handoff(handoff: Any) -> Handoff:
    """The engine's record without what its ledger adds. Both digests are the same."""
    fields = ("request", "num_tokens", "first_token", "keys", "values", "digest")
    return Handoff(*(getattr(handoff, name) for name in fields))
