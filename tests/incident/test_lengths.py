"""The row of lengths: what each part took a request's length to be, on the right cluster and on the historical one."""

from __future__ import annotations

from typing import Any

import pytest

from minikv import Cluster, Engine, NodeConfig, SamplingParams
from minikv.incident.history import HistoricalCluster
from minikv.incident.scales import POCKET
from minikv.incident.stage import build
from minikv.models.adapter import BoundModel
from minikv.trace import PARTS, Length, Trace, lengths

ANSWER = SamplingParams(max_tokens=6, ignore_eos=True)


def right(model: BoundModel, **settings: Any) -> Cluster:
    sizes: dict[str, Any] = {"prefill": NodeConfig(num_pages=9), "decode": NodeConfig(num_pages=40), "page_size": 4}
    return Cluster(model, **{**sizes, **settings})


def prompt(tokens: int) -> list[int]:
    return [1 + (7 * i + tokens) % 200 for i in range(tokens)]


def row(events: Any, request: int | None = None) -> dict[str, int]:
    return {each.part: each.tokens for each in lengths(events, request)}


def test_right_cluster_believes_one_length(tiny: BoundModel) -> None:
    cluster = right(tiny)
    cluster.generate([prompt(17)], ANSWER)
    assert row(cluster.trace) == {"client": 17, "door": 17, "queue": 17, "wire": 17, "page table": 17, "attention": 18}
    nodes = [each.node for each in lengths(cluster.trace)]
    assert nodes == ["router", "router", "router", "prefill", "decode", "decode"]


def test_history_at_pocket_scale(tiny: BoundModel) -> None:
    cluster = build(POCKET, tiny, HistoricalCluster)
    (done,) = cluster.generate([prompt(POCKET.attack_tokens)], ANSWER)
    assert done.status == 200
    found = lengths(cluster.trace)
    assert [each.tokens for each in found] == [31, 31, 1, 1, 1, 31, 31, 32]
    assert tuple(each.part for each in found) == PARTS
    assert [each.step for each in found] == sorted(each.step for each in found), (
        "the order of the parts is that of time"
    )


def test_history_agrees_about_a_short_request(tiny: BoundModel) -> None:
    cluster = build(POCKET, tiny, HistoricalCluster)
    cluster.generate([prompt(12)], ANSWER)
    assert [each.tokens for each in lengths(cluster.trace)] == [12] * 7 + [13]


@pytest.mark.parametrize("tokens", [40, 300])
def test_refused_requests_end_at_the_door(tiny: BoundModel, tokens: int) -> None:
    cluster = right(tiny)
    (done,) = cluster.generate([prompt(tokens)], ANSWER)
    assert done.status == 400
    assert row(cluster.trace) == {"client": tokens, "door": tokens}


def test_several_at_once_keep_their_own_rows(tiny: BoundModel) -> None:
    cluster = right(tiny, prefill=NodeConfig(num_pages=9, max_batch_tokens=8))
    sizes = [18, 5, 11, 3]
    cluster.generate([prompt(tokens) for tokens in sizes], ANSWER)
    for number, tokens in enumerate(sizes):
        assert set(row(cluster.trace, number).values()) == {tokens, tokens + 1}, number
    assert {each.request for each in lengths(cluster.trace)} == {3}, "without a number: the last that came"


def test_a_crowd_around_the_incident(tiny: BoundModel) -> None:
    cluster = build(POCKET, tiny, HistoricalCluster)
    cluster.generate([prompt(12), prompt(31), prompt(9)], ANSWER)
    assert list(row(cluster.trace, 0).values()) == [12] * 7 + [13]
    assert list(row(cluster.trace, 1).values()) == [31, 31, 1, 1, 1, 31, 31, 32]
    assert list(row(cluster.trace, 2).values()) == [9] * 7 + [10]


def test_a_fresh_trace_and_a_stranger() -> None:
    assert lengths(Trace()) == []
    assert lengths([]) == []
    assert lengths([Length(0, "router", 4, "client", 9)], request=5) == []


def test_attention_shows_after_a_handoff_alone(tiny: BoundModel) -> None:
    """One node hands nothing over: what it reads in chunks is no idea of a length."""
    engine = Engine(tiny, page_size=4, num_pages=12, max_batch_tokens=8)
    engine.generate([prompt(17)], ANSWER)
    assert row(engine.trace) == {"client": 17, "door": 17, "queue": 17}


def test_the_first_length_of_a_part_stands(tiny: BoundModel) -> None:
    """A request that gives way on the decode node is computed anew; its row stays that of its first time."""
    cluster = right(tiny, decode=NodeConfig(num_pages=9))
    cluster.generate([prompt(tokens) for tokens in (11, 10, 9)], SamplingParams(max_tokens=14, ignore_eos=True))
    assert cluster.stats().nodes[1].preemptions
    for number, tokens in enumerate((11, 10, 9)):
        assert set(row(cluster.trace, number).values()) == {tokens, tokens + 1}


def test_dropped_events_leave_the_rest_of_the_row(tiny: BoundModel) -> None:
    """A server that runs for long keeps only the end of its story; what is left is told, and nothing is invented."""
    whole = right(tiny)
    whole.generate([prompt(17)], ANSWER)
    events = list(whole.trace)
    noted = [place for place, event in enumerate(events) if isinstance(event, Length)]
    full = row(events)
    for place in noted:
        rest = row(events[place + 1 :], 0)
        assert rest.items() <= full.items()
    after_the_wire = events[1 + next(p for p in noted if events[p].part == "wire") :]  # type: ignore[attr-defined]
    assert row(after_the_wire, 0) == {"page table": 17}, "without the handoff nobody knows which read was the first"
    assert row(events[noted[-1] + 1 :]) == {}


def test_recording_can_be_off(tiny: BoundModel) -> None:
    cluster = right(tiny, trace=Trace(enabled=False))
    cluster.generate([prompt(17)], ANSWER)
    assert lengths(cluster.trace) == []
