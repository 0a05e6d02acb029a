"""Exercise 9.2, the first disagreement: the reference answer, and what is said of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from minikv.course.chapters import disagreeing
from minikv.course.chapters.disagreeing import Run
from minikv.course.declare import Verdict, ok, wrong
from minikv.trace import Event, HandoffDone, Length, Read


def first_disagreement(events: Iterable[Event]) -> Event | None:
    """The first event that shows a request in another length than an earlier one did; None if all agree."""
    events = list(events)
    read: Counter[tuple[int, int]] = Counter()
    for event in events:
        if isinstance(event, Read) and event.node == "decode":
            read[event.owner, event.step] += event.slots
    first: dict[int, int] = {}
    believed: dict[int, int] = {}
    for event in events:
        if isinstance(event, Length):
            request, tokens = event.request, event.tokens
        elif isinstance(event, Read) and event.node == "decode":
            request, step = event.owner, event.step
            if step != first.setdefault(request, step):
                continue
            tokens = read[request, step] - 1  # without the first token of the answer
        else:
            continue
        if believed.setdefault(request, tokens) != tokens:
            return event
    return None


def judge_first(thing: Any) -> Verdict:
    answers: dict[str, object] = {}
    for make in disagreeing.RUNS:
        run = make()
        answer = thing(list(run.events))
        if answer is not None and not isinstance(answer, Event):
            said = f"you gave back {answer!r:.60}, and not an event of the trace."
            return wrong("shape", said, "Give back the event itself, as it stands in the list, or None.")
        answers[make.__name__] = answer
    verdict = _alarms(answers) or _incident(answers) or _crowd(answers) or _cut(answers) or _both(answers)
    return verdict or ok(
        "The queue says 1 where client and door said more, long before anybody reads a page. Whoever searches from the "
        "symptom backwards passes five parts that each did what they were told."
    )


_GROWS = (
    "What has a request got after prefill, beside its prompt?",
    "The first step on the decode node reads the prompt and the first token of the answer. The next step reads one "
    "more, and so on. An answer that grows is no disagreement.",
    "A prompt has 3 tokens. In the first step on the decode node 4 slots are read, then 5, then 6. Which of these "
    "numbers tells you what attention took for the length of the prompt, and how?",
)


def _alarms(answers: dict[str, object]) -> Verdict | None:
    """What it says of runs in which all parts agree."""
    for name in ("short_prompts", "right", "refused"):
        run: Run = getattr(disagreeing, name)()
        answer = answers[name]
        if answer is None:
            continue
        if isinstance(answer, Length):
            return wrong(
                "mixed",
                f"{run.name}: you reported that request {answer.request} has {answer.tokens} tokens, at its "
                f"{answer.part}. It has {run.believed(answer.request)} everywhere. Another request has another length.",
                "For how many requests is the trace, and what do you compare this one with?",
                "Two parts disagree if they hold different lengths for the same request. What do you keep for each?",
                "R1 is 5 long at the client, R2 is 9 long at the client, R1 is 5 long at the door. Where is the "
                "disagreement?",
            )  # fmt: skip
        if not isinstance(answer, Read):
            return _not_a_length(run, answer)
        return _read_alarm(run, answer)
    return None


def _read_alarm(run: Run, answer: Read) -> Verdict:
    if answer.node != "decode":
        return wrong(
            "other-node",
            f"{run.name}: you reported a read of {answer.slots} slots on the {answer.node} node, for request "
            f"{answer.owner}.",
            "Prefill reads a long prompt piece by piece. What do you learn from the first piece?",
            "Only on the decode node is the whole prompt there before the first read.",
        )
    prompt, read = run.believed(answer.owner), run.read_in(answer.step, answer.owner)
    if read == answer.slots or answer.step != run.first_step(answer.owner):
        return wrong(
            "growth",
            f"{run.name}: you reported that {read} slots were read for request {answer.owner}, whose prompt has "
            f"{prompt}.",
            *_GROWS,
        )
    return wrong(
        "one-page",
        f"{run.name}: you reported a read of {answer.slots} slots for request {answer.owner}. That is one page of "
        f"several; the step read {read} slots of it in all.",
        "How many `Read` events belong to one step of one request?",
        "There is one for each page. What attention took for the length is what all of them read together.",
        "Pages of 4 slots, a prompt of 6, one token of the answer. Write down the two `Read` events of that step.",
    )


def _not_a_length(run: Run, answer: object) -> Verdict:
    said = f"{run.name}: you reported a `{type(answer).__name__}` event."
    if isinstance(answer, HandoffDone):
        said = f"{run.name}: you reported the handoff of {answer.received} tokens into {len(answer.pages)} pages."
    return wrong(
        "pages",
        f"{said} It says what was done with pages or slots, and not how long somebody took the request to be.",
        "Which kinds of event carry a length of the prompt?",
        "Pages are what comes of a length: ask who held which length before the first page was lent. `Length` events "
        "say so, and so does the sum of what attention read.",
        "Request 4 has 31 tokens and gets 8 pages of 4 slots, and one page comes. In which order were the lengths "
        "believed that led to these two numbers?",
    )


def _incident(answers: dict[str, object]) -> Verdict | None:
    run, answer = disagreeing.incident(), answers["incident"]
    if run.fits(answer):
        return None
    if answer is None:
        return wrong(
            "none",
            f"{run.name}: you found that all parts agree. The trace holds the lengths "
            f"{_distinct(run)} for request {run.request}.",
            "Which two parts do you compare? Who stands between them?",
            "The client and the page table hold the same number, and so everything looks right from both ends. Keep "
            "the first length, and compare every later one with it.",
        )
    if isinstance(answer, Read):
        return wrong(
            "symptom",
            f"{run.name}: you reported a read in step {answer.step}. That is where it shows. By then two parts had "
            "held different lengths for a while.",
            "What had to go wrong before this read? Look at earlier events.",
            "A read is the last thing that happens to a length. The trace tells the story from its beginning: search "
            "from there.",
            "Write the `Length` events of this one request under each other. Where does the number change first?",
        )
    if not isinstance(answer, Length):
        return _not_a_length(run, answer)
    if answer.request != run.request:
        said = f"{run.name}: you reported request {answer.request}, whose length is {answer.tokens} everywhere."
        return wrong("mixed", said, "What do you compare this event with? Is that an event of the same request?")
    if answer.tokens == run.believed(answer.request) and answer.part in ("client", "door"):
        return wrong(
            "before",
            f"{run.name}: you reported the {answer.part}, which still says {answer.tokens}, as the one before it did.",
            "Up to which event do all agree, and which is the first that does not?",
        )
    return wrong(
        "later",
        f"{run.name}: you reported {answer.part}, with {answer.tokens} tokens. Two parts had disagreed before that.",
        "Is this the first event that differs from what was said at the beginning?",
        "There are two jumps in the row: one down, one back up. You are asked for the first.",
        "Lengths 9, 9, 2, 2, 9: at which place did two parts first hold different numbers?",
    )


def _distinct(run: Run) -> str:
    tokens = {each.tokens for each in run.events if isinstance(each, Length) and each.request == run.request}
    return " and ".join(str(each) for each in sorted(tokens, reverse=True))


def _crowd(answers: dict[str, object]) -> Verdict | None:
    run, answer = disagreeing.crowd(), answers["crowd"]
    if run.fits(answer):
        return None
    shown = "None" if answer is None else f"a {type(answer).__name__} of step {getattr(answer, 'step', 0)}"
    return wrong(
        "one-request",
        f"{run.name}: several requests are served at once. The disagreement is about request {run.request}, and you "
        f"gave back {shown}.",
        "Which requests does your code look at? The last, the first, or each?",
        "Keep what was believed for each request by its number, and go through the trace once.",
    )


def _both(answers: dict[str, object]) -> Verdict | None:
    """Runs in which two requests go wrong: the first of the two counts, whichever kind of event shows it."""
    for name in ("cut_then_refused", "refused_then_cut"):
        run, answer = getattr(disagreeing, name)(), answers[name]
        if run.fits(answer):
            continue
        shown = "None" if answer is None else f"a {type(answer).__name__} of step {getattr(answer, 'step', 0)}"
        return wrong(
            "order",
            f"{run.name}: two requests go wrong here. You gave back {shown}. The first event that differs is about "
            f"request {run.request}, and shows what its {run.part} took for the length.",
            "In which order does your code look at the events: in that of the list?",
            "A `Length` and a read of attention count alike. Whichever stands first in the list is the answer, "
            "whatever its kind, and whatever the number of its request.",
            "R1 reads one slot too few in step 3. R2 has another length at its queue in step 5. Which of the two does "
            "your code find first? And with steps 3 and 5 swapped?",
        )
    return None


def _cut(answers: dict[str, object]) -> Verdict | None:
    run, answer = disagreeing.cut_short(), answers["cut_short"]
    if run.fits(answer) or run.request is None:
        return None
    read, prompt = run.read_in(run.first_step(run.request), run.request), run.believed(run.request)
    if answer is None:
        return wrong(
            "only-lengths",
            f"{run.name}: all `Length` events say {prompt}, and the first step on the decode node read {read} slots. "
            "You found no disagreement.",
            "Attention notes no `Length`. How does the trace show what it took for the length?",
            "Add up what the first step on the decode node read for a request. One of these slots is the first token "
            "of the answer.",
            "A prompt has 18 tokens. How many slots must the first step on the decode node read?",
        )
    return wrong(
        "other",
        f"{run.name}: you reported a {type(answer).__name__} of step {getattr(answer, 'step', 0)}. The first that "
        f"differs is the first step on the decode node, in which {read} slots were read for a prompt of {prompt}.",
        "Which of its steps do you look at, and what do you add up there?",
    )  # fmt: skip
