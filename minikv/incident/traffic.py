"""Made-up clients for a watched cluster: seeded, mostly ordinary, some of them at the edges, some impatient."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from minikv.disagg.router import Cluster
from minikv.sampling import SamplingParams
from minikv.scheduling.request import Completion


@dataclass(frozen=True)
class Call:
    """One request of a client.

    Attributes:
        prompt_tokens, max_tokens: its sizes.
        patience: steps after which the client leaves; None: it waits.
        retries: how often the client tries again after an error.
        attempt: how often this was tried, this time included.
    """

    prompt_tokens: int
    max_tokens: int
    patience: int | None = None
    retries: int = 0
    attempt: int = 1


Mix = Callable[[random.Random], Call]


@dataclass
class Traffic:
    """Sends calls to a cluster, a few in each step, and fetches the answers.

    Args:
        cluster: where to.
        mix: makes up the next call.
        seed: of everything that is drawn.
        per_step: calls that come in a step, on average.
        done: told each answer.

    Attributes:
        open: calls without an answer, by request number.
        sent: requests so far, tries again included.
    """

    cluster: Cluster
    mix: Mix
    seed: int
    per_step: float = 3.0
    done: Callable[[Completion, Call], None] = lambda _completion, _call: None
    open: dict[int, Call] = field(default_factory=dict)
    sent: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # of when they come
        self._wants = random.Random(self.seed + 1)
        self._leaves: dict[int, int] = {}
        self._owed = 0.0
        self._again: list[Call] = []

    def step(self, *, new: bool = True) -> None:
        """Some calls come (unless `new` is False), some clients leave, and the cluster works for one step."""
        self._owed += self.per_step * 2 * self.random.random() if new else 0.0
        while self._owed >= 1:
            self._owed -= 1
            self._send(self.mix(self._wants))
        while new and self._again:
            self._send(self._again.pop())
        for number in [each for each, when in self._leaves.items() if self.cluster.trace.step >= when]:
            self.cluster.abort(number)
        self._fetch()
        self.cluster.step()
        self._fetch()

    def drain(self) -> None:
        """Go on without new calls until everybody has an answer."""
        while self.open:
            self.step(new=False)

    def _send(self, call: Call) -> None:
        start = self.random.randrange(251)
        ids = [(start + 7 * place) % 251 for place in range(call.prompt_tokens)]
        number = self.cluster.submit(ids, SamplingParams(max_tokens=call.max_tokens, ignore_eos=True))
        self.sent += 1
        self.open[number] = call
        if call.patience is not None:
            self._leaves[number] = self.cluster.trace.step + call.patience

    def _fetch(self) -> None:
        for number in [each for each in self.open if self.cluster.requests[each].answered]:
            completion, call = self.cluster.result(number), self.open.pop(number)
            self._leaves.pop(number, None)
            self.done(completion, call)
            if completion.error is not None and call.retries:
                again = replace(call, patience=None, retries=call.retries - 1, attempt=call.attempt + 1)
                self._again.append(again)
