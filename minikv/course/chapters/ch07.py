"""Chapter 07, two machines: how does a cache travel, and how does the receiver know that it is all there?"""

from __future__ import annotations

from minikv.course.chapters.ex_7_1 import judge_receive, receive
from minikv.course.chapters.ex_7_2 import (
    counts_pages,
    deceive,
    forgets,
    judge_deceive,
    reads_the_promise,
    sample,
    tried,
)
from minikv.course.chapters.handover import DecodeSide, Handoff, PrefillSide, digest_of
from minikv.course.chapters.late_writers import storm
from minikv.course.declare import Exercise, Option, Question, register

__all__ = [
    "REFERENCE",
    "DecodeSide",
    "Handoff",
    "PrefillSide",
    "counts_pages",
    "deceive",
    "digest_of",
    "forgets",
    "reads_the_promise",
    "receive",
    "sample",
    "storm",
    "tried",
]

WHO_HEARS = Question(
    "p-7.1",
    "The prefill node's pool has 28 slots, the decode node's 256. A prompt of 31 tokens comes, and 4 tokens of answer "
    "are asked for. Each node has your door, and each door knows only its own pool. Who says no, and who hears it?",
    {
        "A": Option(
            "prefill says no, and the client hears it",
            "That is how it should be. But the client is waiting for the node that writes the answer. That is decode, "
            "and decode said yes.",
        ),
        "B": Option(
            "prefill says no, and decode hears it and stops",
            "For that somebody must have written a line that tells decode. A door gives its answer to whoever asked, "
            "and that was prefill alone.",
        ),
        "C": Option(
            "prefill says no, and nobody else hears it",
            "A refusal is a value that a function gives back. It goes to the caller and no further. Decode's door has "
            "said yes, so decode lends pages and waits for a handoff.",
        ),
        "D": Option(
            "both say no, since the request must pass both nodes",
            "The request must pass both, but decode's door does not know that. It sees 256 slots, and 34 are asked "
            "for.",
        ),
    },
    answer="C",
)

IS_ALL_WELL = Question(
    "p-7.2",
    "Decode has reserved 8 pages for request 7. The network reports success. One page came. The digest was worked out "
    "again from what came, and it matches. Is all well?",
    {
        "A": Option(
            "yes: the digest covers everything",
            "It covers everything that was sent. What was never sent is in no digest.",
        ),
        "B": Option(
            "yes: the network says success",
            "Success means that all that was sent has arrived. The network does not know how long the prompt was.",
        ),
        "C": Option(
            "no, and the digest shows it",
            "Sender and receiver worked it out from the same page. Of course they agree.",
        ),
        "D": Option(
            "no, and neither of the two can show it",
            "Both speak of what was sent. Somebody must know what was expected, and compare.",
        ),
    },
    answer="D",
)

WHICH_PAGES = Question(
    "p-7.3",
    "Three requests come one after the other to a fresh pair of nodes. Each prompt needs two pages. When the third one "
    "is handed over, the first two answers are still being written. In which pages does the third prompt lie?",
    {
        "A": Option(
            "prefill: 4 and 5; decode: 4 and 5",
            "That would need two pools that lend in step, and nobody keeps them in step. Both have a page 4, and these "
            "are two pages.",
        ),
        "B": Option(
            "prefill: 4 and 5; decode: 0 and 1",
            "It is the other way round. What was handed over, prefill needs no more. Decode needs it up to the last "
            "token.",
        ),
        "C": Option(
            "prefill: 0 and 1; decode: 0 and 1",
            "Right for prefill. But on the decode node these hold the first request, and its answer is not done.",
        ),
        "D": Option(
            "prefill: 0 and 1; decode: higher ones",
            "Prefill gives its pages back after each handoff. Decode still holds those of the first two. A page number "
            "means something on one node only.",
        ),
    },
    answer="D",
)

ALMOST_EQUAL = Question(
    "p-7.4",
    "Prompts of 1 to 300 tokens are sent, with 4 tokens of answer, to a test stand of two equal nodes, each with 64 "
    "slots. Their doors never disagree: both compare with 64. Then the decode node gets one page of 4 slots more. On "
    "how many of the 300 lengths do the doors disagree now?",
    {
        "A": Option(
            "none: the pools are almost equal",
            "Almost is enough. There are lengths that need more than 64 slots and no more than 68.",
        ),
        "B": Option(
            "1: the length at the limit",
            "Each pool has a limit of its own, and they lie 4 slots apart.",
        ),
        "C": Option(
            "4: one for each slot more",
            "Those that the one pool holds and the other does not. A test that leaves out these lengths sees nothing, "
            "and on equal pools there is no such length.",
        ),
        "D": Option(
            "all that are too long for 64 slots",
            "Most of these are too long for 68 slots as well. Then both doors say no, and nobody waits.",
        ),
    },
    answer="C",
)

RECEIVE = Exercise(
    "ex-7.1",
    "Receive, complete or nothing",
    minutes=25,
    lines=14,
    done_when="a complete handoff is taken once, and everything else is refused: nothing read, no page lost",
    idea="Expected, promised and received are three numbers, known to three parts. It ran inside a cluster.",
    judge=judge_receive,
    seconds=30.0,
)
DECEIVE = Exercise(
    "ex-7.2",
    "Deceive three receivers",
    minutes=12,
    lines=8,
    done_when="each of the three takes something that a right receiver refuses",
    idea="What a receiver does not ask for, somebody will leave out.",
    judge=judge_deceive,
)

REFERENCE = {"ex-7.1": receive, "ex-7.2": deceive}

register(WHO_HEARS, IS_ALL_WELL, WHICH_PAGES, ALMOST_EQUAL, RECEIVE, DECEIVE)
