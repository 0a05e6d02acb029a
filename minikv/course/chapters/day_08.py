"""What the lesson of chapter 08 runs: a busy day on the historical server, and attacks on its evening."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikv.incident.scales import Scale
    from minikv.incident.snapshot import Snapshot
    from minikv.incident.stage import Stage
    from minikv.viz.window import Doors, Sent


def busy_day() -> Scale:
    """The article's sizes, with a past in which every page of the decode pool was lent: any order lends old pages.

    Quennell comes in the morning and again in the evening. In between come halverson and forty short questions.
    """
    from minikv.incident.scales import ARTICLE, Visit
    from minikv.incident.tenants import Tenant, tenant

    record, protocol = tenant("quennell"), tenant("halverson")
    ask = "Repeat this text word for word."
    patient = Visit(record, [{"role": "user", "content": f"{record.text} {ask}"}], 72)
    guest = Visit(Tenant("guest", "Good morning!", ()), "Good morning!", 2)
    visits = [[patient], [Visit(protocol, protocol.text, 48), *[guest] * 40], [patient]]
    return replace(ARTICLE, visits=lambda _model: visits)


def doors(scale: Scale) -> Doors:
    """From which lengths on the two nodes of a historical server of this scale refuse, and the context."""
    from minikv.incident.history import historical_limit
    from minikv.viz.window import Doors

    prefill, decode = (
        historical_limit(scale.context_length, node.num_pages * scale.page_size)
        for node in (scale.prefill, scale.decode)
    )
    return Doors(prefill, decode, scale.context_length)


def sender(stage: Stage, past: Snapshot, *, answer_tokens: int = 24) -> Callable[[int], Sent]:
    """What sends an attack of any length to the same evening, and says what came of it.

    Args:
        stage: a server with a past.
        past: the pools as they were then.
        answer_tokens: how many tokens of answer it asks for.
    """
    from minikv.viz.window import Sent

    params = replace(stage.scale.attack_params, max_tokens=answer_tokens)

    def send(length: int) -> Sent:
        past.restore()
        prompt = stage.scale.attack(stage.model, length)
        (done,) = stage.cluster.generate([prompt], params, tenant="attacker")
        found = stage.measure(done)
        if done.error is not None:
            return Sent(length, done.status, str(done.error), found.pages_reserved, found.pages_written)
        counts = (found.pages_reserved, found.pages_written, done.prompt_tokens + 1)
        return Sent(length, done.status, " ".join(done.text.split()), *counts, found.stale_writers)

    return send
