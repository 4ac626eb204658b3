"""Reading many partitions without librdkafka, whose processor time grows with a topic's partitions.

Requests come in as ``kafka.reader`` takes them; a chunk goes out for each one whose answer is certain. All others, and
every failure, are left to that reader: it is the reference, and this room may only be faster. It runs in the process
that reads records alone (``kafka.worker``).
"""

from __future__ import annotations
