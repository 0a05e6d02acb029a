"""What a learner's attention copies, and how many bytes of keys and values it reads."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

from minikv.course.chapters.paged import Attend, Call

_GATHERS = ("aten.index", "aten.gather", "aten.take", "aten.embedding")  # read only what they give back
_SUMS = ("aten.mm", "aten.bmm", "aten.mv", "aten.dot", "aten.addm", "aten.baddbmm", "aten._scaled_dot", "aten.sum")


def bytes_written(call: Call) -> int:
    """Bytes of the keys and values that are written for the request."""
    per_slot = sum(math.prod(tensor.shape[2:]) * tensor.element_size() for tensor in (call.keys, call.values))
    return call.written * per_slot


def bytes_read(attend: Attend, call: Call) -> int:
    """Bytes of keys and values that a call reads. Reading a copy of them counts as much as reading the pool.

    Only operations of torch can be seen.

    Raises:
        ValueError: if none reads the pool, for instance because numpy does.
    """
    read = 0
    keys, values = call.keys.clone(), call.values.clone()
    copies = {_place(tensor): tensor for tensor in (keys, values)}  # and what is made of them, by where it lies

    def note(name: str, given: list[Any], new: list[Any]) -> None:
        nonlocal read
        sources = [tensor for tensor in given if _place(tensor) in copies]
        if new and sources:
            looked_at = new[:1] if name.startswith(_GATHERS) else sources
            read += sum(map(_bytes, looked_at))
            if not name.startswith(_SUMS) and new[0].numel() >= min(source.numel() for source in looked_at):
                copies[_place(new[0])] = new[0]  # kept, so that nothing else comes to lie there

    _run(attend, call, keys, values, note)
    if not read:
        raise ValueError("no operation of torch has read the pool, so nothing can be counted")
    return read


def most_held(attend: Attend, call: Call) -> tuple[int, int]:
    """Bytes that a call holds at the same time, at most: in tensors that it makes, and in what numpy and Python do."""
    from torch.multiprocessing.reductions import StorageWeakRef

    most = 0
    alive: dict[int, tuple[StorageWeakRef, int]] = {}  # by where a tensor lies, for as long as anybody holds it

    def note(name: str, given: list[Any], new: list[Any]) -> None:
        nonlocal most
        for place in [place for place, (storage, _size) in alive.items() if storage.expired()]:
            del alive[place]
        for tensor in new:
            storage = tensor.untyped_storage()
            alive[_place(tensor)] = StorageWeakRef(storage), storage.nbytes()
        most = max(most, sum(size for _storage, size in alive.values()))

    keys, values = call.keys.clone(), call.values.clone()
    _run(attend, call, keys, values, note)  # what torch and numpy load the first time is no copy
    most = 0
    alive.clear()
    ours = not tracemalloc.is_tracing()
    if ours:
        tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    try:
        _run(attend, call, keys, values, note)
        return most, tracemalloc.get_traced_memory()[1] - before
    finally:
        if ours:
            tracemalloc.stop()


def _run(attend: Attend, call: Call, keys: Any, values: Any, note: Callable[[str, list[Any], list[Any]], None]) -> None:
    """Run one call; for each operation of torch, note its name, the tensors it was given, and those it made."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            given = list(_tensors((args, kwargs or {})))
            old = set(map(_place, given))
            note(str(func), given, [tensor for tensor in _tensors(made) if _place(tensor) not in old])
            return made

    with torch.no_grad(), Watch():  # type: ignore[no-untyped-call]
        attend(call.query.clone(), keys, values, list(call.table), call.written, call.scale)


def _place(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _bytes(tensor: Any) -> int:
    """Bytes of memory behind a tensor; what is only repeated counts once."""
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
    return int(math.prod(sizes)) * int(tensor.element_size())


def _tensors(thing: Any) -> Iterator[Any]:
    import torch

    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, dict):
        for each in thing.values():
            yield from _tensors(each)
    elif isinstance(thing, (list, tuple)):
        for each in thing:
            yield from _tensors(each)
