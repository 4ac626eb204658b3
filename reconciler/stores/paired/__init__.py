"""A store with no room for anchors and the store that keeps them beside it, used as one.

``rules`` and ``steps`` are pure: which anchor is believed, and in which order two stores are written.
"""
