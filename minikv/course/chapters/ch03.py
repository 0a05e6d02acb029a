"""Chapter 03, pages: why lend pages, and what is in a page when you get it?"""

from __future__ import annotations

from minikv.course.chapters.ex_3_1 import judge_pages, pages_and_empty
from minikv.course.chapters.ex_3_2 import Allocator, judge_allocator
from minikv.course.chapters.ex_3_3 import judge_reading, read_page
from minikv.course.declare import Exercise, Option, Question, register

__all__ = ["REFERENCE", "Allocator", "pages_and_empty", "read_page"]

HOW_MANY = Question(
    "p-3.1",
    "448 slots. Every request announces up to 128 tokens and then uses 30. How many run at once: "
    "with one block each, and with pages of 16 slots?",
    {
        "A": Option(
            "3 and 3",
            "A page is lent when a token needs it. What a request only announced takes no page.",
        ),
        "B": Option(
            "3 and 14",
            "A block must be as long as the promise: 3 times 128 fits into 448. Pages follow what is really "
            "used: 30 tokens sit in 2 pages, and 14 times 2 pages are all 28.",
        ),
        "C": Option(
            "14 and 14",
            "A block cannot be cut to 30 slots. When it is handed out, nobody knows yet that 30 will do.",
        ),
        "D": Option(
            "3 and 28",
            "28 pages there are, but 30 tokens do not fit into one page of 16. They take two.",
        ),
    },
    answer="B",
)

WHAT_IS_INSIDE = Question(
    "p-3.2",
    "Ada fills four pages of four slots with sevens, and her request ends. Ben's request gets her pages. "
    "His first six tokens are all fives. What does the second of his pages hold now?",
    {
        "A": Option(
            "5 5 0 0",
            "Nothing here wipes, neither taking back nor lending. The numbers stay where they are.",
        ),
        "B": Option(
            "5 5 5 5",
            "A page is lent whole, and written slot by slot. Six tokens fill one page and two slots of the next.",
        ),
        "C": Option(
            "5 5 7 7",
            "Lending changes who holds the page, and writing changes the slots that are written. The other two hold "
            "what was written last, and that was Ada's.",
        ),
        "D": Option(
            "5 5, and reading further would raise an error",
            "The pool is one large tensor that always exists. Every slot of it can be read at any time.",
        ),
    },
    answer="C",
)

CAN_BE_READ = Question(
    "p-3.3",
    "You have the numbers of a page and the model's weights, no text, and you may not run the model. "
    "How much of Ada's text can you get back?",
    {
        "A": Option(
            "nothing: the numbers are as good as encrypted",
            "Encryption needs a secret. Here everything that made the numbers out of the words is public.",
        ),
        "B": Option(
            "roughly what it was about",
            "That would be true for one vector a text. Here it is one vector a token, so the words come one by one.",
        ),
        "C": Option(
            "every token",
            "A value of layer 0 depends on its token alone. So each token has one, and you can look them all up.",
        ),
        "D": Option(
            "every token, but only from unrounded numbers",
            "The vectors of two tokens lie far apart. Rounding to 4 bits moves each a little, and the nearest "
            "token stays the same.",
        ),
    },
    answer="C",
)

PAGES = Exercise(
    "ex-3.1",
    "Pages needed",
    minutes=5,
    lines=2,
    done_when="every token has a slot, no page is without one, and you know how many slots stay empty",
    idea="A page is lent whole, so the last one is rounded up, and what it has too much stays empty.",
    judge=judge_pages,
)
ALLOCATOR = Exercise(
    "ex-3.2",
    "Allocator",
    minutes=25,
    lines=12,
    done_when="every page is free or lent, never both, and a larger pool is not slower",
    idea="It ran inside the engine, with the same answers as the engine's own.",
    judge=judge_allocator,
    seconds=20.0,
)
READING = Exercise(
    "ex-3.3",
    "Read a freed page",
    minutes=15,
    lines=4,
    done_when="every token of a freed page is found",
    idea="A value of layer 0 belongs to one token. A page of values is a page of text.",
    judge=judge_reading,
)

REFERENCE = {"ex-3.1": pages_and_empty, "ex-3.2": Allocator, "ex-3.3": read_page}

register(HOW_MANY, WHAT_IS_INSIDE, CAN_BE_READ, PAGES, ALLOCATOR, READING)
