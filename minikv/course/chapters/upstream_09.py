"""What was said and done about the incident in the open, with a mark for how each entry is known.

From threads of sgl-project/sglang and its released packages; "open" means open in the records that were read.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from minikv.viz.texts import TextTable

REPOSITORY = "https://github.com/sgl-project/sglang"
MARKS = "V: read in the thread or in a released package. I: inferred from what was read. B: only in the article."
HEAD = ("2026", "thread", "state in the records read", "what it says or does", "mark")


class Entry(NamedTuple):
    """One entry: when, issues ("#") and proposed changes ("PR") by number, state, content, how it is known."""

    when: str
    threads: tuple[tuple[str, int], ...]
    state: str
    content: str
    mark: str


def _pulls(*numbers: int) -> tuple[tuple[str, int], ...]:
    return tuple(("PR", number) for number in numbers)


HISTORY = (
    Entry(
        "6 July",
        (("issue", 30233),),
        "closed, marked inactive",
        "the exact cause, on another installation, with a patch that tells decode of the refusal",
        "V",
    ),
    Entry(
        "7 July", _pulls(30325), "open", "one limit for prefill's door; describes the symptom as decode waiting", "V"
    ),
    Entry("", _pulls(30551), "open", "tell decode of refusals that come before the queue", "V (its title)"),
    Entry(
        "4 August",
        (("issue", 33507), ("PR", 33508)),
        "open",
        "status 200 and 'length' where a refusal should be",
        "V",
    ),
    Entry(
        "10 August",
        _pulls(34208),
        "open",
        "look for the abort on prefill and tell decode; says that decode may return results of other requests",
        "V",
    ),
    Entry("19 August", _pulls(35421), "open", "refuse at prefill's door; names the two unequal pools", "V"),
    Entry(
        "27 August", (), "", "the leak in production begins; it lasts until 9 September, and affects 155 answers", "B"
    ),
    Entry("28 August", _pulls(36926), "closed", "memory lost after an abort; forerunner of the next", "V"),
    Entry(
        "29 August",
        _pulls(36988),
        "merged; in 0.5.20, not in 0.5.19",
        "aborted results of models that read pictures are retired, once; closes this leak as a side effect",
        "V; merged on 6 September: B",
    ),
    Entry(
        "9 September",
        _pulls(38704),
        "open; not in 0.5.23",
        "decode compares how many tokens came with how many it expected",
        "V",
    ),
    Entry(
        "10 September",
        _pulls(38935),
        "merged; in 0.5.21",
        "refused requests are turned away at both doors; its author calls it a matter of waste and delay",
        "V",
    ),
    Entry(
        "15 September",
        _pulls(39500),
        "merged; in 0.5.21, off unless asked for",
        "a checksum over the pages that came; it would have caught this, since the two sides cover different pages",
        "V; that it would have: I",
    ),
    Entry("26 October", (), "", "the article", "B"),
)


def _shown(entry: Entry) -> str:
    return ", ".join(f"{kind} #{number}" for kind, number in entry.threads)


def _linked(entry: Entry) -> str:
    kinds = {"issue": "issues", "PR": "pull"}
    return ", ".join(
        f'<a href="{REPOSITORY}/{kinds[kind]}/{number}">{kind} #{number}</a>' for kind, number in entry.threads
    )


def upstream_history() -> TextTable:
    """The history as a table, oldest first."""
    cell = "text-align:left;vertical-align:top;white-space:normal;max-width:28em"
    head = "".join(f'<th scope="col" style="text-align:left">{name}</th>' for name in HEAD)
    body = ""
    for entry in HISTORY:
        texts = (escape(entry.when), _linked(entry), *map(escape, entry[2:]))
        body += "<tr>" + "".join(f'<td style="{cell}">{text}</td>' for text in texts) + "</tr>"
    table = (
        f'<table><caption style="text-align:left">What was public, and when. {MARKS}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
    lines = [
        " | ".join(part for part in (entry.when, _shown(entry), *entry[2:4], f"[{entry.mark}]") if part)
        for entry in HISTORY
    ]
    return TextTable(table, "\n".join([MARKS, *lines]))
