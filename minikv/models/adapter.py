"""A Hugging Face model bound to paged attention. The only file that touches the attention interface.

The model's own code runs unchanged. For the length of one forward pass its attention function is ours, which
writes the step's keys and values to their slots and reads back through the page tables. No `Cache` object is
involved. The step's metadata is a context variable, since some models pass no keyword arguments on to their attention;
each thread has its own, so two nodes can share one model.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel, PreTrainedTokenizerBase

from minikv.errors import InvalidPrompt, UnsupportedModel
from minikv.models.geometry import KVGeometry, LayerGeometry
from minikv.models.indexed import forward_one_by_one
from minikv.models.options import AttentionOptions, StepAttention
from minikv.models.trial import DenseAttention, refuse_if_different, trial_tokens

NAME = "minikv"

Prompt = str | Sequence[int] | Sequence[dict[str, str]]


_step: ContextVar[StepAttention | None] = ContextVar("_step", default=None)


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_unused: Any,
) -> tuple[torch.Tensor, None]:
    """The function behind `attn_implementation="minikv"`; query, key and value are [1, heads, tokens, width]."""
    meta = _step.get()
    if meta is None:
        raise UnsupportedModel(f"{type(module).__name__} is used elsewhere while a step of an engine runs")
    if attention_mask is not None:  # ours is None
        raise UnsupportedModel("it makes an attention mask of its own, which pages know nothing of")
    layer: int = module.layer_idx  # type: ignore[assignment]
    options = AttentionOptions(
        scaling=scaling if scaling is not None else query.shape[-1] ** -0.5,
        window=sliding_window,
        softcap=softcap,
        sinks=s_aux,
    )
    query, key, value = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    output = meta.attend(layer, query, key, value, options)
    return output.unsqueeze(0).contiguous(), None


AttentionInterface.register(NAME, paged_attention)
AttentionMaskInterface.register(NAME, lambda *_args, **_kwargs: None)


# Whoever switches a configuration's attention holds its lock: two bound models may share one configuration.
_locks: defaultdict[int, threading.RLock] = defaultdict(threading.RLock)


class BoundModel:
    """A causal language model and its tokenizer, ready for an engine.

    Attributes:
        hf: the Hugging Face model; outside of a step it is untouched and can be used as usual.
        tokenizer: its tokenizer, or None (then prompts are lists of ids, and answers have no text).
        name: what it was loaded as.
        geometry: the shape of its KV cache.
        vocabulary: rows of the embedding; ids are 0 to `vocabulary - 1`.
        max_positions: the longest context that the model was built for; None if it has no limit.
        eos_ids: tokens that end an answer.
    """

    def __init__(
        self, hf: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None, *, name: str | None = None
    ) -> None:
        self.hf = hf.eval()
        self.tokenizer = tokenizer
        self.name = name or type(hf).__name__
        _refuse_by_config(hf)
        text: Any = hf.config.get_text_config(decoder=True)
        self.vocabulary = int(hf.get_input_embeddings().weight.shape[0])
        self.max_positions: int | None = getattr(text, "max_position_embeddings", None)
        self.eos_ids = _eos_ids(hf, tokenizer)
        self._refuse_by_trial()

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        dtype: torch.dtype = self.hf.dtype
        return dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self.hf.device
        return device

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        last: torch.Tensor,
        meta: StepAttention,
    ) -> torch.Tensor:
        """One pass over a packed batch.

        Args:
            input_ids, position_ids: int64 [tokens], the requests one after the other, without padding.
            last: int64 [n], the tokens whose logits are wanted.
            meta: told to every layer's attention.

        Returns:
            Logits, [n, vocabulary].
        """
        if self.geometry.indexers:
            with torch.inference_mode(), self._attention("sdpa"):
                return forward_one_by_one(self.hf, self.geometry, input_ids, position_ids, last, meta)
        with torch.inference_mode(), self._attention(NAME, meta):
            output = self.hf(
                input_ids=input_ids.unsqueeze(0),
                position_ids=position_ids.unsqueeze(0),
                use_cache=False,
                logits_to_keep=last,
            )
        logits: torch.Tensor = output.logits[0]
        return logits

    @contextmanager
    def _attention(self, name: str, meta: StepAttention | None = None) -> Iterator[None]:
        # Switched for one pass only, so that `hf.generate` stays what its owner expects.
        config: Any = self.hf.config
        with _locks[id(config)]:
            before, training = config._attn_implementation, self.hf.training
            config._attn_implementation = name
            token = _step.set(meta)
            if training:
                self.hf.eval()  # no dropout in an answer
            try:
                yield
            finally:
                _step.reset(token)
                config._attn_implementation = before
                if training:
                    self.hf.train()

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Turn a prompt into token ids.

        Args:
            prompt: text, chat messages (dicts with "role" and "content"), or token ids.

        Raises:
            InvalidPrompt: if it is empty, of another type, or has ids outside the vocabulary.
        """
        if isinstance(prompt, str):
            ids = self._tokens(prompt, special=True)
        elif _is_chat(prompt):
            ids = self._encode_chat(prompt)  # type: ignore[arg-type]
        else:
            ids = _as_ids(prompt)
        if len(ids) == 0:
            raise InvalidPrompt("the prompt is empty; give at least one token", requested=0)
        for extreme in (min(ids), max(ids)):
            if not 0 <= extreme < self.vocabulary:
                raise InvalidPrompt(
                    f"token id {extreme} is outside the vocabulary of {self.name} (0 to {self.vocabulary - 1})",
                    limit=self.vocabulary - 1,
                    requested=extreme,
                )
        return tuple(ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of some tokens, without special ones; empty if there is no tokenizer."""
        if self.tokenizer is None:
            return ""
        # Spaces are left as they are: a text cleaned piece by piece would differ from one cleaned whole.
        return str(self.tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        tokenizer = self._need_tokenizer()
        try:
            text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        except Exception as error:  # jinja's and the tokenizer's errors have no common base
            raise InvalidPrompt(f"the chat messages do not fit {self.name}'s template: {error}") from error
        return self._tokens(str(text), special=False)

    def _tokens(self, text: str, *, special: bool) -> list[int]:
        try:
            return list(self._need_tokenizer()(text, add_special_tokens=special)["input_ids"])
        except (TypeError, ValueError, UnicodeError) as error:
            raise InvalidPrompt(f"{self.name}'s tokenizer cannot read this text: {error}") from error

    def _need_tokenizer(self) -> PreTrainedTokenizerBase:
        if self.tokenizer is None:
            raise InvalidPrompt(f"{self.name} has no tokenizer; give the prompt as a list of token ids")
        return self.tokenizer

    def _refuse_by_trial(self) -> None:
        """Run a few tokens, out of order: every layer must call us, and the answer must be the model's own."""
        ids, order = (tensor.to(self.device) for tensor in trial_tokens(self.vocabulary, self.max_positions))
        trial = DenseAttention(order)
        try:
            self.geometry = KVGeometry.from_config(self.hf.config)
            ours = self.forward(ids[order], order, order.argsort(), trial)
            with torch.inference_mode(), self._attention("eager"):
                own = self.hf(input_ids=ids.unsqueeze(0), use_cache=False).logits[0]
            self._refuse_by_layers(trial)
            refuse_if_different(ours, own, self.dtype)
        except Exception as error:  # whatever the model's own code raises when it is run this way
            bypassed = hasattr(self, "geometry") and not (trial.shapes or self.hf._supports_attention_backend)
            why = "it bypasses the attention interface of transformers" if bypassed else error
            raise UnsupportedModel(f"{type(self.hf).__name__} cannot be served: {why}") from error

    def _refuse_by_layers(self, trial: DenseAttention) -> None:
        seen = tuple(trial.shapes[layer] for layer in sorted(trial.shapes))
        stated = tuple((layer.kv_heads, layer.key_dim, layer.value_dim) for layer in self.geometry.layers)
        if sorted(trial.shapes) != list(range(len(stated))):
            raise UnsupportedModel(
                f"its configuration states {len(stated)} layers, and {len(seen)} use the attention interface; the "
                "others would forget what they read"
            )
        text: Any = self.hf.config.get_text_config(decoder=True)
        window = getattr(text, "sliding_window", None)
        kinds = list(getattr(text, "layer_types", None) or ["sliding_attention"] * len(stated))
        if window and kinds.count("sliding_attention") > sum(map(bool, trial.windows)):
            raise UnsupportedModel(f"some of its layers see {window} positions only, and do not tell the interface so")
        if seen != stated:
            self.geometry = KVGeometry(tuple(LayerGeometry(*shape) for shape in seen), self.geometry.indexers)


def _refuse_by_config(hf: PreTrainedModel) -> None:
    name = type(hf).__name__
    config: Any = hf.config
    if not isinstance(hf, PreTrainedModel) or not hf.can_generate() or config.is_encoder_decoder:
        raise UnsupportedModel(f"{name} cannot be served: it is not a decoder-only language model")
    rope = getattr(config.get_text_config(decoder=True), "rope_parameters", None) or {}
    kinds = [rope, *(value for value in rope.values() if isinstance(value, dict))]
    for kind in (entry.get("rope_type") for entry in kinds):
        if kind in ("dynamic", "longrope"):
            raise UnsupportedModel(
                f"{name} cannot be served: rope_type {kind!r} changes old positions when a longer request is "
                "in the same step, so an answer would depend on its neighbours"
            )


def _eos_ids(hf: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> frozenset[int]:
    generation = getattr(hf, "generation_config", None)
    for source in (generation, hf.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return frozenset(ids if isinstance(ids, (list, tuple)) else [ids])
    return frozenset()


def _is_chat(prompt: object) -> bool:
    return isinstance(prompt, (list, tuple)) and len(prompt) > 0 and isinstance(prompt[0], dict)


def _as_ids(prompt: object) -> list[int]:
    if hasattr(prompt, "tolist"):  # a tensor or an array
        prompt = prompt.tolist()
    if not isinstance(prompt, (list, tuple)):
        raise InvalidPrompt(
            f"a prompt is text, a list of chat messages or a list of token ids, not {type(prompt).__name__}"
        )
    if not set(map(type, prompt)) <= {int}:
        wrong = next(token for token in prompt if type(token) is not int)
        raise InvalidPrompt(f"token ids are whole numbers, not {wrong!r}")
    return list(prompt)
