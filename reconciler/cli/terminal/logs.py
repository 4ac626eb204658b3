"""Messages on stderr, as text or as one JSON object a line: without secrets and without terminal control characters.

Names come from elsewhere: groups, topics, rows and brokers' answers. One with a line break in it could forge a line of
the log, one with an escape sequence could rewrite the reader's screen. So control characters are printed as escapes.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from types import TracebackType

from reconciler.cli.terminal.text import visible
from reconciler.config.redaction import KNOWN

CLIENT_LOGGERS = ("reconciler.kafka.reader", "reconciler.stores", "reconciler.demo.traffic")
"""Loggers of the Kafka client's own lines, which repeat on every retry what the final error says once."""


def harmless(text: str, *, lines: bool = False) -> str:
    """``text`` with control characters as escapes, except tabs and, with ``lines``, line feeds."""
    return visible(text, kept="\n\t" if lines else "\t")


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return "\n".join([harmless(_message(record)), *_traceback(self, record)])


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
        text = json.dumps(line, ensure_ascii=False)  # escapes only the first set of control characters
        return text if text.isprintable() else "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1]


def _message(record: logging.LogRecord) -> str:
    return KNOWN.redacted(record.getMessage())


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    if not record.exc_info:
        return []
    return [harmless(KNOWN.redacted(formatter.formatException(record.exc_info)), lines=True)]


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
    sys.stderr.write(harmless(KNOWN.redacted(text), lines=True))
