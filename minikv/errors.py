"""Every error that a caller can meet, in one hierarchy.

Two kinds matter. A `Rejected` belongs to one request: it is that request's final answer and nobody else
notices. Everything else is a fault of a configuration, a model or a part, and is raised where it happens.
"""

from __future__ import annotations

import traceback


class MinikvError(Exception):
    """Base class of all errors that minikv raises on purpose.

    Attributes:
        status: the HTTP status that says the same; 500 where nobody but the server is to blame.
    """

    status: int = 500


class ConfigError(MinikvError, ValueError):
    """A setting that cannot work, found when the object is built."""


class ModelNotFound(MinikvError, LookupError):
    """No weights under the given name; the message says what was tried and the ways on."""


class UnsupportedModel(MinikvError):
    """A model that this engine would answer wrongly, refused by name when it is loaded."""


class Rejected(MinikvError):
    """A request that is refused at the door. It has touched no pool, queue or transfer.

    Attributes:
        status: the HTTP status that says the same (400 for a request that can never be served).
        limit: the largest value that would be served, in the unit of `requested`; None if there is none.
        requested: what this request asked for (tokens, unless the message says otherwise).
    """

    def __init__(
        self, message: str, *, limit: int | None = None, requested: int | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.limit = limit
        self.requested = requested


class InvalidPrompt(Rejected):
    """A prompt that no server could read: empty, of the wrong type, or with ids outside the vocabulary."""


class Busy(Rejected):
    """A request that came while as many wait as may wait; the same request is welcome later."""

    def __init__(self, message: str, *, limit: int | None = None, requested: int | None = None) -> None:
        super().__init__(message, limit=limit, requested=requested, status=429)


class OutOfPages(MinikvError):
    """More pages were asked for than are free. Nothing was lent."""


class BrokenRule(MinikvError):
    """A part (often a learner's own) broke a rule of the engine; the message names the rule.

    Attributes:
        rule, detail: what must hold, and what was found instead.
        request: number of the one request that it concerns; None if it may concern others too.
        step: number of the engine's step in which it was found; None outside of one.
    """

    def __init__(self, rule: str, detail: str, request: int | None = None) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.detail = detail
        self.request = request
        self.step: int | None = None

    def __str__(self) -> str:
        where = "" if self.step is None else f" (step {self.step})"
        return f"{self.rule}: {self.detail}{where}"

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.rule, self.detail, self.request, self.step)


def _restore(kind: type[BrokenRule], rule: str, detail: str, request: int | None, step: int | None) -> BrokenRule:
    """Rebuild a pickled error, whatever its own constructor takes."""
    error = kind.__new__(kind)
    BrokenRule.__init__(error, rule, detail, request)
    error.step = step
    return error


class StaleRead(BrokenRule):
    """Attention was about to read slots that the reading request did not write."""

    def __init__(self, detail: str) -> None:
        super().__init__("a request reads only what was written for it", detail)


class StaleWrite(BrokenRule):
    """A write to a page that the writer no longer holds, or never held."""

    def __init__(self, detail: str) -> None:
        super().__init__("only the holder of a page, in its generation, may write to it", detail)


class HandoffRefused(MinikvError):
    """A handoff that is not complete and intact; the receiver took nothing of it."""

    status = 502


class RequestAborted(MinikvError):
    """The request was aborted by its caller before it was finished, or its answer was fetched by somebody else."""

    status = 499


class EngineFailed(MinikvError):
    """Something broke inside the engine; the affected requests carry this with the reason."""


def as_minikv(error: BaseException, step: int | None = None) -> MinikvError:
    """An error that a caller can be given: itself if it is one of ours, else wrapped with its name.

    Args:
        error: what was raised.
        step: the engine's step in which it was; a broken rule remembers it.
    """
    if isinstance(error, BrokenRule) and error.step is None:
        error.step = step
    if isinstance(error, MinikvError):
        return error
    frames = traceback.extract_tb(error.__traceback__)
    where = f", in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    when = "" if step is None else f" (step {step})"
    failure = EngineFailed(f"{type(error).__name__}: {error}{where}{when}")
    failure.__cause__ = error  # with the line where it was raised, but not with the tensors of that moment
    traceback.clear_frames(error.__traceback__)
    return failure
