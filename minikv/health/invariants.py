"""The rules that hold after every step; numbers in brackets are those of the design (section 4)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from minikv.errors import BrokenRule
from minikv.memory import PagePool
from minikv.scheduling.request import Request

if TYPE_CHECKING:
    from minikv.loop import Loop
    from minikv.node import Node


def check_server(server: Loop) -> None:
    """Verify a server between two steps.

    Rule 7 (only what was fully written is shared) waits for pages that are shared.

    Raises:
        BrokenRule: naming the first rule that does not hold.
    """
    for node in server.nodes:
        node.pool.check()  # a page is free or lent to one writer in one generation [6], and none is lost [9]
        if type(node.pool) is not PagePool:  # a learner's may have a check of its own
            PagePool.check(node.pool)
        for table in node.pool.tables.values():
            _check_table(server, node, table.owner, table.written)
    homes = Counter(request.number for node in server.nodes for request in (*node.queue, *node.scheduler.running))
    homes.update(request.number for request in server.between)
    for request in server.requests.values():
        _check_request(server, request, homes[request.number])


def _check_table(server: Loop, node: Node, number: int, written: int) -> None:
    request = server.requests.get(number)
    if request is None or request.answered:  # [1]
        raise BrokenRule("who is refused or finished holds nothing", f"request {number} holds pages on {node.name}")
    if written > request.num_tokens:  # [3], with `written <= allocated` from the pool
        raise BrokenRule(
            "what is written was computed", f"{written} of {request.num_tokens} tokens of request {number}"
        )
    if number in getattr(node, "expecting", ()):  # [4]: nothing is readable before a handoff is complete
        raise BrokenRule("a handoff is complete or nothing", f"{node.name} still expects that of request {number}")


def _check_request(server: Loop, request: Request, homes: int) -> None:
    def expect(holds: bool, rule: str) -> None:
        if not holds:
            raise BrokenRule(rule, f"request {request.number} ({request.finish_reason or 'unfinished'})")

    length, contents = len(request.prompt_ids), hash(request.prompt_ids)
    expect((length, contents) == (request.prompt_tokens, request.prompt_hash), "a prompt is immutable")  # [2]
    expect(
        (request.error is None) == (request.finish_reason in (None, "stop", "length")), "the worst status wins"
    )  # [8]
    expect(request.answered == request.finished, "an answer is given out when it stands")  # [10]
    expect(homes == (0 if request.answered else 1), "who has no answer is in one place, who has one in none")  # [1, 10]
    if not request.answered:  # [5]
        tokens = request.prompt_tokens + request.max_tokens
        room = min(node.capacity.pool_tokens for node in server.nodes) + 1
        expect(tokens <= min(room, server.context_length), "who is let in fits every node")
        expect(len(request.output_ids) < request.max_tokens, "nobody gets more tokens than granted")
