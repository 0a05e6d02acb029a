"""What the lesson of chapter 08 runs: a busy day on the historical server, and an answer that is watched."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikv.incident.scales import Scale
    from minikv.incident.stage import Stage
    from minikv.scheduling.request import Completion


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


def watched_answer(stage: Stage, length: int | None = None) -> tuple[Completion, list[tuple[str, dict[str, float]]]]:
    """Let a request answer and note, for each word, whose slots were read for it.

    Position 0 is left out: models like this one park much of their attention there, whatever it holds.

    Returns:
        The answer, and its words with the shares (0 to 1) of the attention that fell on each tenant's slots. The first
        token was chosen on the prefill node, so nothing was read here for it.
    """
    from minikv.incident.attention import WatchedAttention

    cluster, node = stage.cluster, stage.cluster.decode
    ledger = node.pool.ledger
    if ledger is None:
        raise ValueError("without a ledger nobody knows who wrote a slot")
    watch = WatchedAttention(node.pool.num_slots, node.attention)
    plain, node.attention = node.attention, watch
    number = cluster.submit(stage.scale.attack(stage.model, length), stage.scale.attack_params, "attacker")
    stage.names[number] = "attacker"
    pieces: list[tuple[str, dict[str, float]]] = []
    try:
        while not cluster.requests[number].finished:
            before = watch.weight.copy()
            table = node.pool.tables.get(number)
            cluster.step()
            table = node.pool.tables.get(number, table)
            shares: dict[str, float] = {}
            if table is not None:
                slots = table.slots(1, table.written)
                for writer, weight in zip(ledger.writer[slots], (watch.weight - before)[slots], strict=True):
                    name = stage.name(int(writer))
                    shares[name] = shares.get(name, 0.0) + float(weight)
            pieces.append((stage.model.decode(cluster.requests[number].output_ids), shares))
    finally:
        node.attention = plain
    return cluster.result(number), _words(pieces)


def _words(pieces: list[tuple[str, dict[str, float]]]) -> list[tuple[str, dict[str, float]]]:
    """From the text after each step, with what that step read, to words with shares."""
    words: list[tuple[str, dict[str, float]]] = []
    text = ""
    for longer, shares in pieces:
        new, text = longer[len(text) :], longer
        for index, part in enumerate(new.split(" ") if new else []):
            if index > 0 or not words:
                words.append(("", {}))
            word, before = words.pop()
            both = {name: before.get(name, 0.0) + shares.get(name, 0.0) for name in {**before, **shares}}
            words.append((word + part, both))
    totals = [(word.strip(), shares, sum(shares.values())) for word, shares in words]
    return [
        (word, {name: share / total for name, share in shares.items()})
        for word, shares, total in totals
        if word and total
    ]
