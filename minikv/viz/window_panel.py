"""What if the question were longer? A slider for the length of an attack, and what each length brings out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from minikv.viz.style import QUIET
from minikv.viz.texts import marked
from minikv.viz.window import Doors, Sent, WindowLine, figure_of, window_line

if TYPE_CHECKING:
    import plotly.graph_objects as go

Send = Callable[[int], Sent]

PAUSE = 0.4  # seconds that the slider must rest before anything is sent
ON_ITS_WAY = "The answer is on its way."
_UNRUN = "Run this cell in Jupyter to move the slider."


def window_panel(
    send: Send,
    doors: Doors,
    lengths: tuple[int, int, int],
    *,
    texts: Mapping[str, str] | None = None,
    known: Iterable[Sent] = (),
) -> WindowPanel | FixedWindow:
    """A slider for a length, and what comes back for it; without widgets the first length, and the reason.

    Args:
        send: sends a prompt of so many tokens to the same past each time. It may take seconds.
        doors: the limits.
        lengths: smallest and largest length, and the one to begin with.
        texts: of tenants, by name. What an answer shares with them is marked.
        known: what was sent before; such a length is not sent again.
    """
    evening = _Evening(send, {one.tokens: one for one in known})
    try:
        import anywidget  # noqa: F401  (plotly's FigureWidget is made of it)
        import ipywidgets  # noqa: F401
    except ImportError as error:
        reason = f"No slider here, because {error.name or 'a package'} is not installed."
        found, why = evening.ask(lengths[2])
        return FixedWindow(f"{reason} {why}".strip(), window_line(doors, [found] if found else [], texts=texts))
    return WindowPanel(evening, doors, lengths, texts or {})


@dataclass
class _Evening:
    """Sends each length once and remembers what came."""

    send: Send
    known: dict[int, Sent]

    def ask(self, length: int) -> tuple[Sent | None, str]:
        """What came of a length, or none and why not."""
        if length not in self.known:
            try:
                self.known[length] = self.send(length)
            except Exception as error:  # a slider is moved, and nobody would see a traceback
                return None, f"The run ends early: {type(error).__name__}: {error}"
        return self.known[length], ""


@dataclass(frozen=True)
class FixedWindow:
    """What is shown where a slider cannot be: the reason, and the picture that it begins with."""

    reason: str
    picture: WindowLine

    @property
    def text(self) -> str:
        return f"{self.reason}\n{self.picture.text}"

    def _ipython_display_(self) -> None:
        print(self.reason)
        self.picture._ipython_display_()


class WindowPanel:
    """A slider that the arrow keys move, a line of text that says what it says, the answer, and the figure.

    While the slider moves, nothing is sent. When it rests, the length that it stands at is sent, once.

    Attributes:
        length: the slider.
        line: where on the line it stands and what was counted, for those who hear it too.
        answer: the answer with its marks.
        figure: a plotly FigureWidget.
    """

    def __init__(
        self, evening: _Evening, doors: Doors, lengths: tuple[int, int, int], texts: Mapping[str, str]
    ) -> None:
        import ipywidgets as widgets
        import plotly.graph_objects as go

        least, most, first = lengths
        self._evening, self._doors, self._texts = evening, doors, texts
        self._waiting: asyncio.TimerHandle | None = None
        self.length = widgets.IntSlider(
            first,
            least,
            most,
            description="tokens of the attack",
            continuous_update=False,
            style={"description_width": "12em"},
            layout=widgets.Layout(width="44em", max_width="100%"),
        )
        self.line, self.answer = widgets.HTML(), widgets.HTML()
        self.figure: go.FigureWidget = go.FigureWidget(figure_of(doors, [first]))
        self.figure._config = QUIET
        self.text = ""
        self._send()
        self.length.observe(self._moved, names="value")

    def _moved(self, _change: object) -> None:
        """Say at once where the slider stands; ask the server when it rests."""
        if self._waiting:
            self._waiting.cancel()
            self._waiting = None
        new = figure_of(self._doors, [self.length.value])
        with self.figure.batch_update():
            self.figure.data[-1].update(new.data[-1].to_plotly_json())
        if self.length.value in self._evening.known:
            self._send()
            return
        self._say(ON_ITS_WAY, "")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no kernel: nobody can move it while this runs
            self._send()
        else:
            self._waiting = loop.call_later(PAUSE, self._send)

    def _send(self) -> None:
        self._waiting = None
        found, why = self._evening.ask(self.length.value)
        if found is None:
            self._say(why, "")
            return
        self._say(found.said(), marked(found.text, self._texts)[0])

    def _say(self, counts: str, answer: str) -> None:
        length = self.length.value
        self.text = f"{length:,} tokens ({self._doors.zone(length)}). {counts}"
        self.line.value = f'<p role="status" aria-live="polite" style="line-height:1.4">{escape(self.text)}</p>'
        self.answer.value = (
            f'<blockquote style="line-height:1.5;max-width:60em">{answer}</blockquote>' if answer else ""
        )

    def _ipython_display_(self) -> None:
        import ipywidgets as widgets
        from IPython.display import display

        box = widgets.VBox([self.length, self.line, self.answer, self.figure])
        shown: dict[str, Any] = dict(box._repr_mimebundle_())
        shown["text/plain"] = f"{self.text} {_UNRUN}"  # all that a viewer without a kernel shows
        display(shown, raw=True)  # type: ignore[no-untyped-call]
