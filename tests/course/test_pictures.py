"""Pictures in the committed notebooks: a table beside each, and no state that colour alone tells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLOTLY = "application/vnd.plotly.v1+json"


def pictures() -> Iterator[Any]:
    """Every cell with a figure: its place, its HTML, and its figures."""
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for number, cell in enumerate(cells):
            data = [output.get("data", {}) for output in cell.get("outputs", [])]
            figures = [one[PLOTLY] for one in data if PLOTLY in one]
            if figures:
                html = "".join(chain.from_iterable(one.get("text/html", "") for one in data))
                yield pytest.param(html, figures, id=f"{path.stem}-{number}")


PICTURES = list(pictures())


def flat(thing: Any) -> list[Any]:
    return list(chain.from_iterable(map(flat, thing))) if isinstance(thing, list) else [thing]


@pytest.mark.parametrize(("html", "figures"), PICTURES)
def test_a_table_with_a_caption_says_the_same(html: str, figures: list[Any]) -> None:
    assert html.count("<caption") >= len(figures) and "<th" in html


@pytest.mark.parametrize(("html", "figures"), PICTURES)
def test_no_state_by_colour_alone(html: str, figures: list[Any]) -> None:
    assert [problem for figure in figures for problem in told_by_colour_alone(figure)] == []


def test_colour_alone_is_noticed() -> None:
    cells = {"type": "heatmap", "z": [[1, 2]], "text": [["D", "D"]]}
    lines = [{"type": "scatter", "x": [1], "line": {"color": colour}} for colour in ("red", "green")]
    assert list(told_by_colour_alone({"data": [cells]})) and list(told_by_colour_alone({"data": lines}))
    assert not list(told_by_colour_alone({"data": [{**cells, "text": [["D", "P"]]}]}))


def told_by_colour_alone(figure: Any) -> Iterator[str]:
    """Shades that share a letter, and lines, bars or areas that differ in nothing but colour."""
    for traces in [figure["data"], *(frame["data"] for frame in figure.get("frames", []))]:
        for trace in traces:
            if trace["type"] == "heatmap" and "text" in trace:
                letters: dict[Any, set[str]] = {}
                for shade, letter in zip(flat(trace["z"]), flat(trace["text"]), strict=True):
                    letters.setdefault(shade, set()).add(letter)
                for one, other in combinations(letters, 2):
                    if letters[one] & letters[other]:
                        yield f"{letters[one] & letters[other]} stands for two states"
    marks = [mark(trace) for trace in figure["data"] if trace["type"] in ("scatter", "bar") and trace.get("x")]
    if len(set(marks)) != len(marks):
        yield f"two of {marks} differ in colour alone"


def mark(trace: dict[str, Any]) -> str:
    """What tells a line, a bar or an area from its neighbours when there are no colours."""
    marker = trace.get("marker", {})
    said = [trace.get("text"), trace.get("line", {}).get("dash"), marker.get("symbol"), marker.get("pattern")]
    return json.dumps([trace["type"], trace.get("mode"), *said, trace.get("fillpattern")], sort_keys=True)


def test_every_chapter_has_a_picture() -> None:
    found = {parameter.id.split("_")[0] for parameter in PICTURES}  # type: ignore[union-attr]
    assert found >= {f"{number:02d}" for number in range(1, 9)}
