"""Is everything here? One line for each thing: OK, WARN (go on, you lose this) or STOP (do this)."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from minikv.config import TRANSFORMERS, version_numbers
from minikv.course.home import MANIFEST, home
from minikv.course.lab_server import EXTENSIONS, ask_server, started_by_a_server
from minikv.course.say import say

OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 11)
GIB = 2**30
MEMORY_GIB = 3
DISK_GIB = 2


@dataclass(frozen=True)
class Line:
    """One finding. `said` is the detail (versions, places); `do` is the fix, or what one loses."""

    state: str
    said: str
    do: str = ""


def preflight(details: bool = True) -> bool:
    """Look at everything that the course needs and print a line for each; True if nothing says STOP.

    `details=False` prints the words alone, without versions and places: the same on every machine that
    is in the same state.
    """
    lines = {name: _looked(look) for name, look in LOOKS.items()}
    for name, line in lines.items():
        head = f"{line.state:<5} {name}"
        say(
            f"{head:<26} {line.said}" if details else head,
            *([f"-> {line.do}"] if line.do and (details or line.state == "STOP") else []),
        )
    stops = [name for name, line in lines.items() if line.state == "STOP"]
    if stops:
        say(f"Please fix this first: {', '.join(stops)}. Then run this cell again.")
    else:
        say("You can start.")
    return not stops


def _looked(look: Callable[[], Line]) -> Line:
    try:
        return look()
    except Exception as error:
        return Line("WARN", f"could not be looked at ({type(error).__name__}: {error})", "Go on and see.")


def _python() -> Line:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Line("STOP", version, "Use Python 3.11 or newer: `make lab` makes an environment of its own.")
    return Line("OK", version)


def _minikv() -> Line:
    spec = importlib.util.find_spec("minikv")
    if spec is None or not spec.submodule_search_locations:
        return Line("STOP", "not found", f"In the folder of the course: {_pip('-e .')}")
    used = Path(next(iter(spec.submodule_search_locations))).resolve()
    version = _installed("minikv") or "not installed, found through the path"
    said = f"{version}, from {used}"
    here = next((up for up in _upwards() if (up / "minikv").is_dir() and (up / "notebooks").is_dir()), None)
    if here and (here / "minikv").resolve() != used:
        return Line("STOP", said, f"These notebooks belong to {here / 'minikv'}. {_pip(f'-e {here}')}")
    made_with = next(_made_with(), None)
    if made_with and made_with != version:
        return Line("WARN", said, f"Your copy is of minikv {made_with}. To update it: minikv course start")
    others = sorted(str(other) for other in _copies_on_path() - {used})
    if others:
        return Line("WARN", said, f"There is a second minikv, which is not used: {others[0]}. Remove it.")
    return Line("OK", said)


def _copies_on_path() -> set[Path]:
    folders = (Path(entry or ".") / "minikv" for entry in sys.path)
    return {folder.resolve() for folder in folders if (folder / "__init__.py").is_file()}


def _made_with() -> Iterator[str]:
    for up in _upwards():
        if (up / MANIFEST).is_file():
            yield str(json.loads((up / MANIFEST).read_text(encoding="utf-8")).get("minikv"))


def _torch() -> Line:
    version = _installed("torch")
    if version is None or version_numbers(version) < OLDEST_TORCH:
        fix = _pip('"torch>=2.11"')
        return Line("STOP", version or "not found", f"{fix} (the README has a line for CPU only)")
    return Line("OK", version)


def _transformers() -> Line:
    oldest, too_new = TRANSFORMERS
    version = _installed("transformers")
    if version is None or not oldest <= version_numbers(version) < too_new:
        said = f"{version} is not supported" if version else "not found"
        return Line("STOP", said, _pip('"transformers>=5.17,<6"'))
    return Line("OK", version)


def _gpu() -> Line:
    import torch

    if torch.cuda.is_available():
        return Line("OK", torch.cuda.get_device_name())
    return Line("WARN", "none, so the CPU computes", "You lose speed and nothing else.")


def _model() -> Line:
    from minikv.models.weights import weights_status

    state, message = weights_status()
    if state == "ready":
        return Line("OK", message)
    # Weights that are only packed are unpacked by whoever loads them first.
    return Line("WARN" if state == "packed" else "STOP", state, message[0].upper() + message[1:] + ".")


def _memory() -> Line:
    free = _free_memory()
    if free is None:
        return Line("WARN", "free memory is not known here", f"The course needs about {MEMORY_GIB} GB.")
    said = f"{free / GIB:.1f} GB free"
    if free < MEMORY_GIB * GIB:
        return Line("WARN", said, 'Close other programs and notebooks, or use load_model("tiny-random").')
    return Line("OK", said)


def _free_memory() -> int | None:
    """Bytes that this process may still take: of the machine, and of its container if there is one."""
    free: list[int] = []
    try:
        import psutil  # type: ignore[import-untyped]  # comes with ipykernel

        free.append(int(psutil.virtual_memory().available))
    except ImportError:
        meminfo = Path("/proc/meminfo")
        found = re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text()) if meminfo.exists() else None
        free += [int(found[1]) * 1024] if found else []
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
        cached = re.search(r"^inactive_file (\d+)", (group / "memory.stat").read_text(), re.MULTILINE)
        if limit != "max":
            free.append(int(limit) - int(used) + (int(cached[1]) if cached else 0))
    except OSError:
        pass  # no container, or another kind
    return min(free, default=None)


def _disk() -> Line:
    place = next(folder for folder in [home(), *home().absolute().parents] if folder.is_dir())
    free = shutil.disk_usage(place).free
    said = f"{free / GIB:.1f} GB free"
    if free < DISK_GIB * GIB:
        return Line("WARN", said, f"Make room: the model and your parts take up to {DISK_GIB} GB.")
    return Line("OK", said)


def _widgets_kernel() -> Line:
    found = {name: _installed(name) for name in EXTENSIONS.values()}
    missing = [name for name, version in found.items() if version is None]
    if missing:
        return Line(
            "WARN",
            f"the kernel's side lacks {', '.join(missing)}",
            f"You lose the live panels; tables stay. {_pip(' '.join(missing))}",
        )
    return Line("OK", ", ".join(f"{name} {version}" for name, version in found.items()))


def _widgets_server() -> Line:
    if not started_by_a_server():
        return Line("OK", "no Jupyter server started this kernel, so there is nothing to ask")
    server = ask_server()
    if server is None:
        return Line(
            "WARN",
            "the Jupyter server could not be asked",
            "If figures stay blank, its environment lacks plotly, ipywidgets or anywidget: install them "
            "there (on a hub, ask whoever runs it). Tables work without.",
        )
    if server.missing:
        return Line(
            "WARN",
            f"the server's side ({server.url}) lacks {', '.join(server.missing)}",
            "You lose figures or live panels; tables stay. Install these where Jupyter itself is installed "
            f"(not in the kernel): pip install {' '.join(server.missing)}. Then restart Jupyter.",
        )
    return Line("OK", "the server delivers what figures and live panels need")


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _upwards() -> list[Path]:
    return [Path.cwd(), *Path.cwd().parents]


def _pip(what: str) -> str:
    python = Path(sys.executable)
    shown = f'"{python}"' if " " in str(python) else str(python)
    return f"{shown} -m pip install {what}" if os.path.exists(python) else f"pip install {what}"


LOOKS: dict[str, Callable[[], Line]] = {
    "python": _python,
    "minikv": _minikv,
    "torch": _torch,
    "transformers": _transformers,
    "gpu": _gpu,
    "model": _model,
    "memory": _memory,
    "disk": _disk,
    "figures (kernel)": _widgets_kernel,
    "figures (server)": _widgets_server,
}
