"""The same requests judged twice: by the status of the answer, and by what is in it.

The test of the status is the usual one: the server answers with 200 and as many tokens as were asked for, or refuses
with 400 and says why. It does not know which of the two is right for a prompt: whoever compares a length with the limit
of the smaller node has asked the question that nobody asked. And right at that limit 200 is even the status that the
right engine gives. The test of the content needs no ledger and no secret either: the answer must be that of one node
with room for the whole prompt, and must not change when only other tenants' prompts do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from minikv.disagg.router import Cluster
from minikv.engine import Engine
from minikv.incident.history import HistoricalCluster, historical_limit
from minikv.incident.scales import ARTICLE, FIRST_CHARACTER, NUM_CHARACTERS, POCKET, Scale, Visit, one_layer
from minikv.incident.snapshot import Snapshot
from minikv.incident.stage import Stage, build
from minikv.incident.tenants import Tenant
from minikv.memory import pages_needed
from minikv.models.adapter import BoundModel
from minikv.scheduling.request import Completion

ANSWER = 6  # tokens asked for: with them, a prompt just over history's limit still fits both pools
PASTS = (1, 2)  # seeds of the other tenants' texts


@dataclass(frozen=True)
class Judged:
    """One prompt length on one cluster.

    Attributes:
        place: where the length lies, such as "limit - 1".
        tokens: that length.
        cluster: "historical" or "right".
        status: of the answer.
        by_status: whether the test of the status passes.
        content: "right", "refused", "wrong" (not the answer to this prompt) or "leaks" (it hangs on other tenants).
    """

    place: str
    tokens: int
    cluster: str
    status: int
    by_status: bool
    content: str

    @property
    def by_content(self) -> bool:
        """Whether the test of the content passes."""
        return self.content in ("right", "refused")


@dataclass(frozen=True)
class StatusTest:
    """All lengths on both clusters, at one scale; those of the historical cluster first."""

    scale: str
    rows: tuple[Judged, ...]

    def failed(self, cluster: str, *, by: str) -> int:
        """How many lengths fail on a cluster, by "status" or by "content"."""
        judged = [row for row in self.rows if row.cluster == cluster]
        return sum(not (row.by_status if by == "status" else row.by_content) for row in judged)


def lab_scale() -> Scale:
    """The article's sizes with the one-layer model: the same doors and pages, without words, in seconds."""
    context = ARTICLE.context_length
    return replace(ARTICLE, name="article lab", model_name="one-layer", load=lambda: one_layer(context), readable=False)


def places(scale: Scale) -> list[tuple[str, int]]:
    """The lengths that are worth a test: on both sides of every limit, and one far from all of them."""
    pools = (scale.prefill.num_pages * scale.page_size, scale.decode.num_pages * scale.page_size)
    prefill, decode = (historical_limit(scale.context_length, pool) for pool in pools)
    return [
        ("far below", prefill // 2),
        ("prefill's limit - 1", prefill - 1),
        ("prefill's limit", prefill),
        ("prefill's limit + 1", prefill + 1),
        ("inside the window", scale.attack_tokens),
        ("decode's limit - 1", decode - 1),
        ("decode's limit", decode),
        ("context - 1", scale.context_length - 1),
        ("context", scale.context_length),
    ]


def status_and_content(scale: Scale = POCKET, model: BoundModel | None = None) -> StatusTest:
    """Send each length to the historical and to the right cluster, after two pasts, and judge the answers.

    Args:
        scale: whose sizes; `POCKET` or `lab_scale()`, or any other with random weights.
        model: loaded already, if it is at hand.
    """
    model = model or scale.load()
    expected = {tokens: _alone(scale, model, tokens) for _place, tokens in places(scale)}
    rows = []
    for name, kind in (("historical", HistoricalCluster), ("right", Cluster)):
        answers = [_answers(scale, model, kind, seed) for seed in PASTS]
        for place, tokens in places(scale):
            one, other = (each[tokens] for each in answers)
            content = _content(one, other, expected[tokens])
            rows.append(Judged(place, tokens, name, one.status, _good_status(one), content))
    return StatusTest(scale.name, tuple(rows))


def _good_status(answer: Completion) -> bool:
    if answer.status == 200:
        return len(answer.token_ids) == ANSWER
    return answer.status == 400 and bool(str(answer.error))


def _content(one: Completion, other: Completion, expected: tuple[int, ...]) -> str:
    if not one.token_ids and not other.token_ids:
        return "refused"
    if one.token_ids != other.token_ids:
        return "leaks"
    return "right" if one.token_ids == expected else "wrong"


def _answers(scale: Scale, model: BoundModel, kind: type[Cluster], seed: int) -> dict[int, Completion]:
    """What one cluster says to each length, always after the same past."""
    sized = replace(scale, answer_tokens=ANSWER, visits=_visits(scale, seed))
    stage = Stage(sized, model, build(sized, model, kind))
    stage.cluster.trace.enabled = False
    stage.play_past()
    past = Snapshot(stage.cluster)
    answers = {}
    for _place, tokens in places(scale):
        past.restore()
        answers[tokens] = stage.attack(tokens)
    return answers


def _visits(scale: Scale, seed: int) -> Callable[[BoundModel], list[list[Visit]]]:
    """Tenants with random texts, enough of them to have written every page of the decode node."""
    pool = scale.prefill.num_pages * scale.page_size
    prompt, answer = pool * 3 // 4, pool // 4
    count = scale.decode.num_pages // pages_needed(prompt + answer - 1, scale.page_size) + 2
    draw = random.Random(seed)

    def text() -> str:
        return "".join(chr(FIRST_CHARACTER + draw.randrange(NUM_CHARACTERS)) for _ in range(prompt))

    tenants = [Tenant(f"tenant-{number}", text(), ()) for number in range(count)]
    return lambda _model: [[Visit(each, each.text, answer) for each in tenants]]


def _alone(scale: Scale, model: BoundModel, tokens: int) -> tuple[int, ...]:
    """The answer of one node that has room for everything; nothing if the context has not."""
    if tokens + ANSWER > scale.context_length:
        return ()
    pages = pages_needed(scale.context_length, scale.page_size)
    engine = Engine(model, num_pages=pages, page_size=scale.page_size, context_length=scale.context_length)
    engine.trace.enabled = False
    sized: Sequence[int] = scale.attack(model, tokens)
    (done,) = engine.generate([list(sized)], replace(scale, answer_tokens=ANSWER).attack_params)
    return done.token_ids
