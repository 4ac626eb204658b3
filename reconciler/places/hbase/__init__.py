"""Offset stores in HBase through its Thrift 1 server; ``address.open_address`` opens one.

``layouts`` holds the pure codecs; ``anchored``, ``cdap`` and ``cloudera`` hold the stores, all over ``table``. An
address comes in; an ``OffsetStore`` goes out.
"""
