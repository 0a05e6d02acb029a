"""What carries handoffs from one node to the other, and how it may fail."""

from __future__ import annotations

from dataclasses import replace

from minikv.disagg.handoff import Handoff
from minikv.errors import HandoffRefused
from minikv.memory import SlotRecords


class NothingCame(Exception):
    """The sender's pages are not here. They may come later, and they may never come."""


class PrefillGaveUp(NothingCame):
    """The sender stopped before it sent anything, and will not send any more."""


class Wire:
    """Carries everything, at once and once."""

    def carry(self, handoff: Handoff) -> Handoff:
        """What arrives of a handoff.

        Raises:
            NothingCame: if nothing does, now.
        """
        return handoff


class LosesLastPage(Wire):
    """`short-transfer`: the last page never arrives, and the sender reports success for all that it promised."""

    def carry(self, handoff: Handoff) -> Handoff:
        """All pages but the last; promise and digest as the sender wrote them."""
        pages = handoff.keys[0].shape[0] - 1
        keys, values = ([each[:pages] for each in side] for side in (handoff.keys, handoff.values))
        return replace(handoff, keys=tuple(keys), values=tuple(values), records=_first(handoff, pages))


def _first(handoff: Handoff, pages: int) -> SlotRecords | None:
    records = handoff.records
    if records is None:
        return None
    stop = pages * handoff.keys[0].shape[1]
    return SlotRecords(records.writer[:stop], records.position[:stop], records.current[:stop])


class GivesUp(Wire):
    """`lost-abort`: prefill gives up when its prompt is done and nothing was sent yet."""

    def carry(self, handoff: Handoff) -> Handoff:
        """Nothing."""
        raise PrefillGaveUp(f"the prefill node gave request {handoff.request} up")


class Slow(Wire):
    """`late-write`: the first handoff is under way until somebody lands it.

    Attributes:
        under_way: that handoff, once it was sent.
    """

    def __init__(self) -> None:
        self.under_way: Handoff | None = None

    def carry(self, handoff: Handoff) -> Handoff:
        """Nothing for the first, the others whole."""
        if self.under_way is None:
            self.under_way = handoff
            raise NothingCame(f"the handoff of request {handoff.request} is under way")
        return handoff


class Repeats(Wire):
    """`duplicate`: carries everything, and keeps a copy of the last handoff to deliver it once more.

    Attributes:
        again: that copy.
    """

    def __init__(self) -> None:
        self.again: Handoff | None = None

    def carry(self, handoff: Handoff) -> Handoff:
        """All of it."""
        self.again = handoff
        return handoff


def told(error: PrefillGaveUp) -> HandoffRefused:
    """What a client hears when the receiver is told that its sender gave up."""
    return HandoffRefused(str(error))
