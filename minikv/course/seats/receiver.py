"""The learner's receiver in a cluster: `as_handoff(receive)` is a part for `handoff=`.

    def receive(node, request, handoff):
        '''Take the handoff that came for `request`, complete or not at all: raise, and leave nothing behind.'''

    Cluster(model, prefill=..., decode=..., handoff=as_handoff(receive))

`receive` gets a small node, made for this one call, with a pool of the same shapes, and its exception is the cluster's
`HandoffRefused`. What it took is compared with what came, and only then the cluster takes it over. A receiver that
is wrong ends its request with a `BrokenRule` that says what the receiver did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from minikv.course.chapters.handover import DecodeSide, Handoff, as_course_handoff, pages_in, received_tokens
from minikv.disagg.handoff import Handoff as EngineHandoff
from minikv.disagg.handoff import pack, verify
from minikv.errors import BrokenRule, ConfigError, HandoffRefused
from minikv.memory import PagePool, PageTable
from minikv.viz.transfer import Transfer

Receive = Callable[[DecodeSide, int, Handoff], object]

_KEPT = 10_000  # transfers that are remembered
_BESIDE = 2  # pages of a neighbour in the small node
_OLD = -7.0  # what lies in its pages before

COMPLETE = "a receiver takes what is complete and intact, and nothing else"
NOTHING = "a handoff that is refused leaves no page behind, and the client has read nothing"
PLACE = "what came stands in the reserved pages, in every layer, and in no other page"
FIRST = "a receiver sends the first token that came, once"
UNCHANGED = "a receiver changes nothing in what came"
NOTES = "a receiver notes the request that it took, and leaves the others in `accepted` as they are"

_NUMBERS = range(10**9)  # an entry like these is the number of some request; others are a receiver's own notes


def as_handoff(
    receive: Receive, spoil: Callable[[EngineHandoff], EngineHandoff] | None = None
) -> Callable[[], ReceiverContract]:
    """What a `Cluster` takes as `handoff=`, with `receive` on the receiving side.

    Args:
        receive: the learner's function: takes a node, the number of the request that waits, and what came for it.
        spoil: changes handoffs on the way, for demonstrations.

    Raises:
        ConfigError: if one of them is no function.
    """
    if not callable(receive):
        raise ConfigError(f"a receiver must be a function, not {receive!r:.60}")
    if spoil is not None and not callable(spoil):
        raise ConfigError(f"spoil must be a function, not {spoil!r:.60}")
    return partial(ReceiverContract, receive, spoil)


def delivered(receive: Receive, node: DecodeSide, request: int, handoff: Handoff, sent: tuple[int, ...]) -> Transfer:
    """Deliver one handoff to a receiver and note how it went; an exception is a refusal.

    Args:
        sent: the sender's pages, for the picture.
    """
    reserved, expected = node.holds(request), node.expected.get(request, 0)
    why = ""
    try:
        receive(node, request, handoff)
    except NotImplementedError:
        raise
    except Exception as refusal:
        why = _words(refusal)
    return noted(node, request, handoff, expected, reserved, sent, why)


def noted(
    node: DecodeSide,
    request: int,
    handoff: Handoff,
    expected: int,
    reserved: tuple[int, ...],
    sent: tuple[int, ...],
    why: str,
) -> Transfer:
    """A handoff with its three counters; `why` it was refused, "" if it was taken."""
    received = received_tokens(handoff, node.num_layers, node.page_size)
    came = min(len(reserved), pages_in(handoff, node.num_layers))
    return Transfer(request, expected, handoff.num_tokens, received, sent, reserved, came, not why, why)


def _copied(tensors: Any) -> Any:
    """The receiver's own copy of what came; what is no list of tensors stays as it is."""
    if not isinstance(tensors, Sequence):
        return tensors
    return tuple(tensor.clone() if isinstance(tensor, torch.Tensor) else tensor for tensor in tensors)


def _changed(came: Handoff, shown: Handoff) -> str:
    """Which part of a handoff is not as it came: "layer 1 of the keys", or "" for none. NaN may be in it."""
    for name in ("keys", "values"):
        before, after = getattr(came, name), getattr(shown, name)
        if not isinstance(before, Sequence):
            continue
        for layer, (was, now) in enumerate(zip(before, after, strict=True)):
            if isinstance(was, torch.Tensor) and not _same(was, now):
                return f"layer {layer} of the {name}"
    return ""


def _same(was: torch.Tensor, now: torch.Tensor) -> bool:
    if (was.shape, was.dtype) != (now.shape, now.dtype):
        return False
    return torch.allclose(was, now.detach(), rtol=0, atol=0, equal_nan=True)


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if text else type(error).__name__


class ReceiverContract:
    """A `HandoffContract` that asks the learner's function.

    Attributes:
        transfers: the handoffs that came, oldest first.
    """

    def __init__(self, receive: Receive, spoil: Callable[[EngineHandoff], EngineHandoff] | None = None) -> None:
        self._receive, self._spoil = receive, spoil
        self._accepted: set[int] = set()
        self._sent: dict[int, tuple[int, ...]] = {}
        self.transfers: deque[Transfer] = deque(maxlen=_KEPT)

    def pack(self, pool: PagePool, table: PageTable, first_token: int) -> EngineHandoff:
        """As the right contract; the page numbers are noted for the picture."""
        handoff = pack(pool, table, first_token)
        self._sent[table.owner] = tuple(table.pages[: -(-table.written // pool.page_size)])
        return self._spoil(handoff) if self._spoil else handoff

    def verify(self, handoff: EngineHandoff, pool: PagePool, *, request: int, expected_tokens: int) -> None:
        """Let the learner's receiver take the handoff on a small node.

        Raises:
            HandoffRefused: if it raises, with its words, and is right.
            BrokenRule: if it does what a receiver must not do.
        """
        node = self._node(pool, expected_tokens)
        pages = node.expect(request, expected_tokens)
        before, made = self._beside(node, pages), node.shapes()
        came = as_course_handoff(handoff)
        shown = replace(came, keys=_copied(came.keys), values=_copied(came.values))
        sent = self._sent.pop(request, ())
        refusal: Exception | None = None
        try:
            self._receive(node, request, shown)
        except NotImplementedError:
            raise
        except Exception as error:
            refusal = error
        why = "" if refusal is None else _words(refusal)
        table = pool.tables.get(request)
        real = tuple(pages if table is None else table.pages)
        self.transfers.append(noted(node, request, came, expected_tokens, real, sent, why))
        if changed := _changed(came, shown):
            raise BrokenRule(UNCHANGED, f"your receiver wrote to {changed} that came", request)
        if node.shapes() != made:
            raise BrokenRule(PLACE, "the node's memory is another one, of another size", request)
        if any(not was.equal(now) for was, now in zip(before, self._beside(node, pages), strict=True)):
            raise BrokenRule(PLACE, "a page was overwritten that was not reserved for it", request)
        self._check_notes(node, request)
        complaint = self._complaint(replace(handoff, records=None), pool, request, expected_tokens)
        if refusal is None:
            if complaint:
                raise BrokenRule(COMPLETE, f"your receiver took it, but {complaint}", request)
            self._check_taken(node, request, came, pages)
            verify(handoff, pool, request=request, expected_tokens=expected_tokens)  # and what the ledger says
            self._accepted.add(request)
            return
        if tokens := node.sent.get(request):
            raise BrokenRule(NOTHING, f"your receiver refused it and had sent token {tokens[0]}", request)
        if held := node.holds(request):
            raise BrokenRule(NOTHING, f"your receiver refused it ({why}) and kept {len(held)} pages", request)
        if not complaint:
            raise BrokenRule(COMPLETE, f"all of it was there, and your receiver refused it: {why}", request)
        raise HandoffRefused(f"request {request}: {why}") from refusal

    def _node(self, pool: PagePool, expected: int) -> DecodeSide:
        """A small node with memory of the pool's shapes; its free pages are lent from the end."""
        count = -(-expected // pool.page_size) + _BESIDE
        keys, values = (
            [tensor.new_full((count, *tensor.shape[1:]), _OLD) for tensor in tensors]
            for tensors in (pool.keys, pool.values)
        )
        node = DecodeSide(keys, values, range(count - 1, -1, -1))
        node.accepted = set(self._accepted)  # a copy: what one call does to it harms no later request
        return node

    def _check_notes(self, node: DecodeSide, request: int) -> None:
        """Nobody else's client has read anything, and nobody else counts as taken, or no longer as taken."""
        sent: object = node.sent
        if not isinstance(sent, Mapping):
            raise BrokenRule(FIRST, f"the node's `sent` is {sent!r:.40} after your receiver", request)
        if others := [other for other in sent if other != request]:
            said = f"your receiver took the handoff of request {request} and sent a token to request {others[0]!r:.20}"
            raise BrokenRule(FIRST, said, request)
        try:
            notes = set(node.accepted)
        except TypeError:
            said = f"`accepted` is {node.accepted!r:.40} after your receiver"
            raise BrokenRule(NOTES, said, request) from None
        if lost := self._accepted - notes:
            raise BrokenRule(NOTES, f"your receiver took request {min(lost)} out of it", request)
        added = notes - self._accepted - {request}
        if strange := [one for one in added if isinstance(one, int) and one in _NUMBERS]:
            raise BrokenRule(NOTES, f"your receiver put request {min(strange)} into it", request)

    def _beside(self, node: DecodeSide, pages: list[int]) -> list[torch.Tensor]:
        others = [page for page in range(node.num_pages) if page not in pages]
        return [tensor[others].clone() for tensor in (*node.keys, *node.values)]

    def _complaint(self, handoff: EngineHandoff, pool: PagePool, request: int, expected: int) -> str:
        """What the right contract finds wrong with a handoff; "" for nothing."""
        try:
            verify(handoff, pool, request=request, expected_tokens=expected)
        except HandoffRefused as refusal:
            return str(refusal)
        return ""

    def _check_taken(self, node: DecodeSide, request: int, handoff: Handoff, pages: list[int]) -> None:
        """A complete handoff was taken: it must stand where it belongs, and the answer must have begun."""
        if node.holds(request) != tuple(pages):
            raise BrokenRule(PLACE, "your receiver took it and gave its pages back", request)
        for own, came in ((node.keys, handoff.keys), (node.values, handoff.values)):
            for layer, (mine, theirs) in enumerate(zip(own, came, strict=True)):
                here = mine[pages].flatten(0, 1)[: handoff.num_tokens]
                if not here.equal(theirs.flatten(0, 1)[: handoff.num_tokens]):
                    raise BrokenRule(PLACE, f"layer {layer} holds something else after your receiver", request)
        if (tokens := node.sent.get(request, [])) != [handoff.first_token]:
            raise BrokenRule(FIRST, f"{handoff.first_token} came, and your receiver sent {tokens}", request)
