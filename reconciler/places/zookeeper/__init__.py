"""Offset stores in ZooKeeper; ``store.open_address`` opens one.

``layouts`` defines the znodes' names and content; ``store`` reads and changes them through ``client``.
"""
