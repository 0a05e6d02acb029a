"""The learner's door in an engine or a cluster: `as_admission(admit)` is a part for `admission=`.

    def admit(request, server):
        '''"serve", "wait" or "refuse"; a reason may stand beside it: `return "refuse", "..."`.'''

    Engine(model, num_pages=7, admission=as_admission(admit))

`admit` sees a small request and a small server, both made for this one call. Of "serve" and "wait" the engine lets in
both: who may run now is its scheduler's business. "refuse" is final, with status 400.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minikv.config import ServerConfig
from minikv.errors import BrokenRule, Busy, ConfigError, Rejected

if TYPE_CHECKING:
    from minikv.scheduling.admission import NodeCapacity
    from minikv.scheduling.request import Request as EngineRequest

WORDS = ("serve", "wait", "refuse")
_KEPT = 10_000  # answers of a door that are remembered


@dataclass
class Request:
    """What a door may know of a request: its prompt, as a list of token ids, and how many tokens it asks for."""

    prompt: list[int]
    max_tokens: int


@dataclass(frozen=True)
class Server:
    """What a door may know of its server.

    Attributes:
        free: slots that nobody holds now.
        pool: slots that there are in all.
        context: most positions of one request, prompt and answer together.
    """

    free: int
    pool: int
    context: int


Admit = Callable[[Request, Server], object]


@dataclass(frozen=True)
class Answer:
    """What a door said: one of `WORDS`, and its reason ("" for none)."""

    word: str
    reason: str = ""


@dataclass(frozen=True)
class Said:
    """One answer, with what was asked: the request's number and lengths, and the slots free at that moment."""

    request: int
    prompt_tokens: int
    max_tokens: int
    free: int
    word: str


def read_answer(answer: object) -> Answer | None:
    """What a door gave back: a word, or a word and a reason (None for no reason); None if it is neither."""
    reason: object = ""
    if isinstance(answer, (tuple, list)) and len(answer) == 2:
        answer, reason = answer
        reason = "" if reason is None else reason
    if not isinstance(answer, str) or not isinstance(reason, str) or answer not in WORDS:
        return None
    return Answer(WORDS[WORDS.index(answer)], reason)


def smallest_pool(nodes: Sequence[NodeCapacity]) -> int:
    """Slots of the smallest pool that a request may pass: what fits there fits everywhere."""
    return min(node.pool_tokens for node in nodes)


def as_admission(
    admit: Admit,
    *,
    pool: Callable[[Sequence[NodeCapacity]], int] = smallest_pool,
    free: Callable[[], int] | None = None,
) -> type[LearnersDoor]:
    """The part that lets `admit` decide at the door of an `Engine` or a `Cluster`.

    Args:
        admit: takes a `Request` and a `Server`, gives "serve", "wait" or "refuse" back, maybe with a reason.
        pool: which number of slots the door is told, where there are several pools; `smallest_pool` is right.
        free: tells the slots that nobody holds now. A door is built before its engine is, so it cannot know by
            itself: `free=lambda: engine.pool.num_free * 16`. Without it, all seem free.

    Raises:
        ConfigError: if one of them is no function.
    """
    for name, part in (("a door", admit), ("pool", pool), ("free", free)):
        if part is not None and not callable(part):
            raise ConfigError(f"{name} must be a function, not {part!r:.60}")
    if admit is None:
        raise ConfigError("a door must be a function, not None")
    built_with = (admit, pool, free)

    class Door(LearnersDoor):
        parts = built_with

    return Door


class LearnersDoor:
    """An `AdmissionPolicy` that asks the learner's function.

    Attributes:
        said: what it answered so far, oldest first.
    """

    parts: tuple[Admit, Callable[[Sequence[NodeCapacity]], int], Callable[[], int] | None]

    def __init__(self, context_length: int, nodes: Sequence[NodeCapacity], config: ServerConfig | None = None) -> None:
        self._admit, pool, self._free = self.parts
        self._context, self._pool = context_length, pool(nodes)
        self._max_waiting = (config or ServerConfig()).max_waiting
        self.said: deque[Said] = deque(maxlen=_KEPT)

    def check(self, request: EngineRequest, waiting: int = 0) -> int:
        """Ask the learner's door.

        Returns:
            The request's `max_tokens`: this door never grants fewer.

        Raises:
            Rejected: status 400, if the answer is "refuse".
            Busy: status 429, if it is not, and as many wait as may.
            BrokenRule: if the request was changed, or the answer is none of the three words.
        """
        prompt, wanted = request.prompt_tokens, request.params.max_tokens
        free = self._pool if self._free is None else self._free()
        shown = Request(list(request.prompt_ids), wanted)
        given = self._admit(shown, Server(free, self._pool, self._context))
        if changed := what_changed(shown, Request(list(request.prompt_ids), wanted)):
            raise BrokenRule(
                "the door looks at a request and changes nothing",
                f"your door changed the caller's {changed}: whoever measures it next measures your version",
                request.number,
            )
        answer = read_answer(given)
        if answer is None:
            raise BrokenRule(
                'a door answers "serve", "wait" or "refuse"; with a reason: "refuse", "..."',
                f"{given!r:.60} came",
                request.number,
            )
        self.said.append(Said(request.number, prompt, wanted, free, answer.word))
        if answer.word == "refuse":
            reason = answer.reason or f"prompt of {prompt:,} tokens with max_tokens={wanted:,} was refused at the door"
            raise Rejected(reason, requested=prompt)
        if self._max_waiting is not None and waiting >= self._max_waiting:
            raise Busy(
                f"{waiting} requests wait already, and no more may; try again later",
                limit=self._max_waiting,
                requested=waiting + 1,
            )
        return wanted


def what_changed(shown: Request, before: Request) -> str:
    """Which part of a request is not as it was: "prompt", "max_tokens", or "" for none."""
    try:
        same = list(shown.prompt) == before.prompt
    except Exception:  # it is no list any more
        same = False
    if not same:
        return "prompt"
    return "" if shown.max_tokens == before.max_tokens else "max_tokens"
