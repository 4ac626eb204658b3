"""A store and the [anchors] store that keeps anchors for its rows without one, used as one store.

``rules`` and ``steps`` are pure: which anchor belongs to an offset, and in which order the two stores are written.
Other rooms import the names below.
"""

from __future__ import annotations

from reconciler.stores.paired.kept import of_anchors, read_kept, refuse_unable
from reconciler.stores.paired.rules import AnchorRows, anchor_of, lacks_anchor
from reconciler.stores.paired.served import ServedStore
from reconciler.stores.paired.steps import NOTHING, aside_of, same, version_of, without_aside
from reconciler.stores.paired.store import paired

__all__ = [
    "NOTHING",
    "AnchorRows",
    "ServedStore",
    "anchor_of",
    "aside_of",
    "lacks_anchor",
    "of_anchors",
    "paired",
    "read_kept",
    "refuse_unable",
    "same",
    "version_of",
    "without_aside",
]
