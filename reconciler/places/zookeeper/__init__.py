"""Offset stores in ZooKeeper; ``address.open_address`` opens one.

``layouts`` and ``single_text`` define the znodes' content; ``store`` and ``writing`` read and change
them through ``client``. An address comes in; an ``OffsetStore`` goes out.
"""
