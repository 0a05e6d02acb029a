"""Servers under any order of arrivals, steps, aborts, faults and forged handoffs answer as if alone, and lose nothing.

More, with other seeds: `MINIKV_FUZZ=2500 pytest --hypothesis-seed=7 tests/engine/test_fuzz.py`, where the first number
is that of examples, of 40 steps each.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any

import pytest
import torch
from helpers import CORE, FAMILIES, NEVER, Server, assert_quiet, finished, llama, pools, prompt_of
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from transformers import GenerationConfig

from minikv import Cluster, Completion, Engine, NodeConfig, Rejected, SamplingParams, load_model
from minikv.attention.metadata import SequenceView
from minikv.attention.torch_backend import attend
from minikv.disagg.handoff import Contract, Handoff, digest_of
from minikv.errors import Busy, HandoffRefused, RequestAborted
from minikv.memory import FreeList, PagePool, PageTable
from minikv.models.adapter import BoundModel
from minikv.models.options import AttentionOptions
from minikv.node import Node
from minikv.sampling import Sampler, sample
from minikv.scheduling.request import Request
from minikv.scheduling.scheduler import Scheduled, Scheduler
from minikv.streaming import Chunk
from minikv.trace import Allocate, Finish, Preempt, Refuse

EXAMPLES, LENGTH = 300, 40  # more than 10,000 steps
MOST_TOKENS = 12
COUNTS: Counter[str] = Counter()  # of what happened in all examples together

ENGINE_PLACES = ("schedule", "allocator", "attention", "sampler")
HANDOFF_PLACES = ("reserve", "export", "receive", "received")
FORGERIES = ("short", "long", "other", "token", "key", "value", "layer", "fewer", "more", "dtype", "digest")
SIGNED = ("short", "long", "other", "layer", "fewer", "more", "dtype")  # wrong even with a digest that is right


@cache
def model() -> BoundModel:
    return llama()


@cache
def alone(length: int, seed: int, params: SamplingParams) -> tuple[int, ...]:
    """The answer to a request alone: of `transformers`, or of an engine with room for everything for drawn ones."""
    prompt = prompt_of(length, seed)
    if params.temperature or params.repetition_penalty != 1.0:
        (done,) = Engine(model(), num_pages=8, page_size=16).generate([prompt], params)
        return done.token_ids
    ids = torch.tensor([prompt])
    config = GenerationConfig(
        max_new_tokens=params.max_tokens,
        min_new_tokens=params.min_tokens or None,
        do_sample=False,
        eos_token_id=list(params.stop_token_ids) or NEVER,
        pad_token_id=0,
    )
    config.bos_token_id = 0
    output = model().hf.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    return tuple(output[0, length:].tolist())


@dataclass
class Job:
    """A request that was handed in, and what must come of it."""

    length: int
    seed: int
    params: SamplingParams
    granted: int
    request: Request
    aborted: bool = False
    failed: str = ""  # the error that it must carry
    forgotten: bool = False

    @property
    def expected(self) -> tuple[int, ...]:
        return alone(self.length, self.seed, replace(self.params, max_tokens=MOST_TOKENS))[: self.granted]

    def verify(self, done: Completion) -> None:
        expected = self.expected
        assert done.max_tokens == self.granted and done.prompt_tokens == self.length
        if self.failed or self.aborted:
            assert done.finish_reason == ("error" if self.failed else "abort"), done
            assert done.token_ids == expected[: len(done.token_ids)]
            assert self.failed in f"{type(done.error).__name__} {done.error}", done.error
            assert self.failed or isinstance(done.error, RequestAborted)
            return
        assert done.error is None, done.error
        assert done.token_ids == expected
        assert done.finish_reason == ("stop" if expected[-1] in self.params.stop_token_ids else "length")
        if self.params.logprobs is not None:
            assert [token in logs for token, logs in zip(done.token_ids, done.logprobs, strict=True)]


@st.composite
def jobs(draw: st.DrawFn) -> tuple[int, int, SamplingParams]:
    """Greedy, drawn, penalised; with ends that really come (tokens of the greedy answer), and with a least length."""
    length, seed = draw(st.integers(1, 14)), draw(st.integers(0, 1))
    tokens = draw(st.integers(1, MOST_TOKENS))
    logprobs = draw(st.sampled_from([None, None, 2]))
    kind = draw(st.sampled_from(["greedy", "greedy", "stop", "least", "drawn", "penalised"]))
    params = SamplingParams(max_tokens=tokens, logprobs=logprobs)
    if kind == "drawn":
        params = replace(params, temperature=1.5, top_k=20, top_p=0.9, seed=draw(st.integers(0, 1)))
    elif kind == "penalised":
        params = replace(params, repetition_penalty=1.5)
    elif kind != "greedy":
        answer = alone(length, seed, SamplingParams(max_tokens=MOST_TOKENS))
        least = min(3, tokens) if kind == "least" else 0
        params = replace(params, stop_token_ids=(answer[draw(st.sampled_from([0, 2, 5]))],), min_tokens=least)
    return length, seed, params


class Trapped(Exception):
    """A fault of a part, in the middle of a step."""


class Interrupted(KeyboardInterrupt):
    """The caller's Ctrl-C, in the middle of a step."""


@dataclass
class Trap:
    """What will happen when a place is passed for the `countdown`th time."""

    where: str
    countdown: int
    kind: str
    number: int


class ServerMachine(RuleBasedStateMachine):
    """One node or two, with pools too small for everybody at once."""

    server: Server

    @initialize(
        slots=st.tuples(st.integers(14, 30), st.integers(14, 30)),
        page_size=st.integers(1, 5),
        batch=st.tuples(*[st.sampled_from([1, 3, 4, 8])] * 2),
        budget=st.tuples(*[st.sampled_from([*range(1, 17), 8192])] * 2),
        context=st.sampled_from([None, None, None, None, 9, 16]),
        over_limit=st.sampled_from(["refuse", "cap"]),
        max_waiting=st.sampled_from([None, None, None, 1, 3]),
        split=st.booleans(),
        ledger=st.booleans(),
        poisoned=st.booleans(),
    )
    def start(
        self,
        slots: tuple[int, int],
        page_size: int,
        batch: tuple[int, int],
        budget: tuple[int, int],
        context: int | None,
        over_limit: Any,
        max_waiting: int | None,
        split: bool,
        ledger: bool,
        poisoned: bool,
    ) -> None:
        pages = [max(-(-each // page_size), 2) for each in slots]
        rooms = [each * page_size for each in pages[: 1 + split]]
        self.context = min(context or min(rooms), *rooms, model().max_positions or 0)
        common: dict[str, Any] = {
            "page_size": page_size, "context_length": self.context, "over_limit": over_limit,
            "max_waiting": max_waiting, "ledger": ledger, "sampler": self.sampler, "attention": self.attention,
            "scheduler": self.scheduler, "allocator": self.allocator,
        }  # fmt: skip
        limits = [{"max_batch_size": batch[i], "max_batch_tokens": budget[i]} for i in range(2)]
        if split:
            prefill, decode = (NodeConfig(num_pages=pages[i], **limits[i]) for i in range(2))
            self.server = Cluster(model(), prefill=prefill, decode=decode, handoff=self.contract, **common)
            self.watch(self.server)
        else:
            self.server = Engine(model(), num_pages=pages[0], **limits[0], **common)
        self._step, self.server.step = self.server.step, self.step_and_look  # type: ignore[method-assign]
        self.over_limit, self.max_waiting, self.poisoned = over_limit, max_waiting, poisoned
        self.jobs: dict[int, Job] = {}
        self.refused: list[int] = []
        self.streams: list[Stream] = []
        self.sent: list[Handoff] = []
        self.trap: Trap | None = None
        self.forgery: str = ""
        self.smuggled: tuple[str, bool] | None = None
        self.current = self.handing = -1  # node that steps, request that is handed over
        self.fired = False
        self.seen = 0

    # The parts: right ones, with places where something can happen.

    def sampler(self, logits: torch.Tensor, request: Request) -> int:
        self.passing("sampler", request)
        return sample(logits, request)

    def attention(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        sequences: Sequence[SequenceView],
        options: AttentionOptions,
    ) -> torch.Tensor:
        self.passing("attention")
        return attend(query, keys, values, sequences, options)

    def scheduler(self, pool: PagePool, config: NodeConfig) -> Scheduler:
        machine = self

        class Watched(Scheduler):
            def schedule(self) -> list[Scheduled]:
                names = [node.name for node in machine.server.nodes]
                machine.current, machine.handing = names.index(pool.node), -1
                plan = super().schedule()
                machine.passing("schedule")
                return plan

        return Watched(pool, config)

    def allocator(self, num_pages: int) -> FreeList:
        machine = self

        class Watched(FreeList):
            def allocate(self, n: int) -> list[int]:
                machine.passing("allocator")
                return super().allocate(n)

        return Watched(num_pages)

    def contract(self) -> Contract:
        machine = self

        class Watched(Contract):
            @staticmethod
            def pack(pool: PagePool, table: PageTable, first_token: int) -> Handoff:
                handoff = Contract.pack(pool, table, first_token)
                machine.sent.append(handoff)
                how, machine.forgery = machine.forgery, ""
                if how and how != "harmless":
                    COUNTS["forged handoffs"] += 1
                    request = machine.server.requests.get(table.owner)
                    if request and not request.finished:  # else it was aborted just before, and nothing is sent
                        machine.jobs[table.owner].failed = "HandoffRefused"
                return forged(handoff, how, signed=how in SIGNED) if how else handoff

        return Watched()

    def watch(self, server: Cluster) -> None:
        """The places of a handoff."""
        reserve, export, receive = server.decode.reserve, server.prefill.export, server.decode.receive

        def watched_reserve(request: Request) -> bool:
            self.handing = request.number
            self.passing("reserve", request)
            return reserve(request)

        def watched_export(request: Request) -> Handoff:
            self.passing("export", request)
            return export(request)

        def watched_receive(request: Request, handoff: Handoff) -> None:
            self.passing("receive", request)
            how, before = self.smuggled or ("", False)
            if how and before and not request.finished:
                self.must_refuse(request, forged(self.sent[-1], how, signed=how in SIGNED))
            receive(request, handoff)
            if how and not before:
                self.must_refuse(request, handoff)
            self.smuggled = None
            self.passing("received", request)

        server.decode.reserve = watched_reserve  # type: ignore[method-assign]
        server.prefill.export = watched_export  # type: ignore[method-assign]
        server.decode.receive = watched_receive  # type: ignore[method-assign]
        self.receive = receive

    def passing(self, where: str, request: Request | None = None) -> None:
        trap = self.trap
        if trap is None or trap.where != where:
            return
        trap.countdown -= 1
        if trap.countdown:
            return
        self.trap, self.fired = None, True
        COUNTS[f"{trap.kind} in {where}"] += 1
        if trap.kind in ("abort", "forget"):
            self.end(trap.number, forget=trap.kind == "forget")
            return
        for number in self.at_risk(trap, request):
            self.jobs[number].failed = "trap" if trap.kind == "fault" else "Interrupted"
        raise Trapped("trap") if trap.kind == "fault" else Interrupted("trap")

    def at_risk(self, trap: Trap, request: Request | None) -> set[int]:
        """Whom a fault at a place concerns; after an interrupt all others start anew."""
        if self.handing >= 0:
            return {self.handing}
        if request is not None and trap.kind == "fault":
            return {request.number}
        node = self.server.nodes[self.current]
        if trap.where in ("attention", "sampler"):
            risk = {each.number for each in node.in_step}
        elif trap.kind == "interrupt":
            return set()
        else:
            risk = {each.number for each in node.scheduler.running}
            risk |= set(islice(node.scheduler.waiting, 1))
        everybody = {number for number, each in self.server.requests.items() if not each.answered}
        return risk & everybody or everybody

    # What is looked at in every step.

    def step_and_look(self) -> None:
        server = self.server
        with server.lock:  # after an interrupt this makes the server whole, and whoever ran starts anew
            fair = self.on_fair_nodes()
        if self.poisoned:
            self.poison()
        before = [(node, self.progress(node), node.num_computed_tokens) for node in fair]
        holders = {node.name: set(node.pool.tables) for node in server.nodes}
        self.fired = False
        COUNTS["steps"] += 1
        try:
            self._step()
        except Interrupted:  # whoever takes the lock next finds the server whole again
            self.seen = len(self.server.trace)
            raise
        server.check()
        dry = self.nobody_joins_after_a_preemption(holders)
        if self.fired:
            return
        for node, progress, num_tokens in before:
            self.oldest_goes_on(node, progress)
            partial = any(self.missing(node, each) > 1 for each in node.scheduler.running)
            if partial and node.name not in dry:  # a share that was planned and given up again is lost
                assert node.num_computed_tokens - num_tokens == node.config.max_batch_tokens, "a chunk was too short"

    def on_fair_nodes(self) -> list[Node]:
        """Nodes whose pages are all held by requests that they run themselves."""
        return [node for node in self.server.nodes if node is self.server.nodes[-1] or not self.server.between]

    def missing(self, node: Node, request: Request) -> int:
        return request.num_tokens - node.pool.tables[request.number].written

    def progress(self, node: Node) -> dict[int, tuple[int, int]]:
        """For each request of a node, its tokens and its written positions."""
        here = [*node.scheduler.running, *node.scheduler.waiting.values()]  # type: ignore[attr-defined]
        tables = node.pool.tables
        return {r.number: (r.num_tokens, tables[r.number].written if r.number in tables else 0) for r in here}

    def oldest_goes_on(self, node: Node, before: dict[int, tuple[int, int]]) -> None:
        """First come first served: whoever came first gets further in every step."""
        if not before:
            return
        request = self.server.requests.get(min(before))
        if request is None or request.answered:
            return
        tokens, written = before[min(before)]
        now = self.progress(node).get(min(before), (request.num_tokens, 0))
        assert now[0] > tokens or now[1] > written, f"request {min(before)} was held up on {node.name}"

    def nobody_joins_after_a_preemption(self, holders: dict[str, set[int]]) -> set[str]:
        """Returns the names of nodes where somebody gave way in this step."""
        dry: set[str] = set()
        for event in islice(self.server.trace, self.seen, None):
            if isinstance(event, Preempt):
                COUNTS["preemptions"] += 1
                dry.add(event.node)
                holders[event.node].discard(event.request)
            elif isinstance(event, Allocate):
                assert event.node not in dry or event.owner in holders[event.node], "joined after a preemption"
                holders[event.node].add(event.owner)
        self.seen = len(self.server.trace)
        return dry

    # What happens between steps.

    def outcome(self, length: int, params: SamplingParams) -> type[Rejected] | int:
        """What the door must say."""
        granted = min(params.max_tokens, self.context - length)
        if granted < 1 or (granted < params.max_tokens and self.over_limit == "refuse"):
            return Rejected
        waiting = self.server.stats().nodes[0].waiting
        return Busy if self.max_waiting is not None and waiting >= self.max_waiting else granted

    def submit(self, job: tuple[int, int, SamplingParams]) -> None:
        length, seed, params = job
        outcome = self.outcome(length, params)
        number = self.server.submit(prompt_of(length, seed), params)
        if isinstance(outcome, int):
            self.jobs[number] = Job(length, seed, params, outcome, self.server.requests[number])
            assert not self.server.requests[number].finished
        else:
            done = self.server.result(number)
            assert done.finish_reason == "rejected" and type(done.error) is outcome
            self.refused.append(number)
            COUNTS[f"refused: {outcome.__name__}"] += 1

    # Rules do some steps of their own: hypothesis leaves whole rules out of many examples.

    @rule(several=st.lists(jobs(), min_size=1, max_size=3), steps=st.integers(0, 2))
    def arrive(self, several: list[tuple[int, int, SamplingParams]], steps: int) -> None:
        for job in several:
            self.submit(job)
        self.step(steps)

    @rule(steps=st.integers(1, 3))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            try:
                self.server.step()
            except Interrupted:
                COUNTS["interrupts"] += 1

    @precondition(lambda self: self.unanswered())
    @rule(data=st.data(), forget=st.booleans())
    def abort(self, data: st.DataObject, forget: bool) -> None:
        number = data.draw(st.sampled_from(self.unanswered()))
        self.end(number, forget=forget)
        assert not any(number in pool.tables for pool in pools(self.server))

    @precondition(lambda self: self.unanswered())
    @rule(
        data=st.data(),
        countdown=st.integers(1, 4),
        kind=st.sampled_from(["abort", "forget", "fault", "interrupt"]),
        steps=st.integers(0, 3),
    )
    def lay_trap(self, data: st.DataObject, countdown: int, kind: str, steps: int) -> None:
        places = ENGINE_PLACES + HANDOFF_PLACES * isinstance(self.server, Cluster)
        where = data.draw(st.sampled_from(places))
        number = data.draw(st.sampled_from(self.unanswered()))
        self.trap = Trap(where, 1 if where in HANDOFF_PLACES else countdown, kind, number)
        self.step(steps)

    def unanswered(self) -> list[int]:
        return [number for number, request in self.server.requests.items() if not request.answered]

    def end(self, number: int, *, forget: bool) -> None:
        """Abort a request; it may have ended in the meantime."""
        request = self.server.requests.get(number)
        if request is None:
            return
        job = self.jobs[number]
        job.aborted |= not request.finished
        stream = any(stream.number == number for stream in self.streams)
        if forget and not stream:
            job.forgotten = True
            self.server.forget(number)
        else:
            self.server.abort(number)

    @rule()
    def fetch(self) -> None:
        """Take the answers that are there, and only those of our own: streams take theirs themselves."""
        ours = set(self.server.requests) - {stream.number for stream in self.streams}
        for number in ours:
            if self.server.requests[number].answered:
                self.jobs[number].verify(self.server.result(number))

    @rule()
    def poison(self) -> None:
        for pool in pools(self.server):
            pool.fill_unwritten(float("nan"))

    @rule(job=jobs())
    def open_stream(self, job: tuple[int, int, SamplingParams]) -> None:
        length, seed, params = job
        self.streams.append(Stream(job, self.server.stream(prompt_of(length, seed), params)))

    @precondition(lambda self: self.streams)
    @rule(data=st.data(), close=st.booleans())
    def read_stream(self, data: st.DataObject, close: bool) -> None:
        stream = data.draw(st.sampled_from(self.streams))
        if close:
            self.close(stream)
        else:
            self.read(stream)

    def close(self, stream: Stream) -> None:
        """Leave a loop early."""
        stream.pieces.close()
        self.streams.remove(stream)
        if stream.number >= 0:
            COUNTS["streams closed early"] += 1
            job = self.jobs[stream.number]
            job.aborted, job.forgotten = True, True
            assert stream.number not in self.server.requests

    def read(self, stream: Stream) -> None:
        """The next piece of a stream, or its end."""
        if self.trap and self.trap.kind == "interrupt":
            self.trap = None
        length, seed, params = stream.job
        if stream.number < 0:
            outcome = self.outcome(length, params)
            number = self.server.next_number
            if not isinstance(outcome, int):
                self.refused.append(number)
                self.streams.remove(stream)
                with pytest.raises(Rejected) as refusal:
                    next(stream.pieces)
                assert type(refusal.value) is outcome
                return
            stream.number = number
            # The job must be known in the steps of its first piece; the request is there as soon as they begin.
            self.jobs[number] = Job(length, seed, params, outcome, Request(number, prompt_of(length, seed), params))
        job = self.jobs[stream.number]
        try:
            piece = next(stream.pieces)
        except Exception as error:
            assert (job.failed and job.failed in f"{type(error).__name__} {error}") or (
                job.aborted and isinstance(error, RequestAborted)
            ), error
            assert stream.tokens == job.expected[: len(stream.tokens)]
            self.streams.remove(stream)
            return
        stream.tokens += piece.token_ids
        assert piece.request_id == stream.number and piece.token_ids
        assert stream.tokens == job.expected[: len(stream.tokens)]
        if piece.completion:
            COUNTS["streams read to the end"] += 1
            job.verify(piece.completion)
            assert stream.tokens == piece.completion.token_ids
            self.streams.remove(stream)

    @precondition(lambda self: isinstance(self.server, Cluster) and self.unanswered())
    @rule(how=st.sampled_from([*FORGERIES, "harmless"]), steps=st.integers(0, 3))
    def forge(self, how: str, steps: int) -> None:
        """The next handoff arrives changed."""
        self.forgery = how
        self.step(steps)

    @precondition(lambda self: isinstance(self.server, Cluster) and self.unanswered())
    @rule(how=st.sampled_from(FORGERIES), before=st.booleans(), steps=st.integers(0, 3))
    def smuggle(self, how: str, before: bool, steps: int) -> None:
        """Before the next handoff comes a changed one, or after it the same again."""
        self.smuggled = how, before
        self.step(steps)

    @precondition(lambda self: isinstance(self.server, Cluster) and self.sent)
    @rule(data=st.data(), how=st.sampled_from(["", *FORGERIES]))
    def deliver_late(self, data: st.DataObject, how: str) -> None:
        """An old handoff comes again, for a request that runs, waits or has ended."""
        handoff = data.draw(st.sampled_from(self.sent))
        request = self.jobs[handoff.request].request
        self.must_refuse(request, forged(handoff, how, signed=how in SIGNED) if how else handoff)

    def must_refuse(self, request: Request, handoff: Handoff) -> None:
        COUNTS["handoffs refused"] += 1
        before = state(self.server)
        with pytest.raises(HandoffRefused):
            self.receive(request, handoff)
        assert state(self.server) == before

    @invariant()
    def whole(self) -> None:
        COUNTS["rules"] += 1
        if hasattr(self, "server"):
            self.server.check()
            assert self.server.stats().unanswered == len(self.unanswered())

    def teardown(self) -> None:
        if not hasattr(self, "server"):
            return
        if self.trap and self.trap.kind in ("forget", "interrupt"):
            self.trap.kind = "fault"
        for stream in list(self.streams):
            while stream in self.streams:
                self.read(stream)
        ours = [number for number in self.server.requests]
        for number, done in zip(ours, finished(self.server, ours), strict=True):
            self.jobs[number].verify(done)
        ends = Counter(e.request for e in self.server.trace if isinstance(e, (Finish, Refuse)))
        assert ends == Counter([*self.jobs, *self.refused])
        assert sum(self.server.stats().finished.values()) == len(self.jobs) + len(self.refused)
        assert_quiet(self.server)
        COUNTS["requests"] += len(ends)


@dataclass(eq=False)
class Stream:
    """A stream that is open, and what came of it."""

    job: tuple[int, int, SamplingParams]
    pieces: Iterator[Chunk] | Any
    number: int = -1
    tokens: tuple[int, ...] = ()


def forged(handoff: Handoff, how: str, *, signed: bool) -> Handoff:
    """A handoff with something wrong in it; `signed` gives it a digest that is right."""
    keys, values = list(handoff.keys), list(handoff.values)
    changes: dict[str, Any] = {}
    if how in ("short", "long"):
        changes["num_tokens"] = handoff.num_tokens + (1 if how == "long" else -1)
    elif how == "other":
        changes["request"] = handoff.request + 1
    elif how == "token":
        changes["first_token"] = handoff.first_token + 1
    elif how == "digest":
        changes["digest"] = handoff.digest[::-1] + "0"
    elif how in ("key", "value"):
        tensors = keys if how == "key" else values
        tensors[-1] = tensors[-1].clone()
        tensors[-1].flatten(0, 1)[handoff.num_tokens - 1] += 1.0
    elif how == "layer":
        del keys[-1]
    elif how in ("fewer", "more"):
        values[0] = values[0][:-1] if how == "fewer" else torch.cat([values[0], values[0][:1]])
    elif how == "dtype":
        keys[0] = keys[0].double()
    else:
        assert how == "harmless"  # what lies past the written slots is nobody's business
        for tensors in (keys, values):
            for layer, tensor in enumerate(tensors):
                tensors[layer] = tensor.clone()
                tensors[layer].flatten(0, 1)[handoff.num_tokens :] = float("nan")
    other = replace(handoff, keys=tuple(keys), values=tuple(values), **changes)
    if not signed:
        return other
    return replace(
        other, digest=digest_of(other.request, other.num_tokens, other.first_token, other.keys, other.values)
    )


def state(server: Server) -> list[object]:
    """All that a handoff can change, bit for bit."""
    found: list[object] = [len(server.trace), list(server.between), dict(server.finished)]
    for node in server.nodes:
        pool = node.pool
        found += [tensor.numpy().tobytes() for tensor in (*pool.keys, *pool.values)]
        found += [pool.owner.tobytes(), pool.generation.tobytes(), pool.num_free]
        found += [(table.owner, list(table.pages), table.written) for table in pool.tables.values()]
        found += [list(node.scheduler.waiting), list(node.scheduler.running), set(getattr(node, "expecting", ()))]
        if pool.ledger:
            found += [array.tobytes() for array in (pool.ledger.writer, pool.ledger.position, pool.ledger.generation)]
    return found


def scramble(server: Server, randomness: torch.Generator) -> None:
    """Random bits, infinities and NaN among them, wherever nobody has written: free pages and the ends of lent ones."""
    for pool in pools(server):
        unwritten = torch.ones(pool.num_slots, dtype=torch.bool)
        for table in pool.tables.values():
            unwritten[torch.from_numpy(table.slots(0, table.written))] = False
        for tensor in (*pool.keys, *pool.values):
            slots = tensor.flatten(0, 1)
            shape = (int(unwritten.sum()), *slots.shape[1:])
            bits = torch.randint(0, 256, (*shape[:-1], shape[-1] * slots.element_size()), generator=randomness)
            noise = bits.to(torch.uint8).view(slots.dtype)
            special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0])
            rare = torch.rand(shape, generator=randomness) < 0.1
            noise[rare] = special[torch.randint(0, 4, (int(rare.sum()),), generator=randomness)].to(noise.dtype)
            slots[unwritten] = noise


def written_bytes(server: Server) -> list[bytes]:
    """All that was written for somebody."""
    return [
        tensor.flatten(0, 1)[torch.from_numpy(table.slots(0, table.written))].view(torch.uint8).numpy().tobytes()
        for pool in pools(server)
        for table in pool.tables.values()
        for tensor in (*pool.keys, *pool.values)
    ]


@pytest.mark.parametrize("split", [False, True], ids=["engine", "cluster"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("family", CORE)
def test_what_was_not_written_changes_no_bit(family: str, dtype: torch.dtype, split: bool) -> None:
    """Two servers in step, one full of noise wherever nobody wrote: all logits and pages are equal, bit for bit.

    Prompts come in chunks, pools are too small for all, and one request is aborted: pages change hands all the time.
    """
    bound = precise(family, dtype)
    logits: list[list[tuple[int, bytes]]] = [[], []]

    def recording(which: int) -> Sampler:
        def sampler(row: torch.Tensor, request: Request) -> int:
            logits[which].append((request.number, row.contiguous().view(torch.uint8).numpy().tobytes()))
            return sample(row, request)

        return sampler

    def build(which: int) -> Server:
        common: dict[str, Any] = {"page_size": 3, "sampler": recording(which)}
        limits: dict[str, Any] = {"num_pages": 9, "max_batch_tokens": 7}
        if not split:
            return Engine(bound, **limits, **common)
        return Cluster(bound, prefill=NodeConfig(**limits), decode=NodeConfig(**limits), **common)

    servers = [build(0), build(1)]
    randomness = torch.Generator().manual_seed(0)
    lengths = [5, 14, 9, 1]
    for step in range(200):
        if step % 2 == 0 and step // 2 < len(lengths):
            length = lengths[step // 2]
            for server in servers:
                server.submit(prompt_of(length, step), SamplingParams(max_tokens=10, ignore_eos=True))
        if step == 7:
            for server in servers:
                server.abort(2)
        scramble(servers[1], randomness)
        for server in servers:
            server.step()
            server.check()
        assert logits[0] == logits[1], f"step {step}"
        assert written_bytes(servers[0]) == written_bytes(servers[1])
        if step > 7 and not servers[0].stats().unanswered:
            break
    first, second = (finished(server, [0, 1, 3]) for server in servers)
    assert first == second and all(done.finish_reason == "length" for done in first)
    assert sum(node.preemptions for node in servers[0].stats().nodes) >= 1


@cache
def precise(family: str, dtype: torch.dtype) -> BoundModel:
    return load_model(FAMILIES[family]().hf.to(dtype))


@pytest.mark.slow
def test_any_order() -> None:
    """Ten thousand steps, each followed by a check of everything; the numbers say that they were not empty ones."""
    COUNTS.clear()
    more = int(os.environ.get("MINIKV_FUZZ", "0"))
    run_state_machine_as_test(
        ServerMachine,
        settings=settings(
            max_examples=more or EXAMPLES,
            stateful_step_count=LENGTH,
            derandomize=not more,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(*(f"{name}: {count}" for name, count in sorted(COUNTS.items())), sep="\n")
    assert COUNTS["rules"] >= 10_000 and COUNTS["steps"] >= 10_000
    for kind in ("abort", "forget", "fault", "interrupt"):
        assert sum(count for name, count in COUNTS.items() if name.startswith(f"{kind} in")) >= 10, kind
    for name in ("preemptions", "handoffs refused"):
        assert COUNTS[name] >= 50, name
    for name in ("forged handoffs", "streams closed early"):
        assert COUNTS[name] >= 5, name


# Found by the state machine, and made small.


@pytest.mark.parametrize("split", [False, True], ids=["engine", "cluster"])
def test_abort_while_a_step_is_planned_is_an_abort(split: bool) -> None:
    """Whoever is aborted in the middle of a step, after or before a plan names them, was aborted and did not fail."""
    act: list[int] = []

    class Aborting(Scheduler):
        def schedule(self) -> list[Scheduled]:
            plan = super().schedule()
            if self.pool.node != "decode":  # of two nodes, the one that comes before
                while act:
                    server.abort(act.pop())
            return plan

    common: dict[str, Any] = {"page_size": 4, "scheduler": Aborting}
    sizes = NodeConfig(num_pages=20)
    server = (
        Cluster(model(), prefill=sizes, decode=sizes, **common) if split else Engine(model(), num_pages=20, **common)
    )
    params = SamplingParams(max_tokens=MOST_TOKENS)
    mine, other = server.submit(prompt_of(9, 0), params), server.submit(prompt_of(5, 1), params)
    server.step()
    server.step()
    act.append(mine)
    first, second = finished(server, [mine, other])
    assert (first.finish_reason, first.status) == ("abort", 499), first.error
    assert first.token_ids == alone(9, 0, params)[: len(first.token_ids)] and len(first.token_ids) < MOST_TOKENS
    assert second.token_ids == alone(5, 1, params)
    assert_quiet(server)


def test_later_handoffs_do_not_hold_up_who_gave_way() -> None:
    """A decode node computes a preempted request anew in chunks; those who come meanwhile must not take every step."""
    decode = NodeConfig(num_pages=24, max_batch_tokens=2)
    server = Cluster(model(), prefill=NodeConfig(num_pages=60), decode=decode, page_size=1)
    numbers = [server.submit(prompt_of(8, seed), SamplingParams(max_tokens=n)) for seed, n in enumerate((8, 10))]
    while not server.requests[numbers[0]].finished:
        server.step()
    assert server.stats().nodes[1].preemptions == 1
    for seed in range(40):
        server.submit(prompt_of(2, seed), SamplingParams(max_tokens=4))
        server.step()
        server.check()
    assert server.result(numbers[1]).token_ids == alone(8, 1, SamplingParams(max_tokens=10))
