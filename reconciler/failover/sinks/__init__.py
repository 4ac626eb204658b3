"""The last batch of a query that each of the job's sinks has taken, by the sink's own records.

In: the addresses of ``[[jobs]] sink``, and the query's checkpoint. Out: whether its next batch is new to
every sink, would be dropped, or would write records twice. Sinks are only read.
"""
