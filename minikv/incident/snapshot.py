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
        self.next_number = cluster.next_number
        self._pools = [_PoolState(pool) for pool in (cluster.prefill.pool, cluster.decode.pool)]

    def restore(self, into: Cluster | None = None) -> None:
        """Put the pools back as they were, or give another cluster of the same sizes this past."""
        cluster = into or self.cluster
        for state, node in zip(self._pools, (cluster.prefill, cluster.decode), strict=True):
            state.restore(node.pool)
        if cluster is not self.cluster:
            cluster.next_number = self.next_number


class _PoolState:
    def __init__(self, pool: PagePool) -> None:
        if pool.tables:
            raise ConfigError(f"requests {sorted(pool.tables)} still hold pages on {pool.node}")
        self.tensors = [tensor.clone() for tensor in (*pool.keys, *pool.values)]
        self.generation = pool.generation.copy()
        self.allocator = copy.deepcopy(pool.allocator)
        ledger = pool.ledger
        self.records = ledger and (ledger.writer.copy(), ledger.generation.copy(), ledger.position.copy())

    def restore(self, pool: PagePool) -> None:
        for tensor, kept in zip((*pool.keys, *pool.values), self.tensors, strict=True):
            tensor.copy_(kept)
        pool.generation[:] = self.generation
        pool.allocator = copy.deepcopy(self.allocator)
        if self.records and pool.ledger:
            ledger = pool.ledger
            for array, copy_of_it in zip(
                (ledger.writer, ledger.generation, ledger.position), self.records, strict=True
            ):
                array[:] = copy_of_it
