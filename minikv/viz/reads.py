"""The read map: which slots of a request's pages a function of attention reads, and which of them it must not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

from minikv.viz.palette import COLOURS, FREE, FREE_COLOUR, NOBODY_COLOUR, ink_on
from minikv.viz.picture import Picture

if TYPE_CHECKING:
    import plotly.graph_objects as go

READ, TOO_FAR, MISSED, UNREAD = "R", "X", "?", FREE
_COLOUR = {READ: COLOURS[1], TOO_FAR: COLOURS[5], MISSED: COLOURS[3], UNREAD: FREE_COLOUR}
_LEGEND = (
    f"{READ} read, {TOO_FAR} read though nothing is written there, {MISSED} written and not read, {UNREAD} neither"
)
MAX_PAGES = 32


@dataclass(frozen=True)
class Reads:
    """What one call read.

    Attributes:
        table: the pages of the request, in order.
        page_size: slots in a page.
        written: how many of the request's tokens were written.
        slots: the slots that were read, as numbers in the whole pool.
    """

    table: tuple[int, ...]
    page_size: int
    written: int
    slots: tuple[int, ...]

    @property
    def reserved(self) -> int:
        """Slots in the pages of the table."""
        return len(self.table) * self.page_size

    @cached_property
    def _read(self) -> frozenset[int]:
        """The slots, for looking up one after the other."""
        return frozenset(map(int, self.slots))

    def mark(self, place: int, inside: int) -> str:
        """The letter for one slot of the `place`-th page in the table."""
        written = place * self.page_size + inside < self.written
        if self.table[place] * self.page_size + inside in self._read:
            return READ if written else TOO_FAR
        return MISSED if written else UNREAD

    def row(self, place: int) -> list[str]:
        """The letters of one page."""
        return [self.mark(place, inside) for inside in range(self.page_size)]

    def count(self, mark: str) -> int:
        """How many slots of the table's pages have a mark."""
        return sum(self.row(place).count(mark) for place in range(len(self.table)))

    @property
    def elsewhere(self) -> int:
        """Slots that were read outside of the table's pages."""
        own = set(self.table)
        return sum(slot // self.page_size not in own for slot in self.slots)

    def caption(self) -> str:
        """The three numbers, in their order, and what is wrong with them."""
        said = f"{self.reserved} slots reserved, {self.written} written, {len(self.slots)} read"
        wrong = [
            f"{number} {what}"
            for number, what in (
                (self.count(TOO_FAR), "of them not written for this request"),
                (self.elsewhere, "of them in pages of others"),
                (self.count(MISSED), "written and not read"),
            )
            if number
        ]
        return f"{said}; {', '.join(wrong)}" if wrong else said


class ReadMap(Picture):
    """A read map as a table and as a figure. A notebook shows both.

    Attributes:
        table: HTML, of one call.
        figure: all calls, with a slider.
        text: the table in plain letters.
    """


def read_map(calls: Sequence[Reads], *, show: int | None = None) -> ReadMap:
    """Draw what some calls read, all with the same table.

    Args:
        calls: one or more, in the order of the slider.
        show: how many written tokens the call has that the table shows; by default that of the last call.

    Raises:
        ValueError: if there is no call or no page, their tables differ, or none has `show` tokens written.
    """
    found = list(calls)
    if not found:
        raise ValueError("there is no call to draw")
    if any((call.table, call.page_size) != (found[0].table, found[0].page_size) for call in found):
        raise ValueError("calls of one map have the same table and page size")
    if not found[0].reserved:
        raise ValueError("this table has no page with a slot; there is nothing to draw")
    if len(found[0].table) > MAX_PAGES:
        raise ValueError(f"a map has room for {MAX_PAGES} pages, and this table has {len(found[0].table)}")
    shown = [index for index, call in enumerate(found) if show is None or call.written == show]
    if not shown:
        raise ValueError(f"no call has {show} tokens written")
    told = found[shown[-1]]
    return ReadMap(table=_table(told), figure=_figure(found, shown[-1]), text=_text(told))


def _names(call: Reads) -> list[str]:
    size = call.page_size
    return [f"page {page}: tokens {i * size} to {i * size + size - 1}" for i, page in enumerate(call.table)]


def _table(call: Reads) -> str:
    head = "".join(f'<th scope="col">{inside}</th>' for inside in range(call.page_size))
    body = ""
    for place, name in enumerate(_names(call)):
        cells = "".join(
            f'<td style="background:{_COLOUR[mark]};color:{ink_on(_COLOUR[mark])};text-align:center">{mark}</td>'
            for mark in call.row(place)
        )
        body += f'<tr><th scope="row">{name}</th>{cells}</tr>'
    caption = escape(f"{call.caption()}. {_LEGEND}.")
    return (
        f'<table><caption style="text-align:left">{caption}</caption>'
        f'<thead><tr><th scope="col">slot</th>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _text(call: Reads) -> str:
    names = _names(call)
    width = max(map(len, names))
    lines = [f"{name.ljust(width)}  {''.join(call.row(place))}" for place, name in enumerate(names)]
    return "\n".join([f"{call.caption()}. {_LEGEND}.", *lines])


def _figure(calls: Sequence[Reads], active: int) -> go.Figure:
    import plotly.graph_objects as go

    from minikv.viz.style import quiet_toolbar, slider_steps

    quiet_toolbar()
    frames = [
        go.Frame(name=str(index), data=[_heatmap(call)], layout={"title": {"text": call.caption()}})
        for index, call in enumerate(calls)
    ]
    steps = slider_steps(str(call.written) for call in calls)
    figure = go.Figure(data=frames[active].data, frames=frames)
    figure.update_layout(
        template="none",
        title={"text": calls[active].caption(), "font": {"size": 14}},
        height=170 + 40 * len(calls[0].table),
        margin={"l": 170, "r": 20, "t": 50, "b": 20},
        plot_bgcolor=NOBODY_COLOUR,
        xaxis={"title": {"text": "slot in the page"}, "type": "category"},
        yaxis={"type": "category", "autorange": "reversed"},
        sliders=[{"active": active, "steps": steps, "currentvalue": {"prefix": "tokens written: "}, "pad": {"t": 45}}],
    )
    return figure


def _heatmap(call: Reads) -> go.Heatmap:
    import plotly.graph_objects as go

    from minikv.viz.style import bands

    marks = [call.row(place) for place in range(len(call.table))]
    order = list(_COLOUR)
    return go.Heatmap(
        x=[str(inside) for inside in range(call.page_size)],
        y=_names(call),
        z=[[order.index(mark) for mark in row] for row in marks],
        zmin=-0.5,
        zmax=len(order) - 0.5,
        colorscale=bands(list(_COLOUR.values())),
        showscale=False,
        xgap=2,
        ygap=2,
        text=marks,
        texttemplate="%{text}",
        textfont={"size": 14},
        hoverinfo="skip",
    )
