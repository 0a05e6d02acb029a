"""Chapter 05, prefill, decode, batch: who runs next when everybody shares the machine?"""

from __future__ import annotations

from minikv.course.chapters.counting import Request, Visit, look_at, plan_static, play
from minikv.course.chapters.ex_5_1 import judge_whole, plan_whole
from minikv.course.chapters.ex_5_2 import judge_chunks, plan_step
from minikv.course.declare import Exercise, Option, Question, register

__all__ = ["REFERENCE", "Request", "Visit", "look_at", "plan_static", "plan_step", "plan_whole", "play"]

EIGHT_TOGETHER = Question(
    "p-5.1",
    "One user gets an answer, one token a step. Then eight users get theirs in the same steps: eight tokens a step. "
    "How much longer does a step take?",
    {
        "A": Option(
            "not even 4 times as long",
            "A step goes through all weights of the model. That is most of its work when it has few tokens, and it is "
            "done once for all eight. What each of them adds is small.",
        ),
        "B": Option(
            "about 8 times as long",
            "That would be so if each user took a pass through the weights of their own. But the eight tokens go "
            "through the model together: a number of the weights is fetched once and used eight times.",
        ),
        "C": Option(
            "16 times or more, since they get in each other's way",
            "What is shared is read, never written: eight users do not block each other. Each has pages of their own.",
        ),
    },
    answer="A",
)

KNOWN_AND_WRITTEN = Question(
    "p-5.2",
    "A prompt of 9 tokens was read, in one step, and the first token of the answer is there. How many positions are "
    "written now, and how many tokens are known?",
    {
        "A": Option(
            "9 written, 9 known",
            "The step that reads the prompt gives a token as well: the first of the answer. So ten are known.",
        ),
        "B": Option(
            "9 written, 10 known",
            "The tenth token came out of the step. It has no key and no value yet, since it did not go through the "
            "model: that is the next step's work.",
        ),
        "C": Option(
            "10 written, 10 known",
            "A key is made when a token goes through the model. The tenth came out at the end and did not go in yet.",
        ),
        "D": Option(
            "8 written, 9 known: the last token of the prompt waits",
            "The last token of the prompt has to go through the model, since the answer starts from it. So it is "
            "written.",
        ),
    },
    answer="B",
)

A_LONG_PROMPT = Question(
    "p-5.3",
    "Four people are reading their answers: each gets one token a step. A prompt of 2,000 tokens comes. It is read "
    "whole in one step, or in pieces (chunks), in steps of at most 256 tokens. How many tokens are computed between "
    "two tokens of the same answer, at most?",
    {
        "A": Option(
            "4 and 4",
            "That is what it was before. But now the four share their steps with the newcomer, and a step ends for all "
            "of them at once.",
        ),
        "B": Option(
            "2,004 and 256",
            "Read whole, the prompt and the four tokens are one long step. In chunks, each step is 256 tokens at most, "
            "and each gives the four their next token.",
        ),
        "C": Option(
            "2,004 and 2,004: chunks do not make the work less",
            "The work stays the same, that is true. But after each chunk the four get a token. They wait for one "
            "chunk and not for all of them.",
        ),
        "D": Option(
            "2,004 and 2,032: chunks make it worse",
            "That is all the work until the newcomer's first token: 2,000 tokens, and eight times four. It is the "
            "newcomer who waits for all of it, not the four.",
        ),
    },
    answer="B",
)

WHOLE_PROMPTS = Exercise(
    "ex-5.1",
    "A step of whole prompts",
    minutes=18,
    lines=8,
    done_when="no answer waits for a prompt, nobody overtakes, and no step goes over its budget",
    idea="Who answers comes first, and prompts fill what is left of the budget.",
    judge=judge_whole,
    seconds=20.0,
)
CHUNKS = Exercise(
    "ex-5.2",
    "A step with chunks",
    minutes=18,
    lines=7,
    done_when="a prompt of any length is read, and every step is full while somebody misses tokens",
    idea="It ran inside the engine, with the same answers as the engine's own.",
    judge=judge_chunks,
    seconds=20.0,
)

REFERENCE = {"ex-5.1": plan_whole, "ex-5.2": plan_step}

register(EIGHT_TOGETHER, KNOWN_AND_WRITTEN, A_LONG_PROMPT, WHOLE_PROMPTS, CHUNKS)
