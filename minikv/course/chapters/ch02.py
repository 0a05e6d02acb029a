"""Chapter 02, the memory bill: when is the notepad bigger than the model, and who notices?"""

from __future__ import annotations

from minikv.course.chapters.ex_2_1 import bytes_per_token, judge_bytes
from minikv.course.chapters.ex_2_2 import gap, judge_gap
from minikv.course.declare import Exercise, Option, Question, register

__all__ = ["REFERENCE", "bytes_per_token", "gap"]

ORDER = Question(
    "p-2.1",
    "Five models, from 124 million to 671 billion parameters. Each keeps keys and values in 16 bits. Which order is "
    "right, from the fewest bytes per token to the most?",
    {
        "A": Option(
            "GPT-2 (0.1 B), Qwen3 (0.6 B), Llama 2 (7 B), Llama 3.1 (8 B), DeepSeek-V3 (671 B)",
            "This is the order by size. But most parameters sit in parts of a model that keep nothing of a token.",
        ),
        "B": Option(
            "GPT-2 (0.1 B), DeepSeek-V3 (671 B), Qwen3 (0.6 B), Llama 3.1 (8 B), Llama 2 (7 B)",
            "What is kept depends on how many heads keep something, and on whether it is kept head by head at all. The "
            "largest model is the second smallest here, below one of a thousandth of its size.",
        ),
        "C": Option(
            "DeepSeek-V3 (671 B), Llama 3.1 (8 B), Qwen3 (0.6 B), Llama 2 (7 B), GPT-2 (0.1 B)",
            "Newer models do save on keys and values. But GPT-2 has 12 narrow layers, and that is hard to get below.",
        ),
        "D": Option(
            "GPT-2 (0.1 B), Qwen3 (0.6 B), Llama 3.1 (8 B), Llama 2 (7 B), DeepSeek-V3 (671 B)",
            "You knew that Llama 3.1 keeps less than Llama 2. DeepSeek-V3 goes one step further.",
        ),
    },
    answer="B",
)

AGAINST_TEXT = Question(
    "p-2.2",
    "64 tokens of text are some 300 bytes. How large are SmolLM2's keys and values of these 64 tokens? Each number "
    "takes 4 bytes, and SmolLM2 is a tiny model.",
    {
        "A": Option(
            "about as large as the text",
            "Keys and values are no text and no short form of one. They are what every layer made of it.",
        ),
        "B": Option(
            "about 100 times as large",
            "One layer alone already takes more than 300 times as much as the text, and there are 30.",
        ),
        "C": Option(
            "about 1,000 times as large",
            "Close to three layers. There are 30.",
        ),
        "D": Option(
            "about 10,000 times as large",
            "30 layers, each with a key and a value of 192 numbers for each token: 46,080 bytes for some five letters.",
        ),
    },
    answer="D",
)

OUTGROWN = Question(
    "p-2.3",
    "SmolLM2's weights are 538 million bytes. Its context is 8,192 tokens. When do keys and values take more room "
    "than the weights?",
    {
        "A": Option(
            "for one user, before half of the context is used",
            "At half of the context they are a third of the weights.",
        ),
        "B": Option(
            "for one user, near the end of the context",
            "It takes 11,677 tokens, and the context ends at 8,192.",
        ),
        "C": Option(
            "never for one user; for two, each within the context",
            "One user would need 11,677 tokens, more than the context. Two need 5,839 each. The weights are there once "
            "for all. Keys and values are there once for each.",
        ),
        "D": Option(
            "only for ten users or more",
            "Weights do not grow with the users, keys and values do. The second user is enough.",
        ),
    },
    answer="C",
)

BYTES = Exercise(
    "ex-2.1",
    "Bytes per token",
    minutes=15,
    lines=9,
    done_when="your function is right for twelve real configurations, and for the same with other numbers",
    idea="What a token costs follows from layers and from what one layer keeps, not from the size of the model.",
    judge=judge_bytes,
    seconds=30.0,
)
GAP = Exercise(
    "ex-2.2",
    "The gap",
    minutes=12,
    lines=5,
    done_when="you know for any model and card how many tokens fit, and how many are missing from the promise",
    idea="The promise comes from a configuration, the room from a card. Nobody has compared the two but you.",
    judge=judge_gap,
)

REFERENCE = {"ex-2.1": bytes_per_token, "ex-2.2": gap}

register(ORDER, AGAINST_TEXT, OUTGROWN, BYTES, GAP)
