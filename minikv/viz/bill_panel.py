"""The memory bill with sliders: what if there were more users, other numbers, a shorter promise?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minikv.viz.bill import GIB, Bill, bill
from minikv.viz.style import QUIET

if TYPE_CHECKING:
    import plotly.graph_objects as go

PRECISIONS = {"4 bit": 0.5, "8 bit": 1.0, "16 bit": 2.0, "32 bit": 4.0}  # bytes of a stored number
_STEPS = 64  # places at which the slider of the context stops
_UNRUN = "Run this cell in Jupyter to move the sliders."


def bill_panel(
    name: str,
    *,
    numbers_per_token: int,
    weight_bytes: int,
    context: int,
    card_bytes: int,
    piece: int = 1,
    most_users: int = 16,
) -> BillPanel | FixedPanel:
    """The bill of one model with sliders for users, precision of keys and values, and advertised context.

    Args:
        numbers_per_token: how many numbers are stored for a token, in all layers.
        piece: memory is given out in pieces of so many tokens.

    Without ipywidgets or anywidget it is the fixed picture, and one line that says which is missing.
    """
    model = _Model(name, int(numbers_per_token), int(weight_bytes), int(context), card_bytes, piece)
    try:
        import anywidget  # noqa: F401  (plotly's FigureWidget is made of it)
        import ipywidgets  # noqa: F401

        return BillPanel(model, most_users)
    except ImportError as error:
        missing = error.name or "a package"
        return FixedPanel(f"No sliders here, because {missing} is not installed.", model.bill(1, "16 bit", context))


@dataclass(frozen=True)
class _Model:
    name: str
    numbers_per_token: int
    weight_bytes: int
    context: int
    card_bytes: int
    piece: int

    def fits(self, precision: str) -> int:
        """Tokens that the memory holds, of all users together."""
        left = max(0, self.card_bytes - self.weight_bytes)
        return int(left // (self.numbers_per_token * PRECISIONS[precision])) // self.piece * self.piece

    def bill(self, users: int, precision: str, context: int) -> Bill:
        return bill(
            self.name,
            token_bytes=self.numbers_per_token * PRECISIONS[precision],
            weight_bytes=self.weight_bytes,
            context=context,
            card_bytes=self.card_bytes,
            fits=self.fits(precision),
            users=(users,),
            piece=self.piece,
        )

    def said(self, users: int, precision: str, context: int) -> str:
        """Name and value of every slider, and what follows from them, in one line."""
        each = self.fits(precision) // self.piece // users * self.piece
        cache = self.numbers_per_token * PRECISIONS[precision] * context * users / GIB
        verdict = "The promise holds." if each >= context else f"{context - each:,} tokens of it are not there."
        return (
            f"Users: {users}. Precision of keys and values: {precision}. Advertised context: {context:,} tokens. "
            f"Weights {self.weight_bytes / GIB:.2f} GiB, keys and values at that context {cache:.2f} GiB, "
            f"card {self.card_bytes / GIB:.2f} GiB. Each user was promised {context:,} tokens, and the memory holds "
            f"{each:,}. {verdict}"
        )


@dataclass(frozen=True)
class FixedPanel:
    """What is shown where sliders cannot be: the reason, and the fixed picture."""

    reason: str
    picture: Bill

    @property
    def text(self) -> str:
        return f"{self.reason}\n{self.picture.text}"

    def _ipython_display_(self) -> None:
        print(self.reason)
        self.picture._ipython_display_()


class BillPanel:
    """Three sliders that the arrow keys move, a line of text that says what they say, and the figure.

    Attributes:
        users, precision, context: the sliders.
        line: the line of text, for those who hear it too.
        figure: a plotly FigureWidget.
    """

    def __init__(self, model: _Model, most_users: int) -> None:
        import ipywidgets as widgets
        import plotly.graph_objects as go

        self._model = model
        step = max(1, model.context // _STEPS)
        wide: dict[str, Any] = {
            "style": {"description_width": "10em"},
            "layout": widgets.Layout(width="36em", max_width="100%"),
        }
        self.users = widgets.IntSlider(1, 1, most_users, description="users", **wide)
        self.precision = widgets.SelectionSlider(
            options=list(PRECISIONS), value="16 bit", description="precision", **wide
        )
        self.context = widgets.IntSlider(
            model.context, step, model.context, step=step, description="advertised context", **wide
        )
        self.line = widgets.HTML()
        self.figure: go.FigureWidget = go.FigureWidget(self._drawn().figure)
        self.figure._config = QUIET
        self._say()
        for slider in (self.users, self.precision, self.context):
            slider.observe(self._moved, names="value")

    @property
    def text(self) -> str:
        """What the line of text says."""
        return self._model.said(*self._values())

    def _values(self) -> tuple[int, str, int]:
        return self.users.value, self.precision.value, self.context.value

    def _drawn(self) -> Bill:
        return self._model.bill(*self._values())

    def _say(self) -> None:
        self.line.value = f'<p role="status" aria-live="polite" style="line-height:1.4">{self.text}</p>'

    def _moved(self, _change: object) -> None:
        self._say()
        new = self._drawn().figure
        with self.figure.batch_update():
            for trace, other in zip(self.figure.data, new.data, strict=True):
                trace.update(other.to_plotly_json())
            self.figure.update_layout(new.layout.to_plotly_json(), overwrite=False)
            self.figure.layout.annotations = new.layout.annotations

    def _ipython_display_(self) -> None:
        import ipywidgets as widgets
        from IPython.display import display

        box = widgets.VBox([self.users, self.precision, self.context, self.line, self.figure])
        shown: dict[str, Any] = dict(box._repr_mimebundle_())
        shown["text/plain"] = f"{self.text} {_UNRUN}"  # all that a viewer without a kernel shows
        display(shown, raw=True)  # type: ignore[no-untyped-call]
