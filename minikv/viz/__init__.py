"""Pictures of a run. Everything here is drawn from traces; nothing here knows an engine."""

from minikv.viz.page_map import PageMap, page_map

__all__ = ["PageMap", "page_map"]
