"""The test of the status is green everywhere; the test of the content is red where strangers' slots were read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minikv.disagg.router import Cluster
from minikv.incident.history import HistoricalCluster
from minikv.incident.scales import POCKET
from minikv.incident.snapshot import Snapshot
from minikv.incident.stage import Stage, build
from minikv.incident.status_test import ANSWER, Judged, StatusTest, lab_scale, places, status_and_content
from minikv.models.adapter import BoundModel
from minikv.viz.verdicts import verdicts

LEAKS = ["prefill's limit", "prefill's limit + 1", "inside the window", "decode's limit - 1"]


@pytest.fixture(scope="module")
def pocket(tiny: BoundModel) -> StatusTest:
    return status_and_content(POCKET, tiny)


@pytest.fixture(scope="module")
def lab() -> StatusTest:
    return status_and_content(lab_scale())


def of(test: StatusTest, cluster: str) -> list[Judged]:
    return [row for row in test.rows if row.cluster == cluster]


@pytest.mark.parametrize("scale", ["pocket", "lab"])
def test_green_by_status_red_by_content(scale: str, request: pytest.FixtureRequest) -> None:
    test: StatusTest = request.getfixturevalue(scale)
    assert [row.place for row in of(test, "historical") if not row.by_content] == LEAKS
    assert [test.failed(cluster, by="status") for cluster in ("historical", "right")] == [0, 0]
    assert [test.failed(cluster, by="content") for cluster in ("historical", "right")] == [len(LEAKS), 0]
    assert all(row.content == "leaks" and row.status == 200 for row in of(test, "historical") if not row.by_content)


@pytest.mark.parametrize("scale", ["pocket", "lab"])
def test_at_the_limit_the_status_is_even_right(scale: str, request: pytest.FixtureRequest) -> None:
    """Two of the four lengths that leak are served by the right engine, with the same status."""
    test: StatusTest = request.getfixturevalue(scale)
    same = [old.place for old, new in zip(of(test, "historical"), of(test, "right"), strict=True)
            if old.content == "leaks" and old.status == new.status]  # fmt: skip
    assert same == LEAKS[:2]


def test_lengths_of_the_article(lab: StatusTest) -> None:
    assert [row.tokens for row in of(lab, "right")] == [221, 441, 442, 443, 490, 4089, 4090, 8191, 8192]


def test_leaks_are_where_the_ledger_says(pocket: StatusTest, tiny: BoundModel) -> None:
    """The judge of the content has no ledger. One that has agrees on every length."""
    scale = replace(POCKET, answer_tokens=ANSWER)
    stage = Stage(scale, tiny, build(scale, tiny, HistoricalCluster))
    stage.play_past()
    past = Snapshot(stage.cluster)
    for row in of(pocket, "historical"):
        past.restore()
        assert (stage.measure(stage.attack(row.tokens)).stale_slots_read > 0) == (row.content == "leaks")


def test_no_leak_without_defects(tiny: BoundModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge does not go by the name of the cluster."""
    monkeypatch.setattr("minikv.incident.status_test.HistoricalCluster", Cluster)
    assert status_and_content(POCKET, tiny).failed("historical", by="content") == 0


def test_places_are_in_order() -> None:
    for scale in (POCKET, lab_scale()):
        tokens = [tokens for _place, tokens in places(scale)]
        assert tokens == sorted(set(tokens))


def test_picture(pocket: StatusTest) -> None:
    drawn = verdicts(pocket.rows)
    assert "historical, by status 0; historical, by content 4; right, by status 0; right, by content 0" in drawn.text
    assert "inside the window: 31" in drawn.text and "P 200" in drawn.text and "F leaks" in drawn.text
    assert drawn.table.count("F leaks") == len(LEAKS) and drawn.table.count("<caption") == 1
    (field,) = drawn.figure.data
    assert [list(row) for row in field.text][4] == ["P 200", "F leaks", "P 400", "P refused"]
    assert verdicts(pocket.rows).table == drawn.table


def test_picture_needs_equal_lengths(pocket: StatusTest) -> None:
    with pytest.raises(ValueError, match="same lengths"):
        verdicts(pocket.rows[:-1])
    with pytest.raises(ValueError, match="one cluster or more"):
        verdicts([])
