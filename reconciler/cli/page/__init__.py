"""A plan as an HTML page: one file without network, whole without its script.

In: a plan. Out: text of a page. Everything that a file or a store said is escaped on the way.
"""
