"""Chapter 10, the fix: which guards would you ship first, and how would you know that they hold?"""

from __future__ import annotations

from minikv.course.chapters.bets_10 import OneTruth, compare_bets, stage_with, zeroed
from minikv.course.chapters.cost_10 import share_of_guards
from minikv.course.chapters.ex_10_1 import MyGuards, cell, judge_guards, reason_of
from minikv.course.chapters.ex_10_2 import DEFECTS, HARMFUL, Suite, judge_suite, stand_of
from minikv.course.chapters.ex_10_3 import judge_smallest, made, smallest_sets
from minikv.course.chapters.parts_10 import Parts
from minikv.course.chapters.stand_10 import ANSWER, SECRETS, TEXTS, WIRES, Stand, canaries
from minikv.course.declare import Exercise, Option, Question, register

__all__ = [
    "ANSWER",
    "DEFECTS",
    "HARMFUL",
    "REFERENCE",
    "SECRETS",
    "TEXTS",
    "WIRES",
    "MyGuards",
    "OneTruth",
    "Parts",
    "Stand",
    "Suite",
    "canaries",
    "cell",
    "compare_bets",
    "made",
    "reason_of",
    "share_of_guards",
    "smallest_sets",
    "stage_with",
    "stand_of",
    "zeroed",
]

ONE_ALONE = Question(
    "p-10.1",
    "History had all eight defects. Now one guard is put in, and the other seven defects stay. The request is the one "
    "of the incident, and the answer comes whole at its end. For how many of the eight guards does a stranger's word "
    "still come out?",
    {
        "A": Option(
            "for seven: only the guard at the root cause helps",
            "The incident needed all eight. There is no place in that chain at which a guard would have been too late "
            "for the words, as long as the answer comes whole.",
        ),
        "B": Option(
            "for about half: those after the door come too late",
            "A late guard is late for the slots: seven stale pages were read. But the answer was not yet sent.",
        ),
        "C": Option(
            "for none, and in all eight the client is refused, truthfully",
            "No words, yes. But one of the eight takes the words away and nothing else: the client gets nonsense, and "
            "a status that says all is well.",
        ),
        "D": Option(
            "for none, but not always is the client told the truth",
            "Any of the eight stops the words. Seven of them end in a refusal. The one that reads only what was "
            "written (f) answers with nonsense and status 200: it hides the fault.",
        ),
    },
    answer="D",
)

ON_ZEROS = Question(
    "p-10.2",
    "Both nodes fill every page with zeros when it comes back. Then the request of the incident comes. The zeroed "
    "slots are read, as before. How much of the attention falls on them, all steps, layers and heads together?",
    {
        "A": Option(
            "none: there is nothing in them",
            "A key of zeros gives a score of 0. That is no minus infinity. Softmax turns it into a weight, and you saw "
            "it in chapter 04.",
        ),
        "B": Option(
            "a little: a twentieth or less",
            "A single slot gets little. But there are hundreds of them, and a handful of others.",
        ),
        "C": Option(
            "most of it",
            "Each slot gets a little, and there are 489. What the model hears is mostly silence, and it talks nonsense "
            "in a steady voice.",
        ),
        "D": Option(
            "all of it",
            "The two slots of the request itself have real keys, and so have the words of the answer as it grows.",
        ),
    },
    answer="C",
)

OLD_WRITER = Question(
    "p-10.3",
    "A client leaves. Its page is zeroed and lent to somebody else. Only then does the handoff arrive that was under "
    "way for the client that left. What helps?",
    {
        "A": Option(
            "zeroing, when the page is lent as well",
            "However often you wipe, the late writer comes after it.",
        ),
        "B": Option(
            "a door that knows all pools",
            "Both requests were short. No door has a reason to say no.",
        ),
        "C": Option(
            "a receiver that compares lengths",
            "It compares what it is given for a request that waits. This one is not waiting any more, and nobody asks "
            "the receiver: the writer has the page numbers.",
        ),
        "D": Option(
            "asking whose page it is at the moment of the write, or not lending it until the writer is done",
            "Both look at the writer. The one turns it away, the other waits for it.",
        ),
    },
    answer="D",
)

HOW_FEW = Question(
    "p-10.4",
    "Six scenarios, eight guards, 256 sets of guards. How many guards does the smallest set have that leaves nothing "
    "open: no leak, no lie, no nonsense, no endless wait?",
    {
        "A": Option(
            "one",
            "Look at the map again: each row has a cell that is neither right nor refused.",
        ),
        "B": Option(
            "two",
            "There is one scenario that only generations stop, and one that needs the legs to tell each other. Two "
            "guards do both, and the rest falls to them, too.",
        ),
        "C": Option(
            "four, one for each kind of fault",
            "The kinds share their guards: whoever counts what came stops three scenarios at once.",
        ),
        "D": Option(
            "all eight: each defect needs its guard",
            "That each defect took part does not mean that each needs a guard of its own.",
        ),
    },
    answer="B",
)

GUARDS = Exercise(
    "ex-10.1",
    "Guards of your own",
    minutes=20,
    lines=13,
    done_when="with your door and your receiver in place, no scenario leaks, lies or waits for ever",
    idea="A guard stops what passes it. Choose guards so that what the one does not see passes the other.",
    judge=judge_guards,
    seconds=40.0,
)
TESTS = Exercise(
    "ex-10.2",
    "Tests in two layers",
    minutes=25,
    lines=22,
    done_when="seven harmful sets and eight single defects turn red, and the right engine stays green",
    idea="Answers show what came through all guards. Parts that are asked alone show which guard is missing.",
    judge=judge_suite,
    seconds=40.0,
)
SMALLEST = Exercise(
    "ex-10.3",
    "The smallest sets of guards",
    minutes=10,
    lines=6,
    done_when="you find every smallest set, and only those",
    idea="Covered means: right, or refused, in every scenario.",
    judge=judge_smallest,
)

REFERENCE = {"ex-10.1": MyGuards, "ex-10.2": Suite, "ex-10.3": smallest_sets}

register(ONE_ALONE, ON_ZEROS, OLD_WRITER, HOW_FEW, GUARDS, TESTS, SMALLEST)
