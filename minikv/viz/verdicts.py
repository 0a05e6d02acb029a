"""The same answers judged twice, in two columns of marks: by their status, and by what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Protocol

from minikv.viz.columns import aligned
from minikv.viz.palette import COLOURS, ink_on
from minikv.viz.picture import Picture

if TYPE_CHECKING:
    import plotly.graph_objects as go

PASS, FAIL = "P", "F"
_COLOUR = {PASS: COLOURS[1], FAIL: COLOURS[5]}
_LEGEND = f"{PASS} the test passes, {FAIL} it fails"


class Judgement(Protocol):
    """What is needed of one judged answer."""

    @property
    def place(self) -> str:
        """Where its prompt length lies, in words."""

    @property
    def tokens(self) -> int:
        """That length."""

    @property
    def cluster(self) -> str:
        """Who answered."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def by_status(self) -> bool:
        """Whether the test of the status passes."""

    @property
    def content(self) -> str:
        """What the answer is, in a word."""

    @property
    def by_content(self) -> bool:
        """Whether the test of the content passes."""


class Verdicts(Picture):
    """Judged answers as a table and as a figure. A notebook shows both.

    Attributes:
        table: HTML, a row for each prompt length, two marks for each cluster.
        figure: the same as coloured fields.
        text: the table in plain letters.
    """


def verdicts(rows: Iterable[Judgement]) -> Verdicts:
    """Draw judged answers.

    Args:
        rows: the same lengths for each cluster, in the same order.

    Raises:
        ValueError: if there are none, or the clusters were sent different lengths.
    """
    found: dict[str, list[Judgement]] = {}
    for row in rows:
        found.setdefault(row.cluster, []).append(row)
    sent = [[(row.place, row.tokens) for row in each] for each in found.values()]
    if not sent or any(each != sent[0] for each in sent):
        raise ValueError("verdicts need one cluster or more, and the same lengths for each")
    heads = [f"{cluster}, {by}" for cluster in found for by in ("by status", "by content")]
    names = [f"{place}: {tokens}" for place, tokens in sent[0]]
    marks = [_marks([each[index] for each in found.values()]) for index in range(len(names))]
    caption = f"{_failed(heads, marks)}. {_LEGEND}."
    return Verdicts(
        table=_table(caption, heads, names, marks),
        figure=_figure(heads, names, marks),
        text=_text(caption, heads, names, marks),
    )


def _marks(judged: Sequence[Judgement]) -> list[str]:
    """For each cluster two cells, such as "P 200" and "F leaks"."""
    cells = []
    for each in judged:
        cells.append(f"{PASS if each.by_status else FAIL} {each.status}")
        cells.append(f"{PASS if each.by_content else FAIL} {each.content}")
    return cells


def _failed(heads: Sequence[str], marks: Sequence[Sequence[str]]) -> str:
    counts = [sum(row[column].startswith(FAIL) for row in marks) for column in range(len(heads))]
    said = "; ".join(f"{head} {count}" for head, count in zip(heads, counts, strict=True))
    return f"Tests that fail, of {len(marks)} lengths: {said}"


def _table(caption: str, heads: Sequence[str], names: Sequence[str], marks: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    body = ""
    for name, row in zip(names, marks, strict=True):
        cells = "".join(
            f'<td style="background:{_COLOUR[cell[0]]};color:{ink_on(_COLOUR[cell[0]])}">{escape(cell)}</td>'
            for cell in row
        )
        body += f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>{cells}</tr>'
    return (
        f'<table><caption style="text-align:left">{escape(caption)}</caption>'
        f'<thead><tr><th scope="col">prompt tokens</th>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _text(caption: str, heads: Sequence[str], names: Sequence[str], marks: Sequence[Sequence[str]]) -> str:
    lines = [["prompt tokens", *heads], *([name, *row] for name, row in zip(names, marks, strict=True))]
    return "\n".join([caption, *aligned(lines)])


def _figure(heads: Sequence[str], names: Sequence[str], marks: Sequence[Sequence[str]]) -> go.Figure:
    import plotly.graph_objects as go

    from minikv.viz.style import bands, quiet_toolbar

    quiet_toolbar()
    order = list(_COLOUR)
    figure = go.Figure(
        go.Heatmap(
            x=list(heads),
            y=list(names),
            z=[[order.index(cell[0]) for cell in row] for row in marks],
            zmin=-0.5,
            zmax=len(order) - 0.5,
            colorscale=bands(list(_COLOUR.values())),
            showscale=False,
            xgap=3,
            ygap=3,
            text=[list(row) for row in marks],
            texttemplate="%{text}",
            textfont={"size": 14},
            hoverinfo="skip",
        )
    )
    figure.update_layout(
        template="none",
        title={"text": _LEGEND, "font": {"size": 14}},
        height=130 + 36 * len(names),
        margin={"l": 190, "r": 20, "t": 80, "b": 20},
        xaxis={"type": "category", "side": "top"},
        yaxis={"type": "category", "autorange": "reversed"},
    )
    return figure
