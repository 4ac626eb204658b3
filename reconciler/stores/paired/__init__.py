"""A store with no room for anchors and the [anchors] store that keeps them, used as one store.

``rules`` and ``steps`` are pure: which anchor belongs to an offset, and in which order the two stores are written.
Other rooms import the names below.
"""

from __future__ import annotations

from reconciler.stores.paired.rules import Kept, pair
from reconciler.stores.paired.steps import NOTHING, aside_of, same, version_of
from reconciler.stores.paired.store import of_anchors, paired, read_kept, refuse_unable

__all__ = [
    "NOTHING",
    "Kept",
    "aside_of",
    "of_anchors",
    "pair",
    "paired",
    "read_kept",
    "refuse_unable",
    "same",
    "version_of",
]
