"""Configurations as text, written to a file and read as a command does."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.operations.config import Config

Load = Callable[..., Config]
"""What the fixture ``load`` gives: from a text, with the environment as keywords."""
