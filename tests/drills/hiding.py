"""Makes a Python process believe that some packages are not installed."""

from __future__ import annotations

from pathlib import Path

_SITE = """
import importlib.abc, importlib.metadata, sys

HIDDEN = {hidden!r}


class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else self.finder.find_spec(name, path, target)

    def find_distributions(self, context=importlib.metadata.DistributionFinder.Context()):
        find = getattr(self.finder, "find_distributions", None)
        found = find(context) if find else ()
        return (one for one in found if one.metadata["Name"].replace("-", "_").lower() not in HIDDEN)

    def invalidate_caches(self):
        getattr(self.finder, "invalidate_caches", lambda: None)()


sys.meta_path = [Without(finder) for finder in sys.meta_path]
"""


def without(folder: Path, *packages: str) -> str:
    """A folder to put first on PYTHONPATH: in such a process these packages cannot be found."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_SITE.format(hidden={name.replace("-", "_").lower() for name in packages}))
    return str(folder)


def pretending(folder: Path, package: str, version: str) -> str:
    """A folder to put first on PYTHONPATH: in such a process this version of a package seems to be installed."""
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return str(folder)
