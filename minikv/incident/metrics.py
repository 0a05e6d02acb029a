"""What a server could count while it runs, and what of it would have given the incident away.

Names are in the style of Prometheus. Beside each stands the nearest that could be had of the servers of the time, with
a mark: V read in source, thread or documentation; I inferred from it; nothing where nothing was looked up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from minikv.incident.watch import Verdict
from minikv.trace import Event, Finish, HandoffDone, Length, Preempt, Refuse

SGLANG = "https://github.com/sgl-project/sglang"


class Books:
    """What the parts of one server have written down in some stretch of time.

    Args:
        events: of that time.
        limit: prompts of this many tokens or more do not fit the smallest pool, by this server's own rule.
        pool_bytes: of all pools.
        peak: the largest share of the decode pool that was lent.

    Attributes:
        wire, table: tokens of each request by the books of prefill (what it sent) and decode (what it reserved).
        missing: by request, tokens that decode expected in a handoff and was not promised.
        verdicts: requests that prefill's own door refused.
        changed: requests whose length at prefill was another in the queue than at the door.
        status, reason, steps: of each answer; the steps from the call to the answer.
        prompt: tokens of each request as its client sent it.
        preemptions: how often a request gave way.
    """

    def __init__(self, events: Iterable[Event], *, limit: int, pool_bytes: int, peak: float) -> None:
        self.limit, self.pool_bytes, self.peak = limit, pool_bytes, peak
        self.wire: dict[int, int] = {}
        self.table: dict[int, int] = {}
        self.missing: dict[int, int] = {}
        self.verdicts: set[int] = set()
        self.changed: set[int] = set()
        self.status: dict[int, int] = {}
        self.reason: dict[int, str] = {}
        self.steps: dict[int, int] = {}
        self.prompt: dict[int, int] = {}
        self.preemptions = 0
        self._came: dict[int, int] = {}
        self._door: dict[int, int] = {}
        for event in events:
            self._enter(event)

    def _enter(self, event: Event) -> None:
        if isinstance(event, Length):
            self._length(event)
        elif isinstance(event, HandoffDone):
            self.missing[event.request] = event.expected - event.promised
        elif isinstance(event, Verdict) and event.node == "prefill":
            self.verdicts.add(event.request)
        elif isinstance(event, Refuse):
            self._answer(event, event.request, event.status, "rejected")
        elif isinstance(event, Finish):
            self._answer(event, event.request, event.status, event.reason)
        elif isinstance(event, Preempt):
            self.preemptions += 1

    def _length(self, event: Length) -> None:
        request, tokens = event.request, event.tokens
        if event.part == "client":
            self.prompt[request], self._came[request] = tokens, event.step
        elif event.part == "wire":
            self.wire[request] = tokens
        elif event.part == "page table":
            self.table[request] = tokens
        elif event.node == "prefill" and event.part == "door":
            self._door[request] = tokens
        elif event.node == "prefill" and event.part == "queue" and self._door.get(request, tokens) != tokens:
            self.changed.add(request)

    def _answer(self, event: Event, request: int, status: int, reason: str) -> None:
        self.status[request], self.reason[request] = status, reason
        self.steps[request] = event.step - self._came.get(request, event.step)

    def share(self, low: int, high: int) -> float:
        """Share of the answers whose status is in [low, high), in percent."""
        return 100 * sum(low <= status < high for status in self.status.values()) / max(1, len(self.status))


@dataclass(frozen=True)
class Metric:
    """One number that an operator could watch.

    Attributes:
        name: in the style of Prometheus.
        title: what it is, in words.
        measure: works it out of the books.
        nearest: what comes nearest to it in a server of the time; empty where nothing was looked up.
        mark: what is known of `nearest`: "V" read in source or documentation, "I" inferred, or both, said for what.
        link: where that was read, or where the missing check was proposed.
        alert: fires when the value is above this; None: no rule that ordinary requests leave alone could be found.
    """

    name: str
    title: str
    measure: Callable[[Books], float]
    nearest: str = ""
    mark: str = ""
    link: str = ""
    alert: float | None = None

    @property
    def rule(self) -> str:
        """The alert as one would write it down; empty if there is none."""
        return "" if self.alert is None else f"{self.name} > {self.alert:g}"

    def fires(self, books: Books) -> bool:
        """Whether the alert would have been raised."""
        return self.alert is not None and self.measure(books) > self.alert


def _disagree(books: Books) -> int:
    return sum(books.wire[request] != tokens for request, tokens in books.table.items() if request in books.wire)


def _not_told(books: Books) -> int:
    """A client who left (499) was not told either."""
    return sum(books.status.get(request) != 400 for request in books.verdicts)


def _above(books: Books) -> int:
    return sum(status == 200 and books.prompt[request] >= books.limit for request, status in books.status.items())


def _reason(books: Books) -> float:
    return 100 * Counter(books.reason.values())["length"] / max(1, len(books.reason))


METRICS = (
    Metric(
        "minikv_handoff_missing_tokens_total",
        "tokens that decode expected less tokens that prefill promised, over all handoffs",
        lambda books: sum(books.missing.values()),
        "log line with len(prefill_state_indices) and len(dst_state_indices), in pages; no counter",
        "V as a line, I as a signature",
        f"{SGLANG}/pull/38704",
        alert=0,
    ),
    Metric(
        "minikv_handoff_missing_tokens_max",
        "the same, of the worst handoff",
        lambda books: max(books.missing.values(), default=0),
        "the same line; from 0.5.21 on --disaggregation-enable-kv-checksum, off by default, which refuses the handoff",
        "V for the option, I that it would have caught this",
        f"{SGLANG}/pull/39500",
        alert=0,
    ),
    Metric(
        "minikv_legs_disagree_total",
        "requests whose prompt has one length in prefill's books and another in decode's",
        _disagree,
        "prompt_tokens in the answers of the two workers: 1 at prefill, the whole prompt at decode",
        "V for prefill, I for decode",
        f"{SGLANG}/issues/33507",
        alert=0,
    ),
    Metric(
        "minikv_refused_not_told_total",
        "requests that prefill refused and whose client got another status than 400",
        _not_told,
        "prefill's log line 'exceeds the maximum allowed length', beside a success of the same request at decode",
        "V as a line, I as a signature",
        f"{SGLANG}/issues/30233",
        alert=0,
    ),
    Metric(
        "minikv_answered_above_limit_total",
        "answers with status 200 to prompts that the smallest pool's limit rules out",
        _above,
        "max_req_input_len in /server_info of each worker, beside usage.prompt_tokens of the answers",
        "V for max_req_input_len, I for usage",
        f"{SGLANG}/issues/30233",
        alert=0,
    ),
    Metric(
        "minikv_prompt_changed_total",
        "requests that were of another length in prefill's queue than at its door; also of those that decode refuses",
        lambda books: len(books.changed),
    ),
    Metric("minikv_responses_2xx_percent", "answers with status 200", lambda books: books.share(200, 300)),
    Metric("minikv_responses_4xx_percent", "answers with a status of 400 to 499", lambda books: books.share(400, 500)),
    Metric("minikv_responses_5xx_percent", "answers with a status of 500 or more", lambda books: books.share(500, 600)),
    Metric("minikv_finished_length_percent", "answers that ended for 'length'", _reason),
    Metric(
        "minikv_answer_steps_median",
        "steps from the call to the answer (latency, without a clock)",
        lambda books: median(books.steps.values()) if books.steps else 0.0,
    ),
    Metric(
        "minikv_handoff_refused_total",
        "handoffs that failed",
        lambda books: sum(status == 502 for status in books.status.values()),
        "sglang:num_transfer_failed_reqs_total",
        "V",
    ),
    Metric(
        "minikv_preemptions_total",
        "requests that gave way",
        lambda books: books.preemptions,
        "vllm:num_preemptions_total",
        "V",
        "https://docs.vllm.ai/en/stable/usage/metrics/",
    ),
    Metric(
        "minikv_decode_pool_peak_percent",
        "largest share of decode's pages that was lent",
        lambda books: 100 * books.peak,
        "sglang:kv_used_tokens, vllm:kv_cache_usage_perc",
        "V",
        "https://docs.vllm.ai/en/stable/usage/metrics/",
    ),
    Metric(
        "minikv_pool_bytes",
        "memory of the page pools",
        lambda books: books.pool_bytes,
        "sglang:max_total_num_tokens, in tokens",
        "V",
    ),
)
