"""Settings of an engine, a cluster and a node: frozen, checked when they are made, no globals."""

from __future__ import annotations

import difflib
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import metadata
from typing import Any, Literal, TypeVar

from minikv.errors import ConfigError

OverLimit = Literal["refuse", "cap"]
ABOVE_0 = math.ulp(0.0)  # the smallest number above it
TRANSFORMERS = ((5, 17), (6,))  # supported versions: from, and up to but not including


def version_numbers(version: str) -> tuple[int, ...]:
    """(5, 24, 0) for "5.24.0rc1+cpu": enough to compare with a range."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def require_transformers() -> None:
    """Raise `ConfigError`, with the command that helps, if the installed transformers is too old or too new."""
    version = metadata.version("transformers")
    oldest, too_new = TRANSFORMERS
    if not oldest <= version_numbers(version) < too_new:
        raise ConfigError(
            f"transformers {version} is not supported: minikv reads models through interfaces of 5.17 and newer, below "
            '6. Run: python -m pip install "transformers>=5.17,<6"'
        )


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


def number(name: str, value: object, least: float, most: float) -> None:
    """Raise `ConfigError` unless `value` is a finite number from `least` (or `ABOVE_0`) to `most`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{name} must be a number, not {value!r}")
    if not least <= value <= min(most, sys.float_info.max):
        words = {0.0: "0 or more", ABOVE_0: "above 0"}.get(least, f"{least} or more")
        words += "" if most == math.inf else f", and {most} at most"
        raise ConfigError(f"{name} must be {words}, not {value}")


def yes_or_no(name: str, value: object) -> bool:
    """Return `value`, or raise `ConfigError` unless it is True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, not {value!r}")
    return value


def several(name: str, values: object) -> tuple[Any, ...]:
    """Return `values` as a tuple, or raise `ConfigError` unless they are a list of any kind."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ConfigError(f"{name} must be a list, not {values!r}")
    return tuple(values)


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """Size of one node.

    Attributes:
        num_pages: pages in the node's pool.
        max_batch_size: the most requests that share one step.
        max_batch_tokens: the most tokens computed in one step; a longer prompt is read in chunks.
    """

    num_pages: int
    max_batch_size: int = 32
    max_batch_tokens: int = 8192

    def __post_init__(self) -> None:
        for name in ("num_pages", "max_batch_size", "max_batch_tokens"):
            whole_number(name, getattr(self, name), least=1)


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """What an engine and a cluster have in common.

    Attributes:
        page_size: token slots per page.
        context_length: most tokens of one request, prompt and answer together; by default as many as the model
            and the smallest pool allow.
        allow_context_above_pool: accept a context that the smallest pool cannot hold; requests are then refused by
            what the pools hold.
        over_limit: what the door does when prompt and `max_tokens` together can never fit: "refuse" the request,
            saying which `max_tokens` would do, or "cap" its `max_tokens` at that. A prompt that does not fit is
            always refused.
        max_waiting: refuse a request as busy (429) while this many wait to start, those of one `generate` call
            included; None lets any number wait.
        ledger: keep the shadow record and refuse stale reads; costs some time, so benchmarks switch it off.
    """

    page_size: int = 16
    context_length: int | None = None
    allow_context_above_pool: bool = False
    over_limit: OverLimit = "refuse"
    max_waiting: int | None = None
    ledger: bool = True

    def __post_init__(self) -> None:
        whole_number("page_size", self.page_size, least=1)
        if self.context_length is not None:
            whole_number("context_length", self.context_length, least=2)
        if self.max_waiting is not None:
            whole_number("max_waiting", self.max_waiting, least=1)
        if self.over_limit not in ("refuse", "cap"):
            raise ConfigError(f"over_limit must be 'refuse' or 'cap', not {self.over_limit!r}")
        for name in ("allow_context_above_pool", "ledger"):
            yes_or_no(name, getattr(self, name))

    def context(self, max_positions: int | None, pool_tokens: int, *, model: str, node: str) -> int:
        """The context that a server offers.

        Args:
            max_positions: the longest that the model was built for; None if it has no limit. `model` is its name.
            pool_tokens: tokens that the smallest pool holds; `node` is its name.

        Raises:
            ConfigError: if `context_length` is more than the model was built for, or more than the smallest pool
                holds and this was not allowed.
        """
        wanted = self.context_length
        if wanted is None:
            if pool_tokens < 2:
                raise ConfigError(
                    f"the pool of the {node} node holds {pool_tokens} token; a prompt and an answer take two"
                )
            return min(max_positions or pool_tokens, pool_tokens)
        if max_positions is not None and wanted > max_positions:
            raise ConfigError(
                f"context_length={wanted} is more than the {max_positions} positions that {model} was built for"
            )
        if wanted > pool_tokens and not self.allow_context_above_pool:
            raise ConfigError(
                f"context_length={wanted} is more than the {pool_tokens} tokens that the pool of the {node} "
                f"node holds. Use context_length={pool_tokens}, more pages, or allow_context_above_pool=True: then "
                "requests are refused by what the pools hold"
            )
        return wanted


@dataclass(frozen=True, kw_only=True)
class EngineConfig(ServerConfig):
    """Settings of an `Engine`.

    Attributes:
        num_pages: pages in the pool; by default as many as 1 GiB holds, and no more than a full batch can use.
        max_batch_size, max_batch_tokens: as in `NodeConfig`.
    """

    num_pages: int | None = None
    max_batch_size: int = 32
    max_batch_tokens: int = 8192

    def __post_init__(self) -> None:
        super().__post_init__()
        self.node(1 if self.num_pages is None else self.num_pages)

    def node(self, num_pages: int) -> NodeConfig:
        """The settings of its one node."""
        limits = {"max_batch_size": self.max_batch_size, "max_batch_tokens": self.max_batch_tokens}
        return NodeConfig(num_pages=num_pages, **limits)


@dataclass(frozen=True, kw_only=True)
class ClusterConfig(ServerConfig):
    """Settings of a `Cluster`.

    Attributes:
        prefill, decode: sizes of the two nodes.
    """

    prefill: NodeConfig
    decode: NodeConfig

    def __post_init__(self) -> None:
        super().__post_init__()
        for role in ("prefill", "decode"):
            if not isinstance(getattr(self, role), NodeConfig):
                raise ConfigError(f"{role} must be a NodeConfig, not {type(getattr(self, role)).__name__}")


Kind = TypeVar("Kind")


def made_of(kind: type[Kind], options: dict[str, Any]) -> Kind:
    """Build a dataclass from those options that are its fields, and take them out of `options`."""
    known = {field.name for field in fields(kind)} & set(options)  # type: ignore[arg-type]
    try:
        return kind(**{name: options.pop(name) for name in known})
    except TypeError as error:
        raise ConfigError(f"{kind.__name__}: {error}") from error


def refuse_unknown(options: Mapping[str, Any], *kinds: type) -> None:
    """Raise `ConfigError` for options that are left over, with the name that may have been meant."""
    for name in options:
        known = [field.name for kind in kinds for field in fields(kind)]
        near = difflib.get_close_matches(name, known, n=1)
        guess = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(sorted(known))}"
        raise ConfigError(f"there is no setting and no part called {name!r}{guess}")


def one_for_each(name: str, given: object, kind: type[Kind], count: int) -> list[Kind]:
    """One value of a kind for each of `count` prompts, from one value or a sequence of them."""
    if isinstance(given, kind):
        return [given] * count
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"{name} must be of type {kind.__name__}, or one for each prompt, not {given!r}")
    if len(given) != count:
        raise ConfigError(f"{count} prompts and {len(given)} values of {name} do not match")
    for one in given:
        if not isinstance(one, kind):
            raise ConfigError(f"{name} must be of type {kind.__name__}, not {one!r}")
    return list(given)
