"""One call of a learner's attention, made up or taken from an engine, and what can be found out about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Attend = Callable[..., Any]

NAN, ZEROS, NOISE = "nan", "zeros", "noise"
_CLOSE = 1e-5


@dataclass(frozen=True)
class Call:
    """The arguments of `attend(query, keys, values, table, written, scale)`, for one token.

    Attributes:
        query: [query heads, width].
        keys, values: one layer of a pool, [pages, page size, KV heads, width].
        table: the pages of the token's request.
        written: how many of its tokens are written, this one included.
        scale: factor on the scores.
    """

    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    table: tuple[int, ...]
    written: int
    scale: float

    @property
    def page_size(self) -> int:
        return int(self.keys.shape[1])

    @property
    def reserved(self) -> int:
        """Slots in the pages of the table."""
        return len(self.table) * self.page_size

    @property
    def in_last_page(self) -> int:
        """Tokens up to the end of the last page that has a token in it."""
        return -(-self.written // self.page_size) * self.page_size

    def slots(self, start: int, stop: int) -> list[int]:
        """Slots of the tokens start to stop - 1, as numbers in the whole pool."""
        size = self.page_size
        return [self.table[token // size] * size + token % size for token in range(start, stop)]

    def others(self) -> list[int]:
        """All slots of the pool that are not written for this request."""
        own = set(self.slots(0, self.written))
        return [slot for slot in range(self.keys.shape[0] * self.page_size) if slot not in own]

    def filled(self, fill: str, slots: Iterable[int] | None = None, *, keys: bool = True, values: bool = True) -> Call:
        """The same call with other contents in some slots (by default: in all that are not written).

        `keys` and `values` say what is changed. NOISE is large, and different in every slot.
        """
        import torch

        places = torch.tensor(self.others() if slots is None else list(slots), dtype=torch.long)
        changed: dict[str, Any] = {}
        for name, tensor, wanted in (("keys", self.keys, keys), ("values", self.values, values)):
            if not wanted:
                continue
            copy = tensor.clone()
            shape = (len(places), *tensor.shape[2:])
            if fill == NOISE:
                new = 40 * torch.randn(shape, generator=torch.Generator().manual_seed(5)).to(tensor)
            else:
                new = torch.full(shape, float("nan") if fill == NAN else 0.0).to(tensor)
            copy.flatten(0, 1)[places] = new
            changed[name] = copy
        return replace(self, **changed)

    def ask(self, attend: Attend) -> Any:
        """What a function gives back for this call, as it came; it gets copies, and may spoil them."""
        tensors = (self.query.clone(), self.keys.clone(), self.values.clone())
        return attend(*tensors, list(self.table), self.written, self.scale)

    def answer(self, attend: Attend) -> torch.Tensor | None:
        """The same as float64 [query heads, width]; None if it has another shape."""
        return as_rows(self.ask(attend), self.query.shape[0], self.values.shape[-1])


def as_rows(answer: Any, heads: int, width: int) -> torch.Tensor | None:
    """What came back from a learner's function as float64 [heads, width]; None if it cannot be read like that.

    A tensor, an array, or a list of rows of either.
    """
    import torch

    try:
        if hasattr(answer, "__len__") and len(answer) != heads:  # it may be very long: it is not read
            return None
        if isinstance(answer, (list, tuple)):
            answer = torch.stack([torch.as_tensor(row) for row in answer])
        rows = torch.as_tensor(answer).detach().double()
    except (TypeError, ValueError, RuntimeError):
        return None
    return rows if tuple(rows.shape) == (heads, width) else None


def made_up(
    kv_heads: int = 3,
    group: int = 3,
    width: int = 16,
    page_size: int = 16,
    written: int = 37,
    extra: int = 1,
    *,
    spread: float = 1.0,
    seed: int = 0,
) -> Call:
    """A call with random numbers. Its pages lie in no order, and none has the number of its place in the table.

    Args:
        kv_heads, group, width: KV heads, query heads for each, numbers in a head.
        page_size, written: as in the call.
        extra: pages that were lent in advance and have nothing written in them.
        spread: the larger, the more the scores differ from each other.
        seed: of the random numbers.
    """
    import torch

    random = torch.Generator().manual_seed(seed)
    pages = -(-written // page_size) + extra
    total = pages + 4
    table = list(range(pages))
    while any(page == place for place, page in enumerate(table)) or (pages > 1 and table == sorted(table)):
        table = torch.randperm(total, generator=random)[:pages].tolist()
    shape = (total, page_size, kv_heads, width)
    return Call(
        query=spread * torch.randn(kv_heads * group, width, generator=random),
        keys=torch.randn(shape, generator=random),
        values=torch.randn(shape, generator=random),
        table=tuple(table),
        written=written,
        scale=0.31,
    )


def right(call: Call) -> torch.Tensor:
    """What attention gives for this call, in float64, worked out slot by slot."""
    import torch

    slots = call.slots(0, call.written)
    keys, values = (tensor.flatten(0, 1)[slots].double() for tensor in (call.keys, call.values))
    group = call.query.shape[0] // keys.shape[1]
    rows = []
    for head, query in enumerate(call.query.double()):
        weights = torch.softmax(keys[:, head // group] @ query * call.scale, dim=0)
        rows.append(weights @ values[:, head // group])
    return torch.stack(rows)


def differ(one: torch.Tensor | None, other: torch.Tensor | None, close: float = _CLOSE) -> bool:
    """Whether two answers differ by more than rounding; two NaN at the same place do not."""
    import torch

    if one is None or other is None:
        return one is not other
    return not torch.allclose(one, other, rtol=close, atol=close, equal_nan=True)


def slots_that_matter(
    attend: Attend, call: Call, slots: Sequence[int], fill: str = NAN, *, keys: bool = True, values: bool = True
) -> list[int]:
    """Those of some slots whose contents can change the answer, found by changing one at a time."""
    before = call.answer(attend)
    if not differ(answer_or_none(attend, call.filled(fill, slots, keys=keys, values=values)), before):
        return []
    return [
        slot
        for slot in slots
        if differ(answer_or_none(attend, call.filled(fill, [slot], keys=keys, values=values)), before)
    ]


def answer_or_none(attend: Attend, call: Call) -> torch.Tensor | None:
    """An answer; None also if the function minds so much that it raises."""
    try:
        return call.answer(attend)
    except NotImplementedError:
        raise
    except Exception:
        return None
