"""A store with no room for anchors and the [anchors] store that keeps them, used as one store.

``rules`` and ``steps`` are pure: which anchor belongs to an offset, and in which order the two stores are written.
"""
