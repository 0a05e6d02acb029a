"""Chapter 08, beside its answers (test_answers.py): the lab's counts, the lesson's past, words by writer."""

from __future__ import annotations

from typing import Any

import pytest

from minikv.course.chapters import ch08
from minikv.course.chapters.lab import one_layer
from minikv.viz.texts import side_by_side, words_by_writer


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
    from dataclasses import replace

    from minikv.course.chapters.ch03 import Allocator
    from minikv.incident.history import HistoricalCluster
    from minikv.incident.stage import Stage, build

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


def test_the_watched_answer_is_the_plain_one_with_shares_that_add_up() -> None:
    from dataclasses import replace

    from minikv.incident.history import HistoricalCluster
    from minikv.incident.scales import POCKET
    from minikv.incident.snapshot import Snapshot
    from minikv.incident.stage import Stage, build

    scale = replace(POCKET, answer_tokens=6)
    stage = Stage(scale, scale.load(), build(scale, scale.load(), HistoricalCluster))
    stage.play_past()
    past = Snapshot(stage.cluster)
    plain = stage.attack()
    past.restore()
    watched, words = ch08.watched_answer(stage)
    assert watched.token_ids == plain.token_ids
    assert words and all(abs(sum(shares.values()) - 1) < 1e-6 for _word, shares in words)
    assert "attacker" in {name for _word, shares in words for name in shares}


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


def test_words_have_letters_and_not_only_colours() -> None:
    drawn = words_by_writer([("Hello", {"quennell": 0.75, "attacker": 0.25}), ("<you>", {"attacker": 1.0})])
    assert "Q 75%" in drawn.text and "A 100%" in drawn.text
    assert "Q 75%" in drawn.table and "&lt;you&gt;" in drawn.table and "A attacker" in drawn.table
