"""What a server has done and holds, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikv.loop import Loop
    from minikv.node import Node


@dataclass(frozen=True)
class NodeStats:
    """One node. Pages: `pages_free + pages_lent + pages_shared == pages_total`.

    Attributes:
        name: of the node.
        pages_total, pages_free, pages_lent: of its pool.
        pages_shared: pages that several requests read; 0, since nothing is shared yet.
        slots_lent, slots_written: token slots in the lent pages, and how many of them hold something.
        slots_wasted: lent and not written.
        waiting, running: requests in its scheduler.
        steps, tokens: steps that computed something, and tokens computed in them.
        preemptions: how often a request gave its pages back; 0 for a scheduler that does not count them.
    """

    name: str
    pages_total: int
    pages_free: int
    pages_lent: int
    pages_shared: int
    slots_lent: int
    slots_written: int
    slots_wasted: int
    waiting: int
    running: int
    steps: int
    tokens: int
    preemptions: int


@dataclass(frozen=True)
class Stats:
    """A whole server.

    Attributes:
        nodes: each node's own.
        between: requests on their way from one node to the next.
        unanswered: requests that have no final answer yet.
        finished: final answers so far, by reason.
        cache_hits: prompt tokens that were found in shared pages; 0, since nothing is shared yet.
    """

    nodes: tuple[NodeStats, ...]
    between: int
    unanswered: int
    finished: dict[str, int]
    cache_hits: int = 0


def stats_of(server: Loop) -> Stats:
    """Count."""
    unanswered = sum(not request.answered for request in server.requests.values())
    return Stats(tuple(map(_of_node, server.nodes)), len(server.between), unanswered, dict(server.finished))


def _of_node(node: Node) -> NodeStats:
    pool, tables = node.pool, node.pool.tables.values()
    lent, written = sum(table.allocated for table in tables), sum(table.written for table in tables)
    return NodeStats(
        name=node.name,
        pages_total=pool.num_pages,
        pages_free=pool.num_free,
        pages_lent=sum(len(table.pages) for table in tables),
        pages_shared=0,
        slots_lent=lent,
        slots_written=written,
        slots_wasted=lent - written,
        waiting=len(node.scheduler.waiting),
        running=len(node.scheduler.running),
        steps=node.num_steps,
        tokens=node.num_computed_tokens,
        preemptions=getattr(node.scheduler, "num_preemptions", 0),
    )
