"""What users see of the product, as files: ``formats`` for bytes that programs read, ``words`` for prose.

A change in ``formats`` breaks a reader: it needs a new format number. A change in ``words`` needs a look at the diff.
``pytest tests/golden --record-goldens -n 0`` writes the files again and removes those that no test asks for. Only
``internals`` names modules of the product.
"""
