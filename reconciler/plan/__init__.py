"""A plan as a value, and the texts and files that hold it.

In: rows and findings, or untrusted text and bytes. Out: text and bytes, or values that were checked field by field; a
signature, and who may give one. Only ``signing`` and ``ed25519`` read files; nothing here reads a clock.
"""
