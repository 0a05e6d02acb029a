"""Who runs in which step: exact plans, exact preemptions, first come first served, and what planning costs."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from helpers import Server, answers, assert_quiet, finished, greedy, pools, prompt_of, reference
from hypothesis import given, settings
from hypothesis import strategies as st

from minikv import Cluster, Engine, NodeConfig, SamplingParams
from minikv.errors import BrokenRule
from minikv.memory import PagePool, pages_needed
from minikv.models.adapter import BoundModel
from minikv.scheduling.request import Request
from minikv.scheduling.scheduler import Scheduled, Scheduler
from minikv.trace import Preempt

Shares = list[tuple[int, int]]  # (request, tokens) of one step


class Recorded(Scheduler):
    """The right scheduler, which writes down every plan, who waited after it, and how many pages were lent."""

    def __init__(self, pool: PagePool, config: NodeConfig) -> None:
        super().__init__(pool, config)
        self.plans: list[Shares] = []
        self.queues: list[list[int]] = []
        self.pages: list[dict[int, int]] = []
        self.evicted: list[list[int]] = []
        self.before: list[list[int]] = []

    def schedule(self) -> list[Scheduled]:
        self.before.append([request.number for request in self.running])
        self._gone: list[int] = []
        plan = super().schedule()
        self.plans.append([(share.request.number, share.num_scheduled_tokens) for share in plan])
        self.queues.append(list(self.waiting))
        self.pages.append({number: len(table.pages) for number, table in self.pool.tables.items()})
        self.evicted.append(self._gone)
        return plan

    def _preempt(self, request: Request, plan: list[Scheduled]) -> None:
        self._gone.append(request.number)
        super()._preempt(request, plan)


def recorded(server: Engine) -> Recorded:
    scheduler = server.node.scheduler
    assert isinstance(scheduler, Recorded)
    return scheduler


def engine(model: BoundModel, **settings: Any) -> Engine:
    return Engine(model, scheduler=Recorded, **({"page_size": 4, "num_pages": 40} | settings))


def submitted(server: Server, shapes: list[tuple[int, int]]) -> list[int]:
    """Hand in requests of (prompt tokens, max_tokens)."""
    return [server.submit(prompt_of(length, seed=i), greedy(n)) for i, (length, n) in enumerate(shapes)]


@cache
def alone(model: BoundModel, length: int, seed: int, n: int) -> tuple[int, ...]:
    return reference(model, prompt_of(length, seed=seed), n)


def run_exactly(server: Server, shapes: list[tuple[int, int]]) -> None:
    """Serve requests together; each must get what it gets alone, whole, and everything must come back."""
    done = finished(server, submitted(server, shapes))
    assert answers(done) == [alone(server.model, length, i, n) for i, (length, n) in enumerate(shapes)]
    assert [len(each.token_ids) for each in done] == [n for _length, n in shapes]
    assert_quiet(server)


# Plans, step by step


def test_plan_of_three_that_come_together(tiny: BoundModel) -> None:
    """Decodes first, then the chunk of the one that runs, then the next in the queue, and never more than 8 tokens."""
    server = engine(tiny, max_batch_tokens=8)
    run_exactly(server, [(3, 4), (10, 2), (5, 2)])
    assert recorded(server).plans == [
        [(0, 3), (1, 5)],
        [(0, 1), (1, 5), (2, 2)],
        [(0, 1), (1, 1), (2, 3)],
        [(0, 1), (2, 1)],
    ]
    assert recorded(server).queues == [[2], [], [], []]


def test_plan_of_one_that_comes_later(tiny: BoundModel) -> None:
    """Whoever decodes goes on while a long prompt is read beside it, in what the decodes leave of the budget."""
    server = engine(tiny, max_batch_tokens=4)
    first = server.submit(prompt_of(2), greedy(6))
    server.step()
    late = server.submit(prompt_of(7, seed=1), greedy(2))
    done = finished(server, [first, late])
    assert answers(done) == [alone(tiny, 2, 0, 6), alone(tiny, 7, 1, 2)]
    assert recorded(server).plans == [
        [(0, 2)],
        [(0, 1), (1, 3)],
        [(0, 1), (1, 3)],
        [(0, 1), (1, 1)],
        [(0, 1), (1, 1)],
        [(0, 1)],
    ]


def test_decodes_go_before_an_older_chunk(tiny: BoundModel) -> None:
    """A decode node that computes a preempted prompt anew does not hold up those whose handoff just came."""
    pool = engine(tiny).pool
    scheduler = Scheduler(pool, NodeConfig(num_pages=40, max_batch_tokens=4))
    older, newer = (Request(number, prompt_of(10), greedy(5)) for number in (0, 1))
    for request, written in ((older, 4), (newer, 9)):
        pool.lend(request.number, 3).written = written
        scheduler.add(request)
    assert scheduler.running == [older, newer] and not scheduler.waiting
    assert scheduler.schedule() == [Scheduled(newer, 1), Scheduled(older, 3)]


def test_several_start_in_one_step(tiny: BoundModel) -> None:
    """A new prompt of exactly the rest of the budget starts whole; the next one waits for a step."""
    server = engine(tiny, max_batch_tokens=9)
    run_exactly(server, [(4, 1), (3, 1), (2, 1), (1, 1)])
    assert recorded(server).plans == [[(0, 4), (1, 3), (2, 2)], [(3, 1)]]


def test_at_most_max_batch_size_run(tiny: BoundModel) -> None:
    server = engine(tiny, max_batch_size=2)
    run_exactly(server, [(3, 2), (3, 3), (3, 2)])
    assert recorded(server).plans == [[(0, 3), (1, 3)], [(0, 1), (1, 1)], [(1, 1), (2, 3)], [(2, 1)]]


def test_a_place_that_is_free_is_taken_in_the_same_step(tiny: BoundModel) -> None:
    """A request that ends in its first step leaves room for the next at once in the following one."""
    server = engine(tiny, max_batch_size=1)
    run_exactly(server, [(3, 1), (2, 1), (5, 2)])
    assert recorded(server).plans == [[(0, 3)], [(1, 2)], [(2, 5)], [(2, 1)]]


def test_the_head_of_the_queue_is_not_jumped(tiny: BoundModel) -> None:
    """The first in the queue finds no room; the second would, and waits all the same."""
    server = engine(tiny, num_pages=6)
    run_exactly(server, [(13, 3), (12, 2), (1, 1)])
    assert recorded(server).plans == [[(0, 13)], [(0, 1)], [(0, 1)], [(1, 12), (2, 1)], [(1, 1)]]
    assert recorded(server).queues[:3] == [[1, 2]] * 3


@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
@pytest.mark.parametrize("chunk", [1, 3, 4, 8, 12])
@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 12, 13])
def test_chunks_and_pages_of_one_prompt(tiny: BoundModel, length: int, chunk: int, page_size: int) -> None:
    """ceil(N / chunk) steps read a prompt of N tokens, and it holds ceil(written / P) pages after each of them."""
    server = engine(tiny, page_size=page_size, num_pages=-(-16 // page_size), max_batch_tokens=chunk)
    number = server.submit(prompt_of(length), greedy(2))
    (done,) = finished(server, [number])
    chunks = [chunk] * (length // chunk) + ([length % chunk] if length % chunk else [])
    assert len(chunks) == -(-length // chunk)
    assert recorded(server).plans == [[(0, share)] for share in [*chunks, 1]]
    written = [sum(chunks[: i + 1]) for i in range(len(chunks))] + [length + 1]
    assert recorded(server).pages == [{0: -(-tokens // page_size)} for tokens in written]
    assert server.stats().nodes[0].steps == len(chunks) + 1
    assert server.stats().nodes[0].tokens == length + 1
    assert answers([done]) == [alone(tiny, length, 0, 2)]


@pytest.mark.parametrize("length", [4, 8])
def test_no_page_is_lent_before_it_is_needed(tiny: BoundModel, length: int) -> None:
    """A prompt that ends with a page takes the next page in the step that writes to it, not before; the last token
    of an answer is never written, so it takes none."""
    server = engine(tiny)
    run_exactly(server, [(length, 1), (length, 2)])
    pages = length // 4
    assert recorded(server).pages == [{0: pages, 1: pages}, {1: pages + 1}]


@pytest.mark.parametrize("split", [False, True], ids=["engine", "cluster"])
@pytest.mark.parametrize("budget", [1, 2, 3, 5])
def test_budget_smaller_than_the_batch(tiny: BoundModel, budget: int, split: bool) -> None:
    """Five requests share a step of 1, 2, 3 or 5 tokens: all end, and the budget is never exceeded.

    https://github.com/vllm-project/vllm/issues/276
    """
    shapes = [(3, 4), (9, 3), (1, 5), (4, 2), (6, 4)]
    limits = {"num_pages": 40, "max_batch_tokens": budget}
    server: Server
    if split:
        node = NodeConfig(**limits)
        server = Cluster(tiny, prefill=node, decode=node, page_size=4, scheduler=Recorded)
    else:
        server = engine(tiny, **limits)
    run_exactly(server, shapes)
    for node_ in server.nodes:
        schedule: Any = node_.scheduler
        assert all(sum(tokens for _number, tokens in plan) <= budget for plan in schedule.plans)
        assert all(len({number for number, _tokens in plan}) == len(plan) for plan in schedule.plans)
    computed = sum(length + n - 1 for length, n in shapes)
    assert sum(node.tokens for node in server.stats().nodes) == computed
    if budget == 1 and not split:
        assert len(recorded(server).plans) == computed


# Preemption


def test_preemption_step_by_step(tiny: BoundModel) -> None:
    """Four pages, two prompts of six tokens: at the ninth token the later one gives way, waits in front, and is read
    again with all that it had said. The third, which came last, stays behind it though it would fit."""
    server = engine(tiny, num_pages=4)
    run_exactly(server, [(6, 8), (6, 8), (2, 2)])
    both: Shares = [(0, 1), (1, 1)]
    assert recorded(server).plans == [
        [(0, 6), (1, 6)],
        both,
        both,
        [(0, 1)],
        *[[(0, 1)]] * 4,
        [(1, 9), (2, 2)],
        [*both[1:], (2, 1)],
        *[both[1:]] * 3,
    ]
    assert recorded(server).queues == [[2]] * 3 + [[1, 2]] * 5 + [[]] * 5
    assert recorded(server).evicted == [[]] * 3 + [[1]] + [[]] * 9
    events = [event for event in server.trace if isinstance(event, Preempt)]
    assert events == [Preempt(4, "engine", 1, 8)]


def test_the_last_admitted_gives_way_first(tiny: BoundModel) -> None:
    """Three grow at once: the third gives way, then the second; the queue has them in the order in which they came."""
    server = engine(tiny, page_size=1, num_pages=12)
    run_exactly(server, [(3, 9), (3, 9), (3, 9), (4, 1)])
    gone = [number for step in recorded(server).evicted for number in step]
    assert gone[:2] == [2, 1]
    step = next(i for i, evicted in enumerate(recorded(server).evicted) if evicted == [1])
    assert recorded(server).queues[step] == [1, 2, 3]


def test_whoever_must_give_way_to_itself_waits(tiny: BoundModel) -> None:
    """The last admitted asks for a page and nobody came after it: it gives way itself, and the older ones go on."""
    server = engine(tiny, page_size=2, num_pages=5)
    run_exactly(server, [(4, 3), (4, 5)])
    assert recorded(server).plans[1] == [(0, 1)] and recorded(server).evicted[1] == [1]
    assert recorded(server).queues[1] == [1]


def test_a_share_that_was_planned_is_taken_back(tiny: BoundModel) -> None:
    """Whoever gives way after its decode was planned is not computed in that step.

    The older one has a chunk to read, so its turn comes after the decodes; here it needs the pages of one of them.
    """
    pool = engine(tiny, num_pages=5).pool
    scheduler = Scheduler(pool, NodeConfig(num_pages=5, max_batch_tokens=64))
    older, newer = Request(0, prompt_of(16), greedy(4)), Request(1, prompt_of(7), greedy(4))
    for request, pages, written in ((older, 2, 8), (newer, 2, 6)):
        pool.lend(request.number, pages).written = written
        scheduler.add(request)
    assert scheduler.schedule() == [Scheduled(older, 8)]
    assert list(scheduler.waiting.values()) == [newer] and 1 not in pool.tables
    assert scheduler.num_preemptions == 1


@pytest.mark.parametrize(
    ("page_size", "pages", "budget", "shapes", "victim", "times"),
    [
        (2, 7, 8, [(4, 9), (8, 5)], 1, 1),
        (4, 9, 64, [(4, 3), (8, 2), (7, 8), (1, 9), (5, 5)], 4, 1),
        (4, 5, 3, [(2, 8), (6, 9), (4, 3), (1, 3)], 2, 2),
        (1, 18, 64, [(4, 8), (1, 9), (6, 5)], 2, 2),
        (3, 7, 64, [(6, 8), (2, 3), (6, 9), (2, 6), (4, 9)], 3, 3),
    ],
)
def test_preempted_and_still_right(
    tiny: BoundModel,
    page_size: int,
    pages: int,
    budget: int,
    shapes: list[tuple[int, int]],
    victim: int,
    times: int,
) -> None:
    """1, 2 and 3 preemptions of one request: the same tokens, as many as asked for, none twice, and every one once.

    https://github.com/vllm-project/vllm/issues/16832
    """
    server = engine(tiny, page_size=page_size, num_pages=pages, max_batch_tokens=budget)
    run_exactly(server, shapes)
    counts = Counter(event.request for event in server.trace if isinstance(event, Preempt))
    assert counts[victim] == times
    assert server.stats().nodes[0].preemptions == counts.total()


shapes_of = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), min_size=2, max_size=6)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(shapes=shapes_of, page_size=st.integers(1, 4), slack=st.integers(0, 6), budget=st.sampled_from([1, 3, 8, 64]))
def test_order_of_any_run(shapes: list[tuple[int, int]], page_size: int, slack: int, budget: int) -> None:
    """Rules of every schedule: first come first served; the oldest is never preempted; in a step that preempts nobody
    joins, and those that gave way stand in front, oldest first; exactly the last to join give way."""
    pages = pages_needed(max(length + n for length, n in shapes), page_size) + slack
    server = engine(_model(), page_size=page_size, num_pages=pages, max_batch_tokens=budget)
    run_exactly(server, shapes)
    seen = recorded(server)
    first = list(dict.fromkeys(number for plan in seen.plans for number, _tokens in plan))
    assert first == sorted(first) and len(first) == len(shapes)
    for plan, before, gone, queue in zip(seen.plans, seen.before, seen.evicted, seen.queues, strict=True):
        assert sum(tokens for _number, tokens in plan) <= budget
        assert queue == sorted(queue), "numbers are given in the order of arrival"
        if gone:
            assert before[0] not in gone, "the oldest"
            assert gone == before[: -len(gone) - 1 : -1], "the last to join"
            assert {number for number, _tokens in plan} <= set(before) - set(gone)
            assert queue[: len(gone)] == gone[::-1]


@cache
def _model() -> BoundModel:
    from minikv import load_model

    return load_model("tiny-random")


# No starvation


def test_a_long_prompt_is_not_jumped_by_a_stream_of_short_ones(tiny: BoundModel) -> None:
    """A prompt that needs the whole pool waits for those before it and for nobody else, however many come after."""
    server = engine(tiny, num_pages=8)
    numbers = [server.submit(prompt_of(3), greedy(5))]
    long = server.submit(prompt_of(29, seed=1), greedy(3))
    for seed in range(2, 12):
        numbers.append(server.submit(prompt_of(2, seed=seed), greedy(2)))
        server.step()
        server.check()
    plans = recorded(server).plans
    assert plans[:8] == [[(0, 3)], *[[(0, 1)]] * 4, [(long, 29)], [(long, 1)], [(long, 1)]]
    assert server.requests[long].finished, "in its eighth step, though the stream goes on"
    done = finished(server, [long, *numbers])
    assert answers(done[:2]) == [alone(tiny, 29, 1, 3), alone(tiny, 3, 0, 5)]
    assert_quiet(server)


def test_the_oldest_ends_in_time_however_many_come_after(tiny: BoundModel) -> None:
    """It is never preempted and decodes in every step: with new arrivals in each of them, N tokens take N steps."""
    server = engine(tiny, page_size=1, num_pages=20, max_batch_tokens=6)
    oldest = server.submit(prompt_of(4), greedy(14))
    for seed in range(1, 15):
        server.submit(prompt_of(5, seed=seed), greedy(6))
        server.step()
        server.check()
    assert server.requests[oldest].finished
    assert answers([server.result(oldest)]) == [alone(tiny, 4, 0, 14)]
    events = [event.request for event in server.trace if isinstance(event, Preempt)]
    assert events and oldest not in events


@pytest.mark.parametrize("page_size", [1, 3, 4])
@pytest.mark.parametrize("split", [False, True], ids=["engine", "cluster"])
@pytest.mark.parametrize("answer", [1, 2, 9])
def test_whoever_fits_alone_is_finished(tiny: BoundModel, answer: int, split: bool, page_size: int) -> None:
    """Prompt and answer take every slot of the pool, the last token none: it is served among others that want room.

    https://github.com/vllm-project/vllm/issues/39734
    """
    pages = 12 // page_size
    shape = (12 + 1 - answer, answer)
    options: dict[str, Any] = {"page_size": page_size, "context_length": 13, "allow_context_above_pool": True}
    server: Server
    if split:
        server = Cluster(tiny, prefill=NodeConfig(num_pages=pages), decode=NodeConfig(num_pages=pages), **options)
    else:
        server = Engine(tiny, num_pages=pages, **options)
    run_exactly(server, [shape])
    run_exactly(server, [shape, (2, 4), shape, (5, 8), shape])


def test_decode_node_computes_its_preempted_anew(tiny: BoundModel) -> None:
    """The decode pool runs dry: who gives way is read again there, not on the prefill node, and says the same."""
    shapes = [(6, 8), (5, 9), (7, 7), (3, 9)]
    server = Cluster(
        tiny, prefill=NodeConfig(num_pages=40), decode=NodeConfig(num_pages=5), page_size=3, scheduler=Recorded
    )
    run_exactly(server, shapes)
    prefill, decode = server.stats().nodes
    events = [event for event in server.trace if isinstance(event, Preempt)]
    assert {event.node for event in events} == {"decode"} and len(events) == decode.preemptions >= 2
    assert prefill.preemptions == 0 and prefill.tokens == sum(length for length, _n in shapes)
    again = sum(event.written for event in events)
    assert decode.tokens == sum(n - 1 for _length, n in shapes) + again, "what was lost is computed once more, there"


def test_decode_node_recomputes_in_chunks(tiny: BoundModel) -> None:
    """A budget of two tokens on the decode node: a preempted request is read again two tokens a step."""
    decode = NodeConfig(num_pages=5, max_batch_tokens=2)
    server = Cluster(tiny, prefill=NodeConfig(num_pages=40), decode=decode, page_size=3, scheduler=Recorded)
    run_exactly(server, [(6, 8), (5, 9), (7, 7)])
    seen: Any = server.decode.scheduler
    assert server.stats().nodes[1].preemptions >= 1
    assert any(tokens == 2 for plan in seen.plans for _number, tokens in plan)
    assert all(sum(tokens for _number, tokens in plan) <= 2 for plan in seen.plans)


def test_whoever_gets_no_pages_though_nobody_holds_any_is_told(tiny: BoundModel) -> None:
    """Past the door comes a request that no pool can hold: the rule is named, and nobody waits for ever."""
    pool = engine(tiny, num_pages=2).pool
    scheduler = Scheduler(pool, NodeConfig(num_pages=2))
    scheduler.add(Request(7, prompt_of(9), greedy(1)))
    with pytest.raises(BrokenRule, match="whoever the door lets in is served: request 7 ") as caught:
        scheduler.schedule()
    assert caught.value.request == 7


# What planning costs


def crowd(scheduler: Scheduler, first: int, count: int) -> None:
    params = SamplingParams(max_tokens=4)
    for number in range(first, first + count):
        scheduler.add(Request(number, (1, 2, 3), params))


def batch_is_full(model: BoundModel, count: int) -> Scheduler:
    """Four run and decode, and no more may."""
    pool = engine(model).pool
    scheduler = Scheduler(pool, NodeConfig(num_pages=40, max_batch_size=4))
    for number in range(4):
        pool.lend(number, 1).written = 2
        scheduler.add(Request(number, (1, 2, 3), greedy(4)))
    crowd(scheduler, 4, count)
    return scheduler


def pool_is_full(model: BoundModel, count: int) -> Scheduler:
    """Four run and hold all pages."""
    pool = engine(model, num_pages=4).pool
    scheduler = Scheduler(pool, NodeConfig(num_pages=4))
    for number in range(4):
        pool.lend(number, 1).written = 2
        scheduler.add(Request(number, (1, 2, 3), greedy(4)))
    crowd(scheduler, 4, count)
    return scheduler


@pytest.mark.parametrize("full", [batch_is_full, pool_is_full])
def test_cost_of_a_plan_does_not_grow_with_the_queue(
    tiny: BoundModel, full: Callable[[BoundModel, int], Scheduler]
) -> None:
    """1 or 10,000 wait: the same plan in about the same time (best of several, under three times)."""
    short, long = full(tiny, 1), full(tiny, 10_000)
    assert [share.num_scheduled_tokens for share in short.schedule()] == [1] * 4
    assert [share.num_scheduled_tokens for share in long.schedule()] == [1] * 4

    def seconds(scheduler: Scheduler) -> float:
        started = time.perf_counter()
        for _ in range(50):
            scheduler.schedule()
        return time.perf_counter() - started

    pairs = [(seconds(short), seconds(long)) for _ in range(15)]
    assert min(b for _a, b in pairs) < 3 * min(a for a, _b in pairs)


class Counted(OrderedDict[int, Request]):
    """Counts how many of its entries are looked at one after the other."""

    looked = 0

    def __iter__(self) -> Iterator[int]:
        for key in super().__iter__():
            self.looked += 1
            yield key

    def keys(self) -> Any:
        return iter(self)

    def values(self) -> Any:
        return (self[key] for key in self)

    def items(self) -> Any:
        return ((key, self[key]) for key in self)


@pytest.mark.parametrize("split", [False, True], ids=["engine", "cluster"])
def test_a_step_looks_at_none_that_wait(tiny: BoundModel, split: bool) -> None:
    """Counted and not timed: whole steps with preemptions beside 300 that wait look at one of them or two a step."""
    node = NodeConfig(num_pages=4, max_batch_size=2)
    server: Server
    if split:
        server = Cluster(tiny, prefill=node, decode=node, page_size=4)
    else:
        server = Engine(tiny, num_pages=4, max_batch_size=2, page_size=4)
    queues = []
    for each in server.nodes:
        scheduler: Any = each.scheduler
        scheduler.waiting = Counted()
        queues.append(scheduler.waiting)
    submitted(server, [(6, 8), (6, 8)])
    others = [server.submit([1, 2, 3], greedy(2)) for _ in range(300)]
    for steps in range(1, 21):
        server.step()
        assert sum(queue.looked for queue in queues) <= 4 * steps
    assert sum(node.preemptions for node in server.stats().nodes) > 0
    for number in others:
        server.forget(number)
    assert_quiet(server)


@pytest.mark.parametrize("split", [False, True], ids=["engine", "cluster"])
def test_abort_costs_the_same_in_any_queue(tiny: BoundModel, split: bool) -> None:
    """200 of those in the middle leave, whether 500 wait or 10,000."""

    def seconds(length: int) -> float:
        server: Server
        if split:
            node = NodeConfig(num_pages=4)
            server = Cluster(tiny, prefill=node, decode=node)
        else:
            server = Engine(tiny, num_pages=4)
        numbers = [server.submit([1, 2], PARAMS) for _ in range(length)]
        middle = numbers[length // 2 :][:200]
        started = time.perf_counter()
        for number in middle:
            server.abort(number)
        took = time.perf_counter() - started
        assert len(server.nodes[0].scheduler.waiting) == length - 200
        assert all(server.result(number).finish_reason == "abort" for number in middle)
        assert all(pool.num_free == 4 for pool in pools(server))
        return took

    short = min(seconds(500) for _ in range(5))
    assert min(seconds(10_000) for _ in range(2)) < 5 * short


PARAMS = SamplingParams(max_tokens=2)


def test_an_aborted_one_in_the_queue_does_not_hold_up_the_rest(tiny: BoundModel) -> None:
    """The head of the queue leaves; the next one is its head, and the step after serves it."""
    server = engine(tiny, num_pages=4)
    running, head, last = submitted(server, [(10, 3), (12, 1), (2, 1)])
    server.step()
    server.abort(head)
    server.step()
    assert recorded(server).plans == [[(running, 10)], [(running, 1), (last, 2)]]
    done = finished(server, [running, head, last])
    assert [each.finish_reason for each in done] == ["length", "abort", "length"]
    assert answers([done[0], done[2]]) == [alone(tiny, 10, 0, 3), alone(tiny, 2, 2, 1)]
    assert_quiet(server)


def test_a_preempted_one_that_is_aborted_in_the_queue_keeps_what_it_said(tiny: BoundModel) -> None:
    server = engine(tiny, num_pages=4)
    first, second = submitted(server, [(6, 8), (6, 8)])
    for _ in range(4):
        server.step()
    assert list(server.node.scheduler.waiting) == [second]
    server.abort(second)
    server.check()
    done = finished(server, [first, second])
    assert answers(done[:1]) == [alone(tiny, 6, 0, 8)]
    assert done[1].finish_reason == "abort" and done[1].token_ids == alone(tiny, 6, 1, 8)[:3]
    assert_quiet(server)
