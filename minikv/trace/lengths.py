"""How long each part took one request to be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minikv.trace.events import PARTS, Event, Length, Read


def lengths(trace: Iterable[Event], request: int | None = None) -> list[Length]:
    """The length of one request as each part believed it, in the order of `PARTS`.

    A part that took it for two lengths, one after the other, stands here with the first. What attention took it for
    is what its first step on the decode node read: the prompt, and the first token of the answer.

    Args:
        trace: events of a run.
        request: its number; if not given, the last that came.

    Returns:
        One `Length` for each part that had an idea of it; parts that the request never reached are missing.
    """
    events = list(trace)
    noted = [event for event in events if isinstance(event, Length)]
    if request is None:
        request = max((event.request for event in noted), default=-1)
    found: dict[str, Length] = {}
    for event in noted:
        if event.request == request:
            found.setdefault(event.part, event)
    read = _first_read(events, request)
    if read is not None:
        found.setdefault(read.part, read)
    return [found[part] for part in PARTS if part in found]


def _first_read(events: Sequence[Event], request: int) -> Length | None:
    """What attention read in its first step after the handoff; None if there was none."""
    taken = next(
        (event for event in events if isinstance(event, Length) and (event.request, event.part) == (request, "wire")),
        None,
    )
    if taken is None:
        return None
    reads = [event for event in events if isinstance(event, Read) and event.owner == request]
    reads = [event for event in reads if event.node != taken.node and event.step >= taken.step]
    first = [event for event in reads if event.step == reads[0].step]
    if not first:
        return None
    slots = sum(event.slots for event in first)
    return Length(first[0].step, first[0].node, request, "attention", slots)
