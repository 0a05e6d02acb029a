"""Whose words: shares of attention by writer, for each token, from the attention of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from stages import historical

from minikv import Cluster, NodeConfig, SamplingParams
from minikv.course.seats.attention import as_attention
from minikv.errors import ConfigError
from minikv.incident.attention import WatchedAttention
from minikv.incident.history import HistoricalCluster
from minikv.incident.scales import POCKET
from minikv.incident.snapshot import Snapshot
from minikv.incident.stage import Stage, build
from minikv.incident.whose import FIRST, Spoken, WatchedAnswer, _texts, in_words, watch
from minikv.models.adapter import BoundModel

EXACT = 1e-6
PARAMS = SamplingParams(max_tokens=12, ignore_eos=True)


@pytest.fixture
def stage(tiny: BoundModel) -> Stage:
    return historical(POCKET, tiny)


def assert_sums(answer: WatchedAnswer) -> None:
    assert len(answer.tokens) == len(answer.completion.token_ids) > 0
    for token in answer.tokens:
        assert sum(token.shares().values()) == pytest.approx(1, abs=EXACT)
        assert sum(token.by_writer().values()) == pytest.approx(1, abs=EXACT)
        assert token.first + token.own + sum(token.others.values()) == pytest.approx(1, abs=EXACT)
        rest = token.shares(first=False)
        assert not rest or sum(rest.values()) == pytest.approx(1, abs=EXACT)
    assert sum(answer.attention.values()) == pytest.approx(1, abs=EXACT)


def test_every_token_has_shares_that_sum_to_1_and_the_answer_is_the_same(stage: Stage) -> None:
    past = Snapshot(stage.cluster)
    plain = stage.attack()
    past.restore()
    answer = stage.watched_attack()
    assert answer.completion.token_ids == plain.token_ids
    assert_sums(answer)
    assert tuple(each.token_ids[0] for each in answer.tokens) == plain.token_ids
    assert "".join(each.text for each in answer.tokens) == stage.model.decode(plain.token_ids)
    assert set(answer.attention) == {"attacker", *stage.measure(answer.completion).stale_writers}


def test_the_first_token_was_chosen_where_only_the_placeholder_lay(stage: Stage) -> None:
    first, second, *_ = stage.watched_attack().tokens
    assert (first.first, first.own, first.others) == (1.0, 0.0, {}) and first.read_most is None
    assert first.shares(first=False) == {} and first.first_writer == "attacker"
    assert sum(second.others.values()) > 0.5 and second.read_most in second.others


class Naive:
    """A learner's attention, slot by slot in numpy, which keeps the weights that it really used."""

    def __init__(self) -> None:
        self.seen: dict[int, np.ndarray] = {}  # by length: weights by position, over layers and heads

    def __call__(self, query: Any, keys: Any, values: Any, table: Sequence[int], written: int, scale: float) -> Any:
        size = keys.shape[1]
        places = [(table[position // size], position % size) for position in range(written)]
        key = np.stack([keys[place].numpy() for place in places]).astype(np.float64)
        value = np.stack([values[place].numpy() for place in places]).astype(np.float64)
        group = query.shape[0] // key.shape[1]
        rows = []
        total = self.seen.setdefault(written, np.zeros(written))
        for head, row in enumerate(query.numpy().astype(np.float64)):
            scores = key[:, head // group] @ row * scale
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            total += weights
            rows.append(weights @ value[:, head // group])
        return torch.tensor(np.stack(rows), dtype=query.dtype)


def test_the_shares_are_those_of_a_learners_own_attention(tiny: BoundModel) -> None:
    """Worked out beside it, and checked against the weights that it used."""
    mine = Naive()
    seat = as_attention(mine, prompts=False)
    stage = Stage(POCKET, tiny, build(POCKET, tiny, HistoricalCluster, attention=seat))
    stage.play_past()
    mine.seen.clear()
    answer = stage.watched_attack()
    assert_sums(answer)
    assert stage.cluster.decode.attention is seat and stage.cluster.prefill.attention is seat
    number, ledger = answer.completion.request_id, stage.cluster.decode.pool.ledger
    assert ledger is not None
    stale = stage.measure(answer.completion).stale_slots_read
    for token, (written, weights) in zip(answer.tokens[1:], sorted(mine.seen.items())[1:], strict=True):
        share = weights / weights.sum()
        assert token.first == pytest.approx(share[0], abs=EXACT)
        assert token.own == pytest.approx(share[stale + 1 :].sum(), abs=EXACT), (number, written)
        assert sum(token.others.values()) == pytest.approx(share[1 : stale + 1].sum(), abs=EXACT)


def test_several_in_one_step_are_told_apart(stage: Stage) -> None:
    """Two attacks together and an unwatched guest: each reads what it reads, and what others do is not counted."""
    lengths = (31, 27)
    stage.names[stage.cluster.submit([5, 6, 7], PARAMS, "guest")] = "guest"
    prompts = [POCKET.attack(stage.model, length) for length in lengths]
    answers = watch(stage.cluster, prompts, [PARAMS] * 2, ["one", "two"], stage.name)
    assert [answer.completion.tenant for answer in answers] == ["one", "two"]
    for answer, length in zip(answers, lengths, strict=True):
        assert_sums(answer)
        last = answer.tokens[-1]
        assert last.own > 0 and last.tenant == answer.completion.tenant
        assert sum(stage.measure(answer.completion).stale_writers.values()) >= length - 1
        assert set(last.others) == set(stage.measure(answer.completion).stale_writers)


def test_alone_and_in_company_a_request_looks_at_the_same(tiny: BoundModel) -> None:
    cluster = Cluster(tiny, prefill=NodeConfig(num_pages=8), decode=NodeConfig(num_pages=32), page_size=4)
    prompts = [[3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8], [1] * 9]
    names = ["a", "b", "c"]
    together = watch(cluster, prompts, [PARAMS] * 3, names, str)
    for prompt, name, found in zip(prompts, names, together, strict=True):
        (alone,) = watch(cluster, [prompt], [PARAMS], [name], str)
        assert_sums(found)
        for one, other in zip(alone.tokens, found.tokens, strict=True):
            assert one.token_ids == other.token_ids and other.others == {}
            assert one.first == pytest.approx(other.first, abs=1e-5)


def test_who_has_to_give_way_is_watched_all_the_same(tiny: BoundModel) -> None:
    """Computed anew, in parts: only the part that yields a token counts."""
    few = NodeConfig(num_pages=9, max_batch_tokens=8)
    cluster = Cluster(tiny, prefill=NodeConfig(num_pages=16), decode=few, page_size=4)
    prompts, params = [[1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1]], SamplingParams(max_tokens=18, ignore_eos=True)
    answers = watch(cluster, prompts, [params] * 2, ["a", "b"], str)
    plain = Cluster(tiny, prefill=NodeConfig(num_pages=16), decode=few, page_size=4).generate(prompts, params)
    assert [answer.completion.token_ids for answer in answers] == [each.token_ids for each in plain]
    assert any(type(event).__name__ == "Preempt" for event in cluster.trace)
    for answer in answers:
        assert_sums(answer)
        assert answer.attention.keys() == {answer.completion.tenant}


def acting(stage: Stage, when: int, act: Callable[[], None]) -> None:
    """Do something when the decode node's attention is asked for the n-th time."""
    node, asked = stage.cluster.decode, 0
    plain = node.attention

    def attend(*arguments: Any) -> torch.Tensor:
        nonlocal asked
        asked += 1
        if asked == when:
            act()
        return plain(*arguments)

    node.attention = attend


def test_an_aborted_answer_keeps_what_was_said(stage: Stage) -> None:
    number = stage.cluster.next_number
    acting(stage, 9, lambda: stage.cluster.abort(number))
    answer = stage.watched_attack()
    assert answer.completion.finish_reason == "abort"
    assert 1 < len(answer.tokens) < POCKET.answer_tokens
    assert_sums(answer)
    stage.cluster.check()


def test_a_learners_attention_that_raises_is_the_requests_error(stage: Stage) -> None:
    def fail() -> None:
        raise ZeroDivisionError("mine")

    acting(stage, 9, fail)
    given = stage.cluster.decode.attention
    answer = stage.watched_attack()
    assert answer.completion.status == 500 and "mine" in str(answer.completion.error)
    assert len(answer.tokens) == len(answer.completion.token_ids)
    assert stage.cluster.decode.attention is given
    stage.cluster.check()


def test_an_answer_that_was_taken_back_was_read_for(tiny: BoundModel) -> None:
    """Guard h: 400 after all. No token is left, but what attention fell on is."""
    answer = historical(POCKET, tiny, defects="abcdefg").watched_attack()
    assert answer.completion.status == 400 and answer.tokens == () and answer.pieces() == [] == answer.words()
    assert sum(share for name, share in answer.attention.items() if name != "attacker") > 0.5


def test_a_refusal_reads_nothing(tiny: BoundModel) -> None:
    stage = Stage(POCKET, tiny, build(POCKET, tiny, Cluster))
    answer = stage.watched_attack()
    assert answer.completion.status == 400 and answer.tokens == () and answer.attention == {}


def test_an_earlier_request_of_the_same_tenant_is_no_own_slot(stage: Stage) -> None:
    again = stage.watched_attack()
    for _ in range(12):  # until it is lent a page with an answer of its own
        again = stage.watched_attack(50)
    found = {name for token in again.tokens for name in token.others}
    assert "attacker, earlier" in found and "attacker" not in found
    assert "attacker, earlier" not in again.attention  # by tenant they are one
    assert_sums(again)


def test_without_a_ledger_nobody_knows(tiny: BoundModel) -> None:
    cluster = Cluster(tiny, prefill=NodeConfig(num_pages=8), decode=NodeConfig(num_pages=8), page_size=4, ledger=False)
    plain = cluster.decode.attention
    with pytest.raises(ConfigError, match="without a ledger"):
        watch(cluster, [[1, 2]], [PARAMS], ["a"], str)
    assert cluster.decode.attention is plain and cluster.requests == {}
    cluster.check()
    with pytest.raises(ConfigError, match="without a ledger"):
        WatchedAttention(cluster.decode.pool, [0])


def test_a_letter_of_several_tokens_comes_with_the_last_of_them() -> None:
    whole = "aé€🙂b".encode()

    def decode(ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")

    texts = _texts(list(whole), decode)
    assert texts == ["a", "", "é", "", "", "€", "", "", "", "🙂", "b"]
    broken = list(whole[:-2])  # ends in the middle of a letter
    assert "".join(_texts(broken, decode)) == decode(broken) and _texts([], decode) == []


def test_words_are_the_mean_of_their_tokens() -> None:
    def said(text: str, own: float) -> Spoken:
        return Spoken(text, (1,), 0.5, own, {"q": 0.5 - own}, "me", "me")

    words = in_words([said(" Qu", 0.5), said("enn", 0.25), said(" lives", 0.0)])
    assert [word.text for word in words] == ["Quenn", "lives"] and words[0].token_ids == (1, 1)
    assert (words[0].first, words[0].own, words[0].others) == (0.5, 0.375, {"q": 0.125})
    assert words[0].read_most == "me" and words[1].read_most == "q"
    assert list(words[0].shares()) == ["q", "me", FIRST]
