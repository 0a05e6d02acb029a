"""Chapter 09, root cause: which line was it, and is that the right question?"""

from __future__ import annotations

from minikv.course.chapters.ex_9_1 import Detector, judge_detector
from minikv.course.chapters.ex_9_2 import first_disagreement, judge_first
from minikv.course.chapters.ex_9_3 import TRIALS, judge_trials
from minikv.course.chapters.ordinary_09 import ORDINARY, ordinary_requests, two_fields
from minikv.course.chapters.trials_9 import changes, laboratory, outcome, run_trials
from minikv.course.chapters.upstream_09 import upstream_history
from minikv.course.declare import Exercise, Option, Question, register

__all__ = [
    "ORDINARY",
    "REFERENCE",
    "changes",
    "laboratory",
    "ordinary_requests",
    "outcome",
    "run_trials",
    "two_fields",
    "upstream_history",
]

BY_OWNER = Question(
    "p-9.1",
    "A detector knows the owner of each page. At every read it compares the reader with the owner. In the incident 489 "
    "stale slots are read. How many of these reads does it find?",
    {
        "A": Option("489", "For that it would have to know who filled each slot. It knows who was lent the page."),
        "B": Option(
            "448, the seven stale pages",
            "These pages are stale, and yet they are the attacker's own: the allocator lent them to nobody else.",
        ),
        "C": Option(
            "63, those of the first page",
            "They came from a page of the prefill node. But they lie in a page that the attacker owns, as all others "
            "do.",
        ),
        "D": Option(
            "0",
            "Every page that was read had been lent to its reader, rightly. Owner and reader agree 491 times. The "
            "detector is not broken. It asks the wrong question.",
        ),
    },
    answer="D",
)

EIGHT_NUMBERS = Question(
    "p-9.2",
    "How long did each part take the prompt to be? client, prefill's door, queue, capacity check, wire, decode's door, "
    "page table, attention",
    {
        "A": Option(
            "490 490 490 490 490 490 490 491",
            "Then prefill would have read all 490 tokens, or nothing would have been served. One slot was written.",
        ),
        "B": Option(
            "490 490 1 1 1 1 1 2",
            "That would be a short request, served correctly from one page. But decode reserved eight pages, so "
            "somebody told it the old number again.",
        ),
        "C": Option(
            "490 490 490 490 1 490 490 491",
            "That would be a handoff that lost its pages on the way. But the number was 1 long before the wire: "
            "prefill had written one slot, and promised one.",
        ),
        "D": Option(
            "490 490 1 1 1 490 490 491",
            "Down after prefill's door, and up again at decode's, which has the request from the client and not from "
            "prefill. Between the two jumps everybody agrees, and after them as well. Attention adds the first token.",
        ),
    },
    answer="D",
)

ONE_OF_EIGHT = Question(
    "p-9.4",
    "History had eight faults at once. Mend one of them and leave the other seven. For how many of the eight does the "
    "ending change?",
    {
        "A": Option("1: the cause", "Then one line would be the cause, and seven would be bystanders."),
        "B": Option(
            "3: the refusal, the handoff and the pages",
            "Each of these does change it. But so do the ones between them: whichever you mend, the chain is broken "
            "somewhere.",
        ),
        "C": Option(
            "8: each of them",
            "Every one was needed for this very ending. So every one can be called the cause, and the question for the "
            "one line has eight answers.",
        ),
        "D": Option(
            "0: the other seven still do it",
            "The faults do not stand in for each other. They come one after the other, like the links of a chain.",
        ),
    },
    answer="C",
)

THE_MERGED_FIX = Question(
    "p-9.3",
    "A change that was merged upstream closed this leak. What was it written for?",
    {
        "A": Option(
            "for this leak: somebody had understood it",
            "Its own description speaks of another fault. People had described this one in threads of their own, and "
            "the changes that they proposed were open when these records were made.",
        ),
        "B": Option(
            "for another fault: requests with pictures that fail",
            "The title of the change is about aborted results of models that read pictures, and the fault that it "
            "mends is lost memory and a crash. It tests for an abort where the placeholder passes, and so it closes "
            "this leak as well.",
        ),
        "C": Option(
            "for the receiver: it counts what arrives",
            "A change that does so was proposed, and was still open in the records that we read. The newest package "
            "that we read, 0.5.23, does not have it.",
        ),
        "D": Option(
            "for speed",
            "A later change was described by its author as a matter of waste and delay. It is the one that turns "
            "refused requests away at both doors, and it came after the leak was closed.",
        ),
    },
    answer="B",
)

DETECT = Exercise(
    "ex-9.1",
    "A detector of stale reads",
    minutes=25,
    lines=10,
    done_when="it reports every stale read of six runs, and nothing in 1,000 ordinary requests",
    idea="The owner of a page says nothing about what is in it: ask who filled the slot, and since when.",
    judge=judge_detector,
    seconds=60.0,
)
FIRST = Exercise(
    "ex-9.2",
    "The first disagreement",
    minutes=18,
    lines=12,
    done_when="it finds the right event in five runs that go wrong, and none in three that do not",
    idea="The cause is where two parts first disagree, long before anybody suffers.",
    judge=judge_first,
    seconds=30.0,
)
TRY = Exercise(
    "ex-9.3",
    "Three hypotheses",
    minutes=12,
    lines=6,
    done_when="each of your three expectations could have failed, and one of them is that nothing changes",
    idea="An expectation that could not fail is no test.",
    judge=judge_trials,
    seconds=60.0,
)

REFERENCE = {"ex-9.1": Detector, "ex-9.2": first_disagreement, "ex-9.3": TRIALS}

register(BY_OWNER, EIGHT_NUMBERS, THE_MERGED_FIX, ONE_OF_EIGHT, DETECT, FIRST, TRY)
