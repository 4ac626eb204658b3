"""Offsets that a job keeps in its Iceberg table, read without a JVM: the store behind ``iceberg:…?layout=…``.

``table`` opens a table within a time limit and turns its library's errors into sentences; ``store`` reads the offsets.
"""
