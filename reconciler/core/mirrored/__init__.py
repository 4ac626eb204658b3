"""Offsets without an anchor, located by what the mirror left: its pairs of offsets, or numbers in the records."""
