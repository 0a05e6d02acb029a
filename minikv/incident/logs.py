"""A log of ten thousand lines in which some answers were leaked: written by a run, to count in.

The server is smaller than that of the incident (1,500 pages of 4 tokens in prefill's pool) and its model has one layer,
so that thousands of requests take seconds. The timestamps are made up, and so are the clients; every other word and
number in a line comes from the part of the cluster that wrote it.

The line that gives the incident away has the original's two counts, `len(prefill_state_indices) = 1` beside thousands
in `len(dst_state_indices)`. That the original wrote such a line was read in its source [V]; that old logs could have
been searched for it is inferred [I]. The original wrote it for mismatches only; here every transfer has its line.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from minikv.config import NodeConfig
from minikv.incident.history import historical_limit
from minikv.incident.log_lines import HEARTBEAT, Clock, Log
from minikv.incident.scales import one_layer
from minikv.incident.traffic import Call, Traffic
from minikv.incident.watch import Listener, ReportingWire, Sent, WatchedCluster
from minikv.models.adapter import BoundModel
from minikv.scheduling.request import Completion
from minikv.trace import Event

PAGE_SIZE, PREFILL_PAGES, DECODE_PAGES, CONTEXT = 4, 1500, 16_384, 32_768
PREFILL_LIMIT, DECODE_LIMIT = (historical_limit(CONTEXT, pages * PAGE_SIZE) for pages in (PREFILL_PAGES, DECODE_PAGES))
LONGEST_LEAK = 12_000  # leaves the others room on the decode node: who gives way there is computed anew, and right
EARLIER = 150  # requests before the log begins: the pools have a past
LINES_EACH = 10  # more than any request writes
CALLS_PER_STEP = 5.0
LOST = 0.08  # share of the transfers that are sent twice


@dataclass(frozen=True)
class BusyLog:
    """A log and what is known of the run that wrote it.

    Attributes:
        written: its lines, oldest first, each "date time level node rid=number message"; lines about a node's load
            have no rid.
        affected: requests whose answer went out though it was computed over slots that others had written.
        groups: other requests that a quick search may take for affected, or may miss, by what they are:
            "short": 1 page sent of 1 reserved, all right; "drift": one page fewer sent than reserved, harmless;
            "told": refused by a node or at the router, with status 400; "left": 1 page of thousands, but the client
            left before there was an answer; "twice": affected, with two lines about its pages; "edge": 1 below the
            limit and served right; "again": affected, the second try of a client whose first had failed.
        requests: how many requests have lines.
    """

    written: tuple[str, ...]
    affected: frozenset[int]
    groups: Mapping[str, frozenset[int]]
    requests: int

    @property
    def lines(self) -> list[str]:
        """A copy of the lines, to take apart."""
        return list(self.written)

    def mistakes(self, counted: Iterable[int]) -> dict[str, int]:
        """What is wrong with somebody's count: requests, by kind of mistake; empty if it is exact.

        Args:
            counted: the request numbers that they took for affected.

        Returns:
            How many affected ones are "missing", how many of the others belong to which of `groups` (the first that
            fits, in the order "left", "drift", "short", "edge", "told"), and how many are of "other" kinds.
        """
        found = set(counted)
        wrong = Counter(self._kind(number) for number in found - self.affected)
        if missing := len(self.affected - found):
            wrong["missing"] = missing
        return dict(wrong)

    def _kind(self, number: int) -> str:
        kinds = ("left", "drift", "short", "edge", "told")
        return next((kind for kind in kinds if number in self.groups[kind]), "other")


_PAGES = re.compile(r"rid=(\d+) .*len\(prefill_state_indices\) = (\d+), len\(dst_state_indices\) = (\d+)")
_ANSWERED = re.compile(r"rid=(\d+) 200 ")


def affected_in(lines: Iterable[str]) -> frozenset[int]:
    """The requests that were affected, from the log alone.

    One page was sent though more were reserved than a harmless drift explains, and the answer has status 200.
    """
    sent_too_little: set[int] = set()
    answered: set[int] = set()
    for line in lines:
        if found := _PAGES.search(line):
            number, sent, reserved = map(int, found.groups())
            if sent == 1 and reserved > 2:
                sent_too_little.add(number)
        elif found := _ANSWERED.search(line):
            answered.add(int(found[1]))
    return frozenset(sent_too_little & answered)


@dataclass(frozen=True)
class _Answer:
    prompt_tokens: int
    status: int
    leaked: bool
    attempt: int


def ordinary(draw: random.Random) -> Call:
    """What most clients want: a few words or a few hundred, and a short answer."""
    return Call(min(5 + int(draw.expovariate(1 / 60)), 600), draw.randint(2, 6))


def next_call(draw: random.Random) -> Call:
    """What the next client wants: mostly little, now and then more than the prefill pool holds."""
    kind, answer = draw.random(), draw.randint(2, 6)
    impatient = draw.randint(1, 8) if draw.random() < 0.03 else None
    if kind < 0.018:
        length = PREFILL_LIMIT + draw.choice(
            (0, 1, 2, *(draw.randrange(LONGEST_LEAK - PREFILL_LIMIT) for _ in range(3)))
        )
        leaves = draw.randint(2, 5) if draw.random() < 0.4 else None
        return Call(length, 12 if leaves else answer, leaves, retries=1)
    if kind < 0.026:  # both nodes refuse, or the router does
        return Call(draw.choice((DECODE_LIMIT, DECODE_LIMIT + 1, CONTEXT, CONTEXT + draw.randrange(999))), 2, retries=1)
    if kind < 0.0272:
        return Call(PREFILL_LIMIT - 1, answer)
    if kind < 0.031:
        return Call(draw.randint(1000, 3000), answer, impatient)
    if kind < 0.1:
        return Call(draw.choice((draw.randint(1, PAGE_SIZE), PAGE_SIZE)), answer, impatient)
    return replace(ordinary(draw), patience=impatient, retries=1)


class _Run:
    """A watched cluster, its clients and its log."""

    def __init__(self, seed: int) -> None:
        self.log = Log(Clock(seed), PAGE_SIZE)
        self.listener = Listener()
        lost = random.Random(seed + 1)
        self.cluster = WatchedCluster(
            BoundModel(one_layer(CONTEXT).hf, name="one-layer"),  # without a tokenizer: nobody reads the answers
            prefill=NodeConfig(num_pages=PREFILL_PAGES),
            decode=NodeConfig(num_pages=DECODE_PAGES),
            page_size=PAGE_SIZE,
            context_length=CONTEXT,
            trace=self.listener,
            wire=ReportingWire(lambda _number: lost.random() < LOST),
        )
        self.answers: dict[int, _Answer] = {}
        self.sent: dict[int, list[Sent]] = {}

    def serve(self, size: int, seed: int) -> None:
        """The past, without a log; then clients of all kinds until the log is nearly full; then silence."""
        earlier = Traffic(self.cluster, ordinary, seed, CALLS_PER_STEP)
        while earlier.sent < EARLIER:
            earlier.step()
        earlier.drain()
        self.listener.hear += [self.log.hear, self._note]
        traffic = Traffic(self.cluster, next_call, seed, CALLS_PER_STEP, self._answered)
        while len(self.log.lines) < size:
            full = len(self.log.lines) + LINES_EACH * (len(traffic.open) + 2 * traffic.per_step) > size
            traffic.step(new=not full)
            if self.cluster.trace.step % HEARTBEAT == 0 or not traffic.open:
                self.log.heartbeat(self.cluster)
        del self.log.lines[size:]

    def _note(self, event: Event) -> None:
        if isinstance(event, Sent):
            self.sent.setdefault(event.request, []).append(event)

    def _answered(self, completion: Completion, call: Call) -> None:
        number = completion.request_id
        leaked = self.cluster.read_of_others(number) > 0 and completion.status == 200
        self.answers[number] = _Answer(completion.prompt_tokens, completion.status, leaked, call.attempt)

    def groups(self) -> dict[str, frozenset[int]]:
        """See `BusyLog`."""
        pages = {number: (each[0].sent, each[0].reserved) for number, each in self.sent.items()}
        answers = {number: (each, *pages.get(number, (0, 0))) for number, each in self.answers.items()}
        rules: dict[str, Callable[[_Answer, int, int], bool]] = {
            "short": lambda answer, sent, reserved: sent == reserved == 1,
            "drift": lambda answer, sent, reserved: sent > 0 and reserved - sent == 1,
            "told": lambda answer, sent, reserved: answer.status == 400,
            "left": lambda answer, sent, reserved: sent == 1 and reserved > 2 and answer.status == 499,
            "edge": lambda answer, sent, reserved: answer.prompt_tokens == PREFILL_LIMIT - 1 and sent == reserved,
            "again": lambda answer, sent, reserved: answer.leaked and answer.attempt > 1,
        }
        found = {name: frozenset(n for n, each in answers.items() if rule(*each)) for name, rule in rules.items()}
        twice = frozenset(n for n, (each, *_pages) in answers.items() if each.leaked and len(self.sent[n]) > 1)
        return {**found, "twice": twice}


@cache
def busy_log(size: int = 10_000, seed: int = 3) -> BusyLog:
    """Let a watched cluster run until its log has `size` lines.

    Args:
        size: lines, at least 1,000.
        seed: of the clients, of the wire's losses and of the clock.

    Raises:
        ValueError: if the log is to be shorter than that.
    """
    if size < 1000:
        raise ValueError(f"a log has at least 1000 lines, not {size}")
    run = _Run(seed)
    run.serve(size, seed)
    affected = frozenset(number for number, answer in run.answers.items() if answer.leaked)
    return BusyLog(tuple(run.log.lines), affected, run.groups(), len(run.log.of))
