"""Chapter 01: what the tools of the lesson say is what the model does, and the picture says the same."""

from __future__ import annotations

from typing import Any

import ch01_answers as answers
import pytest
import torch

from minikv.course.chapters import ex_1_1, ex_1_2, ex_1_3
from minikv.course.chapters.ch01 import attend, changed, greedy
from minikv.course.chapters.gentle import gentle_model
from minikv.course.chapters.looking import keys_and_values, one_token, only_new, watching
from minikv.course.chapters.small import small_model
from minikv.viz.steps import Round, rounds_picture

PROMPT = [11, 48, 85, 122, 159]


@pytest.fixture(autouse=True)
def no_grad() -> Any:
    with torch.no_grad():
        yield


def scores_of(model: Any) -> Any:
    return lambda ids: model.hf(torch.tensor([list(ids)]), use_cache=False).logits[0]


def hooks_of(model: Any) -> int:
    return sum(len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.hf.modules())


def test_rows_are_counted_in_each_round() -> None:
    model = small_model(2)
    with watching(model) as without:
        mine = greedy(scores_of(model), PROMPT, 6)
    with watching(model) as with_cache:
        output = model.hf.generate(torch.tensor([PROMPT]), max_new_tokens=6, do_sample=False, eos_token_id=None)
    assert output[0, len(PROMPT) :].tolist() == mine
    assert [len(each.computed) for each in without] == [5, 6, 7, 8, 9, 10]
    assert not any(each.read for each in without)
    assert with_cache == [Round((0, 1, 2, 3, 4), ()), *(Round((p,), tuple(range(p))) for p in range(5, 10))]
    assert hooks_of(model) == 0


def test_the_stretch_can_be_reached_with_what_is_given() -> None:
    model = small_model(2)
    with watching(model) as rounds:
        more, kept, new, unseen = only_new(model), None, [], PROMPT
        while len(new) < 6:
            rows, kept = more(unseen, kept)
            unseen = [int(rows[-1].argmax())]
            new += unseen
    assert new == greedy(scores_of(model), PROMPT, 6)
    assert sum(len(each.computed) for each in rounds) == len(PROMPT) + 6 - 1


def test_what_the_stretch_gives_out_is_new_each_time() -> None:
    model = small_model(2)
    more = only_new(model)
    _, kept = more(PROMPT, None)
    first, longer = more([7], kept)
    again, _ = more([7], kept)
    assert longer is not kept and kept.get_seq_length() == len(PROMPT) == longer.get_seq_length() - 1
    assert torch.equal(first, again)


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (1, 1), (3, 0), (5, 1)])
def test_one_token_is_what_the_model_computes(layer: int, head: int) -> None:
    model = gentle_model(0.2)
    token = one_token(model, PROMPT, layer, head)
    weights, result = attend(*token[:5])
    assert torch.allclose(result, token.result, atol=1e-5)
    assert weights.shape == (5,) and token.old_keys.shape == (4, 8)
    assert torch.equal(keys_and_values(model, PROMPT)[layer].values[-1, head], token.own_value)
    assert hooks_of(model) == 0


@pytest.mark.model
def test_the_lesson_looks_at_a_head_that_finds_the_pot() -> None:
    from minikv import load_model

    model = load_model("smollm2")
    ids = model.encode("The key is under the third flowerpot. Please look under the third flower")
    token = one_token(model, ids, layer=18, head=2)
    weights, result = attend(*token[:5])
    assert model.decode([ids[int(weights.argmax())]]) == "pot" and float(weights.max()) > 0.9
    assert torch.allclose(result, token.result, atol=1e-4)


def test_gpt2_differs_as_the_lesson_says() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    from minikv import load_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=260, n_layer=3, n_head=2, n_embd=32, n_positions=64, initializer_range=0.2, eos_token_id=259
        )
        model = load_model(GPT2LMHeadModel(config))

    def values(ids: list[int]) -> list[Any]:
        return [layer.values for layer in keys_and_values(model, ids)]

    assert changed(values, PROMPT, 200, 5) == [[], [], []]
    assert changed(values, PROMPT, 200, 0)[0] == [0, 1, 2, 3, 4]
    assert changed(values, PROMPT, 200, 2) == [[2, 3, 4]] * 3


def test_judges_leave_their_models_alone(cell: Any) -> None:
    models = (small_model(2), gentle_model(), gentle_model(0.2))
    before = [[weight.clone() for weight in model.hf.parameters()] for model in models]
    for judge, answer in (
        (ex_1_1.judge_greedy, greedy),
        (ex_1_2.judge_changed, changed),
        (ex_1_3.judge_attend, attend),
    ):
        assert judge(answer).right
    for source, kind in answers.ATTEND.wrong.values():
        if not kind.startswith("raised"):
            ex_1_3.judge_attend(cell(source, "attend"))
    for model, weights in zip(models, before, strict=True):
        assert hooks_of(model) == 0
        assert all(torch.equal(a, b) for a, b in zip(model.hf.parameters(), weights, strict=True))


def test_an_answer_that_changes_what_it_is_given_cannot_change_the_check(cell: Any) -> None:
    source = (
        "def attend(query, own_key, own_value, old_keys, old_values):\n"
        "    for tensor in (query, own_key, own_value, old_keys, old_values):\n        tensor.zero_()\n"
        "    return [1 / (len(old_keys) + 1)] * (len(old_keys) + 1), query\n"
    )
    assert not ex_1_3.judge_attend(cell(source, "attend")).right
    assert ex_1_3.judge_attend(attend).right


def test_picture_is_a_triangle_and_a_diagonal() -> None:
    model = small_model(2)
    with watching(model) as without:
        greedy(scores_of(model), [7, 8], 3)
    with watching(model) as with_cache:
        model.hf.generate(torch.tensor([[7, 8]]), max_new_tokens=3, do_sample=False, eos_token_id=None)
    drawn = rounds_picture({"without": without, "with": with_cache}, ["<a>", "b"])
    lines = [line.split() for line in drawn.text.splitlines() if line.startswith("round")]
    assert ["".join(line[2:-2]) for line in lines] == ["CC··", "CCC·", "CCCC", "CC··", "rrC·", "rrrC"]
    assert "without: 9 rows in 3 rounds." in drawn.text and "with: 4 rows in 3 rounds." in drawn.text
    assert drawn.table.count("<caption") == 2 and "&lt;a&gt;" in drawn.table and "<a>" not in drawn.table
    assert [frame.name for frame in drawn.figure.frames] == ["1", "2", "3"]
    assert drawn.figure.frames[0].data[0].text[1] == ["", "", "", ""]
    hover = [list(frame.data[1].hovertext[1]) for frame in drawn.figure.frames[:2]]
    assert hover == [["not there"] * 4, ["read", "read", "computed", "not there"]]
    again = rounds_picture({"without": without, "with": with_cache}, ["<a>", "b"])
    assert (drawn.table, drawn.figure.to_json()) == (again.table, again.figure.to_json())


def test_picture_shows_a_loop_that_forgets() -> None:
    model = small_model(2)
    with watching(model) as rounds:
        for token in (7, 8, 9):
            scores_of(model)([token])
    lines = rounds_picture({"forgets": rounds}).text.splitlines()[1:]
    assert [line.split()[2] for line in lines] == ["C", "C", "C"]


@pytest.mark.parametrize("rounds", [[], [Round(tuple(range(200)), ())], [Round((0,), ())] * 41])
def test_picture_says_what_it_cannot_draw(rounds: list[Round]) -> None:
    with pytest.raises(ValueError, match=r"no round was recorded|too many to see"):
        rounds_picture({"run": rounds})
