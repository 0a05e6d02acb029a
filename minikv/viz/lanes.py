"""Lanes: a row for each request and a cell for each step: it read (P), answered (D), or waited (.)."""

from __future__ import annotations

import itertools
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from minikv.trace import Admit, Event, Finish, Preempt, Write
from minikv.viz.picture import Picture

if TYPE_CHECKING:
    import plotly.graph_objects as go

PREFILL, DECODE, WAITS, ABSENT = "P", "D", ".", ""
COLOURS = {ABSENT: "#FFFFFF", WAITS: "#DDDDDD", PREFILL: "#0072B2", DECODE: "#F0E442"}
INKS = {ABSENT: "#000000", WAITS: "#000000", PREFILL: "#FFFFFF", DECODE: "#000000"}
LEGEND = "P reads its prompt, D gets the next token of its answer, . waits"
MAX_STEPS = 60
_READABLE = 10_000  # steps of a run that is read and not drawn
_CELL = "text-align:center;padding:2px 6px"


@dataclass
class Lane:
    """One request in one run.

    Attributes:
        name: of the request.
        cells: for each step, from the first on, one of P, D, "." or "" (not there).
        shares: tokens that it computed in each step.
        first: steps from its arrival to its first token, that one included; None if it got none.
        gap: most steps from one of its tokens to the next; 0 if it got fewer than two.
        gap_tokens: most tokens that were computed, of all requests together, from one of its tokens to the next.
    """

    name: str
    cells: list[str] = field(default_factory=list)
    shares: list[int] = field(default_factory=list)
    first: int | None = None
    gap: int = 0
    gap_tokens: int = 0


@dataclass(frozen=True)
class Run:
    """All lanes of one run, and the tokens computed in each of its steps."""

    title: str
    lanes: list[Lane]
    tokens: list[int]


@dataclass(frozen=True)
class Lanes(Picture):
    """Lanes of one or more runs, as a table and as a figure. A notebook shows both.

    Attributes:
        runs: what is drawn.
        table: HTML; a column for each step.
        figure: the same with a slider from run to run; a step is as wide as the tokens that it computes.
        text: the table in plain letters.
    """

    runs: tuple[Run, ...]


def lanes(
    runs: Mapping[str, Iterable[Event]] | Iterable[Event],
    *,
    names: Mapping[int, str] | Sequence[str] | None = None,
    node: str | None = None,
) -> Lanes:
    """Draw who was computed in each step.

    Args:
        runs: the trace of one run, or several by title.
        names: names of requests, by number; else those that the door noted if they differ, else R and the number.
        node: which node of a cluster; by default the one whose trace it is.

    Raises:
        ValueError: if nothing was computed, or in more steps than can be drawn.
    """
    by_title = runs if isinstance(runs, Mapping) else {"": runs}
    drawn = tuple(run_of(events, title, names=names, node=node, most=MAX_STEPS) for title, events in by_title.items())
    if not drawn:
        raise ValueError("there is no run to draw")
    return Lanes(table_of(drawn), _figure(drawn), text_of(drawn), drawn)


def run_of(
    trace: Iterable[Event],
    title: str = "",
    *,
    names: Mapping[int, str] | Sequence[str] | None = None,
    node: str | None = None,
    most: int = _READABLE,
) -> Run:
    """Read the lanes of one run out of its trace.

    Raises:
        ValueError: if nothing was computed in it, nobody was let in, or it has more than `most` steps.
    """
    events = list(trace)
    admitted = {event.request: event for event in events if isinstance(event, Admit)}
    work: dict[int, Counter[int]] = defaultdict(Counter)  # by step: tokens of each request
    left: dict[int, int] = {}
    again: dict[int, set[int]] = defaultdict(set)
    for event in events:
        if isinstance(event, Write) and node in (None, event.node):
            work[event.step][event.owner] += event.stop - event.start
        elif isinstance(event, Finish):
            left[event.request] = event.step
        elif isinstance(event, Preempt) and node in (None, event.node):
            again[event.request].add(event.step)
    if not work or (last := max(work)) < 1:
        raise ValueError("no token was computed in this trace; run something first, with tracing on")
    if last > most:  # before anything is counted for each of them
        raise ValueError(f"{last} steps are too many to draw; {most} at most")
    if not admitted:
        raise ValueError("no request was let in in this trace; a lane needs the trace of a run from its beginning")
    tokens = [sum(work[step].values()) for step in range(1, last + 1)]
    found: list[Lane] = []
    for number, event in sorted(admitted.items()):
        name = _unlike(_name(number, names, admitted), {lane.name for lane in found})
        shares = [work[step][number] for step in range(1, last + 1)]
        found.append(_lane(name, event, shares, again[number], left.get(number, last), tokens))
    return Run(title, found, tokens)


def _name(number: int, names: Mapping[int, str] | Sequence[str] | None, admitted: Mapping[int, Admit]) -> str:
    if names is not None:
        known = names.get(number) if isinstance(names, Mapping) else dict(enumerate(names)).get(number)
        if known is not None:
            return known
    noted = [event.tenant for event in admitted.values()]
    return admitted[number].tenant if len(set(noted)) == len(noted) > 1 else f"R{number}"


def _unlike(name: str, others: set[str]) -> str:
    """A name that no other lane has, as a row of the figure has one name: "A", then "A (2)"."""
    names = itertools.chain([name], (f"{name} ({count})" for count in itertools.count(2)))
    return next(one for one in names if one not in others)


def _lane(name: str, event: Admit, shares: list[int], again: set[int], left: int, tokens: list[int]) -> Lane:
    lane = Lane(name, shares=shares)
    written, known, got = 0, event.prompt_tokens, 0
    spoke = []
    for step, share in enumerate(shares, 1):
        if step in again:
            written = 0
        if share:
            lane.cells.append(DECODE if got and known - written == 1 else PREFILL)
            written += share
            if written == known:
                known, got = known + 1, got + 1
                spoke.append(step)
        else:
            lane.cells.append(WAITS if event.step < step <= left else ABSENT)
    if spoke:
        lane.first = spoke[0] - event.step
        pairs = list(itertools.pairwise(spoke))
        lane.gap = max((after - before for before, after in pairs), default=0)
        lane.gap_tokens = max((sum(tokens[before:after]) for before, after in pairs), default=0)
    return lane


def _measures(lane: Lane) -> tuple[str, str, str]:
    """Steps to the first token; longest gap in steps; in tokens."""
    gap = (str(lane.gap), str(lane.gap_tokens)) if lane.gap else ("-", "-")
    return str(lane.first or "-"), *gap


HEADS = ("first after", "longest gap", "tokens in it")


def table_of(runs: Sequence[Run]) -> str:
    """The lanes as one HTML table with a caption."""
    length = max(len(run.tokens) for run in runs)
    head = "".join(f'<th scope="col">{step}</th>' for step in range(1, length + 1))
    head += "".join(f'<th scope="col">{name}</th>' for name in HEADS)
    body = ""
    for run in runs:
        if run.title:
            body += (
                f'<tr><th scope="rowgroup" colspan="{length + 4}" style="text-align:left">{escape(run.title)}</th></tr>'
            )
        for lane in run.lanes:
            row = "".join(
                f'<td style="background:{COLOURS[cell]};color:{INKS[cell]};{_CELL}">{cell}</td>'
                for cell in _padded(lane.cells, length, ABSENT)
            )
            row += "".join(f'<td style="text-align:right">{value}</td>' for value in _measures(lane))
            body += f'<tr><th scope="row">{escape(lane.name)}</th>{row}</tr>'
        counts = "".join(f'<td style="text-align:center">{n}</td>' for n in _padded(run.tokens, length, ""))
        body += f'<tr><th scope="row">tokens</th>{counts}<td></td><td></td><td></td></tr>'
    return (
        f'<table><caption style="text-align:left;line-height:1.4">{escape(caption())}</caption>'
        f'<thead><tr><th scope="col">step</th>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def caption() -> str:
    """What the letters and the last columns mean."""
    return (
        f"{LEGEND}. First after: steps from arrival to the first token. Longest gap: steps from one token of the "
        "answer to the next, and the tokens that were computed meanwhile, of all requests."
    )


def text_of(runs: Sequence[Run]) -> str:
    """The lanes in plain letters."""
    width = max(len(lane.name) for run in runs for lane in run.lanes)
    width = max(width, len("step"))
    lines = textwrap.wrap(caption(), 96)
    for run in runs:
        length = max(len(run.tokens) for run in runs)
        wide = max(2, max(len(str(count)) for count in run.tokens))
        lines += ([""] if len(runs) > 1 else []) + ([run.title] if run.title else [])
        heads = "  ".join(HEADS)
        numbers = "".join(f" {step:>{wide}}" for step in range(1, len(run.tokens) + 1))
        pad = " " * ((wide + 1) * (length - len(run.tokens)))
        lines.append(f"{'step':<{width}}{numbers}{pad}  {heads}")
        for lane in run.lanes:
            cells = "".join(f" {cell:>{wide}}" for cell in lane.cells)
            values = "  ".join(f"{value:>{len(name)}}" for value, name in zip(_measures(lane), HEADS, strict=True))
            lines.append(f"{lane.name:<{width}}{cells}{pad}  {values}")
        lines.append(f"{'tokens':<{width}}" + "".join(f" {count:>{wide}}" for count in run.tokens))
    return "\n".join(line.rstrip() for line in lines)


def _padded(cells: Sequence[Any], length: int, blank: Any) -> list[Any]:
    return [*cells, *[blank] * (length - len(cells))]


def _figure(runs: Sequence[Run]) -> go.Figure:
    import plotly.graph_objects as go

    from minikv.viz.style import quiet_toolbar, slider_steps

    quiet_toolbar()
    frames = [
        go.Frame(name=str(index), data=[_heatmap(run)], layout={"title": {"text": _title(run)}})
        for index, run in enumerate(runs)
    ]
    widest = max(sum(run.tokens) for run in runs)
    lanes_drawn = max(len(run.lanes) for run in runs)
    figure = go.Figure(data=frames[-1].data, frames=frames if len(runs) > 1 else [])
    figure.update_layout(
        template="none",
        title={"text": _title(runs[-1]), "font": {"size": 14}},
        height=130 + 38 * lanes_drawn + (90 if len(runs) > 1 else 0),
        margin={"l": 90, "r": 20, "t": 50, "b": 50},
        xaxis={"title": {"text": "tokens computed so far; a step is as wide as its tokens"}, "range": [0, widest]},
        yaxis={"type": "category", "autorange": "reversed"},
    )
    if len(runs) > 1:
        moves = slider_steps(run.title for run in runs)
        place = {"active": len(runs) - 1, "steps": moves, "currentvalue": {"visible": False}, "pad": {"t": 60}}
        figure.update_layout(sliders=[place])
    return figure


def _title(run: Run) -> str:
    gap = max((lane.gap_tokens for lane in run.lanes), default=0)
    total = f"{len(run.tokens)} steps, longest gap between two tokens of an answer: {gap} tokens computed"
    return f"{run.title}: {total}" if run.title else total


def _heatmap(run: Run) -> go.Heatmap:
    import plotly.graph_objects as go

    from minikv.viz.style import bands

    order = list(COLOURS)
    edges = [0]
    for count in run.tokens:
        edges.append(edges[-1] + count)
    return go.Heatmap(
        x=edges,
        y=[lane.name for lane in run.lanes],
        z=[[order.index(cell) for cell in lane.cells] for lane in run.lanes],
        zmin=-0.5,
        zmax=len(order) - 0.5,
        colorscale=bands(list(COLOURS.values())),
        showscale=False,
        xgap=1,
        ygap=4,
        text=[list(lane.cells) for lane in run.lanes],
        texttemplate="%{text}",
        textfont={"size": 13},
        hovertext=[[_hover(lane, run, index) for index in range(len(run.tokens))] for lane in run.lanes],
        hoverinfo="text",
    )


def _hover(lane: Lane, run: Run, index: int) -> str:
    did = {PREFILL: "reads", DECODE: "answers", WAITS: "waits", ABSENT: "is not there"}[lane.cells[index]]
    own = f", {_tokens(lane.shares[index])}" if lane.shares[index] else ""
    return f"step {index + 1}: {lane.name} {did}{own}; all together {_tokens(run.tokens[index])}"


def _tokens(count: int) -> str:
    return f"{count} token" if count == 1 else f"{count} tokens"
