"""The learner's attention for one token, in the seat of the part that reads pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from minikv.attention import torch_backend
from minikv.attention.metadata import AttentionBackend, SequenceView
from minikv.config import whole_number
from minikv.errors import BrokenRule, ConfigError
from minikv.models.options import AttentionOptions

READS = "a token reads the slots that are written for it, and no others"
WRITES = "attention reads pages and does not write to them"  # the engine's own words for its pool
GIVES = "attention for one token gives back [query heads, head_dim]"
NUMBERS = "attention for one token gives back numbers"


def as_attention(
    attend: Callable[..., Any], *, poison: bool = False, prompts: bool = True, page_size: int | None = None
) -> AttentionBackend:
    """Put a learner's function where the engine's own attention would be: `Engine(model, attention=...)`.

    Args:
        attend: `attend(query, keys, values, table, written, scale)` for one token, with query [query heads,
            head_dim], keys and values [pages, page_size, KV heads, head_dim], the request's pages as a list, how many
            of its tokens are written (this one included), and the factor on the scores. Gives back [query heads,
            head_dim]. It is asked for every token in every layer.
        poison: give it a copy of the pool in which every slot that is not written for the token holds NaN; whoever
            reads one is named, with the slots. Slower.
        prompts: ask it for the tokens of prompts too; else only for those that come one at a time.
        page_size: slots in a page, where it cannot be seen from the pool (one made in inference mode).

    Raises:
        ConfigError: when asked to serve a model whose layers want more than plain attention, or if the page size
            is not known or not the pool's.
        BrokenRule: from a step, if the function gives back another shape, writes to the pool, or reads what it must
            not (`poison`).
    """
    if not callable(attend):
        raise ConfigError(f"attention must be a function, not {attend!r}")
    if page_size is not None:
        whole_number("page_size", page_size, least=1)
    return _Seat(attend, poison, prompts, page_size)


class _Seat:
    """See `as_attention`."""

    def __init__(self, attend: Callable[..., Any], poison: bool, prompts: bool, page_size: int | None) -> None:
        self.attend = attend
        self.poison = poison
        self.prompts = prompts
        self.page_size = page_size

    def __call__(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        sequences: Sequence[SequenceView],
        options: AttentionOptions,
    ) -> torch.Tensor:
        """As `AttentionBackend`: one call of the learner's function for each token."""
        _refuse(options)
        size = _page_size(keys, self.page_size)
        output = query.new_empty(query.shape[0], query.shape[1], values.shape[2])
        for view in sequences:
            rows = slice(view.start, view.start + view.length)
            if view.length > 1 and not self.prompts:
                alone = SequenceView(0, view.length, view.seq_len, view.slots)
                output[rows] = torch_backend.attend(query[rows], keys, values, [alone], options)
                continue
            layer = (_Poisoned if self.poison else _Layer)(keys, values, view, size)
            for row in range(view.length):
                written = view.seq_len - view.length + row + 1
                answer = layer.ask(self.attend, query[view.start + row], written, options.scaling)
                output[view.start + row] = answer
        return output


class _Layer:
    """One request in one layer, as the learner's function sees it."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, view: SequenceView, size: int) -> None:
        self.size = size
        self.slots = view.slots
        self.table: list[int] = (view.slots[::size] // size).tolist()
        self.keys, self.values = keys.unflatten(0, (-1, size)), values.unflatten(0, (-1, size))
        pages = torch.tensor(self.table, device=view.slots.device)
        expected = (pages[:, None] * size + torch.arange(size, device=pages.device)).flatten()
        if not torch.equal(expected[: len(view.slots)], view.slots):
            raise _other_pages(size)

    def ask(self, attend: Callable[..., Any], query: torch.Tensor, written: int, scale: float) -> torch.Tensor:
        """The answer for one token, [query heads, value width], in the dtype of the query."""
        return self.rows(attend(query, self.keys, self.values, list(self.table), written, scale), query)

    def rows(self, answer: Any, query: torch.Tensor) -> torch.Tensor:
        """What came back, as a tensor of the right form."""
        expected = (query.shape[0], self.values.shape[-1])
        try:
            if not hasattr(answer, "shape") and len(answer) != len(query):  # it may be very long: it is not read
                raise ValueError
            if isinstance(answer, (list, tuple)):
                answer = torch.stack([torch.as_tensor(row) for row in answer])
            rows = torch.as_tensor(answer, device=query.device).to(query.dtype)
        except (TypeError, ValueError, RuntimeError):
            raise BrokenRule(GIVES, f"{expected} was expected, and {type(answer).__name__} came") from None
        if tuple(rows.shape) != expected:
            raise BrokenRule(GIVES, f"{expected} was expected, and {tuple(rows.shape)} came")
        return rows


class _Poisoned(_Layer):
    """The same, with NaN in all slots that the token must not read. Tokens are asked for in order."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, view: SequenceView, size: int) -> None:
        super().__init__(keys, values, view, size)
        self.true = (self.keys, self.values)
        self.keys, self.values = (torch.full_like(tensor, float("nan")) for tensor in self.true)
        self.before = (self.keys.clone(), self.values.clone())  # what the two must hold after each call
        self.shown = 0

    def ask(self, attend: Callable[..., Any], query: torch.Tensor, written: int, scale: float) -> torch.Tensor:
        new = self.slots[self.shown : written]
        for own, before, true in zip((self.keys, self.values), self.before, self.true, strict=True):
            own.flatten(0, 1)[new] = before.flatten(0, 1)[new] = true.flatten(0, 1)[new]
        self.shown = written
        answer = attend(query, self.keys, self.values, list(self.table), written, scale)
        self._check_unchanged(written)
        rows = self.rows(answer, query)
        if torch.isnan(rows).any():
            raise self._accusation(attend, query, written, scale)
        return rows

    def _check_unchanged(self, written: int) -> None:
        """The engine sees a write to its pool, and not one to this copy. Bytes are compared, as NaN equals nothing."""
        for name, own, before in zip(("keys", "values"), (self.keys, self.values), self.before, strict=True):
            changed = (own.view(torch.uint8) != before.view(torch.uint8)).flatten(1).any(dim=1)
            if changed.any():
                page = int(changed.nonzero()[0])
                raise BrokenRule(WRITES, f"the {name} of page {page} were changed for token {written - 1}")

    def _accusation(self, attend: Callable[..., Any], query: torch.Tensor, written: int, scale: float) -> BrokenRule:
        """Which slots were read: NaN into one at a time, zeros into the others."""
        own = set(self.slots[:written].tolist())
        in_table = [page * self.size + slot for page in self.table for slot in range(self.size)]
        elsewhere = [slot for slot in range(self.keys.shape[0] * self.size) if slot // self.size not in self.table]
        clean = [torch.nan_to_num(tensor, nan=0.0) for tensor in (self.keys, self.values)]
        answer = attend(query, *(tensor.clone() for tensor in clean), list(self.table), written, scale)
        if torch.isnan(self.rows(answer, query)).any():
            return BrokenRule(NUMBERS, f"token {written - 1} got NaN, and there was none in what was read")
        read = []
        for slot in [slot for slot in (*in_table, *elsewhere) if slot not in own]:
            keys, values = (tensor.clone() for tensor in clean)
            keys.flatten(0, 1)[slot] = values.flatten(0, 1)[slot] = float("nan")
            answer = attend(query, keys, values, list(self.table), written, scale)
            if torch.isnan(self.rows(answer, query)).any():
                read.append(slot)
        if not read:
            return BrokenRule(READS, f"its token {written - 1} got NaN, though no single slot explains it")
        return BrokenRule(READS, f"token {written - 1}, with {written} written, read {_named(read, self.size)}")


def _named(slots: list[int], size: int) -> str:
    """Slots in words, page by page: "11 more: slots 5 to 15 of page 3"."""
    places: dict[int, list[int]] = {}
    for slot in slots:
        places.setdefault(slot // size, []).append(slot % size)
    parts = []
    for page, inside in list(places.items())[:3]:
        run = f"slot {inside[0]}" if len(inside) == 1 else f"slots {inside[0]} to {inside[-1]}"
        if len(inside) != inside[-1] - inside[0] + 1:
            run = f"{len(inside)} slots"
        parts.append(f"{run} of page {page}")
    more = f", and {len(places) - 3} pages more" if len(places) > 3 else ""
    return f"{len(slots)} more: {', '.join(parts)}{more}"


def _refuse(options: AttentionOptions) -> None:
    wants = {
        f"to look at its last {options.window} tokens only": options.window is not None,
        "its scores bent (softcap)": options.softcap is not None,
        "weight that falls on no token (sinks)": options.sinks is not None,
    }
    for what, wanted in wants.items():
        if wanted:
            raise ConfigError(
                f"a layer of this model wants {what}, and attend(query, keys, values, table, written, scale) "
                "is not told so: its answers would be wrong. Use the engine's own attention"
            )


def _page_size(keys: torch.Tensor, given: int | None) -> int:
    """From the pool that a layer's slots are a view of; if that cannot be seen, as it was given."""
    pool = keys._base
    if pool is not None and pool.dim() == 4 and pool.shape[2:] == keys.shape[1:]:
        seen = int(pool.shape[1])
        if given not in (None, seen):
            raise _other_pages(given)
        return seen
    if given is None:
        raise ConfigError(
            "the page size cannot be seen from this pool: give it, as in as_attention(attend, page_size=16)"
        )
    if len(keys) % given:
        raise _other_pages(given)
    return given


def _other_pages(size: int | None) -> ConfigError:
    return ConfigError(f"these slots do not lie in pages of {size}: give the engine's page_size, or leave it out")
