"""Token for token what `transformers` answers greedily in float32, however the engine stores and mixes requests."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from helpers import (
    CORE,
    FAMILIES,
    WINDOW,
    Server,
    answers,
    assert_quiet,
    cluster,
    finished,
    greedy,
    prompt_of,
    reference,
    served,
)

from minikv import Cluster, Engine, NodeConfig, SamplingParams
from minikv.models.adapter import BoundModel

PAGE_SIZES = (1, 4, 16, 64)
SMOLLM2_LENGTHS = (1, 2, 15, 16, 17, 63, 64, 130, 257, 600)
TEXT = (
    "The harbour master keeps a list of every boat that came in this year, and on the back of each page he draws "
    "the weather. In March there were nine days of fog. A barge lost its way and found it again by the bell of "
    "the church. "
)

Build = Callable[[BoundModel, int, int], Server]


def engine(model: BoundModel, page_size: int, tokens: int) -> Engine:
    return Engine(model, page_size=page_size, num_pages=-(-tokens // page_size) + 4)


def two_nodes(model: BoundModel, page_size: int, tokens: int) -> Cluster:
    return cluster(model, -(-tokens // page_size) + 4, page_size=page_size)


both = pytest.mark.parametrize("build", [engine, two_nodes])


def smollm2_prompts(model: BoundModel) -> list[tuple[int, ...]]:
    ids = model.encode(TEXT * 20)
    return [ids[start : start + length] for start, length in enumerate(SMOLLM2_LENGTHS)]


@pytest.fixture(scope="session")
def smollm2_references(smollm2: BoundModel) -> list[tuple[int, ...]]:
    (eos,) = smollm2.eos_ids
    return [reference(smollm2, prompt, 12, eos=eos) for prompt in smollm2_prompts(smollm2)]


@pytest.mark.model
def test_smollm2_short(smollm2: BoundModel) -> None:
    """Includes its end-of-sequence token, which both must stop at."""
    (eos,) = smollm2.eos_ids
    chat = smollm2.encode([{"role": "user", "content": "Say yes."}])
    expected = reference(smollm2, chat, 12, eos=eos)
    done = Engine(smollm2, num_pages=16).generate([chat], SamplingParams(max_tokens=12))
    assert answers(done) == [expected]
    assert done[0].finish_reason == ("stop" if expected[-1] == eos else "length")


@pytest.mark.model
@pytest.mark.slow
def test_smollm2_alone(smollm2: BoundModel, smollm2_references: list[tuple[int, ...]]) -> None:
    server = engine(smollm2, 16, 640)
    for prompt, expected in zip(smollm2_prompts(smollm2), smollm2_references, strict=True):
        assert answers(served(server, [prompt], SamplingParams(max_tokens=12))) == [expected], len(prompt)
    assert_quiet(server)


@pytest.mark.model
@pytest.mark.slow
@both
def test_smollm2_together(smollm2: BoundModel, smollm2_references: list[tuple[int, ...]], build: Build) -> None:
    server = build(smollm2, 16, 1600)
    assert answers(served(server, smollm2_prompts(smollm2), SamplingParams(max_tokens=12))) == smollm2_references


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"], indirect=True)
def test_batch_around_a_page(family: BoundModel, page_size: int) -> None:
    """https://github.com/sgl-project/sglang-jax/pull/20: lengths P-1, P, P+1 in one batch, each as if alone."""
    prompts = [prompt_of(length) for length in (page_size - 1, page_size, page_size + 1) if length]
    server = engine(family, page_size, 3 * page_size + 30)
    expected = [reference(family, prompt, 9) for prompt in prompts]
    assert answers(served(server, prompts, greedy(9))) == expected
    for prompt, tokens in zip(prompts, expected, strict=True):
        assert answers(served(server, [prompt], greedy(9))) == [tokens]


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"], indirect=True)
def test_cluster_equals_engine(family: BoundModel, page_size: int) -> None:
    """https://github.com/vllm-project/vllm/issues/17808: prefill here and decode there, the same tokens."""
    lengths = (page_size - 1, page_size, page_size + 1, 2 * page_size)
    prompts = [prompt_of(length) for length in lengths if length]
    one = answers(served(engine(family, page_size, 5 * page_size + 40), prompts, greedy(9)))
    two = answers(served(two_nodes(family, page_size, 5 * page_size + 40), prompts, greedy(9)))
    assert two == one == [reference(family, prompt, 9) for prompt in prompts]


@pytest.mark.parametrize("family", CORE, indirect=True)
@both
def test_every_family(family: BoundModel, build: Build) -> None:
    """Windows, soft caps, sinks, and keys and values of different widths, across the window's edge and alone.

    Two requests with as many query heads a group as key/value heads: shapes that broadcast by accident show here.
    """
    prompts = [prompt_of(length, seed=1) for length in (WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW + 1)]
    expected = [reference(family, prompt, 2 * WINDOW) for prompt in prompts]
    server = build(family, 4, 160)
    assert answers(served(server, prompts[:2], greedy(2 * WINDOW))) == expected[:2]
    assert answers(served(server, prompts, greedy(2 * WINDOW))) == expected
    assert answers(served(server, prompts[-1:], greedy(2 * WINDOW))) == expected[-1:]


def test_softcap_matters() -> None:
    """The Gemma-2 of these tests answers otherwise without its soft cap, so leaving it out would be seen."""
    with_cap, without = FAMILIES["gemma2"](), FAMILIES["gemma2"]()
    for layer in without.hf.model.layers:
        layer.self_attn.attn_logit_softcapping = None
    prompt = prompt_of(20)
    assert reference(with_cap, prompt, 12) != reference(without, prompt, 12)


def test_sinks_matter() -> None:
    """The same for the sinks of GPT-OSS."""
    with_sinks, without = FAMILIES["gpt_oss"](), FAMILIES["gpt_oss"]()
    for layer in without.hf.model.layers:
        layer.self_attn.sinks.data.fill_(-1e9)
    prompt = prompt_of(20)
    assert reference(with_sinks, prompt, 12) != reference(without, prompt, 12)


@pytest.mark.parametrize("copies", [2, 3, 7])
def test_same_prompt_many_times(tiny: BoundModel, copies: int) -> None:
    """https://github.com/sgl-project/mini-sglang/pull/98: in any batch the same tokens."""
    prompt = prompt_of(11)
    done = served(Engine(tiny, page_size=4, num_pages=64), [prompt] * copies, greedy(8))
    assert answers(done) == [reference(tiny, prompt, 8)] * copies


@both
def test_requests_come_and_go(tiny: BoundModel, build: Build) -> None:
    """Requests of different lengths arrive while others run, and each ends as it would alone."""
    server = build(tiny, 4, 120)
    jobs = [(prompt_of(3 + 5 * i, seed=i), 3 + (7 * i) % 11) for i in range(8)]
    numbers = []
    for prompt, tokens in jobs:
        numbers.append(server.submit(prompt, greedy(tokens)))
        server.step()
        server.check()
    got = answers(finished(server, numbers))
    assert got == [reference(tiny, prompt, tokens) for prompt, tokens in jobs]
    assert_quiet(server)


def test_one_at_a_time_when_the_pool_is_full(tiny: BoundModel) -> None:
    """A pool for one request: the others wait, none is lost, none is served out of turn."""
    server = Engine(tiny, page_size=4, num_pages=6)
    prompts = [prompt_of(15, seed=i) for i in range(4)]
    assert answers(served(server, prompts, greedy(9))) == [reference(tiny, p, 9) for p in prompts]


def test_budget_of_one_token(tiny: BoundModel) -> None:
    """A prompt above `max_batch_tokens` has a step to itself."""
    server = Engine(tiny, page_size=4, num_pages=64, max_batch_tokens=1, max_batch_size=2)
    prompts = [prompt_of(length) for length in (9, 1, 14)]
    assert answers(served(server, prompts, greedy(6))) == [reference(tiny, p, 6) for p in prompts]


@pytest.mark.parametrize("tokens", [255, 256, 257, 513])
def test_around_the_row_block(tiny: BoundModel, tokens: int) -> None:
    """Long prompts are scored in blocks of 256 rows; the seams must not show."""
    prompt = prompt_of(tokens)
    got = answers(served(Engine(tiny, page_size=16, num_pages=64), [prompt], greedy(4)))
    assert got == [reference(tiny, prompt, 4)]


@pytest.mark.parametrize("family", ["mistral"], indirect=True)
def test_window_longer_than_the_row_block(family: BoundModel) -> None:
    prompt = prompt_of(240)
    assert answers(served(engine(family, 16, 256), [prompt], greedy(6))) == [reference(family, prompt, 6)]


def test_stops_at_the_end_of_sequence(tiny: BoundModel) -> None:
    """Whatever it would say third is made the end: both stop there, and the token is part of the answer."""
    prompt = prompt_of(9)
    third = reference(tiny, prompt, 3)[-1]
    before, tiny.eos_ids = tiny.eos_ids, frozenset([third])
    try:
        (done,) = Engine(tiny, num_pages=8).generate([prompt], SamplingParams(max_tokens=12))
    finally:
        tiny.eos_ids = before
    assert done.finish_reason == "stop"
    assert done.token_ids == reference(tiny, prompt, 12, eos=third)


@both
def test_generate_is_as_before(tiny: BoundModel, build: Build) -> None:
    """Serving leaves the model as it was: its own `generate` works, and no setting has changed."""
    prompt = prompt_of(13)
    before = reference(tiny, prompt, 8)
    implementation = tiny.hf.config._attn_implementation
    server = build(tiny, 4, 60)
    number = server.submit(prompt, greedy(8))
    server.step()
    assert reference(tiny, prompt, 8) == before
    assert answers(finished(server, [number])) == [before]
    assert reference(tiny, prompt, 8) == before
    assert tiny.hf.config._attn_implementation == implementation


def test_generate_is_as_before_after_a_failure(tiny: BoundModel) -> None:
    def broken(*_args: object, **_options: object) -> None:
        raise RuntimeError("no attention today")

    before = reference(tiny, [5, 6, 7], 4)
    (done,) = Engine(tiny, num_pages=4, attention=broken).generate([[5, 6, 7]])
    assert done.finish_reason == "error"
    assert reference(tiny, [5, 6, 7], 4) == before


def test_pools_of_different_sizes(tiny: BoundModel) -> None:
    """A small prefill pool in front of a large decode pool: more requests than either holds at once."""
    prompts = [prompt_of(5 + i, seed=i) for i in range(9)]
    for sizes in ((6, 40), (40, 6)):
        prefill, decode = (NodeConfig(num_pages=n) for n in sizes)
        server = Cluster(tiny, prefill=prefill, decode=decode, page_size=4)
        assert answers(served(server, prompts, greedy(7))) == [reference(tiny, p, 7) for p in prompts]
        assert_quiet(server)


GRID = list(itertools.product(CORE, (1, 3, 4, 16, 64), (engine, two_nodes)))


@pytest.mark.more
@pytest.mark.parametrize(("family", "page_size", "build"), GRID, indirect=["family"])
def test_grid(family: BoundModel, page_size: int, build: Build) -> None:
    """Families x page sizes x one node or two, with requests that arrive while others run."""
    lengths = [1, 2, page_size - 1, page_size, page_size + 1, 2 * page_size, 2 * page_size + 1, 50, 90]
    prompts = [prompt_of(length, seed=i) for i, length in enumerate(lengths) if length]
    server = build(family, page_size, 300)
    numbers = []
    for index, prompt in enumerate(prompts):
        numbers.append(server.submit(prompt, greedy(5 + 3 * index)))
        if index % 2:
            server.step()
            server.check()
    got = answers(finished(server, numbers))
    assert got == [reference(family, prompt, 5 + 3 * index) for index, prompt in enumerate(prompts)]
    assert_quiet(server)


@pytest.mark.more
@pytest.mark.model
@pytest.mark.parametrize("page_size", [1, 64])
@both
def test_smollm2_grid(
    smollm2: BoundModel, smollm2_references: list[tuple[int, ...]], page_size: int, build: Build
) -> None:
    server = build(smollm2, page_size, 1600)
    got = answers(served(server, smollm2_prompts(smollm2), SamplingParams(max_tokens=12)))
    assert got == smollm2_references
