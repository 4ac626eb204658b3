"""The recorder behind ``Job.track(query)``: a stay's journal, from a running query's checkpoint.

``recorder`` turns one reading of the checkpoint into journal entries; ``source`` reads the records before its numbers;
``watching`` is the thread in the driver that decides when.
"""
