"""Chapter 06: the learner's door in the engine, the picture, and the line of the stretch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import ch06_answers as answers
import pytest

from minikv import Cluster, Completion, Engine, NodeConfig, SamplingParams
from minikv.config import ServerConfig
from minikv.course.chapters import ch06
from minikv.course.chapters.ex_6_2 import BROKEN, right_door
from minikv.course.chapters.line_06 import Waiting, play_line
from minikv.course.chapters.small import small_model
from minikv.course.seats.door import Request, Server, as_admission, read_answer
from minikv.errors import BrokenRule, Busy, ConfigError, Rejected
from minikv.scheduling.admission import Admission, NodeCapacity
from minikv.viz.limits import Asked, limit_line

SHAPES = [(9, 6), (20, 4), (13, 2), (2, 6), (25, 4), (30, 4), (6, 6)]  # prompt and max_tokens; the sixth never fits
Build = Callable[..., Engine | Cluster]


def one(**parts: Any) -> Engine:
    return Engine(small_model(2), page_size=4, num_pages=7, context_length=64, allow_context_above_pool=True, **parts)


def two(**parts: Any) -> Cluster:
    """The second pool is the larger one."""
    sizes = {"prefill": NodeConfig(num_pages=7), "decode": NodeConfig(num_pages=20)}
    return Cluster(small_model(2), page_size=4, context_length=64, allow_context_above_pool=True, **sizes, **parts)


both = pytest.mark.parametrize("build", [one, two])


def run(server: Engine | Cluster) -> list[Completion]:
    prompts = [[(7 * i + j) % 250 for j in range(length)] for i, (length, _n) in enumerate(SHAPES)]
    done = server.generate(prompts, [SamplingParams(max_tokens=n, ignore_eos=True) for _length, n in SHAPES])
    server.check()
    return done


def said(done: Sequence[Completion]) -> list[tuple[int, tuple[int, ...]]]:
    return [(each.status, each.token_ids) for each in done]


@both
@pytest.mark.parametrize("title", ["the reference", *answers.ADMIT_RIGHT])
def test_a_right_door_changes_no_token(build: Build, title: str, cell: Any) -> None:
    admit = ch06.admit if title == "the reference" else cell(answers.ADMIT_RIGHT[title][0], "admit")
    server = build(admission=as_admission(admit))
    expected = said(run(build()))
    assert [status for status, _ids in expected] == [200, 200, 200, 200, 200, 400, 200]
    for _ in range(2):
        assert said(run(server)) == expected


def asked(prompt: int, max_tokens: int) -> Any:
    return SimpleNamespace(
        number=3, prompt_tokens=prompt, prompt_ids=tuple(range(prompt)), params=SamplingParams(max_tokens=max_tokens)
    )


def outcome(door: Any, request: Any, waiting: int) -> Any:
    try:
        return door.check(request, waiting)
    except Rejected as refusal:
        return type(refusal), refusal.status, refusal.requested


@pytest.mark.parametrize("pools", [(28,), (40,), (28, 80), (80, 28), (31, 30, 50)])
@pytest.mark.parametrize("context", [20, 28, 29, 30, 512])
def test_the_same_answers_as_the_engines_own_door(pools: tuple[int, ...], context: int) -> None:
    nodes = [NodeCapacity(f"{i}", pool) for i, pool in enumerate(pools)]
    config = ServerConfig(max_waiting=2)
    doors = [make(context, nodes, config) for make in (Admission, as_admission(ch06.admit))]
    for prompt in (*range(1, 45), 79, 80, 81, 511, 512, 600):
        for max_tokens in (1, 2, 3, 9, 30, 100):
            for waiting in (0, 1, 2):
                own, theirs = (outcome(door, asked(prompt, max_tokens), waiting) for door in doors)
                assert own == theirs, (prompt, max_tokens, waiting)


def test_where_there_are_several_pools_another_number_may_be_chosen() -> None:
    nodes = [NodeCapacity("prefill", 28), NodeCapacity("decode", 80)]
    assert as_admission(ch06.admit, pool=lambda all_: all_[-1].pool_tokens)(512, nodes).check(asked(40, 4)) == 4
    with pytest.raises(Rejected, match="43 slots are needed, there are 28"):
        as_admission(ch06.admit)(512, nodes).check(asked(40, 4))


def test_the_door_hears_what_is_free_if_somebody_tells_it() -> None:
    engine = one(admission=as_admission(ch06.admit, free=lambda: engine.pool.num_free * 4))
    done = run(engine)
    words = [each.word for each in engine.admission.said]  # type: ignore[attr-defined]
    assert words == ["serve"] * 5 + ["refuse", "serve"]  # all were asked before the first step
    engine.submit([1] * 20, SamplingParams(max_tokens=4))
    engine.step()
    engine.submit([1] * 20, SamplingParams(max_tokens=4))
    last = engine.admission.said[-1]  # type: ignore[attr-defined]
    assert (last.word, last.free, last.prompt_tokens, last.max_tokens) == ("wait", 8, 20, 4)
    assert done[5].error is not None and str(done[5].error) == "33 slots are needed, there are 28"


def test_a_full_queue_is_busy_and_what_never_fits_is_refused_before() -> None:
    door = as_admission(ch06.admit)(512, [NodeCapacity("engine", 28)], ServerConfig(max_waiting=1))
    with pytest.raises(Busy):
        door.check(asked(5, 2), waiting=1)
    with pytest.raises(Rejected) as refusal:
        door.check(asked(50, 2), waiting=1)
    assert refusal.value.status == 400


def replaced(request: Request, server: Server) -> object:
    request.prompt = request.prompt[-4:]
    return "serve"


def emptied(request: Request, server: Server) -> object:
    request.prompt.clear()
    return ch06.admit(request, server)


def counted(request: Request, server: Server) -> object:
    request.prompt = len(request.prompt)  # type: ignore[assignment]
    return "serve"


def capped(request: Request, server: Server) -> object:
    request.max_tokens = 1
    return "serve"


CHANGES = "the door looks at a request and changes nothing"
WORDS = 'a door answers "serve", "wait" or "refuse"'
DOORS: dict[str, tuple[Callable[[Request, Server], object], str, str]] = {
    "another list": (replaced, CHANGES, "the caller's prompt: whoever measures it next measures your version"),
    "the same list, emptied": (emptied, CHANGES, "the caller's prompt"),
    "a number": (counted, CHANGES, "the caller's prompt"),
    "fewer tokens": (capped, CHANGES, "the caller's max_tokens"),
    "None": (lambda request, server: None, WORDS, "None came"),
    "True": (lambda request, server: True, WORDS, "True came"),
    "400": (lambda request, server: 400, WORDS, "400 came"),
    "another word": (lambda request, server: "later", WORDS, "'later' came"),
    "a reason that is no text": (lambda request, server: ("refuse", 28), WORDS, "('refuse', 28) came"),
    "three things": (lambda request, server: ("refuse", "a", "b"), WORDS, "('refuse', 'a', 'b') came"),
}


@both
@pytest.mark.parametrize("name", DOORS)
def test_a_wrong_door_is_named_and_harms_nobody_else(build: Build, name: str) -> None:
    """It is wrong about one request, the third."""
    act, rule, detail = DOORS[name]

    def admit(request: Request, server: Server) -> object:
        return (act if len(request.prompt) == 13 else ch06.admit)(request, server)

    done = run(build(admission=as_admission(admit)))
    error = done[2].error
    assert isinstance(error, BrokenRule) and error.rule.startswith(rule) and detail in error.detail
    assert error.request == 2 and error.step == 0 and "(step 0)" in str(error)
    assert (done[2].finish_reason, done[2].status, done[2].token_ids) == ("error", 500, ())
    expected = run(build())
    assert said(done[:2] + done[3:]) == said(expected[:2] + expected[3:])


@both
@pytest.mark.parametrize("word", ["serve", "wait"])
def test_a_door_that_lets_in_what_never_fits_is_named_by_the_engine(build: Build, word: str) -> None:
    server = build(admission=as_admission(lambda request, server: word))
    done = run(server)
    error = done[5].error
    assert isinstance(error, BrokenRule) and error.rule == "whoever the door lets in is served" and error.request == 5
    expected = run(build())
    assert said(done[:5] + done[6:]) == said(expected[:5] + expected[6:])


def test_what_a_door_raises_is_its_requests_error_with_the_line() -> None:
    def admit(request: Request, server: Server) -> object:
        return {"short": "serve"}["long" if len(request.prompt) == 13 else "short"]

    done = run(one(admission=as_admission(admit)))
    assert "KeyError: 'long', in admit, line" in str(done[2].error) and done[3].status == 200


def test_answers_of_other_kinds() -> None:
    class Text(str):
        pass

    assert read_answer(Text("serve")) == read_answer(["serve", ""]) == read_answer(("serve", None))
    assert read_answer("Serve") is read_answer(b"serve") is read_answer(("serve",)) is read_answer({}) is None


def test_the_doors_of_6_2_differ_from_the_right_one_as_they_say() -> None:
    grid = [(prompt, answer) for prompt in range(1, 40) for answer in range(1, 40)]
    wrong = {name: [r for r in grid if door(*r) != right_door(*r)] for name, door in BROKEN.items()}
    assert all(p + a == 29 for p, a in wrong["Anna"]) and all(p + a == 30 for p, a in wrong["Ben"])
    assert all(p <= 14 and p + a > 29 for p, a in wrong["Cleo"])
    assert all(p > 20 and p + a <= 29 and BROKEN["Dan"](p, a).status == 200 for p, a in wrong["Dan"])
    two_will_do = [(27, 2), (14, 16)]
    assert all(set(two_will_do) & set(requests) for requests in wrong.values())
    assert not any(all(r in requests for requests in wrong.values()) for r in grid), "one never will"


def test_a_reply_compared_with_a_number_says_so() -> None:
    with pytest.raises(TypeError, match="compare what is in it"):
        _ = right_door(27, 2) == 200
    assert right_door(27, 2) == right_door(27, 2) != right_door(27, 3)


# The line of the stretch


def in_order(line: Sequence[Waiting], free: int) -> int | None:
    return 0 if line[0].slots <= free else None


def whoever_fits(line: Sequence[Waiting], free: int) -> int | None:
    return next((i for i, each in enumerate(line) if each.slots <= free), None)


def smallest(line: Sequence[Waiting], free: int) -> int | None:
    index = min(range(len(line)), key=lambda i: line[i].slots)
    return index if line[index].slots <= free else None


def one_that_is_worth_it(line: Sequence[Waiting], free: int) -> int | None:
    """The front first; else a large one near the front, past nobody who was passed three times."""
    behind = next((i for i, each in enumerate(line) if each.passed >= 3), len(line))
    fit = [i for i, each in enumerate(line[: behind + 1]) if each.slots <= free]
    return 0 if 0 in fit else max(fit, key=lambda i: line[i].slots - i, default=None)


def test_the_targets_of_the_stretch_can_be_reached_and_not_by_the_first_idea() -> None:
    assert play_line(one_that_is_worth_it).reached
    assert str(play_line(one_that_is_worth_it)).count("reached") == 3
    for policy, missed in ((in_order, "use"), (whoever_fits, "passed"), (smallest, "passed")):
        outcome = play_line(policy)
        assert not outcome.reached and outcome.served == outcome.total == 240
        assert (outcome.use < 0.9) if missed == "use" else (outcome.most_passed > 10)
    assert play_line(lambda line, free: None).served == 0


def test_the_line_says_what_is_wrong_with_a_choice() -> None:
    for choice in (-1, 10**6, "0", True, 1.0):
        with pytest.raises(ValueError, match="an index from 0"):
            play_line(lambda line, free, choice=choice: choice)  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"slots, and .* are free"):
        play_line(lambda line, free: 0)


def test_a_policy_cannot_change_the_line() -> None:
    def cheat(line: Sequence[Waiting], free: int) -> int | None:
        for each in line:
            each.slots, each.passed = 1, 0
        return None

    assert play_line(cheat).served == 0


# The picture


def words(free: int, pool: int, context: int, longest: int = 700) -> tuple[str, ...]:
    found = []
    for length in range(2, longest + 1):
        answer = ch06.admit(Request([7] * (length - 1), 1), Server(free, pool, context))
        found.append(answer if isinstance(answer, str) else answer[0])
    return tuple(found)


def test_the_line_of_lengths_says_where_nobody_tested() -> None:
    moments = [Asked(step, free, words(free, 28, 512)) for step, free in ((0, 28), (1, 8), (2, 0))]
    line = limit_line(moments, pool=28, context=512, sent=[9, 20, 604, 2000])
    assert [row.split("  ")[0] for row in line.text.splitlines()[2:]] == [
        "2 to 9",
        "10 to 29",
        "30 to 512",
        "513 to 700",
    ]
    assert "Step 1: 8 of 28 slots free" in line.text and "0: who has tested here?" in line.text
    assert line.text.splitlines()[-1].split()[-2:] == ["refuse", "2"]
    assert line.table.count("<tr>") == 5 and '<th scope="row">30 to 512</th>' in line.table
    assert len(line.figure.frames) == 3 and line.figure.data[-1].text == ("who has tested here?",)
    for moment, frame in zip(moments, line.figure.frames, strict=True):  # no empty text: plotly then loses labels
        labels = next(trace.text for trace in frame.data if trace.type == "scatter" and trace.mode == "text")
        assert labels == (f"free now {moment.free + 1}", "pool 29", "context 512")
    assert limit_line(moments, pool=28, context=512, sent=[30]).figure.data[-1].text == ("",)


def test_the_line_shows_a_wrong_door_as_it_is() -> None:
    said_ = tuple("serve" if length <= 30 else "maybe" if length < 40 else "refuse" for length in range(2, 61))
    line = limit_line([Asked(0, 28, said_)], pool=28, context=512)
    assert "serve 1, maybe 9, refuse 21" in line.text and ">serve<" in line.table


def test_the_line_where_the_context_is_the_smaller_limit_and_where_nothing_is_free() -> None:
    line = limit_line([Asked(0, 0, words(0, 64, 32, 80))], pool=64, context=32)
    assert "fit the context" in line.text and "fit the pool, not the context" in line.text
    assert "fit what is free now" not in line.text
    line = limit_line([Asked(0, 64, words(64, 64, 32, 80))], pool=64, context=32)
    assert line.text.splitlines()[2].split()[:3] == ["2", "to", "32"]
    with pytest.raises(ValueError, match="same lengths"):
        limit_line([], pool=28, context=512)


def test_the_line_is_the_same_each_time() -> None:
    lines = [limit_line([Asked(0, 8, words(8, 28, 512))], pool=28, context=512, sent=[9]) for _ in range(2)]
    assert lines[0].table == lines[1].table and lines[0].figure.to_json() == lines[1].figure.to_json()


def test_the_line_refuses_what_has_no_place_on_it() -> None:
    asked_ = [Asked(0, 8, words(8, 28, 512))]
    for sent in ([0], [5, -1], [float("nan")]):
        with pytest.raises(ValueError, match="a length of 1 or more"):
            limit_line(asked_, pool=28, context=512, sent=sent)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="free slots are 0 or more, not -5"):
        limit_line([*asked_, Asked(1, -5, asked_[0].words)], pool=28, context=512)
    for pool, context in ((-1, 512), (28, 0)):
        with pytest.raises(ValueError, match="a pool has 0 slots or more"):
            limit_line(asked_, pool=pool, context=context)


@pytest.mark.parametrize("thing", [5, None, "serve"])
def test_a_door_is_a_function(thing: Any) -> None:
    with pytest.raises(ConfigError, match="a door must be a function"):
        as_admission(thing)
    with pytest.raises(ConfigError, match="free must be a function"):
        as_admission(ch06.admit, free=7)  # type: ignore[arg-type]


def test_a_bill_refuses_what_cannot_be_drawn() -> None:
    from minikv.viz.bill import bill

    right: dict[str, Any] = {"token_bytes": 4.0, "weight_bytes": 8, "context": 9, "card_bytes": 99}
    assert "9 tokens" in bill("m", **right).text
    for size in (1e308, float("inf"), 1e-320, 10**400):
        with pytest.raises(ValueError, match="too large, or too far apart"):
            bill("m", **right | {"token_bytes": size, "weight_bytes": 10**6})
    for name in ("weight_bytes", "context", "card_bytes"):
        with pytest.raises(ValueError, match="too large, or too far apart"):
            bill("m", **right | {name: 10**400})
    with pytest.raises(ValueError, match="sizes above zero"):
        bill("m", **right | {"token_bytes": float("nan")})
