"""The learner's own copy of the course: `minikv course start`.

Cells that answer a prediction come without their output. What the learner has changed is never
overwritten: a newer version is put beside it as `NAME.new.ipynb`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from minikv.course.home import COPY, FOLDER, MANIFEST, write_text
from minikv.errors import MinikvError

FOLDERS = ("notebooks", "exercises", "assets")
_SKIPPED = {"src", ".ipynb_checkpoints", "__pycache__"}


class CourseNotFound(MinikvError, RuntimeError):
    """There is no checkout of the course to copy from."""


def start(target: str | Path | None = None, quiet: bool = False, source: Path | None = None) -> Path:
    """Make, or bring up to date, the learner's copy in `target`, and return its path.

    Without `target` it is the copy around the working directory if there is one, else `my_course` in it. `source` is
    the checkout of the course; without it, the one around the working directory or around the installed minikv. It
    may be read-only. Raises `CourseNotFound` when there is none.
    """
    course = source or checkout()
    place = Path(target).expanduser() if target else _around() or Path(COPY)
    inside = [course / folder for folder in FOLDERS if (course / folder).resolve() in place.resolve().parents]
    if inside:
        raise CourseNotFound(
            f"{place} is inside {inside[0].name}/ of the course. Choose a folder outside for your copy."
        )
    if place.resolve() == course.resolve():
        raise CourseNotFound(f"{place} is the course itself. Choose another folder for your copy.")
    handed_out = _read_manifest(place)
    for name, content in _files(course):
        told = _deliver(place, name, content, handed_out)
        if told and not quiet:
            print(told)
    (place / FOLDER).mkdir(parents=True, exist_ok=True)
    manifest = {"minikv": _version(), "files": handed_out}
    write_text(place / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    if not quiet:
        print(f"Your copy of the course is in {place}. Start with {place / 'notebooks' / '00_preflight.ipynb'}.")
    return place


def without_answers(notebook: str) -> str:
    """The text of a notebook with the outputs of its folded cells removed and these cells unfolded."""
    content = json.loads(notebook)
    for cell in content["cells"]:
        folding = cell.get("metadata", {}).get("jupyter", {})
        if folding.pop("outputs_hidden", False):
            cell["outputs"] = []
            cell["execution_count"] = None
            if not folding:
                del cell["metadata"]["jupyter"]
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _deliver(place: Path, name: str, content: bytes, handed_out: dict[str, str]) -> str:
    """Write one file unless that would destroy work; returns what to tell the learner, if anything."""
    digest = hashlib.sha256(content).hexdigest()
    path = place / name
    if not path.exists():
        _write(path, content)
        handed_out[name] = digest
        return ""
    present = _digest(path)
    if present in (digest, handed_out.get(name)):
        if present != digest:
            _write(path, content)
        handed_out[name] = digest
        return ""
    if handed_out.get(name) == digest:
        return ""  # changed by the learner, and there is no newer version
    beside = _beside(path, place, handed_out)
    _write(beside, content)
    handed_out[name] = handed_out[beside.relative_to(place).as_posix()] = digest
    return f"{name} was changed by you and stays. The newer version is beside it: {beside.name}"


def _beside(path: Path, place: Path, handed_out: dict[str, str]) -> Path:
    """A name for the newer version where the learner has changed nothing."""
    number = 1
    while True:
        beside = path.with_name(f"{path.stem}.new{number if number > 1 else ''}{path.suffix}")
        if not beside.exists() or _digest(beside) == handed_out.get(beside.relative_to(place).as_posix()):
            return beside
        number += 1


def _files(course: Path) -> Iterator[tuple[str, bytes]]:
    for folder in FOLDERS:
        for path in sorted((course / folder).rglob("*")):
            name = path.relative_to(course)
            if path.is_file() and not _SKIPPED.intersection(name.parts):
                content = path.read_bytes()
                if path.suffix == ".ipynb":
                    content = without_answers(content.decode("utf-8")).encode("utf-8")
                yield name.as_posix(), content


def checkout() -> Path:
    """The checkout of the course: around the working directory, or around the installed minikv."""
    here = Path.cwd()
    around = [here, *here.parents, Path(__file__).resolve().parents[2]]
    for folder in around:
        if (folder / "notebooks").is_dir() and (folder / "exercises").is_dir() and (folder / "minikv").is_dir():
            return folder
    raise CourseNotFound(
        "The notebooks of the course were not found. Run this in the folder that you cloned the course to."
    )


def learners_copy(target: str | Path | None = None) -> Path:
    """The learner's copy: `target`, or the one around the working directory, or `my_course` in it.

    Raises `CourseNotFound` when there is none.
    """
    place = Path(target).expanduser() if target else _around() or Path.cwd() / COPY
    if (place / MANIFEST).is_file():
        return place
    shown = target or COPY
    raise CourseNotFound(f"There is no copy of the course in {shown}. To make one: minikv course start {shown}")


def _around() -> Path | None:
    """The copy of the course that the working directory lies in, if it does."""
    here = Path.cwd()
    return next((place for place in (here, *here.parents) if (place / MANIFEST).is_file()), None)


def _read_manifest(place: Path) -> dict[str, str]:
    try:
        files = json.loads((place / MANIFEST).read_text(encoding="utf-8"))["files"]
        return {str(name): str(digest) for name, digest in files.items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _version() -> str:
    try:
        return metadata.version("minikv")
    except metadata.PackageNotFoundError:
        return "not installed"
