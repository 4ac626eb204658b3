"""Messages on stderr, as text or as one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys

CLIENT_LOGGERS = ("reconciler.readers.kafka", "reconciler.stores", "reconciler.demo.traffic")
"""Where the Kafka client's own lines go; they repeat on every retry what the final error says once."""


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(log_format: str, *, debug: bool) -> None:
    """Send the product's messages to stderr; with ``debug`` also what the clients say."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if log_format == "json" else logging.Formatter("%(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if debug else logging.WARNING)
    logging.getLogger("reconciler").setLevel(logging.DEBUG if debug else logging.INFO)
    for name in CLIENT_LOGGERS:
        logging.getLogger(name).setLevel(logging.DEBUG if debug else logging.CRITICAL)
