"""What guards cost when nothing is wrong: the share of the time that ordinary traffic spends in them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

REQUESTS, PROMPT, ANSWER = 24, 96, 24


def share_of_guards(make: Callable[[], object], model: Any) -> tuple[float, int]:
    """Serve ordinary requests behind some guards, in one run.

    Args:
        make: builds the guards.
        model: what answers.

    Returns:
        The share of the time that was spent in their methods, and how often one was called.
    """
    from minikv.config import NodeConfig
    from minikv.course.chapters.ex_6_1 import admit
    from minikv.course.chapters.ex_7_1 import receive
    from minikv.course.seats.guards import GuardedCluster, completed
    from minikv.sampling import SamplingParams
    from minikv.trace import Trace

    guards = _Timed(completed(make()))
    cluster = GuardedCluster(
        model,
        guards=guards,
        admit=admit,
        receive=receive,
        prefill=NodeConfig(num_pages=32),
        decode=NodeConfig(num_pages=64),
        page_size=16,
        context_length=1024,
        trace=Trace(enabled=False),
    )
    ids = [1 + i % 200 for i in range(PROMPT)]
    start = time.perf_counter()
    answers = cluster.generate([ids] * REQUESTS, SamplingParams(max_tokens=ANSWER, ignore_eos=True))
    total = time.perf_counter() - start
    for answer in answers:
        if answer.error is not None:
            raise answer.error
    return guards.seconds / total, guards.calls


class _Timed:
    """Another's methods, with a clock around them."""

    def __init__(self, guards: Any) -> None:
        from minikv.course.seats.guards import METHODS

        self.seconds, self.calls = 0.0, 0
        for name in METHODS:
            setattr(self, name, self._around(getattr(guards, name)))

    def _around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            start = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                self.seconds += time.perf_counter() - start
                self.calls += 1

        return timed
