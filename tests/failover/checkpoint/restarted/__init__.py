"""Tests of real queries that are restarted on a copy of their checkpoint."""
