"""From stored offsets to a plan, and from a plan to written offsets and back.

In: a configuration, the destination's log, the jobs' stores. Out: a plan with a verdict for each partition, and rows
written by compare-and-set, by a plan in the state store that has what they replace.

Other rooms use ``outside``, ``check``, ``apart``, ``positions`` and ``totals``, and ``writing`` with ``apply``,
``moves`` and ``rollback``; to judge rows and plans as these do, ``gather``, ``selection`` and
``writing.plan_checks``. ``passes`` and ``repartition`` are this room's own.
"""
