"""Offset stores in PostgreSQL: the product's own tables, or a table that a job already keeps its offsets in."""
