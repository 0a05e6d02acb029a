"""Chapter 04: the attention seat, wrong parts named by rule and step, the map of reads, the byte counts."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from ch04_answers import ANSWERS, BY_PAGE_RIGHT, GATHER_RIGHT

from minikv import Cluster, Engine, NodeConfig, SamplingParams
from minikv.course.chapters import ch04
from minikv.course.chapters.ex_4_2 import judge_gather
from minikv.course.chapters.moved import bytes_read, bytes_written, most_held
from minikv.course.chapters.paged import NAN, NOISE, Call, differ, made_up, right
from minikv.course.chapters.reading import SHAPES, judge_call, judge_in_engine, next_token
from minikv.course.chapters.small import small_model
from minikv.course.seats.attention import GIVES, READS, WRITES, as_attention
from minikv.errors import BrokenRule, ConfigError
from minikv.models.options import AttentionOptions
from minikv.viz.reads import Reads, read_map

PROMPTS = [[(11 * i + 3 * j) % 250 for j in range(4 + 7 * i)] for i in range(5)]
SIX = SamplingParams(max_tokens=6, ignore_eos=True)
RIGHT = [(name, title) for name in ("ex-4.2", "ex-4.3") for title in ANSWERS[name].right]


def one_node(**options: Any) -> Engine:
    return Engine(small_model(2), page_size=4, **({"num_pages": 40} | options))


def two_nodes(**options: Any) -> Cluster:
    sizes = {"prefill": NodeConfig(num_pages=20), "decode": NodeConfig(num_pages=40)}
    return Cluster(small_model(2), page_size=4, **sizes, **options)


def tokens(server: Any) -> list[tuple[int, ...]]:
    answers = server.generate(PROMPTS, SIX)
    for answer in answers:
        if answer.error is not None:
            raise answer.error
    server.check()
    return [answer.token_ids for answer in answers]


@pytest.fixture(scope="module")
def expected() -> list[tuple[int, ...]]:
    return tokens(one_node())


@pytest.mark.parametrize(("exercise_id", "title"), RIGHT)
def test_right_answers_give_the_engines_own_tokens(
    exercise_id: str, title: str, cell: Any, expected: list[tuple[int, ...]]
) -> None:
    function = cell(ANSWERS[exercise_id].right[title][0], ANSWERS[exercise_id].name)
    assert tokens(one_node(attention=as_attention(function))) == expected


@pytest.mark.parametrize("reference", ["ex-4.2", "ex-4.3"])
@pytest.mark.parametrize("poison", [False, True])
@pytest.mark.parametrize(
    "server",
    [
        pytest.param(lambda part: one_node(attention=part, max_batch_tokens=7), id="chunks"),
        pytest.param(lambda part: one_node(attention=part, num_pages=12), id="preemption"),
        pytest.param(lambda part: one_node(attention=part, num_pages=12, max_batch_tokens=5), id="both"),
        pytest.param(lambda part: one_node(attention=part, allocator=ch04.Busy), id="scattered"),
        pytest.param(lambda part: two_nodes(attention=part), id="two nodes"),
    ],
)
def test_the_seat_in_every_kind_of_server(
    server: Any, poison: bool, reference: str, expected: list[tuple[int, ...]]
) -> None:
    assert tokens(server(as_attention(ch04.REFERENCE[reference], poison=poison))) == expected


def test_only_words_that_come_one_at_a_time(expected: list[tuple[int, ...]]) -> None:
    seen = []

    def attend(*arguments: Any) -> Any:
        seen.append(arguments[4])
        return ch04.attend(*arguments)

    server = one_node(attention=as_attention(attend, prompts=False))
    assert tokens(server) == expected
    assert min(seen) > min(map(len, PROMPTS)) and len(seen) == 6 * 5 * len(PROMPTS)


def test_what_a_function_is_given() -> None:
    calls: list[Call] = []

    def attend(*arguments: Any) -> Any:
        calls.append(Call(*arguments))
        return ch04.attend(*arguments)

    Engine(small_model(2), page_size=16, num_pages=9, attention=as_attention(attend)).generate([list(range(36))], SIX)
    assert {tuple(call.query.shape) for call in calls} == {(4, 8)}
    assert {tuple(call.keys.shape) for call in calls} == {(9, 16, 2, 8)}
    assert sorted({call.written for call in calls}) == list(range(1, 42))
    assert all(type(page) is int for call in calls for page in call.table)
    assert all(len(call.table) == 3 for call in calls)


def wrong(part: str) -> Any:
    def whole_pages(query: Any, keys: Any, values: Any, table: Any, written: int, scale: float) -> Any:
        return ch04.attend(query, keys, values, table, len(table) * keys.shape[1], scale)

    def turned(*arguments: Any) -> Any:
        return ch04.attend(*arguments).T

    def nothing(*arguments: Any) -> Any:
        return None

    def words(*arguments: Any) -> Any:
        return ["some", "words"]

    def damage(query: Any, keys: Any, values: Any, *others: Any) -> Any:
        keys[-1] += 1
        return ch04.attend(query, keys, values, *others)

    def raising(*arguments: Any) -> Any:
        raise KeyError("no such page")

    return locals()[part]


@pytest.mark.parametrize("build", [one_node, two_nodes])
@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("turned", f"{GIVES}: (4, 8) was expected, and (8, 4) came"),
        ("nothing", f"{GIVES}: (4, 8) was expected, and NoneType came"),
        ("words", f"{GIVES}: (4, 8) was expected, and list came"),
        ("damage", "attention reads pages and does not write to them"),
        ("raising", "KeyError: 'no such page', in raising"),
    ],
)
def test_a_wrong_part_is_named_with_its_step(build: Any, part: str, said: str) -> None:
    answer = build(attention=as_attention(wrong(part))).generate([[1, 2, 3, 4, 5]], SIX)[0]
    assert said in str(answer.error) and "(step 1)" in str(answer.error)


@pytest.mark.parametrize("build", [one_node, two_nodes])
def test_reading_on_is_silent_without_poison_and_named_with_it(build: Any) -> None:
    part = wrong("whole_pages")
    assert build(attention=as_attention(part, prompts=False)).generate([[1, 2, 3, 4, 5]], SIX)[0].error is None
    error = build(attention=as_attention(part, prompts=False, poison=True)).generate([[1, 2, 3, 4, 5]], SIX)[0].error
    assert isinstance(error, BrokenRule) and error.rule == READS and error.step is not None
    assert "token 5, with 6 written, read 2 more: slots 2 to 3 of page" in str(error)


def test_a_prompt_token_may_not_read_the_tokens_behind_it() -> None:
    """They are in their slots already: a whole prompt is stored before anybody reads."""

    def reads_on(query: Any, keys: Any, values: Any, table: Any, written: int, scale: float) -> Any:
        return ch04.attend(query, keys, values, table, min(written + 1, 5), scale)

    error = one_node(attention=as_attention(reads_on, poison=True)).generate([[1, 2, 3, 4, 5]], SIX)[0].error
    assert "token 0, with 1 written, read 1 more: slot 1 of page" in str(error)


@pytest.mark.parametrize(
    ("option", "said"),
    [({"window": 4}, "last 4 tokens only"), ({"softcap": 9.0}, "softcap"), ({"sinks": torch.zeros(4)}, "sinks")],
)
def test_what_the_function_is_not_told_is_refused(option: dict[str, Any], said: str) -> None:
    pool = torch.zeros(3, 4, 2, 8)
    slots = pool.flatten(0, 1)
    with pytest.raises(ConfigError, match=said):
        as_attention(ch04.attend)(torch.zeros(1, 4, 8), slots, slots, [], AttentionOptions(scaling=1.0, **option))


def test_models_that_look_back_only_so_far_are_refused() -> None:
    from families import mistral

    answer = Engine(mistral(), page_size=4, num_pages=8, attention=as_attention(ch04.attend)).generate([[1, 2]], SIX)[0]
    assert isinstance(answer.error, ConfigError) and "last" in str(answer.error)


def test_the_page_size_is_seen_or_asked_for(expected: list[tuple[int, ...]]) -> None:
    with torch.inference_mode():
        hidden = one_node(attention=as_attention(ch04.attend))
        named = one_node(attention=as_attention(ch04.attend, page_size=4))
    assert "as in as_attention(attend, page_size=16)" in str(hidden.generate(PROMPTS[:1], SIX)[0].error)
    assert tokens(named) == expected
    scattered = one_node(attention=as_attention(ch04.attend, page_size=8), allocator=ch04.Busy)
    assert "pages of 8" in str(scattered.generate(PROMPTS[2:3], SIX)[0].error)
    with pytest.raises(ConfigError, match="must be a function"):
        as_attention(7)  # type: ignore[arg-type]


def test_calls_of_random_shapes() -> None:
    """Right functions, two of them, on what no list of cases has: no verdict, and the oracle's numbers."""
    chance = random.Random(4)
    for seed in range(60):
        size, pages = chance.choice((1, 3, 4, 16)), chance.randint(1, 4)
        written = chance.choice((1, size, pages * size, chance.randint(1, pages * size)))
        kv_heads, group, width = chance.choice(((3, 3, 8), (1, 1, 4), (2, 4, 8), (4, 1, 16)))
        call = made_up(kv_heads, group, width, size, written, chance.randint(0, 2), seed=seed)
        for function in (ch04.attend, ch04.attend_by_page, ch04.minikv_attend):
            assert judge_call(function, call) is None
            assert not differ(call.filled(NAN).answer(function), right(call), 1e-5)


def test_made_up_calls_cannot_be_right_by_chance() -> None:
    for seed, shape in enumerate(SHAPES):
        call = made_up(*shape, seed=seed)
        assert all(page != place for place, page in enumerate(call.table))
        assert abs(call.scale - call.query.shape[1] ** -0.5) > 0.01
        assert len(set(call.table)) == len(call.table)
        own, others = call.slots(0, call.written), call.others()
        assert sorted(own + others) == list(range(call.keys.shape[0] * call.page_size))
        for fill in (NAN, NOISE):
            filled = call.filled(fill)
            assert torch.equal(filled.keys.flatten(0, 1)[own], call.keys.flatten(0, 1)[own])
            assert not torch.equal(filled.values.flatten(0, 1)[others], call.values.flatten(0, 1)[others])


def test_what_is_loaded_at_the_first_call_is_no_copy() -> None:
    """A fresh kernel loads modules while the first right answer is looked at; that is not the learner's copy."""
    loaded = []

    def first_time(*arguments: Any) -> Any:
        if not loaded:
            loaded.append(bytearray(5_000_000))
        return ch04.attend_by_page(*arguments)

    call = made_up(kv_heads=3, group=3, width=32, page_size=16, written=1000, extra=0)
    assert max(most_held(first_time, call)) < bytes_written(call) // 4 < max(most_held(ch04.attend, call))


def test_the_line_of_an_error_is_named(cell: Any) -> None:
    source, kind = ANSWERS["ex-4.2"].wrong["divided by the number of KV heads"]
    said = str(judge_gather(cell(source, "attend")).said)
    assert kind == "other-heads-raise" and "With 4 query heads and 1 KV head" in said and "of your cell)" in said


def test_the_word_stays_right_when_zeros_are_read() -> None:
    """The check says so only after looking; here is what it sees."""
    assert next_token(wrong("whole_pages")) == next_token(None)


def test_the_map_of_reads() -> None:
    call = made_up(written=37, extra=0)
    found = [ch04.reads(wrong("whole_pages"), call, written) for written in (16, 32, 37)]
    page = call.table[2]
    assert [each.count("X") for each in found] == [32, 16, 11]
    drawn = read_map(found, show=37)
    assert "48 slots reserved, 37 written, 48 read; 11 of them not written for this request" in drawn.text
    assert f"page {page}: tokens 32 to 47  RRRRRXXXXXXXXXXX" in drawn.text
    assert drawn.table.count("<td") == 48 and drawn.table.count(">X</td>") == 11
    assert len(drawn.figure.frames) == 3 and drawn.figure.layout.sliders[0].active == 2
    assert "RRRRR···········" in read_map([ch04.reads(ch04.attend, call)]).text


def test_the_map_shows_what_was_missed_and_what_was_read_elsewhere() -> None:
    reads = Reads((2, 5), 4, 6, (8, 9, 20, 0))
    assert reads.row(0) == ["R", "R", "?", "?"] and reads.row(1) == ["R", "?", "·", "·"]
    assert reads.caption() == (
        "8 slots reserved, 6 written, 4 read; 1 of them in pages of others, 3 written and not read"
    )
    for calls, said in (([], "no call"), ([reads, replace(reads, table=(2,))], "same table")):
        with pytest.raises(ValueError, match=said):
            read_map(calls)
    with pytest.raises(ValueError, match="no call has 9"):
        read_map([reads], show=9)


@pytest.mark.parametrize(
    ("title", "most", "least"),
    [("groups folded", 1.0, 1.0), ("twice over the pages", 1.5, 1.5), ("running softmax", 99.0, 2.0)],
)
def test_bytes_read(title: str, most: float, least: float, cell: Any) -> None:
    call = made_up(kv_heads=3, group=3, width=64, page_size=16, written=37)
    function = cell(BY_PAGE_RIGHT[title][0], "attend_by_page")
    assert least <= bytes_read(function, call) / bytes_written(call) <= most


def test_reading_a_slot_for_nothing_counts(cell: Any) -> None:
    call = made_up(kv_heads=3, group=3, width=64, page_size=16, written=37)
    assert bytes_read(ch04.attend_by_page, call) == bytes_written(call)
    assert bytes_read(ch04.attend_by_page, replace(call, written=48)) == bytes_written(call) * 48 // 37
    with pytest.raises(ValueError, match="no operation of torch"):
        bytes_read(cell(GATHER_RIGHT["numpy"][0], "attend"), call)


@pytest.mark.model
def test_a_real_model_with_both_answers() -> None:
    from minikv import load_model

    model = load_model("smollm2")
    prompts = ["The capital of France is", "One, two, three, four,", "Dear Mr. Brandt, thank you for the flowers."]
    answers = []
    for part in ({}, *({"attention": as_attention(ch04.REFERENCE[name])} for name in ("ex-4.2", "ex-4.3"))):
        engine = Engine(model, page_size=16, num_pages=8, **part)
        answers.append([answer.token_ids for answer in engine.generate(prompts, SIX)])
    assert answers[0] == answers[1] == answers[2]


def scales_its_page(query: Any, keys: Any, values: Any, table: Any, written: int, scale: float) -> Any:
    keys[table[0]] *= scale
    return ch04.attend(query, keys, values, table, written, 1.0)


def cleans_the_others(query: Any, keys: Any, values: Any, table: Any, written: int, scale: float) -> Any:
    """Through numpy, which counts no version: what it must not read is no NaN any more."""
    others = [page for page in range(len(keys)) if page not in table]
    keys.numpy()[others] = 0
    return ch04.attend(query, keys, values, table, written, scale)


def keeps_the_values(query: Any, keys: Any, values: Any, *others: Any, kept: list[Any] = []) -> Any:  # noqa: B006
    for old in kept:
        old.zero_()
    kept.append(values)
    return ch04.attend(query, keys, values, *others)


@pytest.mark.parametrize("build", [one_node, two_nodes])
@pytest.mark.parametrize("part", [scales_its_page, cleans_the_others, keeps_the_values])
def test_a_write_is_named_with_poison_too(build: Any, part: Any) -> None:
    answer = build(attention=as_attention(part, poison=True)).generate([[1, 2, 3, 4, 5]], SIX)[0]
    assert isinstance(answer.error, BrokenRule) and answer.error.rule == WRITES and answer.error.step == 1
    assert "were changed for token" in str(answer.error)


@pytest.mark.parametrize("size", [0, -4, 2.0, "4", True])
def test_a_page_size_that_is_none(size: Any) -> None:
    with pytest.raises(ConfigError, match="page_size must be"):
        as_attention(ch04.attend, page_size=size)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_a_page_size_of_another_pool(size: int, expected: list[tuple[int, ...]]) -> None:
    answer = one_node(attention=as_attention(ch04.attend, page_size=size)).generate(PROMPTS[:1], SIX)[0]
    assert isinstance(answer.error, ConfigError) and f"pages of {size}: give the engine's" in str(answer.error)
    assert tokens(one_node(attention=as_attention(ch04.attend, page_size=4))) == expected


def test_a_page_size_that_does_not_divide_a_hidden_pool() -> None:
    with torch.inference_mode():
        server = one_node(attention=as_attention(ch04.attend, page_size=3))
    assert "pages of 3" in str(server.generate(PROMPTS[:1], SIX)[0].error)


def test_the_judge_in_inference_mode() -> None:
    with torch.inference_mode():
        assert judge_in_engine(ch04.attend) is None


def test_a_map_of_many_slots_and_of_none() -> None:
    size = 256
    call = Reads(tuple(range(32)), size, 32 * size, tuple(range(32 * size)))
    assert call.count("R") == 32 * size and call.elsewhere == 0
    assert Reads((1,), 4, 2, tuple(torch.tensor([4, 5]))).row(0) == ["R", "R", "·", "·"]
    assert "8192 slots reserved, 8192 written, 8192 read" in read_map([call]).text
    for empty in (Reads((), 4, 0, ()), Reads((1,), 0, 0, ())):
        with pytest.raises(ValueError, match="no page with a slot"):
            read_map([empty])
