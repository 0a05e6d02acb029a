"""The door and what is behind it: every prompt gets exactly one truthful answer, whatever happens to the others."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import (
    VOCABULARY,
    Server,
    answers,
    assert_quiet,
    cluster,
    finished,
    greedy,
    llama,
    pools,
    prompt_of,
    reference,
    served,
)

from minikv import Cluster, Completion, Engine, NodeConfig, Rejected, SamplingParams
from minikv.attention import torch_backend
from minikv.disagg.handoff import Handoff, digest_of
from minikv.disagg.nodes import PrefillNode
from minikv.errors import (
    BrokenRule,
    ConfigError,
    EngineFailed,
    HandoffRefused,
    InvalidPrompt,
    MinikvError,
    RequestAborted,
)
from minikv.memory import FreeList
from minikv.models.adapter import BoundModel
from minikv.scheduling.admission import Admission
from minikv.scheduling.request import FinishReason, Request
from minikv.trace import Finish, Refuse

Build = Callable[..., Server]
PAGE = 4


def one_node(model: BoundModel, pages: int = 16, **settings: Any) -> Server:
    return Engine(model, page_size=PAGE, num_pages=pages, **settings)


def two_nodes(model: BoundModel, pages: int = 16, **settings: Any) -> Server:
    return cluster(model, pages, page_size=PAGE, **settings)


def small_prefill(model: BoundModel, pages: int = 16, **settings: Any) -> Server:
    return unequal(model, pages, 3 * pages, **settings)


def small_decode(model: BoundModel, pages: int = 16, **settings: Any) -> Server:
    return unequal(model, 3 * pages, pages, **settings)


def unequal(model: BoundModel, prefill: int, decode: int, **settings: Any) -> Cluster:
    return Cluster(
        model, prefill=NodeConfig(num_pages=prefill), decode=NodeConfig(num_pages=decode), page_size=PAGE, **settings
    )


both = pytest.mark.parametrize("build", [one_node, two_nodes])
every = pytest.mark.parametrize("build", [one_node, two_nodes, small_prefill, small_decode])


def one(server: Server, prompt: Any, params: SamplingParams | None = None) -> Completion:
    """The answer to one prompt, after which the server must serve another and be quiet."""
    (done,) = server.generate([prompt], params)
    assert_serves(server)
    return done


def assert_serves(server: Server) -> None:
    """The next request gets the right answer, and nothing is left behind."""
    prompt = prompt_of(6, seed=99)
    assert answers(server.generate([prompt], greedy(4))) == [reference(server.model, prompt, 4)]
    assert_quiet(server)


def refusal_of(done: Completion) -> Rejected:
    assert done.finish_reason == "rejected" and done.token_ids == () and done.text == ""
    assert isinstance(done.error, Rejected)
    assert done.status == done.error.status == 400
    return done.error


# Limits


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
    prompt = prompt_of(limit + over)
    done = one(server, prompt, greedy(max_tokens))
    if over <= 0:
        assert answers([done]) == [reference(tiny, prompt, max_tokens)]
    else:
        error = refusal_of(done)
        assert (error.limit, error.requested) == (limit, limit + 1)
        assert str(limit) in str(error) and str(limit + 1) in str(error)


@every
@pytest.mark.parametrize("max_tokens", [1, 5])
@pytest.mark.parametrize("over", [-1, 0, 1])
def test_around_the_smaller_pool(tiny: BoundModel, build: Build, max_tokens: int, over: int) -> None:
    """With a context above the pool, the smaller pool of 64 slots decides: 64 - max_tokens + 1 prompt tokens."""
    server = build(tiny, context_length=500, allow_context_above_pool=True)
    limit = 64 - max_tokens + 1
    prompt = prompt_of(limit + over)
    done = one(server, prompt, greedy(max_tokens))
    if over <= 0:
        assert answers([done]) == [reference(tiny, prompt, max_tokens)]
    else:
        error = refusal_of(done)
        assert (error.limit, error.requested) == (limit, limit + 1)


@both
def test_refused_beside_others(tiny: BoundModel, build: Build) -> None:
    """https://github.com/vllm-project/vllm/issues/286: only the long one is refused, and at once."""
    server = build(tiny)
    prompts = [prompt_of(9), prompt_of(500), [], prompt_of(12)]
    done = server.generate(prompts, greedy(5))
    assert [each.finish_reason for each in done] == ["length", "rejected", "rejected", "length"]
    assert answers([done[0], done[3]]) == [reference(tiny, prompts[i], 5) for i in (0, 3)]


@both
def test_refusal_touches_nothing(tiny: BoundModel, build: Build) -> None:
    server = build(tiny)
    before = [pool.generation.copy() for pool in pools(server)]
    number = server.submit(prompt_of(500))
    refusal_of(server.result(number))
    assert [type(event) for event in server.trace] == [Refuse]
    for pool, generation in zip(pools(server), before, strict=True):
        assert (pool.generation == generation).all()


@both
def test_more_tokens_than_any_prompt_could_get(tiny: BoundModel, build: Build) -> None:
    """No prompt would do; the message must not propose a negative length."""
    error = refusal_of(one(build(tiny), [5], greedy(10_000)))
    assert error.limit == 0 and error.requested == 1 and "-" not in str(error).split("use")[-1]


def test_proposals_of_a_refusal_are_served(tiny: BoundModel) -> None:
    """Whoever follows the message gets an answer."""
    server = one_node(tiny)
    error = refusal_of(one(server, prompt_of(63), greedy(5)))
    assert error.limit is not None and f"at most {error.limit} prompt tokens" in str(error)
    assert answers([one(server, prompt_of(error.limit), greedy(5))])
    fewer = int(str(error).rsplit("max_tokens of at most ", 1)[1])
    assert answers([one(server, prompt_of(63), greedy(fewer))])
    refusal_of(one(server, prompt_of(63), greedy(fewer + 1)))


# Prompts that nobody could read


@both
@pytest.mark.parametrize(
    "prompt",
    [
        [], "", (), [VOCABULARY * 10], [-1], [1, 2, -1], [True, False], [1.0, 2.0], ["1", "2"], [None], [1, None],
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
    assert isinstance(refusal_of(bad), InvalidPrompt)
    assert answers([good]) == [reference(tiny, prompt_of(5), 3)]
    assert_serves(server)


@pytest.mark.parametrize(
    "messages",
    [
        [{}], [{"role": "user"}], [{"content": "x"}], [{"role": 3, "content": "x"}], [{"role": "user", "content": 3}],
        [{"role": "user", "content": None}], [{"role": "user", "content": "x"}, "y"],
        [{"role": "user", "content": "x"}, 5],
    ],
    ids=repr,
)  # fmt: skip
def test_wrong_chat_messages(tiny: BoundModel, messages: Any) -> None:
    """Each needs a role and a content, both text."""
    assert isinstance(refusal_of(one(one_node(tiny), messages)), InvalidPrompt)


def test_vocabulary_edge(tiny: BoundModel) -> None:
    server = one_node(tiny)
    last = tiny.vocabulary - 1
    assert answers([one(server, [0, last], greedy(3))]) == [reference(tiny, [0, last], 3)]
    error = refusal_of(one(server, [0, last + 1]))
    assert error.limit == last and error.requested == last + 1


@pytest.mark.parametrize(
    "ids", [(5, 6, 7), np.array([5, 6, 7]), torch.tensor([5, 6, 7])], ids=lambda i: type(i).__name__
)
def test_ids_in_other_containers(tiny: BoundModel, ids: Any) -> None:
    assert answers([one(one_node(tiny), ids, greedy(4))]) == [reference(tiny, [5, 6, 7], 4)]


def test_text_chat_and_ids_in_one_call(tiny: BoundModel) -> None:
    chat = [{"role": "user", "content": "hi"}]
    prompts = ["abc", chat, [5, 6]]
    done = one_node(tiny).generate(prompts, greedy(4))
    ids = [tiny.encode("abc"), tiny.encode("user: hi\nassistant: "), (5, 6)]
    assert answers(done) == [reference(tiny, each, 4) for each in ids]
    assert [each.prompt_tokens for each in done] == [len(each) for each in ids]
    assert done[0].text == tiny.decode(done[0].token_ids)


def test_text_without_a_tokenizer() -> None:
    server = Engine(llama(), page_size=PAGE, num_pages=8)
    assert "no tokenizer" in str(refusal_of(one(server, "text")))


# Calls that do not fit together


@both
@pytest.mark.parametrize("prompts", ["text", [1, 2, 3], [{"role": "user", "content": "x"}], 5, None])
def test_single_prompt_without_a_list(tiny: BoundModel, build: Build, prompts: Any) -> None:
    server = build(tiny)
    with pytest.raises(ConfigError, match="list of prompts"):
        server.generate(prompts)
    assert_serves(server)


def test_no_prompts(tiny: BoundModel) -> None:
    assert one_node(tiny).generate([]) == []


def test_one_generator_of_prompts_or_an_error(tiny: BoundModel) -> None:
    with pytest.raises(ConfigError, match="list of prompts"):
        one_node(tiny).generate(iter([[1, 2]]))  # type: ignore[arg-type]


@both
@pytest.mark.parametrize(
    "params", [5, {"max_tokens": 5}, "greedy", [0], [{}], [{"max_tokens": 5}], [SamplingParams()] * 2]
)
def test_wrong_params(tiny: BoundModel, build: Build, params: Any) -> None:
    """Nothing of the call is taken in."""
    server = build(tiny)
    with pytest.raises(ConfigError):
        server.generate([[1, 2]], params)
    assert not server.requests
    assert_serves(server)


def test_wrong_params_of_the_second_prompt(tiny: BoundModel) -> None:
    """The first one is not left behind either."""
    server = one_node(tiny)
    with pytest.raises(ConfigError):
        server.generate([[1, 2], [3]], [SamplingParams(), 7])  # type: ignore[list-item]
    assert not server.requests
    assert_serves(server)


@pytest.mark.parametrize("tenant", [["a"], 5, None, ["a", 5]])
def test_wrong_tenants(tiny: BoundModel, tenant: Any) -> None:
    server = one_node(tiny)
    with pytest.raises(ConfigError):
        server.generate([[1], [2]], tenant=tenant)
    assert not server.requests


def test_tenants_and_params_one_for_each(tiny: BoundModel) -> None:
    done = one_node(tiny).generate([[1], [2]], [greedy(2), greedy(3)], tenant=["a", "b"])
    assert [(each.tenant, len(each.token_ids)) for each in done] == [("a", 2), ("b", 3)]


@pytest.mark.parametrize("model", [None, "smollm2", 5])
def test_no_bound_model(model: Any) -> None:
    with pytest.raises(ConfigError, match="load_model"):
        Engine(model)


def test_plain_transformers_model(tiny: BoundModel) -> None:
    with pytest.raises(ConfigError, match="load_model"):
        Engine(tiny.hf)  # type: ignore[arg-type]


# Settings


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "16", float("nan")])
@pytest.mark.parametrize("name", ["num_pages", "page_size", "context_length", "max_batch_size", "max_batch_tokens"])
def test_settings_of_an_engine(tiny: BoundModel, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        Engine(tiny, **{"page_size": 4, "num_pages": 16} | {name: value})


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "16", None])
@pytest.mark.parametrize("name", ["num_pages", "max_batch_size", "max_batch_tokens"])
def test_settings_of_a_node(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        NodeConfig(**{"num_pages": 16} | {name: value})


@pytest.mark.parametrize("name", ["page_size", "context_length"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_settings_of_a_cluster(tiny: BoundModel, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        two_nodes_of(tiny, **{name: value})


def two_nodes_of(model: BoundModel, **settings: Any) -> Cluster:
    return Cluster(model, **{"prefill": NodeConfig(num_pages=4), "decode": NodeConfig(num_pages=4)} | settings)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_node_that_is_no_config(tiny: BoundModel, role: str) -> None:
    with pytest.raises(ConfigError, match=role):
        two_nodes_of(tiny, **{role: 4})


@every
def test_context_that_no_pool_holds(tiny: BoundModel, build: Build) -> None:
    """Refused when the server is built, with the largest that would do, unless it was allowed in so many words."""
    with pytest.raises(ConfigError, match=r"context_length=65.*64 tokens.*allow_context_above_pool"):
        build(tiny, context_length=65)
    assert build(tiny, context_length=65, allow_context_above_pool=True).context_length == 65


def test_context_above_the_positions_of_the_model(tiny: BoundModel) -> None:
    assert tiny.max_positions == 2048
    with pytest.raises(ConfigError, match=r"2049.*2048 positions"):
        Engine(tiny, num_pages=1000, context_length=2049)
    with pytest.raises(ConfigError, match="2048 positions"):
        Engine(tiny, num_pages=4, context_length=2049, allow_context_above_pool=True)


@pytest.mark.parametrize("over", [0, 1])
def test_last_position_of_the_model(over: int) -> None:
    """A pool with room to spare does not let a request past what the model was built for."""
    model = llama(max_position_embeddings=32)
    server = Engine(model, page_size=PAGE, num_pages=64)
    done = one(server, prompt_of(27 + over), greedy(5))
    if over:
        assert refusal_of(done).limit == 27
    else:
        assert answers([done]) == [reference(model, prompt_of(27), 5)]


def test_engine_without_sizes(tiny: BoundModel) -> None:
    """The defaults offer the whole context of the model."""
    server = Engine(tiny)
    assert server.context_length == 2048 and server.pool.num_slots >= 2048


# One final answer


@both
def test_max_tokens_one(tiny: BoundModel, build: Build) -> None:
    """https://github.com/sgl-project/sglang-jax/pull/56: one token, then the pages are back."""
    server = build(tiny)
    assert answers(served(server, [prompt_of(9)], greedy(1))) == [reference(tiny, prompt_of(9), 1)]
    assert_quiet(server)


@both
def test_answer_is_fetched_once(tiny: BoundModel, build: Build) -> None:
    server = build(tiny)
    number = server.submit([1, 2, 3], greedy(2))
    with pytest.raises(ConfigError, match="not finished"):
        server.result(number)
    finished(server, [number])
    for call in (server.result, server.abort):
        with pytest.raises(KeyError):
            call(number)


@both
def test_step_with_nothing_to_do(tiny: BoundModel, build: Build) -> None:
    server = build(tiny)
    for _ in range(3):
        server.step()
    assert_serves(server)


@both
@pytest.mark.parametrize("length", range(1, 2 * PAGE + 2))
@pytest.mark.parametrize("end", ["length", "stop", "abort"])
def test_pages_come_back_however_it_ends(tiny: BoundModel, build: Build, length: int, end: str) -> None:
    """https://github.com/sgl-project/sglang-jax/pull/982: at every length modulo the page size, each page once."""
    server = build(tiny)
    prompt = prompt_of(length)
    eos = reference(tiny, prompt, 5)[-1]
    before, tiny.eos_ids = tiny.eos_ids, frozenset([eos])
    try:
        number = server.submit(prompt, SamplingParams(max_tokens=8, ignore_eos=end != "stop"))
        if end == "abort":
            for _ in range(4):
                server.step()
            server.abort(number)
        (done,) = finished(server, [number])
    finally:
        tiny.eos_ids = before
    assert done.finish_reason == end
    assert_quiet(server)


@pytest.mark.parametrize("build", [one_node, small_prefill, small_decode])
def test_door_that_lets_too_much_in(tiny: BoundModel, build: Build) -> None:
    """Somebody's own door is wrong: what no pool can hold ends with an error, and nobody waits for ever."""
    server = build(tiny, context_length=500, allow_context_above_pool=True)
    server.admission = Admission(500, [])
    too_long = server.submit(prompt_of(80), greedy(5))
    good = server.submit(prompt_of(9), greedy(5))
    bad, fine = finished(server, [too_long, good], most_steps=200)
    assert bad.finish_reason == "error"
    assert answers([fine]) == [reference(tiny, prompt_of(9), 5)]


def test_room_is_promised_to_the_last_token(tiny: BoundModel) -> None:
    """Each writes 9 slots, so 3 pages; with 5 the second waits, though at first 4 would do for both."""
    server = one_node(tiny, pages=5)
    prompts = [prompt_of(4, seed=i) for i in range(2)]
    assert answers(served(server, prompts, greedy(6))) == [reference(tiny, prompt, 6) for prompt in prompts]
    server = one_node(tiny, pages=6)
    numbers = [server.submit(prompt, greedy(6)) for prompt in prompts]
    server.step()
    assert all(number in pools(server)[0].tables for number in numbers), "6 pages are enough for both"


SEVERITIES: tuple[FinishReason, ...] = ("length", "abort", "error", "rejected")


@pytest.mark.parametrize("first", SEVERITIES)
@pytest.mark.parametrize("second", SEVERITIES)
def test_worst_status_wins(first: FinishReason, second: FinishReason) -> None:
    """https://github.com/sgl-project/sglang/issues/33507: a refusal cannot become "length", whoever comes last."""
    request = Request(0, [1], SamplingParams())
    errors = {reason: None if reason == "length" else MinikvError(reason) for reason in SEVERITIES}
    request.finish(first, errors[first])
    request.finish(second, errors[second])
    worst = max(first, second, key=SEVERITIES.index)
    assert request.finish_reason == worst and request.error is errors[worst]


# Aborts


def aborted(server: Server, number: int) -> Completion:
    server.abort(number)
    server.check()
    server.abort(number)  # the second time nothing happens
    done = server.result(number)
    assert done.finish_reason == "abort" and isinstance(done.error, RequestAborted) and done.status == 499
    assert [event.request for event in server.trace if isinstance(event, Finish)].count(number) == 1
    return done


@both
@pytest.mark.parametrize("steps", range(6))
def test_abort_after_so_many_steps(tiny: BoundModel, build: Build, steps: int) -> None:
    """Waiting (0), after the prompt, in the middle: everything is free when `abort` returns, others go on."""
    server = build(tiny)
    numbers = [server.submit(prompt_of(9, seed=i), greedy(12)) for i in range(3)]
    for _ in range(steps):
        server.step()
    done = aborted(server, numbers[1])
    assert not any(numbers[1] in pool.tables for pool in pools(server))
    expected = [reference(tiny, prompt_of(9, seed=i), 12) for i in range(3)]
    assert done.token_ids == expected[1][: len(done.token_ids)]
    assert answers(finished(server, [numbers[0], numbers[2]])) == [expected[0], expected[2]]
    assert_serves(server)


def waiting_for_decode(model: BoundModel) -> tuple[Cluster, list[int]]:
    """Two prompts are done, and the decode pool holds one of them."""
    server = unequal(model, 12, 4)
    numbers = [server.submit(prompt_of(9, seed=i), greedy(7)) for i in range(2)]
    server.step()
    assert numbers[1] in server.prefill.pool.tables and numbers[1] not in server.decode.pool.tables
    return server, numbers


def test_abort_between_prompt_and_handoff(tiny: BoundModel) -> None:
    server, numbers = waiting_for_decode(tiny)
    aborted(server, numbers[1])
    assert server.prefill.pool.num_free == 12
    assert answers(finished(server, numbers[:1])) == [reference(tiny, prompt_of(9), 7)]
    assert_serves(server)


def test_abort_of_whom_the_other_waits_for(tiny: BoundModel) -> None:
    server, numbers = waiting_for_decode(tiny)
    aborted(server, numbers[0])
    assert answers(finished(server, numbers[1:])) == [reference(tiny, prompt_of(9, seed=1), 7)]
    assert_serves(server)


@both
def test_abort_when_the_pages_cannot_be_taken_back(tiny: BoundModel, build: Build) -> None:
    """Also then there is a final answer."""

    class Vandal(FreeList):
        def free(self, pages: Sequence[int]) -> None:
            raise ZeroDivisionError("the free list burnt down")

    server = build(tiny, allocator=Vandal)
    number = server.submit(prompt_of(5), greedy(9))
    server.step()
    server.abort(number)
    assert server.result(number).finish_reason in ("abort", "error")


@both
def test_abort_of_a_finished_request_keeps_its_answer(tiny: BoundModel, build: Build) -> None:
    server = build(tiny)
    number = server.submit(prompt_of(5), greedy(1))
    server.step()
    server.abort(number)
    assert server.result(number).finish_reason == "length"


@both
def test_abort_of_a_refused_request_keeps_the_refusal(tiny: BoundModel, build: Build) -> None:
    """https://github.com/sgl-project/sglang/issues/33507: the worst status wins."""
    server = build(tiny)
    number = server.submit(prompt_of(500))
    server.abort(number)
    refusal_of(server.result(number))


# Parts that break


class Breaks:
    """The plain attention, until a call counted from 1."""

    def __init__(self, at: int, times: int = 1) -> None:
        self.calls, self.at, self.times = 0, at, times

    def __call__(self, *args: Any, **options: Any) -> torch.Tensor:
        self.calls += 1
        if self.at <= self.calls < self.at + self.times:
            raise ZeroDivisionError("no attention today")
        return torch_backend.attend(*args, **options)


@both
@pytest.mark.parametrize("call", [1, 2, 3, 4, 9])
def test_attention_fails_in_a_step(tiny: BoundModel, build: Build, call: int) -> None:
    """In either layer, of the prompt or of a later step: an error that says why, then business as usual."""
    server = build(tiny, attention=Breaks(at=call))
    numbers = [server.submit(prompt_of(9, seed=i), greedy(9)) for i in range(2)]
    for done in finished(server, numbers):
        assert done.finish_reason == "error" and done.status == 500 and isinstance(done.error, EngineFailed)
        assert "ZeroDivisionError: no attention today" in str(done.error)
    assert_serves(server)


@pytest.mark.parametrize("wrong", [None, torch.zeros(1), "text"], ids=["None", "shape", "text"])
def test_attention_returns_nonsense(tiny: BoundModel, wrong: Any) -> None:
    server = one_node(tiny, attention=lambda *_args, **_options: wrong)
    (done,) = server.generate([[1, 2, 3]])
    assert done.finish_reason == "error" and isinstance(done.error, BrokenRule)
    assert "attention gives back [tokens, query heads, value width]" in str(done.error)
    assert_quiet(server)


@both
def test_attention_always_fails(tiny: BoundModel, build: Build) -> None:
    """Many requests, every one of them answered."""
    server = build(tiny, attention=Breaks(at=1, times=10**9))
    done = server.generate([prompt_of(9, seed=i) for i in range(20)], greedy(3))
    assert Counter(each.finish_reason for each in done) == {"error": 20}
    assert_quiet(server)


def wrong_allocator(at: int, hand_out: Callable[[list[int]], object]) -> type[FreeList]:
    """A class whose `at`-th grant, over all nodes, is wrong; every other one is right."""
    grants = itertools.count(1)

    class Wrong(FreeList):
        def allocate(self, n: int) -> list[int]:
            pages = super().allocate(n)
            if next(grants) != at:
                return pages
            super().free(pages)
            return hand_out(pages)  # type: ignore[return-value]

    return Wrong


def explode(_pages: list[int]) -> object:
    raise ZeroDivisionError("no pages today")


@both
@pytest.mark.parametrize("at", range(1, 7))
@pytest.mark.parametrize(
    "hand_out", [lambda p: p[:-1], lambda p: [*p, 99], lambda p: [-1] * len(p), lambda p: None, explode],
    ids=["few", "many", "negative", "None", "raises"],
)  # fmt: skip
def test_allocator_fails_in_a_step(tiny: BoundModel, build: Build, at: int, hand_out: Any) -> None:
    """One wrong grant: whoever it was for hears of it, both rules and reasons; nobody waits for ever."""
    server = build(tiny, allocator=wrong_allocator(at, hand_out))
    numbers = [server.submit(prompt_of(7, seed=i), greedy(9)) for i in range(2)]
    done = finished(server, numbers)
    assert any(each.finish_reason == "error" for each in done)
    for index, each in enumerate(done):
        if each.error is None:
            assert each.token_ids == reference(tiny, prompt_of(7, seed=index), 9)
        else:
            assert "no pages today" in str(each.error) or "allocator lends" in str(each.error), each.error
    assert_serves(server)


def test_allocator_that_takes_nothing_back(tiny: BoundModel) -> None:
    """A learner's leak: pages are gone for good, so later requests are answered with an error, never left to wait."""

    class Leaks(FreeList):
        def free(self, pages: Sequence[int]) -> None:
            pass

    server = one_node(tiny, pages=6, allocator=Leaks)
    done = [server.generate([prompt_of(9)], greedy(2))[0] for _ in range(4)]
    assert done[0].finish_reason == "length"
    assert [each.finish_reason for each in done[2:]] == ["error", "error"]


def test_broken_for_good(tiny: BoundModel) -> None:
    """If the pools are not whole after a failure, running and later requests are told so."""

    class Vandal(FreeList):
        def free(self, pages: Sequence[int]) -> None:
            raise ZeroDivisionError("the free list burnt down")

    server = one_node(tiny, allocator=Vandal)
    numbers = [server.submit(prompt_of(5, seed=i), greedy(2 + i)) for i in range(2)]
    for done in finished_unchecked(server, numbers):
        assert done.finish_reason in ("length", "error")
    (later,) = server.generate([[1, 2]], greedy(2))
    assert later.finish_reason == "error" and "burnt down" in str(later.error)


def finished_unchecked(server: Server, numbers: Sequence[int]) -> list[Completion]:
    for _ in range(100):
        if all(server.requests[number].finished for number in numbers):
            break
        server.step()
    return [server.result(number) for number in numbers]


# Between two nodes


def test_full_decode_pool_makes_handoffs_wait(tiny: BoundModel) -> None:
    """Room for one request at a time behind a prefill node with room for many: all are served, in order."""
    server = unequal(tiny, 40, 5)
    prompts = [prompt_of(10, seed=i) for i in range(7)]
    numbers = [server.submit(prompt, greedy(9)) for prompt in prompts]
    assert answers(finished(server, numbers)) == [reference(tiny, prompt, 9) for prompt in prompts]
    ends = [event.request for event in server.trace if isinstance(event, Finish)]
    assert ends == numbers
    assert_quiet(server)


def test_decode_batch_of_one(tiny: BoundModel) -> None:
    server = Cluster(
        tiny, prefill=NodeConfig(num_pages=40), decode=NodeConfig(num_pages=40, max_batch_size=1), page_size=PAGE
    )
    prompts = [prompt_of(5 + i, seed=i) for i in range(4)]
    assert answers(served(server, prompts, greedy(6))) == [reference(tiny, prompt, 6) for prompt in prompts]


def tampered(handoff: Handoff, how: str) -> Handoff:
    keys = tuple(tensor.clone() for tensor in handoff.keys)
    values = tuple(tensor.clone() for tensor in handoff.values)
    if how == "key bit":
        keys[1].flatten(0, 1)[handoff.num_tokens - 1, 0, 0] += 1e-6
        return replace(handoff, keys=keys)
    if how == "value bit":
        values[0][0, 0, 0, 0] *= -1
        return replace(handoff, values=values)
    if how == "first token":
        return replace(handoff, first_token=handoff.first_token + 1)
    if how == "swapped layers":
        return replace(handoff, keys=keys[::-1])
    if how == "last page lost":
        return replace(handoff, keys=tuple(k[:-1] for k in keys), values=tuple(v[:-1] for v in values))
    if how == "last page zero":
        for tensor in (*keys, *values):
            tensor[-1] = 0
        return replace(handoff, keys=keys, values=values)
    if how == "last layer lost":
        return replace(handoff, keys=keys[:-1], values=values[:-1])
    if how == "no pages":
        return replace(handoff, keys=(), values=())
    if how == "one page more":
        return replace(
            handoff,
            keys=tuple(torch.cat([k, k[:1]]) for k in keys),
            values=tuple(torch.cat([v, v[:1]]) for v in values),
        )
    if how == "half precision":
        halves = tuple(k.half() for k in keys), tuple(v.half() for v in values)
        digest = digest_of(handoff.request, handoff.num_tokens, handoff.first_token, *halves)
        return replace(handoff, keys=halves[0], values=halves[1], digest=digest)
    numbers = {"fewer tokens": -1, "more tokens": 1, "another request": 0}
    changed = replace(
        handoff, num_tokens=handoff.num_tokens + numbers[how], request=handoff.request + (how == "another request")
    )
    digest = digest_of(changed.request, changed.num_tokens, changed.first_token, keys, values)
    return replace(changed, digest=digest)


HOWS = [
    "key bit", "value bit", "first token", "swapped layers", "last page lost", "last page zero", "last layer lost",
    "no pages", "one page more", "half precision", "fewer tokens", "more tokens", "another request",
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


@pytest.mark.parametrize("bad_handoff", HOWS, indirect=True)
def test_spoilt_handoff(tiny: BoundModel, bad_handoff: type[Cluster]) -> None:
    """https://github.com/sgl-project/sglang/issues/30233: complete and authentic, or nothing; the others do not notice.

    The digest is correct in the last four: there only the length, the form or the identity is wrong.
    """
    sizes = {"prefill": NodeConfig(num_pages=16), "decode": NodeConfig(num_pages=16)}
    server = bad_handoff(tiny, **sizes, page_size=PAGE)
    before = [tensor.clone() for tensor in server.decode.pool.keys]
    spoilt = server.submit(prompt_of(9), greedy(6))
    server.step()
    for ours, theirs in zip(before, server.decode.pool.keys, strict=True):
        assert torch.equal(ours, theirs), "something was taken of a refused handoff"
    good = server.submit(prompt_of(7), greedy(6))
    bad, fine = finished(server, [spoilt, good])
    assert bad.finish_reason == "error" and isinstance(bad.error, HandoffRefused) and bad.status == 502
    assert answers([fine]) == [reference(tiny, prompt_of(7), 6)]
    assert_serves(server)


def test_handoff_delivered_twice(tiny: BoundModel) -> None:
    """The second is refused, during the answer and after it, and changes nothing."""
    server = two_nodes(tiny)
    assert isinstance(server, Cluster)
    kept: list[tuple[Any, Handoff]] = []
    receive = server.decode.receive
    server.decode.receive = lambda own, handoff: (kept.append((own, handoff)), receive(own, handoff))[1]  # type: ignore[method-assign]
    number = server.submit(prompt_of(9), greedy(6))
    server.step()
    server.step()
    with pytest.raises(HandoffRefused, match="may have come before"):
        receive(*kept[0])
    assert answers(finished(server, [number])) == [reference(tiny, prompt_of(9), 6)]
    with pytest.raises(HandoffRefused):
        receive(*kept[0])
    assert_serves(server)


def test_handoff_after_an_abort(tiny: BoundModel) -> None:
    """Decode has reserved, the request is aborted, then the handoff comes: refused, and the pages stay free."""
    server = two_nodes(tiny)
    assert isinstance(server, Cluster)
    server.decode.config = NodeConfig(num_pages=16, max_batch_size=1)
    blocker, number = (server.submit(prompt_of(9, seed=i), greedy(20)) for i in range(2))
    server.step()
    request = server.requests[number]
    handoff = server.prefill.export(request)
    server.abort(blocker)
    assert server.decode.reserve(request)
    server.abort(number)
    with pytest.raises(HandoffRefused):
        server.decode.receive(request, handoff)
    assert_quiet(server)


def test_decode_reads_only_the_handoff(tiny: BoundModel) -> None:
    """A fresh decode pool full of NaN changes nothing: decode reads what came and what it writes."""
    server = unequal(tiny, 8, 30)
    server.decode.pool.fill_unwritten(float("nan"))
    prompt = prompt_of(18)
    assert answers(served(server, [prompt], greedy(12))) == [reference(tiny, prompt, 12)]


def test_broken_rule_names_its_rule() -> None:
    error = BrokenRule("a page is freed once", "page 3")
    assert error.rule == "a page is freed once" and str(error) == "a page is freed once: page 3"
