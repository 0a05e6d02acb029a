"""Chapter 01, what is a KV cache: why may a model keep old keys and values?"""

from __future__ import annotations

from minikv.course.chapters.ex_1_1 import greedy, judge_greedy
from minikv.course.chapters.ex_1_2 import changed, judge_changed
from minikv.course.chapters.ex_1_3 import attend, judge_attend
from minikv.course.declare import Exercise, Option, Question, register

__all__ = ["REFERENCE", "attend", "changed", "greedy"]

APPEND = Question(
    "p-1.1",
    "A text has 64 tokens. You append one more. Each of the 64 old tokens has a key in each of the 30 layers (all "
    "heads taken together). How many of these 1,920 keys change?",
    {
        "A": Option(
            "all of them",
            "That would be so if each token looked at the whole text, the new token included. It looks only back.",
        ),
        "B": Option(
            "none",
            "The new token stands after all the others, and no token looks ahead. For the old ones, nothing happened.",
        ),
        "C": Option(
            "those of the last few tokens",
            "Near or far makes no difference here. The last old token stands before the new one, like all the others.",
        ),
        "D": Option(
            "none in the first layers, more and more in the deeper ones",
            "Deeper layers do mix more, but always what stands before. For an old token that is still the same.",
        ),
    },
    answer="B",
)

PREPEND = Question(
    "p-1.2",
    "Now you put one token in front of the 64. How many of the old tokens get another value, in layer 0 and in "
    "layers 1 to 29?",
    {
        "A": Option(
            "layer 0: none. Layers 1 to 29: none",
            "That is what happens when the new token stands at the end. In front, everybody can look back at it.",
        ),
        "B": Option(
            "layer 0: all. Layers 1 to 29: all",
            "In layer 0 a value is made from its token alone, before anybody has looked at anybody.",
        ),
        "C": Option(
            "layer 0: none. Layers 1 to 29: all",
            "A value of layer 0 is made from its token alone. Then each token has looked back once, and has seen the "
            "new one. From there on everything is a little different.",
        ),
        "D": Option(
            "layer 0: none. Layers 1 to 29: the first few",
            "The last of them looks back over the whole text too, as far as the new token. It takes little from it, "
            "but little is not nothing.",
        ),
    },
    answer="C",
)

TWICE = Question(
    "p-1.3",
    "The word ` bees` stands in the text at positions 3 and 37. Where does it have the same key at both places, and "
    "where the same value?",
    {
        "A": Option(
            "the same key and the same value, in every layer",
            "The word is the same, but a key also says where it stands, and a deeper value holds what stood before.",
        ),
        "B": Option(
            "the same key and the same value in layer 0, nowhere else",
            "Right about the value. A key is turned by an angle that depends on its position, in layer 0 as well.",
        ),
        "C": Option(
            "the same value in layer 0, and nothing else",
            "A value of layer 0 knows its token and nothing more. A key knows its position too. In deeper layers, both "
            "know what stood before.",
        ),
        "D": Option(
            "nothing is the same anywhere",
            "In layer 0 nobody has looked at anybody yet. Two equal tokens make two equal values there.",
        ),
    },
    answer="C",
)

HOW_MUCH = Question(
    "p-1.4",
    "200 tokens of text, and 20 more to be chosen. Without a cache this took 4,190 rows. How many with one? And by the "
    "clock: how much longer does a round with 200 rows take than a round with 1 row?",
    {
        "A": Option(
            "20 rows, and some 200 times as long",
            "The 200 tokens of the text have no keys and values yet. They must go through the model once.",
        ),
        "B": Option(
            "219 rows, and some 200 times as long",
            "The rows are right. But must every row take the same time, in whatever company it comes?",
        ),
        "C": Option(
            "219 rows, and less than 100 times as long",
            "200 for the text, then 19 single ones; after the last new token nobody asks what follows. And a row that "
            "comes alone takes far longer than one among 200. Why? Keep the question until chapter 05.",
        ),
        "D": Option(
            "4,190 rows, since all keys and values are still read",
            "To read a key is not to compute it. What is only read does not go through the layers again.",
        ),
    },
    answer="C",
)

GREEDY = Exercise(
    "ex-1.1",
    "Greedy loop",
    minutes=8,
    lines=5,
    done_when="your ids are those with the best score, round by round",
    idea="A model gives scores and remembers nothing. Whatever it should know must be shown to it again.",
    judge=judge_greedy,
    seconds=20.0,
)
CHANGED = Exercise(
    "ex-1.2",
    "What changes",
    minutes=12,
    lines=6,
    done_when="for every layer you name exactly the old positions that changed, wherever the token is put in",
    idea="Old tokens that stand before the new one do not change, in any layer.",
    judge=judge_changed,
    seconds=20.0,
)
ATTEND = Exercise(
    "ex-1.3",
    "Attention of one token",
    minutes=15,
    lines=4,
    done_when="your weights and your result are those of the model's own layers",
    idea="A new token needs its own query, and of all the others only their keys and values.",
    judge=judge_attend,
    seconds=20.0,
)

REFERENCE = {"ex-1.1": greedy, "ex-1.2": changed, "ex-1.3": attend}

register(APPEND, PREPEND, TWICE, HOW_MUCH, GREEDY, CHANGED, ATTEND)
