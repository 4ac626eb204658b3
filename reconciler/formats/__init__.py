"""What is written for others, as pure text and bytes: plans, anchors, manifests, Spark's checkpoint files.

In: values, or bytes that anybody may have written. Out: bytes, or values that were checked field by field.
One strict JSON reader (``json_fields``) serves all of them. No I/O, no clock.
"""
