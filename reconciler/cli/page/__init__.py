"""Plans and audits as HTML pages: one file without network, whole without its script.

In: a plan or an audit's result. Out: text of a page. Everything that a file or a store said is escaped on the way.
"""
