"""Typed events of a run; everything that is drawn comes from here."""

from minikv.trace.events import (
    PARTS,
    Admit,
    Allocate,
    Event,
    Finish,
    Free,
    HandoffDone,
    Length,
    Preempt,
    Read,
    Refuse,
    Trace,
    Write,
)
from minikv.trace.lengths import lengths

__all__ = [
    "PARTS",
    "Admit",
    "Allocate",
    "Event",
    "Finish",
    "Free",
    "HandoffDone",
    "Length",
    "Preempt",
    "Read",
    "Refuse",
    "Trace",
    "Write",
    "lengths",
]
