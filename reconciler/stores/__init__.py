"""Offset stores: one module a system, opened by address through ``registry.open_store``."""
