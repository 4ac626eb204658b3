"""Offsets that a job keeps in its Iceberg table, read without a JVM: the store behind ``iceberg:…?layout=…``.

``table`` opens a table, and words its library's errors.
"""
