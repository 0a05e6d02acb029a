"""The other customers: invented people with invented secrets."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

CANARIES = {
    "halverson": ("copper-heron-seventeen", "Halverson", "Ottilie", "Larkmoor", "Meridian Bank", "Delphine"),
    "quennell": ("QX-44918-ZR", "Quennell", "Vantongeren", "Hollowmere", "Brightwater", "Tobias"),
    "orrin": ("velvet-marmot", "Kestrelmoor", "Tallowby", "Bexley", "Ostrander", "Lindqvale", "Dunmarrow"),
    "diary": (
        "blue tin behind the stove",
        "Pemberwick",
        "Crowhurst",
        "Port Saltash",
        "Marigold Finch",
        "Anneliese",
    ),
}


@dataclass(frozen=True)
class Tenant:
    """A customer, the text they send, and the words in it that occur nowhere else."""

    name: str
    text: str
    canaries: tuple[str, ...]


def tenant(name: str) -> Tenant:
    """One of the four tenants by name."""
    text = files("minikv.incident").joinpath("texts", f"{name}.txt").read_text(encoding="utf-8").strip()
    return Tenant(name, text, CANARIES[name])


def canaries_in(answer: str, tenants: list[Tenant]) -> list[str]:
    """Canaries of some tenants that stand in an answer, in the order of the tenants."""
    return [canary for each in tenants for canary in each.canaries if canary in answer]


def word_runs_in(answer: str, tenants: list[Tenant], *, least: int = 5) -> list[str]:
    """Longest runs of at least `least` words that an answer shares with some tenants' texts, in order."""
    words = answer.split()
    runs: list[str] = []
    for each in tenants:
        text = f" {' '.join(each.text.split())} "
        start = 0
        while start + least <= len(words):
            stop = start
            while stop < len(words) and f" {' '.join(words[start : stop + 1])} " in text:
                stop += 1
            if stop - start >= least:
                runs.append(" ".join(words[start:stop]))
            start = max(stop, start + 1)
    return runs
