"""Exercise 7.1, receive, complete or nothing: the reference answer, and what is said of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from minikv.course.chapters import hints_7_1 as hints
from minikv.course.chapters.handover import DecodeSide, Handoff, digest_of
from minikv.course.chapters.trial_7 import REQUEST, TOKEN, WAITING, Outcome, Trial, of_layers, sealed
from minikv.course.declare import Verdict, ok, wrong


def receive(node: DecodeSide, request: int, handoff: Handoff) -> None:
    """Take a handoff for a request that waits, complete or not at all."""
    if request in node.accepted:
        raise ValueError(f"request {request} has its handoff already")
    pages = node.reserved[request]
    wanted = [[own[pages].shape for own in side] for side in (node.keys, node.values)]
    if (
        handoff.request != request
        or handoff.num_tokens != node.expected[request]
        or [[part.shape for part in side] for side in (handoff.keys, handoff.values)] != wanted
        or handoff.digest != digest_of(handoff)
    ):
        node.give_back(request)
        raise ValueError(f"what came for request {request} is not complete and intact")
    for own, part in zip([*node.keys, *node.values], [*handoff.keys, *handoff.values], strict=True):
        own[pages] = part
    node.accepted.add(request)
    node.send(request, handoff.first_token)


class Found(Exception):
    """Carries a verdict out of the middle of a judge."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.said)
        self.verdict = verdict


def found(kind: str, said: str, *more: str) -> NoReturn:
    """End the judging with this verdict."""
    raise Found(wrong(kind, said, *more))


def judge_receive(thing: Any) -> Verdict:
    import torch

    try:
        if not callable(thing):
            found("not-a-function", "you handed over no function.", 'Hand over the function: check("ex-7.1", receive).')
        with torch.no_grad():
            for look in (_takes, _refuses, _takes_once, _stays_closed, _runs_in_cluster):
                look(thing)
    except Found as end:
        return end.verdict
    return ok()


_SIZES = ((30, 4, 3), (32, 4, 2), (1, 4, 1), (512, 64, 2), (449, 64, 1), (5, 1, 2), (75, 4, 2))


def _takes(receive: Any) -> None:
    for number, (expected, size, layers) in enumerate(_SIZES):
        trial = Trial(expected, size, layers)
        outcome, what = trial.deliver(receive, trial.complete), f"{_tokens(expected)} in pages of {size}"
        if number and outcome.error is not None and _refuses_a_second_node(receive):
            said = f"a complete handoff came to a new node, {what}, and {outcome.said}."
            found("outside-memory", said, *hints.OUTSIDE)
        _looked_at(trial, outcome, what)
    trial = Trial(30)
    trial.deliver(receive, trial.complete)
    other = trial.handoff(WAITING, 30, trial.widths)
    outcome = trial.deliver(receive, other, WAITING)
    if outcome.error is not None or outcome.sent != (TOKEN + WAITING,):
        said = f"after request {REQUEST}, request {WAITING} waited. Its handoff was complete, and {outcome.said}."
        found("second-request", said, *hints.SECOND)


def _refuses_a_second_node(receive: Any) -> bool:
    """Whether it refuses now what it took before: the very first case, on a node like the first."""
    expected, size, layers = _SIZES[0]
    trial = Trial(expected, size, layers)
    return trial.deliver(receive, trial.complete).error is not None


def _tokens(number: int) -> str:
    return "1 token" if number == 1 else f"{number} tokens"


def _pages(number: int) -> str:
    return "1 page" if number == 1 else f"{number} pages"


def _harmless(outcome: Outcome, what: str) -> None:
    """Nobody else may notice anything."""
    if outcome.told:
        one = len(outcome.told) == 1
        whose = f"the client of request {outcome.told[0]} has" if one else f"clients of {_listed(outcome.told)} have"
        said = f"{what} Now {whose} read a token too, which is no part of their answer."
        found("tells-others", said, *hints.TOLD)
    if outcome.replaced:
        said = (
            f"{what} Now the node's memory is another one, of another size: the pages of all other requests are gone."
        )
        found("memory-replaced", said, *hints.REPLACED)
    if outcome.taken_from:
        pages = "its page" if len(outcome.taken_from[1]) == 1 else f"its {len(outcome.taken_from[1])} pages"
        said = f"{what} Now request {outcome.taken_from[0]}, which has nothing to do with it, has lost {pages}."
        found("others-given-back", said, *hints.GIVEN_BACK)
    if outcome.harmed:
        found("others-pages", f"{what} Now {outcome.harmed}.", *hints.OTHERS)
    if outcome.forgotten:
        said = f"{what} Now request {_listed(outcome.forgotten)}, which runs here, is no longer in `accepted`: its "
        found("forgets-accepted", f"{said}handoff could come again and be taken.", *hints.FORGOTTEN)
    if outcome.noted:
        said = f"{what} Now request {_listed(outcome.noted)} stands in `accepted`, and nothing was taken for it."
        found("notes-others", said, *hints.NOTED)
    if outcome.pages_gone:
        gone = f"nobody holds {_pages(outcome.pages_gone)} of the node"
        found("free-list", f"{what} Now {gone}, and `free` does not name them either.", *hints.FREE)
    if outcome.pages_twice:
        said = f"{what} Now page {outcome.pages_twice[0]} is in `free` though somebody holds it, or stands there twice."
        found("free-list", said, *hints.FREE)


def _listed(requests: Sequence[int]) -> str:
    return " and ".join(map(str, requests))


def _looked_at(trial: Trial, outcome: Outcome, what: str) -> None:
    """A complete handoff was delivered: is all as it must be?"""
    if outcome.error is not None:
        found("refuses-right", f"a complete handoff came, {what}, and {outcome.said}.", *hints.STRICT)
    _harmless(outcome, f"{what} came for request {REQUEST}.")
    if outcome.holds != tuple(trial.pages):
        kept = len(outcome.holds)
        said = f"a complete handoff came, {what}. Of its {_pages(len(trial.pages))} the request now holds {kept}."
        found("gave-back", said, *hints.GAVE_BACK)
    bad = trial.differs(trial.complete)
    if any(bad.values()):
        if trial.untouched():
            said = f"{what} came. The reserved pages hold what they held before."
            found("untouched", said, *hints.COPY)
        layers = len(trial.node.keys)
        if all(bad.values()):
            count = len({*bad["keys"], *bad["values"]})
            said = f"{what} came. In {count} of {layers} layers the reserved pages do not hold what came."
            found("not-written", said, *(hints.ONE_LAYER_WRITTEN if count < layers else hints.NOT_WRITTEN))
        good, name = ("values", "keys") if bad["keys"] else ("keys", "values")
        said = (
            f"{what} came. The {good} stand where they belong, and in {len(bad[name])} of {layers} layers the {name} "
        )
        found("one-side-written", f"{said}do not.", *hints.ONE_SIDE_WRITTEN)
    if outcome.sent != (TOKEN,):
        if not outcome.sent:
            found("no-first-token", f"all {what} are in place, and the client has read nothing.", *hints.SENDING)
        said = f"{what} came, the first token is {TOKEN}, and the client read {list(outcome.sent)}."
        found("other-tokens", said, *hints.SENDING)


# Handoffs that must be refused: what they are called, what is wrong with them, and the hints


def _refuses(receive: Any) -> None:
    cases = _cases()
    taken = {case.kind for case in cases if case.run(receive).error is None and not case.silent}
    by_accident = {"layer-missing", "more-layers", "more-pages"}  # a strict zip and torch see these
    if taken | by_accident == {case.kind for case in cases}:
        said = "I sent handoffs that were short, damaged, or not for this request. You took all of them."
        found("trusts-success", said, *hints.TRUST)
    for case in _cases():
        outcome = case.run(receive)
        if outcome.error is None and case.silent:
            said = f"{case.what} You took nothing, and raised nothing."
            found("silent", said, *hints.SILENT)
        if outcome.error is None:
            found(case.kind, f"{case.what} You took it.", *case.hints)
        _left_nothing(case, outcome)


class _Case:
    """One handoff that must be refused."""

    def __init__(
        self, kind: str, what: str, more: tuple[str, ...], trial: Trial, handoff: Handoff, request: int = REQUEST
    ) -> None:
        self.kind, self.what, self.hints = kind, what, more
        self.trial, self.handoff, self.request = trial, handoff, request
        self.silent = False

    def run(self, receive: Any) -> Outcome:
        """Deliver it; `silent` says whether it was refused without a word."""
        outcome = self.trial.deliver(receive, self.handoff, self.request)
        self.silent = outcome.error is None and not outcome.sent and self.request not in self.trial.node.accepted
        return outcome


def _cases() -> list[_Case]:
    """All of them, each on a node of its own."""
    cases = []

    def add(kind: str, what: str, more: tuple[str, ...], expected: int, size: int, make: Any) -> None:
        trial = Trial(expected, size, widths=(3, 3))
        cases.append(_Case(kind, what, more, trial, make(trial.complete)))

    add(
        "less",
        "30 tokens were expected and 8 pages reserved. 1 token came in 1 page, with a digest that matches.",
        hints.LESS, 30, 4,
        lambda h: sealed(h, num_tokens=1, **of_layers(h, lambda _i, t: t[:1])),
    )  # fmt: skip
    add(
        "pages-for-tokens",
        "512 tokens were expected, and 449 came. Both are 8 pages of 64.",
        hints.PAGES, 512, 64,
        lambda h: sealed(h, num_tokens=449),
    )  # fmt: skip
    add(
        "more",
        "449 tokens were expected, and 512 were promised. Both are 8 pages of 64.",
        hints.MORE, 449, 64,
        lambda h: sealed(h, num_tokens=512),
    )  # fmt: skip
    for left, said in ((1, "1 page came"), (7, "7 pages came")):
        add(
            "believes-promise",
            f"30 tokens were expected and 30 promised, 8 pages were reserved, and {said}. "
            "The digest matches what came.",
            hints.PROMISE, 30, 4,
            lambda h, left=left: sealed(h, **of_layers(h, lambda _i, t: t[:left])),
        )  # fmt: skip
    for layer, name, left in ((1, "keys", 1), (2, "values", 1), (0, "values", 1), (2, "keys", 7)):
        add(
            "one-layer",
            f"30 tokens came in 8 pages, but for the {name} of layer {layer}: of these came {_pages(left)}.",
            hints.LAYERS, 30, 4,
            lambda h, layer=layer, name=name, left=left: sealed(
                h, **of_layers(h, lambda i, t: t[:left] if i == layer else t, name)
            ),
        )  # fmt: skip
    add(
        "one-layer",
        "30 tokens came in 8 pages, but in layer 1 there were 9 pages of keys and 7 of values.",
        hints.LAYERS, 30, 4,
        _shifted,
    )  # fmt: skip
    add(
        "layer-missing",
        "keys and values of 2 layers came, and the model has 3.",
        hints.LAYER_MISSING, 30, 4,
        lambda h: sealed(h, keys=list(h.keys)[:2], values=list(h.values)[:2]),
    )  # fmt: skip
    add(
        "more-layers",
        "keys and values of 4 layers came, and the model has 3. The digest matches.",
        hints.MORE_LAYERS, 30, 4,
        lambda h: sealed(h, keys=[*h.keys, h.keys[0]], values=[*h.values, h.values[0]]),
    )  # fmt: skip
    for size, pages in ((4, 8), (64, 1)):
        add(
            "more-pages",
            f"30 tokens were expected and 30 promised, {_pages(pages)} {'was' if pages == 1 else 'were'} reserved, and "
            f"{pages + 1} came in every layer. The digest matches, since it covers 30 tokens.",
            hints.MORE_PAGES, 30, size,
            lambda h: sealed(h, **of_layers(h, lambda _i, t: t[[*range(len(t)), 0]])),
        )  # fmt: skip
    for size in (4, 64):
        add(
            "no-digest",
            "all was there, but one number in a value of the last layer had changed on the way.",
            hints.DIGEST, 30, size,
            lambda h: Handoff(h.request, 30, h.first_token, h.keys, _damaged(h.values, 2, 17), h.digest),
        )  # fmt: skip
    add(
        "no-digest",
        "all was there, but one number in a key of layer 0 had changed on the way.",
        hints.DIGEST, 30, 4,
        lambda h: Handoff(h.request, 30, h.first_token, _damaged(h.keys, 0, 29), h.values, h.digest),
    )  # fmt: skip
    add(
        "no-digest",
        "all was there, but its digest came as an empty text.",
        hints.DIGEST, 30, 4,
        lambda h: Handoff(h.request, 30, h.first_token, h.keys, h.values, ""),
    )  # fmt: skip
    add(
        "no-digest",
        "all was there, but the first token had changed on the way.",
        hints.DIGEST, 30, 4,
        lambda h: Handoff(h.request, 30, h.first_token + 1, h.keys, h.values, h.digest),
    )  # fmt: skip
    trial = Trial(30)
    other = trial.handoff(WAITING, 30, trial.widths)
    what = f"a complete handoff of request {WAITING} came where that of request {REQUEST} was expected."
    cases.append(_Case("other-request", what, hints.REQUEST, trial, other))
    return cases


def _shifted(h: Handoff) -> Handoff:
    """Layer 1 has a page of values less and one of keys more: all together are as many as they must be."""
    keys, values = list(h.keys), list(h.values)
    keys[1], values[1] = keys[1][[*range(8), 7]], values[1][:7]
    return sealed(h, keys=keys, values=values)


def _damaged(tensors: Any, layer: int, slot: int) -> list[Any]:
    new = [tensor.clone() for tensor in tensors]
    new[layer].flatten(0, 1)[slot, 0, 0] += 1
    return new


def _left_nothing(case: _Case, outcome: Outcome) -> None:
    """It was refused: did the client read anything, and are the pages back?"""
    if outcome.sent:
        said = f"{case.what} You refused it, and the client has already read token {outcome.sent[0]}."
        found("too-early", said, *hints.EARLY)
    _harmless(outcome, f"{case.what} You refused it.")
    if outcome.holds:
        said = (
            f"{case.what} Here {outcome.said}, and {_pages(len(outcome.holds))} are missing: "
            "not free, and nobody will ever use them."
        )
        found("kept-pages", said, *hints.KEPT)


# What comes later


def _takes_once(receive: Any) -> None:
    for expected in (30, 32):
        for again in ("the same", "damaged", "other"):
            trial = Trial(expected)
            trial.deliver(receive, trial.complete)
            trial.write_answer()
            before = trial.memory(trial.pages)
            handoff = {
                "the same": trial.complete,
                "damaged": sealed(trial.complete, num_tokens=expected - 1),
                "other": trial.handoff(WAITING, expected, trial.widths),
            }[again]
            outcome = trial.deliver(receive, handoff)
            what = f"the handoff of request {REQUEST} was taken and its answer has begun. "
            what += {
                "the same": "Then the same handoff came once more.",
                "damaged": "Then another one came for it.",
                "other": f"Then the handoff of request {WAITING} came for it.",
            }[again]
            _left_alone(trial, outcome, what, before)


def _left_alone(trial: Trial, outcome: Outcome, what: str, before: Any) -> None:
    if outcome.holds != tuple(trial.pages):
        said = f"{what} {outcome.said[0].upper()}{outcome.said[1:]}, and took back the pages that the answer stands on."
        found("pulled-pages", said, *hints.PULLED)
    if outcome.sent:
        found("twice", f"{what} You took it again: the client read its first token twice.", *hints.TWICE)
    if any(not was.equal(now) for was, now in zip(before, trial.memory(trial.pages), strict=True)):
        found("overwritten", f"{what} You wrote it over the slots that the answer has filled.", *hints.OVERWRITTEN)
    if outcome.error is None:
        found("twice", f"{what} You said nothing.", *hints.TWICE)
    _harmless(outcome, what)


def _stays_closed(receive: Any) -> None:
    trial = Trial(30)
    trial.deliver(receive, sealed(trial.complete, num_tokens=29))
    late = sealed(trial.complete)  # not the same object: a slip is as good as a refusal here
    outcome = trial.deliver(receive, late)
    what = f"a short handoff was refused, and request {REQUEST} is over. Then a complete one came for it."
    if outcome.sent or outcome.error is None:
        found("after-refusal", f"{what} You took it, though the request holds no page.", *hints.OVER)
    _harmless(outcome, what)


def _runs_in_cluster(receive: Any) -> None:
    from minikv import Cluster, NodeConfig, SamplingParams
    from minikv.course.chapters.small import small_model
    from minikv.course.seats.receiver import as_handoff

    model = small_model(2)
    prompts = [[(7 * i + j) % 250 for j in range(3 + 4 * i)] for i in range(5)]
    answers = []
    seats: list[dict[str, Any]] = [{}, {"handoff": as_handoff(receive)}]
    for part in seats:
        cluster = Cluster(
            model, prefill=NodeConfig(num_pages=12), decode=NodeConfig(num_pages=20), page_size=4, context_length=40,
            **part,
        )  # fmt: skip
        done = cluster.generate(prompts, SamplingParams(max_tokens=6, ignore_eos=True))
        broken = next((each.error for each in done if each.error is not None), None)
        if broken is not None:
            found("cluster", f"inside a cluster: {broken}", *hints.CLUSTER)
        cluster.check()
        answers.append([each.token_ids for each in done])
    if answers[0] != answers[1]:
        found("cluster", "inside a cluster the answers changed.", *hints.CLUSTER)
