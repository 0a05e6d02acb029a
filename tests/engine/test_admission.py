"""The door: what is served, capped, refused for good or asked to come again, to the token."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers import Server, answers, assert_quiet, finished, gpt2, greedy, llama, pools, prompt_of, reference

from minikv import Cluster, Completion, Engine, NodeConfig, Rejected, SamplingParams
from minikv.config import ServerConfig
from minikv.errors import Busy, ConfigError, InvalidPrompt
from minikv.models.adapter import BoundModel
from minikv.scheduling.admission import Admission, NodeCapacity
from minikv.scheduling.request import Request
from minikv.trace import Finish, Length, Refuse

PAGE = 4
ROOM = 24  # positions of one request, in every server below
Build = Callable[..., Server]


def by_context(model: BoundModel, **settings: Any) -> Engine:
    """The context is what limits; the pool holds more."""
    return Engine(model, page_size=PAGE, num_pages=30, context_length=ROOM, **settings)


def by_pool(model: BoundModel, **settings: Any) -> Engine:
    """The pool is what limits; one token more than it holds is served, because the last one is never written."""
    return Engine(model, page_size=1, num_pages=ROOM - 1, context_length=100, allow_context_above_pool=True, **settings)


def by_default(model: BoundModel, **settings: Any) -> Engine:
    """Nothing is said, so the context is what the pool holds."""
    return Engine(model, page_size=PAGE, num_pages=ROOM // PAGE, **settings)


def two_nodes(model: BoundModel, prefill: int, decode: int, **settings: Any) -> Cluster:
    sizes = {"prefill": NodeConfig(num_pages=prefill), "decode": NodeConfig(num_pages=decode)}
    return Cluster(model, page_size=1, context_length=100, allow_context_above_pool=True, **sizes, **settings)


def by_prefill(model: BoundModel, **settings: Any) -> Cluster:
    return two_nodes(model, ROOM - 1, 60, **settings)


def by_decode(model: BoundModel, **settings: Any) -> Cluster:
    return two_nodes(model, 60, ROOM - 1, **settings)


every = pytest.mark.parametrize("build", [by_context, by_pool, by_default, by_prefill, by_decode])
WHAT = {
    by_context: "the context of 24 tokens",
    by_pool: "the 23 tokens that the engine pool holds",
    by_default: "the context of 24 tokens",
    by_prefill: "the 23 tokens that the prefill pool holds",
    by_decode: "the 23 tokens that the decode pool holds",
}


@cache
def alone(model: BoundModel, length: int, n: int) -> tuple[int, ...]:
    return reference(model, prompt_of(length), n)


def one(server: Server, length: int, max_tokens: int) -> Completion:
    (done,) = finished(server, [server.submit(prompt_of(length), greedy(max_tokens))])
    assert_quiet(server)
    return done


def refusal(done: Completion) -> Rejected:
    """The error of a request that was refused for good, and got nothing."""
    assert type(done.error) is Rejected
    assert (done.finish_reason, done.status, done.token_ids, done.text) == ("rejected", 400, (), "")
    return done.error


def proposed(error: Rejected, what: str) -> int | None:
    """The number that a refusal names as the way on, from its message."""
    found = re.search(rf"{what} ?([\d,]+)", str(error))
    return int(found[1].replace(",", "")) if found else None


# Refuse


@every
@pytest.mark.parametrize("length", [1, 7, 15, 22, 23])
def test_the_largest_max_tokens_that_would_do(tiny: BoundModel, build: Build, length: int) -> None:
    """A refusal names the largest `max_tokens`: that one is served whole, and one more is refused."""
    server = build(tiny)
    error = refusal(one(server, length, 500))
    most = proposed(error, "max_tokens of at most")
    assert most == ROOM - length
    assert error.requested == length and WHAT[build] in str(error)
    done = one(server, length, most)
    assert answers([done]) == [alone(tiny, length, most)] and done.max_tokens == most == len(done.token_ids)
    again = refusal(one(server, length, most + 1))
    assert proposed(again, "max_tokens of at most") == most


@every
@pytest.mark.parametrize("max_tokens", [1, 8, 23])
def test_the_longest_prompt_that_would_do(tiny: BoundModel, build: Build, max_tokens: int) -> None:
    """A refusal names, and carries, the longest prompt: that one is served whole, and one more token is refused."""
    server = build(tiny)
    error = refusal(one(server, 90, max_tokens))
    assert error.limit == ROOM - max_tokens and error.requested == 90
    assert proposed(error, "use at most") == error.limit
    assert proposed(error, "max_tokens of at most") is None, "no answer fits behind a prompt as long as this"
    assert answers([one(server, error.limit, max_tokens)]) == [alone(tiny, error.limit, max_tokens)]
    assert refusal(one(server, error.limit + 1, max_tokens)).limit == error.limit


@every
def test_a_refusal_without_a_way_on_proposes_none(tiny: BoundModel, build: Build) -> None:
    """Neither another prompt nor another `max_tokens` alone would do."""
    error = refusal(one(build(tiny), ROOM, ROOM))
    assert error.limit == 0 and "; use" not in str(error)
    assert "prompt of 24 tokens with max_tokens=24 does not fit" in str(error)


# Cap


@every
@pytest.mark.parametrize("asked", [9, 10, 11, 500])
def test_cap_at_what_fits(tiny: BoundModel, build: Build, asked: int) -> None:
    """15 prompt tokens leave 9: more is cut down to that, said so in the answer, and the tokens are the same."""
    done = one(build(tiny, over_limit="cap"), 15, asked)
    assert (done.finish_reason, done.status, done.max_tokens) == ("length", 200, 9)
    assert answers([done]) == [alone(tiny, 15, 9)]


@every
def test_cap_leaves_alone_what_fits(tiny: BoundModel, build: Build) -> None:
    done = one(build(tiny, over_limit="cap"), 15, 4)
    assert done.max_tokens == 4 and answers([done]) == [alone(tiny, 15, 4)]


@every
@pytest.mark.parametrize("max_tokens", [1, 7, 500])
def test_cap_still_refuses_a_prompt_that_is_too_long(tiny: BoundModel, build: Build, max_tokens: int) -> None:
    """The prompt must leave room for one token, whatever was asked for; one token shorter and it is served."""
    server = build(tiny, over_limit="cap")
    error = refusal(one(server, ROOM, max_tokens))
    assert error.limit == ROOM - 1 and error.requested == ROOM
    done = one(server, error.limit, max_tokens)
    assert done.max_tokens == 1 and answers([done]) == [alone(tiny, ROOM - 1, 1)]


def test_capped_answers_may_end_before_the_cap(tiny: BoundModel) -> None:
    """A stop token inside what was granted ends the answer as "stop", not as "length"."""
    ids = alone(tiny, 15, 9)
    stop = next(token for token in ids[2:] if token not in ids[:2])
    server = by_context(tiny, over_limit="cap")
    params = SamplingParams(max_tokens=500, stop_token_ids=(stop,), ignore_eos=True)
    (done,) = finished(server, [server.submit(prompt_of(15), params)])
    assert (done.finish_reason, done.max_tokens) == ("stop", 9)
    assert done.token_ids == ids[: ids.index(stop) + 1]


# Context and positions


@pytest.mark.parametrize("over_limit", ["refuse", "cap"])
@pytest.mark.parametrize("family", [llama, gpt2])
def test_positions_past_the_models_own_are_refused(family: Callable[..., BoundModel], over_limit: Any) -> None:
    """The last position of the model is used and none after it, whether positions are turned or looked up."""
    name = "n_positions" if family is gpt2 else "max_position_embeddings"
    model = family(**{name: ROOM})
    server = Engine(model, page_size=PAGE, num_pages=30, over_limit=over_limit)
    assert server.context_length == ROOM
    prompt = prompt_of(20)
    (full,) = finished(server, [server.submit(prompt, greedy(4))])
    assert answers([full]) == [reference(model, prompt, 4)]
    (more,) = finished(server, [server.submit(prompt, greedy(5))])
    if over_limit == "cap":
        assert more.max_tokens == 4 and more.token_ids == full.token_ids
    else:
        assert proposed(refusal(more), "max_tokens of at most") == 4
    assert refusal(one(server, ROOM, 1)).requested == ROOM


def test_a_context_past_the_models_positions_is_refused_at_start(tiny: BoundModel) -> None:
    model = llama(max_position_embeddings=ROOM)
    with pytest.raises(ConfigError, match="context_length=25 is more than the 24 positions"):
        Engine(model, page_size=PAGE, num_pages=30, context_length=ROOM + 1)


def test_both_nodes_count() -> None:
    """The same door for one node and for two: the smaller pool decides, on whichever side it is."""
    request = Request(0, prompt_of(10), greedy(5))
    for pools_, fits in [((14, 99), True), ((99, 14), True), ((13, 99), False), ((99, 13), False)]:
        nodes = [NodeCapacity(name, tokens) for name, tokens in zip(("prefill", "decode"), pools_, strict=True)]
        door = Admission(100, nodes)
        if fits:
            assert door.check(request) == 5
            continue
        smaller = nodes[pools_.index(13)].node
        with pytest.raises(Rejected, match=f"the 13 tokens that the {smaller} pool holds") as caught:
            door.check(request)
        assert (caught.value.limit, caught.value.requested) == (9, 10)
        assert Admission(100, nodes, ServerConfig(over_limit="cap")).check(request) == 4


@pytest.mark.parametrize("context", [15, 14])
def test_context_and_pool_are_compared_in_the_same_unit(context: int) -> None:
    """A pool of 14 slots and a context of 15 positions allow the same; a context of 14 allows one less."""
    door = Admission(context, [NodeCapacity("engine", 14)], ServerConfig(over_limit="cap"))
    assert door.check(Request(0, prompt_of(10), greedy(50))) == context - 10


# Busy


def test_busy_is_typed_and_says_how_many_may_wait(tiny: BoundModel) -> None:
    server = by_pool(tiny, max_waiting=2)
    numbers = [server.submit(prompt_of(5), greedy(3)) for _ in range(3)]
    busy = server.result(numbers[2])
    assert type(busy.error) is Busy and isinstance(busy.error, Rejected)
    assert (busy.finish_reason, busy.status, busy.token_ids) == ("rejected", 429, ())
    assert (busy.error.limit, busy.error.requested, busy.error.status) == (2, 3, 429)
    assert "2 requests wait already" in str(busy.error) and "try again later" in str(busy.error)
    assert answers(finished(server, numbers[:2])) == [alone(tiny, 5, 3)] * 2
    assert server.stats().finished == {"rejected": 1, "length": 2}


@pytest.mark.parametrize("build", [by_pool, by_prefill, by_decode])
def test_a_retry_is_served_once_somebody_has_started(tiny: BoundModel, build: Build) -> None:
    """The same request, a step later: those that waited run, so it may wait."""
    server = build(tiny, max_waiting=1)
    first = server.submit(prompt_of(5), greedy(3))
    assert isinstance(server.result(server.submit(prompt_of(6), greedy(3))).error, Busy)
    server.step()
    retry = server.submit(prompt_of(6), greedy(3))
    assert not server.requests[retry].finished
    assert answers(finished(server, [first, retry])) == [alone(tiny, 5, 3), alone(tiny, 6, 3)]
    assert_quiet(server)


def test_a_retry_is_served_after_an_abort(tiny: BoundModel) -> None:
    """Whoever leaves the queue makes room in it."""
    server = by_pool(tiny, max_waiting=1)
    first = server.submit(prompt_of(5), greedy(3))
    server.abort(first)
    second = server.submit(prompt_of(6), greedy(3))
    assert answers(finished(server, [second])) == [alone(tiny, 6, 3)]


def test_those_that_run_do_not_count(tiny: BoundModel) -> None:
    """Three run and one waits; one more is busy only then."""
    server = Engine(tiny, page_size=PAGE, num_pages=30, max_batch_size=3, max_waiting=1)
    running = []
    for _ in range(3):
        running.append(server.submit(prompt_of(5), greedy(9)))
        server.step()
    waits = server.submit(prompt_of(5), greedy(9))
    server.step()
    assert isinstance(server.result(server.submit(prompt_of(5), greedy(9))).error, Busy)
    assert answers(finished(server, [*running, waits])) == [alone(tiny, 5, 9)] * 4


@pytest.mark.parametrize("build", [by_context, by_prefill, by_decode])
@pytest.mark.parametrize("most", [1, 3])
def test_more_prompts_than_may_wait_in_one_call(tiny: BoundModel, build: Build, most: int) -> None:
    """`generate` hands all in before the first step: as many as may wait are served, the others are told to retry."""
    server = build(tiny, max_waiting=most)
    done = server.generate([prompt_of(3 + i) for i in range(6)], greedy(4))
    assert answers(done[:most]) == [alone(tiny, 3 + i, 4) for i in range(most)]
    assert [type(each.error) for each in done[most:]] == [Busy] * (6 - most)
    assert [each.status for each in done[most:]] == [429] * (6 - most)
    assert_quiet(server)
    (retried,) = server.generate([prompt_of(8)], greedy(4))
    assert answers([retried]) == [alone(tiny, 8, 4)]


def test_what_can_never_fit_is_refused_for_good_even_when_busy(tiny: BoundModel) -> None:
    """A 429 asks for a retry, and no retry would help."""
    server = by_context(tiny, max_waiting=1)
    first = server.submit(prompt_of(5), greedy(2))
    assert refusal(server.result(server.submit(prompt_of(30), greedy(2)))).status == 400
    empty = server.result(server.submit([], greedy(2)))
    assert isinstance(empty.error, InvalidPrompt) and empty.status == 400
    assert answers(finished(server, [first])) == [alone(tiny, 5, 2)]


def test_without_a_limit_any_number_may_wait(tiny: BoundModel) -> None:
    server = by_context(tiny)
    numbers = [server.submit(prompt_of(2), greedy(1)) for _ in range(300)]
    assert not any(server.requests[number].finished for number in numbers)
    assert answers(finished(server, numbers)) == [alone(tiny, 2, 1)] * 300


# A refused request touches nothing


def state(server: Server) -> Any:
    """Everything that a request could leave a mark on."""
    return [
        (
            pool.owner.tolist(),
            pool.generation.tolist(),
            sorted(pool.tables),
            pool.num_free,
            copy.deepcopy(vars(pool.allocator)),
            [tensor.numpy().tobytes() for tensor in (*pool.keys, *pool.values)],
            [np.asarray(record).tolist() for record in (pool.ledger.writer, pool.ledger.position)],
            list(node.scheduler.waiting),
            [request.number for request in node.scheduler.running],
        )
        for pool, node in zip(pools(server), server.nodes, strict=True)
    ] + [len(server.between)]


@pytest.mark.parametrize("build", [by_context, by_prefill, by_decode])
@pytest.mark.parametrize(
    ("prompt", "max_tokens", "status"),
    [(prompt_of(40), 1, 400), (prompt_of(3), 500, 400), ([], 3, 400), ([10**6], 3, 400), (prompt_of(3), 2, 429)],
    ids=["too long", "asks too much", "empty", "no token", "busy"],
)
def test_a_refused_request_touches_nothing(
    tiny: BoundModel, build: Build, prompt: list[int], max_tokens: int, status: int
) -> None:
    """Not one byte of a pool, no queue, no transfer; the trace has its length, as given and as the door saw it, and
    that it was refused."""
    server = build(tiny, max_waiting=2)
    ours = [server.submit(prompt_of(5 + i), greedy(6)) for i in range(2)]
    for _ in range(2):
        server.step()
    ours.append(server.submit(prompt_of(7), greedy(6)))
    ours.append(server.submit(prompt_of(8), greedy(6)))
    before, events = state(server), list(server.trace)
    number = server.submit(prompt, greedy(max_tokens))
    assert state(server) == before
    *seen, event = list(server.trace)[len(events) :]
    assert isinstance(event, Refuse) and (event.request, event.status) == (number, status)
    assert [(each.part, each.tokens) for each in seen if isinstance(each, Length)] == [
        (part, event.prompt_tokens) for part in ("client", "door")[: len(seen)]
    ]
    refused = server.result(number)
    server.abort(ours[0])
    done = finished(server, ours)
    assert (refused.finish_reason, refused.status) == ("rejected", status)
    assert [len(each.token_ids) for each in done[1:]] == [6, 6, 6]
    assert answers(done[1:]) == [alone(tiny, length, 6) for length in (6, 7, 8)]
    about = [type(each) for each in server.trace if getattr(each, "request", getattr(each, "owner", None)) == number]
    assert set(about) == {Length, Refuse} and about.count(Refuse) == 1 and len(about) == len(seen) + 1
    assert number not in [each.request for each in server.trace if isinstance(each, Finish)]
    assert_quiet(server)


def test_a_refusal_is_final(tiny: BoundModel) -> None:
    """Steps and an abort after it change nothing: the reason stays what it was, and it is given out once."""
    server = by_context(tiny)
    number = server.submit(prompt_of(40), greedy(3))
    error = server.requests[number].error
    server.step()
    server.abort(number)
    server.check()
    done = server.result(number)
    assert done.error is error and done.finish_reason == "rejected"
    with pytest.raises(KeyError):
        server.result(number)
