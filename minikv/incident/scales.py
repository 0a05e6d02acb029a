"""The incident at three sizes, from one description."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minikv.config import NodeConfig
from minikv.errors import ConfigError
from minikv.incident.tenants import Tenant, tenant
from minikv.models.adapter import BoundModel, Prompt
from minikv.models.catalog import load_model
from minikv.models.tiny import tiny_random
from minikv.sampling import SamplingParams

QUESTION = "What was the weather like in the north last week, and will the roads be free of snow on Monday? "
FIRST_CHARACTER, NUM_CHARACTERS = 33, 94  # printable ASCII, one token each for a tokenizer of bytes


@dataclass(frozen=True)
class Visit:
    """One earlier request: whose, what, and how many tokens were generated for it."""

    tenant: Tenant
    prompt: Prompt
    max_tokens: int


@dataclass(frozen=True)
class Scale:
    """Everything that a replay needs.

    Attributes:
        name, model_name: for the report.
        load: brings the model.
        page_size, prefill, decode, context_length: of both clusters, historical and right.
        attack_tokens: length of the prompt that the prefill pool cannot hold.
        answer_tokens: tokens generated for it, if anybody does.
        visits: builds the earlier requests from the model, in groups: those of one group run together, and
            free their pages before the next group starts.
        readable: the model speaks a language, so a leak can be seen in words.
        candidates: without words, how many tenants are tried one at a time, those looked at most first.
    """

    name: str
    model_name: str
    load: Callable[[], BoundModel]
    page_size: int
    prefill: NodeConfig
    decode: NodeConfig
    context_length: int
    attack_tokens: int
    answer_tokens: int
    visits: Callable[[BoundModel], list[list[Visit]]]
    readable: bool
    candidates: int = 0

    def attack(self, model: BoundModel, length: int | None = None) -> tuple[int, ...]:
        """A harmless question, repeated until the prompt has the length wanted."""
        length = length or self.attack_tokens
        if length > 2 * self.context_length:
            raise ConfigError(f"{length} tokens are more than twice the context; use at most {2 * self.context_length}")
        ids = model.encode(QUESTION)
        return (ids * (length // len(ids) + 1))[:length]

    @property
    def attack_params(self) -> SamplingParams:
        """Of the refused request."""
        return SamplingParams(max_tokens=self.answer_tokens, ignore_eos=True)


def _article_visits(_model: BoundModel) -> list[list[Visit]]:
    """A meeting protocol, then a patient record; each a chat turn that asks for a copy of its text."""
    protocol, record = tenant("halverson"), tenant("quennell")
    ask = "Repeat this text word for word."
    return [
        [Visit(protocol, protocol.text, 64)],
        [Visit(record, [{"role": "user", "content": f"{record.text} {ask}"}], 72)],
    ]


def _invented(names: Sequence[str], length: int, seed: int) -> list[Tenant]:
    """Tenants whose texts are `length` random characters, each from a small alphabet of its own."""
    letters = random.Random(seed)
    printable = [chr(code) for code in range(FIRST_CHARACTER, FIRST_CHARACTER + NUM_CHARACTERS)]
    return [Tenant(name, "".join(letters.choices(letters.sample(printable, 4), k=length)), ()) for name in names]


def _pocket_visits(_model: BoundModel) -> list[list[Visit]]:
    return [
        [Visit(each, each.text, 9) for each in _invented(("ben", "cleo", "dora", "emil", "fay", "gus"), 12, seed=1)]
    ]


def _production_visits(_model: BoundModel) -> list[list[Visit]]:
    names = [f"tenant-{number:03d}" for number in range(1, 259)]
    return [[Visit(each, each.text, 4) for each in _invented(names, 4221, seed=2)]]


def one_layer(max_positions: int) -> BoundModel:
    """A random model of one layer and one narrow head, which can hold a million tokens on a laptop."""
    model, tokenizer = tiny_random(layers=1, hidden=8, heads=1, kv_heads=1, max_positions=max_positions, spread=1.0)
    return BoundModel(model, tokenizer, name="one-layer")


ARTICLE = Scale(
    name="article",
    model_name="smollm2",
    load=lambda: load_model("smollm2"),
    page_size=64,
    prefill=NodeConfig(num_pages=7),
    decode=NodeConfig(num_pages=64),
    context_length=8192,
    attack_tokens=490,
    answer_tokens=48,
    visits=_article_visits,
    readable=True,
)
POCKET = Scale(
    name="pocket",
    model_name="tiny-random",
    load=lambda: load_model("tiny-random"),
    page_size=4,
    prefill=NodeConfig(num_pages=7),
    decode=NodeConfig(num_pages=64),
    context_length=512,
    attack_tokens=31,
    answer_tokens=16,
    visits=_pocket_visits,
    readable=False,
    candidates=6,
)
PRODUCTION = Scale(
    name="production",
    model_name="one-layer",
    load=lambda: one_layer(1_048_576),
    page_size=64,
    prefill=NodeConfig(num_pages=10_645, max_batch_size=512, max_batch_tokens=700_000),
    decode=NodeConfig(num_pages=17_200, max_batch_size=512, max_batch_tokens=700_000),
    context_length=1_048_576,
    attack_tokens=681_274,
    answer_tokens=8,  # with these the prompt needs 681,281 slots, one more than the prefill pool has
    visits=_production_visits,
    readable=False,
    candidates=12,
)
SCALES = {scale.name: scale for scale in (ARTICLE, POCKET, PRODUCTION)}
