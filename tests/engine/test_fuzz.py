"""Servers under any order of arrivals, steps, aborts and poison answer as if alone, and every page comes back."""

from __future__ import annotations

from functools import cache

from helpers import Server, assert_quiet, finished, greedy, llama, pools, prompt_of, reference
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minikv import Cluster, Engine, NodeConfig, Rejected
from minikv.models.adapter import BoundModel
from minikv.trace import Finish

MOST_TOKENS = 12


@cache
def model() -> BoundModel:
    return llama()


@cache
def solo(length: int, seed: int) -> tuple[int, ...]:
    """What `transformers` answers to a prompt alone."""
    return reference(model(), prompt_of(length, seed), MOST_TOKENS)


class ServerMachine(RuleBasedStateMachine):
    """One node or two, with pools too small for everybody at once."""

    server: Server
    asked: dict[int, tuple[int, int, int]]
    gone: set[int]

    @initialize(
        sizes=st.tuples(st.integers(4, 12), st.integers(4, 12)),
        page_size=st.integers(1, 5),
        batch=st.integers(1, 4),
        budget=st.sampled_from([1, 10, 8192]),
        split=st.booleans(),
    )
    def start(self, sizes: tuple[int, int], page_size: int, batch: int, budget: int, split: bool) -> None:
        limits = {"max_batch_size": batch, "max_batch_tokens": budget}
        prefill, decode = (NodeConfig(num_pages=pages, **limits) for pages in sizes)
        if split:
            self.server = Cluster(model(), prefill=prefill, decode=decode, page_size=page_size)
        else:
            self.server = Engine(model(), num_pages=sizes[0], page_size=page_size, **limits)
        self.asked, self.gone = {}, set()

    def slots(self) -> int:
        return min(pool.num_slots for pool in pools(self.server))

    @rule(length=st.integers(1, 30), seed=st.integers(0, 2), tokens=st.integers(1, MOST_TOKENS))
    def submit(self, length: int, seed: int, tokens: int) -> None:
        number = self.server.submit(prompt_of(length, seed), greedy(tokens))
        if length + tokens > self.slots():  # the context is the smaller pool
            done = self.server.result(number)
            assert done.finish_reason == "rejected" and isinstance(done.error, Rejected)
        else:
            assert not self.server.requests[number].finished
            self.asked[number] = (length, seed, tokens)

    @rule()
    def step(self) -> None:
        self.server.step()

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.asked)))
        if not self.server.requests[number].finished:
            self.gone.add(number)
        self.server.abort(number)
        assert not any(number in pool.tables for pool in pools(self.server))

    @rule()
    def poison(self) -> None:
        for pool in pools(self.server):
            pool.fill_unwritten(float("nan"))

    @precondition(lambda self: hasattr(self, "server"))
    @invariant()
    def whole(self) -> None:
        self.server.check()

    def teardown(self) -> None:
        if not hasattr(self, "server"):
            return
        for number, done in zip(self.asked, finished(self.server, self.asked), strict=True):
            length, seed, tokens = self.asked[number]
            if number in self.gone:
                assert done.finish_reason == "abort"
                assert done.token_ids == solo(length, seed)[: len(done.token_ids)]
            else:
                assert done.finish_reason == "length", done.error
                assert done.token_ids == solo(length, seed)[:tokens]
        ends = [event.request for event in self.server.trace if isinstance(event, Finish)]
        assert sorted(ends) == sorted(self.asked)
        assert_quiet(self.server)


TestServer = ServerMachine.TestCase
TestServer.settings = settings(max_examples=40, stateful_step_count=30, deadline=None, derandomize=True)
