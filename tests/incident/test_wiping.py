"""Wiping pages: what it costs, what it stops, and what it only hides."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch

from minikv import Cluster, Engine, NodeConfig, SamplingParams
from minikv.incident.matrix import Laboratory
from minikv.incident.scenarios import SCENARIOS, Prompts
from minikv.incident.wipes import WIPES, Wipe, WipingHistoricalPool, WipingPool, name_of
from minikv.incident.wiping import Effect, WipedLaboratory, Wiping, measure_effects
from minikv.incident.wiping_cost import ARTICLE_TRAFFIC, POCKET_TRAFFIC, measure_speed
from minikv.memory import FreeList
from minikv.memory.ledger import NOBODY
from minikv.models.adapter import BoundModel

ZERO, NAN = 0.0, math.nan
PARAMS = SamplingParams(max_tokens=9, ignore_eos=True)


def names(value: str, scope: str) -> list[str]:
    return [f"{value} on {moment}, {scope}" for moment in ("lend", "free")]


@pytest.fixture(scope="module")
def effects(tiny: BoundModel) -> Wiping:
    return Wiping((), tuple(measure_effects(model=tiny)))


# What it stops


@pytest.mark.slow
def test_without_wiping_it_is_history(effects: Wiping, tiny: BoundModel) -> None:
    laboratory = Laboratory(tiny)
    for scenario in SCENARIOS.values():
        cell = laboratory.cell("", scenario)
        seen = effects.effect("no wiping", scenario.name)
        assert (seen.verdict, seen.status, seen.stale_slots_read) == (cell.verdict, cell.status, cell.stale_slots_read)
        assert seen.strangers_slots_read == seen.stale_slots_read


@pytest.mark.slow
@pytest.mark.parametrize("name", names("zero", "decode"))
def test_one_pool_is_not_enough(effects: Wiping, name: str) -> None:
    """Slots 1 to 3 of page 0 come with the page, from the prefill pool, and the answer still hangs on a stranger."""
    seen = effects.effect(name, "over-length")
    assert (seen.verdict, seen.status, seen.stale_slots_read, seen.strangers_slots_read) == ("leaks", 200, 30, 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", names("zero", "prefill"))
def test_the_other_pool_is_not_enough_either(effects: Wiping, name: str) -> None:
    seen = effects.effect(name, "over-length")
    assert (seen.verdict, seen.strangers_slots_read) == ("leaks", 27)


@pytest.mark.slow
@pytest.mark.parametrize("name", names("zero", "both"))
def test_zeroing_both_pools_hides(effects: Wiping, name: str) -> None:
    """Nobody's words, and 200 for nonsense: 30 slots are read that nobody wrote."""
    seen = effects.effect(name, "over-length")
    assert (seen.verdict, seen.status, seen.leaked) == ("wrong", 200, False)
    assert (seen.stale_slots_read, seen.strangers_slots_read) == (30, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", names("NaN", "both") + names("NaN", "decode") + names("NaN", "prefill"))
def test_poison_makes_it_loud(effects: Wiping, name: str) -> None:
    """One poisoned slot is enough: the sampler refuses what is not a number. Others would not."""
    seen = effects.effect(name, "over-length")
    assert (seen.verdict, seen.status, seen.leaked) == ("refused", 500, False)


def test_poison_needs_a_sampler_that_looks(tiny: BoundModel) -> None:
    """`argmax` of what is not a number is a token like any other: an error becomes nonsense with status 200."""
    laboratory = WipedLaboratory(Wipe(NAN, "lend"), tiny)
    scenario = SCENARIOS["over-length"]
    cluster = laboratory.cluster("")
    cluster.decode.sampler = lambda logits, _request: int(logits.argmax())
    ending = scenario.run(cluster, laboratory.prompts())
    assert ending.status == 200 and len(set(ending.token_ids[1:])) == 1


@pytest.mark.slow
def test_nobody_wipes_in_time_for_a_late_writer(effects: Wiping) -> None:
    for name in [name_of(wipe) for wipe in WIPES if wipe and wipe.value == ZERO]:
        assert effects.effect(name, "late-write").verdict == "leaks", name


def test_poison_meets_a_late_writer_by_luck(tiny: BoundModel) -> None:
    """It is the poison past the end of a half-filled page that shows. Prompts that fill their pages leak as ever."""

    class Filled(WipedLaboratory):
        def prompts(self, shift: int = 0) -> Prompts:
            plain = super().prompts(shift)
            return Prompts(plain.attack, plain.ordinary, plain.stranger[:16], plain.answer_tokens)

    for moment in ("lend", "free"):
        cell = Filled(Wipe(NAN, moment), tiny).cell("", SCENARIOS["late-write"])  # type: ignore[arg-type]
        assert (cell.status, cell.verdict) == (200, "leaks")


@pytest.mark.slow
def test_wiping_answers_nobody_who_waits(effects: Wiping) -> None:
    for wipe in WIPES:
        assert effects.effect(name_of(wipe), "lost-abort").verdict == "hangs"
        assert effects.effect(name_of(wipe), "symmetric").verdict == "refused"


def test_the_fence_and_the_wipe(tiny: BoundModel) -> None:
    """With guard g on as well, the late writer is turned away, and ordinary answers are right."""
    laboratory = WipedLaboratory(Wipe(ZERO, "lend"), tiny)
    assert laboratory.cell("g", SCENARIOS["late-write"]).verdict == "right"
    pool = laboratory.cluster("g").decode.pool
    assert isinstance(pool, WipingHistoricalPool) and pool.fenced and pool.wipe
    unfenced = laboratory.cluster("").decode.pool
    assert isinstance(unfenced, WipingHistoricalPool) and not unfenced.fenced


class OnePageShort(WipingPool):
    """A wipe that forgets the last page of every grant."""

    def _overwrite(self, moment: Any, pages: Sequence[int]) -> None:
        super()._overwrite(moment, pages[:-1])


def test_a_forgotten_page_shows(tiny: BoundModel) -> None:
    class Half(OnePageShort, WipingHistoricalPool):
        pass

    class Forgetful(WipedLaboratory):
        def build(self, scale: Any, guards: str) -> Any:
            built = super().build(scale, guards)
            for node in built.nodes:
                node.pool.__class__ = Half
            return built

    cell = Forgetful(Wipe(ZERO, "lend"), tiny).cell("", SCENARIOS["over-length"])
    assert cell.verdict == "leaks"


# What it leaves alone


@pytest.mark.parametrize("wipe", WIPES, ids=name_of)
@pytest.mark.parametrize("kind", ["engine", "cluster"])
def test_right_answers_stay(tiny: BoundModel, kind: str, wipe: Wipe | None) -> None:
    """In pools that are used again and too small for all at once, with another order of pages."""

    class Reversed(FreeList):
        def free(self, pages: Sequence[int]) -> None:
            super().free(pages[::-1])

    prompts = [tiny.encode("a question of no weight" + "!" * n)[n:] for n in range(7)]

    def answers(**settings: Any) -> list[tuple[int, ...]]:
        size = NodeConfig(num_pages=17)
        server = (
            Engine(tiny, page_size=4, num_pages=17, **settings)
            if kind == "engine"
            else Cluster(tiny, prefill=size, decode=NodeConfig(num_pages=29), page_size=4, **settings)
        )
        done = [done for _ in range(2) for done in server.generate(prompts, PARAMS)]
        assert all(each.error is None for each in done)
        server.check()
        return [each.token_ids for each in done]

    wipe = Wipe(wipe.value, wipe.moment, ("engine", *wipe.nodes)) if wipe and kind == "engine" else wipe
    assert answers(pool=partial(WipingPool, wipe=wipe), allocator=Reversed) == answers()


@pytest.mark.parametrize("value", [ZERO, NAN])
@pytest.mark.parametrize("moment", ["lend", "free"])
def test_whole_pages_at_their_moment(tiny: BoundModel, value: float, moment: Any) -> None:
    pool = WipingPool(tiny.geometry, 6, 4, node="decode", wipe=Wipe(value, moment, ("decode",)), dtype=torch.float32)
    first = pool.lend(0, 3)
    pool.begin_write(first, 0, 12)
    for tensor in (*pool.keys, *pool.values):
        tensor.fill_(5.0)
    held, kept = list(first.pages), [page for page in range(6) if page not in first.pages]
    pool.free(first)
    assert pool.ledger is not None
    if moment == "lend":
        assert (pool.ledger.writer.reshape(6, 4)[held] == 0).all()
        assert pool.lend(1, 3).pages == held
    for tensor in (*pool.keys, *pool.values):
        wiped = tensor[held]
        assert wiped.isnan().all() if math.isnan(value) else (wiped == value).all()
        assert (tensor[kept] == 5.0).all()
    assert (pool.ledger.writer.reshape(6, 4)[held] == NOBODY).all()
    assert pool.pages_wiped == (6 if moment == "lend" else 3) and pool.seconds > 0


def test_clearing_is_a_way_to_free(tiny: BoundModel) -> None:
    pool = WipingPool(tiny.geometry, 6, 4, node="prefill", wipe=Wipe(ZERO, "free"))
    pages = pool.lend(0, 2).pages
    pool.keys[0].fill_(1.0)
    pool.clear()
    assert (pool.keys[0][pages] == 0).all() and (pool.keys[0] == 1).sum() == 4 * pool.keys[0][0].numel()


def test_a_node_that_is_not_named_wipes_nothing(tiny: BoundModel) -> None:
    pool = WipingPool(tiny.geometry, 6, 4, node="prefill", wipe=Wipe(ZERO, "lend", ("decode",)))
    pool.keys[0].fill_(1.0)
    pool.lend(0, 2)
    assert pool.pages_wiped == 0 and (pool.keys[0] == 1).all()


# What it costs


@pytest.mark.slow
def test_speeds_are_numbers() -> None:
    speeds = measure_speed(POCKET_TRAFFIC, repetitions=1)
    assert [each.wipe for each in speeds] == [name_of(wipe) for wipe in WIPES]
    for each in speeds:
        assert each.tokens_per_second > 0 and each.ratio > 0 and 0 <= each.share < 1
        assert (each.pages_wiped > 0) == (each.share > 0) == (each.wipe != "no wiping")
    whole = {each.wipe: each.pages_wiped for each in speeds}
    for moment in ("lend", "free"):
        assert (
            whole[f"zero on {moment}, both"] == whole[f"zero on {moment}, prefill"] + whole[f"zero on {moment}, decode"]
        )


@pytest.mark.slow
@pytest.mark.model
def test_speeds_of_the_real_model() -> None:
    plain, wiped = measure_speed(ARTICLE_TRAFFIC, [Wipe(ZERO, "lend")], repetitions=1)
    assert plain.page_size == wiped.page_size == 64
    assert wiped.tokens_per_second > 0 and 0 < wiped.share < 1 and plain.share == 0


@pytest.mark.slow
def test_report(effects: Wiping) -> None:
    speeds = measure_speed(POCKET_TRAFFIC, [Wipe(NAN, "free")], repetitions=1)
    report = Wiping(tuple(speeds), effects.effects)
    told = json.loads(json.dumps(report.as_json()))
    assert len(told["effects"]) == len(WIPES) * len(SCENARIOS) and len(told["speeds"]) == 2
    assert told["effects"][0] == vars(report.effects[0])
    rows = report.text.splitlines()
    (row,) = [row for row in rows if row.startswith("zero on lend, decode")]
    assert "leaks (3 of 30)" in row and "right by luck (0 of 2)" in row
    assert any(row.startswith("pocket") and "NaN on free, both" in row for row in rows)


def test_luck_has_a_name() -> None:
    """A right answer from slots that were not written for it."""

    def effect(stale: int) -> Wiping:
        return Wiping((), (Effect("w", "s", "right", 200, False, stale, 0),))

    assert "by luck" in effect(2).text and "by luck" not in effect(0).text
