"""The door: to serve or to refuse, decided once, by one rule.

A node that generates `k` tokens of a request writes `prompt + k - 1` slots, because the last token is never
written. The whole request needs `prompt + max_tokens` positions of context. Nothing else counts: not what is free
at the moment (that makes a request wait), not what another part believes the prompt to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minikv.errors import Rejected
from minikv.scheduling.request import Request


@dataclass(frozen=True)
class NodeCapacity:
    """What one node can hold.

    Attributes:
        node: its name, for messages.
        pool_tokens: token slots in its pool.
        generates_all: False for a prefill node, which generates one token of each request.
    """

    node: str
    pool_tokens: int
    generates_all: bool = True

    def longest_prompt(self, max_tokens: int) -> int:
        """The longest prompt that this node can work on."""
        return self.pool_tokens - (max_tokens if self.generates_all else 1) + 1


class Admission:
    """One truth about capacity for all nodes that a request will pass.

    Args:
        context_length: most positions of one request, prompt and answer together.
        nodes: every node that could serve it.
    """

    def __init__(self, context_length: int, nodes: Sequence[NodeCapacity]) -> None:
        self.context_length = context_length
        self.nodes = tuple(nodes)

    def check(self, request: Request) -> None:
        """Let a request in, or refuse it for good.

        Raises:
            Rejected: status 400, with the longest prompt that would have been served (`limit`) and the length
                of this one (`requested`).
        """
        prompt, max_tokens = request.prompt_tokens, request.params.max_tokens
        limits = [(self.context_length - max_tokens, f"the context of {self.context_length} tokens")]
        limits += [
            (node.longest_prompt(max_tokens), f"the {node.pool_tokens} tokens that the {node.node} pool holds")
            for node in self.nodes
        ]
        limit, what = min(limits)
        if prompt <= limit:
            return
        limit = max(limit, 0)
        way_on = f"use at most {limit} prompt tokens" if limit else "ask for fewer tokens"
        raise Rejected(
            f"prompt of {prompt} tokens with max_tokens={max_tokens} does not fit {what}; {way_on}",
            limit=limit,
            requested=prompt,
        )
