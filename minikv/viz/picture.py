"""What every picture is: a table and a figure that say the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Picture:
    """A table and a figure from the same run. A notebook shows both.

    Attributes:
        table: HTML with a caption: what every viewer shows and a screen reader reads.
        figure: drawn by plotly, with a slider where there is more than one moment.
        text: the table in plain letters.
    """

    table: str
    figure: go.Figure
    text: str

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        display(HTML(self.table))  # type: ignore[no-untyped-call]
        display(self.figure)  # type: ignore[no-untyped-call]
