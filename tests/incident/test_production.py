"""The incident's own numbers: 10,645 pages reserved, 1 written, 10,644 stale, 681,273 stale slots read."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from minikv.incident.replay import Report, replay
from minikv.incident.scales import PRODUCTION
from minikv.trace import Read

pytestmark = pytest.mark.slow

STALE_PAGES, STALE_SLOTS = 10_644, 681_273


@pytest.fixture(scope="module")
def report() -> Report:
    return replay(PRODUCTION)


def test_sizes(report: Report) -> None:
    pools = report.historical.prefill.pool, report.historical.decode.pool
    assert [pool.num_slots for pool in pools] == [681_280, 1_100_800]
    assert report.historical.context_length == 1_048_576
    assert report.limit == report.attack_tokens == 681_274


def test_before(report: Report) -> None:
    before = report.before
    assert before.completion.status == 200
    assert (before.pages_reserved, before.pages_written, before.pages_stale) == (10_645, 1, STALE_PAGES)
    assert before.stale_slots_read == STALE_SLOTS


def test_every_stale_page_has_a_name(report: Report) -> None:
    """And every stale slot: nobody's is among them."""
    before = report.before
    assert sum(before.stale_page_writers.values()) == STALE_PAGES
    assert sum(before.stale_writers.values()) == STALE_SLOTS
    for names in (before.stale_page_writers, before.stale_writers):
        assert all(name.startswith("tenant-") for name in names) and len(names) > 100


def test_attention_reads_every_position(report: Report) -> None:
    """681,275 in the first step: two of them its own."""
    number = report.before.completion.request_id
    reads = [e for e in report.historical.trace if isinstance(e, Read) and e.owner == number and e.node == "decode"]
    first = [event for event in reads if event.step == reads[0].step]
    assert sum(event.slots for event in first) == 681_275
    assert sum(n for event in first for writer, n in event.writers if writer == number) == 2
    assert sum(report.before.attention.values()) == pytest.approx(1.0)


def test_somebody_leaked(report: Report) -> None:
    assert report.before.leaked and set(report.before.leaked) <= set(report.before.stale_writers)


def test_after(report: Report) -> None:
    after = report.after
    assert after.completion.status == 400 and after.completion.finish_reason == "rejected"
    assert (after.pages_reserved, after.pages_written, after.pages_stale) == (0, 0, 0)
    assert after.stale_slots_read == 0 and after.leaked == [] and after.completion.token_ids == ()


@pytest.mark.more
def test_in_a_minute_and_two_gigabytes() -> None:
    """The command as a user types it; a noisy machine may take twice the minute."""
    code = (
        "import re, sys; from minikv.cli import main; main(['incident', '--scale', 'production', '--json']);"
        "print(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr)"
    )
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert time.monotonic() - start < 120
    assert int(done.stderr.split()[-1]) < 2 * 2**20  # kilobytes
    told = json.loads(done.stdout)
    assert told["before"]["pages_stale"] == STALE_PAGES and told["after"]["status"] == 400
