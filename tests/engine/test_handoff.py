"""From one node to the other: a handoff is complete or it is nothing, whenever and however it goes wrong."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from helpers import answers, assert_quiet, cluster, finished, greedy, pools, prompt_of, reference, served

from minikv import Cluster, Completion, NodeConfig, load_model
from minikv.attention import torch_backend
from minikv.disagg.handoff import Contract, Handoff, digest_of, pack, verify
from minikv.disagg.nodes import PrefillNode
from minikv.errors import BrokenRule, EngineFailed, HandoffRefused, MinikvError, RequestAborted
from minikv.memory import PagePool, PageTable, SlotRecords, pages_needed
from minikv.models.adapter import BoundModel
from minikv.models.geometry import KVGeometry, LayerGeometry
from minikv.scheduling.request import Request
from minikv.trace import Allocate, Finish, HandoffDone, Preempt

PAGE = 4


def unequal(model: BoundModel, prefill: int, decode: int, **settings: Any) -> Cluster:
    return Cluster(
        model, prefill=NodeConfig(num_pages=prefill), decode=NodeConfig(num_pages=decode), page_size=PAGE, **settings
    )


def two_nodes(model: BoundModel, pages: int = 24, **settings: Any) -> Cluster:
    return cluster(model, pages, **{"page_size": PAGE} | settings)


@cache
def right(length: int, seed: int, tokens: int) -> tuple[int, ...]:
    """What `transformers` answers to `prompt_of(length, seed)` with the model of these tests."""
    return reference(load_model("tiny-random"), prompt_of(length, seed), tokens)


def submitted(server: Cluster, jobs: Sequence[tuple[int, int, int]]) -> list[int]:
    """Requests of (length, seed, tokens)."""
    return [server.submit(prompt_of(length, seed), greedy(tokens)) for length, seed, tokens in jobs]


def ends_of(server: Cluster, number: int) -> list[str]:
    """The final answers that a request got, according to the trace."""
    return [event.reason for event in server.trace if isinstance(event, Finish) and event.request == number]


def assert_aborted(server: Cluster, number: int) -> Completion:
    """One answer, and it says so."""
    done = server.result(number)
    assert (done.finish_reason, done.status) == ("abort", 499), done.error
    assert isinstance(done.error, RequestAborted) and ends_of(server, number) == ["abort"]
    return done


def assert_serves(server: Cluster) -> None:
    """The next request is handed over and gets the right answer, and nothing is left behind."""
    assert answers(server.generate([prompt_of(6, 99)], greedy(4))) == [right(6, 99, 4)]
    assert_quiet(server)


# Room on the other side


@pytest.mark.parametrize("settings", [{}, {"ledger": False}], ids=["ledger", "no-ledger"])
@pytest.mark.parametrize("budget", [3, 8192])
def test_full_decode_pool_makes_handoffs_wait(tiny: BoundModel, budget: int, settings: dict[str, Any]) -> None:
    """Room for one request at a time behind a prefill node with room for many: all are served, in order."""
    server = Cluster(
        tiny, prefill=NodeConfig(num_pages=40, max_batch_tokens=budget), decode=NodeConfig(num_pages=5),
        page_size=PAGE, **settings,
    )  # fmt: skip
    jobs = [(10, seed, 9) for seed in range(7)]
    numbers = submitted(server, jobs)
    most_between = 0
    while any(not server.requests[number].answered for number in numbers):
        server.step()
        server.check()
        most_between = max(most_between, len(server.between))
        assert len(server.decode.pool.tables) <= 1
    assert most_between >= 2
    assert answers(map(server.result, numbers)) == [right(*job) for job in jobs]
    assert [event.request for event in server.trace if isinstance(event, Finish)] == numbers
    assert [event.request for event in server.trace if isinstance(event, HandoffDone)] == numbers
    assert_quiet(server)


def test_a_stream_says_nothing_before_the_handoff_is_taken(tiny: BoundModel) -> None:
    """Complete or nothing, before the first token: also for who reads along, waiting, refused or aborted."""
    server = unequal(tiny, 40, 6)
    first = submitted(server, [(12, 0, 8)])
    stream = server.stream(prompt_of(12, 1), greedy(8))
    piece = next(stream)
    assert server.requests[first[0]].answered and piece.request_id in server.decode.pool.tables
    assert piece.token_ids == tuple(right(12, 1, 8)[: len(piece.token_ids)])
    stream.close()

    class Refusing(Contract):
        def verify(self, *arguments: Any, **more: Any) -> None:
            raise HandoffRefused("not today")

    with pytest.raises(HandoffRefused, match="not today"):
        next(two_nodes(tiny, handoff=Refusing).stream(prompt_of(6, 2), greedy(4)))

    server = unequal(tiny, 40, 6)
    submitted(server, [(12, 0, 8)])
    number = server.submit(prompt_of(12, 1), greedy(8))
    server.step()
    assert server.requests[number].output_ids and not server.may_read(server.requests[number])
    server.abort(number)
    assert not server.may_read(server.requests[number])


def test_small_request_does_not_overtake_a_waiting_handoff(tiny: BoundModel) -> None:
    """First come first served: the third would find room on the decode node, and the second waits for it."""
    server = unequal(tiny, 40, 6)
    jobs = [(12, 0, 8), (12, 1, 8), (2, 2, 3)]
    numbers = submitted(server, jobs)
    server.step()
    assert [request.number for request in server.between] == numbers[1:]
    assert server.decode.pool.num_free >= 1, "the third has room"
    assert answers(finished(server, numbers)) == [right(*job) for job in jobs]
    assert [event.request for event in server.trace if isinstance(event, HandoffDone)] == numbers


@pytest.mark.parametrize("settings", [{}, {"ledger": False}], ids=["ledger", "no-ledger"])
def test_decode_batch_of_one(tiny: BoundModel, settings: dict[str, Any]) -> None:
    """A full batch is as a full pool: handoffs wait, and nobody holds decode pages in vain."""
    server = Cluster(
        tiny, prefill=NodeConfig(num_pages=40), decode=NodeConfig(num_pages=40, max_batch_size=1), page_size=PAGE,
        **settings,
    )  # fmt: skip
    jobs = [(5 + seed, seed, 6) for seed in range(4)]
    numbers = submitted(server, jobs)
    server.step()
    assert len(server.decode.pool.tables) == 1 and len(server.between) == 3
    assert list(server.prefill.pool.tables) == numbers[1:], "who was handed over holds nothing on the prefill node"
    assert answers(finished(server, numbers)) == [right(*job) for job in jobs]
    assert_quiet(server)


@pytest.mark.parametrize("settings", [{}, {"ledger": False}], ids=["ledger", "no-ledger"])
@pytest.mark.parametrize("budget", [1, 3, 8192])
@pytest.mark.parametrize("length", [PAGE - 1, PAGE, PAGE + 1, 2 * PAGE])
@pytest.mark.parametrize("tokens", [1, 2, PAGE + 2])
def test_nobody_computes_twice(
    tiny: BoundModel, tokens: int, length: int, budget: int, settings: dict[str, Any]
) -> None:
    """https://github.com/vllm-project/vllm/issues/17808 and https://github.com/vllm-project/vllm/issues/52617.

    Token for token what one node answers; and the prefill node computes the prompt, the decode node what follows,
    each once. A handoff that decode did not use would show in its count.
    """
    sizes = NodeConfig(num_pages=8, max_batch_tokens=budget)
    server = Cluster(tiny, prefill=sizes, decode=sizes, page_size=PAGE, **settings)
    assert answers(served(server, [prompt_of(length, 3)], greedy(tokens))) == [right(length, 3, tokens)]
    prefill, decode = server.stats().nodes
    assert (prefill.tokens, prefill.steps) == (length, -(-length // budget))
    assert (decode.tokens, decode.steps) == (tokens - 1, tokens - 1)
    handoffs = [event for event in server.trace if isinstance(event, HandoffDone)]
    assert [(each.expected, each.promised, each.received) for each in handoffs] == [(length,) * 3] * (tokens > 1)
    assert_quiet(server)


@pytest.mark.parametrize("settings", [{}, {"ledger": False}], ids=["ledger", "no-ledger"])
def test_handoffs_go_on_while_a_long_prompt_is_read(tiny: BoundModel, settings: dict[str, Any]) -> None:
    """A prompt of many chunks, and short ones that are handed over between its chunks."""
    server = Cluster(
        tiny, prefill=NodeConfig(num_pages=20, max_batch_tokens=5), decode=NodeConfig(num_pages=20), page_size=PAGE,
        **settings,
    )  # fmt: skip
    long = (32, 0, 5)
    jobs = [(2, seed, 12) for seed in range(1, 4)] + [long]
    numbers = submitted(server, jobs)
    seen_together = 0
    while any(not server.requests[number].answered for number in numbers):
        server.step()
        server.check()
        chunked = server.prefill.pool.tables.get(numbers[3])
        seen_together += chunked is not None and 0 < chunked.written < 32 and len(server.decode.scheduler.running) > 0
    assert seen_together >= 5
    assert answers(map(server.result, numbers)) == [right(*job) for job in jobs]
    assert server.stats().nodes[0].tokens == 32 + 3 * 2
    assert_quiet(server)


def test_decode_reads_only_the_handoff(tiny: BoundModel) -> None:
    """A fresh decode pool full of NaN changes nothing: decode reads what came and what it writes."""
    server = unequal(tiny, 8, 30)
    server.decode.pool.fill_unwritten(float("nan"))
    assert answers(served(server, [prompt_of(18)], greedy(12))) == [right(18, 0, 12)]


# Preemption behind a handoff


def preempting(model: BoundModel, **settings: Any) -> tuple[Cluster, list[tuple[int, int, int]]]:
    """Two prompts that just fit in the decode pool: the second gives way at once, before its first decode step."""
    return unequal(model, 20, 4, **settings), [(8, 0, 8), (7, 1, 8), (5, 2, 4)]


@pytest.mark.parametrize("settings", [{}, {"ledger": False}], ids=["ledger", "no-ledger"])
def test_preempted_right_after_its_handoff(tiny: BoundModel, settings: dict[str, Any]) -> None:
    """Decode computes it anew in its own pool; prefill is not asked again, and its order is kept."""
    server, jobs = preempting(tiny, **settings)
    numbers = submitted(server, jobs)
    assert answers(finished(server, numbers)) == [right(*job) for job in jobs]
    events = [event for event in server.trace if isinstance(event, (HandoffDone, Preempt))]
    first = events.index(next(event for event in events if isinstance(event, Preempt)))
    assert isinstance(events[first - 1], HandoffDone) and events[first - 1].step == events[first].step
    assert events[first].request == events[first - 1].request == numbers[1]  # type: ignore[union-attr]
    assert {event.node for event in events if isinstance(event, Preempt)} == {"decode"}
    assert [event.request for event in events if isinstance(event, HandoffDone)] == numbers, "each is sent once"
    assert server.stats().nodes[0].tokens == 8 + 7 + 5
    assert [event.request for event in server.trace if isinstance(event, Finish)] == numbers
    assert_quiet(server)


@pytest.mark.parametrize("settings", [{}, {"ledger": False}], ids=["ledger", "no-ledger"])
def test_abort_of_a_preempted_request(tiny: BoundModel, settings: dict[str, Any]) -> None:
    """It holds nothing and waits on the decode node: one answer, with the tokens that it had."""
    server, jobs = preempting(tiny, **settings)
    numbers = submitted(server, jobs)
    server.step()
    assert numbers[1] in server.decode.scheduler.waiting  # type: ignore[operator]
    server.abort(numbers[1])
    server.check()
    done = assert_aborted(server, numbers[1])
    assert done.token_ids == right(*jobs[1])[: len(done.token_ids)] and done.token_ids
    others = [numbers[0], numbers[2]]
    assert answers(finished(server, others)) == [right(*jobs[0]), right(*jobs[2])]
    assert_serves(server)


# Aborts


def waiting_for_decode(model: BoundModel, **settings: Any) -> tuple[Cluster, list[int]]:
    """Two prompts are done, and the decode pool holds one of them."""
    server = unequal(model, 12, 4, **settings)
    numbers = submitted(server, [(9, 0, 7), (9, 1, 7)])
    server.step()
    assert numbers[1] in server.prefill.pool.tables and numbers[1] not in server.decode.pool.tables
    return server, numbers


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("settings", [{}, {"ledger": False}], ids=["ledger", "no-ledger"])
def test_abort_before_a_handoff(tiny: BoundModel, which: int, settings: dict[str, Any]) -> None:
    """Of the one that waits between the nodes, and of the one that it waits for."""
    server, numbers = waiting_for_decode(tiny, **settings)
    server.abort(numbers[which])
    server.check()
    server.abort(numbers[which])  # the second time nothing happens
    assert not any(numbers[which] in pool.tables for pool in pools(server))
    assert_aborted(server, numbers[which])
    other = 1 - which
    assert answers(finished(server, [numbers[other]])) == [right(9, other, 7)]
    assert_serves(server)


class Around(Contract):
    """The right contract; a test may have something done around its two sides, or to what is sent."""

    def __init__(self) -> None:
        self.acts: dict[str, Callable[[int], None]] = {}
        self.change: Callable[[Handoff], Handoff] = lambda handoff: handoff

    def _at(self, point: str, number: int) -> None:
        if act := self.acts.get(point):
            act(number)

    def pack(self, pool: PagePool, table: PageTable, first_token: int) -> Handoff:  # type: ignore[override]
        self._at("before pack", table.owner)
        handoff = pack(pool, table, first_token)
        self._at("after pack", table.owner)
        return self.change(handoff)

    def verify(self, handoff: Handoff, pool: PagePool, *, request: int, expected_tokens: int) -> None:  # type: ignore[override]
        self._at("before verify", request)
        verify(handoff, pool, request=request, expected_tokens=expected_tokens)
        self._at("after verify", request)


POINTS = ("before reserve", "after reserve", "before pack", "after pack", "before verify", "after verify", "after")


def hooked(model: BoundModel, point: str, act: Callable[[Cluster, int], None], **settings: Any) -> Cluster:
    """A cluster in which something happens once, at one point of the handoff of request 1."""
    around = Around()
    server = two_nodes(model, handoff=lambda: around, **settings)
    happened: list[int] = []

    def once(number: int) -> None:
        if number == 1 and not happened:
            happened.append(number)
            act(server, number)

    reserve, receive = server.decode.reserve, server.decode.receive
    around.acts = dict.fromkeys(POINTS, lambda _number: None) | {point: once}

    def reserving(request: Request) -> bool:
        around.acts["before reserve"](request.number)
        room = reserve(request)
        around.acts["after reserve"](request.number)
        return room

    def receiving(request: Request, handoff: Handoff) -> None:
        receive(request, handoff)
        around.acts["after"](request.number)

    server.decode.reserve, server.decode.receive = reserving, receiving  # type: ignore[method-assign]
    return server


@pytest.mark.parametrize("settings", [{}, {"ledger": False}], ids=["ledger", "no-ledger"])
@pytest.mark.parametrize("point", POINTS)
def test_abort_from_within_a_handoff(tiny: BoundModel, point: str, settings: dict[str, Any]) -> None:
    """https://github.com/sgl-project/sglang/issues/33507: the pending abort is not overwritten, by success or error."""
    server = hooked(tiny, point, lambda server, number: server.abort(number), **settings)
    jobs = [(9, seed, 6) for seed in range(3)]
    numbers = submitted(server, jobs)
    server.step()
    server.check()
    assert not any(numbers[1] in pool.tables for pool in pools(server))
    done = assert_aborted(server, numbers[1])
    assert done.token_ids == right(*jobs[1])[: len(done.token_ids)]
    assert answers(finished(server, [numbers[0], numbers[2]])) == [right(*jobs[0]), right(*jobs[2])]
    assert_serves(server)


@pytest.mark.parametrize("tokens", [2, 6])
@pytest.mark.parametrize("point", POINTS)
def test_abort_by_another_thread_within_a_handoff(tiny: BoundModel, point: str, tokens: int) -> None:
    """It waits for the step to end; whoever has its last token by then keeps its answer."""
    threads: list[threading.Thread] = []

    def act(server: Cluster, number: int) -> None:
        threads.append(threading.Thread(target=server.abort, args=(number,)))
        threads[0].start()
        threads[0].join(0.02)
        assert threads[0].is_alive(), "an abort came through in the middle of a step"

    server = hooked(tiny, point, act)
    numbers = submitted(server, [(9, seed, tokens) for seed in range(3)])
    server.step()
    threads[0].join(10)
    assert not threads[0].is_alive()
    server.check()
    if tokens == 2:
        assert answers([server.result(numbers[1])]) == [right(9, 1, 2)]
    else:
        assert assert_aborted(server, numbers[1]).token_ids == right(9, 1, 6)[:2]
    assert answers(finished(server, [numbers[0], numbers[2]])) == [right(9, 0, tokens), right(9, 2, tokens)]
    assert_serves(server)


class At:
    """The plain attention; before its call `at`, counted from 1, something is done."""

    def __init__(self, at: int, act: Callable[[torch.Tensor], None]) -> None:
        self.calls, self.at, self.act = 0, at, act

    def __call__(self, query: torch.Tensor, keys: torch.Tensor, *rest: Any) -> torch.Tensor:
        self.calls += 1
        if self.calls == self.at:
            self.act(keys)
        return torch_backend.attend(query, keys, *rest)


@pytest.mark.parametrize(
    "call",
    range(1, 9),
)  # fmt: skip
def test_abort_from_within_either_nodes_step(tiny: BoundModel, call: int) -> None:
    """Two layers: prefill, decode, prefill (while the aborted one runs on the other node), decode."""
    attention = At(call, lambda _keys: server.abort(0))
    server = two_nodes(tiny, attention=attention)
    numbers = submitted(server, [(9, 0, 6), (9, 1, 6)])
    server.step()
    numbers += submitted(server, [(5, 2, 6)])
    server.step()
    assert attention.calls == 8
    server.check()
    done = assert_aborted(server, numbers[0])
    assert done.token_ids == right(9, 0, 6)[: len(done.token_ids)]
    assert answers(finished(server, numbers[1:])) == [right(9, 1, 6), right(5, 2, 6)]
    assert_serves(server)


@pytest.mark.parametrize("settings", [{}, {"ledger": False}], ids=["ledger", "no-ledger"])
def test_aborts_from_another_thread_at_any_time(tiny: BoundModel, settings: dict[str, Any]) -> None:
    """One thread steps, another aborts: every request ends once, with its answer or the abort, never an error."""
    server = Cluster(
        tiny, prefill=NodeConfig(num_pages=12, max_batch_tokens=7), decode=NodeConfig(num_pages=9), page_size=PAGE,
        **settings,
    )  # fmt: skip
    jobs = [(3 + seed % 9, seed, 2 + seed % 7) for seed in range(30)]
    numbers = submitted(server, jobs)
    chosen = random.Random(1).sample(numbers, 15)

    def abort_them() -> None:
        for number in chosen:
            server.abort(number)

    thread = threading.Thread(target=abort_them)
    thread.start()
    done = finished(server, numbers)
    thread.join(10)
    assert not thread.is_alive()
    for job, each in zip(jobs, done, strict=True):
        assert ends_of(server, each.request_id) == [each.finish_reason]
        assert each.token_ids == right(*job)[: len(each.token_ids)]
        assert each.finish_reason == "length" or (each.finish_reason == "abort" and each.request_id in chosen)
    assert_serves(server)


# Late, and twice


@pytest.mark.parametrize("settings", [{}, {"ledger": False}], ids=["ledger", "no-ledger"])
@pytest.mark.parametrize("how", ["abort", "forget"])
def test_late_completion(tiny: BoundModel, how: str, settings: dict[str, Any]) -> None:
    """https://github.com/sgl-project/sglang/issues/24527: A's pages are B's when what was sent for A arrives.

    By hand: decode has reserved for A and the handoff is under way; A goes, B gets the same pages, then it comes.
    """
    server = unequal(tiny, 16, 16, **settings)
    server.decode.config = NodeConfig(num_pages=16, max_batch_size=1)
    blocker, number = submitted(server, [(9, 0, 20), (9, 1, 20)])
    server.step()
    request = server.requests[number]
    server.abort(blocker)
    assert server.decode.reserve(request)
    handoff, table = server.prefill.export(request), server.decode.pool.tables[number]
    getattr(server, how)(number)
    with pytest.raises(HandoffRefused, match="may have come before"):
        server.decode.receive(request, handoff)
    (new,) = submitted(server, [(9, 2, 8)])
    server.step()
    assert server.decode.pool.tables[new].pages[:3] == table.pages
    before = [tensor.clone() for tensor in (*server.decode.pool.keys, *server.decode.pool.values)]
    with pytest.raises(HandoffRefused):
        server.decode.receive(request, handoff)
    with pytest.raises(BrokenRule):  # nor by the back door
        server.decode.pool.import_pages(table, handoff.keys, handoff.values, handoff.records, 9)
    after = (*server.decode.pool.keys, *server.decode.pool.values)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(before, after, strict=True))
    assert answers(finished(server, [new])) == [right(9, 2, 8)]
    assert ends_of(server, number) == ["abort"]
    assert_serves(server)


@pytest.mark.parametrize("settings", [{}, {"ledger": False}], ids=["ledger", "no-ledger"])
@pytest.mark.parametrize("when", ["running", "preempted", "aborted", "finished"])
def test_handoff_delivered_twice(tiny: BoundModel, when: str, settings: dict[str, Any]) -> None:
    """The second is refused, whatever became of the request, and changes nothing."""
    server, jobs = preempting(tiny, **settings)
    kept: dict[int, tuple[Request, Handoff]] = {}
    receive = server.decode.receive

    def keeping(request: Request, handoff: Handoff) -> None:
        kept[request.number] = (request, handoff)
        receive(request, handoff)

    server.decode.receive = keeping  # type: ignore[method-assign]
    numbers = submitted(server, jobs)
    server.step()
    which = 1 if when == "preempted" else 0
    if when == "aborted":
        server.abort(numbers[0])
    if when == "finished":
        answers(finished(server, numbers[:1]))
    assert (numbers[which] in server.decode.pool.tables) == (when == "running")
    before = [tensor.clone() for tensor in (*server.decode.pool.keys, *server.decode.pool.values)]
    with pytest.raises(HandoffRefused, match="may have come before"):
        receive(*kept[numbers[which]])
    after = (*server.decode.pool.keys, *server.decode.pool.values)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(before, after, strict=True))
    server.check()
    left = [index for index in range(3) if index or when in ("running", "preempted")]
    assert answers(finished(server, [numbers[index] for index in left])) == [right(*jobs[index]) for index in left]
    assert_serves(server)


# What is sent


WIDE = KVGeometry(
    (LayerGeometry(kv_heads=2, key_dim=3, value_dim=3), LayerGeometry(kv_heads=2, key_dim=3, value_dim=3))
)


def sent(tokens: int = 6) -> tuple[Handoff, PagePool]:
    """A handoff of a request 1 with random contents, and a pool that it fits."""
    torch.manual_seed(0)
    pool = PagePool(WIDE, 4, PAGE)
    table = pool.lend(1, pages_needed(tokens, PAGE))
    slots = torch.from_numpy(pool.begin_write(table, 0, tokens))
    for layer in range(2):
        pool.store(layer, slots, torch.randn(tokens, 2, 3), torch.randn(tokens, 2, 3))
    return pack(pool, table, 17), PagePool(WIDE, 4, PAGE)


def check(handoff: Handoff, pool: PagePool, tokens: int = 6) -> None:
    verify(handoff, pool, request=1, expected_tokens=tokens)


BITS = {"lowest of the mantissa": 0, "highest of the mantissa": 22, "exponent": 23, "top exponent": 30, "sign": 31}


@pytest.mark.parametrize("bit", BITS.values(), ids=BITS.keys())
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("what", ["keys", "values"])
@pytest.mark.parametrize("slot", range(6))
def test_one_bit(what: str, layer: int, slot: int, bit: int) -> None:
    """Of any kind, in any written slot, head and number of any layer."""
    for head in range(2):
        for number in range(3):
            handoff, pool = sent()
            check(handoff, pool)
            bits = getattr(handoff, what)[layer].view(torch.int32).flatten(0, 1)
            bits[slot, head, number] ^= -(2**31) if bit == 31 else 1 << bit
            with pytest.raises(HandoffRefused, match="digest"):
                check(handoff, pool)


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_sign_of_a_zero(zero: float) -> None:
    """Equal as numbers, and still not what was written."""
    handoff, pool = sent()
    handoff.keys[0][0, 0, 0, 0] = zero
    said = digest_of(1, 6, 17, handoff.keys, handoff.values)
    check(replace(handoff, digest=said), pool)
    handoff.keys[0][0, 0, 0, 0] = -zero
    with pytest.raises(HandoffRefused):
        check(replace(handoff, digest=said), pool)


def test_what_was_never_written_is_not_part_of_it() -> None:
    """Slots past the written ones travel along, and may hold anything."""
    handoff, pool = sent()
    for tensor in (*handoff.keys, *handoff.values):
        tensor[1, 2:] = float("nan")
    check(handoff, pool)


def halves(handoff: Handoff, kind: torch.dtype) -> Handoff:
    keys, values = tuple(k.to(kind) for k in handoff.keys), tuple(v.to(kind) for v in handoff.values)
    return replace(handoff, keys=keys, values=values, digest=digest_of(1, 6, 17, keys, values))


def narrower(handoff: Handoff, axis: int) -> Handoff:
    """One head less, or one number less, everywhere, with a digest that fits."""
    cut = [tuple(t.narrow(axis, 0, t.shape[axis] - 1) for t in each) for each in (handoff.keys, handoff.values)]
    return replace(handoff, keys=cut[0], values=cut[1], digest=digest_of(1, 6, 17, *cut))


def renumbered(handoff: Handoff, **fields: int) -> Handoff:
    """Other numbers, with a digest that fits."""
    changed = replace(handoff, **fields)  # type: ignore[arg-type]
    said = digest_of(changed.request, changed.num_tokens, changed.first_token, changed.keys, changed.values)
    return replace(changed, digest=said)


WRONG: dict[str, Callable[[Handoff], Handoff]] = {
    "digest of nothing": lambda h: replace(h, digest=""),
    "no digest": lambda h: replace(h, digest=None),  # type: ignore[arg-type]
    "digest cut short": lambda h: replace(h, digest=h.digest[:-1]),
    "first token": lambda h: replace(h, first_token=18),
    "request alone": lambda h: replace(h, request=2),
    "another request": lambda h: renumbered(h, request=2),
    "tokens alone": lambda h: replace(h, num_tokens=5),
    "a token less": lambda h: renumbered(h, num_tokens=5),
    "a token more": lambda h: renumbered(h, num_tokens=7),
    "no tokens": lambda h: renumbered(h, num_tokens=0),
    "fewer than none": lambda h: replace(h, num_tokens=-6),
    "swapped layers of keys": lambda h: replace(h, keys=h.keys[::-1]),
    "swapped layers of values": lambda h: replace(h, values=h.values[::-1]),
    "keys for values": lambda h: replace(h, keys=h.values, values=h.keys),
    "one layer twice": lambda h: replace(h, keys=(h.keys[0], h.keys[0])),
    "swapped pages": lambda h: replace(h, keys=tuple(k.flip(0) for k in h.keys)),
    "swapped heads": lambda h: replace(h, values=tuple(v.flip(2) for v in h.values)),
    "last page lost": lambda h: replace(h, keys=tuple(k[:-1] for k in h.keys), values=tuple(v[:-1] for v in h.values)),
    "last page lost in a layer": lambda h: replace(h, keys=(h.keys[0], h.keys[1][:-1])),
    "one page more": lambda h: replace(h, keys=tuple(torch.cat([k, k[:1]]) for k in h.keys)),
    "last layer lost": lambda h: replace(h, keys=h.keys[:-1], values=h.values[:-1]),
    "last layer of values lost": lambda h: replace(h, values=h.values[:-1]),
    "a layer more": lambda h: replace(h, keys=(*h.keys, h.keys[0])),
    "no layers": lambda h: replace(h, keys=(), values=()),
    "whole numbers": lambda h: halves(h, torch.int32),
    "half precision": lambda h: halves(h, torch.float16),
    "brain floats": lambda h: halves(h, torch.bfloat16),
    "double precision": lambda h: halves(h, torch.float64),
    "a head less": lambda h: narrower(h, 2),
    "a number less": lambda h: narrower(h, 3),
    "as slots": lambda h: replace(h, keys=tuple(k.flatten(0, 1) for k in h.keys)),
}  # fmt: skip


@pytest.mark.parametrize("how", WRONG)
def test_altered_payload_is_refused(how: str) -> None:
    """Where a fitting digest can be had, only length, form or identity is wrong."""
    handoff, pool = sent()
    before = [tensor.clone() for tensor in (*pool.keys, *pool.values)]
    with pytest.raises(HandoffRefused):
        check(WRONG[how](handoff), pool)
    assert all(torch.equal(a, b) for a, b in zip(before, (*pool.keys, *pool.values), strict=True))


@pytest.mark.parametrize("keys", [(None, None), None, ([1.0], [2.0]), 5], ids=repr)
def test_payload_that_is_no_tensors(keys: Any) -> None:
    """Also that is a refusal of the handoff, and no crash of the receiver."""
    handoff, pool = sent()
    with pytest.raises(HandoffRefused):
        check(replace(handoff, keys=keys), pool)


def test_bytes_of_the_same_kind_are_told_apart_from_integers() -> None:
    """The digest sees bytes alone: the same bytes as another kind of number must fail by their kind."""
    handoff, pool = sent()
    cast = replace(handoff, keys=tuple(keys.view(torch.int32) for keys in handoff.keys))
    assert digest_of(1, 6, 17, cast.keys, cast.values) == handoff.digest
    with pytest.raises(HandoffRefused, match="int32"):
        check(cast, pool)


def recorded(change: Callable[[dict[str, np.ndarray]], None]) -> Callable[[Handoff], Handoff]:
    """A change of what the sender's ledger says."""

    def changed(handoff: Handoff) -> Handoff:
        assert handoff.records is not None
        entries = {name: getattr(handoff.records, name).copy() for name in ("writer", "position", "current")}
        change(entries)
        return replace(handoff, records=SlotRecords(**entries))

    return changed


def every(entries: dict[str, np.ndarray], cut: Callable[[np.ndarray], np.ndarray]) -> None:
    entries.update({name: cut(entry) for name, entry in entries.items()})


RECORDS: dict[str, Callable[[Handoff], Handoff]] = {
    "another writer": recorded(lambda e: e["writer"].__setitem__(2, 7)),
    "nobody": recorded(lambda e: e["writer"].__setitem__(8, -1)),
    "another position": recorded(lambda e: e["position"].__setitem__(2, 7)),
    "an old generation": recorded(lambda e: e["current"].__setitem__(0, False)),
    "a page less": recorded(lambda e: every(e, lambda entry: entry[:-PAGE])),
    "a page more": recorded(lambda e: every(e, lambda entry: np.concatenate([entry, entry[:PAGE]]))),
    "far too many": recorded(lambda e: every(e, lambda entry: np.tile(entry, 9))),
    "uneven": recorded(lambda e: e.update(writer=e["writer"][:-1])),
    "no records at all": lambda handoff: replace(handoff, records=5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("how", RECORDS)
def test_altered_records_are_refused(tiny: BoundModel, how: str) -> None:
    """The ledger's records travel along; whoever changes them loses one request, and no neighbour."""
    around = Around()
    around.change = lambda handoff: RECORDS[how](handoff) if handoff.request == 1 else handoff
    server = two_nodes(tiny, handoff=lambda: around)
    jobs = [(9, seed, 6) for seed in range(3)]
    numbers = submitted(server, jobs)
    good, bad, fine = finished(server, numbers)
    assert_serves(server)
    assert answers([good, fine]) == [right(*jobs[0]), right(*jobs[2])]
    assert bad.status == 502 and isinstance(bad.error, HandoffRefused)


def test_records_from_a_sender_that_keeps_none(tiny: BoundModel) -> None:
    """They are taken as the request's own, since the contents are authentic."""
    around = Around()
    around.change = lambda handoff: replace(handoff, records=None)
    server = two_nodes(tiny, handoff=lambda: around)
    assert answers(served(server, [prompt_of(9)], greedy(6))) == [right(9, 0, 6)]
    assert_quiet(server)


NO_NUMBER = float("nan")


def poisoned(handoff: Handoff, start: int, stop: int) -> Handoff:
    """NaN in some slots, with a digest that fits."""
    for tensor in (*handoff.keys, *handoff.values):
        tensor.flatten(0, 1)[start:stop] = NO_NUMBER
    said = digest_of(handoff.request, handoff.num_tokens, handoff.first_token, handoff.keys, handoff.values)
    return replace(handoff, digest=said)


@pytest.mark.parametrize("settings", [{}, {"ledger": False}], ids=["ledger", "no-ledger"])
@pytest.mark.parametrize("slot", [0, 8])
def test_authentic_nonsense_is_one_requests_error(tiny: BoundModel, slot: int, settings: dict[str, Any]) -> None:
    """A prefill node that sends NaN in good faith: no token of it, and nothing for those in the same batch."""
    around = Around()
    around.change = lambda h: poisoned(h, slot, slot + 1) if h.request == 1 else h
    server = two_nodes(tiny, handoff=lambda: around, **settings)
    jobs = [(9, seed, 6) for seed in range(3)]
    good, bad, fine = finished(server, submitted(server, jobs))
    assert bad.finish_reason == "error" and isinstance(bad.error, EngineFailed) and "not a number" in str(bad.error)
    assert bad.token_ids == right(*jobs[1])[:1]
    assert answers([good, fine]) == [right(*jobs[0]), right(*jobs[2])]
    assert_serves(server)


@pytest.mark.parametrize("settings", [{}, {"ledger": False}], ids=["ledger", "no-ledger"])
def test_nonsense_past_what_was_written_changes_nothing(tiny: BoundModel, settings: dict[str, Any]) -> None:
    """https://github.com/vllm-project/vllm/pull/35219: the last page is sent whole, with whatever it holds."""
    around = Around()
    around.change = lambda handoff: poisoned(handoff, handoff.num_tokens, 99)
    server = two_nodes(tiny, handoff=lambda: around, **settings)
    jobs = [(length, length, 9) for length in range(1, 2 * PAGE + 2)]
    assert answers(finished(server, submitted(server, jobs))) == [right(*job) for job in jobs]
    assert_quiet(server)


@pytest.mark.parametrize("first_token", [0, 256])
def test_first_token_is_the_requests_own(tiny: BoundModel, first_token: int) -> None:
    """Another one with a fitting digest is taken, but nobody reads it: decode goes on from the request's tokens."""
    around = Around()
    around.change = lambda handoff: renumbered(handoff, first_token=first_token)
    server = two_nodes(tiny, handoff=lambda: around)
    assert answers(served(server, [prompt_of(9)], greedy(6))) == [right(9, 0, 6)]


def tampered(handoff: Handoff, how: str) -> Handoff:
    keys = tuple(tensor.clone() for tensor in handoff.keys)
    values = tuple(tensor.clone() for tensor in handoff.values)
    if how == "key bit":
        keys[1].flatten(0, 1)[handoff.num_tokens - 1, 0, 0] += 1e-6
        return replace(handoff, keys=keys)
    if how == "value bit":
        values[0][0, 0, 0, 0] *= -1
        return replace(handoff, values=values)
    if how == "last page zero":
        for tensor in (*keys, *values):
            tensor[-1] = 0
        return replace(handoff, keys=keys, values=values)
    if how == "half precision":
        cut = tuple(k.half() for k in keys), tuple(v.half() for v in values)
        said = digest_of(handoff.request, handoff.num_tokens, handoff.first_token, *cut)
        return replace(handoff, keys=cut[0], values=cut[1], digest=said)
    if how == "fewer tokens":
        return renumbered(handoff, num_tokens=handoff.num_tokens - 1)
    if how == "more tokens":
        return renumbered(handoff, num_tokens=handoff.num_tokens + 1)
    return WRONG[how](handoff) if how != "another request" else renumbered(handoff, request=handoff.request + 1)


HOWS = [
    "key bit", "value bit", "last page zero", "half precision", "fewer tokens", "more tokens", "another request",
    "first token", "swapped layers of keys", "last page lost", "last layer lost", "no layers", "one page more",
]  # fmt: skip


@pytest.fixture
def bad_handoff(request: pytest.FixtureRequest) -> Iterator[type[Cluster]]:
    """A cluster whose prefill node spoils its first handoff, in one way."""

    class Spoils(PrefillNode):
        spoilt = False

        def export(self, asked: Any) -> Handoff:
            handoff = super().export(asked)
            if self.spoilt:
                return handoff
            self.spoilt = True
            return tampered(handoff, request.param)

    class Spoilt(Cluster):
        prefill_type = Spoils

    yield Spoilt


@pytest.mark.parametrize("settings", [{}, {"ledger": False}], ids=["ledger", "no-ledger"])
@pytest.mark.parametrize("bad_handoff", HOWS, indirect=True)
def test_spoilt_handoff(tiny: BoundModel, bad_handoff: type[Cluster], settings: dict[str, Any]) -> None:
    """https://github.com/sgl-project/sglang/issues/30233: complete and authentic, or nothing; the others do not notice.

    Also https://github.com/NVIDIA/TensorRT-LLM/pull/19545: the sender reports success and its last page is missing.
    The same prompt again is computed from scratch.
    """
    sizes = {"prefill": NodeConfig(num_pages=16), "decode": NodeConfig(num_pages=16)}
    server = bad_handoff(tiny, **sizes, page_size=PAGE, **settings)
    before = [tensor.clone() for tensor in (*server.decode.pool.keys, *server.decode.pool.values)]
    (spoilt,) = submitted(server, [(9, 0, 6)])
    server.step()
    after = (*server.decode.pool.keys, *server.decode.pool.values)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True)), "something was taken of it"
    server.check()
    assert not server.prefill.pool.tables and not server.decode.pool.tables
    good, again = submitted(server, [(7, 0, 6), (9, 0, 6)])
    bad, fine, same = finished(server, [spoilt, good, again])
    assert bad.finish_reason == "error" and isinstance(bad.error, HandoffRefused) and bad.status == 502
    assert ends_of(server, spoilt) == ["error"]
    assert answers([fine, same]) == [right(7, 0, 6), right(9, 0, 6)]
    assert server.stats().nodes[0].tokens == 9 + 7 + 9
    assert_serves(server)


# A node that fails


JOBS = [(9, 0, 5), (4, 1, 7), (13, 2, 3), (8, 3, 6)]


def staggered(server: Cluster) -> list[Completion]:
    """Two requests, and two more while they run; all invariants after every step."""
    numbers = submitted(server, JOBS[:2])
    server.step()
    server.check()
    numbers += submitted(server, JOBS[2:])
    return finished(server, numbers)


def assert_right_or_failed(server: Cluster, done: Sequence[Completion], failed: set[int], says: str) -> None:
    """Exactly these failed, once each, and say why; the others' answers are right."""
    for job, each in zip(JOBS, done, strict=True):
        assert len(ends_of(server, each.request_id)) == 1
        if each.request_id in failed:
            assert each.finish_reason == "error" and each.status == 500 and says in str(each.error)
            assert each.token_ids == right(*job)[: len(each.token_ids)]
        else:
            assert answers([each]) == [right(*job)]
    assert_serves(server)


def split(model: BoundModel, budget: int, **settings: Any) -> Cluster:
    sizes = NodeConfig(num_pages=16, max_batch_tokens=budget)
    return Cluster(model, prefill=sizes, decode=sizes, page_size=PAGE, **settings)


@pytest.mark.parametrize(("budget", "ledger"), [(5, True), (8192, False)])
def test_attention_fails_at_any_call(tiny: BoundModel, budget: int, ledger: bool) -> None:
    """In each layer of each step of each node: those in that step fail, and nobody on the other node."""
    servers: list[Cluster] = []
    failures = {"prefill": 0, "decode": 0}
    failed: set[int] = set()

    def fail(keys: torch.Tensor) -> None:
        for node in servers[-1].nodes:
            if keys.data_ptr() in {own.data_ptr() for own in node.pool.keys}:
                failed.update(request.number for request in node.in_step)
                failures[node.name] += 1
        raise ZeroDivisionError("no attention today")

    for call in range(1, 200):
        failed.clear()
        attention = At(call, fail)
        servers.append(split(tiny, budget, attention=attention, ledger=ledger))
        done = staggered(servers[-1])
        if attention.calls < call:
            break
        assert failed
        assert_right_or_failed(servers[-1], done, failed, "ZeroDivisionError: no attention today")
    assert call < 199 and min(failures.values()) >= 4, failures


@pytest.mark.parametrize("ledger", [True, False])
def test_error_that_names_one_request_in_the_middle_of_a_step(tiny: BoundModel, ledger: bool) -> None:
    """Nobody in a step that broke off half-way goes on as if its keys and values were there: right, or an error."""

    def fail(_keys: torch.Tensor) -> None:
        raise BrokenRule("a rule", "not today", 1)

    for call in range(1, 200):
        attention = At(call, fail)
        server = split(tiny, 5, attention=attention, ledger=ledger)
        done = staggered(server)
        if attention.calls < call:
            break
        failed = {each.request_id for each in done if each.error}
        assert_right_or_failed(server, done, failed, "")
    assert call < 199


OPERATIONS = ("lend", "extend", "begin_write", "begin_read", "store", "export_pages", "import_pages")


def failing_pool(operation: str, at: int, late: bool) -> tuple[type[PagePool], list[int]]:
    """A pool class whose `at`-th call of an operation, over all nodes, raises, before or after its work."""
    calls: list[int] = []

    class Fails(PagePool):
        pass

    def failing(self: PagePool, *args: Any, **options: Any) -> Any:
        calls.append(len(calls) + 1)
        if calls[-1] == at and not late:
            raise ZeroDivisionError("no pool today")
        found = getattr(PagePool, operation)(self, *args, **options)
        if calls[-1] == at:
            raise ZeroDivisionError("no pool today")
        return found

    setattr(Fails, operation, failing)
    return Fails, calls


@pytest.mark.parametrize(
    ("operation", "late"),
    [(operation, late) for operation in OPERATIONS for late in (False, True) if (operation, late) != ("extend", True)],
)
def test_pool_fails_at_any_call(tiny: BoundModel, operation: str, late: bool) -> None:
    """Before an operation did its work, or after: one answer each, right or an error, and no page is lost.

    Not `extend` when it was done: then pages are lent that stand in no table, and the engine stops.
    """
    for at in range(1, 12):
        kind, calls = failing_pool(operation, at, late)
        server = two_nodes(tiny, 16, pool=kind)
        done = staggered(server)
        failed = {each.request_id for each in done if each.error}
        if len(calls) < at:
            break
        assert len(failed) == 1 if operation in ("export_pages", "import_pages") else failed
        assert_right_or_failed(server, done, failed, "ZeroDivisionError: no pool today")
    assert at > 4


@pytest.mark.parametrize("node", ["prefill", "decode"])
def test_node_whose_pages_cannot_be_taken_back(tiny: BoundModel, node: str) -> None:
    """The pools cannot be trusted any more: everybody, now and later, is told why, and nobody waits."""
    server = two_nodes(tiny)

    def burnt(_pages: Sequence[int]) -> None:
        raise ZeroDivisionError("the free list burnt down")

    getattr(server, node).pool.allocator.free = burnt
    jobs = [(9, seed, 2 + 2 * seed) for seed in range(4)]
    numbers = submitted(server, jobs)
    for _ in range(20):
        server.step()
    done = [server.result(number) for number in numbers]
    for job, each in zip(jobs, done, strict=True):
        assert each.error is None or "burnt down" in str(each.error)
        assert each.token_ids == right(*job)[: len(each.token_ids)]
        assert each.error or len(each.token_ids) == job[2]
    assert sum(each.error is not None for each in done) >= 3
    (later,) = server.generate([prompt_of(5)], greedy(2))
    assert later.finish_reason == "error" and "burnt down" in str(later.error)


@pytest.mark.parametrize("node", ["prefill", "decode"])
def test_every_end_is_counted_when_the_engine_stops(tiny: BoundModel, node: str) -> None:
    """One final answer each, also in the trace and in the counts; the message names the reason once."""
    server = two_nodes(tiny)

    def burnt(_pages: Sequence[int]) -> None:
        raise ZeroDivisionError("the free list burnt down")

    numbers = submitted(server, [(9, seed, 2 + 2 * seed) for seed in range(4)])
    server.step()
    getattr(server, node).pool.allocator.free = burnt
    server.abort(numbers[3])
    numbers += submitted(server, [(9, 4, 3)])
    for _ in range(20):
        server.step()
    done = [server.result(number) for number in numbers]
    assert [ends_of(server, number) for number in numbers] == [[each.finish_reason] for each in done]
    assert sum(server.stats().finished.values()) == len(numbers)
    assert all(str(each.error).count("ZeroDivisionError") <= 1 for each in done)


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("gone"),
        BrokenRule("a rule", "gone"),
        BrokenRule("a rule", "gone", 1),
        pytest.param(BrokenRule("a rule", "gone", 2), id="names another request"),
        MinikvError("gone"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("point", POINTS)
def test_error_at_any_point_of_a_handoff(tiny: BoundModel, point: str, error: Exception) -> None:
    """The one whose handoff it is fails, alone."""

    def act(_server: Cluster, _number: int) -> None:
        raise error

    server = hooked(tiny, point, act)
    assert_right_or_failed(server, staggered(server), {1}, "gone")


@pytest.mark.parametrize("point", POINTS)
def test_interrupt_at_any_point_of_a_handoff(tiny: BoundModel, point: str) -> None:
    """Ctrl-C comes through, and ends no more than that handoff."""

    def act(_server: Cluster, _number: int) -> None:
        raise KeyboardInterrupt

    server = hooked(tiny, point, act)
    numbers = submitted(server, JOBS)
    with pytest.raises(KeyboardInterrupt):
        server.step()
    server.check()
    done = finished(server, numbers)
    assert done[1].finish_reason == "error" and "KeyboardInterrupt" in str(done[1].error)
    assert_right_or_failed(server, done, {1}, "KeyboardInterrupt")


@pytest.mark.parametrize("node", ["prefill", "decode"])
def test_node_that_fails_for_good(tiny: BoundModel, node: str) -> None:
    """Every request ends with the reason, and none waits for ever; with one token prefill alone can still serve."""
    server = two_nodes(tiny)

    def step() -> list[Request]:
        raise ZeroDivisionError("burnt down")

    setattr(getattr(server, node), "step", step)  # noqa: B010
    done = [*server.generate([prompt_of(9, seed) for seed in range(5)], greedy(4))]
    assert {each.finish_reason for each in done} == {"error"}
    assert all("burnt down" in str(each.error) for each in done)
    assert_quiet(server)
    if node == "decode":
        server.decode.step = lambda: []  # type: ignore[method-assign]
        assert answers(server.generate([prompt_of(9, 0)], greedy(1))) == [right(9, 0, 1)]


def test_pages_of_a_refused_handoff_are_lent_on(tiny: BoundModel) -> None:
    """What decode had reserved for it is the next one's, in a new generation."""
    around = Around()
    around.change = lambda h: replace(h, digest="") if h.request == 0 else h
    server = two_nodes(tiny, handoff=lambda: around)
    numbers = submitted(server, [(9, 0, 6), (9, 1, 6)])
    bad, fine = finished(server, numbers)
    assert bad.status == 502 and answers([fine]) == [right(9, 1, 6)]
    lent = [event for event in server.trace if isinstance(event, Allocate) and event.node == "decode"]
    first = {event.page: event.generation for event in lent if event.owner == numbers[0]}
    second = {event.page: event.generation for event in lent if event.owner == numbers[1]}
    assert len(first) == 3 and all(second[page] == generation + 1 for page, generation in first.items())
