"""What a job's sinks have taken: the last batch that each has of a query, by the sink's own account.

In: the addresses of ``[[jobs]] sink``, and where the query's checkpoint stands. Out: whether its next batch is new to
every sink, would be dropped, or would put out records twice. Sinks are only read.
"""
