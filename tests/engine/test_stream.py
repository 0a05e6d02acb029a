"""Answers piece by piece: the same as whole ones, and whoever leaves early leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import Server, assert_quiet, cluster, greedy, llama, pools, prompt_of, reference

from minikv import Completion, Engine, SamplingParams
from minikv.attention import torch_backend
from minikv.errors import ConfigError, EngineFailed, InvalidPrompt, Rejected, RequestAborted
from minikv.models.adapter import BoundModel
from minikv.sampling import sample
from minikv.scheduling.request import Request
from minikv.streaming import Chunk
from minikv.text import BROKEN

Build = Callable[..., Server]
PROMPT = prompt_of(9)
TOKENS = 10
SOON = 30.0  # seconds; nothing here takes as long, unless it hangs

BUILDS: dict[str, Build] = {
    "engine": lambda model, **parts: Engine(model, page_size=4, num_pages=64, **parts),
    "chunks": lambda model, **parts: Engine(model, page_size=4, num_pages=13, max_batch_tokens=3, **parts),
    "cluster": lambda model, **parts: cluster(model, 64, page_size=4, **parts),
}
builds = pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)


def text_of(pieces: list[Chunk]) -> str:
    return "".join(map(str, pieces))


def tokens_of(pieces: list[Chunk]) -> tuple[int, ...]:
    return tuple(token for piece in pieces for token in piece.token_ids)


def whole(pieces: list[Chunk], number: int) -> Completion:
    """The completion that ends some pieces; they must be those of it, and of request `number`."""
    completion = pieces[-1].completion
    assert completion is not None and completion.request_id == number
    assert all(piece.completion is None for piece in pieces[:-1])
    assert {piece.request_id for piece in pieces} == {number}
    assert (text_of(pieces), tokens_of(pieces)) == (completion.text, completion.token_ids)
    return completion


def assert_left(server: Server, **finished: int) -> None:
    """Nobody is known any more, every page is free, and so many answers were given for each reason."""
    assert not server.requests
    assert server.finished == finished
    assert_quiet(server)


def saying(model: BoundModel, text: str) -> Callable[[torch.Tensor, Request], int]:
    """A sampler that writes a text over and over, byte by byte."""
    ids = model.encode(text)
    return lambda _logits, request: ids[len(request.output_ids) % len(ids)]


def failing(at: int) -> Callable[..., torch.Tensor]:
    """An attention that fails in one call."""
    calls = 0

    def attend(*given: Any, **named: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == at:
            raise RuntimeError("no attention")
        return torch_backend.attend(*given, **named)

    return attend


# What comes


@builds
@pytest.mark.parametrize(
    "params",
    [
        greedy(TOKENS),
        greedy(1),
        SamplingParams(max_tokens=TOKENS, temperature=3.0, seed=5, logprobs=2),
        SamplingParams(max_tokens=40, stop=["\ufffd"], min_tokens=7),
        SamplingParams(max_tokens=40, stop_token_ids=range(0, 257, 5), min_tokens=3),
        SamplingParams(max_tokens=TOKENS, stop=["never said", "\ufffd" * 40]),
    ],
    ids=["greedy", "one", "drawn", "stop", "stop_token", "held"],
)
def test_pieces_are_the_answer_of_generate(tiny: BoundModel, build: Build, params: SamplingParams) -> None:
    (want,) = build(tiny).generate([PROMPT], params, tenant="ann")
    server = build(tiny)
    pieces = list(server.stream(PROMPT, params, "ann"))
    assert whole(pieces, 0) == want
    assert want.tenant == "ann"
    assert all(piece.token_ids for piece in pieces)
    assert_left(server, **{want.finish_reason: 1})


def test_each_token_comes_at_once(tiny: BoundModel) -> None:
    server = BUILDS["engine"](tiny)
    for index, piece in enumerate(server.stream(PROMPT, greedy(5))):
        assert piece.token_ids == (reference(tiny, PROMPT, 5)[index],)
        assert (server.trace.step, piece.completion is None) == (index + 1, index < 4)


def test_pieces_are_whole_characters(tiny: BoundModel) -> None:
    """https://github.com/vllm-project/vllm/issues/48853: held until the last byte is there, and given out then."""
    server = BUILDS["engine"](tiny, sampler=saying(tiny, "aé🙂!"))
    pieces = list(server.stream(PROMPT, greedy(10)))
    assert [piece.text for piece in pieces] == ["a", "", "é", "", "", "", "🙂", "!", "a", BROKEN]
    assert whole(pieces, 0).text == "aé🙂!a" + BROKEN


def test_prompt_that_ends_inside_a_character(tiny: BoundModel) -> None:
    smile = tiny.encode("🙂")
    server = BUILDS["engine"](tiny, sampler=lambda logits, request: (*smile[2:], *smile)[len(request.output_ids)])
    assert [piece.text for piece in server.stream([5, *smile[:2]], greedy(6))] == ["", "🙂", "", "", "", "🙂"]


def test_text_that_may_become_a_stop_is_held(tiny: BoundModel) -> None:
    server = BUILDS["engine"](tiny, sampler=saying(tiny, "abcabd"))
    params = SamplingParams(max_tokens=20, stop=["abd", "never"])
    pieces = list(server.stream(PROMPT, params))
    assert [piece.text for piece in pieces] == ["", "", "abc", "", "", ""]
    assert (whole(pieces, 0).finish_reason, len(tokens_of(pieces))) == ("stop", 6)
    assert_left(server, stop=1)


def test_model_without_a_tokenizer() -> None:
    model = llama()
    pieces = list(Engine(model, page_size=4, num_pages=16).stream(PROMPT, greedy(4)))
    assert [(piece.text, piece.token_ids) for piece in pieces] == [
        ("", (token,)) for token in reference(model, PROMPT, 4)
    ]


@builds
def test_streams_side_by_side(tiny: BoundModel, build: Build) -> None:
    """One loop over several; each gets all that is its own, also what was computed when others asked."""
    server = build(tiny)
    prompts = [prompt_of(length) for length in (9, 4, 12)]
    streams = [server.stream(prompt, greedy(count)) for prompt, count in zip(prompts, (10, 3, 7), strict=True)]
    found: list[list[Chunk]] = [[], [], []]
    left = {0, 1, 2}
    while left:
        for index in sorted(left):
            try:
                found[index].append(next(streams[index]))
            except StopIteration:
                left.remove(index)
            server.check()
    for pieces, prompt, count in zip(found, prompts, (10, 3, 7), strict=True):
        assert tokens_of(pieces) == reference(tiny, prompt, count)
        whole(pieces, pieces[0].request_id)
    assert_left(server, length=3)


def test_slow_reader_gets_several_tokens_at_once(tiny: BoundModel) -> None:
    server = BUILDS["engine"](tiny)
    slow = server.stream(PROMPT, greedy(8))
    first = next(slow)
    server.generate([PROMPT], greedy(5))
    second = next(slow)
    assert len(second.token_ids) == 5
    assert tokens_of([first, second, *slow]) == reference(tiny, PROMPT, 8)
    assert_left(server, length=2)


def test_answer_that_is_there_before_it_is_asked_for(tiny: BoundModel) -> None:
    server = BUILDS["engine"](tiny)
    slow = server.stream(PROMPT, greedy(3))
    pieces = [next(slow)]
    server.generate([PROMPT], greedy(9))
    steps = server.trace.step
    pieces += slow
    assert whole(pieces, 0).token_ids == reference(tiny, PROMPT, 3)
    assert (len(pieces), server.trace.step) == (2, steps)


def test_nothing_happens_before_the_first_piece(tiny: BoundModel) -> None:
    server = BUILDS["engine"](tiny)
    streams = [server.stream(PROMPT, greedy(3)) for _ in range(3)]
    assert not server.requests and server.trace.step == 0
    streams[0].close()  # type: ignore[attr-defined]
    del streams
    assert_left(server)


# What goes wrong


@builds
@pytest.mark.parametrize(
    ("prompt", "params", "error"),
    [
        ([], greedy(1), InvalidPrompt),
        ([999], greedy(1), InvalidPrompt),
        (PROMPT, greedy(10**6), Rejected),
        (PROMPT, SamplingParams(n=2), ConfigError),
        (PROMPT, {"max_tokens": 5}, ConfigError),
    ],
    ids=["empty", "unknown", "too_long", "two_answers", "params"],
)
def test_refusal_is_raised(tiny: BoundModel, build: Build, prompt: Any, params: Any, error: type[Exception]) -> None:
    server = build(tiny)
    with pytest.raises(error):
        next(server.stream(prompt, params))
    with pytest.raises(error):
        asyncio.run(anext(server.stream_async(prompt, params)))  # type: ignore[arg-type]
    assert_left(server, **({} if error is ConfigError else {"rejected": 2}))


@builds
@pytest.mark.parametrize("after", [1, 4, 9])
def test_abort_by_another(tiny: BoundModel, build: Build, after: int) -> None:
    server = build(tiny)
    stream = server.stream(PROMPT, greedy(TOKENS))
    pieces: list[Chunk] = []
    while len(tokens_of(pieces)) < after:
        pieces.append(next(stream))
    server.abort(pieces[0].request_id)
    assert all(pool.num_free == pool.num_pages for pool in pools(server))
    before = tokens_of(pieces)
    with pytest.raises(RequestAborted, match=f"request {pieces[0].request_id} "):
        pieces += stream  # perhaps the text of a broken character
    assert before == tokens_of(pieces) == reference(tiny, PROMPT, TOKENS)[: len(before)]
    assert_left(server, abort=1)
    assert list(stream) == []


def test_tokens_before_an_abort_come_before_the_error(tiny: BoundModel) -> None:
    server = BUILDS["engine"](tiny)
    stream = server.stream(PROMPT, greedy(TOKENS))
    pieces = [next(stream)]
    for _ in range(3):
        server.step()
    server.abort(0)
    pieces.append(next(stream))
    with pytest.raises(RequestAborted):
        next(stream)
    assert tokens_of(pieces) == reference(tiny, PROMPT, TOKENS)[:4]
    assert_left(server, abort=1)


def test_text_before_an_abort_comes_before_the_error(tiny: BoundModel) -> None:
    """The pieces of an answer that ends badly are its text as well, with what was held back."""
    server = BUILDS["engine"](tiny, sampler=saying(tiny, "abcd"))
    pieces: list[Chunk] = []
    with pytest.raises(RequestAborted):
        for piece in server.stream(PROMPT, SamplingParams(max_tokens=TOKENS, stop=["bcd!"])):
            pieces.append(piece)
            if len(tokens_of(pieces)) == 3:
                server.abort(0)
    assert text_of(pieces) == "abc"


@pytest.mark.parametrize("build", [BUILDS["engine"], BUILDS["cluster"]], ids=["engine", "cluster"])
@pytest.mark.parametrize("step", [1, 2, 5])
def test_fault_in_a_step(tiny: BoundModel, build: Build, step: int) -> None:
    """Its reason is raised in every stream that it harms; the engine goes on."""
    layers = tiny.hf.config.num_hidden_layers
    server = build(tiny, attention=failing(1 + layers * (step - 1)))
    one, two = server.stream(PROMPT, greedy(TOKENS)), server.stream(PROMPT, greedy(TOKENS))
    pieces: tuple[list[Chunk], list[Chunk]] = ([], [])
    with pytest.raises(EngineFailed, match="RuntimeError: no attention"):
        for chunk in one:
            pieces[0].append(chunk)
    assert tokens_of(pieces[0]) == reference(tiny, PROMPT, TOKENS)[: step - 1]
    assert tokens_of(list(two)) == reference(tiny, PROMPT, TOKENS)
    assert_left(server, error=1, length=1)


def test_fault_is_told_to_all_streams(tiny: BoundModel) -> None:
    server = BUILDS["engine"](tiny, attention=failing(1 + 2 * 3))
    streams = [server.stream(PROMPT, greedy(TOKENS)) for _ in range(3)]
    found = [[next(stream)] for stream in streams]
    for pieces, stream in zip(found, streams, strict=True):
        with pytest.raises(EngineFailed, match="no attention"):
            for chunk in stream:
                pieces.append(chunk)
    assert [tokens_of(pieces) for pieces in found] == [reference(tiny, PROMPT, TOKENS)[:n] for n in (3, 2, 1)]
    assert_left(server, error=3)


# Leaving early


@builds
@pytest.mark.parametrize("after", [1, TOKENS - 2])
@pytest.mark.parametrize("way", ["break", "close", "throw", "drop", "error"])
def test_leaving_early(tiny: BoundModel, build: Build, after: int, way: str) -> None:
    """Everything is given back once, when the loop is left; the one beside it goes on."""
    server = build(tiny)
    stream: Any = server.stream(PROMPT, greedy(TOKENS))
    beside = server.stream(prompt_of(4), greedy(2 * TOKENS))
    pieces = [next(beside)]
    if way == "break":
        for count, _ in enumerate(stream, 1):
            if count == after:
                break
        del stream  # a loop over `server.stream(...)` itself holds no other reference
    elif way == "error":
        with pytest.raises(ZeroDivisionError):
            for count, _ in enumerate(server.stream(PROMPT, greedy(TOKENS)), 1):
                1 // (after - count)
    else:
        for _ in range(after):
            next(stream)
        if way == "close":
            stream.close()
            stream.close()
        elif way == "throw":
            with pytest.raises(KeyboardInterrupt):
                stream.throw(KeyboardInterrupt())
        else:
            del stream
    assert list(server.requests) == [0] and server.finished == {"abort": 1}
    server.check()
    pieces += beside
    assert tokens_of(pieces) == reference(tiny, prompt_of(4), 2 * TOKENS)
    assert_left(server, abort=1, length=1)


def test_closed_after_the_end(tiny: BoundModel) -> None:
    server = BUILDS["engine"](tiny)
    stream: Any = server.stream(PROMPT, greedy(2))
    assert len(list(stream)) == 2
    stream.close()
    assert_left(server, length=1)


def test_closed_after_an_abort(tiny: BoundModel) -> None:
    server = BUILDS["engine"](tiny)
    stream: Any = server.stream(PROMPT, greedy(5))
    server.abort(next(stream).request_id)
    stream.close()
    assert_left(server, abort=1)


# In an event loop


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, SOON))


async def quiet(server: Server) -> None:
    """Wait until a thread that was left behind is done."""
    end = time.monotonic() + SOON / 3
    while (server.requests or not server.finished) and time.monotonic() < end:
        await asyncio.sleep(0.005)


@builds
def test_async_pieces_are_the_answer_of_generate(tiny: BoundModel, build: Build) -> None:
    params = SamplingParams(max_tokens=TOKENS, temperature=3.0, seed=5, logprobs=1)
    (want,) = build(tiny).generate([PROMPT], params, tenant="ann")
    server = build(tiny)

    async def main() -> list[Chunk]:
        return [piece async for piece in server.stream_async(PROMPT, params, "ann")]

    assert whole(run(main()), 0) == want
    assert_left(server, length=1)


def test_event_loop_goes_on_during_a_step(tiny: BoundModel) -> None:
    """Each step waits until the loop has turned three more times."""
    ticks, waited = 0, []

    def slow(logits: torch.Tensor, request: Request) -> int:
        until, end = ticks + 3, time.monotonic() + 3
        while ticks < until and time.monotonic() < end:
            time.sleep(0.001)
        waited.append(ticks >= until)
        return sample(logits, request)

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    async def main() -> tuple[int, ...]:
        ticking = asyncio.create_task(tick())
        server = BUILDS["engine"](tiny, sampler=slow)
        pieces = [piece async for piece in server.stream_async(PROMPT, greedy(4))]
        ticking.cancel()
        return tokens_of(pieces)

    assert run(main()) == reference(tiny, PROMPT, 4)
    assert waited == [True] * 4


@pytest.mark.parametrize("kind", ["wide", "narrow", "cluster"])
def test_many_at_once(tiny: BoundModel, kind: str) -> None:
    """More streams than worker threads, and than the pool holds; others come and are aborted between."""
    server: Server = (
        cluster(tiny, 24, page_size=4)
        if kind == "cluster"
        else Engine(tiny, page_size=4, num_pages=400 if kind == "wide" else 12, max_batch_tokens=16)
    )
    prompts = [prompt_of(3 + index) for index in range(8)]
    want = [reference(tiny, prompt, 6) for prompt in prompts]

    async def one(index: int) -> tuple[int, ...]:
        pieces = [piece async for piece in server.stream_async(prompts[index % 8], greedy(6))]
        whole(pieces, pieces[0].request_id)
        return tokens_of(pieces)

    async def come_and_go() -> int:
        count = 0
        for count in range(1, 21):
            number = await asyncio.to_thread(server.submit, prompts[count % 8], greedy(20))
            await asyncio.sleep(0.002)
            await asyncio.to_thread(server.forget, number)
        return count

    async def main() -> list[Any]:
        return await asyncio.gather(*map(one, range(40)), come_and_go())

    *found, others = run(main())
    assert found == want * 5
    assert server.finished["length"] + server.finished.get("abort", 0) == 40 + others
    assert server.finished["length"] >= 40
    assert_left(server, **server.finished)


@builds
@pytest.mark.parametrize("way", ["break", "aclose", "drop", "error", "athrow"])
def test_leaving_early_async(tiny: BoundModel, build: Build, way: str) -> None:
    server = build(tiny)

    async def main() -> None:
        stream: Any = server.stream_async(PROMPT, greedy(TOKENS))
        if way == "break":
            async for piece in stream:
                if piece.token_ids:
                    break
            del stream
        elif way == "error":
            with pytest.raises(ZeroDivisionError):
                async for piece in stream:
                    1 // (len(piece.token_ids) - 1)
            del stream
        else:
            await anext(stream)
            if way == "aclose":
                await stream.aclose()
                assert_left(server, abort=1)
            elif way == "athrow":
                with pytest.raises(ZeroDivisionError):
                    await stream.athrow(ZeroDivisionError())
                assert_left(server, abort=1)
            else:
                del stream
        await quiet(server)

    run(main())
    assert_left(server, abort=1)


def test_loop_that_ends_before_its_stream(tiny: BoundModel) -> None:
    """`asyncio.run` closes what was left open."""
    server = BUILDS["engine"](tiny)
    kept: list[AsyncIterator[Chunk]] = []

    async def main() -> None:
        kept.append(server.stream_async(PROMPT, greedy(TOKENS)))
        await anext(kept[0])

    run(main())
    assert_left(server, abort=1)


class Gate:
    """A sampler that waits, in one step, until it may go on."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, logits: torch.Tensor, request: Request) -> int:
        if len(request.output_ids) == self.at:
            self.reached.set()
            assert self.open.wait(SOON)
        return sample(logits, request)


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("at", [0, 3, TOKENS - 1])
@pytest.mark.parametrize("build", [BUILDS["engine"], BUILDS["cluster"]], ids=["engine", "cluster"])
def test_task_cancelled_during_a_step(tiny: BoundModel, build: Build, at: int, times: int) -> None:
    """The step goes on in its thread; when it ends, so does the request, and nobody steps for it any more."""
    gate = Gate(at)
    server = build(tiny, sampler=gate)

    async def consume() -> None:
        async for _ in server.stream_async(PROMPT, greedy(TOKENS)):
            pass

    async def main() -> None:
        task = asyncio.create_task(consume())
        await asyncio.to_thread(gate.reached.wait, SOON)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.01)
        assert len(server.requests) == 1
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await quiet(server)

    run(main())
    steps = server.trace.step
    time.sleep(0.02)
    assert server.trace.step == steps
    assert_left(server, **({"length": 1} if at == TOKENS - 1 else {"abort": 1}))


def test_task_cancelled_while_it_submits(tiny: BoundModel) -> None:
    """Another thread is in a step, so that `submit` waits for it; the request comes when its reader has gone."""
    gate = Gate(0)
    server = BUILDS["engine"](tiny, sampler=gate)

    async def consume() -> None:
        async for _ in server.stream_async(PROMPT, greedy(TOKENS)):
            pass

    async def main() -> None:
        other = asyncio.create_task(asyncio.to_thread(server.generate, [PROMPT], greedy(3)))
        await asyncio.to_thread(gate.reached.wait, SOON)
        task = asyncio.create_task(consume())
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.sleep(0.02)
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        (answer,) = await other
        assert answer.token_ids == reference(tiny, PROMPT, 3)
        await asyncio.sleep(0.1)

    run(main())
    assert not server.requests
    assert_quiet(server)


def test_async_abort_by_another(tiny: BoundModel) -> None:
    server = BUILDS["engine"](tiny)

    async def main() -> list[Chunk]:
        pieces: list[Chunk] = []
        with pytest.raises(RequestAborted):
            async for piece in server.stream_async(PROMPT, greedy(TOKENS)):
                pieces.append(piece)
                if len(pieces) == 3:
                    await asyncio.to_thread(server.abort, piece.request_id)
        return pieces

    assert tokens_of(run(main())) == reference(tiny, PROMPT, TOKENS)[:3]
    assert_left(server, abort=1)


def test_async_fault_in_a_step(tiny: BoundModel) -> None:
    """All that wait are told, though one of them alone ran the step."""
    server = BUILDS["engine"](tiny, attention=failing(1 + 2 * 4))

    async def one() -> None:
        async for _ in server.stream_async(PROMPT, greedy(200)):
            pass

    async def main() -> list[Any]:
        return await asyncio.gather(*(one() for _ in range(8)), return_exceptions=True)

    found = run(main())
    failed = [error for error in found if error is not None]
    assert failed and all(isinstance(error, EngineFailed) and "no attention" in str(error) for error in failed)
    assert server.finished.get("error") == len(failed)
    assert sum(server.finished.values()) == 8
    assert not server.requests
    assert_quiet(server)


# Threads


@pytest.mark.parametrize("build", [BUILDS["engine"], BUILDS["cluster"]], ids=["engine", "cluster"])
def test_threads_generate_stream_and_abort(tiny: BoundModel, build: Build) -> None:
    """Each answer is the reference's, or its beginning if it was aborted; nobody hangs and nothing is left."""
    server = build(tiny)
    prompts = [prompt_of(3 + index) for index in range(5)]
    want = [reference(tiny, prompt, 12) for prompt in prompts]
    over = threading.Event()

    def generate() -> int:
        for _ in range(3):
            for answer, right in zip(server.generate(prompts, greedy(12)), want, strict=True):
                assert answer.token_ids == right[: len(answer.token_ids)]
                assert answer.finish_reason == ("length" if answer.token_ids == right else "abort") or isinstance(
                    answer.error, RequestAborted
                )
        return 15

    def stream(which: int) -> int:
        for _ in range(5):
            pieces: list[Chunk] = []
            with contextlib.suppress(RequestAborted):
                for piece in server.stream(prompts[which], greedy(12)):
                    pieces.append(piece)
            found = tokens_of(pieces)
            assert found == want[which][: len(found)]
            assert not pieces or (pieces[-1].completion is not None) == (found == want[which]) or len(found) == 12
        return 5

    def abort() -> int:
        count = 0
        while not over.wait(0.004):
            for number in list(server.requests)[count % 3 :: 3]:
                with contextlib.suppress(KeyError):
                    server.abort(number)
            count += 1
        return 0

    with ThreadPoolExecutor(6) as threads:
        try:
            aborting = threads.submit(abort)
            work = [threads.submit(generate), *(threads.submit(stream, which) for which in range(4))]
            total = sum(each.result(SOON) for each in work)
        finally:
            over.set()
        aborting.result(SOON)
    assert sum(server.finished.values()) == total == 35
    assert set(server.finished) <= {"length", "abort"}
    assert not server.requests
    assert_quiet(server)


def test_abort_is_not_kept_waiting_by_a_long_answer(tiny: BoundModel) -> None:
    """Another thread steps without a pause; whoever wants to abort or to submit gets in between."""
    server = BUILDS["engine"](tiny)
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(lambda: server.generate([PROMPT], greedy(200))[0])
        while not server.requests:
            time.sleep(0.001)
        time.sleep(0.02)
        server.abort(0)
        found = answer.result(SOON)
    assert found.finish_reason == "abort"
    assert found.token_ids == reference(tiny, PROMPT, 200)[: len(found.token_ids)]
    assert_left(server, abort=1)


def test_completions_differ_by_their_number_alone(tiny: BoundModel) -> None:
    """The second stream of a server is the first one again."""
    server = BUILDS["engine"](tiny)
    first, second = (list(server.stream(PROMPT, greedy(4))) for _ in range(2))
    assert replace(whole(second, 1), request_id=0) == whole(first, 0)


def test_more_streams_than_threads_all_get_on(tiny: BoundModel) -> None:
    """An event loop has a few worker threads; streams that wait in the queue must not keep them from the others."""
    server = Engine(tiny, page_size=4, num_pages=64, max_batch_size=2)
    first: dict[int, int] = {}

    async def read(which: int) -> int:
        pieces = 0
        async for _ in server.stream_async(prompt_of(3, seed=which), greedy(12)):
            first.setdefault(which, server.trace.step)
            pieces += 1
        return pieces

    async def all_of_them() -> list[int]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(max_workers=3))
        return await asyncio.gather(*[read(which) for which in range(10)])

    pieces = asyncio.run(asyncio.wait_for(all_of_them(), 60))
    assert min(pieces[:2]) > 6, "the first two run at once and are read while they run"
    assert min(first.values()) <= 3
    assert_quiet(server)
