"""float32, bfloat16 and float16, and packed linear layers: the tokens of `transformers` at the same precision.

In float32 they must be equal. In fewer bits two ways to compute the same sum round differently, and may then choose
between two logits that are nearly equal. How near is counted in units: the spacing of the type at the largest logit.
A logit itself is rounded by half a unit, and so is every number of the layers before it. Measured on these models,
differences of choice lie within 2.4 units, and the two best logits typically 13 apart in bfloat16 (smollm2: 6) and
100 in float16 (smollm2: 51). So the bound alone could hide an error in bfloat16; the share of equal tokens cannot.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import CORE, FAMILIES, NEVER, Server, answers, assert_quiet, cluster, greedy, prompt_of, served
from transformers import GenerationConfig

from minikv import Engine, load_model
from minikv.attention import torch_backend
from minikv.errors import ConfigError
from minikv.models import packed
from minikv.models.adapter import BoundModel
from minikv.models.packed import PackedLinear, pack_linears

MOST_UNITS = 4
LEAST_EQUAL = {torch.float32: 1.0, torch.bfloat16: 0.9, torch.float16: 0.98}
ROUNDED = (torch.bfloat16, torch.float16)
LENGTHS = (1, 3, 4, 5, 19, 40)
PROMPTS = [prompt_of(length, seed=seed) for seed in range(3) for length in LENGTHS]
TEXTS = [
    "The capital of France is",
    "A barge lost its way in the fog and",
    "def fibonacci(n):\n",
    "Three reasons to keep bees are",
    "Once upon a time, in a harbour without boats, " * 6,
]

can_pack = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


def in_dtype(family: str, dtype: torch.dtype) -> BoundModel:
    """A random model in another type. All its experts answer: who is chosen of two equal ones is up to rounding."""
    hf = FAMILIES[family]().hf.to(dtype)
    for module in hf.modules():
        if hasattr(module, "top_k"):
            module.top_k = {"gpt_oss": 2, "deepseek": 4}[family]
    return load_model(hf)


def with_logits(model: BoundModel, ids: Sequence[int], n: int) -> tuple[list[int], torch.Tensor]:
    """What `transformers` answers greedily, and the logits it chose by: float32 [n, vocabulary]."""
    prompt = torch.tensor([list(ids)])
    settings: dict[str, Any] = dict(do_sample=False, output_logits=True, return_dict_in_generate=True)
    config = GenerationConfig(max_new_tokens=n, eos_token_id=NEVER, pad_token_id=0, bos_token_id=0, **settings)
    output = model.hf.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)
    return output.sequences[0, len(ids) :].tolist(), torch.cat(output.logits).float()


def assert_as_transformers(
    server: Server, model: BoundModel, prompts: Sequence[Sequence[int]], n: int, *, reference: BoundModel | None = None
) -> None:
    """Compare `n` tokens a prompt; behind a difference that is near enough, go on from the reference's token."""
    expected = [with_logits(reference or model, prompt, n) for prompt in prompts]
    eps = torch.finfo(model.dtype).eps
    typical = statistics.median(
        float((row.topk(2).values[0] - row.topk(2).values[1]) / (eps * row.abs().max()))
        for _, logits in expected
        for row in logits
    )
    assert typical > MOST_UNITS, "the bound could hide an error"
    differences, jobs = 0, [(which, 0) for which in range(len(prompts))]
    while jobs:
        starts = [[*prompts[which], *expected[which][0][:done]] for which, done in jobs]
        got = answers(server.generate(starts, [greedy(n - done) for _, done in jobs]))
        assert_quiet(server)
        left = []
        for (which, done), tokens in zip(jobs, got, strict=True):
            own, logits = expected[which]
            at = next((i for i in range(done, n) if own[i] != tokens[i - done]), n)
            if at == n:
                continue
            units = float((logits[at, own[at]] - logits[at, tokens[at - done]]) / (eps * logits[at].abs().max()))
            assert units <= MOST_UNITS, f"prompt {which}, token {at}: chosen {units:.1f} units below the best"
            differences += 1
            left += [(which, at + 1)] if at + 1 < n else []
        jobs = left
    equal = 1 - differences / (n * len(prompts))
    assert equal >= LEAST_EQUAL[model.dtype], f"{equal:.1%} of the tokens are equal"


def engine(model: BoundModel) -> Server:
    return Engine(model, page_size=4, num_pages=320)


def two_nodes(model: BoundModel) -> Server:
    return cluster(model, 320, page_size=4)


@pytest.mark.parametrize("dtype", LEAST_EQUAL, ids=str)
@pytest.mark.parametrize("family", CORE)
def test_families(family: str, dtype: torch.dtype) -> None:
    model = in_dtype(family, dtype)
    assert_as_transformers(engine(model), model, PROMPTS, 10)


@pytest.mark.parametrize("dtype", ROUNDED, ids=str)
@pytest.mark.parametrize("family", ["llama", "gpt_oss", "deepseek"])
def test_handoff_of_rounded_pages(family: str, dtype: torch.dtype) -> None:
    """The pages travel as they are: one node and two say the same to the bit, and pass the digest."""
    model = in_dtype(family, dtype)
    assert_as_transformers(two_nodes(model), model, PROMPTS[:6], 10)
    one = answers(served(engine(model), PROMPTS[:1], greedy(10)))
    assert answers(served(two_nodes(model), PROMPTS[:1], greedy(10))) == one


def narrower(query: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Attention with scores that are a tenth too small."""
    return torch_backend.attend(query * 0.9, *rest)


def next_door(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Attention that takes each value from the slot before."""
    return torch_backend.attend(query, keys, values.roll(1, 0), *rest)


@pytest.mark.parametrize("dtype", ROUNDED, ids=str)
@pytest.mark.parametrize("wrong", [narrower, next_door])
def test_the_bound_sees_errors(wrong: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    model = in_dtype("llama", dtype)
    with pytest.raises(AssertionError, match=r"units below the best|tokens are equal"):
        assert_as_transformers(Engine(model, page_size=4, num_pages=320, attention=wrong), model, PROMPTS, 10)


@pytest.mark.parametrize("dtype", ROUNDED, ids=str)
def test_pages_are_half_the_size(dtype: torch.dtype) -> None:
    def num_bytes(model: BoundModel) -> int:
        pool = Engine(model, page_size=4, num_pages=16).pool
        assert {tensor.dtype for tensor in (*pool.keys, *pool.values)} == {model.dtype}
        return sum(tensor.nbytes for tensor in (*pool.keys, *pool.values))

    model = load_model("tiny-random", dtype=dtype)
    assert model.dtype == dtype
    assert num_bytes(model) * 2 == num_bytes(load_model("tiny-random"))
    assert model.geometry.bytes_per_token(dtype) * 2 == model.geometry.bytes_per_token(torch.float32)


# Packed linear layers


@can_pack
@pytest.mark.parametrize("family", CORE)
def test_packed_families(family: str) -> None:
    """Layers with and without a bias, and GPT-2's, which keep their weights the other way round."""
    plain, model = in_dtype(family, torch.float32), in_dtype(family, torch.float32)
    pack_linears(model.hf)
    assert not any(type(module).__name__ in ("Linear", "Conv1D") for module in model.hf.modules())
    assert (model.dtype, model.device) == (torch.float32, torch.device("cpu"))
    assert_as_transformers(engine(model), model, PROMPTS[:6], 10)
    assert_as_transformers(engine(model), model, PROMPTS[:6], 10, reference=plain)


@can_pack
def test_packed_layer() -> None:
    """The result of the plain one, whatever the shape of its input, and memory for one copy of the weights."""
    plain = torch.nn.Linear(24, 40)
    layer = PackedLinear(plain.weight, plain.bias)
    with torch.inference_mode():
        for shape in ((24,), (0, 24), (1, 24), (1, 7, 24), (2, 3, 24)):
            inputs = torch.randn(shape)
            assert torch.allclose(layer(inputs), plain(inputs), atol=1e-5) and layer(inputs).shape == (*shape[:-1], 40)
        turned = torch.randn(24, 5).T
        assert torch.allclose(layer(turned), plain(turned), atol=1e-5)
    assert [name for name, _ in layer.named_parameters()] == ["bias"]


@can_pack
def test_packed_is_a_choice_at_loading() -> None:
    plain, model = load_model("tiny-random"), load_model("tiny-random", packed=True)
    assert isinstance(model.hf.lm_head, PackedLinear) and isinstance(plain.hf.lm_head, torch.nn.Linear)
    assert_as_transformers(engine(model), model, PROMPTS[:6], 10, reference=plain)


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ROUNDED, ids=str)
def test_smollm2(dtype: torch.dtype) -> None:
    model = load_model("smollm2", dtype=dtype)
    prompts = [model.encode(text) for text in TEXTS]
    assert_as_transformers(Engine(model, num_pages=64), model, prompts, 12)


@can_pack
@pytest.mark.model
@pytest.mark.slow
def test_packed_smollm2(smollm2: BoundModel) -> None:
    """Tokens of the plain model; logits differ by the order of sums: measured 3e-6 of their size, 3e-5 is allowed."""
    model = load_model("smollm2", packed=True)
    prompts = [smollm2.encode(text) for text in TEXTS]
    plain, ours = (answers(Engine(each, num_pages=64).generate(prompts, greedy(16))) for each in (smollm2, model))
    assert ours == plain
    assert ours[:1] == [tuple(with_logits(model, prompts[0], 16)[0])], "its own generate uses the packed layers too"
    ids = torch.tensor([prompts[-1]])
    with torch.inference_mode():
        theirs, own = smollm2.hf(ids).logits, model.hf(ids).logits
    assert float((own - theirs).norm() / theirs.norm()) < 3e-5
    assert torch.equal(model.hf.get_input_embeddings().weight, smollm2.hf.get_input_embeddings().weight)


# What cannot be


@pytest.mark.parametrize("dtype", [torch.int8, torch.complex64, "bfloat16", None])
def test_other_types(dtype: Any) -> None:
    with pytest.raises(ConfigError, match=r"torch\.float32"):
        load_model("tiny-random", dtype=dtype)


def test_packed_float16() -> None:
    with pytest.raises(ConfigError, match="packed=False"):
        load_model("tiny-random", dtype=torch.float16, packed=True)


def test_packed_elsewhere_than_on_a_cpu() -> None:
    with pytest.raises(ConfigError, match="packed=False"):
        packed.refuse_unless_packable(torch.float32, torch.device("cuda"))
    with pytest.raises(ConfigError, match="packed=False"):
        pack_linears(torch.nn.Sequential(torch.nn.Linear(2, 2, device="meta")))


def test_packed_model_in_memory() -> None:
    """Loading never changes a model that its caller holds; the message names the way that does."""
    hf = FAMILIES["llama"]().hf
    with pytest.raises(ConfigError, match="pack_linears"):
        load_model(hf, packed=True)
    assert isinstance(hf.lm_head, torch.nn.Linear)


def test_torch_without_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operators are torch's own; if they go, or change, nothing is replaced and the message says so."""

    def other_arguments(*_anything: object) -> None:
        raise TypeError("_reorder_linear_weight() takes 3 arguments")

    def other_layout(weight: torch.Tensor) -> torch.Tensor:
        return weight * 2

    def plain_linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *_rest: object) -> torch.Tensor:
        return torch.nn.functional.linear(inputs, weight, bias)

    hf = FAMILIES["llama"]().hf
    for operators in (
        SimpleNamespace(),
        SimpleNamespace(_reorder_linear_weight=other_arguments),
        SimpleNamespace(_reorder_linear_weight=other_layout, _linear_pointwise=plain_linear),
    ):
        monkeypatch.setattr(torch.ops, "mkldnn", operators)
        with pytest.raises(ConfigError, match=f"torch {torch.__version__.split('+')[0]}"):
            pack_linears(hf)
    assert isinstance(hf.lm_head, torch.nn.Linear)
