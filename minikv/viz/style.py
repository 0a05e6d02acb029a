"""Settings of plotly that every figure of ours wants."""

from __future__ import annotations


def quiet_toolbar() -> None:
    """No logo, and no button that offers to upload the figure."""
    import plotly.io as pio

    config = {"showSendToCloud": False, "displaylogo": False}
    for name in ("plotly_mimetype", "plotly_mimetype+png"):
        if name in pio.renderers:
            pio.renderers[name].config = config
