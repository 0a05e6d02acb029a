"""The house is as it was drawn: imports run downwards, files are short, and the door opens at once."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import time
import tokenize
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from minikv.memory import PagePool
from minikv.models.geometry import KVGeometry, LayerGeometry

ROOT = Path(__file__).parents[1] / "minikv"
FILES = sorted(ROOT.rglob("*.py"))

# Lower floors know nothing of higher ones; rooms on one floor may know each other.
FLOOR = {
    "errors": 0, "config": 0, "trace": 0,
    "models": 1, "memory": 1,
    "attention": 2,
    "lock": 3, "text": 3, "sampling": 3, "scheduling": 3,
    "parts": 4, "node": 4, "health": 4, "streaming": 4, "loop": 4, "frontend": 4, "engine": 4,
    "disagg": 5,
    "incident": 6, "audit": 6, "server": 6, "course": 6, "cli": 7, "__main__": 8, "__init__": 8,
}  # fmt: skip
ENGINE = {name for name, floor in FLOOR.items() if floor <= 5}
EXTRAS = {"plotly", "ipywidgets", "anywidget", "IPython", "fastapi", "uvicorn", "ray", "rich", "jupyterlab", "nbformat"}
NOT_COUNTED = {"attention/triton_backend.py", "disagg/ray_transport.py", "memory/formats.py", "memory/host.py"}


def room(path: Path) -> str:
    """The part of the house that a file is in: the first folder, or the file's own name."""
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported(path: Path) -> Iterator[str]:
    """Modules that a file imports anywhere; imports for types alone are not followed."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield str(node.module)
            if node.module == "minikv":
                yield from (f"minikv.{alias.name}" for alias in node.names)


def code_lines(path: Path) -> int:
    """Lines with code on them: no blank lines, comments or docstrings."""
    source = path.read_text()
    tree = ast.parse(source)
    docs: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docs.update(range(value.lineno, (value.end_lineno or value.lineno) + 1))
    lines: set[int] = set()
    no_code = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in no_code:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docs)


def test_code_lines_counts_code_only(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    docs = '"""Doc.\n\nMore."""\n\n# why\n'
    code = 'x = (\n    1,\n)  # so\n\n\ndef f() -> str:\n    """Doc."""\n    return """a\nb"""\n'
    file.write_text(docs + code)
    assert code_lines(file) == 6


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_run_downwards(path: Path) -> None:
    own = room(path)
    if own in ("viz", "__init__"):
        return
    assert own in FLOOR, f"{own} has no floor yet; DESIGN.md says where it belongs"
    for module in imported(path):
        if module.startswith("minikv."):
            other = module.split(".")[1]
            if other in FLOOR:
                assert FLOOR[other] <= FLOOR[own], f"{own} imports {module}, which is above it"
            elif other == "viz":
                assert FLOOR[own] >= 6, f"{own} imports {module}; pictures know the engine's trace, not the other way"


@pytest.mark.parametrize("path", [path for path in FILES if room(path) in ("errors", "config", "trace")], ids=name_of)
def test_ground_floor_knows_nobody(path: Path) -> None:
    """`errors`, `config` and `trace` import each other at most, and nothing heavy."""
    for module in imported(path):
        top = module.split(".")[0]
        assert top in sys.stdlib_module_names or module.split(".")[:2][-1] in ("errors", "config", "trace"), module


@pytest.mark.parametrize("path", [path for path in FILES if room(path) == "viz"], ids=name_of)
def test_pictures_come_from_the_trace(path: Path) -> None:
    for module in imported(path):
        if module.startswith("minikv."):
            assert module.split(".")[1] in ("trace", "viz", "errors"), f"viz imports {module}"


@pytest.mark.parametrize("path", [path for path in FILES if room(path) in ENGINE], ids=name_of)
def test_engine_imports_no_extras(path: Path) -> None:
    assert not {module.split(".")[0] for module in imported(path)} & EXTRAS


@pytest.mark.slow
def test_engine_runs_without_the_extras() -> None:
    """Not even by way of others."""
    code = (
        "import sys; import minikv; engine = minikv.Engine(minikv.load_model('tiny-random'), num_pages=4);"
        "engine.generate(['a']); print(sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert not set(ast.literal_eval(done.stdout)) & (EXTRAS - {"rich"})


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_file_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


def test_engine_can_be_read_in_a_sitting() -> None:
    """`pytest -s` shows how many lines of code it has: the rooms that DESIGN.md counts, and with the caller's side.

    Not counted: what looks on (`trace`, `health`), and the ground floor.
    """
    rooms = {"models", "memory", "attention", "scheduling", "engine", "sampling", "disagg"}
    others = {"node", "loop", "frontend", "parts", "streaming", "text", "lock"}
    assert rooms | others == ENGINE - {"errors", "config", "trace", "health"}
    counted = {path: code_lines(path) for path in FILES if name_of(path) not in NOT_COUNTED}
    proper = sum(lines for path, lines in counted.items() if room(path) in rooms)
    total = proper + sum(lines for path, lines in counted.items() if room(path) in others)
    print(f"engine proper: {proper} lines of code; with those of the caller's side: {total}")
    assert 1000 < proper < 2000
    assert total < 2600


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_globals_that_change(path: Path) -> None:
    """No `global` statement: two nodes live in one process."""
    assert not [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Global)]


def best_of_three(arguments: list[str]) -> float:
    def once() -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True, timeout=60)
        return time.perf_counter() - start

    return min(once() for _ in range(3))


def test_import_is_quick() -> None:
    assert best_of_three(["-c", "import minikv"]) < 0.5


def test_help_is_quick() -> None:
    assert best_of_three(["-m", "minikv", "--help"]) < 0.5


def seconds_per_round(pool: PagePool, rounds: int = 400) -> float:
    """Lend ten pages to each of three requests and take them back, over and over; the best of seven runs."""

    def run() -> float:
        start = time.perf_counter()
        for _ in range(rounds):
            for table in [pool.lend(owner, 10) for owner in range(3)]:
                pool.free(table)
        return time.perf_counter() - start

    return min(run() for _ in range(7)) / rounds


def test_cost_of_a_page_is_flat() -> None:
    """A thousand pages or a million: within a factor of two."""
    one_number = KVGeometry((LayerGeometry(kv_heads=1, key_dim=1, value_dim=1),))
    small, large = (seconds_per_round(PagePool(one_number, pages, 1)) for pages in (1_000, 1_000_000))
    assert large < 2 * small


def test_every_pin_can_be_installed_with_the_oldest_python() -> None:
    """Debian 12's own Python is 3.11.2: a pin that needs a later 3.11 would stop the set-up there."""
    pins = dict(re.findall(r"^([\w.-]+)==([\w.+-]+)", (ROOT.parent / "constraints.txt").read_text(), re.MULTILINE))
    needs = {one.metadata["Name"]: one.metadata["Requires-Python"] for one in distributions()}
    asked = {name: SpecifierSet(needs.get(name) or "") for name in pins}
    assert len(pins) > 100 and [name for name, range_ in asked.items() if "3.11.0" not in range_] == []
