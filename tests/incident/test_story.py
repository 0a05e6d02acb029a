"""The story that a terminal shows, and the map in it."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from minikv import Engine, SamplingParams, load_model
from minikv.incident.replay import replay
from minikv.incident.scales import POCKET
from minikv.incident.story import tell
from minikv.trace import Allocate, Read, Trace, Write
from minikv.viz import page_map


def told(attack_tokens: int | None = None) -> str:
    console = Console(file=io.StringIO(), width=100, highlight=False)
    tell(replay(POCKET, attack_tokens=attack_tokens), console)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_story_of_the_leak() -> None:
    story = told()
    for words in ("HTTP 200", "reserved 8, written 1, stale 7", "30, written by", "owner is not writer", "HTTP 400"):
        assert words in story


def test_story_without_a_leak_claims_none() -> None:
    story = told(attack_tokens=5)
    assert "owner is not writer" not in story
    assert "Nothing of another tenant was found" in story


@pytest.mark.parametrize("attack_tokens", [250, 600])
def test_story_of_a_refusal_on_both_sides(attack_tokens: int) -> None:
    assert told(attack_tokens).count("HTTP 400") == 2


def test_map_of_a_few_pages_does_not_cost_a_million() -> None:
    """A pool of 20,000 pages with a long trace, of which ten pages are drawn."""
    trace = Trace()
    for owner in range(200):
        for page in range(owner * 100, owner * 100 + 100):
            trace.add(Allocate(1, "engine", page, owner, 1))
            trace.add(Write(1, "engine", page, owner, 1, owner, 0, 4))
            trace.add(Read(1, "engine", page, owner, 1, 4, ((owner, 4),)))
    started = time.perf_counter()
    drawn = page_map(trace, pages=range(95, 105))
    assert time.perf_counter() - started < 5
    assert "request 0" in drawn.text and "request 1" in drawn.text and "request 2" not in drawn.text


@pytest.mark.parametrize("kept", [5, 40, 100])
def test_map_of_a_trace_that_dropped_its_oldest_events(kept: int) -> None:
    """A server that runs for long keeps only the end of its story, and the end can be drawn."""
    engine = Engine(load_model("tiny-random"), page_size=4, num_pages=16, trace=Trace(max_events=kept))
    engine.generate([[1, 2, 3, 4, 5, 6]] * 3, SamplingParams(max_tokens=9, ignore_eos=True))
    assert engine.trace.dropped > 0
    assert page_map(engine.trace).text.startswith("engine, step ")
