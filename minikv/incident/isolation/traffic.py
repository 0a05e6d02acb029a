"""A seeded mix of tenants: ordinary requests, and requests of every length at which somebody may change their mind."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from minikv.frontend import Frontend
from minikv.incident.isolation.targets import Ask
from minikv.incident.tenants import Tenant

NAMES = ("ada", "bela", "cyrus", "dinah", "edwin", "freya")
SYLLABLES = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
WORDS = 60  # of a tenant's text
CROWD = 200  # requests at once, at most

Encode = Callable[[str], tuple[int, ...]]


def invented(name: str, seed: int, version: int = 0) -> Tenant:
    """A tenant with invented words that nobody else uses, two canaries among them.

    Args:
        name: of the tenant.
        seed: of all tenants.
        version: another one gives the same tenant another text.
    """
    draw = random.Random(f"{name} {seed} {version}")

    def word() -> str:
        return "".join(draw.choices(SYLLABLES, k=draw.randint(2, 3)))

    canaries = (f"{word()}-{draw.randint(1000, 9999)}", f"{word()}-{word()}")
    words = [word() for _ in range(WORDS)]
    for place, canary in zip((0, 7), canaries, strict=True):
        words.insert(place, canary)
    return Tenant(name, " ".join(words), canaries)


class Speakers:
    """Tenants, and prompts of theirs of any length.

    Args:
        encode: text to token ids, of the model that will answer.
        seed: of their texts.
        changed: names of tenants that say something else, of the same length, than they would.

    Attributes:
        tenants: by name.
    """

    def __init__(self, encode: Encode, seed: int = 0, changed: Collection[str] = ()) -> None:
        self.tenants = {name: invented(name, seed, version=name in changed) for name in NAMES}
        self._ids = {name: tuple(encode(tenant.text)) for name, tenant in self.tenants.items()}

    def prompt(self, name: str, length: int, start: int = 0) -> tuple[int, ...]:
        """`length` tokens of a tenant's text from `start` on; the text begins again at its end."""
        ids = self._ids[name]
        return tuple(ids[(start + place) % len(ids)] for place in range(length))


@dataclass(frozen=True)
class Limits:
    """What a server says about itself, in tokens.

    Attributes:
        context: most positions of one request.
        pools: what each node's pool holds.
        page_size: of all of them.
    """

    context: int
    pools: tuple[int, ...]
    page_size: int

    @property
    def room(self) -> int:
        """Most tokens of prompt and answer that every node could hold; the last token is never written."""
        return min(self.context, min(self.pools) + 1)


def limits_of(server: Frontend) -> Limits:
    """Of a server in this process, from its pools themselves; its door is not asked."""
    pools = tuple(node.pool.num_slots for node in server.nodes)
    return Limits(server.context_length, pools, server.nodes[0].pool.page_size)


def boundary_lengths(limits: Limits, answer: int) -> dict[str, int]:
    """Prompt lengths at which somebody may change their mind, by name; `answer` tokens are asked for with each."""
    limit, size = limits.room - answer, limits.page_size
    found = {f"limit{delta:+d}" if delta else "limit": limit + delta for delta in (-1, 0, 1, size)}
    found |= {f"pages{delta:+d}" if delta else "pages": 2 * size + delta for delta in (-1, 0, 1)}
    for number, pool in enumerate(limits.pools):
        found |= {f"pool {number}{delta:+d}": pool + delta for delta in (-size, -1, 0, 1, size - 1)}
    found |= {f"context{delta:+d}": limits.context - answer + delta for delta in (-1, 0, 1)}
    return {name: length for name, length in found.items() if length >= 1}


def boundary_asks(speakers: Speakers, limits: Limits, tenant: str, answer: int = 4) -> list[Ask]:
    """Each boundary length once read along and once not."""
    return [
        Ask(tenant, speakers.prompt(tenant, length), answer, name, streamed)
        for name, length in boundary_lengths(limits, answer).items()
        for streamed in (False, True)
    ]


def turning_over(speakers: Speakers, limits: Limits, tenants: Iterable[str] = NAMES) -> list[list[Ask]]:
    """Rounds of ordinary requests that leave words in every page of every pool: a server with a past.

    First one tenant after the other with prompts as long as any door lets in; then a crowd with prompts of one page,
    as many as fill the pool that they enter, and whose answers fill the largest one.
    """
    names = list(tenants)
    length, answer = max(1, limits.room * 2 // 3), max(1, limits.room // 4)
    rounds = [[Ask(name, speakers.prompt(name, length), answer)] for name in names]
    length, answer = min(limits.page_size, length), max(1, limits.room // 3)
    together = max(max(limits.pools) // (length + answer - 1) + 2, limits.pools[0] // limits.page_size)
    crowd = [names[index % len(names)] for index in range(min(together, CROWD))]
    return [*rounds, [Ask(name, speakers.prompt(name, length, 5), answer) for name in crowd]]


def mixed(speakers: Speakers, limits: Limits, count: int, seed: int = 0, tenants: Sequence[str] = NAMES) -> list[Ask]:
    """`count` requests of all kinds, some at a boundary, some read along, some whose clients leave.

    The same seed draws the same mix, whatever the tenants say.
    """
    draw = random.Random(seed)
    asks: list[Ask] = []
    step = 0
    for _ in range(count):
        step += draw.choice((0, 0, 1, 1, 2))
        name, answer = draw.choice(tenants), draw.randint(1, max(1, min(10, limits.room // 3)))
        length, kind = draw.randint(1, max(1, limits.room - answer)), "ordinary"
        if draw.random() < 0.2:
            kind, length = draw.choice(sorted(boundary_lengths(limits, answer).items()))
        settings: dict[str, Any] = {"streamed": draw.random() < 0.4, "comes_at": step}
        if draw.random() < 0.15:
            settings["leaves_after"] = draw.randint(0, answer)
        asks.append(Ask(name, speakers.prompt(name, length, draw.randrange(40)), answer, kind, **settings))
    return asks
