"""Faults that were reported of other engines, as tests for the whole kind of each.

`CASES` says which tests hold which case (any file of this folder), `WAITS_FOR` which part of a case needs a room that
minikv does not have yet. A test keeps both complete, and the links where they belong.
"""

from __future__ import annotations

import ast
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import (
    WINDOW,
    Server,
    answers,
    assert_quiet,
    finished,
    greedy,
    mistral,
    pools,
    prompt_of,
    reference,
    served,
)

from minikv import Cluster, Completion, Engine, NodeConfig, Rejected, SamplingParams, load_model
from minikv.attention import torch_backend
from minikv.config import ConfigError
from minikv.memory import PagePool, PageTable, pages_needed
from minikv.models.adapter import BoundModel
from minikv.scheduling.request import Request
from minikv.scheduling.scheduler import Scheduled, Scheduler
from minikv.trace import Allocate, Finish, Free, Preempt, Read

GITHUB = "https://github.com/"
ISOLATION, ENGINES = range(1, 24), range(1, 19)

# case: (where it was reported, tests that hold it). No place: it was measured on another engine, not reported.
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "isolation 1": (
        "sgl-project/sglang/issues/30233",
        ("test_over_length_prompt_leaves_no_trace", "test_spoilt_handoff", "test_altered_payload_is_refused"),
    ),
    "isolation 2": (
        "sgl-project/sglang/issues/33507",
        (
            "test_abort_from_within_a_handoff", "test_worst_status_wins",
            "test_abort_of_a_refused_request_keeps_the_refusal",
        ),
    ),
    "isolation 3": ("NVIDIA/TensorRT-LLM/pull/19545", ("test_spoilt_handoff",)),
    "isolation 5": (
        "sgl-project/sglang/issues/24527",
        ("test_late_completion", "test_write_with_an_old_generation", "test_late_write_in_a_running_engine"),
    ),
    "isolation 6": (
        "vllm-project/vllm/pull/45357",
        ("test_pages_of_an_aborted_request_stay_until_the_step_ends", "test_preemption_does_not_wait_for_fenced_pages"),
    ),
    "isolation 9": ("NVIDIA/TensorRT-LLM/pull/15546", ("test_a_step_keeps_its_own_snapshot_of_the_page_tables",)),
    "isolation 10": ("LMCache/LMCache/issues/5005", ("test_freed_twice", "test_released_twice")),
    "isolation 11": ("sgl-project/sglang-jax/pull/982", ("test_every_end_gives_back_exactly_the_pages_owned",)),
    "isolation 12": ("sgl-project/sglang/issues/38319", ("test_abort_between_chunks",)),
    "isolation 13": (
        "sgl-project/sglang-jax/pull/1386",
        ("test_long_prompt_takes_each_chunk_and_each_page_once",),
    ),
    "isolation 14": ("GeeeekExplorer/nano-vllm/issues/240", ("test_every_write_has_its_page_and_no_page_is_early",)),
    "isolation 15": ("GeeeekExplorer/nano-vllm/pull/211", ("test_shares_after_a_preemption_are_counted_anew",)),
    "isolation 16": (
        "sgl-project/sglang-jax/pull/20",
        ("test_batch_around_a_page", "test_batch_around_a_page_in_any_order"),
    ),
    "isolation 17": (
        "vllm-project/vllm/pull/35219",
        ("test_poison", "test_poison_in_every_kind_of_attention", "test_poison_under_chunks_and_preemption"),
    ),
    "isolation 23": (
        "vllm-project/vllm/issues/39734",
        ("test_around_the_limit", "test_around_the_smaller_pool", "test_larger_than_the_pool_and_inside_the_context"),
    ),
    "engines 2": ("GeeeekExplorer/nano-vllm/issues/163", ("test_same_answer_after_others_used_the_pages",)),
    "engines 3": (
        "GeeeekExplorer/nano-vllm/issues/212",
        ("test_chunks_read_nothing_past_themselves",),
    ),
    "engines 4": (
        "vllm-project/vllm/issues/39734",
        ("test_larger_than_the_pool_and_inside_the_context", "test_around_the_limit"),
    ),
    "engines 5": (
        "vllm-project/vllm/issues/276",
        ("test_around_the_longest_beside_a_short_one", "test_refused_beside_others"),
    ),
    "engines 6": ("vllm-project/vllm/issues/7283", ("test_unreadable_prompt",)),
    "engines 7": ("sgl-project/sglang-jax/pull/56", ("test_no_token_and_one_token",)),
    "engines 8": (
        "GeeeekExplorer/nano-vllm/pull/249",
        ("test_greedy_alone_and_in_mixed_company",),
    ),
    "engines 9": ("vllm-project/vllm/pull/9532", ("test_chunks_preemption_and_two_nodes_in_any_combination",)),
    "engines 10": ("sgl-project/mini-sglang/pull/142", ("test_twins_in_one_step_while_a_third_takes_freed_pages",)),
    "engines 13": ("vllm-project/vllm/issues/16832", ("test_preempted_answers_are_whole_and_nothing_is_said_twice",)),
    "engines 14": ("huggingface/transformers/issues/41184", ("test_every_length_across_the_window_edge",)),
    "engines 15": ("vllm-project/vllm/issues/17808", ("test_nobody_computes_twice", "test_cluster_equals_engine")),
    "engines 16": ("exo-explore/exo/pull/1691", ("test_streamed_characters_are_whole",)),
    "engines 17": ("", ("test_softcap_matters", "test_every_family")),
    "engines 18": ("sgl-project/mini-sglang/pull/98", ("test_same_prompt_many_times",)),
}  # fmt: skip

# case, or the part of it that is not in CASES: the room that it waits for.
WAITS_FOR: dict[str, str] = {
    "isolation 3": "prefix sharing: nothing of a failed transfer may be found by a later prompt",
    "isolation 4": "host parking: a store that promises more than it loads",
    "isolation 6": "asynchronous steps: pages stay until the step in flight is over",
    "isolation 7": "speculative tokens: windows are freed by what is settled, not by what is scheduled",
    "isolation 8": "host parking: layers that are read before their copy has come",
    "isolation 9": "asynchronous copies: the table of a step that has not run yet",
    "isolation 12": "prefix sharing: the tree holds no page of a prompt that was aborted",
    "isolation 15": "prefix sharing: a hit on the way back in makes the share smaller",
    "isolation 18": "prefix sharing: tokens are compared, however hashes collide",
    "isolation 19": "prefix sharing: no entry outlives its page",
    "isolation 20": "prefix sharing: keys are made here, from everything that the contents depend on",
    "isolation 21": "prefix sharing: another tenant's salt finds nothing, one's own does",
    "isolation 22": "host parking: a page that is copied out is lent to nobody before that is done",
    "engines 1": "prefix sharing: a prompt that is all there still computes one token",
    "engines 2": "prefix sharing: no stale hash after reuse",
    "engines 9": "prefix sharing: the third of the three switches",
    "engines 10": "prefix sharing: the second of two equal prefixes",
    "engines 11": "prefix sharing: eviction with pages of several tokens",
    "engines 12": "prefix sharing: a page that is not full is not shared",
}


def test_every_case_is_held_or_waits() -> None:
    """By its number; a room that is built takes its cases out of the one table and into the other."""
    known = {f"isolation {n}" for n in ISOLATION} | {f"engines {n}" for n in ENGINES}
    assert CASES.keys() | WAITS_FOR.keys() == known
    rooms = {why.split(":")[0] for why in WAITS_FOR.values()}
    assert rooms <= {
        "prefix sharing",
        "host parking",
        "speculative tokens",
        "asynchronous steps",
        "asynchronous copies",
    }


@cache
def docstrings() -> dict[str, list[str]]:
    """Of every test function of this folder, by name."""
    found: dict[str, list[str]] = {}
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, []).append(ast.get_docstring(node) or "")
    return found


@pytest.mark.parametrize("case", CASES)
def test_case_has_its_tests_and_its_link(case: str) -> None:
    """The tests named are there, once each, and the docstring of one at least links the report."""
    report, names = CASES[case]
    docs = [docstrings().get(name, []) for name in names]
    assert [len(each) for each in docs] == [1] * len(names), dict(zip(names, docs, strict=True))
    assert not report or any(GITHUB + report in text for each in docs for text in each)


# Tools

PAGE = 4
Build = Callable[..., Server]


def one_node(model: BoundModel, pages: int = 16, **settings: Any) -> Server:
    limits = {"page_size": PAGE, "num_pages": pages}
    return Engine(model, **limits | settings)


def two_nodes(model: BoundModel, pages: int = 16, **settings: Any) -> Server:
    return unequal(model, pages, pages, **settings)


def small_prefill(model: BoundModel, pages: int = 16, **settings: Any) -> Server:
    return unequal(model, pages, 3 * pages, **settings)


def small_decode(model: BoundModel, pages: int = 16, **settings: Any) -> Server:
    return unequal(model, 3 * pages, pages, **settings)


def unequal(
    model: BoundModel, prefill: int, decode: int, max_batch_tokens: int = 8192, page_size: int = PAGE, **settings: Any
) -> Cluster:
    sizes = [NodeConfig(num_pages=pages, max_batch_tokens=max_batch_tokens) for pages in (prefill, decode)]
    return Cluster(model, prefill=sizes[0], decode=sizes[1], page_size=page_size, **settings)


both = pytest.mark.parametrize("build", [one_node, two_nodes])
every = pytest.mark.parametrize("build", [one_node, two_nodes, small_prefill, small_decode])


@cache
def right(length: int, seed: int, tokens: int) -> tuple[int, ...]:
    """What `transformers` answers to `prompt_of(length, seed)` with the model of these tests."""
    return reference(load_model("tiny-random"), prompt_of(length, seed), tokens)


def assert_serves(server: Server) -> None:
    """The next request gets the right answer, and nothing is left behind."""
    assert answers(server.generate([prompt_of(6, 99)], greedy(4))) == [right(6, 99, 4)]
    assert_quiet(server)


def refusal_of(done: Completion) -> Rejected:
    assert done.finish_reason == "rejected" and done.token_ids == () and done.text == ""
    assert isinstance(done.error, Rejected)
    assert done.status == done.error.status == 400
    return done.error


class Hook:
    """The plain attention; before each call a test may act or look."""

    def __init__(self) -> None:
        self.calls = 0
        self.act: Callable[[int], None] = lambda _call: None
        self.look: Callable[[Sequence[Any]], None] = lambda _views: None

    def __call__(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, views: Any, options: Any) -> Any:
        self.calls += 1
        self.act(self.calls)
        self.look(views)
        return torch_backend.attend(query, keys, values, views, options)


# Too long, and nearly


@every
@pytest.mark.parametrize("max_tokens", [1, 5])
@pytest.mark.parametrize("context", [None, 40])
@pytest.mark.parametrize("over", [-1, 0, 1])
def test_around_the_limit(tiny: BoundModel, build: Build, context: int | None, max_tokens: int, over: int) -> None:
    """https://github.com/vllm-project/vllm/issues/39734: pool of 64 slots, or context of 40 positions.

    The last token is never written: a request needs prompt + max_tokens - 1 slots, prompt + max_tokens positions.
    """
    server = build(tiny, context_length=context) if context else build(tiny, context_length=64)
    limit = (context or 64) - max_tokens
    (done,) = server.generate([prompt_of(limit + over)], greedy(max_tokens))
    if over <= 0:
        assert answers([done]) == [right(limit + over, 0, max_tokens)]
    else:
        error = refusal_of(done)
        assert (error.limit, error.requested) == (limit, limit + 1)
        assert str(limit) in str(error) and str(limit + 1) in str(error)
    assert_serves(server)


@every
@pytest.mark.parametrize("max_tokens", [1, 5])
@pytest.mark.parametrize("over", [-1, 0, 1])
def test_around_the_smaller_pool(tiny: BoundModel, build: Build, max_tokens: int, over: int) -> None:
    """With a context above the pool, the smaller pool of 64 slots decides: 64 - max_tokens + 1 prompt tokens."""
    server = build(tiny, context_length=500, allow_context_above_pool=True)
    limit = 64 - max_tokens + 1
    (done,) = server.generate([prompt_of(limit + over)], greedy(max_tokens))
    if over <= 0:
        assert answers([done]) == [right(limit + over, 0, max_tokens)]
    else:
        error = refusal_of(done)
        assert (error.limit, error.requested) == (limit, limit + 1)
    assert_serves(server)


@both
def test_refused_beside_others(tiny: BoundModel, build: Build) -> None:
    """https://github.com/vllm-project/vllm/issues/286: only the long one is refused, and at once."""
    server = build(tiny)
    prompts = [prompt_of(9), prompt_of(500), [], prompt_of(12)]
    done = server.generate(prompts, greedy(5))
    assert [each.finish_reason for each in done] == ["length", "rejected", "rejected", "length"]
    assert answers([done[0], done[3]]) == [right(9, 0, 5), right(12, 0, 5)]


@every
@pytest.mark.parametrize("chunk", [5, 8192])
def test_around_the_longest_beside_a_short_one(tiny: BoundModel, build: Build, chunk: int) -> None:
    """https://github.com/vllm-project/vllm/issues/276, https://github.com/vllm-project/vllm/issues/765 and
    https://github.com/sgl-project/sglang/issues/3910: a token less than fits, as many as fit, one more, and a
    short one.

    Two answers, one refusal, and the short one as if it were alone, whoever comes first.
    """
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 3, 0, 1]):
        server = build(tiny, pages=8, max_batch_tokens=chunk)
        lengths = [26, 27, 28, 3]
        prompts = [prompt_of(lengths[index]) for index in order]
        done = served(server, prompts, greedy(5))
        for index, each in zip(order, done, strict=True):
            if lengths[index] == 28:
                assert (refusal_of(each).limit, each.prompt_tokens) == (27, 28)
            else:
                assert answers([each]) == [right(lengths[index], 0, 5)]
        assert_serves(server)


@every
@pytest.mark.parametrize("length", [29, 33, 64, 65, 300])
@pytest.mark.parametrize("chunk", [4, 8192])
def test_larger_than_the_pool_and_inside_the_context(tiny: BoundModel, build: Build, length: int, chunk: int) -> None:
    """https://github.com/vllm-project/vllm/issues/39734: refused when it comes, with what would fit; nobody queues."""
    server = build(tiny, pages=8, context_length=1000, allow_context_above_pool=True, max_batch_tokens=chunk)
    running = server.submit(prompt_of(9), greedy(5))
    server.step()
    number = server.submit(prompt_of(length), greedy(5))
    error = refusal_of(server.result(number))
    assert (error.limit, error.requested) == (28, length) and "28" in str(error) and str(length) in str(error)
    small = server.submit(prompt_of(3), greedy(5))
    assert answers(finished(server, [running, small])) == [right(9, 0, 5), right(3, 0, 5)]
    assert_quiet(server)


@pytest.mark.parametrize("build", [one_node, small_prefill, small_decode])
@pytest.mark.parametrize("over", [1, PAGE, 40])
def test_over_length_prompt_leaves_no_trace(tiny: BoundModel, build: Build, over: int) -> None:
    """https://github.com/sgl-project/sglang/issues/30233: one pool could take it, the smaller one could not.

    Every page holds a victim's words. The client hears 400; no page is lent for it on either node, before, beside or
    after others; no slot is read by whoever did not write it; the victims' answers are what they would be.
    """
    server = build(tiny, pages=8)
    limit = 32 - 5
    victims = served(server, [prompt_of(limit, seed) for seed in range(3)], greedy(5))
    assert answers(victims) == [right(limit, seed, 5) for seed in range(3)]
    numbers = [server.submit(prompt_of(9, 7), greedy(8))]
    server.step()
    refused = [server.submit(prompt_of(limit + over), greedy(5)) for _ in range(2)]
    for number in refused:
        assert server.requests[number].answered
    numbers.append(server.submit(prompt_of(9, 8), greedy(8)))
    assert answers(finished(server, numbers)) == [right(9, 7, 8), right(9, 8, 8)]
    for number in refused:
        assert (refusal_of(server.result(number)).limit) == limit
    assert not [event for event in server.trace if isinstance(event, Allocate) and event.owner in refused]
    reads = [event for event in server.trace if isinstance(event, Read)]
    assert len(reads) > 20 and all(event.writers == ((event.owner, event.slots),) for event in reads)
    assert_quiet(server)


# Prompts that nobody could read, and answers of no token


@both
@pytest.mark.parametrize(
    "prompt",
    [
        [], "", (), [10**6], [-1], [1, 2, -1], [True, False], [1.0, 2.0], ["1", "2"], [None], [1, None],
        [[1, 2]], None, 7, 2.5, b"bytes", {1, 2}, {"role": "user"}, np.array([1.5]), torch.tensor([1.5]),
        np.zeros((2, 2), dtype=int), torch.zeros(0, dtype=torch.long), torch.tensor(3), [2**70],
    ],
    ids=repr,
)  # fmt: skip
def test_unreadable_prompt(tiny: BoundModel, build: Build, prompt: Any) -> None:
    """https://github.com/vllm-project/vllm/issues/7283: a typed answer to that prompt alone."""
    server = build(tiny)
    numbers = [server.submit(prompt_of(5), greedy(3)), server.submit(prompt)]
    good, bad = finished(server, numbers)
    assert type(refusal_of(bad)).__name__ == "InvalidPrompt"
    assert answers([good]) == [right(5, 0, 3)]
    assert_serves(server)


@both
@pytest.mark.parametrize("length", [1, PAGE - 1, PAGE, PAGE + 1])
def test_no_token_and_one_token(tiny: BoundModel, build: Build, length: int) -> None:
    """https://github.com/sgl-project/sglang-jax/pull/56: 0 is refused where it is written; 1 is one token, one step."""
    with pytest.raises(ConfigError, match="max_tokens"):
        SamplingParams(max_tokens=0)
    server = build(tiny)
    number = server.submit(prompt_of(length), greedy(1))
    server.step()
    assert answers([server.result(number)]) == [right(length, 0, 1)]
    assert sum(node.steps for node in server.stats().nodes) == 1
    assert_quiet(server)


# Pages come back


ENDS = ("length", "eos", "stop id", "stop text", "abort", "abort in a step", "error")


@both
@pytest.mark.parametrize("chunk", [3, 8192])
@pytest.mark.parametrize("end", ENDS)
def test_every_end_gives_back_exactly_the_pages_owned(tiny: BoundModel, build: Build, end: str, chunk: int) -> None:
    """https://github.com/sgl-project/sglang-jax/pull/982: at every length modulo the page size, however it ends.

    A neighbour holds pages all the time. What becomes free is what the request owned, page by page, once.
    """
    for length in range(1, PAGE + 2):
        expected = right(length, 0, 8)
        at = next(index for index in range(3, 8) if expected[index] not in expected[:index])
        stop = SamplingParams(max_tokens=20)
        if end == "length":
            stop = greedy(at + 1)
        elif end == "stop id":
            stop = SamplingParams(max_tokens=20, ignore_eos=True, stop_token_ids=[expected[at]])
        elif end == "stop text":
            text = tiny.decode(expected)
            stop = SamplingParams(max_tokens=8, ignore_eos=True, stop=text[-1])
        hook = Hook()
        sampler_error = {"sampler": _failing_sampler(at)} if end == "error" else {}
        server = build(tiny, max_batch_tokens=chunk, attention=hook, **sampler_error)
        eos, tiny.eos_ids = tiny.eos_ids, frozenset([expected[at]] if end == "eos" else [])
        try:
            neighbour = server.submit(prompt_of(5, 1), greedy(40))
            server.step()
            number = server.submit(prompt_of(length), stop)
        finally:
            tiny.eos_ids = eos
        request = server.requests[number]
        owned: dict[str, list[int]] = {}
        while not request.answered:
            for node in server.nodes:
                if table := node.pool.tables.get(number):
                    owned[node.name] = table.pages
            if len(request.output_ids) == at and end == "abort":
                server.abort(number)
            elif len(request.output_ids) == at and end == "abort in a step":
                hook.act = lambda _call, server=server, number=number: server.abort(number)  # type: ignore[misc]
                server.step()
            else:
                server.step()
            server.check()
        hook.act = lambda _call: None
        freed = [
            (event.node, event.page) for event in server.trace if isinstance(event, Free) and event.owner == number
        ]
        lent = [(e.node, e.page) for e in server.trace if isinstance(e, Allocate) and e.owner == number]
        assert sorted(freed) == sorted(lent) and len(set(freed)) == len(freed)
        assert lent and {(node, page) for node, pages in owned.items() for page in pages} <= set(freed)
        held = {node.name: sum(len(table.pages) for table in node.pool.tables.values()) for node in server.nodes}
        assert [node.pool.num_pages - node.pool.num_free for node in server.nodes] == list(held.values())
        assert all(set(node.pool.tables) <= {neighbour} for node in server.nodes)
        reason = {"eos": "stop", "stop id": "stop", "stop text": "stop", "abort in a step": "abort"}.get(end, end)
        done = server.result(number)
        assert done.finish_reason == reason, done.error
        if end != "stop text":
            assert done.token_ids == expected[: at + (end in ("length", "eos", "stop id"))]
        server.abort(neighbour)
        assert_quiet(server)


def _failing_sampler(at: int) -> Callable[[torch.Tensor, Request], int]:
    def sampler(logits: torch.Tensor, request: Request) -> int:
        if request.number == 1 and len(request.output_ids) == at:
            raise ZeroDivisionError("no token today")
        return int(logits.argmax())

    return sampler


@both
def test_released_twice(tiny: BoundModel, build: Build) -> None:
    """https://github.com/LMCache/LMCache/issues/5005: aborts and releases do not free others' pages."""
    server = build(tiny)
    first = server.submit(prompt_of(9), greedy(9))
    server.step()
    request = server.requests[first]
    server.abort(first)
    second, third = server.submit(prompt_of(9, 1), greedy(9)), server.submit(prompt_of(7, 2), greedy(9))
    server.step()
    before = [pool.num_free for pool in pools(server)]
    server.abort(first)
    for node in server.nodes:
        node.release(request)
    server.check()
    assert [pool.num_free for pool in pools(server)] == before
    held = [page for table in pools(server)[-1].tables.values() for page in table.pages]
    assert len(held) == len(set(held)) == 3 + 2
    assert answers(finished(server, [second, third])) == [right(9, 1, 9), right(7, 2, 9)]
    assert_quiet(server)


# In flight


@both
@pytest.mark.parametrize("from_thread", [False, True], ids=["within", "thread"])
def test_pages_of_an_aborted_request_stay_until_the_step_ends(
    tiny: BoundModel, build: Build, from_thread: bool
) -> None:
    """https://github.com/vllm-project/vllm/pull/45357: the step that computes a request outlives it.

    At each call of the attention of its first steps it is aborted and another request comes: as long as the step runs,
    its pages are nobody else's; then they are free.
    """
    for call in (1, 2, 3, 4) if build is one_node else (1, 2, 3, 4, 7, 8):
        hook = Hook()
        server = build(tiny, attention=hook)
        number = server.submit(prompt_of(9), greedy(9))
        threads: list[threading.Thread] = []
        later: list[int] = []

        def act(
            now: int, call: int = call, server: Server = server, number: int = number,
            threads: list[threading.Thread] = threads, later: list[int] = later,
        ) -> None:  # fmt: skip
            if now == call and from_thread:
                threads.append(threading.Thread(target=server.abort, args=(number,)))
                threads[0].start()
                threads[0].join(0.01)
            elif now == call:
                server.abort(number)
                later.append(server.submit(prompt_of(9, 1), greedy(3)))
            if now >= call:
                held = [table for pool in pools(server) for table in pool.tables.values() if table.owner == number]
                assert held and set(pools(server)[0].tables) | set(pools(server)[-1].tables) == {number}

        hook.act = act
        while hook.calls < call:
            server.step()
        hook.act = lambda _now: None
        for thread in threads:
            thread.join(10)
        assert not any(pool.tables for pool in pools(server))
        done = server.result(number)
        assert done.finish_reason == "abort" and done.token_ids == right(9, 0, 9)[: len(done.token_ids)]
        assert answers(finished(server, later)) == [right(9, 1, 3)] * len(later)
        assert_serves(server)


@pytest.mark.parametrize("chunk", [1, 3, 8192])
def test_preemption_does_not_wait_for_fenced_pages(tiny: BoundModel, chunk: int) -> None:
    """https://github.com/vllm-project/vllm/issues/49674: pages of those between the nodes cannot be taken.

    A prefill node whose pages are mostly held by handoffs that wait: its running prompts neither loop nor give way
    over and over, and all are served in a bounded number of steps.
    """
    sizes = NodeConfig(num_pages=8, max_batch_tokens=chunk)
    server = Cluster(tiny, prefill=sizes, decode=NodeConfig(num_pages=5), page_size=PAGE, context_length=20)
    jobs = [(12, 0, 8), (10, 1, 6), (13, 2, 5), (7, 3, 4), (9, 4, 9)]
    numbers = [server.submit(prompt_of(length, seed), greedy(tokens)) for length, seed, tokens in jobs]
    done = finished(server, numbers, most_steps=200)
    assert answers(done) == [right(*job) for job in jobs]
    preempted = Counter(event.request for event in server.trace if isinstance(event, Preempt))
    assert all(count <= 2 for count in preempted.values()), preempted
    assert_quiet(server)


@both
@pytest.mark.parametrize("chunk", [3, 8192])
def test_a_step_keeps_its_own_snapshot_of_the_page_tables(tiny: BoundModel, build: Build, chunk: int) -> None:
    """https://github.com/NVIDIA/TensorRT-LLM/pull/15546: no later step writes into what an earlier one was told."""
    told: list[tuple[Any, list[Any]]] = []
    hook = Hook()
    hook.look = lambda views: told.append((views, [(v.start, v.length, v.seq_len, v.slots.tolist()) for v in views]))
    server = build(tiny, pages=8, max_batch_tokens=chunk, attention=hook)
    prompts = [prompt_of(7, seed) for seed in range(5)]
    assert answers(served(server, prompts, greedy(9))) == [right(7, seed, 9) for seed in range(5)]
    assert len(told) > 30
    for views, then in told:
        assert [(v.start, v.length, v.seq_len, v.slots.tolist()) for v in views] == then


# Chunks


@both
@pytest.mark.parametrize("length", [12, 13, 15])
def test_abort_between_chunks(tiny: BoundModel, build: Build, length: int) -> None:
    """https://github.com/sgl-project/sglang/issues/38319: after each chunk of a prompt; then the same prompt again."""
    for chunks in range(1, 5):
        server = build(tiny, max_batch_tokens=4)
        number = server.submit(prompt_of(length), greedy(6))
        for _ in range(chunks):
            server.step()
            server.check()
        server.abort(number)
        server.check()
        assert not any(pool.tables for pool in pools(server))
        prompt_steps = server.stats().nodes[0].tokens
        assert prompt_steps == min(4 * chunks, length) or build is one_node
        assert answers(served(server, [prompt_of(length)], greedy(6))) == [right(length, 0, 6)]
        if build is two_nodes:
            assert server.stats().nodes[0].tokens == prompt_steps + length, "it was computed from the start"
        assert_quiet(server)


@both
@pytest.mark.parametrize("ledger", [True, False])
@pytest.mark.parametrize("chunk", [1, 3, 4, 5, 8])
def test_long_prompt_takes_each_chunk_and_each_page_once(
    tiny: BoundModel, build: Build, chunk: int, ledger: bool
) -> None:
    """https://github.com/sgl-project/sglang-jax/pull/1386 and https://github.com/sgl-project/sglang/issues/36855.

    Five chunks, or a token less or more: as many prefill steps as chunks, as many pages as the prompt needs, each
    lent once.
    """
    for length in (5 * chunk - 1, 5 * chunk, 5 * chunk + 1):
        server = build(tiny, max_batch_tokens=chunk, ledger=ledger)
        number = server.submit(prompt_of(length), greedy(1))
        for done in range(1, -(-length // chunk)):
            server.step()
            server.check()
            table = pools(server)[0].tables[number]
            assert (table.written, len(table.pages)) == (done * chunk, pages_needed(done * chunk, PAGE))
        server.step()
        assert answers([server.result(number)]) == [right(length, 0, 1)]
        node = server.stats().nodes[0]
        assert (node.steps, node.tokens) == (-(-length // chunk), length)
        assert int(pools(server)[0].generation.sum()) == pages_needed(length, PAGE)
        assert_quiet(server)


@both
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
def test_chunks_read_nothing_past_themselves(tiny: BoundModel, build: Build, page_size: int, value: float) -> None:
    """https://github.com/GeeeekExplorer/nano-vllm/issues/212 and https://github.com/GeeeekExplorer/nano-vllm/pull/213.

    Three chunks, of every remainder; all that is not written is poison before each step.
    """
    for length in (13, 14, 15, 16):
        server = build(tiny, pages=3 + 40 // page_size, max_batch_tokens=5, page_size=page_size)
        numbers = [server.submit(prompt_of(length), greedy(4)), server.submit(prompt_of(3), greedy(7))]
        while any(not server.requests[number].answered for number in numbers):
            for pool in pools(server):
                pool.fill_unwritten(value)
            server.step()
            server.check()
        assert answers(map(server.result, numbers)) == [right(length, 0, 4), right(3, 0, 7)]


# Pages and positions


class Watchful(PagePool):
    """Looks at every write before it is announced."""

    writes: list[tuple[int, int, int]]

    def begin_write(self, table: PageTable, start: int, stop: int) -> np.ndarray:
        for position in range(start, stop):
            page, generation = table.pages[position // self.page_size], table.generations[position // self.page_size]
            assert self.owner[page] == table.owner and self.generation[page] == generation
        assert len(table.pages) == pages_needed(stop, self.page_size), "a page is there too early, or too late"
        slots = super().begin_write(table, start, stop)
        expected = [table.pages[p // self.page_size] * self.page_size + p % self.page_size for p in range(start, stop)]
        assert slots.tolist() == expected
        return slots


@both
@pytest.mark.parametrize("chunk", [3, 8192])
@pytest.mark.parametrize("page_size", [1, 3, 4])
def test_every_write_has_its_page_and_no_page_is_early(
    tiny: BoundModel, build: Build, page_size: int, chunk: int
) -> None:
    """https://github.com/GeeeekExplorer/nano-vllm/issues/240: prompts of 1 to 3P + 1 tokens, 2P decode steps."""
    for length in range(1, 3 * page_size + 2):
        tokens = 2 * page_size + 1
        server = build(
            tiny, pages=2 + (length + tokens) // page_size, page_size=page_size, max_batch_tokens=chunk, pool=Watchful
        )
        assert answers(server.generate([prompt_of(length)], greedy(tokens))) == [right(length, 0, tokens)]
        assert_quiet(server)


PREEMPTING: dict[int, tuple[int, int, list[tuple[int, int, int]], int]] = {
    # how often: page size, pages, requests of (length, seed, tokens), who gives way
    1: (2, 14, [(8, 0, 10), (8, 1, 13)], 1),
    2: (2, 12, [(9, 0, 10), (7, 1, 4), (2, 2, 16)], 2),
    3: (1, 28, [(9, 0, 4), (3, 1, 14), (8, 2, 8), (7, 3, 8)], 3),
    4: (1, 32, [(5, 0, 6), (3, 1, 3), (2, 2, 13), (5, 3, 3), (9, 4, 16), (3, 5, 15)], 5),
}


@pytest.mark.parametrize("ledger", [True, False])
@pytest.mark.parametrize("times", PREEMPTING)
def test_preempted_answers_are_whole_and_nothing_is_said_twice(tiny: BoundModel, times: int, ledger: bool) -> None:
    """https://github.com/vllm-project/vllm/issues/16832: one gives way so many times, and is read as it goes."""
    size, pages, jobs, victim = PREEMPTING[times]
    server = Engine(tiny, page_size=size, num_pages=pages, ledger=ledger)
    before = [server.submit(prompt_of(length, seed), greedy(tokens)) for length, seed, tokens in jobs[:victim]]
    length, seed, tokens = jobs[victim]
    stream = server.stream(prompt_of(length, seed), greedy(tokens))
    chunks = []
    for chunk in stream:
        chunks.append(chunk)
        server.check()
    assert sum(event.request == victim for event in server.trace if isinstance(event, Preempt)) == times
    assert tuple(token for chunk in chunks for token in chunk.token_ids) == right(*jobs[victim])
    last = chunks[-1].completion
    assert last is not None and last.token_ids == right(*jobs[victim])
    assert "".join(map(str, chunks)) == last.text == tiny.decode(last.token_ids)
    assert answers(finished(server, before)) == [right(*job) for job in jobs[:victim]]
    assert [event.request for event in server.trace if isinstance(event, Finish)].count(victim) == 1
    assert_quiet(server)


@pytest.mark.parametrize("chunk", [3, 8192])
@pytest.mark.parametrize("times", PREEMPTING)
def test_shares_after_a_preemption_are_counted_anew(tiny: BoundModel, times: int, chunk: int) -> None:
    """https://github.com/GeeeekExplorer/nano-vllm/pull/211: whoever comes back computes all its known tokens, once."""
    size, pages, jobs, _victim = PREEMPTING[times]
    shares: list[tuple[int, int, int, int]] = []

    class Recording(Scheduler):
        def schedule(self) -> list[Scheduled]:
            plan = super().schedule()
            for share in plan:
                table = self.pool.tables[share.request.number]
                assert len(table.pages) == pages_needed(table.written + share.num_scheduled_tokens, size)
                shares.append(
                    (share.request.number, table.written, share.num_scheduled_tokens, share.request.num_tokens)
                )
            return plan

    server = Engine(tiny, page_size=size, num_pages=pages, max_batch_tokens=chunk, scheduler=Recording)
    numbers = [server.submit(prompt_of(length, seed), greedy(tokens)) for length, seed, tokens in jobs]
    assert answers(finished(server, numbers)) == [right(*job) for job in jobs]
    lost = Counter({number: 0 for number in numbers})
    for event in server.trace:
        if isinstance(event, Preempt):
            lost[event.request] += event.written
    assert sum(lost.values()) > 0
    for number, (length, _seed, tokens) in zip(numbers, jobs, strict=True):
        own = [share for share in shares if share[0] == number]
        assert all(written + share <= known for _number, written, share, known in own)
        assert sum(share for _number, _written, share, _known in own) == length + tokens - 1 + lost[number]


@both
@pytest.mark.parametrize("chunk", [3, 8192])
@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
def test_batch_around_a_page_in_any_order(tiny: BoundModel, build: Build, page_size: int, chunk: int) -> None:
    """https://github.com/sgl-project/sglang-jax/pull/20: the second and third of a batch read their own slots."""
    lengths = [length for length in (page_size - 1, page_size, page_size + 1) if length]
    for order in (lengths, lengths[::-1], lengths[1:] + lengths[:1]):
        server = build(tiny, pages=6 + 60 // page_size, page_size=page_size, max_batch_tokens=chunk)
        done = served(server, [prompt_of(length, length) for length in order], greedy(5))
        assert answers(done) == [right(length, length, 5) for length in order]


# What is in a page


@both
@pytest.mark.parametrize("chunk", [3, 8192])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e30])
def test_poison_under_chunks_and_preemption(tiny: BoundModel, build: Build, value: float, chunk: int) -> None:
    """https://github.com/vllm-project/vllm/pull/35219: pages full of poison, all remainders, a full pool."""
    jobs = [(length, length, 8) for length in range(1, 2 * PAGE + 2)]
    server = build(tiny, pages=7, max_batch_tokens=chunk)
    numbers = [server.submit(prompt_of(length, seed), greedy(tokens)) for length, seed, tokens in jobs]
    while any(not server.requests[number].answered for number in numbers):
        for pool in pools(server):
            pool.fill_unwritten(value)
        server.step()
        server.check()
    assert answers(map(server.result, numbers)) == [right(*job) for job in jobs]
    assert sum(node.preemptions for node in server.stats().nodes) > 0
    assert_quiet(server)


@both
@pytest.mark.parametrize("length", [PAGE, 2 * PAGE - 1, 2 * PAGE, 2 * PAGE + 1])
def test_same_answer_after_others_used_the_pages(tiny: BoundModel, build: Build, length: int) -> None:
    """https://github.com/GeeeekExplorer/nano-vllm/issues/163: A, then B in all of A's pages, then A again."""
    server = build(tiny, pages=8)
    for _ in range(2):
        assert answers(server.generate([prompt_of(length)], greedy(6))) == [right(length, 0, 6)]
        assert answers(server.generate([prompt_of(26, 5)], greedy(6))) == [right(26, 5, 6)]
    assert answers(server.generate([prompt_of(length)], greedy(6))) == [right(length, 0, 6)]
    lent = [(event.owner, event.node, event.page) for event in server.trace if isinstance(event, Allocate)]
    first, second = ({lent_to[1:] for lent_to in lent if lent_to[0] == number} for number in (0, 1))
    assert first and first <= second


@both
@pytest.mark.parametrize("length", [PAGE, PAGE + 1, 2 * PAGE])
def test_twins_in_one_step_while_a_third_takes_freed_pages(tiny: BoundModel, build: Build, length: int) -> None:
    """https://github.com/sgl-project/mini-sglang/pull/142: two equal prompts at once, and freed pages for a third."""
    server = build(tiny, pages=12)
    gone = server.submit(prompt_of(9, 4), greedy(2))
    twins = [server.submit(prompt_of(length), greedy(9)) for _ in range(2)]
    server.step()
    tables = [table for pool in pools(server) for table in pool.tables.values()]
    held = [(id(table), page) for table in tables for page in table.pages]
    assert len(held) == len(set(held))
    finished(server, [gone])
    third = server.submit(prompt_of(9, 7), greedy(6))
    assert answers(finished(server, [*twins, third])) == [right(length, 0, 9)] * 2 + [right(9, 7, 6)]
    assert_quiet(server)


@pytest.mark.parametrize("ledger", [True, False])
@pytest.mark.parametrize("pages", [9, 40], ids=["full", "roomy"])
@pytest.mark.parametrize("chunk", [3, 8192])
@both
def test_chunks_preemption_and_two_nodes_in_any_combination(
    tiny: BoundModel, build: Build, chunk: int, pages: int, ledger: bool
) -> None:
    """https://github.com/vllm-project/vllm/pull/9532: all combinations answer alike."""
    jobs = [(3 + (5 * seed) % 11, seed, 4 + (3 * seed) % 9) for seed in range(8)]
    server = build(tiny, pages=pages, max_batch_tokens=chunk, ledger=ledger)
    numbers = []
    for length, seed, tokens in jobs:
        numbers.append(server.submit(prompt_of(length, seed), greedy(tokens)))
        server.step()
        server.check()
    assert answers(finished(server, numbers)) == [right(*job) for job in jobs]
    if pages == 40:
        assert sum(node.preemptions for node in server.stats().nodes) == 0
    elif chunk == 8192:
        assert sum(node.preemptions for node in server.stats().nodes) > 0
    assert_quiet(server)


# Tokens


@both
def test_greedy_alone_and_in_mixed_company(tiny: BoundModel, build: Build) -> None:
    """https://github.com/GeeeekExplorer/nano-vllm/pull/249, https://github.com/vllm-project/vllm/issues/6719 and
    https://github.com/vllm-project/vllm/issues/15437: temperature 0 is `transformers` without sampling, twice and in
    any company; drawn rows keep their seeds.
    """
    cold = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
    hot = [SamplingParams(max_tokens=8, temperature=1.5, seed=seed, ignore_eos=True) for seed in range(3)]
    prompts = [prompt_of(5 + seed, seed) for seed in range(3)]
    alone = [answers(build(tiny).generate([prompts[i]], hot[i]))[0] for i in range(3)]
    for _ in range(2):
        server = build(tiny, pages=32)
        assert answers(server.generate([prompts[0]], cold)) == [right(5, 0, 8)]
        done = answers(server.generate([prompts[0], *prompts, prompts[2]], [cold, *hot, cold]))
        assert done == [right(5, 0, 8), *alone, right(7, 2, 8)]
    assert len(set(alone)) == 3 and alone[0] != right(5, 0, 8)


@pytest.mark.parametrize("build", [one_node, two_nodes])
@pytest.mark.parametrize("chunk", [1, 5, 8192])
def test_every_length_across_the_window_edge(build: Build, chunk: int) -> None:
    """https://github.com/huggingface/transformers/issues/41184 and https://github.com/huggingface/transformers/pull/47911.

    Prompts of 1 token to four windows, so that answers cross the edge at each step, in chunks that fit neither the
    window nor the pages.
    """
    model = windowed()
    for length in range(1, 4 * WINDOW, 3 if chunk == 1 else 1):
        server = build(model, max_batch_tokens=chunk)
        assert answers(served(server, [prompt_of(length)], greedy(6))) == [windowed_answer(length)]


@cache
def windowed() -> BoundModel:
    return mistral()


@cache
def windowed_answer(length: int) -> tuple[int, ...]:
    return reference(windowed(), prompt_of(length), 6)


def test_the_window_matters() -> None:
    """With a window as long as the prompt the model of the test above answers otherwise."""
    wide = mistral(sliding_window=200)
    assert any(reference(wide, prompt_of(length), 6) != windowed_answer(length) for length in range(8, 4 * WINDOW))


TEXTS = ["😀", "漢字かな", "a😀b漢c", "é̀", "👩‍👩‍👧‍👦", "\n\t ", "ж" * 5]


@both
@pytest.mark.parametrize("chunk", [3, 8192])
@pytest.mark.parametrize("text", TEXTS)
def test_streamed_characters_are_whole(tiny: BoundModel, build: Build, text: str, chunk: int) -> None:
    """https://github.com/exo-explore/exo/pull/1691 and https://github.com/vllm-project/vllm/issues/48853.

    One token a byte, and the prompt may end inside the first character: the pieces together are the text, none has
    half a character, and nothing of the prompt is said again.
    """
    ids = tiny.encode(text)
    first = len(text[0].encode())
    for inside in range(first):
        prompt = (*tiny.encode("xy"), *ids[:inside])
        script = ids[inside:]
        server = build(tiny, max_batch_tokens=chunk, sampler=lambda _l, r, script=script: script[len(r.output_ids)])
        pieces = list(server.stream(prompt, greedy(len(script))))
        assert tuple(token for piece in pieces for token in piece.token_ids) == script
        joined = "".join(map(str, pieces))
        assert "\ufffd" not in joined and all("\ufffd" not in str(piece) for piece in pieces)
        assert joined == text, f"{inside} bytes of the first character are the prompt's"
        assert pieces[-1].completion is not None and pieces[-1].completion.text == joined
        assert_quiet(server)
