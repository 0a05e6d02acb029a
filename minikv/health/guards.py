"""What a part gave back, looked at before it is used: a learner's part may be wrong in any way."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from minikv.config import NodeConfig
from minikv.errors import BrokenRule
from minikv.memory import PagePool
from minikv.scheduling.request import Request
from minikv.scheduling.scheduler import Scheduled


def as_token(chosen: object, vocabulary: int) -> int:
    """Return what a sampler chose as an int; raises `BrokenRule` if it is no token id."""
    try:
        token = None if isinstance(chosen, bool) else operator.index(chosen)  # type: ignore[arg-type]
    except TypeError:  # a tensor of two has an __index__ as well
        token = None
    if token is None:
        raise BrokenRule("a sampler returns one token id", f"{chosen!r:.60} came")
    if not 0 <= token < vocabulary:
        raise BrokenRule("a sampler returns a token of the vocabulary", f"{token} is not in 0 to {vocabulary - 1}")
    return int(token)


def check_plan(plan: object, pool: PagePool, config: NodeConfig) -> list[Scheduled]:
    """Return a plan as a list, or say which rule it breaks; costs nothing that grows with the queue.

    Raises:
        BrokenRule: naming the rule and the request.
    """
    if not isinstance(plan, Sequence):
        raise BrokenRule("a plan is a list of Scheduled", f"{plan!r:.100} came")
    for share in plan:
        if not isinstance(share, Scheduled) or not isinstance(share.request, Request):
            raise BrokenRule("a plan is a list of Scheduled", f"{share!r:.100} is in it")
    numbers = [share.request.number for share in plan]
    if len(set(numbers)) != len(numbers) or len(numbers) > config.max_batch_size:
        raise BrokenRule(
            f"at most max_batch_size={config.max_batch_size} requests share a step, each once", f"requests {numbers}"
        )
    total = sum(share.num_scheduled_tokens for share in plan if isinstance(share.num_scheduled_tokens, int))
    if total > config.max_batch_tokens:
        raise BrokenRule(
            f"a step has at most max_batch_tokens={config.max_batch_tokens} tokens", f"{total} are planned"
        )
    for share in plan:
        _check_share(share, pool)
    return list(plan)


def _check_share(share: Scheduled, pool: PagePool) -> None:
    request, tokens = share.request, share.num_scheduled_tokens
    table = pool.tables.get(request.number)

    def refuse(rule: str, detail: str) -> None:
        raise BrokenRule(rule, f"request {request.number} {detail}", request.number)

    if request.answered or request.finish_reason not in (None, "abort"):
        refuse("who is finished runs no more", "is finished and planned")
    elif table is None:
        refuse("who runs holds pages", "is planned and has no page table")
    elif not isinstance(tokens, int) or not 1 <= tokens <= request.num_tokens - table.written:
        found = f"misses {request.num_tokens - table.written}, gets {tokens!r:.20}"
        refuse("a share is 1 token at least, and at most what is missing", found)
    elif table.written + tokens > table.allocated:
        detail = f"is to write {table.written + tokens} slots and holds {table.allocated}"
        refuse("pages are lent before they are written", detail)
