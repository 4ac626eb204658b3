"""Rows that change while ``apply`` writes them: what is said to be written, and that a second apply ends it."""

from __future__ import annotations

CHOSEN = ("-c", "reconciler.toml")
APPLY = ("apply", "p.json", *CHOSEN, "--yes")
