"""A log written by a run: who was affected can be counted in it, and quick searches count wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minikv.incident.logs import DECODE_LIMIT, PAGE_SIZE, PREFILL_LIMIT, BusyLog, affected_in, busy_log

pytestmark = pytest.mark.slow

LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO   |WARNING|ERROR  ) (router |prefill|decode ) "
    r"(rid=\d+ \S.*|running=\d+ waiting=\d+ free=\d+)"
)
SIGNATURE = re.compile(r"len\(prefill_state_indices\) = 1, len\(dst_state_indices\) = (\d+)$")


@pytest.fixture(scope="module")
def log() -> BusyLog:
    return busy_log()


def rid(line: str) -> int:
    found = re.search(r"rid=(\d+)", line)
    assert found
    return int(found[1])


def test_ten_thousand_lines(log: BusyLog) -> None:
    assert len(log.lines) == 10_000
    assert all(LINE.fullmatch(line) for line in log.lines)
    times = [line[:23] for line in log.lines]
    assert times == sorted(times)
    assert len({rid(line) for line in log.lines if "rid=" in line}) == log.requests


def test_counting_is_exact(log: BusyLog) -> None:
    assert len(log.affected) >= 20
    assert affected_in(log.lines) == log.affected


@pytest.mark.parametrize("seed", [1, 2])
def test_counting_is_exact_in_other_logs(seed: int) -> None:
    other = busy_log(2000, seed)
    assert other.affected and affected_in(other.lines) == other.affected


def test_same_seed_same_lines() -> None:
    first = busy_log(1000, 4)
    busy_log.cache_clear()
    assert busy_log(1000, 4) == first
    assert busy_log(1000, 5).lines != first.lines


def test_order_of_lines_does_not_matter(log: BusyLog) -> None:
    assert affected_in(reversed(log.lines)) == log.affected


def test_one_sent_thousands_expected(log: BusyLog) -> None:
    for line in log.lines:
        found = SIGNATURE.search(line)
        if found and rid(line) in log.affected:
            assert int(found[1]) >= 1000 and " WARNING prefill " in line


def test_two_ways_to_the_same_requests(log: BusyLog) -> None:
    """A refusal of prefill's and an answer with 200: the other signature, from other lines."""
    refused = {rid(line) for line in log.lines if " ERROR   prefill " in line}
    answered = {rid(line) for line in log.lines if re.search(r"rid=\d+ 200 ", line)}
    assert refused & answered == log.affected


def test_every_group_is_there(log: BusyLog) -> None:
    assert set(log.groups) == {"short", "drift", "told", "left", "twice", "edge", "again"}
    assert all(log.groups.values())
    harmless = [log.groups[name] for name in ("short", "drift", "told", "left", "edge")]
    assert not any(group & log.affected for group in harmless)
    assert log.groups["twice"] <= log.affected and log.groups["again"] <= log.affected


def test_groups_are_what_their_lines_say(log: BusyLog) -> None:
    prompt = {rid(line): int(line.rsplit("=", 1)[1]) for line in log.lines if "POST" in line}
    assert all(prompt[number] <= PAGE_SIZE for number in log.groups["short"])
    assert all(prompt[number] % PAGE_SIZE == 0 for number in log.groups["drift"])
    assert all(prompt[number] >= DECODE_LIMIT for number in log.groups["told"])
    assert all(prompt[number] == PREFILL_LIMIT - 1 for number in log.groups["edge"])
    assert all(PREFILL_LIMIT <= prompt[number] < DECODE_LIMIT for number in log.affected | log.groups["left"])


def test_mistakes_are_named(log: BusyLog) -> None:
    """What a hint can be made of: which kinds of request a count has too many, and how many it lacks."""
    assert log.mistakes(log.affected) == {}
    assert log.mistakes([]) == {"missing": len(log.affected)}
    warned = [rid(line) for line in log.lines if SIGNATURE.search(line)]
    wrong = log.mistakes(warned)
    assert set(wrong) == {"short", "drift", "left"} and wrong["left"] == len(log.groups["left"])
    refused = [rid(line) for line in log.lines if " ERROR " in line]
    assert {"told", "left"} <= set(log.mistakes(refused)) and "missing" not in log.mistakes(refused)
    assert log.mistakes([*log.affected, 10**6]) == {"other": 1}


def naive(log: BusyLog, pattern: str, *, distinct: bool = False) -> int:
    found = [line for line in log.lines if re.search(pattern, line)]
    return len({rid(line) for line in found}) if distinct else len(found)


@pytest.mark.parametrize(
    "pattern",
    [
        r"prefill_state_indices\) = 1",
        r"prefill_state_indices\) = 1,",
        r"WARNING .*prefill_state_indices",
        r"WARNING .*prefill_state_indices\) = 1,",
        r"prefill_state_indices\) = 1, .* = \d{4,}$",
        r"exceeds the maximum allowed length",
        r"ERROR   prefill",
        r" 400 ",
    ],
)
def test_quick_searches_count_wrong(log: BusyLog, pattern: str) -> None:
    """Too many, by lines as by requests: short prompts, drifts, refusals, and clients who left."""
    assert naive(log, pattern) != len(log.affected)
    assert naive(log, pattern, distinct=True) != len(log.affected)


def test_lines_and_requests_differ(log: BusyLog) -> None:
    """Some transfers were sent twice: one request, two lines."""
    lines = [line for line in log.lines if SIGNATURE.search(line) and rid(line) in log.affected]
    assert len(lines) == len(log.affected) + len(log.groups["twice"])


def test_nobody_gave_way(log: BusyLog) -> None:
    """Else a long prompt would be computed anew on the decode node, whole: the log alone could not tell when."""
    assert not [line for line in log.lines if "gave way" in line]


def test_too_short() -> None:
    with pytest.raises(ValueError, match="at least 1000"):
        busy_log(10)


def test_lines_are_a_copy(log: BusyLog) -> None:
    log.lines.clear()
    assert len(log.lines) == 10_000


def test_no_line_is_written_down_in_the_source() -> None:
    """Request numbers in lines come from runs: no source of ours holds one."""
    folder = Path(__file__).parents[2] / "minikv" / "incident"
    assert not [path for path in folder.glob("*.py") if re.search(r"rid=\d{2,}", path.read_text())]
