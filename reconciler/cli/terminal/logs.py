"""Messages on stderr, as text or as one JSON object a line: without secrets and without terminal control characters.

Names come from elsewhere: groups, topics, rows and brokers' answers. One with a line break in it could forge a line of
the log, one with an escape sequence could rewrite the reader's screen. So control characters are printed as escapes. A
traceback has lines of its own and quotes such names: it is indented.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from types import TracebackType

from reconciler.cli.terminal.output import json_line_by_line
from reconciler.config.secrets import KNOWN
from reconciler.core.text import visible

CLIENT_LOGGERS = ("reconciler.kafka.reader", "reconciler.places", "reconciler.demo.lab.in_use")
"""Loggers of the Kafka client's own lines, which repeat on every retry what the final error says once."""


_INDENT = "  "


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return "\n".join([visible(_message(record), kept="\t"), *_traceback(self, record)])


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        for text in _traceback(self, record):
            line["traceback"] = text
        return json_line_by_line(json.dumps(line, ensure_ascii=False), sys.stderr)


def _message(record: logging.LogRecord) -> str:
    return KNOWN.redacted(record.getMessage())


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    if not record.exc_info:
        return []
    return [_indented(formatter.formatException(record.exc_info))]


def _indented(trace: str) -> str:
    return "\n".join(_INDENT + visible(KNOWN.redacted(line), kept="\t") for line in trace.rstrip("\n").split("\n"))


def set_up_logging(log_format: str, *, debug: bool) -> None:
    """Send the product's messages to stderr; with ``debug`` the clients' messages too."""
    KNOWN.clear()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if log_format == "json" else _Text())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if debug else logging.WARNING)
    logging.getLogger("reconciler").setLevel(logging.DEBUG if debug else logging.INFO)
    for name in CLIENT_LOGGERS:
        logging.getLogger(name).setLevel(logging.DEBUG if debug else logging.CRITICAL)
    sys.excepthook = _print_exception
    threading.excepthook = lambda raised: _print_exception(raised.exc_type, raised.exc_value, raised.exc_traceback)


def _print_exception(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    """Print an uncaught exception with the same precautions as a line of the log."""
    text = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write(_indented(text) + "\n")
