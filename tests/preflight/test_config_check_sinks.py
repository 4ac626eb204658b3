"""``config check`` tries the sinks that jobs name."""

from __future__ import annotations

from reconciler.core.errors import ExitCode
from reconciler.preflight.stores import Level, TrialResult, Trials, job_sinks
from tests.failover.sinks.world import Query, query

__all__ = ["query"]


def tried(query: Query, *sinks: str) -> list[TrialResult]:
    query.sinks, trials = sinks, Trials()
    job_sinks(query.config().jobs[0], trials)
    return trials.found


def test_a_sink_says_which_batch_it_took_last(query: Query) -> None:
    (found,) = tried(query, f"files:{query.output}")
    assert (found.level, found.message) == (Level.OK, f"sink files:{query.output}: the last batch that it took is 2")


def test_a_sink_without_a_batch_is_a_warning_and_one_that_cannot_be_read_a_failure(query: Query) -> None:
    (query.output / "_spark_metadata" / "2").write_text("v1\nnot JSON")
    nothing, broken = tried(query, f"files:{query.folder}/misspelt", f"files:{query.output}")
    assert (nothing.level, broken.level, broken.code) == (Level.WARN, Level.FAIL, ExitCode.UNREACHABLE)
    assert "correct the job's sink" in nothing.next_step


def test_no_sink_hides_another(query: Query) -> None:
    query.extra = '[policy]\npython = ["math"]'
    first, second = tried(query, "python:math:floor", f"files:{query.output}")
    assert (first.level, second.level) == (Level.FAIL, Level.OK)
