"""Chapter 05: the scheduler's seat, the lanes, the panel, and the stretch."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import ch05_answers as answers
import pytest

from minikv import Cluster, Engine, NodeConfig, SamplingParams
from minikv.course.chapters import short_pool
from minikv.course.chapters.ch05 import REFERENCE, Request, Visit, plan_static, plan_step, plan_whole, play
from minikv.course.chapters.counting import BUDGET, GIVEN, HANDED, HANDS_OFF, MISSING, ONCE, PAIRS, WHOLE, WORK, steps
from minikv.course.chapters.ex_5_1 import judge_whole
from minikv.course.chapters.ex_5_2 import judge_chunks
from minikv.course.chapters.small import small_model
from minikv.course.seats.scheduler import as_scheduler
from minikv.errors import BrokenRule, ConfigError
from minikv.trace import Admit, Write
from minikv.viz.lanes import MAX_STEPS, lanes, run_of
from minikv.viz.lanes_panel import FixedLanes, LanesPanel, lanes_panel, said_and_drawn

SHAPES = [(9, 6), (5, 6), (13, 2), (2, 6), (6, 6), (21, 9), (1, 1)]  # prompt tokens and answer tokens
FIVE = [Visit("R1", 4, 6), Visit("R2", 3, 12), Visit("R3", 5, 4), Visit("R4", 20, 4, 5), Visit("R5", 3, 5, 6)]
CHUNKED = [title for title in answers.CHUNKS_RIGHT]


def greedy(n: int) -> SamplingParams:
    return SamplingParams(max_tokens=n, ignore_eos=True)


def prompt(length: int, seed: int) -> list[int]:
    return [(37 * k + 11 * seed + 3) % 250 for k in range(length)]


def engine(pages: int = 40, model: Any = None, **options: Any) -> Engine:
    return Engine(model or small_model(2), page_size=4, num_pages=pages, **options)


def cluster(pages: int = 40, tokens: int = 8192, **options: Any) -> Cluster:
    size = NodeConfig(num_pages=pages, max_batch_tokens=tokens)
    return Cluster(small_model(2), prefill=size, decode=size, page_size=4, **options)


def run(server: Engine | Cluster, shapes: list[tuple[int, int]] = SHAPES) -> list[tuple[int, ...]]:
    """Serve requests that come one after the other, with every invariant verified after every step."""
    numbers: list[int] = []
    for step in range(300):
        if step % 2 == 0 and len(numbers) < len(shapes):
            length, n = shapes[len(numbers)]
            numbers.append(server.submit(prompt(length, len(numbers)), greedy(n)))
        server.step()
        server.check()
        if len(numbers) == len(shapes) and all(server.requests[number].answered for number in numbers):
            break
    done = [server.result(number) for number in numbers]
    assert [each.error for each in done] == [None] * len(shapes)
    for node in server.nodes:
        assert node.pool.num_free == node.pool.num_pages and not node.scheduler.waiting and not node.scheduler.running
    return [each.token_ids for each in done]


@pytest.fixture(scope="module")
def expected() -> list[tuple[int, ...]]:
    return run(engine())


# The seat


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize("budget", [1, 3, 8, 64])
@pytest.mark.parametrize("pages", [8, 14, 40])
def test_chunks_in_the_engine(expected: Any, pages: int, budget: int, careful: bool) -> None:
    server = engine(pages, max_batch_tokens=budget, scheduler=as_scheduler(plan_step, careful=careful))
    assert run(server) == expected
    if careful:
        assert server.stats().nodes[0].preemptions == 0


@pytest.mark.parametrize("batch", [1, 2, 32])
@pytest.mark.parametrize("pages", [8, 40])
def test_whole_prompts_in_the_engine(expected: Any, pages: int, batch: int) -> None:
    server = engine(pages, max_batch_size=batch, scheduler=as_scheduler(plan_whole))
    assert run(server) == expected


@pytest.mark.parametrize("plan", [plan_step, plan_whole])
@pytest.mark.parametrize("pages", [8, 10, 40])
def test_both_machines_of_a_cluster(expected: Any, pages: int, plan: Any) -> None:
    server = cluster(pages, scheduler=as_scheduler(plan))
    assert run(server) == expected


@pytest.mark.parametrize("plan", [plan_step, plan_whole])
def test_who_gives_way_on_the_second_machine_is_computed_again(plan: Any) -> None:
    wanted = [greedy(n) for _length, n in SHAPES[:5]]
    prompts = [prompt(length, k) for k, (length, _n) in enumerate(SHAPES[:5])]
    server = cluster(5, scheduler=as_scheduler(plan))
    done = server.generate(prompts, wanted)
    assert [each.token_ids for each in done] == [each.token_ids for each in engine().generate(prompts, wanted)]
    assert server.decode.scheduler.num_preemptions > 0


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_a_cluster_of_small_budgets(expected: Any, tokens: int) -> None:
    """More may run on the decode node than its budget has tokens."""
    assert run(cluster(tokens=tokens, scheduler=as_scheduler(plan_step))) == expected


@pytest.mark.parametrize("title", CHUNKED)
def test_right_plans_of_any_design_change_no_token(expected: Any, title: str, cell: Any) -> None:
    plan = cell(answers.CHUNKS_RIGHT[title][0], "plan_step")
    assert run(engine(9, max_batch_tokens=5, scheduler=as_scheduler(plan))) == expected
    assert run(cluster(9, tokens=6, scheduler=as_scheduler(plan))) == expected


@pytest.mark.parametrize("pages", [8, 14, 40])
@pytest.mark.parametrize("budget", [3, 8, 64])
def test_the_reference_is_the_engines_own_event_for_event(pages: int, budget: int) -> None:
    own = engine(pages, max_batch_tokens=budget)
    seated = engine(pages, max_batch_tokens=budget, scheduler=as_scheduler(plan_step))
    assert run(own) == run(seated)
    if own.stats().nodes[0].preemptions == 0:
        assert list(own.trace) == list(seated.trace)


@pytest.mark.model
def test_the_real_model() -> None:
    from minikv import load_model

    model = load_model("smollm2")
    texts = [
        "Roses are red, violets are",
        "One, two, three, four,",
        "The capital of France is",
        "A page is lent to one",
    ]
    said = []
    for part in ({}, {"scheduler": as_scheduler(plan_step)}, {"scheduler": as_scheduler(plan_whole)}):
        options: dict[str, Any] = part
        server = engine(12, model, max_batch_tokens=9, **options)
        said.append([each.token_ids for each in server.generate(texts, greedy(6))])
    assert said[0] == said[1] == said[2]


class Spoilt:
    """A plan that is right at first; the third time that somebody waits it breaks a rule."""

    def __init__(self, spoil: Callable[[list[Any], list[Any], list[Any]], Any]) -> None:
        self.spoil = spoil
        self.calls = 0

    def __call__(self, waiting: list[Any], running: list[Any], budget: int) -> Any:
        plan = plan_step(waiting, running, budget)
        self.calls += bool(waiting)
        return self.spoil(plan, waiting, running) if waiting and self.calls == 3 else plan


def _changes(plan: Any, waiting: Any, _running: Any) -> Any:
    waiting[0].written += 1
    return plan


SPOILS: dict[str, tuple[Callable[[list[Any], list[Any], list[Any]], Any], str]] = {
    "nothing": (lambda plan, waiting, running: None, PAIRS),
    "a request alone": (lambda plan, waiting, running: waiting[:1], PAIRS),
    "a stranger": (lambda plan, waiting, running: [(Request("R77", 4), 1)], GIVEN),
    "a name": (lambda plan, waiting, running: [("R1", 1)], GIVEN),
    "twice": (lambda plan, waiting, running: [plan[0], plan[0]], ONCE),
    "none of its tokens": (lambda plan, waiting, running: [(plan[0][0], 0)], WHOLE),
    "half a token": (lambda plan, waiting, running: [(plan[0][0], 0.5)], WHOLE),
    "one too many": (lambda plan, waiting, running: [(plan[0][0], plan[0][0].known + 1)], MISSING),
    "over the budget": (lambda plan, waiting, running: [*plan, (waiting[0], waiting[0].known)], BUDGET),
    "hands on": (_changes, HANDS_OFF),
    "nobody": (lambda plan, waiting, running: [], WORK),
}


@pytest.mark.parametrize("what", SPOILS)
@pytest.mark.parametrize("build", [engine, cluster])
def test_a_wrong_plan_is_named_by_rule_and_step(what: str, build: Any) -> None:
    spoil, rule = SPOILS[what]
    plan = Spoilt(spoil)
    part = as_scheduler(lambda waiting, running, budget: plan(waiting, running, budget))
    server = engine(max_batch_tokens=8, scheduler=part) if build is engine else cluster(tokens=8, scheduler=part)
    numbers = [server.submit(prompt(length, k), greedy(6)) for k, length in enumerate((3, 3, 30, 30, 30))]
    for _ in range(60):
        server.step()
    done = [server.result(number) for number in numbers]
    broken = [each.error for each in done if each.error is not None]
    assert broken and all(isinstance(error, BrokenRule) and error.rule == rule for error in broken), broken
    assert all("(step " in str(error) for error in broken)
    server.check()
    (after,) = server.generate([prompt(9, 0)], greedy(3))
    assert after.error is None


def test_a_plan_that_raises_says_where() -> None:
    def plan(waiting: list[Any], running: list[Any], budget: int) -> Any:
        return waiting[7]

    (done,) = engine(scheduler=as_scheduler(plan)).generate([prompt(5, 0)], greedy(2))
    assert "IndexError" in str(done.error) and "(step 1)" in str(done.error)


def test_without_chunks_a_long_prompt_is_told_and_the_others_go_on(expected: Any) -> None:
    server = engine(max_batch_tokens=12, scheduler=as_scheduler(plan_whole))
    done = server.generate(
        [prompt(length, k + 1) for k, (length, _n) in enumerate(SHAPES)], [greedy(n) for _l, n in SHAPES]
    )
    assert [each.error is None for each in done] == [length <= 12 for length, _n in SHAPES]
    long = done[2].error
    assert isinstance(long, BrokenRule) and long.rule == WORK
    assert "R2 misses 13 tokens" in str(long) and "without chunks it would wait for ever" in str(long)


@pytest.mark.parametrize("plan", [plan_step, plan_whole])
def test_the_historical_cluster_runs_on_it_as_on_its_own(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chapter 08 leaks through the learner's scheduler: page for page what it does with the engine's own."""
    from minikv.course.chapters.lab import Lab
    from minikv.incident import history

    def day() -> Lab:
        lab = Lab()
        for tenant, length, n in (("halverson", 403, 64), ("quennell", 382, 72), ("quennell", 382, 72)):
            lab.send(tenant, prompt=length, answer=n)
            lab.run()
        lab.attack(490)
        return lab

    own = day()

    class Seated(history.HistoricalCluster):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, scheduler=as_scheduler(plan), **options)

    monkeypatch.setattr(history, "HistoricalCluster", Seated)
    seated = day()
    assert isinstance(seated.cluster, Seated) and list(seated.cluster.trace) == list(own.cluster.trace)
    assert len(seated.attacks[0].stale) == 7


# Counting runs and lanes


def test_a_counting_run_is_what_the_engine_does() -> None:
    for plan, budget in ((plan_static, 24), (plan_whole, 24), (plan_step, 8), (plan_step, 3)):
        server = engine(max_batch_tokens=budget, scheduler=as_scheduler(plan))
        for step in range(1, 60):
            for visit in FIVE:
                if visit.arrives == step:
                    server.submit(prompt(visit.prompt, step), greedy(visit.answer))
            server.step()
        counted, computed = run_of(play(plan, FIVE, budget)), run_of(server.trace, names=[v.name for v in FIVE])
        assert counted == computed


def test_what_the_lesson_says_of_budgets() -> None:
    """With 24 every prompt of the five fits whole; with R4's prompt of 40, the gap grows until a budget of 42."""
    assert run_of(play(plan_step, FIVE, 24)) == run_of(play(plan_whole, FIVE, 24))
    long = [Visit("R4", 40, 4, 5) if visit.name == "R4" else visit for visit in FIVE]
    runs = {budget: run_of(play(plan_step, long, budget)) for budget in (4, 8, 41, 42, 64)}
    gaps = {budget: max(lane.gap_tokens for lane in run.lanes) for budget, run in runs.items()}
    assert gaps == {4: 4, 8: 8, 41: 41, 42: 42, 64: 42}
    assert runs[4].lanes[4].first == max(run.lanes[4].first or 0 for run in runs.values())


def test_lanes_say_what_happened() -> None:
    drawn = lanes({"whole prompts": play(plan_whole, FIVE, 24), "chunks": play(plan_step, FIVE, 8)})
    whole, chunks = drawn.runs
    assert [lane.gap_tokens for lane in whole.lanes] == [22, 22, 3, 6, 3]
    assert [lane.first for lane in chunks.lanes] == [1, 1, 2, 4, 3]
    assert max(chunks.tokens) == 8 and sum(chunks.tokens) == sum(whole.tokens)
    assert chunks.lanes[4].cells == ["", "", "", "", "", ".", ".", "P", "D", "D", "D", "D"]
    assert "R4                P  P  P  P  D  D  D" in drawn.text
    assert "<caption" in drawn.table and drawn.table.count('<th scope="row">R4</th>') == 2
    assert [frame.layout.title.text.split(":")[0] for frame in drawn.figure.frames] == ["whole prompts", "chunks"]
    assert (
        lanes({"a": play(plan_step, FIVE, 8)}).figure.to_json()
        == lanes({"a": play(plan_step, FIVE, 8)}).figure.to_json()
    )


def test_lanes_of_one_run_have_no_slider() -> None:
    drawn = lanes(play(plan_step, FIVE, 8))
    assert not drawn.figure.frames and not drawn.figure.layout.sliders and "P reads its prompt" in drawn.text


def test_lanes_show_who_is_computed_again() -> None:
    server = engine(6, max_batch_tokens=16, scheduler=as_scheduler(plan_step))
    server.generate([prompt(8, k) for k in range(2)], greedy(12))
    assert server.stats().nodes[0].preemptions > 0
    first, second = run_of(server.trace).lanes
    assert first.gap == 1 and second.gap > 1
    again = "".join(cell or " " for cell in second.cells).strip()
    assert again.startswith("P") and "DP" in again.replace(".", "")


def test_lanes_refuse_what_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="no token was computed"):
        lanes(Engine(small_model(2), page_size=4, num_pages=4).trace)
    with pytest.raises(ValueError, match="no run"):
        lanes({})
    with pytest.raises(ValueError, match="too many to draw"):
        lanes(play(plan_step, [Visit("R1", 1, MAX_STEPS + 1)], 4))


def test_names_of_lanes() -> None:
    assert [lane.name for lane in run_of(play(plan_step, FIVE, 8), names={0: "Ada"}).lanes][:2] == ["Ada", "R2"]
    server = engine()
    server.generate([prompt(3, 0), prompt(4, 1)], greedy(2))
    assert [lane.name for lane in run_of(server.trace).lanes] == ["R0", "R1"]


def test_a_counting_run_ends() -> None:
    endless = list(steps(lambda waiting, running, budget: plan_step(waiting, running, budget), FIVE, 2, most=5))
    assert len(endless) == 5
    with pytest.raises(BrokenRule, match="without chunks it would wait for ever"):
        play(plan_whole, FIVE, 19)


# The panel


def what_if(budget: int, R4_comes_in_step: int) -> Any:
    return play(plan_step, [*FIVE[:3], Visit("R4", 40, 4, R4_comes_in_step)], budget)


def test_the_panel_moves() -> None:
    panel = lanes_panel(what_if, budget=(4, 64, 8), R4_comes_in_step=(1, 12, 5))
    assert isinstance(panel, LanesPanel)
    assert panel.text.startswith("Budget 8, R4 comes in step 5. 14 steps, at most 8 tokens in one.")
    before = panel.drawn.value
    panel.boxes["budget"].value = 16
    assert panel.text.startswith("Budget 16, ") and panel.drawn.value != before and panel.text in panel.line.value


def hide_ipywidgets(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "ipywidgets":
            raise ModuleNotFoundError("No module named 'ipywidgets'", name="ipywidgets")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)


def test_the_panel_without_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_ipywidgets(monkeypatch)
    fixed = lanes_panel(what_if, budget=(4, 64, 8), R4_comes_in_step=(1, 12, 5))
    assert isinstance(fixed, FixedLanes)
    assert fixed.text.startswith("No sliders here, because ipywidgets is not installed.") and "R4" in fixed.text


def test_the_panel_says_which_rule_is_broken() -> None:
    said, drawn = said_and_drawn(lambda budget: play(plan_whole, FIVE, budget), {"budget": 10})
    assert (
        said.startswith("Budget 10. The run ends early: a step with work to do does some: R4 misses 20") and not drawn
    )


# The judges


def test_the_judges_leave_the_model_as_it_was() -> None:
    model = small_model(2)
    before = {name: weight.clone() for name, weight in model.hf.named_parameters()}
    assert judge_chunks(REFERENCE["ex-5.2"]).right
    assert all((weight == before[name]).all() for name, weight in model.hf.named_parameters())


def test_what_does_not_fit_and_what_is_passed_over_are_told_apart(cell: Any) -> None:
    """Only a prompt that was too large gets the question what happens when the first does not fit."""
    too_large = judge_whole(cell(answers.WHOLE_WRONG["jumps over the head"][0], "plan_whole"))
    passed_over = judge_whole(cell(answers.WHOLE_WRONG["takes out of the list that it goes through"][0], "plan_whole"))
    assert "does not fit" in too_large.hints[0] and "40 who came after it started before it" in too_large.said
    assert "R2 stood before R3 and would have fitted" in passed_over.said and "does not fit" not in passed_over.hints[0]


@pytest.mark.parametrize(("judge", "name"), [(judge_whole, "plan_whole"), (judge_chunks, "plan_step")])
def test_a_list_for_all_calls_is_told_again(judge: Any, name: str, cell: Any) -> None:
    """The second check finds the list full of what the first one left in it."""
    wrong_ones = answers.WHOLE_WRONG if name == "plan_whole" else answers.CHUNKS_WRONG
    plan = cell(wrong_ones["one list for all calls"][0], name)
    assert [judge(plan).kind for _ in range(3)] == ["remembers"] * 3


def test_one_token_is_not_called_tokens(cell: Any) -> None:
    said = judge_chunks(cell(answers.CHUNKS_WRONG["new prompts of one token forgotten"][0], "plan_step")).said
    assert said == "step 2: R2, who waits, missed 1 token, 1 token of the budget was left for it, and it got 0."


# The stretch


def test_two_come_in_each_step() -> None:
    arrivals = [step for step, _prompt, _answer in short_pool.people()]
    assert [arrivals.count(step) for step in range(1, 31)] == [2] * 30


def good_plan(waiting: list[Any], running: list[Any], budget: int, free: int) -> tuple[list[Any], list[Any]]:
    """Who finds no page waits a step; only who has no token yet gives back; who starts leaves room for the others."""
    plan: list[Any] = []
    back: list[Any] = []
    for one in sorted(running, key=lambda one: one.known - one.written > 1):
        tokens = min(one.known - one.written, budget)
        more = one.more_pages(tokens)
        young = [each for each in running if not each.answered and each.pages and each is not one]
        while more > free and (young := [y for y in young if y not in back and all(p[0] is not y for p in plan)]):
            back.append(young[-1])
            free += young[-1].pages
        if tokens and one not in back and more <= free:
            plan.append((one, tokens))
            budget, free = budget - tokens, free - more
    soon = sum(one.more_pages(one.known - one.written + 2) for one in running if one not in back)
    for one in [] if back else waiting:
        tokens, pages = min(one.known, budget), -(-one.known // short_pool.PAGE_SIZE)
        if not tokens or pages + soon > free:
            break
        plan.append((one, tokens))
        budget, free = budget - tokens, free - pages
    return plan, back


def test_the_stretch_can_be_reached() -> None:
    found = short_pool.score(good_plan)
    assert found.reached, str(found)
    assert (found.finished, found.recomputed <= 2, found.gap <= 2, found.used >= 0.90) == (60, True, True, True)


def test_the_stretch_names_what_is_wrong() -> None:
    def without(waiting: list[Any], running: list[Any], budget: int, free: int) -> Any:
        return plan_step(waiting, running, budget)

    with pytest.raises(BrokenRule, match="a plan comes with those who give back"):
        short_pool.score(without)

    def at_risk(waiting: list[Any], running: list[Any], budget: int, free: int) -> Any:
        return plan_step(waiting, running, budget), []

    with pytest.raises(BrokenRule, match="pages are lent before they are written"):
        short_pool.score(at_risk)

    def strange(waiting: list[Any], running: list[Any], budget: int, free: int) -> Any:
        return [], waiting[:1]

    with pytest.raises(BrokenRule, match="only those who run can give pages back"):
        short_pool.score(strange)


def test_giving_back_for_ever_ends() -> None:
    def back_and_forth(waiting: list[Any], running: list[Any], budget: int, free: int) -> Any:
        return ([], running) if running else ([(waiting[0], 1)], [])

    found = short_pool.score(back_and_forth)
    assert found.finished == 0 and not found.reached


# What a plan must not do with numbers, and pictures of odd traces


def _forged(spoil: Callable[[Request], Request]) -> Any:
    """A plan that is right until two run; then the second gets too much, under another's number."""

    def plan(waiting: list[Any], running: list[Any], budget: int) -> Any:
        right = plan_step(waiting, running, budget)
        if len(running) < 2:
            return right
        return [(spoil(one), 5 if one is running[1] else share) for one, share in right]

    return plan


def _as_number_0(one: Request) -> Request:
    one.number = 0
    return one


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (_as_number_0, HANDS_OFF),
        (lambda one: Request(one.name, 10**9, 0, 0), HANDED),
        (lambda one: Request(one.name, one.known, one.written, 0), MISSING),
        (lambda one: Request([one.name], one.known, one.written, 0), GIVEN),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("build", [engine, cluster])
def test_nobody_answers_for_another(spoil: Any, rule: str, build: Any) -> None:
    server = build(scheduler=as_scheduler(_forged(spoil)))
    done = server.generate([prompt(length, length) for length in (3, 4, 5)], greedy(8))
    broken = [(number, each.error) for number, each in enumerate(done) if each.error is not None]
    assert broken and {error.rule for _number, error in broken} == {rule}
    assert all(error.request in (None, number) for number, error in broken)
    assert all(error.request is not None or rule == GIVEN for _number, error in broken)
    if rule == MISSING:
        assert all(f"R{number} misses 1" in str(error) for number, error in broken)


def test_true_copies_are_as_good(expected: Any) -> None:
    def plan(waiting: list[Any], running: list[Any], budget: int) -> Any:
        return [(Request(one.name, one.known, one.written), n) for one, n in plan_step(waiting, running, budget)]

    assert run(engine(9, max_batch_tokens=5, scheduler=as_scheduler(plan))) == expected


@pytest.mark.parametrize("thing", [5, None, "plan_step", [plan_step]])
def test_a_plan_is_made_by_a_function(thing: Any) -> None:
    with pytest.raises(ConfigError, match="a plan is made by a function, not by"):
        as_scheduler(thing)


def _events(*steps_: int, admits: int = 1) -> list[Any]:
    found: list[Any] = [Admit(0, "engine", number, f"t{number}", 2, 2) for number in range(admits)]
    return found + [Write(step, "engine", 0, 0, 1, 0, place, place + 1) for place, step in enumerate(steps_)]


def test_lanes_of_odd_traces() -> None:
    for steps_ in ((1, 10**8), (1, 10**15)):
        with pytest.raises(ValueError, match=f"{steps_[1]} steps are too many to draw; 60 at most"):
            lanes(_events(*steps_))
        with pytest.raises(ValueError, match="too many"):
            run_of(_events(*steps_))
    with pytest.raises(ValueError, match="no request was let in"):
        lanes(_events(1, 2, admits=0))
    with pytest.raises(ValueError, match="no token was computed"):
        lanes(_events(0))


def test_each_lane_has_a_name_of_its_own() -> None:
    drawn = lanes(_events(1, 2, admits=4), names=["A", "A", "A (2)", "A"])
    assert [lane.name for lane in drawn.runs[0].lanes] == ["A", "A (2)", "A (2) (2)", "A (3)"]
    assert len(set(drawn.figure.data[0].y)) == 4


def test_the_panel_says_in_a_line_why_there_are_no_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    def stub(waiting: list[Any], running: list[Any], budget: int) -> Any:
        raise NotImplementedError("ex-5.2: write plan_step")

    def slips(waiting: list[Any], running: list[Any], budget: int) -> Any:
        return waiting[7]

    for plan, line in (
        (stub, "Budget 8. [ ] ex-5.2: write plan_step"),
        (slips, "Budget 8. The run ends early: IndexError: list index out of range, in slips, line "),
    ):
        panel = lanes_panel(lambda budget, plan=plan: play(plan, FIVE, budget), budget=(4, 64, 8))
        assert isinstance(panel, LanesPanel) and panel.text.startswith(line) and not panel.drawn.value
    assert lanes_panel(lambda: play(plan_step, FIVE, 8)).text.startswith("12 steps, at most 8 tokens in one.")

    hide_ipywidgets(monkeypatch)
    fixed = lanes_panel(lambda budget: play(stub, FIVE, budget), budget=(4, 64, 8))
    assert fixed.text == "No sliders here, because ipywidgets is not installed. [ ] ex-5.2: write plan_step"
    fixed._ipython_display_()
