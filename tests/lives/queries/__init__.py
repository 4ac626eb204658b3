"""Whole lives of a query in memory: two clusters, a mirror, a checkpoint with state, an operator with the commands."""
