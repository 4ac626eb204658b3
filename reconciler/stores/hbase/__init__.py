"""Offset stores in HBase through its Thrift 1 server: everything about HBase stands here.

``address`` reads addresses and opens; ``layouts`` holds the pure codecs; the other modules are one store a layout.
"""
