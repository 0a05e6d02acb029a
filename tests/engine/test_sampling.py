"""How a token is chosen: greedily, or drawn with a seed of the request's own, as `transformers` does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from helpers import NEVER, Server, answers, assert_quiet, cluster, finished, greedy, prompt_of, reference, served
from transformers import GenerationConfig

from minikv import Engine, SamplingParams, load_model
from minikv.errors import BrokenRule, ConfigError, EngineFailed, InvalidPrompt
from minikv.models.adapter import BoundModel
from minikv.sampling import log_probabilities, sample
from minikv.scheduling.request import Request

NAN = float("nan")
INFINITE = float("inf")
LENGTHS = (9, 4, 17, 1)
TOKENS = 12
SEEDS = (0, 7, 2**63 + 5)

# Each of these changes what is drawn (a test below says so).
DRAWS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 3.0},
    "top_k": {"temperature": 3.0, "top_k": 4},
    "top_k_of_one": {"temperature": 3.0, "top_k": 1},
    "top_p": {"temperature": 3.0, "top_p": 0.6},
    "min_p": {"temperature": 3.0, "min_p": 0.2},
    "repetition": {"temperature": 9.0, "top_k": 7, "repetition_penalty": 2.0},
    "repetition_wanted": {"temperature": 3.0, "repetition_penalty": 0.5},
    "cool": {"temperature": 0.4},
    "one": {"temperature": 1.0},
    "all": {"temperature": 9.0, "top_k": 20, "top_p": 0.8, "min_p": 0.7, "repetition_penalty": 4.0},
}


def engine(model: BoundModel, **options: Any) -> Engine:
    return Engine(model, **{"page_size": 4, "num_pages": 64} | options)


def drawn(seed: int | None, tokens: int = TOKENS, **settings: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": tokens, "seed": seed, "temperature": 3.0, "ignore_eos": True} | settings)


def drawn_by_transformers(
    model: BoundModel, ids: Sequence[int], seed: int, n: int = TOKENS, *, eos: int | list[int] = NEVER, **settings: Any
) -> tuple[int, ...]:
    """What `transformers` draws after `torch.manual_seed(seed)`; greedy if the temperature is 0."""
    settings = {"top_k": 0, "top_p": 1.0, "temperature": 3.0} | settings
    if settings["temperature"] == 0.0:
        settings = {k: v for k, v in settings.items() if k not in ("temperature", "top_k", "top_p", "min_p")}
        settings["do_sample"] = False
    config = GenerationConfig(
        **{"max_new_tokens": n, "do_sample": True, "eos_token_id": eos, "pad_token_id": 0} | settings
    )
    config.bos_token_id = 0
    prompt = torch.tensor([list(ids)])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        output = model.hf.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)
    return tuple(output[0, len(ids) :].tolist())


@cache
def expected(model: BoundModel, length: int, seed: int, name: str) -> tuple[int, ...]:
    return drawn_by_transformers(model, prompt_of(length), seed, **DRAWS[name])


def asked(prompt: Sequence[int] = (1, 2, 3), **settings: Any) -> Request:
    return Request(0, prompt, SamplingParams(**settings))


# What a caller may write


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("max_tokens", [0, -1, 2.5, True, "5", None]),
        ("min_tokens", [-1, 17, 2.5, True, "5", None]),
        ("temperature", [-0.1, NAN, INFINITE, -INFINITE, 10**400, "0", None, True, 1j]),
        ("top_k", [-1, 2.5, True, "5", None]),
        ("top_p", [0, 0.0, -0.5, 1.0000001, NAN, INFINITE, "1", None, True]),
        ("min_p", [-0.1, 1.1, NAN, INFINITE, "0", None, False]),
        ("repetition_penalty", [0, 0.0, -1.0, NAN, INFINITE, "1", None, True]),
        ("presence_penalty", [-2.1, 2.1, NAN, INFINITE, "0", None, True]),
        ("seed", [-1, 2.5, True, "5", 2**64]),
        ("stop", ["", [""], ["a", ""], [1], b"a", [None]]),
        ("ignore_eos", [0, 1, "yes", None]),
        ("logprobs", [-1, 2.5, True, "5"]),
        ("n", [0, -1, 2.5, True, "5", None]),
    ],
)
def test_bad_values(name: str, values: list[Any]) -> None:
    """https://github.com/vllm-project/vllm/issues/15437: refused where they are written, not in a step."""
    for value in values:
        with pytest.raises(ConfigError, match=f"^{name}"):
            SamplingParams(**{name: value})


@pytest.mark.parametrize("value", [None, 5, 2.5])
def test_bad_values_of_stop(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^stop must"):
        SamplingParams(stop=value)


@pytest.mark.parametrize("value", [None, 5, "ab", [-1], [2.5], [True], ["5"], [None]])
def test_bad_values_of_stop_token_ids(value: Any) -> None:
    with pytest.raises(ConfigError, match="stop_token_ids"):
        SamplingParams(stop_token_ids=value)


def test_extreme_values_are_taken() -> None:
    SamplingParams(
        max_tokens=10**9, min_tokens=10**9, temperature=1e308, top_k=10**9, top_p=5e-324, min_p=1, logprobs=10**9,
        repetition_penalty=5e-324, presence_penalty=-2, seed=2**64 - 1, stop=["x" * 10_000], stop_token_ids=[10**9],
    )  # fmt: skip


def test_params_cannot_be_changed() -> None:
    texts, ids = ["a"], [5]
    params = SamplingParams(stop=texts, stop_token_ids=ids)
    with pytest.raises(AttributeError):
        params.max_tokens = 5  # type: ignore[misc]
    texts.append("b")
    ids.append(6)
    assert (params.stop, params.stop_token_ids) == (("a",), (5,))
    assert SamplingParams(stop="ab").stop == ("ab",)


# Draws


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_of_transformers(tiny: BoundModel, name: str) -> None:
    server = engine(tiny)
    for seed in SEEDS:
        for length in LENGTHS[:2]:
            params = drawn(seed, **DRAWS[name])
            assert answers(server.generate([prompt_of(length)], params)) == [expected(tiny, length, seed, name)]
    assert_quiet(server)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DRAWS if name != "top_k_of_one"])
def test_each_setting_changes_what_is_drawn(tiny: BoundModel, name: str) -> None:
    """Else the tests above could pass without it."""
    for setting in DRAWS[name]:
        without = {key: value for key, value in DRAWS[name].items() if key != setting}
        without.setdefault("temperature", 6.0)
        assert any(
            expected(tiny, length, seed, name) != drawn_by_transformers(tiny, prompt_of(length), seed, **without)
            for seed in SEEDS
            for length in LENGTHS[:2]
        ), setting


def mixed(model: BoundModel) -> tuple[list[list[int]], list[SamplingParams], list[tuple[int, ...]]]:
    """Everything at once, a greedy one between."""
    prompts: list[list[int]] = []
    params: list[SamplingParams] = []
    want: list[tuple[int, ...]] = []
    for index, name in enumerate(DRAWS):
        length, seed = LENGTHS[index % len(LENGTHS)], SEEDS[index % len(SEEDS)]
        prompts += [prompt_of(length), prompt_of(length)]
        params += [drawn(seed, **DRAWS[name]), greedy(TOKENS)]
        want += [expected(model, length, seed, name), reference(model, prompt_of(length), TOKENS)]
    return prompts, params, want


@pytest.mark.parametrize(
    ("build", "preemptions"),
    [
        (engine, 0),
        (lambda model: engine(model, max_batch_tokens=3), 0),
        (lambda model: engine(model, max_batch_size=2), 0),
        (lambda model: engine(model, num_pages=8, page_size=4), 3),
        (lambda model: engine(model, num_pages=29, page_size=1, max_batch_tokens=5), 3),
        (lambda model: cluster(model, 64, page_size=4), 0),
        (lambda model: cluster(model, 11, page_size=3), 1),
    ],
    ids=["plain", "chunks", "pairs", "preempted", "preempted_chunks", "cluster", "preempted_cluster"],
)
def test_same_draws_whatever_the_schedule(
    tiny: BoundModel, build: Callable[[BoundModel], Server], preemptions: int
) -> None:
    """https://github.com/vllm-project/vllm/issues/6719: greedy and drawn rows side by side, each as if alone."""
    prompts, params, want = mixed(tiny)
    server = build(tiny)
    numbers = [server.submit(prompt, each) for prompt, each in zip(prompts, params, strict=True)]
    assert answers(finished(server, numbers)) == want
    assert sum(node.preemptions for node in server.stats().nodes) >= preemptions
    assert_quiet(server)


def test_same_draws_when_others_come_and_go(tiny: BoundModel) -> None:
    server = engine(tiny)
    number = server.submit(prompt_of(9), drawn(7, **DRAWS["all"]))
    for others in range(3):
        server.step()
        company = [server.submit(prompt_of(length, others), drawn(7)) for length in LENGTHS]
        server.step()
        for each in company[others:]:
            server.forget(each)
    assert answers(finished(server, [number])) == [expected(tiny, 9, 7, "all")]


@pytest.mark.parametrize("family", ["gemma2", "gpt2", "qwen3", "gpt_oss"], indirect=True)
def test_draws_in_other_families(family: BoundModel) -> None:
    server = engine(family)
    for seed in SEEDS[:2]:
        settings = {"temperature": 1.5, "top_k": 20, "repetition_penalty": 1.2}
        want = [drawn_by_transformers(family, prompt_of(length), seed, **settings) for length in (9, 4)]
        assert answers(served(server, [prompt_of(9), prompt_of(4)], drawn(seed, **settings))) == want


def test_draws_stop_at_the_end_of_sequence(tiny: BoundModel) -> None:
    """With the model's end inside the answer, as `transformers` stops at it."""
    end = expected(tiny, 9, 7, "temperature")[5]
    params = drawn(7, stop_token_ids=[end])
    want = drawn_by_transformers(tiny, prompt_of(9), 7, eos=end)
    assert len(want) < TOKENS
    assert answers(engine(tiny).generate([prompt_of(9)], params)) == [want]


def test_other_seed_other_draws(tiny: BoundModel) -> None:
    prompt = prompt_of(9)
    assert len({answers(engine(tiny).generate([prompt], drawn(seed)))[0] for seed in range(6)}) == 6


def test_without_a_seed_draws_differ(tiny: BoundModel) -> None:
    assert len(set(answers(engine(tiny).generate([prompt_of(9)] * 4, drawn(None))))) == 4


def test_draws_leave_the_global_state_alone(tiny: BoundModel) -> None:
    state = torch.random.get_rng_state()
    engine(tiny).generate([prompt_of(9)] * 2, [drawn(None), drawn(3)])
    assert torch.equal(torch.random.get_rng_state(), state)


# Extremes


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1e-6},
        {"temperature": 1e-30},
        {"temperature": 1e-40},
        {"temperature": 5e-324},
        {"temperature": 5e-324, "top_k": 5, "top_p": 0.5, "min_p": 0.5},
        {"top_p": 1e-9},
        {"top_p": 5e-324},
        {"top_k": 1},
        {"min_p": 1},
        {"min_p": 1.0, "top_p": 0.3, "top_k": 7},
    ],
    ids=str,
)
def test_narrowest_draw_is_greedy(tiny: BoundModel, settings: dict[str, Any]) -> None:
    """No overflow, no NaN: one token is left, the largest."""
    prompt = prompt_of(9)
    assert answers(engine(tiny).generate([prompt], drawn(3, **settings))) == [reference(tiny, prompt, TOKENS)]


@pytest.mark.parametrize("logits", [[-3.0, -1.0, -2.0], [0.0, -1.0, -1.0], [-1.0, 0.0, 2.0], [3e38, -3e38, 0.0]])
@pytest.mark.parametrize("temperature", [5e-324, 1e-45, 1e-39, 1e-30])
def test_close_to_zero_is_greedy_for_all_signs(logits: list[float], temperature: float) -> None:
    row = torch.tensor(logits)
    for seed in range(5):
        assert sample(row, asked(temperature=temperature, seed=seed)) == int(row.argmax())


@pytest.mark.parametrize("settings", [{"top_k": 257}, {"top_k": 258}, {"top_k": 10**9}, {"top_p": 1}, {"min_p": 0}])
def test_widest_draw_is_the_whole_vocabulary(tiny: BoundModel, settings: dict[str, Any]) -> None:
    assert answers(engine(tiny).generate([prompt_of(9)], drawn(7, **settings))) == [expected(tiny, 9, 7, "temperature")]


def test_very_high_temperature_is_nearly_uniform() -> None:
    request = asked(temperature=1e30, seed=0)
    counts = Counter(sample(torch.tensor([9.0, 0.0, -9.0, 3.0]), request) for _ in range(2000))
    assert all(400 < counts[token] < 600 for token in range(4))


def test_draws_follow_the_softmax() -> None:
    request = asked(temperature=2.0, seed=0)
    logits = torch.tensor([2.0, 0.0, 1.0, -3.0])
    counts = Counter(sample(logits, request) for _ in range(2000))
    for token, count in enumerate((torch.softmax(logits / 2.0, dim=-1) * 2000).tolist()):
        assert abs(counts[token] - count) < 5 * count**0.5


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({"top_k": 2}, {0, 2}),
        ({"top_p": 0.65}, {0, 2}),  # the first has 0.61, the next 0.24
        ({"top_p": 0.6}, {0}),
        ({"min_p": 0.3}, {0, 2}),  # they have 1, 0.14, 0.37 and 0.05 of the largest
        ({"min_p": 0.1}, {0, 1, 2}),
        ({"top_k": 3, "min_p": 0.3}, {0, 2}),
        ({}, {0, 1, 2, 3}),
    ],
)
def test_who_is_left_in_a_draw(settings: dict[str, Any], left: set[int]) -> None:
    request = asked(temperature=1.0, seed=0, **settings)
    logits = torch.tensor([3.0, 1.0, 2.0, 0.0])
    assert {sample(logits, request) for _ in range(400)} == left


def test_greedy_takes_the_largest() -> None:
    assert sample(torch.tensor([0.1, 3.0, -1.0, 2.9]), asked()) == 1


def test_greedy_takes_the_first_of_equals() -> None:
    assert sample(torch.tensor([0.0, 2.0, 2.0]), asked()) == 1
    assert sample(torch.tensor([0.0, 2.0, 2.0]), asked(presence_penalty=0.1)) == 1


def test_half_precision_logits() -> None:
    logits = torch.tensor([1.0, 5.0, 2.0], dtype=torch.bfloat16)
    assert sample(logits, asked(temperature=1e-3, seed=0)) == 1
    assert sample(logits, asked(repetition_penalty=9.0, prompt=(1,))) == 2


def test_logits_are_left_as_they_were() -> None:
    """The log probabilities are those of the model, whatever was asked for."""
    logits = torch.tensor([1.0, 5.0, 2.0, 0.0])
    request = asked(
        (1,), temperature=1.0, seed=0, presence_penalty=1.0, repetition_penalty=2.0, min_tokens=3, max_tokens=5,
        stop_token_ids=[3], top_k=2, top_p=0.5, min_p=0.5,
    )  # fmt: skip
    request.append(2)
    sample(logits, request)
    assert logits.tolist() == [1.0, 5.0, 2.0, 0.0]


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0}, {"repetition_penalty": 2.0}])
def test_no_numbers_no_token(settings: dict[str, Any]) -> None:
    with pytest.raises(EngineFailed, match="not a number"):
        sample(torch.tensor([1.0, NAN, 0.0]), asked(**settings))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_token_forbidden(temperature: float) -> None:
    request = asked(temperature=temperature, min_tokens=2, stop_token_ids=range(4))
    with pytest.raises(EngineFailed, match="forbidden"):
        sample(torch.zeros(4), request)


def test_every_token_forbidden_is_one_requests_error(tiny: BoundModel) -> None:
    server = engine(tiny)
    forbidden = SamplingParams(max_tokens=4, min_tokens=2, stop_token_ids=range(257))
    wrong, right = server.generate([prompt_of(9)] * 2, [forbidden, greedy(4)])
    assert (wrong.finish_reason, wrong.token_ids) == ("error", ())
    assert "min_tokens" in str(wrong.error)
    assert answers([right]) == [reference(tiny, prompt_of(9), 4)]
    assert_quiet(server)


# Penalties


@pytest.mark.parametrize("penalty", [1.5, 20.0, 0.7])
@pytest.mark.parametrize("build", [engine, lambda model: cluster(model, 64, page_size=4)], ids=["engine", "cluster"])
def test_greedy_with_repetition_penalty(
    tiny: BoundModel, build: Callable[[BoundModel], Server], penalty: float
) -> None:
    """Prompt and answer count, as in `transformers`."""
    settings = {"temperature": 0.0, "repetition_penalty": penalty}
    prompts = [prompt_of(length) for length in LENGTHS]
    want = [drawn_by_transformers(tiny, prompt, 0, 20, **settings) for prompt in prompts]
    assert want != [reference(tiny, prompt, 20) for prompt in prompts]
    assert answers(build(tiny).generate(prompts, drawn(None, 20, **settings))) == want


def test_presence_penalty_takes_once_from_what_the_answer_has() -> None:
    """Off the answer's tokens only, however often they came; not off the prompt's."""
    request = asked((0, 0, 3), presence_penalty=1.5, max_tokens=9)
    for token in (1, 1, 1, 2):
        request.append(token)
    scores = request.processors(torch.tensor([request.tokens(0, 7)]), torch.tensor([[1.0, 2.0, -1.0, 0.0]]))
    assert scores.tolist() == [[1.0, 0.5, -2.5, 0.0]]


def test_presence_penalty_in_an_answer(tiny: BoundModel) -> None:
    """Against a loop written out here, with the logits of the reference."""
    prompt, penalty = prompt_of(9), 2.0
    want: list[int] = []
    for _ in range(24):
        with torch.no_grad():
            row = tiny.hf(input_ids=torch.tensor([prompt + want])).logits[0, -1]
        for token in set(want):
            row[token] -= penalty
        want.append(int(row.argmax()))
    assert tuple(want) != reference(tiny, prompt, 24)
    params = SamplingParams(max_tokens=24, ignore_eos=True, presence_penalty=penalty)
    small = engine(tiny, num_pages=13, max_batch_tokens=5)
    assert answers(served(small, [prompt, prompt], params)) == [tuple(want)] * 2
    assert small.stats().nodes[0].preemptions > 0


def test_negative_presence_penalty_repeats(tiny: BoundModel) -> None:
    request = asked(presence_penalty=-2.0, max_tokens=9)
    request.append(2)
    assert sample(torch.tensor([1.0, 0.0, -0.5]), request) == 2


# The least number of tokens


@pytest.mark.parametrize("temperature", [0.0, 3.0])
@pytest.mark.parametrize("least", [1, 5, 6, 7, 12])
def test_min_tokens_forbids_the_end(temperature: float, tiny: BoundModel, least: int) -> None:
    """As `min_new_tokens`: an end-of-sequence token is not chosen before, so the answer goes another way."""
    prompt, settings = prompt_of(9), {"temperature": temperature}
    end = drawn_by_transformers(tiny, prompt, 7, **settings)[5]
    want = drawn_by_transformers(tiny, prompt, 7, eos=end, min_new_tokens=least, **settings)
    params = drawn(7, min_tokens=least, stop_token_ids=[end], **settings)
    (answer,) = engine(tiny).generate([prompt], params)
    assert answers([answer]) == [want]
    assert len(want) >= least
    assert answer.finish_reason == ("stop" if want[-1] == end else "length")


def ending(tiny: BoundModel, end: int) -> BoundModel:
    """The same weights with another end-of-sequence token."""
    model = load_model(tiny.hf)
    model.eos_ids = frozenset({end})
    return model


def test_ignore_eos(tiny: BoundModel) -> None:
    want = reference(tiny, prompt_of(9), TOKENS)
    end = want[3]
    first = want.index(end) + 1
    model = ending(tiny, end)
    stopped, ignored = engine(model).generate([prompt_of(9)] * 2, [SamplingParams(max_tokens=TOKENS), greedy(TOKENS)])
    assert (stopped.token_ids, stopped.finish_reason) == (want[:first], "stop")
    assert (ignored.token_ids, ignored.finish_reason) == (want, "length")


def test_stop_token_ids_hold_with_ignore_eos(tiny: BoundModel) -> None:
    want = reference(tiny, prompt_of(9), TOKENS)
    end, other = want[2], want[6]
    params = SamplingParams(max_tokens=TOKENS, ignore_eos=True, stop_token_ids=[other])
    server = engine(ending(tiny, end))
    (answer,) = server.generate([prompt_of(9)], params)
    assert (answer.token_ids, answer.finish_reason) == (want[: want.index(other) + 1], "stop")
    assert_quiet(server)


def test_stop_token_ids_beside_the_models_own(tiny: BoundModel) -> None:
    want = reference(tiny, prompt_of(9), TOKENS)
    for stop in ([want[2]], [want[9], want[2], 10**9]):
        (answer,) = engine(tiny).generate([prompt_of(9)], SamplingParams(max_tokens=TOKENS, stop_token_ids=stop))
        assert (answer.token_ids, answer.finish_reason) == (want[: want.index(want[2]) + 1], "stop")


def test_end_at_the_last_token_is_a_stop(tiny: BoundModel) -> None:
    want = reference(tiny, prompt_of(9), 3)
    (answer,) = engine(tiny).generate([prompt_of(9)], SamplingParams(max_tokens=3, stop_token_ids=[want[2]]))
    assert (answer.token_ids, answer.finish_reason) == (want, "stop")


# Log probabilities


def reference_logs(model: BoundModel, prompt: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
    """Of each token of an answer: [tokens, vocabulary]."""
    with torch.inference_mode():
        logits = model.hf(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0]
    return torch.log_softmax(logits.float(), dim=-1)[len(prompt) - 1 : -1]


@pytest.mark.parametrize("count", [0, 3, 10**6])
@pytest.mark.parametrize(
    "settings", [{"temperature": 0.0}, {**DRAWS["all"], "temperature": 30.0}], ids=["greedy", "drawn"]
)
def test_logprobs_are_the_models_own(tiny: BoundModel, count: int, settings: dict[str, Any]) -> None:
    """By the logits of the model, not by what temperature and penalties make of them."""
    prompt = prompt_of(9)
    servers: list[Server] = [
        engine(tiny),
        engine(tiny, num_pages=8, max_batch_tokens=3),
        cluster(tiny, 64, page_size=4),
    ]
    for server in servers:
        for answer in served(server, [prompt, prompt], drawn(7, logprobs=count, **settings)):
            want = reference_logs(tiny, prompt, answer.token_ids)
            assert len(answer.logprobs) == len(answer.token_ids) == TOKENS
            for token, found, row in zip(answer.token_ids, answer.logprobs, want, strict=True):
                best = set(row.topk(min(count, 257)).indices.tolist())
                assert set(found) == best | {token}
                values = list(found.values())[: len(best)]
                assert values == sorted(values, reverse=True)
                for each, value in found.items():
                    assert value == pytest.approx(row[each].item(), abs=1e-4)
    assert servers[1].stats().nodes[0].preemptions > 0


def test_chosen_token_comes_last_if_it_is_none_of_the_likely() -> None:
    found = log_probabilities(torch.tensor([3.0, 0.0, 2.0, 1.0]), 1, 2)
    assert list(found) == [0, 2, 1]
    assert sum(torch.tensor(list(log_probabilities(torch.zeros(4), 0, 4).values())).exp()) == pytest.approx(1.0)


def test_no_logprobs_unless_asked_for(tiny: BoundModel) -> None:
    one, two = engine(tiny).generate([prompt_of(9)] * 2, [greedy(3), drawn(0, 3, logprobs=1)])
    assert (one.logprobs, len(two.logprobs)) == ((), 3)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_logprobs_of_an_aborted_request(tiny: BoundModel, steps: int) -> None:
    server = engine(tiny)
    number = server.submit(prompt_of(9), drawn(7, logprobs=2))
    for _ in range(steps):
        server.step()
    server.abort(number)
    answer = server.result(number)
    assert (answer.finish_reason, len(answer.token_ids), len(answer.logprobs)) == ("abort", steps, steps)
    assert_quiet(server)


# Several answers to a prompt


@pytest.mark.parametrize("build", [engine, lambda model: cluster(model, 64, page_size=4)], ids=["engine", "cluster"])
def test_n_answers_count_up_from_the_seed(tiny: BoundModel, build: Callable[[BoundModel], Server]) -> None:
    """In order, prompt by prompt; answer `i` is that of `seed + i` alone, with logprobs of its own."""
    prompts = [prompt_of(9), prompt_of(4), prompt_of(17)]
    params = [drawn(7, n=3, logprobs=1, **DRAWS["all"]), greedy(TOKENS), drawn(2**64 - 1, n=2)]
    found = build(tiny).generate(prompts, params)
    assert [answer.index for answer in found] == [0, 1, 2, 0, 0, 1]
    assert [answer.prompt_tokens for answer in found] == [9, 9, 9, 4, 17, 17]
    assert len({answer.request_id for answer in found}) == 6
    assert answers(found) == [
        *(drawn_by_transformers(tiny, prompts[0], seed, **DRAWS["all"]) for seed in (7, 8, 9)),
        reference(tiny, prompts[1], TOKENS),
        *(drawn_by_transformers(tiny, prompts[2], seed) for seed in (2**64 - 1, 0)),
    ]
    for answer in found[:3]:
        assert [set(each) >= {token} for token, each in zip(answer.token_ids, answer.logprobs, strict=True)]


def test_n_greedy_answers_are_equal(tiny: BoundModel) -> None:
    server = engine(tiny)
    found = server.generate([prompt_of(9)], SamplingParams(max_tokens=5, ignore_eos=True, n=3))
    assert answers(found) == [reference(tiny, prompt_of(9), 5)] * 3
    assert_quiet(server)


def test_n_without_a_seed_differ(tiny: BoundModel) -> None:
    assert len(set(answers(engine(tiny).generate([prompt_of(9)], drawn(None, n=4))))) == 4


def test_each_of_n() -> None:
    params = SamplingParams(n=3, seed=5, temperature=0.5, stop="x")
    assert params.each() == [SamplingParams(seed=seed, temperature=0.5, stop="x") for seed in (5, 6, 7)]
    assert [each.seed for each in SamplingParams(n=2).each()] == [None, None]
    assert [each.seed for each in SamplingParams(n=2, seed=2**64 - 1).each()] == [2**64 - 1, 0]


def test_submit_takes_one_answer_only(tiny: BoundModel) -> None:
    server = engine(tiny)
    with pytest.raises(ConfigError, match=r"n=2.*generate.*each"):
        server.submit(prompt_of(9), SamplingParams(n=2))
    assert not server.requests


def test_n_refused_by_the_door(tiny: BoundModel) -> None:
    server = engine(tiny)
    found = server.generate([prompt_of(9), prompt_of(9)], [drawn(0, 10**6, n=3), greedy(2)])
    assert [(answer.finish_reason, answer.index) for answer in found] == [
        ("rejected", 0), ("rejected", 1), ("rejected", 2), ("length", 0),
    ]  # fmt: skip
    assert not server.requests


def test_n_refused_for_the_prompt(tiny: BoundModel) -> None:
    found = engine(tiny).generate([[]], drawn(0, n=3))
    assert [type(answer.error) for answer in found] == [InvalidPrompt] * 3
    assert [answer.index for answer in found] == [0, 1, 2]


def test_one_of_n_aborted(tiny: BoundModel) -> None:
    """The others go on as if nothing had happened."""
    server = engine(tiny)
    numbers = [server.submit(prompt_of(9), each) for each in drawn(7, n=3, logprobs=1).each()]
    server.step()
    server.abort(numbers[1])
    one, two, three = finished(server, numbers)
    assert (two.finish_reason, len(two.token_ids), len(two.logprobs)) == ("abort", 1, 1)
    assert answers([one, three]) == [drawn_by_transformers(tiny, prompt_of(9), seed) for seed in (7, 9)]
    assert_quiet(server)


# A sampler of one's own


@pytest.mark.parametrize("wrong", [257, -1, True, 2.0, None, "5"])
def test_sampler_that_returns_no_token(tiny: BoundModel, wrong: Any) -> None:
    """Its request alone ends with the broken rule; the one beside it goes on."""

    def odd(logits: torch.Tensor, request: Request) -> Any:
        return wrong if request.params.seed == 1 else sample(logits, request)

    server = engine(tiny, sampler=odd)
    bad, good = server.generate([prompt_of(9)] * 2, [drawn(1), drawn(7)])
    assert isinstance(bad.error, BrokenRule)
    assert (bad.error.rule[:18], bad.error.step, bad.token_ids) == ("a sampler returns ", 1, ())
    assert answers([good]) == [expected(tiny, 9, 7, "temperature")]
    assert_quiet(server)
