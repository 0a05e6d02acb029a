"""The door: to serve, to cap or to refuse, decided once, by one rule.

A request writes `prompt + max_tokens - 1` slots, because the last token is never written, and takes
`prompt + max_tokens` positions of context. It must fit on every node that it may pass, whole: then any of them could
finish it, and no two parts can disagree. Nothing else counts: not what is free at the moment (that makes a request
wait), not what another part believes the prompt to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from minikv.config import ServerConfig
from minikv.errors import Busy, Rejected
from minikv.scheduling.request import Request


@dataclass(frozen=True)
class NodeCapacity:
    """What one node can hold: `pool_tokens` token slots. `node` is its name, for messages."""

    node: str
    pool_tokens: int


class AdmissionPolicy(Protocol):
    """Decides at the door. Built as `Policy(context_length, nodes, config)`; `Admission` is the right one.

    `nodes` has a `NodeCapacity` for each; `over_limit` and `max_waiting` of `config` are the door's to apply.
    """

    def check(self, request: Request, waiting: int = 0) -> int:
        """Return how many tokens a request may generate, or raise `Rejected`: with 400 for good, `Busy` for now.

        The request is looked at (`prompt_tokens`, `params.max_tokens`) and not changed or finished. What is granted is
        1 to `max_tokens`, with prompt + granted <= `context_length`; on every node prompt + granted - 1 slots must
        exist. `waiting` is the number of requests that wait to start.
        """


class Admission:
    """One truth about capacity for all nodes that a request will pass.

    Args:
        context_length: most positions of one request, prompt and answer together.
        nodes: every node that could serve it.
        config: says whether to refuse or to cap, and how many may wait.
    """

    def __init__(self, context_length: int, nodes: Sequence[NodeCapacity], config: ServerConfig | None = None) -> None:
        config = config or ServerConfig()
        self.context_length = context_length
        self.nodes = tuple(nodes)
        self.over_limit, self.max_waiting = config.over_limit, config.max_waiting

    def check(self, request: Request, waiting: int = 0) -> int:
        """Let a request in, or refuse it for good.

        Returns:
            How many tokens it may generate: its `max_tokens`, or fewer where the door caps.

        Raises:
            Rejected: status 400, with the longest prompt that would have been served (`limit`) and the length
                of this one (`requested`).
            Busy: status 429, if too many wait already.
        """
        prompt, max_tokens = request.prompt_tokens, request.params.max_tokens
        most, what = self._room()
        granted = min(max_tokens, most - prompt)
        if granted < 1 or (granted < max_tokens and self.over_limit == "refuse"):
            raise self._refusal(prompt, max_tokens, most, what)
        if self.max_waiting is not None and waiting >= self.max_waiting:
            raise Busy(
                f"{waiting} requests wait already, and no more may; try again later",
                limit=self.max_waiting,
                requested=waiting + 1,
            )
        return granted

    def _room(self) -> tuple[int, str]:
        """Most tokens of prompt and answer together, and what sets that limit."""
        rooms = [(self.context_length, f"the context of {self.context_length:,} tokens")]
        rooms += [(n.pool_tokens + 1, f"the {n.pool_tokens:,} tokens that the {n.node} pool holds") for n in self.nodes]
        return min(rooms)  # + 1: the last token is never written

    def _refusal(self, prompt: int, max_tokens: int, most: int, what: str) -> Rejected:
        limit = most - (1 if self.over_limit == "cap" else max_tokens)  # for the prompt
        ways = [f"at most {limit:,} prompt tokens"] if limit > 0 else []
        ways += [f"max_tokens of at most {most - prompt:,}"] if prompt < most else []
        way_on = f"; use {' or '.join(ways)}" if ways else ""
        return Rejected(
            f"prompt of {prompt:,} tokens with max_tokens={max_tokens:,} does not fit {what}{way_on}",
            limit=max(limit, 0),
            requested=prompt,
        )
