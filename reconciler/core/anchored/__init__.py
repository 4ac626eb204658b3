"""Where a job continues whose stored offset has an anchor: at the record itself, or at what takes its place.

In come a question and the log's answers to probes; out goes a finding. ``search`` has the argument, ``candidates``
finds the anchor's record, ``replay`` counts what will be read again.
"""
