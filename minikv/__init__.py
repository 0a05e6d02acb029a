"""minikv: a small, complete engine that serves Hugging Face models from a paged KV cache.

The front door. Everything is imported when it is first used, so that `import minikv` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikv.config import ClusterConfig as ClusterConfig
    from minikv.config import EngineConfig as EngineConfig
    from minikv.config import NodeConfig as NodeConfig
    from minikv.disagg.router import Cluster as Cluster
    from minikv.engine import Engine as Engine
    from minikv.errors import Rejected as Rejected
    from minikv.models.catalog import load_model as load_model
    from minikv.models.geometry import KVGeometry as KVGeometry
    from minikv.sampling import SamplingParams as SamplingParams
    from minikv.scheduling.request import Completion as Completion
    from minikv.streaming import Chunk as Chunk

__version__ = "0.1.0"

_HOME = {
    "Chunk": "minikv.streaming",
    "Cluster": "minikv.disagg.router",
    "ClusterConfig": "minikv.config",
    "Completion": "minikv.scheduling.request",
    "Engine": "minikv.engine",
    "EngineConfig": "minikv.config",
    "KVGeometry": "minikv.models.geometry",
    "NodeConfig": "minikv.config",
    "Rejected": "minikv.errors",
    "SamplingParams": "minikv.sampling",
    "load_model": "minikv.models.catalog",
}

__all__ = [*sorted(_HOME), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'minikv' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
