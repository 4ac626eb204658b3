"""The audit's figures over plain numbers, where the product judges Spark's columns."""

from __future__ import annotations

from typing import Any


class Numbers:
    """Satisfies ``figures.Operations``."""

    def least(self, one: Any, other: Any) -> Any:
        return min(one, other)

    def greatest(self, one: Any, other: Any) -> Any:
        return max(one, other)

    def where(self, condition: Any, then: Any, otherwise: Any) -> Any:
        return then if condition else otherwise
