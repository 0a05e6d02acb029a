"""What if: the lanes again, with sliders for what the run is made with."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from minikv.errors import BrokenRule
from minikv.trace import Event
from minikv.viz.lanes import Lanes, Run, lanes, run_of, table_of

_UNRUN = "Run this cell in Jupyter to move the sliders."

MakeRun = Callable[..., Iterable[Event]]


def lanes_panel(run: MakeRun, **sliders: tuple[int, int, int]) -> LanesPanel | FixedLanes:
    """Sliders and the lanes of the run that they make; without ipywidgets the lanes alone, and the reason.

    Args:
        run: takes a value for each slider, by name, and gives a trace.
        sliders: smallest and largest value, and the one to begin with; "_" in a name is shown as a space.
    """
    try:
        return LanesPanel(run, sliders)
    except ImportError as error:
        missing = error.name or "a package"
        start = {name: first for name, (_least, _most, first) in sliders.items()}
        reason = f"No sliders here, because {missing} is not installed."
        try:
            return FixedLanes(reason, lanes(run(**start)))
        except Exception as why:
            return FixedLanes(f"{reason} {_ended(why)}", None)


@dataclass(frozen=True)
class FixedLanes:
    """What is shown where sliders cannot be: the reason, and the picture that they begin with, if there is one."""

    reason: str
    picture: Lanes | None

    @property
    def text(self) -> str:
        return f"{self.reason}\n{self.picture.text}" if self.picture else self.reason

    def _ipython_display_(self) -> None:
        print(self.reason)
        if self.picture:
            self.picture._ipython_display_()


class LanesPanel:
    """Sliders that the arrow keys move, a line of text that says what they say, and the table of lanes.

    Attributes:
        boxes: the sliders, by name.
        line: the line of text, for those who hear it too.
        drawn: the table.
    """

    def __init__(self, run: MakeRun, sliders: Mapping[str, tuple[int, int, int]]) -> None:
        import ipywidgets as widgets

        self._run = run
        look: dict[str, Any] = {
            "style": {"description_width": "14em"},
            "layout": widgets.Layout(width="40em", max_width="100%"),
        }
        self.boxes: dict[str, Any] = {
            name: widgets.IntSlider(value=first, min=least, max=most, description=_shown(name), **look)
            for name, (least, most, first) in sliders.items()
        }
        self.line, self.drawn = widgets.HTML(), widgets.HTML()
        self.text = ""
        self._draw()
        for box in self.boxes.values():
            box.observe(self._draw, names="value")

    def _draw(self, _change: object = None) -> None:
        values = {name: box.value for name, box in self.boxes.items()}
        self.text, self.drawn.value = said_and_drawn(self._run, values)
        self.line.value = f'<p role="status" aria-live="polite" style="line-height:1.4">{escape(self.text)}</p>'

    def _ipython_display_(self) -> None:
        import ipywidgets as widgets
        from IPython.display import display

        box = widgets.VBox([*self.boxes.values(), self.line, self.drawn])
        shown: dict[str, Any] = dict(box._repr_mimebundle_())
        shown["text/plain"] = f"{self.text} {_UNRUN}"  # all that a viewer without a kernel shows
        display(shown, raw=True)  # type: ignore[no-untyped-call]


def _shown(name: str) -> str:
    return name.replace("_", " ")


def said_and_drawn(run: MakeRun, values: Mapping[str, int]) -> tuple[str, str]:
    """A line of text for some values of the sliders, and a table; none if the plan broke a rule or raised."""
    named = ", ".join(f"{_shown(name)} {value}" for name, value in values.items())
    named = f"{named[0].upper()}{named[1:]}. " if named else ""
    try:
        found = run_of(run(**values))
    except Exception as error:  # a slider is moved, and nobody would see a traceback
        return f"{named}{_ended(error)}", ""
    return f"{named}{summary(found)}", table_of([found])


def _ended(error: Exception) -> str:
    """Why there are no lanes, in one line: the rule, what a stub says, or what was raised and where."""
    if isinstance(error, (BrokenRule, ValueError)):
        return f"The run ends early: {error}"
    if isinstance(error, NotImplementedError):
        return f"[ ] {error}" if str(error) else "[ ] the plan is not written yet"
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"The run ends early: {type(error).__name__}: {error}, in {place.name}, line {place.lineno}"


def summary(run: Run) -> str:
    """How long a run took, and the longest waits in it, in three sentences."""
    late = max(run.lanes, key=lambda lane: lane.first or 0)
    held = max(run.lanes, key=lambda lane: lane.gap_tokens)
    return (
        f"{len(run.tokens)} steps, at most {max(run.tokens)} tokens in one. The longest gap in an answer is that of "
        f"{held.name}: {held.gap_tokens} tokens computed. {late.name} waits longest for its first token: {late.first} "
        "steps."
    )
