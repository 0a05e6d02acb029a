"""An engine with room for a number of tokens, and what it keeps of a text: for lessons before pages are explained."""

from __future__ import annotations

from typing import Any

_SIZE = 64  # tokens of a page


def engine_with_room(model: Any, tokens: int, context: int | None = None) -> Any:
    """An engine whose memory holds `tokens` tokens (a multiple of 64), and which promises `context` of them.

    Raises:
        ConfigError: if it cannot hold what it is to promise.
    """
    from minikv import Engine

    if tokens < 1 or tokens % _SIZE:
        raise ValueError(f"tokens must be a multiple of {_SIZE}, not {tokens}")
    return Engine(model, page_size=_SIZE, num_pages=tokens // _SIZE, context_length=context)


def kept_for(model: Any, text: str) -> list[tuple[Any, Any]]:
    """What the engine holds of a text: for each layer the keys and the values, heads by tokens by numbers."""
    from minikv import SamplingParams
    from minikv.trace import Allocate

    count = len(model.encode(text))
    engine = engine_with_room(model, (count // _SIZE + 1) * _SIZE)
    engine.generate([text], SamplingParams(max_tokens=1))
    pages = [event.page for event in engine.trace if isinstance(event, Allocate)]

    def rows(tensor: Any) -> Any:
        return tensor[pages].flatten(0, 1)[:count].transpose(0, 1)

    pool = engine.pool
    return [(rows(keys), rows(values)) for keys, values in zip(pool.keys, pool.values, strict=True)]
