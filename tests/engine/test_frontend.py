"""The door and what is behind it: every prompt gets exactly one truthful answer, whatever happens to the others."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from helpers import (
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
from minikv.errors import (
    BrokenRule,
    ConfigError,
    EngineFailed,
    InvalidPrompt,
    MinikvError,
    RequestAborted,
)
from minikv.memory import FreeList
from minikv.models.adapter import BoundModel
from minikv.scheduling.admission import Admission
from minikv.scheduling.request import FinishReason, Request
from minikv.trace import Finish, Length, Refuse

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


@both
def test_refusal_touches_nothing(tiny: BoundModel, build: Build) -> None:
    server = build(tiny)
    before = [pool.generation.copy() for pool in pools(server)]
    number = server.submit(prompt_of(500))
    refusal_of(server.result(number))
    assert [type(event) for event in server.trace] == [Length, Length, Refuse]
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


def test_broken_rule_names_its_rule() -> None:
    error = BrokenRule("a page is freed once", "page 3")
    assert error.rule == "a page is freed once" and str(error) == "a page is freed once: page 3"
