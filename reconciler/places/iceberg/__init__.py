"""Offsets that a job keeps in its Iceberg table, read without a JVM: the store behind ``iceberg:…?layout=…``.

``table`` opens a table in time, and words its library's errors; ``catalog`` opens the catalog that names it.
"""
