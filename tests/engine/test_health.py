"""`check()` finds every violation of an invariant that is made by hand, by its name; `stats()` counts exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers import Server, assert_quiet, cluster, finished, greedy, pools, prompt_of

from minikv import Cluster, Engine, NodeConfig
from minikv.errors import BrokenRule, RequestAborted
from minikv.memory import PagePool
from minikv.models.adapter import BoundModel
from minikv.scheduling.request import Request
from minikv.scheduling.scheduler import Scheduler

PAGE = 4


def running(model: BoundModel) -> Engine:
    """Requests 0 and 1 run, 2 waits, 3 was refused, 4 is finished and its answer was not fetched yet."""
    server = Engine(model, page_size=PAGE, num_pages=10, max_batch_size=3)
    for shape in [(6, 8), (9, 8), (7, 8), (90, 1)]:
        server.submit(prompt_of(shape[0], seed=shape[1]), greedy(shape[1]))
    server.abort(2)
    server.result(2)
    server.step()
    server.submit(prompt_of(3), greedy(1))
    server.step()
    for _ in range(2):
        server.submit(prompt_of(30), greedy(8))
    server.check()
    assert [request.number for request in server.node.scheduler.running] == [0, 1]
    assert list(server.node.scheduler.waiting) == [5, 6] and server.requests[4].answered
    return server


def between(model: BoundModel) -> Cluster:
    """Request 0 runs on the decode node, which is full; 1 waits between the nodes, and 2 on the prefill node."""
    server = Cluster(
        model,
        prefill=NodeConfig(num_pages=10, max_batch_size=2),
        decode=NodeConfig(num_pages=10, max_batch_size=1),
        page_size=PAGE,
    )
    for length in (6, 9, 7):
        server.submit(prompt_of(length), greedy(8))
    server.step()
    server.check()
    assert [request.number for request in server.between] == [1]
    assert [request.number for request in server.decode.scheduler.running] == [0]
    assert list(server.prefill.scheduler.waiting) == [2]
    return server


# Violations, by the number of the invariant in the design


def pages_of_a_refused(server: Engine) -> None:
    server.pool.lend(3, 1)


def a_refused_in_the_queue(server: Engine) -> None:
    server.node.scheduler.add(server.requests[3])


def pages_of_a_finished(server: Engine) -> None:
    server.pool.lend(4, 1)


def pages_of_nobody(server: Engine) -> None:
    server.pool.lend(77, 1)


def a_shorter_prompt(server: Engine) -> None:
    server.requests[0].prompt_ids = server.requests[0].prompt_ids[1:]


def another_length(server: Engine) -> None:
    server.requests[0].prompt_tokens += 1


def another_prompt(server: Engine) -> None:
    server.requests[0].prompt_ids = server.requests[0].prompt_ids[::-1]


def written_past_the_pages(server: Engine) -> None:
    table = server.pool.tables[0]
    table.written = table.allocated + 1


def written_past_what_is_known(server: Engine) -> None:
    server.pool.tables[1].written = server.requests[1].num_tokens + 1


def half_a_handoff(server: Cluster) -> None:
    server.decode.config = NodeConfig(num_pages=10)
    assert server.decode.reserve(server.requests[1])


def granted_past_the_pool(server: Engine) -> None:
    server.requests[0].max_tokens = 36


def granted_past_the_context(server: Engine) -> None:
    server.context_length = 13


def more_than_was_granted(server: Engine) -> None:
    server.requests[0].output_ids += [1] * 6


def a_page_in_two_tables(server: Engine) -> None:
    server.pool.tables[1].pages[0] = server.pool.tables[0].pages[0]


def a_page_that_is_none(server: Engine) -> None:
    server.pool.tables[1].pages[0] = 10


def an_older_generation(server: Engine) -> None:
    server.pool.tables[1].generations[0] -= 1


def another_owner(server: Engine) -> None:
    server.pool.owner[server.pool.tables[1].pages[0]] = 0


def an_owner_of_a_free_page(server: Engine) -> None:
    server.pool.owner[next(page for page in range(10) if server.pool.owner[page] < 0)] = 0


def a_table_of_another(server: Engine) -> None:
    tables = server.pool.tables
    tables[0], tables[1] = tables[1], tables[0]


def a_better_status(server: Engine) -> None:
    server.requests[3].finish_reason = "length"


def an_abort_without_its_error(server: Engine) -> None:
    server.requests[4].finish_reason = "abort"


def an_error_without_its_status(server: Engine) -> None:
    server.requests[0].error = RequestAborted("by hand")


def a_lost_page(server: Engine) -> None:
    server.pool.tables[1].pages.pop()


def a_page_too_many(server: Engine) -> None:
    server.pool._num_lent -= 1


def a_page_too_few(server: Engine) -> None:
    server.pool._num_lent += 1


def answered_before_it_is_finished(server: Engine) -> None:
    server.requests[5].answered = True


def finished_and_not_answered(server: Engine) -> None:
    server.requests[0].finish("length")


def in_two_places(server: Engine) -> None:
    server.node.scheduler.waiting[0] = server.requests[0]


def nowhere(server: Engine) -> None:
    server.node.scheduler.waiting.pop(5)


def on_two_nodes(server: Cluster) -> None:
    server.prefill.scheduler.running.append(server.requests[0])


def twice_between(server: Cluster) -> None:
    server.between.append(server.requests[1])


def nowhere_between(server: Cluster) -> None:
    server.between.clear()


def again_after_its_end(server: Engine) -> None:
    server.node.scheduler.running.append(server.requests[4])


HOLDS = "who is refused or finished holds nothing"
PLACE = "who has no answer is in one place, who has one in none"
PROMPT = "a prompt is immutable"
FITS = "who is let in fits every node"
HOLDER = "a page has one holder"
STATUS = "the worst status wins"
TOTAL = "free + lent == total"
GIVEN = "an answer is given out when it stands"

VIOLATIONS: list[tuple[int, Callable[..., None], str]] = [
    (1, pages_of_a_refused, HOLDS),
    (1, a_refused_in_the_queue, PLACE),
    (1, pages_of_a_finished, HOLDS),
    (1, pages_of_nobody, HOLDS),
    (2, a_shorter_prompt, PROMPT),
    (2, another_length, PROMPT),
    (2, another_prompt, PROMPT),
    (3, written_past_the_pages, "allocated >= written"),
    (3, written_past_what_is_known, "what is written was computed"),
    (4, half_a_handoff, "a handoff is complete or nothing"),
    (5, granted_past_the_pool, FITS),
    (5, granted_past_the_context, FITS),
    (5, more_than_was_granted, "nobody gets more tokens than granted"),
    (6, a_page_in_two_tables, HOLDER),
    (6, a_page_that_is_none, HOLDER),
    (6, an_older_generation, HOLDER),
    (6, another_owner, HOLDER),
    (6, a_table_of_another, HOLDER),
    (8, a_better_status, STATUS),
    (8, an_abort_without_its_error, STATUS),
    (8, an_error_without_its_status, STATUS),
    (9, an_owner_of_a_free_page, TOTAL),
    (9, a_lost_page, TOTAL),
    (9, a_page_too_many, TOTAL),
    (9, a_page_too_few, TOTAL),
    (10, answered_before_it_is_finished, GIVEN),
    (10, finished_and_not_answered, GIVEN),
    (10, in_two_places, PLACE),
    (10, nowhere, PLACE),
    (10, on_two_nodes, PLACE),
    (10, twice_between, PLACE),
    (10, nowhere_between, PLACE),
    (10, again_after_its_end, PLACE),
]
SPLIT = (half_a_handoff, on_two_nodes, twice_between, nowhere_between)


@pytest.mark.parametrize(
    ("violate", "rule"),
    [pytest.param(violate, rule, id=f"{number}-{violate.__name__}") for number, violate, rule in VIOLATIONS],
)
def test_a_violation_is_named(tiny: BoundModel, violate: Callable[..., None], rule: str) -> None:
    """One thing is wrong in a server that was right, and `check` says which rule it breaks."""
    server: Server = between(tiny) if violate in SPLIT else running(tiny)
    violate(server)
    with pytest.raises(BrokenRule) as caught:
        server.check()
    assert caught.value.rule == rule and rule in str(caught.value)


def test_every_invariant_but_the_seventh_is_violated_above() -> None:
    """The seventh waits for pages that are shared."""
    assert {number for number, _violate, _rule in VIOLATIONS} == {1, 2, 3, 4, 5, 6, 8, 9, 10}


@pytest.mark.parametrize("build", [running, between])
def test_check_changes_nothing(tiny: BoundModel, build: Callable[[BoundModel], Server]) -> None:
    server = build(tiny)

    def seen() -> Any:
        return [(pool.owner.tolist(), {n: vars(t) for n, t in pool.tables.items()}) for pool in pools(server)], (
            server.stats(),
            len(server.trace),
        )

    before = repr(seen())
    server.check()
    assert repr(seen()) == before
    answers = finished(server, [n for n, request in server.requests.items() if not request.answered])
    assert {each.finish_reason for each in answers} == {"length"}
    assert_quiet(server)


def test_a_check_within_a_step_of_another_thread_waits(tiny: BoundModel) -> None:
    """It looks between two steps, whoever asks: here from a thread, while a step is half done."""
    import threading

    from minikv.attention import torch_backend

    found: list[BaseException | None] = []
    threads: list[threading.Thread] = []

    def ask() -> None:
        try:
            server.check()
            found.append(None)
        except BaseException as error:
            found.append(error)

    def attend(*arguments: Any) -> Any:
        if not threads:
            threads.append(threading.Thread(target=ask))
            threads[0].start()
            threads[0].join(0.05)
            assert not found, "the check did not wait for the end of the step"
        return torch_backend.attend(*arguments)

    server = Engine(tiny, page_size=PAGE, num_pages=10, attention=attend)
    (done,) = server.generate([prompt_of(5)], greedy(3))
    threads[0].join(10)
    assert done.error is None and found == [None]


# Stats


def numbers(server: Server, node: int = 0) -> dict[str, Any]:
    stats = server.stats().nodes[node]
    assert stats.pages_free + stats.pages_lent + stats.pages_shared == stats.pages_total
    assert stats.slots_written + stats.slots_wasted == stats.slots_lent == stats.pages_lent * PAGE
    return {name: getattr(stats, name) for name in stats.__dataclass_fields__}


IDLE = {
    "name": "engine", "pages_total": 10, "pages_free": 10, "pages_lent": 0, "pages_shared": 0, "slots_lent": 0,
    "slots_written": 0, "slots_wasted": 0, "waiting": 0, "running": 0, "steps": 0, "tokens": 0, "preemptions": 0,
}  # fmt: skip


def test_stats_of_one_request_step_by_step(tiny: BoundModel) -> None:
    """A prompt of six tokens in chunks of five, an answer of four: pages, waste, steps and tokens after each step."""
    server = Engine(tiny, page_size=PAGE, num_pages=10, max_batch_tokens=5)
    assert numbers(server) == IDLE and server.stats().finished == {} and server.stats().unanswered == 0
    server.submit(prompt_of(6), greedy(4))
    assert numbers(server) == IDLE | {"waiting": 1} and server.stats().unanswered == 1
    seen = []
    for _ in range(5):
        server.step()
        now = numbers(server)
        seen.append([now[name] for name in ("pages_lent", "slots_written", "slots_wasted", "running", "tokens")])
        assert now["waiting"] == 0
    assert seen == [[2, 5, 3, 1, 5], [2, 6, 2, 1, 6], [2, 7, 1, 1, 7], [2, 8, 0, 1, 8], [0, 0, 0, 0, 9]]
    assert numbers(server) == IDLE | {"steps": 5, "tokens": 9}
    assert server.stats().finished == {"length": 1} and server.stats().unanswered == 0
    server.step()
    assert numbers(server)["steps"] == 5, "a step with nothing to do is none"


def test_stats_of_several_with_a_preemption(tiny: BoundModel) -> None:
    """Four pages, two that want all of them: the one that gave way is computed once more, and counted once more."""
    server = Engine(tiny, page_size=PAGE, num_pages=4)
    for seed in range(2):
        server.submit(prompt_of(6, seed=seed), greedy(8))
    server.step()
    assert (numbers(server)["pages_lent"], numbers(server)["slots_wasted"]) == (4, 4)
    for _ in range(3):
        server.step()
    now = numbers(server)
    assert (now["waiting"], now["running"], now["preemptions"]) == (1, 1, 1)
    assert (now["pages_lent"], now["pages_free"], now["slots_written"], now["slots_wasted"]) == (3, 1, 9, 3)
    finished(server, [0, 1])
    end = numbers(server)
    assert (end["steps"], end["tokens"], end["preemptions"]) == (13, 13 + 13 + 8, 1)
    assert (end["pages_free"], end["pages_lent"]) == (4, 0)


def test_stats_of_two_nodes(tiny: BoundModel) -> None:
    """Each node counts its own; who is between them still holds its pages on the first."""
    server = between(tiny)
    prefill, decode = numbers(server, 0), numbers(server, 1)
    assert prefill == IDLE | {
        "name": "prefill", "pages_free": 7, "pages_lent": 3, "slots_lent": 12, "slots_written": 9, "slots_wasted": 3,
        "waiting": 1, "steps": 1, "tokens": 15,
    }  # fmt: skip
    assert decode == IDLE | {
        "name": "decode", "pages_free": 8, "pages_lent": 2, "slots_lent": 8, "slots_written": 7, "slots_wasted": 1,
        "running": 1, "steps": 1, "tokens": 1,
    }  # fmt: skip
    assert (server.stats().between, server.stats().unanswered, server.stats().finished) == (1, 3, {})
    finished(server, [0, 1, 2])
    assert (server.stats().between, server.stats().unanswered, server.stats().finished) == (0, 0, {"length": 3})
    assert [numbers(server, node)["tokens"] for node in (0, 1)] == [6 + 9 + 7, 3 * 7]
    assert numbers(server, 0)["pages_free"] == numbers(server, 1)["pages_free"] == 10


def test_answers_are_counted_by_reason_whether_fetched_or_not(tiny: BoundModel) -> None:
    """Stop, length, rejected, abort and error: each once, and twice where two ended so."""

    def sampler(logits: Any, request: Request) -> int:
        if request.tenant == "unlucky":
            raise RuntimeError("by hand")
        return 256 if request.tenant == "short" else 1

    server = Engine(tiny, page_size=PAGE, num_pages=10, sampler=sampler)
    from minikv import SamplingParams

    params = SamplingParams(max_tokens=3)
    for tenant in ("short", "unlucky", "long", "long"):
        server.submit(prompt_of(3), params, tenant)
    aborted = server.submit(prompt_of(3), params)
    server.submit(prompt_of(90), params)
    assert server.stats().finished == {"rejected": 1} and server.stats().unanswered == 5
    server.abort(aborted)
    server.abort(aborted)
    assert server.stats().finished == {"rejected": 1, "abort": 1} and server.stats().unanswered == 4
    for _ in range(4):
        server.step()
    everything = {"rejected": 1, "abort": 1, "stop": 1, "error": 1, "length": 2}
    assert server.stats().finished == everything and server.stats().unanswered == 0
    for number in list(server.requests):
        server.result(number)
    assert server.stats().finished == everything


def test_stats_of_a_scheduler_that_counts_no_preemptions(tiny: BoundModel) -> None:
    """Another's scheduler need not count them; and its queue may be a list."""

    class Plain:
        def __init__(self, pool: PagePool, config: NodeConfig) -> None:
            self.right = Scheduler(pool, config)

        @property
        def waiting(self) -> list[Request]:
            return list(self.right.waiting.values())

        @property
        def running(self) -> list[Request]:
            return self.right.running

        def add(self, request: Request) -> None:
            self.right.add(request)

        def schedule(self) -> Any:
            return self.right.schedule()

        def remove(self, request: Request) -> None:
            self.right.remove(request)

    server = cluster(tiny, 10, page_size=PAGE, scheduler=Plain)
    for _ in range(2):
        server.submit(prompt_of(6), greedy(3))
    assert numbers(server)["waiting"] == 2 and numbers(server)["preemptions"] == 0
    finished(server, [0, 1])
    assert_quiet(server)


def test_waste_is_less_than_a_page_a_request(tiny: BoundModel) -> None:
    """At every step, whatever runs: pages are lent as they are needed."""
    server = Engine(tiny, page_size=PAGE, num_pages=30, max_batch_tokens=7)
    asked = [server.submit(prompt_of(3 + 2 * i, seed=i), greedy(6)) for i in range(5)]
    while server.stats().unanswered:
        server.step()
        now = numbers(server)
        assert now["slots_wasted"] <= (PAGE - 1) * now["running"]
    assert all(each.finish_reason == "length" for each in finished(server, asked))
