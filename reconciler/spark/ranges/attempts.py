"""Whether Spark may run a task twice, by its settings."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reconciler.core.errors import ConfigError


def require_single_attempts(master: str, settings: Mapping[str, str]) -> None:
    """Raise ConfigError if Spark may run a task twice, and so repeat its effects."""
    local = re.fullmatch(r"local(\[[^,\]]+(?:,\s*(\d+))?\])?", master.strip())
    attempts = (local[2] or "1") if local else settings.get("spark.task.maxFailures", "4")
    if attempts != "1" or settings.get("spark.speculation", "false").lower() == "true":
        raise ConfigError(
            "At most once is impossible while Spark repeats tasks.",
            hint="Start Spark with spark.task.maxFailures=1 and spark.speculation=false.",
        )
