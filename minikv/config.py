"""Settings of an engine and of a node: frozen, checked when they are made, no globals."""

from __future__ import annotations

from dataclasses import dataclass

from minikv.errors import ConfigError


def whole_number(name: str, value: object, *, least: int) -> int:
    """Return `value` as an int, or say what is wrong with it.

    Raises:
        ConfigError: if it is no whole number (True, 2.5 and "3" are none) or smaller than `least`.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name} must be a whole number, not {value!r}")
    if value < least:
        raise ConfigError(f"{name} must be at least {least}, not {value}")
    return value


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """Size of one node.

    Attributes:
        num_pages: pages in the node's pool.
        max_batch_size: the most requests that share one step.
        max_batch_tokens: the most tokens computed in one step; a longer prompt has a step to itself.
    """

    num_pages: int
    max_batch_size: int = 32
    max_batch_tokens: int = 8192

    def __post_init__(self) -> None:
        for name in ("num_pages", "max_batch_size", "max_batch_tokens"):
            whole_number(name, getattr(self, name), least=1)
