"""For authors: draw `assets/demo.svg`, the story that `make demo` tells, from a run of the real model.

python tools/build_assets.py
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from rich.console import CONSOLE_SVG_FORMAT, Console

from minikv.incident.replay import replay
from minikv.incident.scales import ARTICLE
from minikv.incident.story import WIDTH, Progress, tell

TARGET = Path(__file__).resolve().parent.parent / "assets" / "demo.svg"
COLUMNS = WIDTH + 4  # the page map's legend in one line


class Wrapping(Console):
    """Wraps every line: one that a terminal would go on with in the next line, a picture cuts off."""

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        """Print, and wrap what is too long."""
        super().print(*objects, soft_wrap=False, **options)


def main() -> None:
    """Run the incident at article scale and keep what the terminal shows."""
    with Progress() as say:
        report = replay(ARTICLE, say=say)
    console = Wrapping(record=True, width=COLUMNS, highlight=False, file=io.StringIO())
    tell(report, console)
    no_web_fonts = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    svg = console.export_svg(title="make demo", code_format=no_web_fonts, unique_id="demo")
    TARGET.write_text(re.sub(r"[ \t]+\n", "\n", svg), encoding="utf-8")
    print(f"wrote {TARGET.relative_to(TARGET.parent.parent)}")


if __name__ == "__main__":
    main()
