"""Chapter 08, seven stale pages: whose words are these?"""

from __future__ import annotations

from minikv.course.chapters.day_08 import busy_day, doors, sender
from minikv.course.chapters.ex_8_1 import judge_slots, slots_read
from minikv.course.chapters.ex_8_2 import judge_old, old_tokens
from minikv.course.chapters.ex_8_3 import judge_plan, plan
from minikv.course.chapters.lab import (
    DECODE_PAGES,
    PAGE_SIZE,
    PREFILL_PAGES,
    TENANTS,
    Lab,
)
from minikv.course.declare import Exercise, Option, Question, register

__all__ = ["DECODE_PAGES", "PAGE_SIZE", "PREFILL_PAGES", "REFERENCE", "TENANTS", "Lab", "busy_day", "doors", "sender"]

THE_WINDOW = Question(
    "p-8.1",
    "A prompt of 442 tokens comes. Prefill refuses such a prompt. Decode would take it. What happens?",
    {
        "A": Option(
            "status 400",
            "That is what a refusal should come to. Prefill did note it, but nobody passed it on to the client.",
        ),
        "B": Option(
            "status 200: 7 pages reserved, 7 written",
            "That would be a request served correctly. But prefill never read the 442 tokens, so it has no 442 slots "
            "to hand over.",
        ),
        "C": Option(
            "status 200: 7 pages reserved, 1 written",
            "Prefill refused, and went on with a stand-in of one token. Decode reserved pages for 442 tokens. Neither "
            "heard of the other's number.",
        ),
        "D": Option(
            "it hangs: decode waits for pages that never come",
            "Decode waits for one message, and that message comes. Nobody compares how much is in it with how much "
            "was expected.",
        ),
    },
    answer="C",
)

HOW_MANY_OWN = Question(
    "p-8.2",
    "Eight pages were reserved and one was written. The first step on the decode node reads 491 positions. How many "
    "of them did the attacker's own request write?",
    {
        "A": Option(
            "64",
            "That is a whole page. A page counts as written when one slot of it is. The other 63 hold what lay there.",
        ),
        "B": Option(
            "43",
            "491 minus 7 times 64 is 43. But nobody wrote 43 slots: the first page is mostly foreign, and the last "
            "page is read only in part.",
        ),
        "C": Option("1", "There is one more: the step itself writes the slot of the first answer token, and reads it."),
        "D": Option(
            "2",
            "The placeholder at position 0, and the first token of the answer at position 490. The other 489 were "
            "written by somebody else: 63 in the first page, 6 times 64, and 42 in the last.",
        ),
    },
    answer="D",
)

A_FRESH_START = Question(
    "p-8.3",
    "The server has just been started. Nobody was here before. The same request is sent. What comes back?",
    {
        "A": Option(
            "the same words",
            "Then the words would come out of the model or out of the request. Look where they stand: in the pages "
            "that another request filled before.",
        ),
        "B": Option(
            "status 200 and nonsense",
            "Nothing was ever written to these pages, so they hold zeros. The request reads them all the same. A leak "
            "needs a past.",
        ),
        "C": Option(
            "status 400",
            "Nobody refuses because of what a page holds. The doors look at lengths, and the length is the same.",
        ),
        "D": Option(
            "a sensible answer about the weather",
            "The question itself never reaches the decode node. One slot arrives, the one of the placeholder.",
        ),
    },
    answer="B",
)

WITH_A_PENCIL = Question(
    "p-8.4",
    "The article reports a prefill pool of 681,280 tokens. It also reports a request with 8 pages: 1 written, 7 stale. "
    "It gives no page size. Can both belong to one request?",
    {
        "A": Option(
            "yes",
            "681,274 tokens in 8 pages would need pages of 85,160 slots. With any usual page size a pool of 681,280 "
            "tokens takes a prompt of 8 pages without trouble, and nobody refuses anything.",
        ),
        "B": Option(
            "no",
            "The shortest prompt that this pool refuses has 681,274 tokens. 8 pages for it would need pages of 85,160 "
            "slots. Issue #30233, from another installation, used 64. So the drawing is most likely a smaller example.",
        ),
        "C": Option(
            "yes: the other pages are lent later, one by one",
            "Decode reserves pages for the whole prompt at once, before the handoff comes.",
        ),
        "D": Option(
            "yes, if decode's pool is small",
            "Then decode refuses such a prompt as well, and nobody sees a leak. Decode's pool has to be the larger.",
        ),
    },
    answer="B",
)

COUNT = Exercise(
    "ex-8.1",
    "Slots read, by writer",
    minutes=15,
    lines=8,
    done_when="your counts are those of the server's own book, for four attacks",
    idea="Count what was read, by who wrote it.",
    judge=judge_slots,
    seconds=20.0,
)
OLD_WORDS = Exercise(
    "ex-8.2",
    "Read the stale pages",
    minutes=5,
    lines=1,
    done_when="you have the tokens of the seven stale pages, in order, and the model did nothing",
    idea="The words are in the pages.",
    judge=judge_old,
)
PLAN = Exercise(
    "ex-8.3",
    "Plan the attack",
    minutes=18,
    lines=6,
    done_when="the seven stale pages are halverson's, and quennell was served too",
    idea="What leaks is decided by who wrote the pages that are lent next.",
    judge=judge_plan,
    seconds=30.0,
)

REFERENCE = {"ex-8.1": slots_read, "ex-8.2": old_tokens, "ex-8.3": plan}

register(THE_WINDOW, HOW_MANY_OWN, A_FRESH_START, WITH_A_PENCIL, COUNT, OLD_WORDS, PLAN)
