"""How a command opens a cluster's log: its records are read by another process, if that is possible.

That process (``worker``) runs the same reader. Neither module knows of the other: only this one chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.kafka.apart import ApartReader
from reconciler.kafka.reader import KafkaLogReader


def open_log(
    client: Mapping[str, Any], *, memory: int, timeout_s: float = 10.0, who: str = "destination"
) -> KafkaLogReader:
    """A log whose records are read by a process of its own with a limit of ``memory`` bytes (``kafka.apart``).

    Settings that cannot be sent there (functions, as ``oauth_cb``) are used here, without that limit.
    """
    settings = {"client": dict(client), "timeout_s": timeout_s, "who": who}
    try:
        apart = ApartReader(settings, memory)
    except TypeError:
        apart = None
    return KafkaLogReader(client, timeout_s=timeout_s, who=who, records=apart)
