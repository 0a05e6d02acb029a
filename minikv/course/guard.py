"""Run code that may do anything: never end, print a novel, leave through `exit()`."""

from __future__ import annotations

import contextlib
import ctypes
import io
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_SHOWN = 1500  # characters of output that are kept
_AGAIN = 0.05  # seconds between two attempts to stop code that swallows the first


class TimeUp(BaseException):
    """Raised inside code that ran too long. No Exception, so that `except Exception` lets it pass."""


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """How a guarded run ended: its value, or its error (TimeUp if it was too long), and what it printed."""

    value: T | None
    error: BaseException | None
    printed: str


def guarded(work: Callable[[], T], seconds: float) -> Outcome[T]:
    """Call `work()` for at most `seconds`, catch whatever it raises and keep the start of what it prints.

    On the main thread of Linux and macOS a timer signal interrupts the code. Elsewhere (Windows, or a
    server that runs cells in a thread) `work` runs in a thread of its own that is asked to stop; there
    `signal` and other main-thread-only calls do not work inside `work`. Both stop Python code; the signal way
    also a loop around a bare `except:`. Neither can stop one long call into C (a huge matrix product, `input()`,
    `time.sleep` on Windows): the signal way waits for that call to end; the thread way goes on at once
    and leaves the thread behind, busy until the call ends or the kernel is restarted.
    """
    printed = _Printed()
    value: T | None = None
    error: BaseException | None = None
    has_alarm = hasattr(signal, "setitimer")
    on_main = threading.current_thread() is threading.main_thread()
    run = _with_alarm if has_alarm and on_main else _in_thread
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            value = run(work, seconds)
        except BaseException as caught:
            error = caught
    return Outcome(value, error, printed.text())


def _with_alarm(work: Callable[[], T], seconds: float) -> T:
    armed, rings = True, 0

    def ring(_signal: int, frame: FrameType | None) -> None:
        nonlocal rings
        rings += 1
        if armed and rings > 1:  # the first was swallowed
            _stop_at_the_next_line(frame)
        if armed:
            raise TimeUp

    began, tracing = time.monotonic(), sys.gettrace()
    before = signal.signal(signal.SIGALRM, ring)
    outer, again = signal.getitimer(signal.ITIMER_REAL)  # one guarded run may be inside another
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, min(seconds, outer) if outer else seconds, _AGAIN)
            return work()
        finally:
            armed = False
            sys.settrace(tracing)
    finally:  # the last ring may have come just before `armed = False`
        armed = False
        sys.settrace(tracing)
        left = max(outer - (time.monotonic() - began), _AGAIN) if outer else 0.0
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left, again)


def _stop_at_the_next_line(frame: FrameType | None) -> None:
    """Raise once more where `except:` has caught the first: that line is outside of its own `try`."""

    def stop(_frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        if event == "line":
            sys.settrace(None)
            raise TimeUp
        return stop

    sys.settrace(stop)
    while frame is not None and frame.f_code.co_filename != __file__:
        frame.f_trace = stop
        frame = frame.f_back


def _in_thread(work: Callable[[], T], seconds: float) -> T:
    values: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            values.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        for _ in range(20):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TimeUp))
            thread.join(_AGAIN)
            if not thread.is_alive():
                break
        raise TimeUp
    if errors:
        raise errors[0]
    return values[0]


class _Printed(io.TextIOBase):
    """A place to print to that keeps the beginning and counts the rest."""

    def __init__(self) -> None:
        self._kept = ""
        self._more = 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        room = _SHOWN - len(self._kept)
        self._kept += text[:room]
        self._more += max(0, len(text) - room)
        return len(text)

    def text(self) -> str:
        """What was kept, and how much was not."""
        return self._kept.rstrip() + (f"\n... and {self._more:,} more characters" if self._more else "")
