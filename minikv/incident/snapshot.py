"""The state of a quiet cluster, kept to return to it: the same past can then meet different requests."""

from __future__ import annotations

import copy

from minikv.disagg.router import Cluster
from minikv.errors import ConfigError
from minikv.memory import PagePool


class Snapshot:
    """Everything that a later request can meet in the two pools of a cluster.

    Raises:
        ConfigError: if a request still holds pages.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._pools = [_PoolState(pool) for pool in (cluster.prefill.pool, cluster.decode.pool)]

    def restore(self) -> None:
        """Put the pools back as they were."""
        for state in self._pools:
            state.restore()


class _PoolState:
    def __init__(self, pool: PagePool) -> None:
        if pool.tables:
            raise ConfigError(f"requests {sorted(pool.tables)} still hold pages on {pool.node}")
        self.pool = pool
        self.tensors = [tensor.clone() for tensor in (*pool.keys, *pool.values)]
        self.generation = pool.generation.copy()
        self.allocator = copy.deepcopy(pool.allocator)
        ledger = pool.ledger
        self.records = ledger and (ledger.writer.copy(), ledger.generation.copy(), ledger.position.copy())

    def restore(self) -> None:
        for tensor, kept in zip((*self.pool.keys, *self.pool.values), self.tensors, strict=True):
            tensor.copy_(kept)
        self.pool.generation[:] = self.generation
        self.pool.allocator = copy.deepcopy(self.allocator)
        if self.records and self.pool.ledger:
            ledger = self.pool.ledger
            for array, copy_of_it in zip(
                (ledger.writer, ledger.generation, ledger.position), self.records, strict=True
            ):
                array[:] = copy_of_it
