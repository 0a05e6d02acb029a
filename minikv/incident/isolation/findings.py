"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Layer = Literal["content", "invariant", "probe"]


@dataclass(frozen=True)
class Finding:
    """One rule that did not hold.

    Attributes:
        layer: "content", seen from outside; "invariant", inside, while traffic ran; "probe": a part was asked alone.
        rule: what should hold.
        detail: what was found instead.
    """

    layer: Layer
    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.layer}: {self.rule}: {self.detail}"
