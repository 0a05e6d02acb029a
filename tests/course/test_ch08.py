"""Chapter 08, beside its answers (test_answers.py): the counts of the lab, the past, the window, whose words."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import Any

import pytest

from minikv.course.chapters import ch08
from minikv.course.chapters.lab import one_layer
from minikv.incident.history import HistoricalCluster
from minikv.incident.scales import POCKET
from minikv.incident.snapshot import Snapshot
from minikv.incident.stage import Stage, build
from minikv.viz.texts import marked, side_by_side
from minikv.viz.whose import lettered, whose_words
from minikv.viz.window import Doors, Sent, window_line
from minikv.viz.window_panel import ON_ITS_WAY, FixedWindow, WindowPanel, window_panel


def test_the_window_of_the_prediction_is_the_clusters_own() -> None:
    for length, status, stale in ((441, 200, 0), (442, 200, 6), (4089, 200, 63), (4090, 400, 0)):
        lab = ch08.Lab(decode_pages=64)
        lab.attack(length)
        seen = lab.attacks[0]
        assert (seen.completion.status, len(seen.stale)) == (status, stale), length


def test_a_fresh_lab_reads_489_slots_that_nobody_wrote() -> None:
    lab = ch08.Lab()
    lab.attack(490)
    assert lab.attacks[0].foreign == {"nobody": 489}
    assert lab.attacks[0].stale == (("nobody",),) * 7


@pytest.mark.model
def test_the_lab_knows_the_lengths_of_the_texts() -> None:
    from minikv import load_model
    from minikv.incident.tenants import tenant

    model = load_model("smollm2")
    assert {name: len(model.encode(tenant(name).text)) for name in ch08.TENANTS} == ch08.TENANTS


class Reversed:
    """Last in, first out: a table that was given back comes out again from its end."""

    def __init__(self, num_pages: int) -> None:
        self.pages = list(range(num_pages))

    def allocate(self, n: int) -> list[int]:
        return [self.pages.pop() for _ in range(n)]

    def free(self, pages: list[int]) -> None:
        self.pages.extend(pages)


class Lowest(Reversed):
    """The free page with the lowest number."""

    def allocate(self, n: int) -> list[int]:
        self.pages.sort(reverse=True)
        return super().allocate(n)


@pytest.mark.parametrize("allocator", [Reversed, Lowest, "reference"])
def test_the_lessons_past_leaves_quennell_in_the_pages_whatever_the_order(allocator: Any) -> None:
    """With a random model in place of the real one: the counts need no words."""
    from minikv.course.chapters.ch03 import Allocator

    made = Allocator if allocator == "reference" else allocator
    day = ch08.busy_day()
    lengths = {"quennell": 419, "halverson": 403, "guest": 3}
    visits = [
        [replace(v, prompt=[1 + i % 200 for i in range(lengths[v.tenant.name])]) for v in g] for g in day.visits(None)
    ]
    day = replace(day, visits=lambda _model: visits)
    stage = Stage(day, one_layer(), build(day, one_layer(), HistoricalCluster, allocator=made))
    stage.play_past()
    prompt = [7] * 490
    answer = stage.cluster.generate([prompt], day.attack_params, tenant="attacker")[0]
    found = stage.measure(answer)
    assert (found.pages_reserved, found.pages_written, found.pages_stale) == (8, 1, 7)
    assert found.stale_writers == {"quennell": 489}


# The window and its panel

DOORS = Doors(442, 4090, 8192)


def sent(length: int, status: int = 200) -> Sent:
    return Sent(length, status, "the cat sat <there> and slept", 8, 1, length + 1, {"quennell": length - 1})


def test_what_is_sent_meets_the_same_evening_each_time() -> None:
    scale = replace(POCKET, answer_tokens=16)
    stage = Stage(scale, scale.load(), build(scale, scale.load(), HistoricalCluster))
    stage.play_past()
    past = Snapshot(stage.cluster)
    send = ch08.sender(stage, past, answer_tokens=5)
    first, other, again = send(31), send(21), send(31)
    assert (first.status, first.reserved, first.written, first.read) == (200, 8, 1, 32) and first == again
    assert sum(first.foreign.values()) == 30 and other.written == 6 and other.foreign == {}
    refused = send(400)
    assert (refused.status, refused.read) == (400, 0) and "400 tokens" in refused.text


def test_doors_are_those_of_the_cluster() -> None:
    assert ch08.doors(ch08.busy_day()) == DOORS
    assert DOORS.window == range(442, 4090)
    assert [DOORS.zone(length) for length in (1, 441, 442, 4089, 4090, 9000)] == [
        *["served"] * 2, *["window: leaks"] * 2, *["refused by both"] * 2
    ]  # fmt: skip


@pytest.mark.parametrize(("doors", "middle"), [(Doors(442, 442, 512), []), (Doors(442, 100, 512), ["decode refuses"])])
def test_equal_pools_have_no_window(doors: Doors, middle: list[str]) -> None:
    assert not doors.window and "There is no window." in window_line(doors).text
    assert [name for name, _first, _stop in doors.zones()] == ["served", *middle, "refused by both"]


def test_the_line_and_the_table_say_the_same() -> None:
    drawn = window_line(DOORS, [sent(441), sent(490), sent(5000, 400)], texts={"quennell": "when the cat sat still"})
    assert "The window is 442 to 4,089." in drawn.text and "[Q: the cat sat] <there>" in drawn.text
    assert drawn.table.count("<caption") == 2 and "&lt;there&gt;" in drawn.table and "[Q: the cat sat]" in drawn.table
    bars = [trace for trace in drawn.figure.data if trace.type == "bar"]
    assert [bar.text[0] for bar in bars] == ["served", "window: leaks", "refused by both"]
    assert len({bar.marker.pattern.shape for bar in bars}) == 3
    assert list(drawn.figure.data[-1].text) == [" 441", " 490", " 5,000"]
    assert window_line(DOORS).table.count("<caption") == 1


@pytest.mark.parametrize("wrong", [{"sent": [sent(490), sent(490)]}, {"doors": Doors(0, 1, 1)}, {"sent": [sent(0)]}])
def test_what_has_no_place_on_the_line(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"sent twice|1 token or more"):
        window_line(**{"doors": DOORS, **wrong})


def test_the_panel_moves_and_sends_each_length_once() -> None:
    asked: list[int] = []

    def send(length: int) -> Sent:
        asked.append(length)
        return sent(length)

    panel = window_panel(send, DOORS, (430, 530, 474), texts={"quennell": "the cat sat"}, known=[sent(474)])
    assert isinstance(panel, WindowPanel) and asked == []
    assert panel.text.startswith("474 tokens (window: leaks). Status 200. 8 pages reserved, 1 written.")
    assert "473 written by quennell" in panel.text and "[Q: the cat sat]</b> &lt;there&gt;" in panel.answer.value
    panel.length.value = 440
    assert panel.text.startswith("440 tokens (served).") and panel.text in panel.line.value
    assert panel.figure.data[-1].text == (" 440",)
    panel.length.value = 474
    panel.length.value = 440
    assert asked == [440]


def test_a_slider_that_is_held_is_no_queue_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel: only where it rests is sent; what is said changes at once."""
    monkeypatch.setattr("minikv.viz.window_panel.PAUSE", 0.05)
    asked: list[int] = []

    def send(length: int) -> Sent:
        asked.append(length)
        return sent(length)

    async def hold() -> None:
        panel = window_panel(send, DOORS, (430, 530, 474))
        assert isinstance(panel, WindowPanel)
        for length in range(475, 490):
            panel.length.value = length
            assert panel.text == f"{length} tokens (window: leaks). {ON_ITS_WAY}"
        await asyncio.sleep(0.5)
        assert panel.text.startswith("489 tokens (window: leaks). Status 200.")
        panel.length.value = 500
        panel.length.value = 489  # known: the other one is not sent any more
        await asyncio.sleep(0.5)
        assert panel.text.startswith("489 tokens")

    asyncio.run(hold())
    assert asked == [474, 489]


def test_the_panel_says_in_a_line_why_nothing_came() -> None:
    def send(length: int) -> Sent:
        raise ZeroDivisionError(f"mine, at {length}")

    panel = window_panel(send, DOORS, (430, 530, 474))
    assert panel.text == "474 tokens (window: leaks). The run ends early: ZeroDivisionError: mine, at 474"


@pytest.mark.parametrize("missing", ["anywidget", "ipywidgets"])
def test_without_widgets_there_is_the_first_length_and_the_reason(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    fixed = window_panel(sent, DOORS, (430, 530, 474))
    assert isinstance(fixed, FixedWindow) and fixed.reason == f"No slider here, because {missing} is not installed."
    assert "474" in fixed.picture.text and fixed.text.startswith(fixed.reason)

    def fail(length: int) -> Sent:
        raise ZeroDivisionError("mine")

    assert "The run ends early: ZeroDivisionError: mine" in window_panel(fail, DOORS, (430, 530, 474)).text


# Texts and whose they are


def test_side_by_side_marks_what_two_texts_share_on_both_sides() -> None:
    drawn = side_by_side("here", "oh the cat sat down <b>", "there", "see the cat sat still", least=3)
    assert "oh [1: the cat sat] down <b>" in drawn.text and "see [1: the cat sat] still" in drawn.text
    assert "3 of the 6 words" in drawn.text and "in 1 run of 3 words" in drawn.text
    assert drawn.table.count("[1: the cat sat]") == 2 and "&lt;b&gt;" in drawn.table
    assert "<caption" in drawn.table and drawn._repr_html_() == drawn.table
    nothing = side_by_side("a", "one two", "b", "three four")
    assert "[" not in nothing.text.partition("a: ")[2]


def test_no_word_is_in_two_runs() -> None:
    drawn = side_by_side("a", "x y z x y z", "b", "x y z w", least=3)
    assert drawn.text.count("[1: ") == 2 and "[2: " not in drawn.text


def test_marks_say_whose() -> None:
    html, plain = marked(
        "x the cat sat down at the old door <y>", {"quennell": "the cat sat", "hal": "at the old door"}
    )
    assert plain == "x [Q: the cat sat] down [H: at the old door] <y>"
    assert "&lt;y&gt;" in html and html.count("<b style") == 2
    assert marked("a b c d", {"p": "a b c", "q": "b c d e a b c d"})[1] == "[Q: a b c d]"  # the longer run
    assert marked("nothing here", {})[1] == "nothing here"


PIECES = [
    ("-", {"position 0": 1.0}),
    (" Qu", {"quennell": 0.5, "attacker": 0.25, "position 0": 0.25}),
    ("<enn>", {"quennell": 0.1, "attacker": 0.2, "position 0": 0.7}),
    ("\n", {"nobody": 0.6, "quennell": 0.3, "attacker": 0.1}),
]


def test_whose_words_have_letters_and_hatches_and_not_only_colours() -> None:
    drawn = whose_words(PIECES)
    caption, token, most, *shares = drawn.text.splitlines()
    assert (
        "Q quennell, A attacker, \N{EN DASH} nobody, P position 0" in caption and "left out of 'read most'" in caption
    )
    assert token.split() == ["token", "-", "Qu", "<enn>", "\N{PILCROW SIGN}"]
    assert most.split() == ["read", "most", "Q", "A", "\N{EN DASH}"]
    assert shares[0].split()[-4:] == ["0%", "50%", "10%", "30%"]
    assert "&lt;enn&gt;" in drawn.table and drawn.table.count("<caption") == 1
    bars = [trace for trace in drawn.figure.data if trace.type == "bar"]
    assert len({bar.marker.pattern.shape for bar in bars}) == len(bars) == 4
    for place in range(len(PIECES)):
        assert sum(bar.y[place] for bar in bars) == pytest.approx(1)
    assert list(drawn.figure.data[-1].text) == [" ", "Q", "A", "\N{EN DASH}"]


def test_letters_stand_under_the_words() -> None:
    assert lettered(PIECES, width=6) == ["- Qu", "  Q", "<enn>", "A", "\N{PILCROW SIGN}", "\N{EN DASH}"]
    assert lettered(PIECES, width=80) == ["- Qu <enn> \N{PILCROW SIGN}", "  Q  A     \N{EN DASH}"]


@pytest.mark.parametrize("pieces", [[], [("a", {"q": 0.5})], [("a", {"q": 1.5, "p": -0.5})]])
def test_shares_that_cannot_be(pieces: Any) -> None:
    with pytest.raises(ValueError, match=r"nothing was said|must sum to 1"):
        whose_words(pieces)
