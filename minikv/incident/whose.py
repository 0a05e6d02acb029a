"""Whose words: for each token of an answer, the share of attention that fell on slots of each writer.

Position 0 is kept apart. Models park much of their attention there, whatever it holds, so what it gets says little
about whose words are spoken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from minikv.disagg.router import Cluster
from minikv.errors import BrokenRule, ConfigError
from minikv.incident.attention import Look, WatchedAttention
from minikv.models.adapter import Prompt
from minikv.sampling import SamplingParams
from minikv.scheduling.request import Completion, Request

FIRST, EARLIER = "position 0", "earlier"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

Name = Callable[[int], str]


@dataclass(frozen=True)
class Spoken:
    """One token of an answer, or a few, and whose slots were read for it.

    `first`, `own` and `others` are shares of all attention weight that fell on slots, over all layers and query
    heads. They sum to 1, or to 0 if nothing was read.

    Attributes:
        text: what the answer grew by.
        token_ids: the tokens.
        first: on position 0, whoever wrote it.
        own: on other positions that this very request wrote.
        others: on all others, by the tenant that wrote them; "nobody" for slots that were never written. An earlier
            request of the same tenant counts here, as "NAME, earlier".
        first_writer: who wrote position 0, named as in `others`.
        tenant: whose request it is.
    """

    text: str
    token_ids: tuple[int, ...]
    first: float
    own: float
    others: dict[str, float]
    first_writer: str
    tenant: str

    def shares(self, *, first: bool = True) -> dict[str, float]:
        """By label: "position 0", the tenant's own name for its own slots, the names of the others.

        Args:
            first: False leaves position 0 out, and what remains sums to 1 again (empty if nothing remains).
        """
        rest = {**self.others, self.tenant: self.own}
        if first:
            return {**rest, FIRST: self.first}
        total = sum(rest.values())
        return {name: share / total for name, share in rest.items()} if total > 0 else {}

    def by_writer(self) -> dict[str, float]:
        """By tenant, with position 0 counted for whoever wrote it."""
        found = {self.tenant: self.own, **self.others}
        found[self.first_writer] = found.get(self.first_writer, 0.0) + self.first
        return {name: share for name, share in found.items() if share > 0}

    @property
    def read_most(self) -> str | None:
        """Whose slots got the most, position 0 left out; None if nothing else was read."""
        rest = self.shares(first=False)
        return max(rest, key=lambda name: (rest[name], name)) if rest else None


@dataclass(frozen=True)
class WatchedAnswer:
    """An answer and whose slots were read for each of its tokens.

    Attributes:
        completion: the answer as its client gets it.
        tokens: one for each of its tokens, in order; together their texts are all that was decoded.
        attention: share of the decode node's attention by tenant over the whole request, all positions, largest
            first. Of an answer that was taken back (a late refusal) this is left.
    """

    completion: Completion
    tokens: tuple[Spoken, ...]
    attention: dict[str, float]

    def pieces(self) -> list[tuple[str, dict[str, float]]]:
        """Each token's text with its shares by label, as pictures take them; the same labels in each."""
        return pieces(self.tokens)

    def words(self) -> list[Spoken]:
        """The same by words; see `in_words`."""
        return in_words(self.tokens)


def pieces(spoken: Sequence[Spoken]) -> list[tuple[str, dict[str, float]]]:
    """Text and shares by label: others first, in the order in which they came, then own slots, then position 0."""
    others = dict.fromkeys(name for each in spoken for name in each.others)
    return [(each.text, {**dict.fromkeys(others, 0.0), **each.shares()}) for each in spoken]


def in_words(tokens: Sequence[Spoken]) -> list[Spoken]:
    """Tokens put together to words; a word's shares are the mean of its tokens'."""
    words: list[list[Spoken]] = []
    for token in tokens:
        if not words or token.text[:1].isspace():
            words.append([])
        words[-1].append(token)
    return [_together(word) for word in words]


def watch(
    cluster: Cluster,
    prompts: Sequence[Prompt],
    params: Sequence[SamplingParams],
    tenants: Sequence[str],
    name: Name,
) -> list[WatchedAnswer]:
    """Let a cluster answer some prompts together, and note for each token whose slots were read for it.

    The first token of an answer is chosen on the prefill node, so that node is watched, too.

    Args:
        cluster: any kind, with whatever parts; what it answers is what it would answer unwatched.
        prompts, params, tenants: one each.
        name: tenant of a request that was here earlier; "nobody" for -1.

    Raises:
        ConfigError: if nobody can see what is read: a pool without a ledger, or a model that reads pages itself.
        BrokenRule: if tokens appear for which nothing was read.
    """
    if cluster.model.geometry.indexers:
        raise ConfigError(f"{cluster.model.name} reads its pages itself, so its attention cannot be watched")
    together = zip(prompts, params, tenants, strict=True)
    numbers: list[int] = []
    try:
        numbers += [cluster.submit(*one) for one in together]
        requests = [cluster.requests[number] for number in numbers]
        with _watched(cluster, numbers) as (prefill, decode):
            notes = [_Notes(request) for request in requests]
            while not all(request.answered for request in requests):
                cluster.step()
                for note in notes:
                    note.after_step(prefill, decode)
        new = {request.number: request.tenant for request in requests}
        return [
            note.answer(cluster.result(note.request.number), cluster.model.decode, lambda n: new.get(n) or name(n))
            for note in notes
        ]
    finally:
        for number in numbers:  # after an error nobody would fetch these answers
            cluster.forget(number)


@contextmanager
def _watched(cluster: Cluster, numbers: Sequence[int]) -> Iterator[tuple[WatchedAttention, WatchedAttention]]:
    nodes = (cluster.prefill, cluster.decode)
    plain = [node.attention for node in nodes]
    prefill, decode = (WatchedAttention(node.pool, numbers, node.attention) for node in nodes)
    try:
        cluster.prefill.attention, cluster.decode.attention = prefill, decode
        yield prefill, decode
    finally:
        for node, attention in zip(nodes, plain, strict=True):
            node.attention = attention


@dataclass
class _Notes:
    """What is seen of one request: a look for the first token, and one for each later one."""

    request: Request
    first: Look | None = None
    later: list[Look] = field(default_factory=list)
    tokens: int = 0

    def after_step(self, prefill: WatchedAttention, decode: WatchedAttention) -> None:
        number = self.request.number
        self.first = prefill.take(number) or self.first
        look, known = decode.take(number), len(self.request.output_ids)
        # A part of a prompt that is computed anew yields no token; a refused answer has lost its tokens.
        if look and (known > self.tokens or self.request.finished):
            self.later.append(look)
        self.tokens = known

    def answer(self, completion: Completion, decode: Callable[[Sequence[int]], str], name: Name) -> WatchedAnswer:
        ids, number = completion.token_ids, self.request.number
        looks = [self.first, *self.later][: len(ids)]
        if len(looks) < len(ids) or None in looks:
            raise BrokenRule(
                "nothing is said for which nothing was read",
                f"{len(ids)} tokens, and attention was asked for {len([look for look in looks if look])}",
                number,
            )

        def named(writer: int) -> str:
            if writer == number:
                return completion.tenant
            found = name(writer)
            return f"{found}, {EARLIER}" if found == completion.tenant else found

        spoken = (
            _spoken(text, token, look, number, completion.tenant, named)
            for text, token, look in zip(_texts(ids, decode), ids, looks, strict=True)
            if look
        )
        return WatchedAnswer(completion, tuple(spoken), _by_tenant(self.later, name, number, completion.tenant))


def _spoken(text: str, token: int, look: Look, number: int, tenant: str, named: Name) -> Spoken:
    total = look.total or 1.0
    others: dict[str, float] = {}
    for writer, weight in look.writers.items():
        if writer != number:
            others[named(writer)] = others.get(named(writer), 0.0) + weight / total
    own = look.writers.get(number, 0.0) / total
    return Spoken(text, (token,), look.first / total, own, others, named(look.first_writer), tenant)


def _by_tenant(looks: Sequence[Look], name: Name, number: int, tenant: str) -> dict[str, float]:
    sums: dict[str, float] = {}
    for look in looks:
        for writer, weight in [(look.first_writer, look.first), *look.writers.items()]:
            who = tenant if writer == number else name(writer)
            sums[who] = sums.get(who, 0.0) + weight
    total = sum(sums.values())
    ranked = sorted(sums.items(), key=lambda one: (-one[1], one[0]))
    return {who: weight / total for who, weight in ranked if weight > 0}


def _texts(ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[str]:
    """What the text grew by with each token. A letter made of several tokens comes with the last of them."""
    if not ids:
        return []
    whole, ends = decode(ids), [0]
    for count in range(1, len(ids)):
        so_far = decode(ids[:count]).rstrip(REPLACEMENT)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(so_far, whole, strict=False)))
        ends.append(max(ends[-1], same))
    ends.append(len(whole))
    return [whole[start:stop] for start, stop in pairwise(ends)]


def _together(tokens: Sequence[Spoken]) -> Spoken:
    others: dict[str, float] = {}
    for token in tokens:
        for name, share in token.others.items():
            others[name] = others.get(name, 0.0) + share / len(tokens)
    return Spoken(
        "".join(token.text for token in tokens).strip(),
        tuple(token_id for token in tokens for token_id in token.token_ids),
        sum(token.first for token in tokens) / len(tokens),
        sum(token.own for token in tokens) / len(tokens),
        others,
        tokens[0].first_writer,
        tokens[0].tenant,
    )
