"""The course's own tools: predictions, checks, the learner's parts, preflight.

What a notebook needs comes from here; what a chapter module needs comes from `minikv.course.declare`.
"""

from minikv.course.check import CheckFailed, check
from minikv.course.mine import mine, my_parts
from minikv.course.parts import learner_or_reference
from minikv.course.predict import keep_guess, open_guess, predict, reveal, surprises
from minikv.course.preflight import preflight
from minikv.course.say import progress
from minikv.course.status import status

__all__ = [
    "CheckFailed",
    "check",
    "keep_guess",
    "learner_or_reference",
    "mine",
    "my_parts",
    "open_guess",
    "predict",
    "preflight",
    "progress",
    "reveal",
    "status",
    "surprises",
]
