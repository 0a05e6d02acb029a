"""A learner's attention raises: for which call it did, and what to look at."""

from __future__ import annotations

from typing import Any

from minikv.course.chapters.paged import Attend, Call
from minikv.course.declare import Verdict, wrong

_LESSON = (9, 3, 37)  # query heads, KV heads and written tokens of the first call that is judged

HEADS = (
    "Which index was too large, or which shape did not fit? Work it out for the heads of this case, by hand.",
    "With 9 and 3 some mistakes stay unseen: three heads share, and there are three KV heads. How many share here?",
    "4 query heads, 1 KV head: all four share it. Which KV head does your rule give to query head 3?",
)
EMPTY = (
    "How many tokens does your last round take from its page? Print it.",
    "When the tokens fill their pages to the last slot, there is no page behind them that is begun.",
    "Page size 4, eight tokens written. How many rounds has your loop, and how many tokens each?",
)
ROWS = (
    "You have one row of numbers for each head, and each is a tensor. Who makes one tensor of them?",
    "torch.tensor wants plain numbers. torch.stack puts tensors of one shape on top of each other; a list of rows is "
    "welcome too.",
)


def explain_error(attend: Attend, call: Call, error: Exception) -> Verdict | None:
    """For which call the function raised and what to look at, or None where the error says enough by itself."""
    line = _line(attend, error)
    if line is None:
        return None
    message = " ".join(str(error).split())
    said = f"your code raised {type(error).__name__}: {message:.200} (line {line} of your cell)"
    if "one element tensors" in message or "only length-1 arrays" in message:
        return wrong("list-of-tensors", said, *ROWS)
    heads, kv_heads, written = call.query.shape[0], call.keys.shape[2], call.written
    if "numel() == 0" in message:
        return wrong("empty-round", f"{_case(call)} {said}", *EMPTY)
    if (heads, kv_heads) != _LESSON[:2]:
        here = f"{heads} query head{'s'[: heads > 1]} and {kv_heads} KV head{'s'[: kv_heads > 1]}"
        said = f"9 query heads and 3 KV heads came out right. With {here}, {said}"
        return wrong("other-heads-raise", said, *HEADS)
    if written != _LESSON[2]:
        return wrong("other-count-raises", f"{_case(call)} {said}", *EMPTY[2:])
    return None


def _case(call: Call) -> str:
    tokens = "1 token" if call.written == 1 else f"{call.written} tokens"
    return f"{tokens} written, {len(call.table)} page{'s'[: len(call.table) > 1]} of {call.page_size}:"


def _line(attend: Any, error: BaseException) -> int | None:
    """The innermost line of the function's own cell on the way to the error."""
    file, trace, line = getattr(getattr(attend, "__code__", None), "co_filename", None), error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
