"""What a caller can do to a server in the middle of its work, and what the server must do then."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
import time
import traceback
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import answers, assert_quiet, greedy, prompt_of, reference
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

from minikv import Cluster, Engine, NodeConfig, SamplingParams, load_model
from minikv.attention import torch_backend
from minikv.config import NodeConfig as Config
from minikv.errors import BrokenRule, Busy, ConfigError, InvalidPrompt, ModelNotFound, Rejected, StaleRead, StaleWrite
from minikv.models.adapter import BoundModel
from minikv.scheduling.admission import Admission
from minikv.scheduling.request import Request
from minikv.scheduling.scheduler import Scheduler
from minikv.trace import Event, Finish, Trace


def build(kind: str, model: BoundModel, **settings: Any) -> Engine | Cluster:
    if kind == "engine":
        return Engine(model, page_size=4, num_pages=32, **settings)
    config = NodeConfig(num_pages=32)
    return Cluster(model, prefill=config, decode=config, page_size=4, **settings)


kinds = pytest.mark.parametrize("kind", ["engine", "cluster"])


class Once:
    """The plain attention, but the first call after `arm` does something else before."""

    def __init__(self) -> None:
        self.act: Any = None

    def __call__(self, *arguments: Any) -> torch.Tensor:
        if self.act:
            act, self.act = self.act, None
            act()
        return torch_backend.attend(*arguments)


def interrupt() -> None:
    raise KeyboardInterrupt


@kinds
def test_interrupt_leaves_nothing_half_done(tiny: BoundModel, kind: str) -> None:
    """Ctrl-C in a step, then the server is used again: nobody gets a token of somebody else."""
    attention = Once()
    server = build(kind, tiny, attention=attention)
    mine = server.submit(prompt_of(9, seed=1), greedy(6))
    attention.act = interrupt
    with pytest.raises(KeyboardInterrupt):
        server.step()
    assert server.result(mine).finish_reason == "error"
    other = prompt_of(7, seed=2)
    assert answers(server.generate([other], greedy(6))) == [reference(tiny, other, 6)]
    assert_quiet(server)


@kinds
def test_interrupted_generate_takes_its_requests_back(tiny: BoundModel, kind: str) -> None:
    attention = Once()
    server = build(kind, tiny, attention=attention)
    attention.act = interrupt
    with pytest.raises(KeyboardInterrupt):
        server.generate([prompt_of(9), prompt_of(5)], greedy(6))
    assert not server.requests
    assert_quiet(server)


@kinds
def test_generate_from_within_a_step_is_refused(tiny: BoundModel, kind: str) -> None:
    attention = Once()
    server = build(kind, tiny, attention=attention)
    refusals: list[BrokenRule] = []

    def inside() -> None:
        try:
            server.generate([prompt_of(3)], greedy(2))
        except BrokenRule as refusal:
            refusals.append(refusal)

    attention.act = inside
    prompt = prompt_of(9)
    assert answers(server.generate([prompt], greedy(6))) == [reference(tiny, prompt, 6)]
    assert len(refusals) == 1 and "one step at a time" in str(refusals[0])
    assert_quiet(server)


@kinds
def test_threads_share_a_server(tiny: BoundModel, kind: str) -> None:
    server = build(kind, tiny)
    prompts = [prompt_of(3 + i, seed=i) for i in range(8)]
    right = [reference(tiny, prompt, 5) for prompt in prompts]
    wrong: list[object] = []

    def work() -> None:
        for _ in range(4):
            found = answers(server.generate(prompts, greedy(5)))
            if found != right:
                wrong.append(found)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong
    assert_quiet(server)


@kinds
def test_abort_from_within_a_step_ends_once(tiny: BoundModel, kind: str) -> None:
    """sgl-project/sglang issue 33507: the pending abort stays what it is, and there is one final answer."""
    attention = Once()
    server = build(kind, tiny, attention=attention)
    mine, other = server.submit(prompt_of(9), greedy(6)), server.submit(prompt_of(5, seed=3), greedy(6))
    attention.act = lambda: server.abort(mine)
    while not server.requests[other].finished:
        server.step()
        server.check()
    done = server.result(mine)
    assert (done.finish_reason, done.status, done.token_ids) == ("abort", 499, ())
    assert [e.reason for e in server.trace if isinstance(e, Finish) and e.request == mine] == ["abort"]
    assert answers([server.result(other)]) == [reference(tiny, prompt_of(5, seed=3), 6)]
    assert_quiet(server)


def test_abort_during_a_handoff_ends_once(tiny: BoundModel) -> None:
    server = build("cluster", tiny)
    assert isinstance(server, Cluster)
    mine = server.submit(prompt_of(9), greedy(6))
    export = server.prefill.export

    def aborting(request: Request) -> Any:
        server.abort(mine)
        return export(request)

    server.prefill.export = aborting  # type: ignore[method-assign]
    server.step()
    assert server.result(mine).finish_reason == "abort"
    assert [e.reason for e in server.trace if isinstance(e, Finish)] == ["abort"]
    assert_quiet(server)


def test_unreadable_text_is_that_prompts_error(tiny: BoundModel) -> None:
    server = build("engine", tiny)
    prompt = prompt_of(5)
    done = server.generate([prompt, "a\ud800b", prompt], greedy(3))
    assert isinstance(done[1].error, InvalidPrompt)
    assert answers([done[0], done[2]]) == [reference(tiny, prompt, 3)] * 2


def test_output_that_is_no_number_is_an_error(tiny: BoundModel) -> None:
    def nothing(*arguments: Any) -> torch.Tensor:
        return torch_backend.attend(*arguments) * float("nan")

    (done,) = build("engine", tiny, attention=nothing).generate([[1, 2, 3]], greedy(3))
    assert done.finish_reason == "error" and "not a number" in str(done.error)


def test_right_numbers_in_the_wrong_shape_are_refused(tiny: BoundModel) -> None:
    def turned(*arguments: Any) -> torch.Tensor:
        return torch_backend.attend(*arguments).transpose(0, 1)

    (done,) = build("engine", tiny, attention=turned).generate([[1, 2, 3]], greedy(3))
    assert done.finish_reason == "error" and isinstance(done.error, BrokenRule)


def test_huge_temperature_is_refused_at_construction() -> None:
    with pytest.raises(ConfigError):
        SamplingParams(temperature=10**400)


def test_leaving_a_long_queue_costs_the_same_as_a_short_one(tiny: BoundModel) -> None:
    """A request that leaves does not look at those that wait: 50 times the queue, not 50 times the time."""

    def seconds(length: int) -> float:
        scheduler = Scheduler(Engine(tiny, num_pages=4).pool, Config(num_pages=4))
        requests = [Request(number, (1,), SamplingParams()) for number in range(length)]
        for request in requests:
            scheduler.add(request)
        started = time.perf_counter()
        for request in requests[-200:]:
            scheduler.remove(request)
        return time.perf_counter() - started

    assert min(seconds(50_000) for _ in range(3)) < 10 * min(seconds(1_000) for _ in range(3))


@pytest.mark.parametrize(
    "error", [StaleRead("a"), StaleWrite("b"), BrokenRule("c", "d"), Rejected("e", limit=3)], ids=repr
)
def test_errors_can_be_sent(error: Any) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert type(twin) is type(error) and str(twin) == str(error) and vars(twin) == vars(error)


def test_a_checkpoint_with_missing_weights_is_refused(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        tie_word_embeddings=False,
    )  # fmt: skip
    LlamaModel(config).save_pretrained(tmp_path)
    with pytest.raises(ModelNotFound, match=r"lacks weights.*lm_head"):
        load_model(tmp_path)


def test_a_folder_without_a_tokenizer_serves_ids(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    model = load_model(tmp_path)
    by_ids, by_text = Engine(model, num_pages=4).generate([[1, 2], "text"], greedy(2))
    assert len(by_ids.token_ids) == 2 and isinstance(by_text.error, InvalidPrompt)


def test_a_damaged_checkpoint_is_a_typed_error(tmp_path: Path) -> None:
    model, _tokenizer = _tiny_saved(tmp_path)
    del model
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelNotFound, match="could not be loaded"):
        load_model(tmp_path)


def _tiny_saved(folder: Path) -> tuple[Any, Any]:
    from minikv.models.tiny import tiny_random

    model, tokenizer = tiny_random()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


@pytest.mark.parametrize("name", [None, 5, b"smollm2"])
def test_a_model_of_the_wrong_kind(name: Any) -> None:
    with pytest.raises(ConfigError):
        load_model(name)


@pytest.mark.parametrize("device", ["nonsense", "meta"])
def test_a_device_that_cannot_be_used(device: str) -> None:
    with pytest.raises(ConfigError):
        load_model("tiny-random", device=device)


@pytest.mark.parametrize(
    "settings",
    [
        {"context_length": "abc"},
        {"context_length": 2.5},
        {"max_batch_size": None},
        {"max_batch_size": 2.5},
        {"allocator": 3},
        {"attention": "sdpa"},
        {"ledger": "no"},
        {"trace": "x"},
        {"page_size": 1, "num_pages": 1},
    ],
    ids=str,
)
def test_settings_of_the_wrong_kind_are_refused_at_once(tiny: BoundModel, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Engine(tiny, **settings)


def test_dropout_is_off_while_serving() -> None:
    hf, tokenizer = _dropping()
    model = load_model(hf, tokenizer)
    hf.train()
    engine = Engine(model, num_pages=16)
    first, second = engine.generate([[1, 2, 3]] * 2, greedy(8))
    assert first.token_ids == second.token_ids
    assert hf.training, "outside of a step the model is as its owner left it"


def _dropping() -> tuple[Any, Any]:
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        attention_dropout=0.5, initializer_range=0.4,
    )  # fmt: skip
    return LlamaForCausalLM(config), None


def test_a_door_that_finishes_a_request_itself_is_named(tiny: BoundModel) -> None:
    """A refusal is raised; a verdict written into the request must not end as an answer with status 200."""

    class Silent(Admission):
        def check(self, request: Request, waiting: int = 0) -> int:
            request.finish("rejected")
            return 0

    server = Engine(tiny, num_pages=8, admission=Silent)
    (done,) = server.generate([[1, 2]], greedy(2))
    assert (done.finish_reason, done.status) == ("error", 500)
    assert isinstance(done.error, BrokenRule)
    server.check()


def test_interrupt_while_a_prompt_is_read(tiny: BoundModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is left, and those that were handed in before are taken back."""
    server = Engine(tiny, num_pages=8)
    real = tiny.encode

    def encode(prompt: Any) -> tuple[int, ...]:
        if prompt == "stop here":
            raise KeyboardInterrupt
        return real(prompt)

    monkeypatch.setattr(tiny, "encode", encode)
    with pytest.raises(KeyboardInterrupt):
        server.generate(["a", "b", "stop here"], SamplingParams(n=2, max_tokens=3, temperature=1.0))
    assert not server.requests
    assert_quiet(server)


def test_interrupt_at_the_door(tiny: BoundModel) -> None:
    class Slow(Admission):
        def check(self, request: Request, waiting: int = 0) -> int:
            raise KeyboardInterrupt

    server = Engine(tiny, num_pages=8, admission=Slow)
    with pytest.raises(KeyboardInterrupt):
        server.submit([1, 2], greedy(2))
    assert not server.requests
    assert_quiet(server)


def test_an_error_keeps_no_tensors_alive(tiny: BoundModel) -> None:
    """An answer may be kept for long; the activations of the step that failed must not be kept with it."""
    left: list[weakref.ref[torch.Tensor]] = []

    def attention(query: torch.Tensor, *_: Any) -> torch.Tensor:
        mine = query.clone()
        left.append(weakref.ref(mine))
        raise ZeroDivisionError("gone")

    (done,) = Engine(tiny, num_pages=8, attention=attention).generate([[1, 2, 3]], greedy(2))
    assert "ZeroDivisionError: gone" in str(done.error)
    gc.collect()
    assert left and left[0]() is None


def test_later_refusals_do_not_grow(tiny: BoundModel) -> None:
    """An engine that stopped tells every later caller why, and the reason does not get longer each time."""
    server = Engine(tiny, num_pages=8)
    server._stop(ZeroDivisionError("gone"))

    def told() -> int:
        error = server.result(server.submit([1, 2], greedy(2))).error
        assert "the engine stopped" in str(error)
        return len(traceback.extract_tb(error.__traceback__)) if error else 0

    lengths = [told() for _ in range(20)]
    assert lengths[-1] <= lengths[0]


class Interrupting(Trace):
    """Raises KeyboardInterrupt at its n-th event: in the middle of whatever is booked there."""

    def __init__(self, countdown: int) -> None:
        super().__init__()
        self.countdown = countdown

    def add(self, event: Event) -> None:
        self.countdown -= 1
        if self.countdown == 0:
            raise KeyboardInterrupt
        super().add(event)


@pytest.mark.parametrize("split", [False, True], ids=["engine", "cluster"])
def test_interrupt_at_any_event(tiny: BoundModel, split: bool) -> None:
    """Pages that are half lent, half freed or half handed over: all of them are back, and the next caller is served."""
    expected = [reference(tiny, prompt_of(9, seed=seed), 5) for seed in range(3)]
    node = NodeConfig(num_pages=6, max_batch_tokens=8)
    reached = 0
    for countdown in range(1, 400):
        trace = Interrupting(countdown)
        settings: dict[str, Any] = {"page_size": 4, "trace": trace}
        if split:
            server: Engine | Cluster = Cluster(tiny, prefill=node, decode=node, **settings)
        else:
            server = Engine(tiny, num_pages=6, max_batch_tokens=8, **settings)
        prompts = [prompt_of(9, seed=seed) for seed in range(3)]
        kept = server.submit(prompts[0], greedy(5)) if countdown > 4 else None  # of a caller who is not interrupted
        try:
            server.generate(prompts[1:], greedy(5))
        except KeyboardInterrupt:
            reached = countdown
        else:
            break
        server.check()
        assert answers(server.generate(prompts[1:], greedy(5))) == expected[1:]
        if kept is not None:
            while not server.requests[kept].answered:
                server.step()
            done = server.result(kept)
            assert done.token_ids == expected[0] if done.error is None else "KeyboardInterrupt" in str(done.error)
        assert_quiet(server)
    assert 60 < reached < 399


def test_threads_are_let_in_after_each_step(tiny: BoundModel) -> None:
    """Whoever steps in a loop must not keep an abort, a look at the numbers or a short request waiting for long."""
    server = Engine(tiny, page_size=16, num_pages=64)
    long = threading.Thread(target=lambda: server.generate([[1, 2, 3]], greedy(900)))
    long.start()
    while server.trace.step < 5:
        time.sleep(0.001)
    waited = []
    for _ in range(20):
        before = server.trace.step
        server.stats()
        waited.append(server.trace.step - before)
    before = server.trace.step
    (done,) = server.generate([[4, 5]], greedy(2))
    steps = server.trace.step - before
    server.abort(0)
    long.join(timeout=60)
    assert not long.is_alive() and done.error is None
    assert sorted(waited)[len(waited) // 2] <= 3 and steps <= 40, (waited, steps)


def test_an_answer_taken_by_somebody_else_costs_no_other(tiny: BoundModel) -> None:
    """One of the requests of a running `generate` is forgotten: it alone was aborted."""

    def sampler(logits: torch.Tensor, request: Request) -> int:
        if request.number == 1:
            server.forget(1)
        return int(logits.argmax())

    server = Engine(tiny, page_size=4, num_pages=32, sampler=sampler)
    prompts = [prompt_of(5, seed=seed) for seed in range(3)]
    done = server.generate(prompts, greedy(4))
    assert [each.finish_reason for each in done] == ["length", "abort", "length"]
    assert [done[i].token_ids for i in (0, 2)] == [reference(tiny, prompts[i], 4) for i in (0, 2)]
    assert_quiet(server)


@pytest.mark.parametrize(
    "params", [{"stop_token_ids": [2**63]}, {"stop_token_ids": [2**70], "min_tokens": 2}, {"n": 10**6}]
)
def test_numbers_that_are_too_large(params: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(params))):
        SamplingParams(max_tokens=4, **params)


def test_busy_travels() -> None:
    """Between processes, as all errors of a request must."""
    error = pickle.loads(pickle.dumps(Busy("full", limit=1, requested=2)))
    assert (type(error), str(error), error.status, error.limit) == (Busy, "full", 429, 1)


def test_two_pools_that_do_not_fit_together(tiny: BoundModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would fit alone. The system would kill the process as soon as both are used."""
    real = os.sysconf
    monkeypatch.setattr(os, "sysconf", lambda name: 1024 if name == "SC_PHYS_PAGES" else real(name))  # 4 MiB
    pages = 3 * 2**20 // (tiny.geometry.bytes_per_token(torch.float32) * 4)
    node = NodeConfig(num_pages=pages)
    Engine(tiny, num_pages=pages, page_size=4)
    with pytest.raises(ConfigError, match="use fewer pages"):
        Cluster(tiny, prefill=node, decode=node, page_size=4)


def test_a_scheduler_that_forgets_only_whom_it_knows(tiny: BoundModel) -> None:
    """Its own mistake stops the server with a reason, and the other node gets its pages back all the same."""

    class Picky(Scheduler):
        def remove(self, request: Request) -> None:
            self.running.remove(request)

    node = NodeConfig(num_pages=16)
    server = Cluster(tiny, prefill=node, decode=node, page_size=4, scheduler=Picky)
    (done,) = server.generate([prompt_of(5)], greedy(4))
    assert "ValueError: list.remove(x): x not in list, in remove, line" in str(done.error)
    assert all(each.pages_free == each.pages_total for each in server.stats().nodes)
    (later,) = server.generate([prompt_of(5)], greedy(4))
    assert "the engine stopped" in str(later.error)
