"""Parts that are asked alone, each with the one question at which a defect shows that other parts hide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from minikv.disagg.handoff import Handoff
from minikv.disagg.router import Cluster
from minikv.errors import BrokenRule, HandoffRefused, MinikvError, Rejected
from minikv.frontend import Frontend
from minikv.incident import history
from minikv.incident.history import HistoricalCluster, PrefillLeg
from minikv.incident.isolation.findings import Finding
from minikv.incident.isolation.traffic import Speakers, limits_of
from minikv.incident.scenarios import PATIENCE
from minikv.sampling import SamplingParams
from minikv.scheduling.request import Request
from minikv.trace import Length, Trace

Make = Callable[..., Frontend]
DOOR = "the door's limit is the smallest node's"
RECEIVER = "a handoff is complete or refused"
READABLE = "no more is readable than was written"
FENCE = "an old page table reaches nothing"
WORST = "the worst status of all legs is the client's"
PENDING = "a request with a pending verdict is not queued"
MEASURED = "the capacity check measures the prompt"
REFUSED = "a refused request keeps its prompt"


def _found(rule: str, detail: str) -> list[Finding]:
    return [Finding("probe", rule, detail)]


def _ordinary(server: Frontend, length: int | None = None) -> tuple[int, ...]:
    limits = limits_of(server)
    size = limits.page_size
    return Speakers(server.model.encode).prompt("ada", length or max(1, min(2 * size + 1, limits.room - 8)))


def probe_door(make: Make) -> list[Finding]:
    """The longest prompt that is let in is the longest that every node can hold; nobody is served for it."""
    server = make(trace=Trace(enabled=False))
    limits = limits_of(server)
    right = limits.room - 1
    lengths = sorted({right, right + 1, *(pool + delta for pool in limits.pools for delta in range(-8, 9))})
    wrong = []
    for length in (each for each in lengths if each >= 1):
        number = server.submit(_ordinary(server, length), SamplingParams(max_tokens=1, ignore_eos=True))
        let_in = not server.requests[number].answered
        server.forget(number)
        if let_in != (length <= right):
            wrong.append(length)
    return _found(DOOR, f"it is {right}, and the door is of another mind about {wrong}") if wrong else []


Question = Callable[[Cluster, Request, Handoff], list[Finding]]


def _at_handoff(make: Make, ask: Question) -> list[Finding]:
    """Ask at the moment when a handoff comes: pages are reserved on the decode node, and still held on the other."""
    server = make(trace=Trace(enabled=False))
    if not isinstance(server, Cluster):
        return []
    found: list[Finding] = []

    def asked(request: Request, handoff: Handoff) -> None:
        found.extend(ask(server, request, handoff))
        raise HandoffRefused("the probe has it")

    server.decode.receive = asked  # type: ignore[method-assign]
    number = server.submit(_ordinary(server), SamplingParams(max_tokens=4, ignore_eos=True))
    _finish(server, number)
    return found


def _finish(server: Frontend, number: int) -> None:
    """Step until there is an answer, but not for ever."""
    for _ in range(PATIENCE):
        if server.requests[number].answered:
            return
        server.step()


def _short(handoff: Handoff) -> Handoff:
    """The last page is lost, and what the sender says is as before."""
    keys, values = ([each[:-1] for each in side] for side in (handoff.keys, handoff.values))
    return replace(handoff, keys=tuple(keys), values=tuple(values), records=None)


def _less(server: Cluster, request: Request, handoff: Handoff) -> Handoff:
    """The sender wrote a token less, and says so."""
    pool = server.prefill.pool
    table = pool.tables[request.number]
    table.written -= 1
    try:
        return server.prefill.contract.pack(pool, table, handoff.first_token)
    finally:
        table.written += 1


def probe_receiver(make: Make) -> list[Finding]:
    """A handoff that is short, promises less, or has changed on the way is refused; the whole one is taken."""

    def ask(server: Cluster, request: Request, handoff: Handoff) -> list[Finding]:
        keys = [each.clone() for each in handoff.keys]
        keys[-1].flatten(0, 1)[handoff.num_tokens - 1] += 1.0
        forged = {
            "a page less": _short(handoff),
            "a token less": _less(server, request, handoff),
            "another key": replace(handoff, keys=tuple(keys)),
        }
        taken = [name for name, each in forged.items() if not _refusal(server, request, each)]
        found = _found(RECEIVER, f"taken with {', '.join(taken)}") if taken else []
        refusal = _refusal(server, request, handoff)
        return found + (_found("a whole handoff is taken", refusal) if refusal else [])

    return _at_handoff(make, ask)


def _refusal(server: Cluster, request: Request, handoff: Handoff) -> str:
    """Why the decode node does not take a handoff; empty if it does."""
    try:
        server.decode.verify(request, handoff)
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


def probe_readable(make: Make) -> list[Finding]:
    """Of a handoff that lost a page, nothing past what came is declared readable."""

    def ask(server: Cluster, request: Request, handoff: Handoff) -> list[Finding]:
        short = _short(handoff)
        came = len(short.keys[0]) * server.decode.pool.page_size
        try:
            readable = server.decode.readable(request, short)
        except MinikvError:
            return []
        return _found(READABLE, f"{readable} positions, and {came} came") if readable > came else []

    return _at_handoff(make, ask)


def probe_fence(make: Make) -> list[Finding]:
    """A page table that was given back can neither write nor read nor take pages in, once they are lent on."""
    server = make(trace=Trace(enabled=False))
    found: list[Finding] = []
    for node in server.nodes:
        pool = node.pool
        old = pool.lend(10_001, 2)
        pool.begin_write(old, 0, pool.page_size + 1)
        keys, values, records = pool.export_pages(old)
        pool.free(old)
        pool.lend(10_002, pool.num_free)
        actions: dict[str, Callable[[], Any]] = {
            "writes": lambda pool=pool, old=old: pool.begin_write(old, 0, 1),  # type: ignore[misc]
            "reads": lambda pool=pool, old=old: pool.begin_read(old),  # type: ignore[misc]
            "takes pages in": lambda pool=pool, old=old, kept=(keys, values, records): pool.import_pages(  # type: ignore[misc]
                old, *kept, 1
            ),
        }
        for name, action in actions.items():
            try:
                action()
                found += _found(FENCE, f"on {node.name} it {name}")
            except MinikvError:
                pass
    return found


def probe_status(make: Make) -> list[Finding]:
    """A verdict that is pending on one leg becomes the client's status, though the other leg ends well."""
    server = make(trace=Trace(enabled=False))
    number = server.submit(_ordinary(server), SamplingParams(max_tokens=4, ignore_eos=True))
    request = server.requests[number]
    verdict = Rejected("a verdict on one leg")
    if isinstance(server, HistoricalCluster):
        server._legs[number].to_finish = verdict
        _finish(server, number)
    else:  # a request has one state here, so both legs write into it
        request.finish("length")
        request.finish("rejected", verdict)
        request.finish("length")
    if request.error is verdict:
        return []
    return _found(WORST, f"one leg was refused, and the client gets {request.finish_reason!r} with {request.error}")


@contextmanager
def _legs(kind: type[PrefillLeg]) -> Iterator[None]:
    """Let the prefill node's own copies of requests be of another kind."""
    plain, history.PrefillLeg = history.PrefillLeg, kind  # type: ignore[misc]
    try:
        yield
    finally:
        history.PrefillLeg = plain  # type: ignore[misc]


def probe_pending(make: Make) -> list[Finding]:
    """A verdict that was made elsewhere, before the queue, is seen at the queue."""

    class Refused(PrefillLeg):
        def __init__(self, request: Request) -> None:
            super().__init__(request)
            self.to_finish = Rejected("a verdict from elsewhere")

    server = make(trace=Trace(enabled=False))
    if not isinstance(server, HistoricalCluster):
        return []
    with _legs(Refused):
        number = server.submit(_ordinary(server), SamplingParams(max_tokens=4, ignore_eos=True))
    if not server.requests[number].answered:
        return _found(PENDING, "it waits for pages")
    return []


def _past_the_door(server: HistoricalCluster, prompt: tuple[int, ...]) -> Request:
    """Ask the prefill node itself, as whoever knows its address can."""
    request = Request(server.next_number, prompt, SamplingParams(max_tokens=4, ignore_eos=True), "ada")
    server.next_number += 1
    server.requests[request.number] = request
    try:
        server._enqueue(request)
    except (Rejected, BrokenRule) as refusal:
        server._finish(request, "rejected", refusal)
    return request


def probe_measured(make: Make) -> list[Finding]:
    """Whatever the node's own copy says, capacity is checked against the length that the door recorded."""

    class OneToken(PrefillLeg):
        def __init__(self, request: Request) -> None:
            super().__init__(request)
            self.prompt_ids, self.prompt_tokens = self.prompt_ids[:1], 1

    server = make()
    if not isinstance(server, HistoricalCluster):
        return []
    length = limits_of(server).room - 4
    with _legs(OneToken):
        server.submit(_ordinary(server, length), SamplingParams(max_tokens=4, ignore_eos=True))
    measured = [each.tokens for each in server.trace if isinstance(each, Length) and each.part == "capacity check"]
    return (
        _found(MEASURED, f"{length} tokens came, {measured[0]} were measured")
        if measured[:1] not in ([], [length])
        else []
    )


def probe_refused(make: Make) -> list[Finding]:
    """A prompt that the prefill node cannot hold is refused as it is; no part ever sees another one.

    With one truth at the door nobody behind it ever refuses, so the probe goes past the door and puts the node's own
    second opinion back there: something must refuse before one can see how.
    """
    seen: list[PrefillLeg] = []

    class Kept(PrefillLeg):
        def __init__(self, request: Request) -> None:
            super().__init__(request)
            seen.append(self)

    server = make(trace=Trace(enabled=False))
    if not isinstance(server, HistoricalCluster):
        return []
    server.defects |= {"d"}
    prompt = _ordinary(server, min(limits_of(server).pools) + 1)
    with _legs(Kept):
        _past_the_door(server, prompt)
    swapped = [leg.prompt_tokens for leg in seen if leg.prompt_tokens != len(prompt)]
    return _found(REFUSED, f"{len(prompt)} tokens became {swapped[0]}") if swapped else []


PROBES: dict[str, Callable[[Make], list[Finding]]] = {
    "refused": probe_refused,
    "pending": probe_pending,
    "measured": probe_measured,
    "door": probe_door,
    "receiver": probe_receiver,
    "readable": probe_readable,
    "fence": probe_fence,
    "status": probe_status,
}


def ask_all(make: Make) -> list[Finding]:
    """Every probe, each on a server of its own."""
    return [finding for probe in PROBES.values() for finding in probe(make)]
