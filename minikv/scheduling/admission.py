"""The door: to serve or to refuse, decided once, by one rule.

A request writes `prompt + max_tokens - 1` slots, because the last token is never written, and takes
`prompt + max_tokens` positions of context. It must fit on every node that it may pass, whole: then any of them could
finish it, and no two parts can disagree. Nothing else counts: not what is free at the moment (that makes a request
wait), not what another part believes the prompt to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minikv.errors import Rejected
from minikv.scheduling.request import Request


@dataclass(frozen=True)
class NodeCapacity:
    """What one node can hold: `pool_tokens` token slots. `node` is its name, for messages."""

    node: str
    pool_tokens: int


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
        limits = [(self.context_length - max_tokens, f"the context of {self.context_length:,} tokens")]
        limits += [
            (node.pool_tokens - max_tokens + 1, f"the {node.pool_tokens:,} tokens that the {node.node} pool holds")
            for node in self.nodes
        ]
        limit, what = min(limits)
        if prompt <= limit:
            return
        fewer = limit + max_tokens - prompt  # tokens that could be generated for this prompt
        ways = [f"at most {limit:,} prompt tokens"] if limit > 0 else []
        ways += [f"max_tokens of at most {fewer:,}"] if fewer > 0 else []
        way_on = f"; use {' or '.join(ways)}" if ways else ""
        raise Rejected(
            f"prompt of {prompt:,} tokens with max_tokens={max_tokens:,} does not fit {what}{way_on}",
            limit=max(limit, 0),
            requested=prompt,
        )
