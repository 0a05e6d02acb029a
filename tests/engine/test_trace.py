"""What the events tell, and that they tell it all: once, in order, and nothing that did not happen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from helpers import Server, answers, cluster, finished, greedy, prompt_of

from minikv import Engine
from minikv.models.adapter import BoundModel
from minikv.trace import Admit, Allocate, Event, Finish, Free, HandoffDone, Length, Read, Refuse, Trace, Write

Build = Callable[..., Server]


def one_node(model: BoundModel, **settings: Any) -> Server:
    return Engine(model, page_size=4, num_pages=32, **settings)


def two_nodes(model: BoundModel, **settings: Any) -> Server:
    return cluster(model, 32, page_size=4, **settings)


both = pytest.mark.parametrize("build", [one_node, two_nodes])


def busy(server: Server) -> list[int]:
    """Three requests that overlap, one of them aborted, one refused; returns the first three."""
    numbers = [server.submit(prompt_of(length), greedy(6), f"tenant-{length}") for length in (9, 4, 7)]
    server.step()
    server.submit(prompt_of(500), greedy(6), "too-long")
    server.step()
    server.abort(numbers[2])
    finished(server, numbers)
    return numbers


def of(trace: Trace, *kinds: type[Event]) -> list[Any]:
    return [event for event in trace if isinstance(event, kinds)]


@both
def test_every_page_lent_is_freed(tiny: BoundModel, build: Build) -> None:
    """Page, owner and generation agree, on each node, and the order is right."""
    server = build(tiny)
    busy(server)
    lent: set[tuple[object, ...]] = set()
    for event in of(server.trace, Allocate, Free):
        entry = (event.node, event.page, event.owner, event.generation)
        if isinstance(event, Allocate):
            assert entry not in lent
            lent.add(entry)
        else:
            lent.remove(entry)
    assert not lent and of(server.trace, Free)


@both
def test_one_verdict_and_one_end(tiny: BoundModel, build: Build) -> None:
    server = build(tiny)
    numbers = busy(server)
    verdicts = Counter((type(event), event.request) for event in of(server.trace, Admit, Refuse))
    assert verdicts == Counter({(Admit, n): 1 for n in numbers} | {(Refuse, 3): 1})
    ends = {event.request: (event.reason, event.status, event.output_tokens) for event in of(server.trace, Finish)}
    assert len(of(server.trace, Finish)) == len(ends) == 3
    assert ends[0] == ends[1] == ("length", 200, 6) and ends[2][:2] == ("abort", 499)


@both
def test_tenants_and_lengths(tiny: BoundModel, build: Build) -> None:
    server = build(tiny)
    busy(server)
    told = [(event.tenant, event.prompt_tokens) for event in of(server.trace, Admit, Refuse)]
    assert told == [("tenant-9", 9), ("tenant-4", 4), ("tenant-7", 7), ("too-long", 500)]


@both
def test_steps_never_go_back(tiny: BoundModel, build: Build) -> None:
    server = build(tiny)
    busy(server)
    steps = [event.step for event in server.trace]
    assert steps == sorted(steps) and steps[0] == 0


@both
def test_life_of_a_request(tiny: BoundModel, build: Build) -> None:
    """Admit first, Finish after its pages are free; written before read; read only what is written."""
    server = build(tiny)
    answers(server.generate([prompt_of(9)], greedy(6)))
    client, door, *events = server.trace
    assert isinstance(client, Length) and isinstance(door, Length)
    assert isinstance(events[0], Admit) and isinstance(events[-1], Finish)
    written: Counter[tuple[str, int]] = Counter()
    for event in events:
        if isinstance(event, Write):
            written[event.node, event.page] = max(written[event.node, event.page], event.stop)
        if isinstance(event, Read):
            assert event.slots <= written[event.node, event.page]
            assert event.writers == ((0, event.slots),)


def test_writes_are_complete(tiny: BoundModel) -> None:
    """9 + 6 - 1 slots, each once: the last token is never written."""
    server = one_node(tiny)
    answers(server.generate([prompt_of(9)], greedy(6)))
    slots = [(e.page, slot) for e in of(server.trace, Write) for slot in range(e.start, e.stop)]
    assert len(slots) == len(set(slots)) == 14
    assert all(event.writer == event.owner == 0 for event in of(server.trace, Write))


def test_reads_are_complete(tiny: BoundModel) -> None:
    """Each step reads all that is written: 9, then 10, ... 14."""
    server = one_node(tiny)
    answers(server.generate([prompt_of(9)], greedy(6)))
    per_step = Counter[int]()
    for event in of(server.trace, Read):
        per_step[event.step] += event.slots
    assert list(per_step.values()) == [9, 10, 11, 12, 13, 14]


def test_handoff(tiny: BoundModel) -> None:
    server = two_nodes(tiny)
    answers(server.generate([prompt_of(9)], greedy(6)))
    (event,) = of(server.trace, HandoffDone)
    assert (event.request, event.expected, event.promised, event.node) == (0, 9, 9, "decode")
    assert 9 <= event.received <= 12 and len(event.pages) == 3


def test_handoff_of_used_pages_tells_the_earlier_writers(tiny: BoundModel) -> None:
    """Slots past the prompt in a page that is sent whole are still the previous tenant's."""
    server = two_nodes(tiny)
    answers(server.generate([prompt_of(12)], greedy(2)))
    answers(server.generate([prompt_of(9)], greedy(2)))
    arrived = [e for e in of(server.trace, Write) if e.node == "decode" and e.owner == 1 and e.writer == 0]
    assert [(event.start, event.stop) for event in arrived] == [(1, 4)]


@both
def test_switched_off(tiny: BoundModel, build: Build) -> None:
    """Nothing is recorded, and the answers are the same."""
    silent, told = build(tiny, trace=Trace(enabled=False)), build(tiny)
    prompts = [prompt_of(9), prompt_of(500)]
    assert [d.token_ids for d in silent.generate(prompts)] == [d.token_ids for d in told.generate(prompts)]
    assert len(silent.trace) == 0 and len(told.trace) > 0


def test_oldest_are_dropped(tiny: BoundModel) -> None:
    server, whole = one_node(tiny, trace=Trace(max_events=10)), one_node(tiny)
    for each in (server, whole):
        each.generate([prompt_of(9)], greedy(6))
    assert list(server.trace) == list(whole.trace)[-10:]
    assert server.trace.dropped == len(whole.trace) - 10


def test_same_run_same_events(tiny: BoundModel) -> None:
    first, second = one_node(tiny), one_node(tiny)
    busy(first)
    busy(second)
    assert list(first.trace) == list(second.trace)


def test_failure_is_told_once(tiny: BoundModel) -> None:
    def broken(*_args: object) -> None:
        raise RuntimeError("no attention today")

    server = one_node(tiny, attention=broken)
    server.generate([prompt_of(4)] * 2)
    ends = [(event.request, event.reason, event.status) for event in of(server.trace, Finish)]
    assert ends == [(0, "error", 500), (1, "error", 500)]
