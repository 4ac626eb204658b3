"""From stored offsets to a plan, and from a plan to written offsets and back.

In: a configuration, the destination's log, the jobs' stores. Out: a plan with a verdict for each partition, and rows
written by compare-and-set, by a plan in the state store that has what they replace.

Other rooms use ``inputs``, ``outside``, ``check``, ``apart`` and ``mirrored``, and ``writing`` with
``apply``, ``moves`` and ``rollback``. ``checking`` has the steps of a check.
"""
