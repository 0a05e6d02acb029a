"""A replay as a short story for a terminal, or as one JSON object."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.status import Status

from minikv.incident.replay import Report
from minikv.incident.stage import Outcome
from minikv.incident.whose import in_words, pieces
from minikv.trace import HandoffDone
from minikv.viz.page_map import page_map
from minikv.viz.whose import lettered

WIDTH = 96
SHOWN_PAGES = 10


class Progress:
    """Says on standard error what happens now: a moving line on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.status: Status | None = None

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self.status = self.console.status("starting")
            self.status.start()
        return self

    def __exit__(self, *_details: object) -> None:
        if self.status:
            self.status.stop()

    def __call__(self, text: str) -> None:
        """Announce the next piece of work."""
        if self.status:
            self.status.update(escape(text))
        else:
            self.console.print(f"... {escape(text)}", soft_wrap=True)


def as_json(report: Report) -> dict[str, Any]:
    """The report as plain data; counts as they came from pools and ledger."""
    historical, scale = report.historical, report.scale
    before, after = report.before, report.after
    return {
        "scale": scale.name,
        "model": scale.model_name,
        "page_size": scale.page_size,
        "prefill_pool_tokens": historical.prefill.pool.num_slots,
        "decode_pool_tokens": historical.decode.pool.num_slots,
        "context_length": historical.context_length,
        "prompt_tokens": report.attack_tokens,
        "limit": report.limit,
        "before": {
            "status": before.completion.status,
            "error": str(before.completion.error) if before.completion.error else None,
            "pages_reserved": before.pages_reserved,
            "pages_written": before.pages_written,
            "pages_stale": before.pages_stale,
            "stale_slots_read": before.stale_slots_read,
            "stale_writers": before.stale_writers,
            "stale_page_writers": before.stale_page_writers,
            "text": before.completion.text,
            "leaked": before.leaked,
            "tenants_tested": before.tested,
        },
        "after": {
            "status": after.completion.status,
            "error": str(after.completion.error) if after.completion.error else None,
            "pages_reserved": after.pages_reserved,
            "pages_written": after.pages_written,
            "pages_stale": after.pages_stale,
            "stale_slots_read": after.stale_slots_read,
            "text": after.completion.text,
            "leaked": after.leaked,
        },
    }


def tell(report: Report, console: Console | None = None) -> None:
    """Print the story, by default on standard output."""
    console = console or Console(width=WIDTH, highlight=False)
    scale, after = report.scale, report.after
    prefill, decode = report.historical.prefill.pool, report.historical.decode.pool
    console.rule(f"[bold]Seven stale pages, at {scale.name} scale")
    console.print(
        f"Model {scale.model_name}, pages of {scale.page_size} tokens. The prefill node's pool holds "
        f"{prefill.num_slots:,} tokens, the decode node's {decode.num_slots:,}; the context that is promised is "
        f"{report.historical.context_length:,}.\n"
        f"Earlier tenants came, were served, and gave their pages back. Nobody wipes pages. Then somebody sends "
        f"{report.attack_tokens:,} tokens. From {report.limit:,} on, the prefill node of history refused.\n"
    )
    console.rule("[bold]1. What happened in history", align="left")
    _answer(console, report)
    _counts(console, report)
    console.rule("[bold]2. The right engine: same tenants, same request", align="left")
    console.print(f"[bold]HTTP {after.completion.status}[/bold]  {escape(str(after.completion.error or ''))}")
    if after.completion.text:
        console.print(escape(after.completion.text))
    console.print(
        f"pages reserved {after.pages_reserved}, written {after.pages_written}, stale {after.pages_stale}; "
        f"stale slots read {after.stale_slots_read}; leaked: {', '.join(after.leaked) or 'nothing'}"
    )
    if after.completion.status == 400:
        console.print("Refused at the door, finally. No page, no queue and no other tenant noticed.")


def _answer(console: Console, report: Report) -> None:
    answer = report.before.completion
    why = f"  {escape(str(answer.error))}" if answer.error else ""
    console.print(f"[bold]HTTP {answer.status}[/bold]  finish_reason {answer.finish_reason!r}{why}")
    if report.scale.readable:
        text = escape(answer.text)
        for canary in sorted(set(report.before.leaked), key=len):
            if len(canary.split()) < 5:
                text = text.replace(escape(canary), f"[bold reverse]{escape(canary)}[/bold reverse]")
        console.print("The request asked about the weather. The answer:")
        console.print(Padding(text, (0, 4)))
        _whose(console, report)
    if report.before.leaked and report.scale.readable:
        console.print(f"Words of other tenants in it: [bold]{escape('; '.join(report.before.leaked))}[/bold]\n")
    elif report.before.leaked:
        console.print(
            f"Random weights have no words. But the answer changes when only one of these tenants' prompts changes "
            f"({report.before.tested} tried): [bold]{', '.join(report.before.leaked)}[/bold]\n"
        )
    else:
        console.print("Nothing of another tenant was found in the answer.\n")


def _whose(console: Console, report: Report) -> None:
    words = pieces(in_words(report.before.spoken))
    if not words:
        return
    console.print("Under each word the writer whose slots attention read most for it (position 0 left out):")
    for line in lettered(words, width=WIDTH - 4):
        console.print(f"    {escape(line)}", soft_wrap=True)


def _counts(console: Console, report: Report) -> None:
    before = report.before
    console.print(
        f"pages on the decode node: reserved [bold]{before.pages_reserved:,}[/bold], "
        f"written [bold]{before.pages_written:,}[/bold], stale [bold]{before.pages_stale:,}[/bold]"
    )
    console.print(
        f"slots that attention read and the request had not written: [bold]{before.stale_slots_read:,}[/bold], "
        f"written by {_by(before)}"
    )
    events = [event for event in report.historical.trace if isinstance(event, HandoffDone)]
    mine = [event for event in events if event.request == before.completion.request_id]
    if not mine:
        console.print()
        return
    pages = mine[-1].pages
    shown = pages if len(pages) <= SHOWN_PAGES else (*pages[: SHOWN_PAGES - 2], *pages[-2:])
    drawing = page_map(report.historical.trace, node="decode", pages=shown)
    if len(shown) < len(pages):
        console.print(f"the first {SHOWN_PAGES - 2} and the last 2 of its {len(pages):,} pages:")
    for line in drawing.text.splitlines():
        console.print(f"  {escape(line)}", soft_wrap=True)
    if before.stale_slots_read:
        console.print("  owner is not writer: every page belongs to the request, and others wrote what is in it.")
    console.print()


def _by(outcome: Outcome) -> str:
    writers = list(outcome.stale_writers.items())
    named = ", ".join(f"{name} ({slots:,})" for name, slots in writers[:4])
    return named + (f" and {len(writers) - 4} more tenants" if len(writers) > 4 else "") if writers else "nobody"
