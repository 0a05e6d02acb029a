"""Chapter 06, the door: what may a server promise, and what does it say when it cannot?"""

from __future__ import annotations

from minikv.course.chapters.ex_6_1 import admit, judge_admit
from minikv.course.chapters.ex_6_2 import Reply, is_broken, judge_probe
from minikv.course.chapters.line_06 import play_line
from minikv.course.declare import Exercise, Option, Question, register

__all__ = ["REFERENCE", "Reply", "admit", "is_broken", "play_line"]

FIVE_REQUESTS = Question(
    "p-6.1",
    "28 slots, context 512. Five requests, each as prompt tokens + answer tokens:\n"
    "  1) 20 + 4, all slots free    2) 20 + 4, 8 slots free\n"
    "  3) 27 + 2, all free    4) 27 + 8, all free    5) 600 + 1, all free\n"
    "Serve (S), let wait (W) or refuse (R)?",
    {
        "A": Option(
            "S R S R R",
            "The second does not fit now, and it will in a few steps. A refusal would be final.",
        ),
        "B": Option(
            "S W R R R",
            "27 + 2 are 29 tokens, but only 28 of them are ever written. The last one is known and never read again.",
        ),
        "C": Option(
            "S W S W R",
            "27 + 8 would wait for a room that this building does not have. Even with all slots free the answer stops "
            "in the middle.",
        ),
        "D": Option(
            "S W S S R",
            "35 tokens are far below the context of 512. The context says what the model can read, not what the pool "
            "can hold.",
        ),
        "E": Option(
            "S W S R R",
            "23 slots fit now, 23 slots fit later, 28 slots fit exactly. 34 slots never fit, and 600 do not either.",
        ),
    },
    answer="E",
)

FIVE_ANSWERS = Question(
    "p-6.2",
    "A prompt can never fit. Five servers answer in five ways: 400, 429, 500, 200 with the prompt cut to fit, and not "
    "at all. After how many of the five does a usual proxy send the same prompt again? And after which will the person "
    "who asked never learn that something went wrong?",
    {
        "A": Option(
            "again after 1 (429); never learns: nothing at all",
            "A 500 looks like an accident that may not happen again, and a silence like a lost message. Both are sent "
            "again. And whoever gets nothing does learn that something is wrong.",
        ),
        "B": Option(
            "again after 2 (429, 500); never learns: 200",
            "Silence ends too: the proxy runs out of patience, and then sends it again.",
        ),
        "C": Option(
            "again after 3 (429, 500, nothing); never learns: 200",
            "Only 400 says that it will be no better next time. And only the cut prompt comes back looking like a "
            "success.",
        ),
        "D": Option(
            "again after 4 (all but 200); never learns: nothing at all",
            "400 says: the request itself is the trouble. A proxy that sends it again has not understood the number.",
        ),
    },
    answer="C",
)

ONE_CHARACTER = Question(
    "p-6.3",
    "Two doors of 28 slots differ in one character: one refuses `slots > 28`, the other `slots >= 28`. 1,000 random "
    "requests come, with prompts of 1 to 600 tokens and answers of 1 to 200. How many of them are let in by one door "
    "and refused by the other?",
    {
        "A": Option(
            "about 50",
            "That would be so if the two differed for all small requests. They differ for one number of slots.",
        ),
        "B": Option(
            "about 10",
            "Few requests are small, and of the small ones few have exactly 28 slots. It is two rare things at once.",
        ),
        "C": Option(
            "one, or none",
            "The two doors disagree at one number of slots. A random request hardly ever has exactly that number.",
        ),
        "D": Option(
            "none, for any request: they mean the same",
            "They mean the same everywhere but at 28. There one serves what fits exactly, and the other refuses it.",
        ),
    },
    answer="C",
)

DOOR = Exercise(
    "ex-6.1",
    "The door",
    minutes=18,
    lines=8,
    done_when="what fits is served, now or later, and what never fits is told so at once",
    idea="A promise is kept by counting what may come, and a refusal changes nothing but the answer.",
    judge=judge_admit,
)
PROBE = Exercise(
    "ex-6.2",
    "Six requests",
    minutes=8,
    lines=4,
    done_when="four broken doors are found with six requests each, and the right one is left alone",
    idea="Mistakes live at the limits, on either side.",
    judge=judge_probe,
)

REFERENCE = {"ex-6.1": admit, "ex-6.2": is_broken}

register(FIVE_REQUESTS, FIVE_ANSWERS, ONE_CHARACTER, DOOR, PROBE)
