"""What a prefill node gives a decode node, and how the receiver knows that it is all there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from minikv.errors import HandoffRefused
from minikv.memory import PagePool, PageTable, SlotRecords, pages_needed


@dataclass(frozen=True)
class Handoff:
    """The contract between two nodes.

    Attributes:
        request: number of the request it belongs to.
        num_tokens: positions that the sender wrote: [0, num_tokens) are promised.
        first_token: the token that the prompt led to; it has no keys and values yet.
        keys, values: one tensor a layer, [pages, page_size, kv_heads, width]; pages are sent whole.
        records: what the sender's ledger knows about the slots; None if it keeps none.
        digest: over request, num_tokens, first_token and the bytes of the slots that were written. It shows damage; it
            is no signature.
    """

    request: int
    num_tokens: int
    first_token: int
    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]
    records: SlotRecords | None
    digest: str


def pack(pool: PagePool, table: PageTable, first_token: int) -> Handoff:
    """Copy a request's written pages out of a pool."""
    keys, values, records = pool.export_pages(table)
    digest = digest_of(table.owner, table.written, first_token, keys, values)
    return Handoff(table.owner, table.written, first_token, tuple(keys), tuple(values), records, digest)


class HandoffContract(Protocol):
    """Both sides of a handoff; the two nodes share one object. The right one is `Contract`."""

    def pack(self, pool: PagePool, table: PageTable, first_token: int) -> Handoff:
        """Copy a request's written pages out of the sender's pool (`pool.export_pages(table)`).

        `table.owner` and `table.written` are what to promise; the digest is any text that `verify` can work out, too.
        """

    def verify(self, handoff: Handoff, pool: PagePool, *, request: int, expected_tokens: int) -> None:
        """Raise `HandoffRefused`, or return None: then all that the receiver expects is there, and intact.

        Args:
            handoff: what came; every field of it may be wrong.
            pool: of the receiver; its layers, shapes and dtype are those to expect. Nothing in it is changed here.
            request, expected_tokens: whose handoff is expected, and the length of its prompt as the door recorded it.
        """


def digest_of(
    request: int,
    num_tokens: int,
    first_token: int,
    keys: Sequence[torch.Tensor],
    values: Sequence[torch.Tensor],
) -> str:
    """Digest of what a handoff says and of the bytes of its written slots, layer by layer."""
    digest = hashlib.blake2b(f"{request} {num_tokens} {first_token}".encode(), digest_size=16)
    for tensor in (*keys, *values):
        written = tensor.flatten(0, 1)[:num_tokens].contiguous().cpu()
        digest.update(written.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def verify(handoff: Handoff, pool: PagePool, *, request: int, expected_tokens: int) -> None:
    """Take a handoff for complete and intact, or refuse it. Nothing is changed.

    Args:
        pool: of the receiver.
        request: the request that the receiver is waiting for.
        expected_tokens: the length of its prompt as recorded at the door.

    Raises:
        HandoffRefused: naming what does not agree.
    """
    if handoff.request != request:
        raise HandoffRefused(f"a handoff for request {handoff.request} came where {request} was expected")
    if handoff.num_tokens != expected_tokens:
        raise HandoffRefused(
            f"request {request}: {expected_tokens} tokens were expected, {handoff.num_tokens} are promised"
        )
    num_pages = pages_needed(expected_tokens, pool.page_size)
    for name, own, sent in (("keys", pool.keys, handoff.keys), ("values", pool.values, handoff.values)):
        count = len(sent) if isinstance(sent, Sequence) else 0
        if count != len(own):
            raise HandoffRefused(f"request {request}: {name} of {count} layers came, not of {len(own)}")
        for layer, (mine, theirs) in enumerate(zip(own, sent, strict=True)):
            found, expected = _form(theirs), f"{(num_pages, *mine.shape[1:])} of {mine.dtype}"
            if found != expected:
                raise HandoffRefused(f"request {request}: {name} of layer {layer} came as {found}, not as {expected}")
    _verify_records(handoff, num_pages * pool.page_size)
    seen = digest_of(handoff.request, handoff.num_tokens, handoff.first_token, handoff.keys, handoff.values)
    if seen != handoff.digest:
        raise HandoffRefused(f"request {request}: the contents do not match their digest")


def _form(tensor: object) -> str:
    return f"{tuple(tensor.shape)} of {tensor.dtype}" if isinstance(tensor, torch.Tensor) else type(tensor).__name__


def _verify_records(handoff: Handoff, slots: int) -> None:
    """The sender's ledger, if it keeps one, must say that the request wrote all that is promised, each in its place."""
    records = handoff.records
    if records is None:
        return
    if not isinstance(records, SlotRecords) or any(
        not isinstance(entry, np.ndarray) or entry.shape != (slots,)
        for entry in (records.writer, records.position, records.current)
    ):
        raise HandoffRefused(f"request {handoff.request}: records of {slots} slots were expected")
    written = slice(handoff.num_tokens)
    right = (
        (records.writer[written] == handoff.request)
        & (records.position[written] == np.arange(handoff.num_tokens))
        & records.current[written]
    )
    if not right.all():
        raise HandoffRefused(
            f"request {handoff.request}: {int((~right).sum())} of {handoff.num_tokens} slots were not written by it"
        )


class Contract:
    """The right contract: complete and intact, or nothing."""

    pack = staticmethod(pack)
    verify = staticmethod(verify)
