"""What came back, looked at from outside. Nothing here knows how the target works."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from minikv.engine import Engine
from minikv.incident.isolation.findings import Finding
from minikv.incident.isolation.targets import Ask, Pair
from minikv.incident.tenants import Tenant, canaries_in, word_runs_in
from minikv.memory import pages_needed
from minikv.models.adapter import BoundModel
from minikv.sampling import SamplingParams
from minikv.trace import Trace

Truth = Callable[[Ask], tuple[int, ...] | None]
REFERENCE_PAGE = 16


def _found(rule: str, ask: Ask, detail: str) -> Finding:
    return Finding("content", rule, f"{ask.tenant}, {ask.kind}{', streamed' if ask.streamed else ''}: {detail}")


def no_words_of_others(pairs: Iterable[Pair], tenants: Mapping[str, Tenant]) -> list[Finding]:
    """No canary of another tenant in an answer, and no run of five or more of another tenant's words.

    What stands in the tenant's own text, too, is theirs.
    """
    found = []
    for ask, answer in pairs:
        own = tenants[ask.tenant].text if ask.tenant in tenants else ""
        others = [tenant for name, tenant in tenants.items() if name != ask.tenant]
        canaries = [each for each in canaries_in(answer.text, others) if each not in own]
        runs = [run for run in word_runs_in(answer.text, others) if run not in own]
        found += [_found("no stranger's canary comes out", ask, repr(each)) for each in canaries]
        found += [_found("no stranger's words come out", ask, repr(run)) for run in runs]
    return found


def unmoved(first: Iterable[Pair], second: Iterable[Pair], changed: Collection[str]) -> list[Finding]:
    """Without words to look for: an answer does not change when only another tenant's prompts do.

    Args:
        first, second: the same requests in the same order, to two servers with the same past except for its words.
        changed: the tenants who said something else.
    """
    rule = "an answer hangs on nobody else's prompt"
    return [
        _found(rule, ask, f"it changed when only {', '.join(sorted(changed))} said something else")
        for (ask, one), (_, other) in zip(first, second, strict=True)
        if ask.tenant not in changed and (one.token_ids, one.text) != (other.token_ids, other.text)
    ]


def same_alone(pairs: Iterable[Pair], alone: Iterable[Pair]) -> list[Finding]:
    """Where no true answer can be had: an answer is the same when its request is the only one.

    Args:
        pairs: with others before and beside them.
        alone: the same requests in the same order, each sent when nobody else is there.
    """
    return [
        _found("an answer is the same alone", ask, "alone, it is another")
        for (ask, one), (_, other) in zip(pairs, alone, strict=True)
        if one.status == other.status == 200 and (one.token_ids, one.text) != (other.token_ids, other.text)
    ]


def answers_are_true(pairs: Iterable[Pair], truth: Truth) -> list[Finding]:
    """What went out is the answer to the prompt that came in, as if it were alone; whole, if the status is 200.

    Args:
        pairs: what was asked and answered, with token ids.
        truth: all tokens of the true answer; None if nobody could serve the request.
    """
    found = []
    for ask, answer in pairs:
        if not answer.token_ids and answer.status != 200:
            continue
        true = truth(ask)
        if true is None:
            found.append(_found("who cannot be served gets no words", ask, f"{len(answer.token_ids)} tokens came"))
        elif answer.token_ids != true[: len(answer.token_ids)]:
            found.append(_found("an answer belongs to its prompt", ask, "alone, the answer is another"))
        elif answer.status == 200 and len(answer.token_ids) != (whole := len(true[: answer.granted])):
            found.append(_found("status 200 means all of it", ask, f"{len(answer.token_ids)} of {whole} tokens"))
    return found


def statuses_are_true(pairs: Iterable[Pair]) -> list[Finding]:
    """Everybody gets an answer, and whoever is refused gets no words, not even in a stream before the refusal."""
    found = []
    for ask, answer in pairs:
        if answer.status is None:
            found.append(_found("everybody gets an answer", ask, "there is none"))
        elif 400 <= answer.status < 500 and answer.token_ids and not answer.left:
            detail = f"{len(answer.token_ids)} tokens came, and then status {answer.status}"
            found.append(_found("a refusal comes before the first word", ask, detail))
        elif answer.status == 200 and answer.error:
            found.append(_found("status 200 has no error in it", ask, answer.error))
    return found


def usage_is_true(pairs: Iterable[Pair]) -> list[Finding]:
    """The prompt that was answered is as long as the one that was sent."""
    return [
        _found("the prompt is counted as it was sent", ask, f"{len(ask.prompt)} tokens, {answer.prompt_tokens} counted")
        for ask, answer in pairs
        if answer.status == 200 and answer.prompt_tokens not in (None, len(ask.prompt))
    ]


class Alone:
    """The true answer: of an engine that has room for everything, and in whose pages nobody else ever was.

    Args:
        model: what answers.
    """

    def __init__(self, model: BoundModel) -> None:
        self.model = model
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def prepare(self, asks: Sequence[Ask]) -> None:
        """Work out many at once; saves time and changes nothing."""
        wanted: dict[tuple[int, ...], int] = {}
        for ask in asks:
            ids = ask.prompt
            wanted[ids] = max(wanted.get(ids, 0), ask.max_tokens)
        wanted = {ids: n for ids, n in wanted.items() if len(self._known.get(ids, ())) < n and self._fits(ids, n)}
        if not wanted:
            return
        pages = sum(pages_needed(len(ids) + n, REFERENCE_PAGE) for ids, n in wanted.items())
        engine = Engine(
            self.model,
            page_size=REFERENCE_PAGE,
            num_pages=pages,
            max_batch_size=len(wanted),
            ledger=False,
            trace=Trace(enabled=False),
        )
        params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in wanted.values()]
        for ids, done in zip(wanted, engine.generate(list(wanted), params), strict=True):
            if done.error is not None:
                raise done.error
            self._known[ids] = done.token_ids

    def _fits(self, ids: tuple[int, ...], answer: int) -> bool:
        return self.model.max_positions is None or len(ids) + answer <= self.model.max_positions

    def __call__(self, ask: Ask) -> tuple[int, ...] | None:
        """All tokens of an answer; None if the model's context cannot hold it."""
        ids = ask.prompt
        self.prepare([ask])
        return self._known[ids][: ask.max_tokens] if self._fits(ids, ask.max_tokens) else None


def look_at(pairs: Sequence[Pair], tenants: Mapping[str, Tenant], truth: Truth | None) -> list[Finding]:
    """All checks that take one run."""
    found = no_words_of_others(pairs, tenants) + statuses_are_true(pairs) + usage_is_true(pairs)
    return found + (answers_are_true(pairs, truth) if truth else [])
