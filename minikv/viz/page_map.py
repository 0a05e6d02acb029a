"""The page map: for each page two letters, its owner above and below it who wrote most of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from minikv.trace import Event
from minikv.viz.moments import Moment, PageState, moments, most_telling, nodes_in, pages_in, tenants_in
from minikv.viz.palette import (
    FREE,
    FREE_COLOUR,
    NOBODY,
    NOBODY_COLOUR,
    colour_of,
    ink_on,
    letters_for,
)
from minikv.viz.picture import Picture

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_FRAMES = 60
MAX_PAGES = 32
ROWS = ("owner", "wrote most", "slots written by", "slots read", "of these foreign", "times lent")


class PageMap(Picture):
    """A page map as a table and as a figure, from one trace. A notebook shows both.

    Attributes:
        table: HTML, of the most telling moment: the last at which somebody read foreign slots, else the last at
            which a page was lent.
        figure: all moments at which the picture changed, with a slider.
        text: the table in plain letters.
    """


def page_map(
    trace: Iterable[Event],
    *,
    node: str | None = None,
    names: Mapping[int, str] | None = None,
    pages: Sequence[int] | None = None,
    rows: Sequence[str] | None = None,
) -> PageMap:
    """Draw who owned and who had written the pages of one node.

    Args:
        trace: of an engine, a cluster or a pool.
        node: which node; by default the one that answers: "decode", else the last that lent a page.
        pages: which pages, in this order; by default all that were ever lent, as many as fit.
        rows: rows of the table, of `ROWS`; by default all.
        names: names of requests by number, where the trace has none (a pool used without an engine).

    Raises:
        ValueError: if the trace has no such node, no page was ever lent, or there is no such row.
    """
    if pages is not None and not len(pages):
        raise ValueError("pages is empty: name at least one page, or leave it out to see all")
    events = list(trace)
    nodes = nodes_in(events)
    if not nodes:
        raise ValueError("no page was lent in this trace; run something first, with tracing on")
    node = node or ("decode" if "decode" in nodes else nodes[-1])
    if node not in nodes:
        raise ValueError(f"no page was lent on {node!r}; the trace has {', '.join(nodes)}")
    if unknown := set(rows or ()) - set(ROWS):
        raise ValueError(f"there is no row {sorted(unknown)[0]!r}; there are {', '.join(ROWS)}")
    lent = pages_in(events, node)
    shown = list(lent[:MAX_PAGES] if pages is None else pages)
    wanted = set(shown)
    found = moments([event for event in events if getattr(event, "page", None) in wanted], node)
    if not found:
        raise ValueError(f"none of the pages {shown[:9]} was lent on {node!r}")
    key = _Key(found, {**tenants_in(events), **(names or {})}, shown, len(lent) - len(shown) if pages is None else 0)
    told = most_telling(found)
    return PageMap(
        table=_table(told, key, node, rows or ROWS),
        figure=_figure(_thinned(found), key, node),
        text=_text(told, key, node, rows or ROWS),
    )


class _Key:
    """Letters and colours of everybody in a map, and the pages that it shows."""

    def __init__(self, found: list[Moment], names: Mapping[int, str], pages: list[int], left_out: int) -> None:
        self.pages, self.left_out = pages, left_out
        numbers: dict[int, None] = {}
        for moment in found:
            numbers.update(dict.fromkeys(moment.who))
            for state in moment.pages.values():
                numbers.update(dict.fromkeys(state.writers))
                if state.owner is not None:
                    numbers[state.owner] = None
        self.names = {number: names.get(number, f"request {number}") for number in sorted(numbers)}
        self.letters = letters_for(self.names.values())
        self.order = {name: index for index, name in enumerate(self.letters)}
        self.marked = any(state.foreign_reads for moment in found for state in moment.pages.values())

    def letter(self, number: int | None, absent: str) -> str:
        return absent if number is None else self.letters[self.names[number]]

    def most(self, writers: Mapping[int, int]) -> str:
        """Letter of who wrote most; all letters, "A/B", if several wrote as much."""
        tied = [number for number in sorted(writers) if writers[number] == max(writers.values())]
        return "/".join(dict.fromkeys(self.letter(number, NOBODY) for number in tied)) or NOBODY

    def colour(self, number: int | None, absent: str) -> str:
        return absent if number is None else colour_of(self.order[self.names[number]])

    def counted(self, writers: Mapping[int, int]) -> str:
        """Letters with slots, most first: "Q 63, A 1"."""
        ranked = sorted(writers.items(), key=lambda item: (-item[1], item[0]))
        return ", ".join(f"{self.letter(number, NOBODY)} {slots}" for number, slots in ranked if number >= 0)

    def legend(self) -> str:
        named = ", ".join(f"{letter} {name}" for name, letter in self.letters.items())
        return f"{named}, {FREE} free, {NOBODY} never written"

    def marks(self) -> str:
        return ' "!" in the figure: slots of somebody else were read in this page.' if self.marked else ""


def _state(moment: Moment, page: int) -> PageState:
    return moment.pages.get(page, PageState())


def _title(moment: Moment, key: _Key, node: str) -> str:
    who = ", ".join(key.names[number] for number in moment.who[:3]) + (" ..." if len(moment.who) > 3 else "")
    return f"{node}, step {moment.step}: {moment.act} ({who})"


def _caption(moment: Moment, key: _Key, node: str) -> str:
    left_out = f" {key.left_out} more pages are not shown." if key.left_out else ""
    return f"{_title(moment, key, node)}. {key.legend()}.{key.marks()}{left_out}"


def _rows(moment: Moment, key: _Key) -> list[tuple[str, list[str], list[str]]]:
    """Rows of the table: name, cells, colours."""
    states = [_state(moment, page) for page in key.pages]
    plain = [FREE_COLOUR] * len(states)
    return [
        (
            "owner",
            [key.letter(state.owner, FREE) for state in states],
            [key.colour(state.owner, FREE_COLOUR) for state in states],
        ),
        (
            "wrote most",
            [key.most(state.writers) for state in states],
            [key.colour(state.main_writer, NOBODY_COLOUR) for state in states],
        ),
        ("slots written by", [key.counted(state.writers) or NOBODY for state in states], plain),
        ("slots read", [str(sum(state.read.values()) or NOBODY) for state in states], plain),
        ("of these foreign", [str(state.foreign_reads or NOBODY) for state in states], plain),
        ("times lent", [str(state.generation) for state in states], plain),
    ]


def _table(moment: Moment, key: _Key, node: str, wanted: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">page {page}</th>' for page in key.pages)
    body = ""
    for name, cells, colours in _rows(moment, key):
        if name not in wanted:
            continue
        row = "".join(
            f'<td style="background:{colour};color:{ink_on(colour)};text-align:center">{escape(cell)}</td>'
            for cell, colour in zip(cells, colours, strict=True)
        )
        body += f'<tr><th scope="row">{name}</th>{row}</tr>'
    caption = escape(_caption(moment, key, node))
    return (
        f'<table><caption style="text-align:left">{caption}</caption>'
        f'<thead><tr><th scope="col">row</th>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _text(moment: Moment, key: _Key, node: str, wanted: Sequence[str]) -> str:
    rows = [("page", [str(page) for page in key.pages])]
    rows += [(name, cells) for name, cells, _colours in _rows(moment, key) if name in wanted]
    widths = [max(len(cells[i]) for _name, cells in rows) for i in range(len(key.pages))]
    first = max(len(name) for name, _cells in rows)
    lines = [_caption(moment, key, node)]
    for name, cells in rows:
        lines.append(name.ljust(first) + "".join(f"  {c:>{w}}" for c, w in zip(cells, widths, strict=True)))
    return "\n".join(lines)


def _thinned(found: list[Moment]) -> list[Moment]:
    """At most `MAX_FRAMES` moments, the last ones kept whole: a story ends at its end."""
    if len(found) <= MAX_FRAMES:
        return found
    early, late = found[: -MAX_FRAMES // 2], found[-MAX_FRAMES // 2 :]
    stride = -(-len(early) // (MAX_FRAMES // 2))
    return early[::stride] + late


def _figure(found: list[Moment], key: _Key, node: str) -> go.Figure:
    import plotly.graph_objects as go

    from minikv.viz.style import quiet_toolbar, slider_steps

    quiet_toolbar()
    colours = [FREE_COLOUR, NOBODY_COLOUR] + [colour_of(index) for index in range(len(key.letters))]
    frames = [
        go.Frame(
            name=str(index),
            data=[_heatmap(moment, key, colours)],
            layout={"title": {"text": _title(moment, key, node)}},
        )
        for index, moment in enumerate(found)
    ]
    steps = slider_steps(f"{moment.step} {moment.act}" for moment in found)
    last = found.index(most_telling(found))
    figure = go.Figure(data=frames[last].data, frames=frames)
    figure.update_layout(
        template="none",
        title={"text": _title(found[last], key, node), "font": {"size": 14}},
        height=300,
        margin={"l": 90, "r": 20, "t": 50, "b": 20},
        xaxis={"title": {"text": "page"}, "type": "category", "range": [-0.5, len(key.pages) - 0.5]},
        yaxis={"type": "category", "autorange": "reversed"},
        sliders=[{"active": last, "steps": steps, "currentvalue": {"prefix": "step "}, "pad": {"t": 45}}],
    )
    return figure


def _heatmap(moment: Moment, key: _Key, colours: list[str]) -> go.Heatmap:
    import plotly.graph_objects as go

    from minikv.viz.style import bands

    rows = _rows(moment, key)[:2]
    states = [_state(moment, page) for page in key.pages]
    numbers = [
        [_number(state.owner, key, 0) for state in states],
        [_number(state.main_writer, key, 1) for state in states],
    ]
    marks = [["", *[""] * (len(states) - 1)], [" !" if state.foreign_reads else "" for state in states]]
    return go.Heatmap(
        x=[str(page) for page in key.pages],
        y=["owner", "wrote most"],
        z=numbers,
        zmin=-0.5,
        zmax=len(colours) - 0.5,
        colorscale=bands(colours),
        showscale=False,
        xgap=3,
        ygap=3,
        text=[[c + m for c, m in zip(row[1], mark, strict=True)] for row, mark in zip(rows, marks, strict=True)],
        texttemplate="%{text}",
        textfont={"size": 16},
        hovertext=[[_hover(state, page, key) for state, page in zip(states, key.pages, strict=True)]] * 2,
        hoverinfo="text",
    )


def _number(number: int | None, key: _Key, absent: int) -> int:
    return absent if number is None else key.order[key.names[number]] + 2


def _hover(state: PageState, page: int, key: _Key) -> str:
    owner = "free" if state.owner is None else f"held by {key.names[state.owner]}"
    return f"page {page}, lent {state.generation} times, {owner}; slots: {key.counted(state.writers) or 'none'}"
