"""What a run of a program or a notebook gave."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ran:
    """How a program ended, what it printed on both outputs, and how long it took."""

    status: int
    said: str
    seconds: float


def printed(notebook: Any) -> str:
    """All that the cells of a notebook printed."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.get("text", "") for output in outputs)


def errors(notebook: Any) -> list[str]:
    """The errors that its cells ended with."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [f"{output.ename}: {output.evalue}" for output in outputs if output.output_type == "error"]
