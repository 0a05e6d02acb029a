"""Chapter 10, beside its answers (test_answers.py): guards in the cluster, the echo, the stand, parts asked alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from minikv.course.chapters import ch10
from minikv.course.chapters.ch06 import admit
from minikv.course.chapters.ch07 import receive
from minikv.course.chapters.echo_10 import BACK
from minikv.course.chapters.ex_10_1 import cell
from minikv.course.chapters.ex_10_2 import NEEDS
from minikv.course.chapters.stand_10 import OWN, SAID_AS, TEXTS, Stand, canaries, model
from minikv.course.seats.guards import AsHistory, GuardedCluster
from minikv.incident.matrix import Laboratory
from minikv.incident.scenarios import SCENARIOS, STREAMED

ROOT = Path(__file__).resolve().parents[2]
ALL = (*SCENARIOS.values(), STREAMED)


@pytest.fixture(scope="module")
def laboratory() -> Laboratory:
    return Laboratory()


def row(make: Any, **settings: Any) -> list[tuple[str, int | None, int]]:
    cells = [cell(make, scenario, **settings) for scenario in ALL]
    return [(seen.verdict, seen.status, seen.stale_slots_read) for seen in cells]


def of_matrix(laboratory: Laboratory, guards: str) -> list[tuple[str, int | None, int]]:
    cells = [laboratory.cell(guards, scenario) for scenario in ALL]
    return [(seen.verdict, seen.status, seen.stale_slots_read) for seen in cells]


class Fence:
    def __init__(self) -> None:
        self.now: dict[int, object] = {}

    def lend(self, page: int) -> object:
        self.now[page] = object()
        return self.now[page]

    def write(self, page: int, ticket: object) -> bool:
        return self.now[page] is ticket


class Worst:
    def status(self, prefill: int | None, decode: int | None) -> int | None:
        return prefill if prefill is not None and prefill >= 400 else decode


def test_without_guards_the_guarded_cluster_is_history(laboratory: Laboratory) -> None:
    assert row(AsHistory, door=None, receiver=None) == of_matrix(laboratory, "")


def test_the_worst_status_is_guard_h(laboratory: Laboratory) -> None:
    assert row(Worst, door=None, receiver=None) == of_matrix(laboratory, "h")


def test_a_door_that_knows_every_pool_is_guard_d_and_two_that_know_their_own_are_none(laboratory: Laboratory) -> None:
    assert row(ch10.OneTruth, door=admit, receiver=None) == of_matrix(laboratory, "d")
    assert row(AsHistory, door=admit, receiver=None) == of_matrix(laboratory, "")


def test_a_receiver_is_guard_e_but_tells_nobody_of_aborts(laboratory: Laboratory) -> None:
    mine, theirs = row(AsHistory, door=None, receiver=receive), of_matrix(laboratory, "e")
    lost = list(SCENARIOS).index("lost-abort")
    assert mine.pop(lost)[0] == "hangs" and theirs.pop(lost)[0] == "refused"
    assert mine == theirs


def test_a_fence_stops_the_late_writer_and_nothing_else() -> None:
    late = list(SCENARIOS).index("late-write")
    with_fence, without = row(Fence, door=None, receiver=None), row(AsHistory, door=None, receiver=None)
    assert with_fence.pop(late) == ("right", 200, 0) and without.pop(late)[0] == "leaks"
    assert with_fence == without


def test_the_reference_guards_leave_nothing_open_and_each_is_needed() -> None:
    assert {verdict for verdict, _status, _stale in row(ch10.MyGuards)} <= {"right", "refused"}
    for name, open_scenario in (("write", "late-write"), ("status", "lost-abort")):
        less = type("Less", (ch10.MyGuards,), {name: getattr(AsHistory, name)})
        seen = {scenario.name: cell(less, scenario).verdict for scenario in ALL}
        assert [each for each, verdict in seen.items() if verdict not in ("right", "refused")] == [open_scenario]


def test_tickets_are_asked_for_handoffs_in_time_too() -> None:
    class Closed:
        def write(self, page: int, ticket: object) -> bool:
            return False

    assert cell(Closed, SCENARIOS["duplicate"]).verdict == "refused"


def test_the_echo_says_what_stands_five_words_back() -> None:
    from minikv import Engine, SamplingParams

    words = OWN.split()[:12]
    engine = Engine(model(), page_size=4, num_pages=16)
    (answer,) = engine.generate([" ".join(words)], SamplingParams(max_tokens=10, ignore_eos=True))
    for _ in range(10):
        back = words[len(words) - 1 - BACK]
        words.append(SAID_AS.get(back, back))
    assert answer.text.split() == words[12:]
    engine.check()


def test_the_echo_is_the_same_in_transformers() -> None:
    import torch

    ids = model().encode(OWN)
    with torch.no_grad():
        said = model().hf(input_ids=torch.tensor([ids])).logits[0, -1].argmax().item()
    back = OWN.split()[len(ids) - 1 - BACK]
    assert model().decode([int(said)]) == SAID_AS.get(back, back)


def test_each_harmful_set_harms_and_none_of_it_may_be_missing(laboratory: Laboratory) -> None:
    """`nonsense` for the one that is about nonsense; else a leak, or a wait without end."""
    for name, defects in ch10.HARMFUL.items():
        scenario = STREAMED if name.endswith("read along") else SCENARIOS[name.partition(",")[0]]
        harm = {"over-length, with nonsense": "wrong", "lost-abort": "hangs"}.get(name, "leaks")

        def verdict(without: str, defects: str = defects, scenario: Any = scenario) -> str:
            guards = "".join(letter for letter in ch10.DEFECTS if letter not in defects or letter == without)
            return laboratory.cell(guards, scenario).verdict

        assert verdict("") == harm, name
        assert all(verdict(letter) != harm for letter in defects), name


def test_on_the_stand_each_leaking_set_says_a_strangers_word_and_no_whole_secret() -> None:
    for name in ch10.HARMFUL:
        if name in ("lost-abort", "over-length, with nonsense"):
            continue
        server = ch10.stand_of(name).start(wire=NEEDS.get(name, "works"))
        server.visit(*TEXTS)
        answer = server.ask(31 if name.startswith("over-length") else 18, stream=True)
        assert any(word in canaries(each) for word in answer.words for each in TEXTS), (name, answer)
        assert not any(secret in answer.text for secret in ch10.SECRETS.values()), (name, answer)


def test_the_right_engine_says_nothing_of_a_stranger_for_any_length() -> None:
    for tokens in range(1, 40):
        server = Stand(None).start()
        server.visit(*TEXTS)
        answer = server.ask(tokens, stream=True)
        assert not any(word in canaries(each) for word in answer.words for each in TEXTS), answer
        assert answer.status == (200 if tokens + ch10.ANSWER - 1 <= 28 else 400)


def test_the_tenants_texts_are_as_long_as_both_doors_take_and_hold_their_secrets() -> None:
    for name, text in TEXTS.items():
        assert len(text.split()) == 21 and ch10.SECRETS[name] in text


QUESTIONS: Mapping[str, tuple[str, tuple[int, ...], object]] = {
    "a": ("refuse", (18,), (1, True)),
    "b": ("enter", (True,), True),
    "c": ("room", (1, 31), True),
    "d": ("door", (31, 8), True),
    "e": ("take", (18, 18, 4), True),
    "f": ("readable", (18, 4), 18),
    "g": ("write", (True,), True),
    "h": ("status", (400, 200), 200),
}


def test_each_defect_shows_at_one_part_and_at_no_other() -> None:
    right = {letter: getattr(ch10.Parts(), method)(*given) for letter, (method, given, _) in QUESTIONS.items()}
    for defect in ch10.DEFECTS:
        parts = ch10.Parts(defect)
        for letter, (method, given, wrong) in QUESTIONS.items():
            expected = wrong if letter == defect else right[letter]
            assert getattr(parts, method)(*given) == expected, (defect, method)
            assert wrong != right[letter]


@pytest.mark.slow
def test_the_smallest_sets_of_the_real_map_are_found_from_its_data() -> None:
    """Rows of the run for the sets that matter, so that this takes seconds: the fewest, and all that are smaller."""
    from minikv.incident.matrix import ALL_GUARDS, run_matrix

    few = [guards for guards in ALL_GUARDS if len(guards) <= 2]
    matrix = run_matrix(few)
    data = {"scenarios": list(matrix.scenarios), "combinations": [vars(seen) for seen in matrix.cells]}
    assert ch10.smallest_sets(data) == ["eg", "gh"]


def test_a_bet_is_compared_row_by_row(capsys: pytest.CaptureFixture[str], laboratory: Laboratory) -> None:
    names = {"f": "read only what is written", "g": "generations"}
    cells = {letter: laboratory.cell(letter, SCENARIOS["over-length"]) for letter in names}
    ch10.compare_bets(cells, {"f": "nyy", "g": "NYY", "a": "..."}, names)
    said = capsys.readouterr().out
    assert "nyy, otherwise" in said and "rows as you said: 1 of 2" in said
    ch10.compare_bets(cells, {"f": "...", "g": 7}, names)
    assert "you made no bet" in capsys.readouterr().out


def test_guards_cost_less_than_a_hundredth_of_the_time() -> None:
    from minikv import load_model

    share, calls = ch10.share_of_guards(ch10.MyGuards, load_model("tiny-random"))
    assert calls > 100 and share < 0.01


def test_parts_of_the_learner_fit_beside_the_guards() -> None:
    """Other right designs of allocator, door and receiver: the incident stays closed, ordinary requests are served."""
    from minikv import NodeConfig, SamplingParams, load_model
    from minikv.course.chapters.ch03 import Allocator

    cluster = GuardedCluster(
        load_model("tiny-random"),
        guards=ch10.MyGuards(),
        admit=admit,
        receive=receive,
        allocator=Allocator,
        prefill=NodeConfig(num_pages=7),
        decode=NodeConfig(num_pages=16),
        page_size=4,
        context_length=512,
    )
    prompts = [list(range(1, 1 + n)) for n in (3, 18, 21, 31, 5, 18)]
    answers = cluster.generate(prompts, SamplingParams(max_tokens=8, ignore_eos=True))
    assert [answer.status for answer in answers] == [200, 200, 200, 400, 200, 200]
    cluster.check()


def test_numbers_in_the_lesson_are_printed_by_a_cell_or_have_a_source() -> None:
    """Each number of three digits or more in the prose, with where it comes from if no cell prints it."""
    import nbformat

    book = nbformat.read(ROOT / "notebooks" / "10_the_fix.ipynb", as_version=4)
    printed = " ".join(
        output.text for one in book.cells for output in one.get("outputs", []) if output.output_type == "stream"
    )
    sources = {
        "256": "sets of eight guards, 2 to the power of 8; printed as well",
        "2014": "the year of CVE-2014-0160",
        "0160": "its number",
        "16,384": "the length asked for by the first published proof of CVE-2014-0160 (0x4000)",
        "0.5.20": "facts/incident.md, 2.1",
        "0.5.21": "facts/incident.md, 2.1",
        "0.5.23": "facts/incident.md, 2.2",
        "4xx": "a class of statuses",
    }
    for one in book.cells:
        if one.cell_type == "markdown":
            plain = re.sub(r"\]\([^)]*\)|`[^`]*`|\d+ minutes", "", one.source)
            for number in re.findall(r"\b\d[\d,.]*\d\d\b|\b\d\.\d\.\d+\b", plain):
                assert number in sources or number.rstrip(",.") in printed, (number, one.source[:60])
