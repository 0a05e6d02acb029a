"""Typed events of a run; everything that is drawn comes from here."""

from minikv.trace.events import (
    Admit,
    Allocate,
    Event,
    Finish,
    Free,
    HandoffDone,
    Preempt,
    Read,
    Refuse,
    Trace,
    Write,
)

__all__ = [
    "Admit",
    "Allocate",
    "Event",
    "Finish",
    "Free",
    "HandoffDone",
    "Preempt",
    "Read",
    "Refuse",
    "Trace",
    "Write",
]
