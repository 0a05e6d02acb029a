"""Pages, page tables and the ledger: who may hold, write and read what, and what happens to whoever may not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from helpers import Server, answers, assert_quiet, cluster, finished, greedy, pools, prompt_of
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minikv import Engine
from minikv.errors import BrokenRule, ConfigError, OutOfPages, StaleRead, StaleWrite
from minikv.memory import FreeList, Ledger, PagePool, PageTable, pages_needed
from minikv.models.adapter import BoundModel
from minikv.models.geometry import KVGeometry, LayerGeometry

GEOMETRY = KVGeometry((LayerGeometry(kv_heads=2, key_dim=3, value_dim=5),) * 2)
ONE_NUMBER = KVGeometry((LayerGeometry(kv_heads=1, key_dim=1, value_dim=1),))


def pool_of(pages: int = 4, size: int = 4, **options: object) -> PagePool:
    return PagePool(GEOMETRY, pages, size, **options)  # type: ignore[arg-type]


def written(pool: PagePool, owner: int, tokens: int) -> PageTable:
    """A table with `tokens` positions written."""
    table = pool.lend(owner, pages_needed(tokens, pool.page_size))
    pool.begin_write(table, 0, tokens)
    return table


# Page tables


@pytest.mark.parametrize("size", [1, 3, 16])
def test_slots(size: int) -> None:
    """slot(p) = pages[p // size] * size + p % size, for every range."""
    table = PageTable(7, size)
    table.pages = [5, 0, 9]
    every = [table.pages[p // size] * size + p % size for p in range(3 * size)]
    for start in range(3 * size + 1):
        for stop in range(start, 3 * size + 1):
            assert table.slots(start, stop).tolist() == every[start:stop]


@pytest.mark.parametrize(("start", "stop"), [(0, 9), (8, 9), (-1, 2), (3, 2)])
def test_slots_outside_the_pages_held(start: int, stop: int) -> None:
    table = PageTable(7, 4)
    table.pages = [1, 0]
    with pytest.raises(BrokenRule, match=r"allocated >= written >= readable.*request 7"):
        table.slots(start, stop)


@pytest.mark.parametrize(
    ("tokens", "size", "pages"), [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (8, 4, 2), (490, 64, 8), (7, 1, 7)]
)
def test_pages_needed(tokens: int, size: int, pages: int) -> None:
    assert pages_needed(tokens, size) == pages


# Lending and taking back


@pytest.mark.parametrize("pages", [0, -1, 2.5, True, "4", None])
def test_pool_of_no_pages(pages: object) -> None:
    with pytest.raises(ConfigError, match="num_pages"):
        PagePool(GEOMETRY, pages, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "4", None])
def test_pages_of_no_slots(size: object) -> None:
    with pytest.raises(ConfigError, match="page_size"):
        PagePool(GEOMETRY, 4, size)  # type: ignore[arg-type]


def test_pool_that_no_machine_holds() -> None:
    """A typed error that says how much it would take, and no crash."""
    with pytest.raises(ConfigError, match="GiB"):
        PagePool(GEOMETRY, 2**50, 64, ledger=None)


def test_shapes() -> None:
    pool = pool_of(pages=6, size=4)
    assert [tuple(keys.shape) for keys in pool.keys] == [(6, 4, 2, 3)] * 2
    assert [tuple(values.shape) for values in pool.values] == [(6, 4, 2, 5)] * 2
    assert pool.num_slots == 24 and pool.num_free == 6


def test_last_in_first_out() -> None:
    """A table that was given back comes out again in the same order."""
    pool = pool_of(pages=8)
    first, second = pool.lend(1, 3), pool.lend(2, 2)
    assert first.pages == [0, 1, 2] and second.pages == [3, 4]
    pool.free(first)
    pool.free(second)
    assert pool.lend(3, 5).pages == [3, 4, 0, 1, 2]


def test_out_of_pages_lends_nothing() -> None:
    pool = pool_of(pages=4)
    table = pool.lend(1, 3)
    with pytest.raises(OutOfPages, match="2 pages were asked for and 1 are free"):
        pool.lend(2, 2)
    with pytest.raises(OutOfPages):
        pool.extend(table, 2)
    assert pool.num_free == 1 and len(table.pages) == 3 and list(pool.tables) == [1]
    pool.check()
    assert pool.lend(2, 1).pages == [3]


def test_free_list_out_of_pages() -> None:
    pages = FreeList(3)
    with pytest.raises(OutOfPages):
        pages.allocate(4)
    assert pages.allocate(3) == [0, 1, 2]


def test_one_table_a_request() -> None:
    pool = pool_of()
    pool.lend(1, 1)
    with pytest.raises(BrokenRule, match="one page table per request"):
        pool.lend(1, 1)
    pool.check()


def test_freed_twice() -> None:
    """https://github.com/LMCache/LMCache/issues/5005: the second time is refused, and no page is lent twice after."""
    pool = pool_of()
    table = pool.lend(1, 2)
    pool.free(table)
    with pytest.raises(BrokenRule, match="freed once"):
        pool.free(table)
    pool.check()
    assert not set(pool.lend(2, 2).pages) & set(pool.lend(3, 2).pages)


def test_freed_after_somebody_else_got_the_pages() -> None:
    pool = pool_of()
    old = pool.lend(1, 2)
    pool.free(old)
    new = pool.lend(2, 2)
    with pytest.raises(BrokenRule):
        pool.free(old)
    assert pool.owner[new.pages].tolist() == [2, 2]
    pool.check()


def test_freed_by_a_table_with_the_same_number() -> None:
    pool = pool_of()
    old = pool.lend(1, 2)
    pool.free(old)
    new = pool.lend(1, 2)
    with pytest.raises(BrokenRule):
        pool.free(old)
    assert pool.tables == {1: new}


def test_generations_count_how_often_a_page_was_lent() -> None:
    pool = pool_of(pages=2)
    for turn in range(1, 4):
        table = pool.lend(turn, 2)
        assert table.generations == [turn, turn]
        pool.free(table)
    assert pool.generation.tolist() == [3, 3]


# Wrong allocators


class Scripted(FreeList):
    """Lends well until told what to hand out next."""

    hand_out: Sequence[object] | None = None

    def allocate(self, n: int) -> list[int]:
        if self.hand_out is None:
            return super().allocate(n)
        return self.hand_out  # type: ignore[return-value]


@pytest.mark.parametrize(
    "pages",
    [[1], [1, 2, 3], [], [1, 1], [0, 1], [4, 1], [-1, 1], [True, 2], [1.0, 2], ["1", 2], [None, 1]],
    ids=["few", "many", "none", "twice", "lent", "no-such", "negative", "bool", "float", "str", "None"],
)
def test_wrong_grant(pages: list[object]) -> None:
    """Named before anything is lent; page 0 is request 1's."""
    pool = pool_of(pages=4, allocator=Scripted)
    pool.lend(1, 1)
    pool.allocator.hand_out = pages  # type: ignore[attr-defined]
    with pytest.raises(BrokenRule, match="an allocator lends as many free pages as it was asked for, each once"):
        pool.lend(2, 2)
    assert list(pool.tables) == [1] and pool.num_free == 3 and pool.owner.tolist() == [1, -1, -1, -1]
    pool.check()


def test_numpy_numbers_are_named_in_words() -> None:
    """Pages as numpy integers: served or refused by name, never half."""
    pool = pool_of(pages=4, allocator=Scripted)
    pool.allocator.hand_out = list(np.arange(2))  # type: ignore[attr-defined]
    try:
        table = pool.lend(1, 2)
    except BrokenRule as error:
        assert "no page of this pool" in str(error) and not pool.tables
    else:
        assert table.pages == [0, 1]
    pool.check()


@pytest.mark.parametrize("grant", [None, 3])
def test_grant_that_is_no_list(grant: object) -> None:
    class Wrong(FreeList):
        def allocate(self, n: int) -> list[int]:
            return grant  # type: ignore[return-value]

    pool = pool_of(allocator=Wrong)
    with pytest.raises(BrokenRule, match="an allocator lends"):
        pool.lend(1, 2)


# Writing and reading


def test_write_with_an_old_generation() -> None:
    """https://github.com/sgl-project/sglang/issues/24527: pages were lent on; the old holder writes late."""
    pool = pool_of()
    old = written(pool, 1, 5)
    pool.free(old)
    new = written(pool, 2, 5)
    assert new.pages == old.pages
    with pytest.raises(StaleWrite, match="request 1 is out of date"):
        pool.begin_write(old, 5, 6)
    assert pool.ledger is not None and set(pool.ledger.writer[new.slots(0, 5)]) == {2}


def test_write_after_free() -> None:
    pool = pool_of()
    table = written(pool, 1, 5)
    pool.free(table)
    with pytest.raises(StaleWrite):
        pool.begin_write(table, 5, 6)


def test_write_by_the_same_request_in_a_new_generation() -> None:
    pool = pool_of()
    old = written(pool, 1, 5)
    pool.free(old)
    pool.lend(1, 2)
    with pytest.raises(StaleWrite):
        pool.begin_write(old, 5, 6)


def test_import_with_an_old_generation() -> None:
    pool = pool_of()
    old = written(pool, 1, 4)
    keys, values, records = pool.export_pages(old)
    pool.free(old)
    pool.lend(2, 1)
    with pytest.raises(StaleWrite):
        pool.import_pages(old, keys, values, records, 4)


def test_export_with_an_old_generation() -> None:
    pool = pool_of()
    old = written(pool, 1, 4)
    pool.free(old)
    pool.lend(2, 1)
    with pytest.raises(BrokenRule):
        pool.export_pages(old)


@pytest.mark.parametrize("ledger", [Ledger, None])
def test_read_with_an_old_generation(ledger: object) -> None:
    """Who lost its pages may not read them, whether or not the shadow record is kept."""
    pool = pool_of(ledger=ledger)
    old = written(pool, 1, 4)
    pool.free(old)
    written(pool, 2, 4)
    with pytest.raises(BrokenRule):
        pool.begin_read(old)


def test_gap() -> None:
    pool = pool_of()
    table = written(pool, 1, 3)
    with pytest.raises(BrokenRule, match=r"in order.*wrote 3 positions and now starts at 4"):
        pool.begin_write(table, 4, 5)
    assert table.written == 3


def test_write_past_the_pages_held() -> None:
    pool = pool_of(size=4)
    table = written(pool, 1, 3)
    with pytest.raises(BrokenRule, match="allocated >= written"):
        pool.begin_write(table, 3, 5)
    assert table.written == 3


def test_read_is_what_was_written() -> None:
    pool = pool_of(size=4)
    table = pool.lend(1, 3)
    assert pool.begin_read(table).tolist() == []
    pool.begin_write(table, 0, 6)
    assert pool.begin_read(table).tolist() == list(range(6))


def test_store_is_where_it_should_be() -> None:
    pool = pool_of(size=4)
    pool.lend(1, 1)
    table = pool.lend(2, 2)
    slots = torch.from_numpy(pool.begin_write(table, 0, 6))
    key, value = torch.randn(6, 2, 3), torch.randn(6, 2, 5)
    pool.store(1, slots, key, value)
    assert torch.equal(pool.keys[1].flatten(0, 1)[4:10], key)
    assert torch.equal(pool.values[1].flatten(0, 1)[4:10], value)
    assert not pool.keys[0].any() and not pool.keys[1][0].any() and not pool.keys[1][3].any()


# The ledger


def tampered(change: Callable[[Ledger, np.ndarray], None]) -> PagePool:
    """A pool whose request 1 wrote 6 positions, and of whose record one entry was changed."""
    pool = pool_of()
    table = written(pool, 1, 6)
    assert pool.ledger is not None
    change(pool.ledger, table.slots(2, 3))
    return pool


def test_ledger_stays_silent() -> None:
    pool = tampered(lambda _ledger, _slot: None)
    assert len(pool.begin_read(pool.tables[1])) == 6


def test_ledger_sees_another_writer() -> None:
    pool = tampered(lambda ledger, slot: ledger.writer.__setitem__(slot, 9))
    with pytest.raises(StaleRead, match=r"request 1 was about to read 1 slots written by request 9 \(1\)"):
        pool.begin_read(pool.tables[1])


def test_ledger_sees_another_generation() -> None:
    pool = tampered(lambda ledger, slot: ledger.generation.__setitem__(slot, 0))
    with pytest.raises(StaleRead):
        pool.begin_read(pool.tables[1])


def test_ledger_sees_another_position() -> None:
    pool = tampered(lambda ledger, slot: ledger.position.__setitem__(slot, 3))
    with pytest.raises(StaleRead):
        pool.begin_read(pool.tables[1])


def test_ledger_sees_what_was_never_written() -> None:
    pool = pool_of()
    table = pool.lend(1, 1)
    table.written = 3
    with pytest.raises(StaleRead, match=r"nobody \(3\)"):
        pool.begin_read(table)


def test_ledger_sees_the_previous_holder() -> None:
    """The sentence of the course: the owner is not the writer."""
    pool = pool_of()
    pool.free(written(pool, 1, 8))
    table = pool.lend(2, 2)
    pool.begin_write(table, 0, 3)
    table.written = 7
    with pytest.raises(StaleRead, match=r"4 slots written by request 1 \(4\)"):
        pool.begin_read(table)


def test_ledger_sees_the_same_request_in_an_earlier_life_of_the_page() -> None:
    pool = pool_of()
    pool.free(written(pool, 1, 4))
    table = pool.lend(1, 1)
    table.written = 4
    with pytest.raises(StaleRead):
        pool.begin_read(table)


def test_late_write_in_a_running_engine(tiny: BoundModel) -> None:
    """An old holder writes past the pool's check: whoever reads it fails loudly, and the next request is served."""
    engine = Engine(tiny, page_size=4, num_pages=16)
    first = engine.submit(prompt_of(9), greedy(2))
    engine.step()
    old = engine.pool.tables[first]
    answers(finished(engine, [first]))
    second = engine.submit(prompt_of(10), greedy(20))
    engine.step()
    assert engine.pool.tables[second].pages[:3] == old.pages and engine.pool.ledger is not None
    engine.pool.ledger.record_write(old, 0, 3)
    engine.step()
    done = engine.result(second)
    assert done.finish_reason == "error" and isinstance(done.error, StaleRead)
    assert f"request {second} was about to read 3 slots written by request {first} (3)" in str(done.error)
    assert answers(engine.generate([prompt_of(9)], greedy(4)))
    assert_quiet(engine)


def test_handoff_records_travel() -> None:
    """Slots past `written` in a page that is sent whole stay their writer's; the written ones may be read."""
    source, target = pool_of(), pool_of()
    source.free(written(source, 1, 4))
    table = written(source, 2, 3)
    received = target.lend(2, 2)
    target.import_pages(received, *source.export_pages(table), written=3)
    assert len(target.begin_read(received)) == 3
    received.written = 4
    with pytest.raises(StaleRead, match=r"request 1 \(1\)"):
        target.begin_read(received)


# What nobody may read changes nothing


Build = Callable[[BoundModel, int], Server]


def one_node(model: BoundModel, page_size: int) -> Server:
    return Engine(model, page_size=page_size, num_pages=2 + 160 // page_size)


def two_nodes(model: BoundModel, page_size: int) -> Server:
    return cluster(model, 2 + 160 // page_size, page_size=page_size)


def logits_of_a_run(model: BoundModel, server: Server, poison: float | None) -> list[torch.Tensor]:
    """Every logit of every step of some overlapping requests; before each step the unwritten slots are filled."""
    seen: list[torch.Tensor] = []
    forward = model.forward

    def record(*args: torch.Tensor, **options: torch.Tensor) -> torch.Tensor:
        logits = forward(*args, **options)  # type: ignore[arg-type]
        seen.append(logits.clone())
        return logits

    model.forward = record  # type: ignore[method-assign,assignment]
    try:
        numbers = []
        for length in (17, 4, 9, 1):
            numbers.append(server.submit(prompt_of(length), greedy(11)))
            for _ in range(3):
                if poison is not None:
                    for pool in pools(server):
                        pool.fill_unwritten(poison)
                server.step()
        answers(finished(server, numbers))
    finally:
        del model.forward
    return seen


@pytest.mark.parametrize("page_size", [1, 4, 16, 64])
@pytest.mark.parametrize("build", [one_node, two_nodes])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_poison(tiny: BoundModel, build: Build, page_size: int, value: float) -> None:
    """https://github.com/Dao-AILab/flash-attention/issues/1745: not one bit of one logit."""
    plain = logits_of_a_run(tiny, build(tiny, page_size), None)
    poisoned = logits_of_a_run(tiny, build(tiny, page_size), value)
    assert len(plain) == len(poisoned) > 12
    for ours, theirs in zip(plain, poisoned, strict=True):
        assert torch.equal(ours, theirs) and ours.isfinite().all()


@pytest.mark.parametrize("family", ["gpt2", "mistral", "gemma2", "gpt_oss", "deepseek"], indirect=True)
def test_poison_in_every_kind_of_attention(family: BoundModel) -> None:
    plain = logits_of_a_run(family, one_node(family, 4), None)
    poisoned = logits_of_a_run(family, one_node(family, 4), float("nan"))
    for ours, theirs in zip(plain, poisoned, strict=True):
        assert torch.equal(ours, theirs)


def test_fill_unwritten_spares_what_was_written() -> None:
    pool = pool_of(pages=3, size=4)
    table = pool.lend(1, 2)
    slots = torch.from_numpy(pool.begin_write(table, 0, 6))
    pool.store(0, slots, torch.ones(6, 2, 3), torch.ones(6, 2, 5))
    pool.fill_unwritten(7.0)
    assert pool.keys[0].flatten(0, 1)[:, 0, 0].tolist() == [1.0] * 6 + [7.0] * 6


# Any order of anything


class PoolMachine(RuleBasedStateMachine):
    """Lends, extends, writes, reads and frees, beside a model in which every table is a list of its slots' contents."""

    pool: PagePool
    tables: dict[int, PageTable]
    wrote: dict[int, int]
    dead: list[PageTable]
    number: int

    @initialize(pages=st.integers(1, 9), size=st.integers(1, 5))
    def start(self, pages: int, size: int) -> None:
        self.pool = PagePool(ONE_NUMBER, pages, size)
        self.tables, self.wrote, self.dead, self.number = {}, {}, [], 0

    def free_pages(self) -> int:
        return self.pool.num_pages - sum(len(table.pages) for table in self.tables.values())

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.tables)))

    @rule(pages=st.integers(0, 6))
    def lend(self, pages: int) -> None:
        self.number += 1
        if pages > self.free_pages():
            with pytest.raises(OutOfPages):
                self.pool.lend(self.number, pages)
            return
        self.tables[self.number] = self.pool.lend(self.number, pages)
        self.wrote[self.number] = 0

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), pages=st.integers(0, 4))
    def extend(self, data: st.DataObject, pages: int) -> None:
        table, before = self.tables[self.pick(data)], self.free_pages()
        if pages > before:
            with pytest.raises(OutOfPages):
                self.pool.extend(table, pages)
        else:
            self.pool.extend(table, pages)
        assert self.free_pages() == before - (pages if pages <= before else 0)

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), start=st.integers(0, 30), length=st.integers(1, 12))
    def write(self, data: st.DataObject, start: int, length: int) -> None:
        owner = self.pick(data)
        table, stop = self.tables[owner], start + length
        if start > self.wrote[owner] or stop > table.allocated:
            with pytest.raises(BrokenRule):
                self.pool.begin_write(table, start, stop)
            return
        slots = torch.from_numpy(self.pool.begin_write(table, start, stop))
        contents = owner * 1000.0 + torch.arange(start, stop)
        self.pool.store(0, slots, contents.view(-1, 1, 1), -contents.view(-1, 1, 1))
        self.wrote[owner] = max(self.wrote[owner], stop)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """What comes back is what this owner wrote, at every position."""
        owner = self.pick(data)
        slots = torch.from_numpy(self.pool.begin_read(self.tables[owner]))
        contents = owner * 1000.0 + torch.arange(self.wrote[owner])
        assert torch.equal(self.pool.keys[0].flatten()[slots], contents)
        assert torch.equal(self.pool.values[0].flatten()[slots], -contents)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        owner = self.pick(data)
        self.dead.append(self.tables.pop(owner))
        self.pool.free(self.dead[-1])

    @precondition(lambda self: any(table.pages for table in self.dead))
    @rule(data=st.data())
    def use_after_free(self, data: st.DataObject) -> None:
        """Whatever became of its pages, a table that was given back is good for nothing."""
        table = data.draw(st.sampled_from([table for table in self.dead if table.pages]))
        with pytest.raises(BrokenRule):
            self.pool.free(table)
        with pytest.raises(StaleWrite):
            self.pool.begin_write(table, 0, 1)
        with pytest.raises(BrokenRule):
            self.pool.export_pages(table)

    @precondition(lambda self: hasattr(self, "pool"))
    @invariant()
    def whole(self) -> None:
        self.pool.check()
        assert self.pool.num_free == self.free_pages()
        assert self.pool.tables == self.tables


TestPool = PoolMachine.TestCase
TestPool.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
