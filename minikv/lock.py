"""A lock for callers who come again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class FairLock:
    """Re-entrant, and taken in turn: a thread that steps in a loop lets in whoever waits after each step.

    Args:
        mend: called whenever the lock is taken anew, by a thread that did not hold it: the last holder may have been
            interrupted in the middle of something.
    """

    def __init__(self, mend: Callable[[], None]) -> None:
        self._turn = threading.Lock()
        self._lock: Any = threading.RLock()  # `_is_owned` is what threading.Condition asks it, too
        self._mend = mend

    def __enter__(self) -> None:
        if self._lock._is_owned():
            self._lock.acquire()
            return
        try:
            with self._turn:  # who waits for the lock holds the turn; the last holder queues up behind
                self._lock.acquire()
            self._mend()
        except BaseException:
            if self._lock._is_owned():
                self._lock.release()
            raise

    def __exit__(self, *_error: object) -> None:
        self._lock.release()
