"""The learner's own copy of the course: `minikv course start`.

Cells that answer a prediction come without their output. What the learner has changed is never
overwritten: a newer version is put beside it as `NAME.new.ipynb`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from minikv.course.home import COPY, FOLDER, MANIFEST, free_name, names_beside, write_whole
from minikv.errors import MinikvError

FOLDERS = ("notebooks", "exercises", "assets", "docs")
_COURSE = (*FOLDERS, "solutions", "minikv")  # of a checkout: no copy may lie in these, or lead into them
_SKIPPED = {"src", ".ipynb_checkpoints", "__pycache__", MANIFEST, FOLDER, COPY}


class CourseNotFound(MinikvError, RuntimeError):
    """There is no checkout of the course to copy from, or no place that a copy may be made in."""


def start(target: str | Path | None = None, quiet: bool = False, source: Path | None = None) -> Path:
    """Make, or bring up to date, the learner's copy in `target`, and return its path.

    Without `target` it is the copy around the working directory if there is one, else `my_course` in it. `source` is
    the checkout of the course; without it, the one around the working directory or around the installed minikv. It
    may be read-only. A start that was interrupted is finished by the next one. Raises `CourseNotFound` when there is
    no checkout, or when the copy would lie in it.
    """
    course = source or checkout()
    place = Path(os.path.expanduser(target)) if target else _around() or Path(COPY)
    _refuse_the_course_itself(course, place)
    handed_out = _read_manifest(place)
    for name, content in _files(course):
        obstacle = _obstacle(place, place / name)
        if obstacle:
            print(obstacle)
            continue
        before = dict(handed_out)
        told = _deliver(place, name, content, handed_out)
        if handed_out != before:
            _write_manifest(place, handed_out)  # after each file: an interrupted start knows what it has done
        if told and not quiet:
            print(told)
    (place / FOLDER).mkdir(parents=True, exist_ok=True)
    _write_manifest(place, handed_out)
    if not quiet:
        print(f"Your copy of the course is in {place}. Start with {place / 'notebooks' / '00_preflight.ipynb'}.")
    return place


def in_course(course: Path, path: Path) -> str:
    """The folder of the checkout that `path` is, lies in or leads into; "" if none."""
    real = Path(os.path.realpath(path))
    for folder in _COURSE:
        for around in (real, *real.parents):
            with contextlib.suppress(OSError):
                if os.path.samefile(around, course / folder):
                    return folder
    return ""


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


def _refuse_the_course_itself(course: Path, place: Path) -> None:
    if os.path.realpath(place) == os.path.realpath(course):
        raise CourseNotFound(f"{place} is the course itself. Choose another folder for your copy.")
    for path in (place, *(place / folder for folder in (*FOLDERS, FOLDER))):
        folder = in_course(course, path)
        if folder:
            raise CourseNotFound(f"{path} is inside {folder}/ of the course. Choose a folder outside for your copy.")
        if os.path.lexists(path) and not path.is_dir():
            raise CourseNotFound(f"{path} is not a folder. Move it away, or choose another folder for your copy.")


def _obstacle(place: Path, path: Path) -> str:
    """Why nothing can be put at `path`, in words; "" if it can."""
    stays = "It stays as it is, and the version of the course is left out."
    for folder in path.relative_to(place).parents:
        if os.path.lexists(place / folder) and not (place / folder).is_dir():
            return f"{place / folder} is not a folder. {stays}"
    if _leads_out(place, path):
        return f"{path} leads out of your copy. {stays}"
    if os.path.lexists(path) and not path.is_file():
        return f"{path} is not a file. {stays}"
    try:
        if path.exists():
            path.open("rb").close()
    except OSError as error:
        return f"{path} cannot be read ({error.strerror}). {stays}"
    return ""


def _leads_out(place: Path, path: Path) -> bool:
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(place))


def _deliver(place: Path, name: str, content: bytes, handed_out: dict[str, str]) -> str:
    """Write one file unless that would destroy work; returns what to tell the learner, if anything."""
    digest = hashlib.sha256(content).hexdigest()
    path = place / name
    if not path.exists():
        write_whole(path, content)
        handed_out[name] = digest
        return ""
    present = _digest(path)
    if present in (digest, handed_out.get(name)):
        if present != digest:
            write_whole(path, content)
        handed_out[name] = digest
        return ""
    if handed_out.get(name) == digest:
        return ""  # changed by the learner, and there is no newer version
    beside = _beside(path, place, handed_out, digest)
    if not beside.exists() or _digest(beside) != digest:
        write_whole(beside, content)
    handed_out[name] = handed_out[beside.relative_to(place).as_posix()] = digest
    return f"{name} was changed by you and stays. The newer version is beside it: {beside.name}"


def _beside(path: Path, place: Path, handed_out: dict[str, str], digest: str) -> Path:
    """A name for the newer version: one that is free, has it already, or where the learner has changed nothing."""
    for beside in names_beside(path, "new"):
        known = (digest, handed_out.get(beside.relative_to(place).as_posix()))
        if not os.path.lexists(beside) or (not _obstacle(place, beside) and _digest(beside) in known):
            break
    return beside


def _files(course: Path) -> Iterator[tuple[str, bytes]]:
    for folder in FOLDERS:
        for path in sorted((course / folder).rglob("*")):
            name = path.relative_to(course)
            if path.is_file() and not _SKIPPED.intersection(name.parts):
                content = path.read_bytes()
                if path.suffix == ".ipynb":
                    content = _without_answers(path, content)
                yield name.as_posix(), content


def _without_answers(path: Path, content: bytes) -> bytes:
    try:
        return without_answers(content.decode("utf-8")).encode("utf-8")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CourseNotFound(f"{path} cannot be read as a notebook. Fetch the course anew.") from error


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
    place = Path(os.path.expanduser(target)) if target else _around() or Path.cwd() / COPY
    if (place / MANIFEST).is_file():
        return place
    shown = target or COPY
    raise CourseNotFound(f"There is no copy of the course in {shown}. To make one: minikv course start {shown}")


def _around() -> Path | None:
    """The copy of the course that the working directory lies in, if it does."""
    here = Path.cwd()
    return next((place for place in (here, *here.parents) if (place / MANIFEST).is_file()), None)


def _read_manifest(place: Path) -> dict[str, str]:
    """What was handed out, by digest. A manifest that cannot be understood is put aside, and said so."""
    path = place / MANIFEST
    if not os.path.lexists(path):
        return {}
    try:
        if path.is_file() and not _leads_out(place, path):
            files = json.loads(path.read_text(encoding="utf-8"))["files"]
            return {str(name): str(digest) for name, digest in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    aside = path.rename(free_name(path, "old", first="1"))
    print(f"{path} could not be understood. It is now {aside.name}.")
    return {}


def _write_manifest(place: Path, handed_out: dict[str, str]) -> None:
    manifest = {"minikv": _version(), "files": handed_out}
    content = (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode("utf-8")
    path = place / MANIFEST
    if not path.exists() or path.read_bytes() != content:  # a copy that is up to date may be read-only
        write_whole(path, content)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _version() -> str:
    try:
        return metadata.version("minikv")
    except metadata.PackageNotFoundError:
        return "not installed"
