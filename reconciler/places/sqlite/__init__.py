"""Offset stores in a SQLite file: the store behind ``sqlite:///PATH``."""
