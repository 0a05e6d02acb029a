"""How a token is chosen: greedily, or drawn with a seed of the request's own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from helpers import answers, cluster, greedy, prompt_of, reference

from minikv import Engine, SamplingParams
from minikv.errors import ConfigError
from minikv.models.adapter import BoundModel
from minikv.sampling import next_token

NAN = float("nan")


def drawn(seed: int | None, temperature: float = 1.0, tokens: int = 12) -> SamplingParams:
    return SamplingParams(max_tokens=tokens, temperature=temperature, seed=seed, ignore_eos=True)


def engine(model: BoundModel) -> Engine:
    return Engine(model, page_size=4, num_pages=64)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("max_tokens", [0, -1, 2.5, True, "5", None]),
        ("temperature", [-0.1, NAN, float("inf"), "0", None, True]),
        ("ignore_eos", [0, 1, "yes", None]),
        ("seed", [-1, 2.5, True, "5", 2**64]),
    ],
)
def test_bad_values(name: str, values: list[Any]) -> None:
    """https://github.com/vllm-project/vllm/issues/15437: refused where they are written, not in a step."""
    for value in values:
        with pytest.raises(ConfigError, match=name):
            SamplingParams(**{name: value})


def test_params_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        SamplingParams().max_tokens = 5  # type: ignore[misc]


def test_largest_seed_draws(tiny: BoundModel) -> None:
    assert len(answers(engine(tiny).generate([[5]], drawn(2**63 - 1)))[0]) == 12


def test_greedy_takes_the_largest() -> None:
    logits = torch.tensor([0.1, 3.0, -1.0, 2.9])
    assert next_token(logits, SamplingParams(), None) == 1


def test_seed_repeats(tiny: BoundModel) -> None:
    prompt = prompt_of(9)
    first, second = (answers(engine(tiny).generate([prompt], drawn(7))) for _ in range(2))
    assert first == second


def test_other_seed_other_draws(tiny: BoundModel) -> None:
    prompt = prompt_of(9)
    assert len({answers(engine(tiny).generate([prompt], drawn(seed)))[0] for seed in range(6)}) == 6


def test_without_a_seed_draws_differ(tiny: BoundModel) -> None:
    assert len(set(answers(engine(tiny).generate([prompt_of(9)] * 4, drawn(None))))) > 1


def test_draws_leave_the_global_state_alone(tiny: BoundModel) -> None:
    state = torch.random.get_rng_state()
    engine(tiny).generate([prompt_of(9)] * 2, [drawn(None), drawn(3)])
    assert torch.equal(torch.random.get_rng_state(), state)


def test_seed_in_any_company(tiny: BoundModel) -> None:
    """https://github.com/vllm-project/vllm/issues/6719: a greedy and a drawn row, each as if alone."""
    prompts = [prompt_of(length) for length in (9, 4, 17, 9)]
    params = [drawn(7), greedy(12), drawn(7, temperature=0.5), drawn(8)]
    alone = [answers(engine(tiny).generate([p], each))[0] for p, each in zip(prompts, params, strict=True)]
    assert answers(engine(tiny).generate(prompts, params)) == alone
    assert answers(cluster(tiny, 64, page_size=4).generate(prompts, params)) == alone
    assert alone[1] == reference(tiny, prompts[1], 12)


@pytest.mark.parametrize("temperature", [1e-6, 1e-30, 5e-324])
def test_close_to_zero_is_greedy(tiny: BoundModel, temperature: float) -> None:
    """No overflow, no NaN: the limit of a softmax is its largest entry."""
    prompt = prompt_of(9)
    assert answers(engine(tiny).generate([prompt], drawn(3, temperature))) == [reference(tiny, prompt, 12)]


def test_very_high_temperature_is_nearly_uniform() -> None:
    params = SamplingParams(temperature=1e30, seed=0)
    generator = params.generator()
    logits = torch.tensor([9.0, 0.0, -9.0, 3.0])
    counts = Counter(next_token(logits, params, generator) for _ in range(2000))
    assert all(400 < counts[token] < 600 for token in range(4))


def test_draws_follow_the_softmax() -> None:
    params = SamplingParams(temperature=2.0, seed=0)
    generator = params.generator()
    logits = torch.tensor([2.0, 0.0, 1.0, -3.0])
    counts = Counter(next_token(logits, params, generator) for _ in range(4000))
    expected = torch.softmax(logits / 2.0, dim=-1) * 4000
    for token, count in enumerate(expected.tolist()):
        assert abs(counts[token] - count) < 5 * count**0.5


def test_half_precision_logits() -> None:
    logits = torch.tensor([1.0, 5.0, 2.0], dtype=torch.bfloat16)
    params = SamplingParams(temperature=1e-3, seed=0)
    assert next_token(logits, params, params.generator()) == 1
