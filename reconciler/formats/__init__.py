"""The formats that other programs read: plans, anchors, snapshots, manifests, Spark's checkpoint files.

In: values, or untrusted text and bytes. Out: text and bytes, or values that were checked field by field. One strict
JSON reader (``json_fields``) serves all of them. No I/O, no clock.
"""
