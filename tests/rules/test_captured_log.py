"""What tests say about the log holds in whatever worker they run."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


class Reformatting(logging.Logger):
    """As ``pyspark.logger.PySparkLogger``, which gives each of its handlers a format of its own."""

    def addHandler(self, handler: logging.Handler) -> None:
        handler.setFormatter(logging.Formatter("%(levelname)s and no more"))
        super().addHandler(handler)


@pytest.fixture
def reformatting() -> Iterator[None]:
    """A logger that does not propagate: pytest 9.2 adds its handlers to it before it calls a test."""
    logger = Reformatting(name := "tests.reformatting")
    logger.propagate = False
    logging.Logger.manager.loggerDict[name] = logger
    yield
    del logging.Logger.manager.loggerDict[name]


def test_no_logger_of_another_library_changes_the_format_of_what_is_captured(
    reformatting: None, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("reconciler").error("a sentence")
    assert "a sentence" in caplog.text
