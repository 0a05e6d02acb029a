"""Preflight: every line has a fix, and the lines say which side lacks what."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

from minikv.course import lab_server
from minikv.course.lab_server import EXTENSIONS, LabServer, missing_from_page
from minikv.course.preflight import LOOKS, MANIFEST, Line, preflight

pytestmark = pytest.mark.usefixtures("learner")

Out = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

pre = sys.modules["minikv.course.preflight"]  # the attribute of that name is the function


@pytest.fixture
def all_well(monkeypatch: Patch) -> None:
    for name in LOOKS:
        monkeypatch.setitem(LOOKS, name, lambda: Line("OK", "1.2.3, from /somewhere"))


def versions(monkeypatch: Patch, **there: str | None) -> None:
    real = metadata.version

    def version(name: str) -> str:
        found = there.get(name, "unchanged")
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return real(name) if found == "unchanged" else found

    monkeypatch.setattr(metadata, "version", version)


def test_it_never_raises_and_has_a_line_for_everything(capsys: Out) -> None:
    ready = preflight()
    out = capsys.readouterr().out
    assert isinstance(ready, bool)
    for name in LOOKS:
        assert any(line.split(maxsplit=1)[1].startswith(name) for line in out.splitlines() if line[0] != " ")


@pytest.mark.usefixtures("all_well")
def test_without_details_there_are_words_only(capsys: Out) -> None:
    assert preflight(details=False) is True
    out = capsys.readouterr().out
    assert out.splitlines() == [f"OK    {name}" for name in LOOKS] + ["You can start."]


@pytest.mark.usefixtures("all_well")
def test_a_stop_is_told_with_its_fix(monkeypatch: Patch, capsys: Out) -> None:
    monkeypatch.setitem(LOOKS, "torch", lambda: Line("STOP", "not found", "pip install torch"))
    assert preflight(details=False) is False
    out = capsys.readouterr().out
    assert "STOP  torch\n    -> pip install torch" in out and "Please fix this first: torch." in out


@pytest.mark.usefixtures("all_well")
def test_a_look_that_fails_is_a_warning(monkeypatch: Patch, capsys: Out) -> None:
    monkeypatch.setitem(LOOKS, "gpu", lambda: 1 / 0)  # type: ignore[return-value, arg-type]
    assert preflight() is True
    assert "WARN  gpu" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("5.16.9", "STOP"),
        ("5.17", "OK"),
        ("5.99.1", "OK"),
        ("6.0.0", "STOP"),
        ("6.0.0rc1", "STOP"),
        (None, "STOP"),
    ],
)
def test_transformers_range(version: str | None, state: str, monkeypatch: Patch) -> None:
    versions(monkeypatch, transformers=version)
    line = LOOKS["transformers"]()
    assert line.state == state and ('install "transformers>=5.17,<6"' in line.do) == (state == "STOP")


@pytest.mark.parametrize(("version", "state"), [("2.10.1", "STOP"), ("2.11.0+cpu", "OK"), (None, "STOP")])
def test_torch_range(version: str | None, state: str, monkeypatch: Patch) -> None:
    versions(monkeypatch, torch=version)
    assert LOOKS["torch"]().state == state


def test_an_old_python(monkeypatch: Patch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    line = LOOKS["python"]()
    assert line.state == "STOP" and "3.11" in line.do


def test_a_second_minikv_is_named(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    stale = tmp_path / "site" / "minikv"
    stale.mkdir(parents=True)
    (stale / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(stale.parent)])
    line = LOOKS["minikv"]()
    assert line.state == "WARN" and str(stale) in line.do


def test_notebooks_of_another_checkout(tmp_path: Path, monkeypatch: Patch) -> None:
    for folder in ("minikv", "notebooks"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    line = LOOKS["minikv"]()
    assert line.state == "STOP" and str(tmp_path / "minikv") in line.do and "pip install -e" in line.do


def test_a_copy_made_with_another_version(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps({"minikv": "0.0.1", "files": {}}))
    monkeypatch.chdir(tmp_path)
    line = LOOKS["minikv"]()
    assert line.state == "WARN" and "0.0.1" in line.do


@pytest.mark.parametrize(("status", "state"), [("ready", "OK"), ("packed", "WARN"), ("missing", "STOP")])
def test_the_model_line_is_the_weightss(status: str, state: str, monkeypatch: Patch) -> None:
    weights = ModuleType("minikv.models.weights")
    weights.weights_status = lambda: (status, "run minikv prepare")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, weights.__name__, weights)
    line = LOOKS["model"]()
    assert line.state == state and "un minikv prepare" in line.said + line.do


def test_little_memory_is_a_warning(monkeypatch: Patch) -> None:
    monkeypatch.setattr(pre, "_free_memory", lambda: 2 * 2**30)
    line = LOOKS["memory"]()
    assert line.state == "WARN" and "2.0 GB" in line.said and "tiny-random" in line.do


def test_free_memory_is_a_number_here() -> None:
    free = pre._free_memory()
    assert free is not None and free > 2**20


def test_the_kernels_side_lacks_anywidget(monkeypatch: Patch) -> None:
    versions(monkeypatch, anywidget=None)
    line = LOOKS["figures (kernel)"]()
    assert line.state == "WARN" and "kernel's side lacks anywidget" in line.said and "install anywidget" in line.do


def page(*extensions: str, off: dict[str, object] | None = None) -> str:
    config = {
        "federated_extensions": [{"name": name} for name in extensions],
        "disabledExtensions": off or {},
    }
    text = json.dumps(config)
    return f'<html><script id="jupyter-config-data" type="application/json">{text}</script></html>'


def test_reading_the_servers_page() -> None:
    assert missing_from_page(page(*EXTENSIONS)) == ()
    assert missing_from_page(page("anywidget")) == ("plotly", "ipywidgets")
    assert missing_from_page(page(*EXTENSIONS, off={"anywidget": True})) == ("anywidget",)
    assert missing_from_page("<html>please log in</html>") is None


def test_the_servers_side(monkeypatch: Patch) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert LOOKS["figures (server)"]().state == "OK"
    monkeypatch.setenv("JPY_SESSION_NAME", "x.ipynb")
    monkeypatch.setattr(pre, "ask_server", lambda: None)
    assert "could not be asked" in LOOKS["figures (server)"]().said
    monkeypatch.setattr(pre, "ask_server", lambda: LabServer("http://127.0.0.1:1/", ("plotly",)))
    line = LOOKS["figures (server)"]()
    assert line.state == "WARN" and "server's side" in line.said and "not in the kernel" in line.do
    monkeypatch.setattr(pre, "ask_server", lambda: LabServer("http://127.0.0.1:1/", ()))
    assert LOOKS["figures (server)"]().state == "OK"


def test_no_server_to_be_found(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    assert lab_server.ask_server() is None
