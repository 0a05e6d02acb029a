"""A trial of a receiver: a node with neighbours, one handoff, and what became of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from minikv.course.chapters.handover import DecodeSide, Handoff, digest_of

if TYPE_CHECKING:
    import torch

REQUEST, WAITING, RUNNING = 7, 9, 4  # the one that is tried, one that waits beside it, one that runs beside it
TOKEN = 311  # the first token of the answer to REQUEST
_BUGS = (TypeError, AttributeError, NameError, IndexError, KeyError)  # of a slip, not of a refusal

Tensors = list["torch.Tensor"]


def sealed(handoff: Handoff, **changes: Any) -> Handoff:
    """The handoff with some fields changed, and a digest that fits it."""
    changed = replace(handoff, **changes)
    return replace(changed, digest=digest_of(changed))


def of_layers(handoff: Handoff, change: Callable[[int, torch.Tensor], torch.Tensor], *names: str) -> dict[str, Any]:
    """Changes for `sealed`: each layer's tensor of `names` ("keys", "values") goes through `change(layer, tensor)`."""
    return {
        name: [change(layer, tensor) for layer, tensor in enumerate(getattr(handoff, name))]
        for name in names or ("keys", "values")
    }


@dataclass(frozen=True)
class Outcome:
    """What one call of a receiver did.

    Attributes:
        error: what it raised, or None.
        sent: tokens that the client of the request read during the call.
        holds: the pages that the request holds afterwards.
        taken_from: another request that lost its pages, and these pages; None if nobody did.
        harmed: what was overwritten that is not the request's: "" or words for it.
        told: other requests whose clients read a token during the call.
        forgotten: other requests that stood in `accepted` before, and do not any more.
        noted: other requests that stand in `accepted` now, and did not before.
        pages_gone: how many pages are neither free nor held by anybody.
        pages_twice: pages that are free and held, or free twice.
        replaced: whether the node's tensors have other shapes than before; then `harmed` says nothing.
    """

    error: Exception | None
    sent: tuple[int, ...]
    holds: tuple[int, ...]
    taken_from: tuple[int, tuple[int, ...]] | None
    harmed: str
    replaced: bool
    told: tuple[int, ...]
    forgotten: tuple[int, ...]
    noted: tuple[int, ...]
    pages_gone: int
    pages_twice: tuple[int, ...]

    @property
    def said(self) -> str:
        """What was raised, in a few words."""
        if self.error is None:
            return "you raised nothing"
        text = " ".join(str(self.error).split())
        return f"you raised {type(self.error).__name__}" + (f" ({text[:90]})" if text else "")


_STRANGERS = range(20)  # numbers of requests that the node has never heard of


def _is_in(request: int, kept: Any) -> bool:
    try:
        return request in kept
    except TypeError:
        return False


class Trial:
    """A decode node that waits for one handoff, and that handoff, complete.

    The pages of the node lie in no order and hold old numbers. One neighbour runs, one waits.

    Args:
        expected: tokens of the prompt.
        page_size, layers: of the node.
        widths: numbers of a key and of a value in one head.
    """

    def __init__(self, expected: int, page_size: int = 4, layers: int = 3, widths: tuple[int, int] = (3, 2)) -> None:
        import torch

        self._random = torch.Generator().manual_seed(1000 * expected + page_size)
        pages = -(-expected // page_size)
        total = 2 * pages + 6
        step = next(step for step in (5, 7, 11, 13, 17) if total % step)
        order = [(3 + step * index) % total for index in range(total)]
        keys, values = (self._numbers(layers, total, page_size, width) for width in widths)
        self.node = DecodeSide(keys, values, order)
        self.total = total
        self.node.expect(RUNNING, page_size + 1)
        self.node.accepted.add(RUNNING)
        self.pages = self.node.expect(REQUEST, expected)
        self.node.expect(WAITING, expected)
        self.complete = self.handoff(REQUEST, expected, widths)
        self.widths = widths
        self._before = self.memory(self.pages)
        self._made = self.node.shapes()

    def _numbers(self, layers: int, pages: int, page_size: int, width: int) -> Tensors:
        import torch

        return [torch.randn(pages, page_size, 2, width, generator=self._random) for _ in range(layers)]

    def handoff(self, request: int, tokens: int, widths: tuple[int, int]) -> Handoff:
        """A complete handoff. What lies behind its last token is left over from others."""
        size = self.node.page_size
        keys, values = (self._numbers(len(self.node.keys), -(-tokens // size), size, width) for width in widths)
        token = TOKEN if request == REQUEST else TOKEN + request
        return sealed(Handoff(request, tokens, token, keys, values, ""))

    def deliver(self, receive: Any, handoff: Handoff, request: int = REQUEST) -> Outcome:
        """One call of the receiver. A slip in a complete handoff's way comes through, as does a stub."""
        node = self.node
        sent, others = len(node.sent.get(request, ())), self._others(request)
        read, noted = {other: len(tokens) for other, tokens in node.sent.items()}, self._accepted(request)
        error: Exception | None = None
        try:
            receive(node, request, handoff)
        except NotImplementedError:
            raise
        except _BUGS as slip:
            if handoff is self.complete and request not in node.sent:
                raise
            error = slip
        except Exception as refusal:
            error = refusal
        tokens = tuple(node.sent.get(request, ())[sent:])
        replaced = node.shapes() != self._made
        harmed = "" if replaced else self._harm(others)
        told = (other for other, those in node.sent.items() if other != request and len(those) != read.get(other, 0))
        now, (gone, twice) = self._accepted(request), self._free()
        return Outcome(
            error, tokens, node.holds(request), self._lost(others), harmed, replaced, tuple(told),
            tuple(sorted(noted - now)), tuple(sorted(now - noted)), gone, twice,
        )  # fmt: skip

    def _accepted(self, request: int) -> set[int]:
        """Requests but this one that stand in `accepted`; what else a receiver keeps there is its own business."""
        kept: Any = self.node.accepted
        return {one for one in (RUNNING, REQUEST, WAITING, *_STRANGERS) if one != request and _is_in(one, kept)}

    def _free(self) -> tuple[int, tuple[int, ...]]:
        """How many pages are to be found nowhere, and pages that are to be found twice."""
        held = [page for other in (RUNNING, REQUEST, WAITING) for page in self.node.holds(other)]
        try:
            found = Counter([*held, *self.node.free])
        except TypeError:  # something else stands in its place
            found = Counter(held)
        return sum(page not in found for page in range(self.total)), tuple(p for p in found if found[p] > 1)

    def untouched(self) -> bool:
        """Whether the pages of REQUEST hold what they held in the beginning."""
        return all(was.equal(now) for was, now in zip(self._before, self.memory(self.pages), strict=True))

    def differs(self, handoff: Handoff) -> dict[str, list[int]]:
        """Layers whose pages of REQUEST do not hold the tokens of a handoff, for "keys" and for "values"."""
        pages, count = list(self.pages), handoff.num_tokens
        found: dict[str, list[int]] = {"keys": [], "values": []}
        for name, layers in found.items():
            for layer, tensor in enumerate(getattr(self.node, name)):
                here = tensor[pages].flatten(0, 1)[:count]
                if not here.equal(getattr(handoff, name)[layer].flatten(0, 1)[:count].to(here)):
                    layers.append(layer)
        return found

    def write_answer(self) -> None:
        """The node goes on with the answer: it writes the slots behind the prompt in the last page."""
        used = self.complete.num_tokens % self.node.page_size
        for tensor in (*self.node.keys, *self.node.values):
            tensor[self.pages[-1], used:] = 0.5 if used else tensor[self.pages[-1], used:]

    def memory(self, pages: Sequence[int]) -> Tensors:
        """A copy of what some pages hold."""
        return [tensor[list(pages)].clone() for tensor in (*self.node.keys, *self.node.values)]

    def _others(self, request: int) -> dict[str, Any]:
        mine = set(self.node.holds(request))
        pages = [page for page in range(self.total) if page not in mine]
        held = {other: self.node.holds(other) for other in (RUNNING, REQUEST, WAITING) if other != request}
        return {"pages": pages, "memory": self.memory(pages), "held": held}

    def _lost(self, before: dict[str, Any]) -> tuple[int, tuple[int, ...]] | None:
        held: dict[int, tuple[int, ...]] = before["held"]
        return next(((other, pages) for other, pages in held.items() if self.node.holds(other) != pages), None)

    def _harm(self, before: dict[str, Any]) -> str:
        for was, now in zip(before["memory"], self.memory(before["pages"]), strict=True):
            if not was.equal(now):
                changed = (was != now).flatten(1).any(dim=1).nonzero().flatten().tolist()
                page = before["pages"][changed[0]]
                owner = next((f"request {r} holds" for r in (RUNNING, WAITING) if page in self.node.holds(r)), "")
                return f"page {page} was overwritten, which {owner or 'was not lent to this request'}"
        return ""
