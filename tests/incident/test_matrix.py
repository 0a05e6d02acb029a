"""Eight guards against six scenarios: what the design expects, and what the runs say."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from minikv import Cluster, SamplingParams
from minikv.errors import ConfigError
from minikv.incident.defects import DEFECTS, GUARDS
from minikv.incident.matrix import ALL_GUARDS, COVERED, SHIFTS, Cell, Laboratory, Matrix, run_matrix
from minikv.incident.scales import POCKET
from minikv.incident.scenarios import ORDINARY_ANSWER, ORDINARY_TOKENS, SCENARIOS, STREAMED
from minikv.incident.stage import build
from minikv.incident.wire import Wire
from minikv.viz.matrix import LETTERS, MEANS, matrix_map, one_guard_map

ONE_OR_NONE = ["", *GUARDS]
PARAMS = SamplingParams(max_tokens=ORDINARY_ANSWER, ignore_eos=True)

# With one guard on, and why. What DESIGN section 5 left open ("perhaps h"), or did not say, is marked.
EXPECTED = {
    "over-length": {
        "": ("leaks", "history: the placeholder's one slot, and 30 of strangers"),
        "a": ("refused", "the refusal is the end of it"),
        "b": ("refused", "the verdict is seen before the queue"),
        "c": ("refused", "31 tokens do not fit 28"),
        "d": ("refused", "one door, which knows the smaller pool"),
        "e": ("refused", "31 tokens were expected, 1 is promised"),
        "f": ("wrong", "nothing stale is read, and the answer to a placeholder is sold as the answer, status 200"),
        "g": ("refused", "the first stale slot is noticed before it is read"),
        "h": ("refused", "everything stale was read, and nothing of it was said"),
    },
    "short-transfer": {
        "": ("leaks", "the lost page holds what strangers left"),
        "a": ("leaks", "nobody was refused"),
        "b": ("leaks", "there is no verdict to see"),
        "c": ("leaks", "the length was right all along"),
        "d": ("leaks", "the request fits both pools"),
        "e": ("refused", "five pages were expected, four came"),
        "f": ("wrong", "it answers the first 16 tokens of an 18-token prompt"),
        "g": ("refused", "two slots were never written"),
        "h": ("leaks", "no leg has bad news"),
    },
    "late-write": {
        **dict.fromkeys(
            ["", "a", "b", "c", "d", "e", "f", "h"], ("leaks", "the old writer reaches pages that were lent on")
        ),
        "g": ("right", "the write carries an old generation and is refused; the new holder notices nothing"),
    },
    "lost-abort": {
        **dict.fromkeys(["", "a", "b", "c", "d", "f", "g"], ("hangs", "decode waits for what will never come")),
        "e": ("refused", "both sides are told"),
        "h": ("refused", "the design said perhaps: the client hears of the leg that ended badly"),
    },
    "duplicate": {
        **dict.fromkeys(
            ["", "a", "b", "c", "d", "f", "h"], ("leaks", "the second copy brings the sender's old slots again")
        ),
        "e": ("right", "an id is accepted once, so the answer goes on undisturbed"),
        "g": ("refused", "the slots of its own answer have another writer now"),
    },
    "symmetric": dict.fromkeys(ONE_OR_NONE, ("refused", "decode's pool is as small, and decode's door says so")),
    STREAMED.name: {
        **dict.fromkeys("abcde", ("refused", "before a word of the answer")),
        "g": ("wrong", "the placeholder's own token was sent before the first read; then the error"),
        "": ("leaks", "the client reads along"),
        "f": ("wrong", "nonsense, word by word"),
        "h": ("leaks", "the status is true and late: the words are out"),
    },
}


def all_but(one: str) -> str:
    return "".join(letter for letter in GUARDS if letter != one)


@pytest.fixture(scope="module")
def laboratory() -> Laboratory:
    return Laboratory()


@pytest.fixture(scope="module")
def some(laboratory: Laboratory) -> Matrix:
    """No guard, each alone, all but one, all, and the pairs that matter."""
    others = ["ef", "eg", "eh", "fg", "gh", *(all_but(one) for one in GUARDS), "abcdefgh"]
    return run_matrix([*ONE_OR_NONE, *others], laboratory=laboratory)


@pytest.mark.parametrize("guards", ONE_OR_NONE)
@pytest.mark.parametrize("scenario", EXPECTED)
def test_one_guard(some: Matrix, guards: str, scenario: str) -> None:
    verdict, reason = EXPECTED[scenario][guards]
    assert some.cell(guards, scenario).verdict == verdict, reason


@pytest.mark.parametrize(
    ("guards", "scenario", "status", "stale"),
    [
        ("", "over-length", 200, 30),
        ("h", "over-length", 400, 30),
        ("f", "over-length", 200, 0),
        ("e", "over-length", 502, 0),
        ("g", "over-length", 500, 0),
        ("", "short-transfer", 200, 2),
        ("e", "short-transfer", 502, 0),
        ("", "lost-abort", None, 0),
        ("h", STREAMED.name, 400, 30),
    ],
)
def test_counts(some: Matrix, guards: str, scenario: str, status: int | None, stale: int) -> None:
    cell = some.cell(guards, scenario)
    assert (cell.status, cell.stale_slots_read) == (status, stale)


def test_every_leak_read_stale_slots(some: Matrix) -> None:
    """Nothing leaks out of thin air; and h alone shows that reading is not yet leaking."""
    for cell in (*some.cells, *some.streamed):
        assert cell.leaked == (cell.verdict == "leaks")
        assert cell.stale_slots_read > 0 if cell.leaked else True


def test_all_guards_but_g_leak_a_late_write(some: Matrix) -> None:
    """Seven guards of eight, and a stranger's words come out. Only a fence on the write stops an old writer."""
    assert some.cell("abcdefh", "late-write").verdict == "leaks"
    assert all(some.covers(all_but(one)) for one in "abcdfh")


def test_all_guards_but_e_answer_a_short_transfer_wrongly(some: Matrix) -> None:
    """f reads the 16 positions that came, so g has nothing stale to notice: an answer to another prompt, status 200."""
    assert some.cell(all_but("e"), "short-transfer").verdict == "wrong"


def test_a_quiet_guard_silences_a_loud_one(some: Matrix) -> None:
    """g alone refuses loudly; with f, nothing stale is read any more, so nobody notices that the answer is nonsense."""
    assert some.cell("g", "over-length").verdict == "refused"
    assert some.cell("fg", "over-length").verdict == "wrong"


def test_covering(some: Matrix) -> None:
    """The design expected e and g. g and h do as well: h hears of the lost abort, and g of everything else."""
    assert some.covers("eg") and some.covers("gh") and some.covers("abcdefgh")
    assert not any(some.covers(guards) for guards in [*ONE_OR_NONE, "ef", "eh", "fg"])


def test_right_cluster_is_right(laboratory: Laboratory) -> None:
    """The right engine under a wire that works: refused where it must be, the same tokens as alone elsewhere."""
    for scenario in (*SCENARIOS.values(), STREAMED):
        ending = laboratory.right(scenario)
        attacked = "length" in scenario.name or scenario.equal_pools
        assert ending.status == (400 if attacked else 200)
        assert len(ending.token_ids) == (0 if attacked else ORDINARY_ANSWER)


def test_streamed_covering(some: Matrix) -> None:
    """Read along, the smallest set must have e: with g and h one token of nonsense is out before anything is read."""
    assert some.cell("eg", STREAMED.name).verdict == "refused" and some.cell("gh", STREAMED.name).verdict == "wrong"


def test_learners_parts_play_scenarios(laboratory: Laboratory) -> None:
    """A scenario runs on any cluster; without a wire that can fail it is an ordinary request."""
    cluster = build(POCKET, laboratory.model, Cluster)
    ending = SCENARIOS["late-write"].run(cluster, laboratory.prompts())
    assert ending == laboratory.right(SCENARIOS["late-write"])
    cluster.check()


def test_scenarios_are_causes(laboratory: Laboratory) -> None:
    """The same defects, an ordinary request, a wire that works: the right answer. The fault is the scenario's."""
    cluster = laboratory.cluster("")
    (done,) = cluster.generate([laboratory.prompts().ordinary], PARAMS)
    assert done.token_ids == laboratory.right(SCENARIOS["short-transfer"]).token_ids


def test_shifts_change_the_past_only(laboratory: Laboratory) -> None:
    sent = [laboratory.prompts(shift) for shift in SHIFTS]
    assert len({each.stranger for each in sent}) == len(SHIFTS)
    assert len({(each.attack, each.ordinary, each.answer_tokens) for each in sent}) == 1
    assert len(sent[0].ordinary) == len(sent[0].stranger) == ORDINARY_TOKENS
    tensors = [laboratory.cluster("", shift=shift).decode.pool.keys[0] for shift in SHIFTS]
    assert all(not tensors[0].equal(other) for other in tensors[1:])


def test_runs_repeat(laboratory: Laboratory) -> None:
    for guards, name in (("", "over-length"), ("e", "late-write"), ("", "duplicate")):
        first, second = (laboratory.run(guards, SCENARIOS[name]) for _ in range(2))
        assert first == second and first.token_ids


def test_lost_abort_keeps_its_pages(laboratory: Laboratory) -> None:
    """Whoever waits for ever holds pages for ever; told, both sides have them back."""
    for guards, held in (("", 5), ("e", 0), ("h", 0)):
        cluster = laboratory.cluster(guards)
        SCENARIOS["lost-abort"].run(cluster, laboratory.prompts())
        pool = cluster.decode.pool
        assert pool.num_pages - pool.num_free == held
        assert cluster.prefill.pool.num_free == cluster.prefill.pool.num_pages


@pytest.mark.parametrize("guards", ["", "e", "g", "eg", "abcdefgh"])
def test_others_are_served_meanwhile(laboratory: Laboratory, guards: str) -> None:
    """Whatever the scenario did, an ordinary request afterwards gets the right answer."""
    right = laboratory.right(SCENARIOS["short-transfer"]).token_ids
    for scenario in SCENARIOS.values():
        if scenario.equal_pools:
            continue
        cluster = laboratory.cluster(guards)
        scenario.run(cluster, laboratory.prompts())
        cluster.wire = Wire()
        number = cluster.submit(laboratory.prompts().ordinary, PARAMS)
        for _ in range(40):
            cluster.step()
            if cluster.requests[number].answered:
                break
        assert cluster.result(number).token_ids == right, scenario.name


def test_unknown_guards(laboratory: Laboratory) -> None:
    with pytest.raises(ConfigError, match="unknown guards"):
        laboratory.cluster("ez")


def test_letters() -> None:
    assert list(DEFECTS) == list(GUARDS) == list("abcdefgh")
    assert len(ALL_GUARDS) == len(set(ALL_GUARDS)) == 256
    assert set(MEANS) == set(LETTERS) and set(LETTERS) >= COVERED
    assert len(set(LETTERS.values())) == len(LETTERS)


# Pictures and output


def test_pictures(some: Matrix) -> None:
    cells = [cell for cell in (*some.cells, *some.streamed) if len(cell.guards) < 2]
    drawn = one_guard_map(cells, GUARDS)
    assert drawn.text.count("\n") == len(ONE_OR_NONE) and "the worst status" in drawn.text
    assert drawn.table.count("<tr>") == 1 + len(ONE_OR_NONE) and "L leaks" in drawn.table
    (heatmap,) = drawn.figure.data
    assert [len(row) for row in heatmap.text] == [7] * 9


def test_map_of_all() -> None:
    """From made-up results, to see that each stands in its place."""
    cells = [Cell(g, "s", 200, 0, "e" in g, "leaks" if "e" in g else "right") for g in ALL_GUARDS]
    drawn = matrix_map(cells)
    (heatmap,) = drawn.figure.data
    letters = [letter for row in heatmap.text for letter in row]
    assert letters.count("L") == letters.count("R") == 128
    assert heatmap.text[0][0] == "R" and heatmap.text[0][1] == "L"
    assert "all sets" in drawn.text and "<td>128</td>" in drawn.table
    with pytest.raises(ValueError, match="no result for t with the guards a"):
        one_guard_map([*cells, replace(cells[0], scenario="t")], {})
    with pytest.raises(ValueError, match="run the matrix first"):
        one_guard_map([], {})
    with pytest.raises(ValueError, match="no verdict"):
        one_guard_map([replace(cells[0], verdict="fine")], {})  # type: ignore[arg-type]


def test_flags_that_do_not_fit() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "minikv", "incident", "--matrix", "--prompt-tokens", "31"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1 and "leave --scale and --prompt-tokens out" in done.stderr and not done.stdout


@pytest.mark.slow
def test_command(some: Matrix) -> None:
    """`minikv incident --matrix --json` prints one object, in which every combination meets every scenario once."""
    done = subprocess.run(
        [sys.executable, "-m", "minikv", "incident", "--matrix", "--json"], capture_output=True, text=True, timeout=580
    )
    assert done.returncode == 0 and done.stderr == ""
    printed = json.loads(done.stdout)
    assert printed["scenarios"] == list(SCENARIOS)
    assert len(printed["combinations"]) == 256 * 6 and len(printed["streamed"]) == 256
    assert {(each["guards"], each["scenario"]) for each in printed["combinations"]} == {
        (guards, name) for guards in ALL_GUARDS for name in SCENARIOS
    }
    assert printed["smallest_covering_sets"] == ["eg", "gh"]
    whole = Matrix(
        tuple(printed["scenarios"]),
        tuple(Cell(**each) for each in printed["combinations"]),
        tuple(Cell(**each) for each in printed["streamed"]),
    )
    for cell in (*some.cells, *some.streamed):
        assert whole.cell(cell.guards, cell.scenario) == cell
    covering = {guards for guards in ALL_GUARDS if whole.covers(guards)}
    # g, and somebody who hears of the lost abort; but where only h hears it, f must not silence g.
    assert covering == {g for g in ALL_GUARDS if "g" in g and ("e" in g or ("h" in g and "f" not in g))}
