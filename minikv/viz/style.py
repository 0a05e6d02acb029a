"""Settings of plotly that every figure of ours wants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

QUIET = {"showSendToCloud": False, "displaylogo": False}  # no logo, and no button that offers to upload the figure


def quiet_toolbar() -> None:
    """No logo and no upload button in figures that are shown from now on; a widget takes `QUIET` itself."""
    import plotly.io as pio

    for name in ("plotly_mimetype", "plotly_mimetype+png"):
        if name in pio.renderers:
            pio.renderers[name].config = QUIET


def slider_steps(labels: Iterable[str], first: int = 0, **mode: Any) -> list[dict[str, Any]]:
    """Steps of a slider, one a frame; frames are named by numbers, from `first` on. `mode` adds to how they change."""
    at_once = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, **mode}
    return [
        {"label": label, "method": "animate", "args": [[str(index)], at_once]}
        for index, label in enumerate(labels, first)
    ]


def bands(colours: Sequence[str]) -> list[list[Any]]:
    """A colour scale of one band for each state, for a heatmap whose numbers go from 0 to one less than there are."""
    scale: list[list[Any]] = []
    for index, colour in enumerate(colours):
        scale += [[index / len(colours), colour], [(index + 1) / len(colours), colour]]
    return scale
