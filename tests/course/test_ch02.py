"""Chapter 02: the twelve configurations against minikv's own counting, the picture, the panel, and the stretch."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from minikv.course.chapters import ex_2_1, ex_2_2, pairs
from minikv.course.chapters.room import engine_with_room, kept_for
from minikv.course.chapters.small import small_model
from minikv.course.configs import about
from minikv.course.declare import Exercise, find
from minikv.errors import ConfigError
from minikv.viz.bill import bill
from minikv.viz.bill_panel import BillPanel, FixedPanel, bill_panel

Out = pytest.CaptureFixture[str]
GIB = 2**30
LLAMA: dict[str, Any] = {"weight_bytes": 16 * 10**9, "context": 131_072, "card_bytes": 24 * GIB}


@pytest.mark.parametrize("name", ex_2_1.MODELS)
def test_the_reference_counts_as_minikv_does(name: str) -> None:
    for model, copy, config in ex_2_1._copies(ex_2_1.twelve()):
        if model == name:
            assert ex_2_1.bytes_per_token(config, 2) == ex_2_1.minikv_counts(config), copy


def test_what_minikv_stores_differs_for_latents_alone() -> None:
    configs = ex_2_1.twelve()
    differs = {name for name, c in configs.items() if ex_2_1.minikv_stores(c) != ex_2_1.bytes_per_token(c, 2)}
    assert differs == {name for name, c in configs.items() if ex_2_1.has_latents(c)} == {"deepseek-v3", "kimi-k2"}


def test_the_numbers_of_the_first_prediction() -> None:
    configs = ex_2_1.twelve()
    order = ["gpt2", "deepseek-v3", "qwen3-0.6b", "llama-3.1-8b", "llama-2-7b"]
    assert [ex_2_1.bytes_per_token(configs[n], 2) for n in order] == [36_864, 70_272, 114_688, 131_072, 524_288]


def test_every_model_advertises_its_context_where_the_exercise_looks() -> None:
    configs, params = ex_2_1.twelve(), ex_2_2.parameters()
    for name, config in configs.items():
        fits, missing = ex_2_2.gap(config, params[name], 80, 16)
        assert fits + missing == about(name).context


def test_no_two_mistakes_of_the_first_exercise_look_alike() -> None:
    cases = list(ex_2_1._copies(ex_2_1.twelve()))
    single = [rule for rule in ex_2_1._rules() if len(rule.mistakes()) <= 1]
    results = [tuple(rule.bytes(config, each) for _, _, config in cases for each in (2, 1, 4)) for rule in single]
    assert len(set(results)) == len(results)


def test_no_two_mistakes_of_the_second_exercise_look_alike() -> None:
    configs, params = ex_2_1.twelve(), ex_2_2.parameters()
    single = [rule for rule in ex_2_2._RULES if len(rule.mistakes()) <= 1]
    cases = (*ex_2_2.CASES, *ex_2_2._HIDDEN)
    results = [tuple(rule.fits(configs[c.model], params[c.model], c) for c in cases) for rule in single]
    assert len(set(results)) == len(results)


def test_the_judge_shows_no_configuration_to_be_changed() -> None:
    before = ex_2_1.twelve()

    def spoils(config: dict[str, Any], bytes_per_number: int) -> int:
        size = ex_2_1.bytes_per_token(config, bytes_per_number)
        config.clear()
        return size

    exercise = find(Exercise, "ex-2.1")
    assert exercise is not None and exercise.judge(spoils).right
    assert ex_2_1.twelve() == before


def test_what_an_engine_keeps_of_a_text() -> None:
    model = small_model(2)
    text = "abc" * 40
    kept = kept_for(model, text)
    count = len(model.encode(text))
    assert len(kept) == 6 and all(tensor.shape[:2] == (2, count) for layer in kept for tensor in layer)
    size = sum(tensor.nbytes for layer in kept for tensor in layer)
    assert size == count * model.geometry.bytes_per_token(torch.float32)
    assert all(bool((keys.abs().sum((0, 2)) > 0).all()) for keys, _values in kept)


def test_an_engine_promises_no_more_than_it_has_room_for() -> None:
    engine_with_room(small_model(2), 128)
    with pytest.raises(ConfigError):
        engine_with_room(small_model(2), 128, context=256)
    with pytest.raises(ValueError, match="multiple of 64"):
        engine_with_room(small_model(2), 100)


def test_the_bill_says_in_text_table_and_figure_what_is_missing() -> None:
    drawn = bill("Llama", token_bytes=131_072, fits=74_064, **LLAMA)
    for words in ("promised and not there", "57,008 tokens", "74,064 tokens", "131,072 tokens", "24.00 GiB"):
        assert words in drawn.text and words in drawn.table
    strip = drawn.figure.data[0]
    assert strip.x == (74_064, 131_072, 131_072, 74_064) and strip.fillpattern.shape == "/"
    assert "57,008" in drawn.figure.layout.annotations[0].text
    dashes = [trace.line.dash for trace in drawn.figure.data if trace.line.dash]
    assert {"solid", "dash", "dot"} <= set(dashes), "lines differ in more than colour"


def test_the_bill_without_a_card_and_for_several_users() -> None:
    drawn = bill("SmolLM2", token_bytes=46_080, weight_bytes=538_060_032, context=8192, users=(1, 2))
    assert "11,677 tokens" in drawn.text and "5,839 tokens" in drawn.text
    assert "the memory holds" not in drawn.text and not drawn.figure.layout.annotations
    again = bill("SmolLM2", token_bytes=46_080, weight_bytes=538_060_032, context=8192, users=(1, 2))
    assert (again.table, again.figure.to_json()) == (drawn.table, drawn.figure.to_json())


def test_every_user_gets_whole_pieces() -> None:
    drawn = bill("Llama", token_bytes=131_072, fits=74_064, users=(4,), piece=16, **LLAMA)
    assert "18,512 tokens" in drawn.text


def test_whatever_numbers_a_right_answer_gives_can_be_drawn() -> None:
    plain = bill("Llama", token_bytes=131_072, fits=74_064, **LLAMA)
    size, fits = torch.tensor(131_072), torch.tensor(74_064)
    other = bill("Llama", token_bytes=size, fits=fits, **LLAMA | {"context": 131_072.0})  # type: ignore[arg-type]
    assert (other.text, other.figure.to_json()) == (plain.text, plain.figure.to_json())


def test_a_model_that_does_not_fit_has_no_room() -> None:
    drawn = bill("Large", token_bytes=100, weight_bytes=2 * GIB, context=1000, card_bytes=GIB)
    assert "0 tokens" in drawn.text and drawn.figure.data[0].x == (0, 1000, 1000, 0)


@pytest.mark.parametrize("sizes", [{"users": ()}, {"users": (0,)}, {"token_bytes": 0}, {"context": 0}, {"piece": 0}])
def test_a_bill_of_nothing_is_not_drawn(sizes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least one user"):
        bill("nothing", **{"token_bytes": 1, "weight_bytes": 1, "context": 1} | sizes)


def panel() -> BillPanel | FixedPanel:
    return bill_panel("Llama", numbers_per_token=65_536, piece=16, **LLAMA)


def test_the_panel_follows_its_sliders() -> None:
    pytest.importorskip("anywidget")
    shown = panel()
    assert isinstance(shown, BillPanel)
    assert "56,544 tokens of it are not there" in shown.text and shown.figure.data[0].x
    shown.precision.value = "8 bit"
    assert "Precision of keys and values: 8 bit" in shown.text and "The promise holds." in shown.text
    assert not shown.figure.data[0].x and not shown.figure.layout.annotations
    shown.users.value = 2
    assert "Users: 2." in shown.text and shown.figure.data[0].x[1] == 131_072
    shown.context.value = 65_536
    assert "Advertised context: 65,536 tokens" in shown.text and "The promise holds." in shown.text
    assert shown.text in shown.line.value and 'role="status"' in shown.line.value
    one = bill_panel("Llama", numbers_per_token=65_536, piece=16, **LLAMA | {"context": 65_536})
    assert isinstance(one, BillPanel)
    one.precision.value, one.users.value = "8 bit", 2
    for mine, other in zip(shown.figure.data, one.figure.data, strict=True):
        assert (mine.name, mine.x, mine.y, mine.text) == (other.name, other.x, other.y, other.text)
    assert shown.figure.layout.xaxis.range == one.figure.layout.xaxis.range


@pytest.mark.parametrize("missing", ["anywidget", "ipywidgets"])
def test_without_widgets_there_is_a_reason_and_the_fixed_picture(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    shown = panel()
    assert isinstance(shown, FixedPanel)
    shown._ipython_display_()
    out = capsys.readouterr().out
    assert out.splitlines()[0] == f"No sliders here, because {missing} is not installed."
    assert "promised and not there" in shown.text


def test_the_stretch_counts_pairs(capsys: Out) -> None:
    every = pairs.open_pairs()
    assert ("llama-3.1-8b", 24) in every and ("llama-3.1-8b", 80) not in every
    pairs.count_pairs(every)
    pairs.count_pairs([*every, ("gpt2", 24)])
    pairs.count_pairs(list(every)[1:])
    pairs.count_pairs(["gpt2"])
    pairs.count_pairs(...)
    n = len(every)
    assert capsys.readouterr().out.splitlines() == [
        f"{n} of {n} pairs, and 0 that are none",
        f"{n} of {n} pairs, and 1 that are none",
        f"{n - 1} of {n} pairs, and 0 that are none",
        '[x] Give pairs such as ("gpt2", 16): the name of a model and the GiB of a card.',
        "[ ] no pairs yet",
    ]


@pytest.mark.parametrize(
    ("change", "last"),
    [
        (("llama-2-7b", 16, "users", 2), "The gap is open."),
        (("llama-2-7b", 16, "bits", 32), "The gap is open."),
        (("gpt2", 16, "users", 2), "The gap is still closed."),
        (("llama-3.1-8b", 16, "users", 2), "[x] llama-3.1-8b on 16 GiB: this gap is open already, 122,544 tokens."),
        (("llama-2-7b", 17, "users", 2), "[x] Give four things"),
        (("gpt2", 16, "people", 2), "[x] Give four things"),
        (("gpt2", 16, "users", 1.5), "[x] Give four things"),
        ("gpt2", "[x] Give four things"),
        (..., "[ ] no change yet"),
    ],
)
def test_the_stretch_tries_a_change(change: Any, last: str, capsys: Out) -> None:
    pairs.try_change(change)
    assert last in capsys.readouterr().out


EARLY = "slot page pool lend lent owner writer prefill decode budget chunk admission refuse refused queue tenant stale"


def test_the_lesson_uses_no_word_before_it_comes() -> None:
    root = Path(__file__).resolve().parents[2]
    for source in ("notebooks/src/02_the_memory_bill.py", "solutions/src/02_the_memory_bill.py"):
        text = (root / source).read_text(encoding="utf-8").partition("## The story so far")[0]
        words = re.findall(r"[a-z]+", text.lower())
        assert not {word for early in EARLY.split() for word in (early, f"{early}s")}.intersection(words), source
