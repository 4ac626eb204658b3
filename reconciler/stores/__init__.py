"""Offset stores: one module or folder per system, opened by address through ``registry.open_store``.

In: an address. Out: an ``OffsetStore`` of ``ports``, whose rows are read, and written by compare-and-set. ``common``,
``parameters`` and ``table_address`` are what several systems share.
"""
