"""Offsets that a job keeps in its Delta table, read without a JVM: the store behind ``delta:PATH?layout=…``.

``table`` opens a table, and words its library's errors.
"""
