"""The records before jobs' stored numbers, kept while the cluster where they live answers.

``recorder`` turns what is stored into entries of a stay's journal, for a query's driver as for ``reconciler track``;
``track`` looks at all jobs from outside of them, and appends to their journals.
"""
