"""Offset stores: one module or folder per system, opened by address through ``registry.open_store``."""
