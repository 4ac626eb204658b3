"""Stores, checkpoints and sinks at size."""
