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

WHICH_PAGE = Question(
    "p-7.3",
    "On the prefill node a part of the prompt lies in page 3. In which page of the decode node will it lie?",
    {
        "A": Option(
            "in page 3",
            "Page 3 of the decode node may be lent to somebody else. Both pools have a page 3: two pages.",
        ),
        "B": Option(
            "in page 3, or the handoff waits until that is free",
            "Then two nodes would need the same free pages at the same moment. Nothing requires that.",
        ),
        "C": Option(
            "in any: the decode node decides",
            "A page number means something on one node only. What travels is the order: first page, second page. Each "
            "side has a page table of its own.",
        ),
        "D": Option(
            "the handoff carries a list that says so",
            "The sender would have to know what is free on the other side. The record has no such field.",
        ),
    },
    answer="C",
)

EQUAL_POOLS = Question(
    "p-7.4",
    "Two test nodes are set up with two equal pools, of 64 slots each. The two doors still do not know of each other. "
    "All prompts from 1 to 300 tokens are sent. For how many do the doors disagree?",
    {
        "A": Option(
            "none",
            "Both doors compare with the same number, so they say the same each time. The fault is there, and no "
            "test on this machine can show it.",
        ),
        "B": Option(
            "one: the length at the limit",
            "It would be so if one door compared with `>` and the other with `>=`. Here both are the same door.",
        ),
        "C": Option(
            "all that are longer than the pool",
            "For these both say no. A refusal that nobody passes on does no harm if the other side refuses as well.",
        ),
        "D": Option(
            "the same ones as with unequal pools",
            "They disagreed for lengths that one pool held and the other did not. Between two equal numbers there is "
            "no such length.",
        ),
    },
    answer="A",
)

RECEIVE = Exercise(
    "ex-7.1",
    "Receive, complete or nothing",
    minutes=25,
    lines=14,
    done_when="a complete handoff is taken once, and everything else leaves no trace",
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

register(WHO_HEARS, IS_ALL_WELL, WHICH_PAGE, EQUAL_POOLS, RECEIVE, DECEIVE)
