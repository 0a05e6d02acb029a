"""Alerts ring in the incident and nowhere else: not among ordinary requests, not on the right engine."""

from __future__ import annotations

import random

import pytest

from minikv.disagg.router import Cluster
from minikv.incident.alerts import REQUESTS, Row, books_of, ordinary, watched, what_moves, with_over_long
from minikv.incident.metrics import METRICS, Books
from minikv.incident.traffic import Call, Mix
from minikv.incident.watch import WatchedCluster
from minikv.trace import Trace
from minikv.viz.alerts import alert_table

pytestmark = pytest.mark.slow

RULES = [metric for metric in METRICS if metric.alert is not None]
FLAT = [metric.name for metric in METRICS if metric.alert is None and metric.name != "minikv_prompt_changed_total"]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return what_moves(requests=400)


def needle(at: int, needle: Call) -> Mix:
    """Ordinary requests, and in place `at` another one."""
    places = iter(range(1_000_000))
    return lambda draw: needle if next(places) == at else ordinary(draw)


@pytest.mark.parametrize("kind", [WatchedCluster, Cluster])
def test_silent_on_ordinary_requests(kind: type[Cluster]) -> None:
    """1,000 of them, with clients that leave, refusals that are told, and requests that give way."""
    books = books_of(watched(kind), ordinary)
    assert len(books.status) >= REQUESTS == 1000
    assert books.preemptions >= 5
    assert sum(status == 499 for status in books.status.values()) >= 20
    assert sum(status == 400 for status in books.status.values()) >= 20
    assert [metric.name for metric in RULES if metric.fires(books)] == []


def test_each_alert_rings_only_during(rows: list[Row]) -> None:
    for row in rows:
        assert row.fired == (False, row.metric in RULES, False), row.metric.name


def test_what_operators_watch_stays_flat(rows: list[Row]) -> None:
    """Status, latency, failed transfers, memory: nothing moves by a quarter. All that has an alert does."""
    assert [row.metric.name for row in rows if not row.moves] == FLAT


def test_refusals_rise_on_the_right_engine(rows: list[Row]) -> None:
    """Who alerts on 4xx is called by the engine that is right, and sleeps through the other."""
    refused = next(row for row in rows if row.metric.name == "minikv_responses_4xx_percent")
    assert refused.right > 1.25 * refused.before and not refused.moves


def test_one_in_a_hundred_is_enough() -> None:
    """A single prompt over the limit: every alert rings, and the number says which."""
    cluster = watched(WatchedCluster)
    books = books_of(cluster, needle(50, Call(31, 4)), requests=100)
    assert all(metric.fires(books) for metric in RULES)
    (culprit,) = (number for number, missing in books.missing.items() if missing)
    assert books.missing[culprit] == 30 and books.wire[culprit] == 1 and books.table[culprit] == 31
    assert [number for number in books.verdicts if books.status[number] != 400] == [culprit]
    assert books.status[culprit] == 200
    assert isinstance(cluster, WatchedCluster) and cluster.read_of_others(culprit) > 0


@pytest.mark.parametrize("tokens", [250, 511, 600])
def test_silent_where_the_client_is_told(tokens: int) -> None:
    """Refused by both nodes, or at the router: prefill may swap in its placeholder, but the client hears 400."""
    books = books_of(watched(WatchedCluster), needle(20, Call(tokens, 2)), requests=60)
    assert not any(metric.fires(books) for metric in RULES)


def test_a_number_that_moves_and_is_no_alert(rows: list[Row]) -> None:
    """Prefill swaps prompts every day, for those that decode refuses as well: their clients are told."""
    swapped = next(row for row in rows if row.metric.name == "minikv_prompt_changed_total")
    assert swapped.moves and 0 < swapped.before < swapped.during and swapped.right == 0


def test_sums_of_both_books_differ_every_day() -> None:
    """Clients who leave between the nodes are in prefill's books only; no single handoff lacks anything."""

    def hasty(draw: random.Random) -> Call:
        return Call(draw.randint(1, 14), 13, draw.randint(1, 4) if draw.random() < 0.3 else None)

    books = books_of(watched(WatchedCluster), hasty, requests=300)
    assert sum(books.wire.values()) > sum(books.table.values())
    assert not any(metric.fires(books) for metric in RULES)


def test_books_are_deterministic() -> None:
    first, second = (books_of(watched(WatchedCluster), with_over_long(), requests=80) for _ in range(2))
    assert [metric.measure(first) for metric in METRICS] == [metric.measure(second) for metric in METRICS]


def test_books_of_nothing() -> None:
    books = Books([], limit=1, pool_bytes=0, peak=0.0)
    assert all(metric.measure(books) == 0 for metric in METRICS) and not any(m.fires(books) for m in METRICS)


def test_a_plain_trace_has_no_books() -> None:
    with pytest.raises(TypeError, match="Listener"):
        books_of(watched(WatchedCluster, trace=Trace()), ordinary, requests=1)


def test_marks() -> None:
    """Whatever is said of other servers carries a mark; without one, nothing is said."""
    for metric in METRICS:
        assert bool(metric.mark) == bool(metric.nearest), metric.name
        assert not metric.link or metric.link.startswith("https://")
        assert metric.name.startswith("minikv_")
        assert metric.rule == (f"{metric.name} > 0" if metric in RULES else "")


def test_ordinary_is_ordinary() -> None:
    """No ordinary call is over prefill's limit without being over decode's as well."""
    draw = random.Random(0)
    assert all(call.prompt_tokens < 22 or call.prompt_tokens >= 250 for call in (ordinary(draw) for _ in range(2000)))


def test_picture(rows: list[Row]) -> None:
    drawn = alert_table(rows)
    assert (
        f"Of {len(METRICS)} numbers {len(FLAT)} stay flat. Alerts that ring: 0 before, {len(RULES)} during, 0 on"
        in (drawn.text)
    )
    line = next(line for line in drawn.text.splitlines() if line.startswith("minikv_legs_disagree_total"))
    assert line.split()[1:3] == ["0", "-"] and line.split()[4] == "A" and line.endswith("moves")
    assert drawn.table.count("</tr>") == len(METRICS) + 1 and "sglang:kv_used_tokens" in drawn.table
    (field,) = drawn.figure.data
    assert len(field.y) == len(METRICS) and all("flat" in name or "moves" in name for name in field.y)
    assert alert_table(rows).table == drawn.table
    with pytest.raises(ValueError, match="no metric"):
        alert_table([])
