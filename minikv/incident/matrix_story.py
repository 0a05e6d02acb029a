"""The guard matrix in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from minikv.incident.defects import GUARDS
from minikv.incident.matrix import ALL_GUARDS, Matrix, run_matrix
from minikv.incident.scenarios import SCENARIOS, STREAMED
from minikv.viz.matrix import matrix_map, one_guard_map


def run_with_progress() -> Matrix:
    """The whole matrix, with a bar on standard error if that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("guards against scenarios", total=len(ALL_GUARDS) * (len(SCENARIOS) + 1))
        return run_matrix(advance=lambda: bar.advance(task))


def tell(matrix: Matrix, console: Console | None = None) -> None:
    """Print the eight rows, the map, and the smallest sets that cover everything; by default on standard output."""
    console = console or Console(highlight=False, soft_wrap=True, width=120)
    cells = [*matrix.cells, *matrix.streamed]
    console.rule("[bold]Eight guards against six scenarios, at pocket scale", align="left")
    for scenario in (*SCENARIOS.values(), STREAMED):
        console.print(f"{scenario.name:<22} {scenario.title}")
    console.print()
    console.rule("[bold]1. One guard on, seven defects left", align="left")
    for letter, guard in GUARDS.items():
        console.print(f"{letter}  {guard}")
    console.print()
    console.print(one_guard_map([cell for cell in cells if len(cell.guards) < 2], {}).text)
    console.print()
    console.rule("[bold]2. All 256 sets of guards: a to d down, e to h across", align="left")
    console.print(matrix_map(cells).text)
    console.print()
    console.rule("[bold]3. Which sets leave nothing open?", align="left")
    covering = sum(matrix.covers(guards) for guards in ALL_GUARDS)
    console.print(f"{covering} of {len(ALL_GUARDS)} sets cover all six scenarios. The smallest:")
    for guards in matrix.smallest_covering_sets():
        console.print(f"  {guards}: {'; '.join(GUARDS[letter] for letter in guards)}")
