"""`minikv mine`: which parts of the engine are the learner's own, and a sentence from them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minikv.course.parts import Found, kept_parts, look_up
from minikv.course.say import say

PROMPT = "The best thing about building something yourself is"
TOKENS = 32


@dataclass(frozen=True)
class Seat:
    """A place in the engine for a part of the learner's.

    Attributes:
        part: what the engine calls it.
        exercises: whose answer may sit there; the first that is kept does.
        adapter: module and function that turn the answer into the engine's part; "" if it fits as it is.
    """

    part: str
    exercises: tuple[str, ...]
    adapter: str = ""

    def taken_by(self) -> tuple[str, Found]:
        """The exercise whose answer sits here, and the answer."""
        kept = kept_parts()
        exercise = next((one for one in self.exercises if one in kept), self.exercises[-1])
        return exercise, look_up(exercise)

    def fitted(self, thing: Any, **options: Any) -> Any:
        """The answer as the engine takes it; the options are the adapter's."""
        if not self.adapter:
            return thing
        module, _, function = self.adapter.partition(":")
        fit: Callable[..., Any] = getattr(importlib.import_module(f"minikv.course.seats.{module}"), function)
        return fit(thing, **options)


SEATS = (
    Seat("allocator", ("ex-3.2",)),
    Seat("attention", ("ex-4.3", "ex-4.2"), "attention:as_attention"),
    Seat("scheduler", ("ex-5.2",), "scheduler:as_scheduler"),
    Seat("admission", ("ex-6.1",), "door:as_admission"),
    Seat("handoff", ("ex-7.1",), "receiver:as_handoff"),
)


def my_parts(*names: str, prompts: bool = True) -> dict[str, Any]:
    """The learner's parts (else the references), ready for `Engine(model, **my_parts("allocator", "attention"))`.

    Prints a line for each. Without names all five, which a `Cluster` takes. With `prompts=False` the engine's own
    attention reads the prompts: yours takes one token at a time, which is slow for long ones.
    """
    if unknown := set(names) - {seat.part for seat in SEATS}:
        raise ValueError(f"there is no part {sorted(unknown)[0]!r}; there are {', '.join(seat.part for seat in SEATS)}")
    parts = {}
    for seat in SEATS:
        if not names or seat.part in names:
            exercise, found = seat.taken_by()
            print(f"{seat.part:<10} {exercise}: using {found.said}")
            options = {"prompts": prompts} if seat.part == "attention" else {}
            parts[seat.part] = seat.fitted(found.thing, **options)
    return parts


def mine(prompt: str | None = None, *, model: Any = "smollm2") -> bool:
    """Say which parts are yours, and let two nodes made of them finish a sentence; True if it is the right one.

    Args:
        prompt: how the sentence begins.
        model: a name that `load_model` knows, or a loaded model.
    """
    from minikv import Cluster, NodeConfig, SamplingParams, load_model

    yours = sum(seat.taken_by()[1].yours for seat in SEATS)
    say(f"{yours} of {len(SEATS)} parts are yours")
    parts = my_parts()
    bound = load_model(model) if isinstance(model, str) else model
    sizes: dict[str, Any] = {"prefill": NodeConfig(num_pages=32), "decode": NodeConfig(num_pages=48), "page_size": 16}
    text, params = prompt or PROMPT, SamplingParams(max_tokens=TOKENS)
    try:
        answer = Cluster(bound, **sizes, **parts).generate([text], params)[0]
    except Exception as error:  # a part of theirs; the engine's own errors name the rule and the step
        say(f"The engine stopped: {error}")
        return False
    if answer.error is not None:
        say(f"Your engine gave no answer ({answer.finish_reason}, {answer.status}): {answer.error}")
        return False
    right = Cluster(bound, **sizes).generate([text], params)[0]
    print()
    say(f"{text}{answer.text}")
    print()
    same = answer.token_ids == right.token_ids
    say("The same tokens as minikv's own parts: " + ("yes" if same else f"no, they say: {right.text!r}"))
    return same
