"""The places where jobs keep their offsets: one module or folder per system, opened by ``registry.open_store``.

In: an address. Out: a reader of stored offsets and, where the place may be written, a compare-and-set of numbers.
``checkpoint``: Structured Streaming's checkpoints, read, shown and copied. ``folder``: files on any file system.
"""
