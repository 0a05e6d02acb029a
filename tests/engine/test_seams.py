"""Parts of another make: right ones change no token, wrong ones end in an error that names the rule and the step."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from helpers import Server, answers, assert_quiet, cluster, finished, greedy, pools, prompt_of, reference

from minikv import Completion, Engine, Rejected
from minikv.attention import torch_backend
from minikv.config import NodeConfig, ServerConfig
from minikv.disagg.handoff import Contract, Handoff, digest_of
from minikv.errors import BrokenRule, ConfigError, HandoffRefused, OutOfPages
from minikv.memory import FreeList, PagePool, PageTable, pages_needed
from minikv.models.adapter import BoundModel
from minikv.sampling import sample
from minikv.scheduling.admission import Admission, NodeCapacity
from minikv.scheduling.request import Request
from minikv.scheduling.scheduler import Scheduled, Scheduler

Build = Callable[..., Server]
SHAPES = [(9, 6), (5, 6), (13, 2), (2, 6), (6, 6)]  # prompt tokens and max_tokens of requests 0 to 4
TARGET = 1  # the request that most wrong parts have it in for


def one_node(model: BoundModel, pages: int = 30, **options: Any) -> Server:
    return Engine(model, page_size=4, num_pages=pages, **options)


def two_nodes(model: BoundModel, pages: int = 30, **options: Any) -> Server:
    return cluster(model, pages, page_size=4, **options)


both = pytest.mark.parametrize("build", [one_node, two_nodes])


@cache
def alone(model: BoundModel, length: int, seed: int, n: int) -> tuple[int, ...]:
    return reference(model, prompt_of(length, seed=seed), n)


def expected(model: BoundModel) -> list[tuple[int, ...]]:
    return [alone(model, length, i, n) for i, (length, n) in enumerate(SHAPES)]


def submitted(server: Server) -> list[int]:
    return [server.submit(prompt_of(length, seed=i), greedy(n)) for i, (length, n) in enumerate(SHAPES)]


# Right parts of another make


class ListScheduler:
    """No chunks, no preemption, a plain list: whoever finds no page waits where it is, with what it holds."""

    def __init__(self, pool: PagePool, config: NodeConfig) -> None:
        self.pool = pool
        self.config = config
        self.waiting: list[Request] = []
        self.running: list[Request] = []

    def add(self, request: Request) -> None:
        (self.running if request.number in self.pool.tables else self.waiting).append(request)

    def lend(self, request: Request, tokens: int) -> bool:
        """Room for some tokens in all, if there is any."""
        table = self.pool.tables.get(request.number)
        more = pages_needed(tokens, self.pool.page_size) - (len(table.pages) if table else 0)
        if more > self.pool.num_free:
            return False
        if table is None:
            self.pool.lend(request.number, more)
        elif more > 0:
            self.pool.extend(table, more)
        return True

    def schedule(self) -> Sequence[Scheduled]:
        plan: list[Scheduled] = []
        for request in [*self.running, *self.waiting]:
            if len(plan) == self.config.max_batch_size or not self.lend(request, request.num_tokens):
                break
            if request in self.waiting:
                self.waiting.remove(request)
                self.running.append(request)
            plan.append(Scheduled(request, request.num_tokens - self.pool.tables[request.number].written))
        return tuple(plan)

    def remove(self, request: Request) -> None:
        for queue in (self.waiting, self.running):
            if request in queue:
                queue.remove(request)


class LastComeFirst(Scheduler):
    """Plans in the opposite order; the order in a step is free."""

    def schedule(self) -> list[Scheduled]:
        return super().schedule()[::-1]


def one_by_one(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, sequences: Any, options: Any
) -> torch.Tensor:
    """Each request gathered on its own, its keys repeated for each head, one query row after the other."""
    rows = []
    for view in sequences:
        group = query.shape[1] // keys.shape[1]
        key, value = (tensor[view.slots].repeat_interleave(group, dim=1) for tensor in (keys, values))
        for row in range(view.length):
            seen = view.seq_len - view.length + row + 1
            scores = torch.einsum("hd,shd->hs", query[view.start + row], key[:seen]) * options.scaling
            rows.append(torch.einsum("hs,shd->hd", scores.softmax(-1), value[:seen]))
    return torch.stack(rows)


class SearchingDoor:
    """Tries one `max_tokens` after the other and counts pages, where the right one computes with tokens."""

    def __init__(self, context_length: int, nodes: Sequence[NodeCapacity], config: ServerConfig) -> None:
        self.context_length = context_length
        self.nodes = nodes

    def check(self, request: Request, waiting: int = 0) -> int:
        def fits(answer: int) -> bool:
            writes = request.prompt_tokens + answer - 1
            return writes < self.context_length and all(writes <= node.pool_tokens for node in self.nodes)

        if not fits(request.params.max_tokens):
            raise Rejected("no room", requested=request.prompt_tokens)
        return request.params.max_tokens


def by_topk(logits: torch.Tensor, request: Request) -> int:
    return int(logits.topk(3).indices[0])


def by_numpy(logits: torch.Tensor, request: Request) -> Any:
    """A numpy integer is as good as an int."""
    return np.argmax(logits.numpy())


def by_tensor(logits: torch.Tensor, request: Request) -> Any:
    """So is a tensor of one integer, without axes."""
    return logits.argmax()


class CountingPool(PagePool):
    """Counts, and changes nothing."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.counts: Counter[str] = Counter()

    def extend(self, table: PageTable, num_pages: int) -> None:
        super().extend(table, num_pages)
        self.counts["lent"] += num_pages

    def free(self, table: PageTable) -> None:
        super().free(table)
        self.counts["freed"] += len(table.pages)


class LowestFirst:
    """Always the free page with the smallest number."""

    def __init__(self, num_pages: int) -> None:
        self.heap = list(range(num_pages))

    def allocate(self, n: int) -> Sequence[int]:
        if n > len(self.heap):
            raise OutOfPages("none left")
        return tuple(heapq.heappop(self.heap) for _ in range(n))

    def free(self, pages: Sequence[int]) -> None:
        for page in pages:
            heapq.heappush(self.heap, page)


class OldestFirst:
    """The page that has been free the longest; as an array."""

    def __init__(self, num_pages: int) -> None:
        self.queue = deque(np.random.default_rng(0).permutation(num_pages).tolist())

    def allocate(self, n: int) -> Any:
        return np.array([self.queue.popleft() for _ in range(n)], dtype=np.int64)

    def free(self, pages: Sequence[int]) -> None:
        self.queue.extend(pages)


class Sha256(Contract):
    """The right contract with another digest over the same contents."""

    @staticmethod
    def seal(handoff: Handoff) -> str:
        digest = hashlib.sha256(f"{handoff.request} {handoff.num_tokens} {handoff.first_token}".encode())
        for tensor in (*handoff.keys, *handoff.values):
            digest.update(tensor.flatten(0, 1)[: handoff.num_tokens].numpy().tobytes())
        return digest.hexdigest()

    def pack(self, pool: PagePool, table: PageTable, first_token: int) -> Handoff:  # type: ignore[override]
        handoff = Contract.pack(pool, table, first_token)
        return replace(handoff, digest=self.seal(handoff))

    def verify(  # type: ignore[override]
        self, handoff: Handoff, pool: PagePool, *, request: int, expected_tokens: int
    ) -> None:
        if (handoff.request, handoff.num_tokens) != (request, expected_tokens) or self.seal(handoff) != handoff.digest:
            raise HandoffRefused("not what was promised")


RIGHT: dict[str, dict[str, Any]] = {
    "a list for a scheduler": {"scheduler": ListScheduler},
    "a plan the other way round": {"scheduler": LastComeFirst},
    "attention one by one": {"attention": one_by_one},
    "a door that searches": {"admission": SearchingDoor},
    "a sampler with topk": {"sampler": by_topk},
    "a sampler with numpy": {"sampler": by_numpy},
    "a sampler that leaves it a tensor": {"sampler": by_tensor},
    "a pool that counts": {"pool": CountingPool},
    "the lowest page first": {"allocator": LowestFirst},
    "the oldest page first": {"allocator": OldestFirst},
    "all of them": {
        "scheduler": ListScheduler, "attention": one_by_one, "admission": SearchingDoor, "sampler": by_topk,
        "pool": CountingPool, "allocator": OldestFirst,
    },
}  # fmt: skip


@both
@pytest.mark.parametrize("parts", RIGHT.values(), ids=RIGHT)
def test_right_parts_change_no_token(tiny: BoundModel, build: Build, parts: dict[str, Any]) -> None:
    server = build(tiny, **parts)
    for _ in range(2):  # the second time on pages that were used
        assert answers(finished(server, submitted(server))) == expected(tiny)
        assert_quiet(server)


@both
@pytest.mark.parametrize("name", [name for name, parts in RIGHT.items() if parts.get("scheduler") is not ListScheduler])
def test_right_parts_change_no_token_when_pages_are_few(tiny: BoundModel, build: Build, name: str) -> None:
    """Chunks of three tokens, and preemptions."""
    if build is one_node:
        server = build(tiny, 5, max_batch_tokens=3, **RIGHT[name])
    else:
        server = cluster(tiny, 5, page_size=4, **RIGHT[name])
    assert answers(finished(server, submitted(server))) == expected(tiny)
    assert sum(node.preemptions for node in server.stats().nodes) > 0 or name == "a plan the other way round"
    assert_quiet(server)


def test_another_contract_changes_no_token(tiny: BoundModel) -> None:
    server = two_nodes(tiny, handoff=Sha256)
    assert answers(finished(server, submitted(server))) == expected(tiny)
    assert_quiet(server)


def test_a_pool_that_counts_sees_every_page(tiny: BoundModel) -> None:
    """What the engine does with a pool goes through its methods: 5 requests, ceil((prompt + answer - 1) / 4) each."""
    server = one_node(tiny, pool=CountingPool)
    finished(server, submitted(server))
    pages = sum(pages_needed(length + n - 1, 4) for length, n in SHAPES)
    (pool,) = pools(server)
    assert pool.counts == {"lent": pages, "freed": pages}


def test_a_part_is_built_once_for_each_node(tiny: BoundModel) -> None:
    built: list[str] = []

    def door(context_length: int, nodes: Sequence[NodeCapacity], config: ServerConfig) -> Admission:
        built.append("door of " + " and ".join(f"{node.node} {node.pool_tokens}" for node in nodes))
        return Admission(context_length, nodes, config)

    def scheduler(pool: PagePool, config: NodeConfig) -> Scheduler:
        built.append(f"scheduler of {pool.node}, {config.num_pages} pages")
        return Scheduler(pool, config)

    two_nodes(tiny, scheduler=scheduler, admission=door)
    assert built == [
        "scheduler of prefill, 30 pages",
        "scheduler of decode, 30 pages",
        "door of prefill 120 and decode 120",
    ]


# Wrong parts: what is common

EVERYBODY = range(len(SHAPES))
RUNNING = (0, 1, 3, 4)  # when the target has two tokens, request 2 has its answer


@dataclass(frozen=True)
class Wrong:
    """A part that breaks a rule.

    Attributes:
        parts: builds fresh options for a server.
        rule: the rule that must be named, or how it begins.
        harmed: whose answer the error must be; everybody else must get what it gets alone.
        detail: what the message must say besides.
        split: whose answer it is on two nodes, if not the same.
        later: whether requests that come later are served.
    """

    parts: Callable[[], dict[str, Any]]
    rule: str
    harmed: Iterable[int] = (TARGET,)
    detail: str = ""
    split: Iterable[int] | None = None
    later: bool = True


def run(server: Server) -> list[Completion]:
    """Serve the requests to an end, however wrong a part is: a crash is a failure, and so is a hang."""
    numbers = submitted(server)
    for _ in range(80):
        if all(server.requests[number].answered for number in numbers):
            return [server.result(number) for number in numbers]
        server.step()
    raise AssertionError("somebody waits for ever")


def assert_named(done: Completion, rule: str, detail: str = "") -> None:
    """The answer is an error that a learner can use."""
    error = done.error
    assert isinstance(error, BrokenRule), f"{type(error).__name__}: {error}"
    assert error.rule.startswith(rule), error
    assert detail in error.detail, error
    assert error.step is not None and f"(step {error.step})" in str(error)
    assert (done.finish_reason, done.status) == ("error", 500)


def assert_whole(server: Server, model: BoundModel) -> None:
    """All pages came back, and whoever comes next is served."""
    assert_quiet(server)
    (done,) = server.generate([prompt_of(9)], greedy(3))
    assert answers([done]) == [alone(model, 9, 0, 3)]
    assert_quiet(server)


def assert_wrong(model: BoundModel, build: Build, case: Wrong) -> None:
    server = build(model, **case.parts())
    harmed = set(case.split if case.split is not None and build is two_nodes else case.harmed)
    for i, done in enumerate(run(server)):
        if i in harmed:
            assert_named(done, case.rule, case.detail)
            assert done.token_ids == expected(model)[i][: len(done.token_ids)]
        else:
            assert answers([done]) == [expected(model)[i]]
    if case.later:
        assert_whole(server, model)
    else:
        (done,) = server.generate([prompt_of(9)], greedy(3))
        assert done.finish_reason == "error" and case.rule in str(done.error)


def params_of(cases: dict[str, Wrong]) -> Any:
    """A parameter for each case."""
    return pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in cases.items()])


def raising(*_arguments: Any, **_options: Any) -> Any:
    raise KeyError("mine")


# Wrong schedulers


class Spoilt(Scheduler):
    """Right until the target has two tokens; then its plan is spoilt, once."""

    spoil: Callable[[Spoilt, list[Scheduled], Scheduled], Any]

    def __init__(self, pool: PagePool, config: NodeConfig) -> None:
        super().__init__(pool, config)
        self.done = False
        self.seen: dict[int, Request] = {}

    def add(self, request: Request) -> None:
        self.seen[request.number] = request
        super().add(request)

    def schedule(self) -> Any:
        plan = super().schedule()
        for share in plan:
            if share.request.number == TARGET and len(share.request.output_ids) == 2 and not self.done:
                self.done = True
                return type(self).spoil(self, plan, share)
        return plan


def spoilt(how: Callable[[Spoilt, list[Scheduled], Scheduled], Any]) -> Callable[[], dict[str, Any]]:
    return lambda: {"scheduler": type("Mine", (Spoilt,), {"spoil": how})}


def sized(tokens: Any) -> Callable[[], dict[str, Any]]:
    """The target's share has another size."""
    return spoilt(
        lambda _self, plan, share: [
            replace(each, num_scheduled_tokens=tokens) if each is share else each for each in plan
        ]
    )


def pages_taken_back(self: Spoilt, plan: list[Scheduled], share: Scheduled) -> list[Scheduled]:
    self.pool.free(self.pool.tables[TARGET])
    return plan


def dropped(self: Spoilt, plan: list[Scheduled], share: Scheduled) -> list[Scheduled]:
    self.running.remove(share.request)
    return [each for each in plan if each is not share]


def said_to_be_written(self: Spoilt, plan: list[Scheduled], share: Scheduled) -> list[Scheduled]:
    self.pool.tables[TARGET].written += 1
    return plan


def finished_by_it(self: Spoilt, plan: list[Scheduled], share: Scheduled) -> list[Scheduled]:
    share.request.finish("stop")
    return plan


class Idle(Scheduler):
    def schedule(self) -> list[Scheduled]:
        return []


class Loses(Scheduler):
    """Forgets to put the target in its queue."""

    def add(self, request: Request) -> None:
        if request.number != TARGET:
            super().add(request)


class Stingy(ListScheduler):
    """One page for the target, whatever it writes."""

    def lend(self, request: Request, tokens: int) -> bool:
        return super().lend(request, min(tokens, 4) if request.number == TARGET else tokens)


class Crowded(ListScheduler):
    """Thinks that more may share a step than may."""

    def __init__(self, pool: PagePool, config: NodeConfig) -> None:
        super().__init__(pool, replace(config, max_batch_size=99))


NOBODY: Any = None
SIZE = "a share is 1 token at least, and at most what is missing"
LIST = "a plan is a list of Scheduled"
ONCE = "at most max_batch_size=32 requests share a step, each once"
IDLE = "a step with work to do does some"

SCHEDULERS = {
    "a request twice": Wrong(spoilt(lambda _s, plan, share: [*plan, share]), ONCE, RUNNING, "[0, 1, 3, 4, 1]"),
    "more than is missing": Wrong(sized(2), SIZE, detail="request 1 misses 1, gets 2"),
    "half a token": Wrong(sized(1.5), SIZE, detail="request 1 misses 1, gets 1.5"),
    "no token": Wrong(sized(0), SIZE, detail="request 1 misses 1, gets 0"),
    "less than no token": Wrong(sized(-3), SIZE, detail="request 1 misses 1, gets -3"),
    "a size in letters": Wrong(sized("1"), SIZE, detail="request 1 misses 1, gets '1'"),
    "no size": Wrong(sized(None), SIZE, detail="request 1 misses 1, gets None"),
    "nobody": Wrong(spoilt(lambda _s, plan, _share: [*plan, Scheduled(NOBODY, 1)]), LIST, RUNNING),
    "over the budget": Wrong(
        sized(10**6), "a step has at most max_batch_tokens=8192 tokens", RUNNING, "1000003 are planned"
    ),
    "without pages": Wrong(spoilt(pages_taken_back), "who runs holds pages", detail="request 1 is planned"),
    "one page too few": Wrong(
        lambda: {"scheduler": Stingy}, "pages are lent before they are written", detail="to write 5 slots and holds 4"
    ),
    "None": Wrong(spoilt(lambda *_: None), LIST, RUNNING, "None came"),
    "a generator": Wrong(spoilt(lambda _s, plan, _share: (each for each in plan)), LIST, RUNNING, "generator"),
    "requests": Wrong(spoilt(lambda _s, plan, _share: [each.request for each in plan]), LIST, RUNNING, "Request"),
    "who is finished": Wrong(
        spoilt(lambda self, plan, _share: [*plan, Scheduled(self.seen[2], 1)]),
        "who is finished runs no more", RUNNING, "request 2 is finished and planned",
    ),
    "whom it finished": Wrong(spoilt(finished_by_it), "who is finished runs no more", detail="request 1 "),
    "what it says was written": Wrong(spoilt(said_to_be_written), SIZE, detail="request 1 misses 0, gets 1"),
    "loses one that runs": Wrong(spoilt(dropped), IDLE, detail="1 requests wait"),
    "loses one that comes": Wrong(lambda: {"scheduler": Loses}, IDLE, detail="1 requests wait"),
    "idle": Wrong(lambda: {"scheduler": Idle}, IDLE, EVERYBODY, "5 requests wait", later=False),
}  # fmt: skip


@both
@params_of(SCHEDULERS)
def test_wrong_scheduler(tiny: BoundModel, build: Build, case: Wrong) -> None:
    assert_wrong(tiny, build, case)


def test_more_than_a_batch_holds(tiny: BoundModel) -> None:
    server = one_node(tiny, scheduler=Crowded, max_batch_size=3)
    for done in run(server):
        assert_named(done, "at most max_batch_size=3 requests share a step, each once", "[0, 1, 2, 3, 4]")
    assert_whole(server, tiny)


def test_a_wrong_plan_harms_those_that_run_and_the_next_one(tiny: BoundModel) -> None:
    """Two run and three wait when a plan is no plan: the two and the one that was to join are told; two are served."""
    server = one_node(tiny, max_batch_size=2, **spoilt(lambda *_: None)())
    done = run(server)
    assert [each.finish_reason for each in done] == ["error", "error", "error", "length", "length"]
    for each in done[:3]:
        assert_named(each, LIST)
    assert answers(done[3:]) == expected(tiny)[3:]
    assert_whole(server, tiny)


# Wrong doors


def door(act: Callable[[Request, int], Any]) -> Callable[[], dict[str, Any]]:
    """The right one, but for the target something else comes back."""

    class Mine(Admission):
        def check(self, request: Request, waiting: int = 0) -> Any:
            granted = super().check(request, waiting)
            return act(request, granted) if request.number == TARGET else granted

    return lambda: {"admission": Mine}


def setting(**values: Any) -> Callable[[], dict[str, Any]]:
    """The door changes the request."""

    def change(request: Request, granted: int) -> int:
        for name, value in values.items():
            setattr(request, name, value)
        return granted

    return door(change)


def spoken_for(request: Request, granted: int) -> int:
    request.output_ids.append(3)
    return granted


def ended(request: Request, granted: int) -> int:
    request.finish("stop")
    return granted


class Generous(Admission):
    """Lets everybody in."""

    def check(self, request: Request, waiting: int = 0) -> int:
        return request.params.max_tokens


GRANT = "the door grants 1 to 6 tokens, or raises Rejected"
PROMPT = "a prompt is immutable"

DOORS = {
    **{f"grants {value!r}": Wrong(door(lambda _request, _granted, value=value: value), GRANT, detail=f"{value!r} came")
       for value in (0, -1, 7, 10**9, None, True, False, 2.5, "3")},
    "a shorter prompt": Wrong(setting(prompt_ids=(1, 2)), PROMPT, detail="the door changed that of request 1"),
    "another prompt": Wrong(setting(prompt_ids=(1, 2, 3, 4, 5)), PROMPT, detail="the door changed that of request 1"),
    "another length": Wrong(setting(prompt_tokens=3), PROMPT, detail="the door changed that of request 1"),
    "another tenant": Wrong(setting(tenant="other"), "the door", detail="request 1"),
    "another number": Wrong(setting(number=0), "the door", detail="request 1"),
    "a token of its own": Wrong(door(spoken_for), "the door", detail="request 1"),
    "an end": Wrong(door(ended), "the door", detail="request 1"),
    "past the context": Wrong(
        lambda: {"admission": Generous, "context_length": 14}, "the door keeps the context of 14", (0, 2), " came"
    ),
    "past the pool": Wrong(
        lambda: {"admission": Generous, "context_length": 99, "allow_context_above_pool": True, "pages": 3},
        "whoever the door lets in is served", (0, 2), "gets no pages, though nobody else holds any",
    ),
}  # fmt: skip


@both
@params_of(DOORS)
def test_wrong_door(tiny: BoundModel, build: Build, case: Wrong) -> None:
    if case.rule.startswith("whoever"):  # its pool is too small for the request that comes next in the others
        server = build(tiny, **case.parts())
        done = run(server)
        for i in (0, 2):
            assert_named(done[i], case.rule, f"request {i} {case.detail}")
        assert answers([done[1], *done[3:]]) == [expected(tiny)[1], *expected(tiny)[3:]]
        assert_quiet(server)
    else:
        assert_wrong(tiny, build, case)


@pytest.mark.parametrize("grant", [0, None, 10**9])
def test_a_wrong_door_touches_no_pool(tiny: BoundModel, grant: Any) -> None:
    """Its error comes at once, before anything was queued or lent; the step is the one before which it came."""
    server = one_node(tiny, **door(lambda *_: grant)())
    server.submit(prompt_of(3), greedy(2))
    server.step()
    number = server.submit(prompt_of(5), greedy(6))
    assert number == TARGET and server.requests[number].answered
    assert not server.nodes[0].scheduler.waiting and number not in pools(server)[0].tables
    error = server.result(number).error
    assert isinstance(error, BrokenRule) and error.step == 1


# Wrong samplers


def sampler(act: Callable[[torch.Tensor, Request], Any]) -> Callable[[], dict[str, Any]]:
    """The right one, but for the target's third token something else."""

    def choose(logits: torch.Tensor, request: Request) -> Any:
        if request.number == TARGET and len(request.output_ids) == 2:
            return act(logits, request)
        return sample(logits, request)

    return lambda: {"sampler": choose}


def appended(logits: torch.Tensor, request: Request) -> int:
    """Does what the node does afterwards; the token must not stand in the answer twice."""
    token = sample(logits, request)
    request.append(token)
    return token


ONE_ID = "a sampler returns one token id"
SAMPLERS: dict[str, Any] = {
    **{f"{value!r}": Wrong(sampler(lambda _logits, _request, value=value: value), ONE_ID, detail=f"{value!r} came")
       for value in (2.5, None, True, "5", [3], (3,))},
    **{f"{value!r}": Wrong(
        sampler(lambda _logits, _request, value=value: value),
        "a sampler returns a token of the vocabulary", detail=f"{value} is not in 0 to 256",
    ) for value in (-1, 257, 10**9)},
    "probabilities": Wrong(sampler(lambda logits, _request: logits.softmax(-1)), ONE_ID),
    "a tensor of two": Wrong(sampler(lambda logits, _request: logits.topk(2).indices), ONE_ID),
    "an array of two": Wrong(sampler(lambda _logits, _request: np.array([1, 2])), ONE_ID),
    "the largest logit": Wrong(sampler(lambda logits, _request: logits.max()), ONE_ID),
    "a token that it appends": Wrong(sampler(appended), "a sampler"),
}  # fmt: skip


@both
@params_of(SAMPLERS)
def test_wrong_sampler(tiny: BoundModel, build: Build, case: Wrong) -> None:
    assert_wrong(tiny, build, case)


# Wrong attention


def attention(act: Callable[..., Any], call: int = 7) -> Callable[[], dict[str, Any]]:
    """Right, but for one call: the first layer of a step in which four requests decode."""

    def build() -> dict[str, Any]:
        calls = 0

        def attend(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            return act(*arguments) if calls == call else torch_backend.attend(*arguments)

        return {"attention": attend}

    return build


def damage(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, sequences: Any, options: Any) -> torch.Tensor:
    """Right, and afterwards it writes over what somebody has stored."""
    output = torch_backend.attend(query, keys, values, sequences, options)
    values[sequences[-1].slots] = 7.0
    return output


ATTENDED = "attention gives back [tokens, query heads, value width]"
plain = torch_backend.attend
ATTENTION: dict[str, Any] = {
    "a row too few": Wrong(attention(lambda *a: plain(*a)[:-1]), ATTENDED, RUNNING, "(3, 4, 8)"),
    "heads merged": Wrong(attention(lambda *a: plain(*a).flatten(1)), ATTENDED, RUNNING, "(4, 32)"),
    "half a head": Wrong(attention(lambda *a: plain(*a)[..., :4]), ATTENDED, RUNNING, "(4, 4, 4)"),
    "None": Wrong(attention(lambda *a: None), ATTENDED, RUNNING, "NoneType came"),
    "an array": Wrong(attention(lambda *a: plain(*a).numpy()), ATTENDED, RUNNING, "ndarray came"),
    "another dtype": Wrong(attention(lambda *a: plain(*a).double()), "attention gives back", RUNNING),
    "another device": Wrong(attention(lambda *a: plain(*a).to("meta")), "attention gives back", RUNNING),
    "damage": Wrong(attention(damage), "attention", RUNNING),
}


@both
@params_of(ATTENTION)
def test_wrong_attention(tiny: BoundModel, build: Build, case: Wrong) -> None:
    assert_wrong(tiny, build, case)


@both
def test_attention_that_gives_no_number(tiny: BoundModel, build: Build) -> None:
    """Found where a token would be chosen: no answer goes on from it, and the next request is served."""
    server = build(tiny, **attention(lambda *a: plain(*a) * math.nan)())
    done = run(server)
    for i in RUNNING:
        assert done[i].finish_reason == "error" and "not a number" in str(done[i].error)
    assert answers([done[2]]) == [expected(tiny)[2]]
    assert_whole(server, tiny)


# Wrong pools


class LendsTwice(PagePool):
    """The target's first page is somebody else's."""

    def lend(self, owner: int, num_pages: int) -> PageTable:
        table = super().lend(owner, num_pages)
        if owner == TARGET:
            table.pages[0] = self.tables[0].pages[0]
        return table


class ForgetsToFree(PagePool):
    def free(self, table: PageTable) -> None:
        if table.owner != TARGET:
            super().free(table)


class LosesPages(PagePool):
    """Takes pages back and does not count them as free."""

    def free(self, table: PageTable) -> None:
        super().free(table)
        self._num_lent += len(table.pages)


class OneMore(PagePool):
    @property
    def num_free(self) -> int:
        return super().num_free + 1


class OneLess(PagePool):
    @property
    def num_free(self) -> int:
        return super().num_free - 1


class NoTable(PagePool):
    """Lends pages to the target and does not remember it."""

    def lend(self, owner: int, num_pages: int) -> PageTable:
        table = super().lend(owner, num_pages)
        if owner == TARGET:
            del self.tables[owner]
        return table


class TooFew(PagePool):
    """A page less than was asked for."""

    def extend(self, table: PageTable, num_pages: int) -> None:
        super().extend(table, num_pages - 1 if table.owner == TARGET and num_pages else num_pages)


class OwnerStays(PagePool):
    """Free pages keep the name of who held them."""

    def free(self, table: PageTable) -> None:
        super().free(table)
        self.owner[table.pages] = table.owner


class WritesElsewhere(PagePool):
    """The target's tokens go to the first slot of the pool, which is another's."""

    def begin_write(self, table: PageTable, start: int, stop: int) -> np.ndarray:
        slots = super().begin_write(table, start, stop)
        return slots * 0 if table.owner == TARGET else slots


class WritesLess(PagePool):
    def begin_write(self, table: PageTable, start: int, stop: int) -> np.ndarray:
        slots = super().begin_write(table, start, stop)
        return slots[:-1] if table.owner == TARGET else slots


class ReadsOthers(PagePool):
    """The target reads what request 0 wrote."""

    def begin_read(self, table: PageTable) -> np.ndarray:
        slots = super().begin_read(table)
        return self.tables[0].slots(0, len(slots)) if table.owner == TARGET and 0 in self.tables else slots


class WritesNothingDown(PagePool):
    """The target's tokens are stored, and `written` stays."""

    def begin_write(self, table: PageTable, start: int, stop: int) -> np.ndarray:
        return table.slots(start, stop) if table.owner == TARGET else super().begin_write(table, start, stop)


class ImportsNothing(PagePool):
    """What came in a handoff is declared readable and not kept."""

    def import_pages(self, table: PageTable, keys: Any, values: Any, records: Any, written: int) -> None:
        if table.owner == TARGET:
            table.written = written
        else:
            super().import_pages(table, keys, values, records, written)


def test_a_pool_that_lends_a_page_twice(tiny: BoundModel) -> None:
    """Two hold a page, so nothing in the pool is trusted any more: everybody is told, now and later."""
    server = one_node(tiny, pool=LendsTwice)
    done = run(server)
    assert_named(done[0], "a page has one holder", "a page stands in two tables")
    for each in done[1:]:
        assert each.finish_reason == "error" and "a page has one holder" in str(each.error), each.error
    (later,) = server.generate([prompt_of(9)], greedy(3))
    assert later.finish_reason == "error" and "a page has one holder" in str(later.error)


@both
def test_a_pool_that_lends_too_few(tiny: BoundModel, build: Build) -> None:
    """Of the two pages that the target's prompt takes one is missing."""
    case = Wrong(
        lambda: {"pool": TooFew}, "pages are lent before they are written", detail="is to write 5 slots and holds 4"
    )
    assert_wrong(tiny, build, case)


@both
@pytest.mark.parametrize("pool", [LosesPages, OneMore, OneLess])
def test_a_pool_that_cannot_count(tiny: BoundModel, build: Build, pool: type[PagePool]) -> None:
    """It is found in the step after the first page is lost, and said again to whoever comes later."""
    server = build(tiny, pool=pool)
    done = run(server)
    harmed = RUNNING if pool is LosesPages else EVERYBODY
    for i in EVERYBODY:
        if i in harmed:
            assert_named(done[i], "free + lent == total", "!= 30 on ")
        else:
            assert answers([done[i]]) == [expected(tiny)[i]]
    (later,) = server.generate([prompt_of(9)], greedy(3))
    assert later.finish_reason == "error" and "free + lent == total" in str(later.error)


@both
def test_a_pool_without_a_table(tiny: BoundModel, build: Build) -> None:
    """The pages that it lent to nobody are lost, so it is not trusted any more."""
    done = run(server := build(tiny, pool=NoTable))
    assert_named(done[TARGET], "who runs holds pages", "request 1 is planned and has no page table")
    (later,) = server.generate([prompt_of(9)], greedy(3))
    assert later.finish_reason == "error" and "free + lent == total" in str(later.error)


@both
def test_a_pool_that_forgets_to_free(tiny: BoundModel, build: Build) -> None:
    """Found when the request ends, not when the pool has run dry."""
    server = build(tiny, pool=ForgetsToFree)
    done = run(server)
    ok = [each for each in done if each.error is None]
    assert ok == [each for each in done if each.finish_reason == "length"]
    (later,) = server.generate([prompt_of(9)], greedy(3))
    assert later.finish_reason == "error" and "holds nothing" in str(later.error)


@both
def test_a_pool_whose_free_pages_have_owners(tiny: BoundModel, build: Build) -> None:
    """The pool is to blame, and not the allocator, which was right to hand the page out again."""
    done = run(build(tiny, pool=OwnerStays))
    for i in RUNNING:
        assert_named(done[i], "free + lent == total")
    assert answers([done[2]]) == [expected(tiny)[2]]


@both
@pytest.mark.parametrize("pool", [WritesElsewhere, WritesLess, ReadsOthers, WritesNothingDown])
def test_a_pool_that_points_elsewhere(tiny: BoundModel, build: Build, pool: type[PagePool]) -> None:
    """Slots that are not the table's own: nobody gets a token that was computed from them."""
    done = run(build(tiny, pool=pool))
    assert_named(done[TARGET], "")
    for i in EVERYBODY:
        if done[i].error is None:
            assert done[i].token_ids == expected(tiny)[i]


def test_a_pool_that_imports_nothing(tiny: BoundModel) -> None:
    """The ledger sees that nobody wrote what is about to be read."""
    server = two_nodes(tiny, pool=ImportsNothing)
    done = run(server)
    assert_named(done[TARGET], "a request reads only what was written for it", "5 slots written by nobody (5)")
    assert_whole(server, tiny)


# Wrong allocators


def allocator(hand_out: Callable[[list[int]], Any]) -> Callable[[], dict[str, Any]]:
    """Right, but for the second grant of its life, which is the target's."""

    class Mine(FreeList):
        calls = 0

        def allocate(self, n: int) -> Any:
            self.calls += 1
            pages = super().allocate(n)
            return hand_out(pages) if self.calls == 2 else pages

    return lambda: {"allocator": Mine}


class NeverTakesBack(FreeList):
    def free(self, pages: Sequence[int]) -> None:
        pass


LENDS = "an allocator lends as many free pages as it was asked for, each once"
ALLOCATORS: dict[str, Any] = {
    name: Wrong(allocator(hand_out), LENDS, (0, 1), detail, split=split)
    for name, (hand_out, detail, split) in {
        "a page twice": (lambda pages: [pages[0]] * len(pages), "a page was handed out twice in one grant", None),
        "a page that is held": (lambda pages: [0, *pages[1:]], "request 0 holds it", None),
        "too few": (lambda pages: pages[1:], "2 pages were asked for and 1 handed out", None),
        "too many": (lambda pages: [*pages, 29], "2 pages were asked for and 3 handed out", None),
        "none": (lambda _pages: None, "None came back instead of a list", None),
        "no page of this pool": (lambda pages: [30, *pages[1:]], "30 is no page of this pool (0 to 29)", None),
        "letters": (lambda pages: "ab"[: len(pages)], "'a' is no page number", None),
    }.items()
}


@params_of(ALLOCATORS)
def test_wrong_allocator(tiny: BoundModel, case: Wrong) -> None:
    """Who runs, and who was to get the pages, are told; the others are served from what the allocator has left."""
    server = one_node(tiny, **case.parts())
    done = run(server)
    for i in (0, 1):
        assert_named(done[i], case.rule, case.detail)
    assert answers(done[2:]) == expected(tiny)[2:]
    assert pools(server)[0].num_free == 30 and not pools(server)[0].tables


def test_an_allocator_that_takes_nothing_back_is_found_when_it_runs_dry(tiny: BoundModel) -> None:
    """The pool counts free pages that it cannot get: that is the allocator's fault, and nobody waits for them."""
    server = one_node(tiny, allocator=NeverTakesBack)
    assert answers(run(server)) == expected(tiny)
    done = run(server)
    told = [each for each in done if each.error]
    assert told
    for each in told:
        assert_named(each, LENDS)


# Wrong contracts


def contract(
    pack: Callable[[Handoff], Any] | None = None, verify: Callable[..., Any] | None = None
) -> Callable[[], dict[str, Any]]:
    """The right one, but for the target."""

    class Mine(Contract):
        def pack(self, pool: PagePool, table: PageTable, first_token: int) -> Any:  # type: ignore[override]
            handoff = Contract.pack(pool, table, first_token)
            return pack(handoff) if pack and table.owner == TARGET else handoff

        def verify(self, handoff: Any, pool: PagePool, *, request: int, expected_tokens: int) -> Any:  # type: ignore[override]
            right = Contract.verify if verify is None or request != TARGET else verify
            return right(handoff, pool, request=request, expected_tokens=expected_tokens)

    return lambda: {"handoff": Mine}


def trusting(*_arguments: Any, **_options: Any) -> None:
    """Lets everything through."""


def resealed(handoff: Handoff, **changes: Any) -> Handoff:
    """A lie with a digest that fits it."""
    lie = replace(handoff, **changes)
    return replace(lie, digest=digest_of(lie.request, lie.num_tokens, lie.first_token, lie.keys, lie.values))


def first_page(handoff: Handoff) -> Handoff:
    """The second page is missing in every layer."""
    return replace(handoff, keys=[each[:1] for each in handoff.keys], values=[each[:1] for each in handoff.values])


def of_another(handoff: Handoff) -> Handoff:
    """The records say that request 0 wrote the slots."""
    assert handoff.records is not None
    return replace(handoff, records=replace(handoff.records, writer=handoff.records.writer * 0))


RAISES = "a handoff is refused by raising HandoffRefused"
FITS = "what is imported fits the pages that were lent for it"
CONTRACTS: dict[str, Any] = {
    "verify says False": Wrong(contract(verify=lambda *_, **__: False), RAISES, detail="False came"),
    "verify says True": Wrong(contract(verify=lambda *_, **__: True), RAISES, detail="True came"),
    "pack gives None": Wrong(contract(pack=lambda _: None), "what is packed is a Handoff", detail="NoneType came"),
    "pack gives bytes": Wrong(contract(pack=lambda _: b""), "what is packed is a Handoff", detail="bytes came"),
    "a layer is missing": Wrong(contract(lambda h: replace(h, keys=h.keys[:1]), trusting), FITS),
    "no layer at all": Wrong(contract(lambda h: replace(h, keys=(), values=()), trusting), FITS),
    "more positions than pages": Wrong(contract(lambda h: replace(h, num_tokens=9), trusting), FITS, detail="9 pos"),
    "more positions than were computed": Wrong(
        contract(lambda h: replace(h, num_tokens=8), trusting), "what is written was computed", detail="8 positions"
    ),
    "a page is missing": Wrong(contract(first_page, trusting), FITS),
    "fewer positions than none": Wrong(contract(lambda h: replace(h, num_tokens=-1), trusting), FITS),
}


@params_of(CONTRACTS)
def test_wrong_contract(tiny: BoundModel, case: Wrong) -> None:
    assert_wrong(tiny, two_nodes, case)


def test_positions_that_a_trusting_contract_lets_be_missing_are_computed(tiny: BoundModel) -> None:
    """The door's record counts, not the promise: what did not come is read again on the decode node."""
    server = two_nodes(tiny, **contract(lambda handoff: replace(handoff, num_tokens=3), trusting)())
    assert answers(run(server)) == expected(tiny)
    assert_whole(server, tiny)


@pytest.mark.parametrize("trusts", [False, True])
def test_records_of_another_request_are_not_believed(tiny: BoundModel, trusts: bool) -> None:
    """The payload is right, and its records say that somebody else wrote it: refused, or else not read."""
    server = two_nodes(tiny, **contract(of_another, *[trusting] * trusts)())
    done = run(server)
    if trusts:
        assert_named(done[TARGET], "a request reads only what was written for it", "5 slots written by request 0 (5)")
    else:
        assert str(done[TARGET].error) == "request 1: 5 of 5 slots were not written by it"
    assert_whole(server, tiny)


@pytest.mark.parametrize(
    ("pack", "says"),
    [
        (lambda h: replace(h, request=0), "a handoff for request 0 came where 1 was expected"),
        (lambda h: resealed(h, num_tokens=3), "5 tokens were expected, 3 are promised"),
        (lambda h: replace(h, keys=tuple(each * 0 for each in h.keys)), "the contents do not match their digest"),
        (lambda h: replace(h, digest=""), "the contents do not match their digest"),
        (lambda h: replace(h, first_token=h.first_token + 1), "the contents do not match their digest"),
        (first_page, "keys of layer 0 came as (1, 4, 2, 8)"),
    ],
)
def test_a_pack_that_lies_is_refused_by_the_right_verify(
    tiny: BoundModel, pack: Callable[[Handoff], Handoff], says: str
) -> None:
    """502 for that request, which got nothing of it; the others are served."""
    server = two_nodes(tiny, **contract(pack)())
    done = run(server)
    error = done[TARGET].error
    assert isinstance(error, HandoffRefused) and says in str(error)
    assert (done[TARGET].finish_reason, done[TARGET].status) == ("error", 502)
    for i in (0, 2, 3, 4):
        assert answers([done[i]]) == [expected(tiny)[i]]
    assert_whole(server, tiny)


# Parts that raise


def scheduler_that_raises() -> dict[str, Any]:
    return spoilt(raising)()


def pool_that_raises() -> dict[str, Any]:
    class Mine(PagePool):
        def lend(self, owner: int, num_pages: int) -> PageTable:
            return raising() if owner == TARGET else super().lend(owner, num_pages)

    return {"pool": Mine}


RAISING: dict[str, tuple[Callable[[], dict[str, Any]], Iterable[int]]] = {
    "scheduler": (scheduler_that_raises, RUNNING),
    "door": (door(raising), [TARGET]),
    "sampler": (sampler(raising), [TARGET]),
    "attention": (attention(raising), RUNNING),
    "pool": (pool_that_raises, [0, TARGET]),
    "allocator": (allocator(raising), [0, TARGET]),
}


@pytest.mark.parametrize(("parts", "harmed"), RAISING.values(), ids=RAISING)
def test_a_part_that_raises(tiny: BoundModel, parts: Callable[[], dict[str, Any]], harmed: Iterable[int]) -> None:
    """Its own words reach those that it harms; the others are served, and all pages come back."""
    server = one_node(tiny, **parts())
    done = run(server)
    for i in EVERYBODY:
        if i in harmed:
            assert done[i].finish_reason == "error" and "KeyError: 'mine'" in str(done[i].error)
        else:
            assert answers([done[i]]) == [expected(tiny)[i]]
    assert pools(server)[0].num_free == 30 and not pools(server)[0].tables


@pytest.mark.parametrize(("parts", "harmed"), RAISING.values(), ids=RAISING)
def test_a_part_that_raises_names_the_step(
    tiny: BoundModel, parts: Callable[[], dict[str, Any]], harmed: Iterable[int]
) -> None:
    """And the error that the learner's code raised is its cause, with the line where it was raised."""
    for i, done in enumerate(run(one_node(tiny, **parts()))):
        if i in harmed:
            assert "(step " in str(done.error)
            assert done.error is not None and isinstance(done.error.__cause__, KeyError)


@pytest.mark.parametrize("pack", [True, False])
def test_a_contract_that_raises(tiny: BoundModel, pack: bool) -> None:
    server = two_nodes(tiny, **contract(raising if pack else None, None if pack else raising)())
    done = run(server)
    assert done[TARGET].finish_reason == "error" and "KeyError: 'mine'" in str(done[TARGET].error)
    assert answers([done[0], *done[2:]]) == [expected(tiny)[0], *expected(tiny)[2:]]
    assert_whole(server, tiny)


# Parts that are none


class Bare:
    """Has nothing of what a part must have."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        pass


@both
@pytest.mark.parametrize("part", ["scheduler", "pool", "admission"])
def test_a_part_without_its_methods_is_refused_at_start(tiny: BoundModel, build: Build, part: str) -> None:
    """When the server is built, with the name of the part: not in the middle of somebody's answer."""
    with pytest.raises(ConfigError, match=part):
        build(tiny, **{part: Bare})


def test_a_contract_without_its_methods_is_refused_at_start(tiny: BoundModel) -> None:
    with pytest.raises(ConfigError, match="handoff"):
        two_nodes(tiny, handoff=Bare)


# An error in the middle of a step


def test_a_step_that_breaks_half_way_concerns_all_its_requests(tiny: BoundModel) -> None:
    """A part blames one request after the step has declared positions of all of them as written. Nobody may go on
    from positions that hold nothing: here a chunk of a long prompt, beside the one that is blamed."""
    calls = 0

    def blaming(*arguments: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 3:  # the first layer of the second step
            raise BrokenRule("mine", "request 0 is to blame", 0)
        return torch_backend.attend(*arguments)

    server = one_node(tiny, attention=blaming, max_batch_tokens=6)
    blamed = server.submit(prompt_of(2), greedy(4))
    beside = server.submit(prompt_of(13, seed=1), greedy(4))
    waits = server.submit(prompt_of(5, seed=2), greedy(4))
    done = finished(server, [blamed, beside, waits])
    assert_named(done[0], "mine")
    assert_named(done[1], "mine")
    assert answers(done[2:]) == [alone(tiny, 5, 2, 4)]
    assert_whole(server, tiny)


def test_a_remove_that_raises_keeps_no_pages(tiny: BoundModel) -> None:
    """The server stops, says so to everybody, and holds nothing of the request that could not be removed."""

    class Clings(Scheduler):
        def remove(self, request: Request) -> None:
            if request.number == TARGET:
                raising()
            super().remove(request)

    server = one_node(tiny, scheduler=Clings)
    run(server)
    assert TARGET not in pools(server)[0].tables
    (later,) = server.generate([prompt_of(9)], greedy(3))
    assert later.finish_reason == "error" and "the engine stopped: KeyError: 'mine'" in str(later.error)
