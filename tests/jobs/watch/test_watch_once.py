"""``reconciler watch --once``: every job is checked, and the exit code is the worst of those that could not be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from reconciler.cli.main import main
from reconciler.config.file import Job
from reconciler.core.errors import Changed, NeedsPerson, ReconcilerError, Unreachable
from reconciler.jobs.watch.checker import JobCheck, JobChecker

JOB = """
[[jobs]]
home = "a"
name = "{name}"
topics = ["events"]
offsets = "sqlite:///{name}.db"
"""
AWAY, OTHER, STOP = Unreachable("It is away."), Changed("It is another topic."), NeedsPerson("It cannot be judged.")


@pytest.mark.parametrize(
    ("troubles", "code"), [([AWAY, STOP, OTHER], 4), ([STOP, AWAY, OTHER], 4), ([OTHER, AWAY, AWAY], 6)]
)
def test_a_trouble_that_may_pass_does_not_hide_one_that_will_not(
    tmp_path: Path,
    troubles: list[ReconcilerError],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(_: JobChecker, jobs: Sequence[Job]) -> dict[str, JobCheck]:
        return {job.name: JobCheck(troubles[int(job.name[-1])], 0.0, f"Job {job.name}") for job in jobs}

    monkeypatch.setattr(JobChecker, "check", fail)
    config = tmp_path / "reconciler.toml"
    jobs = "".join(JOB.format(name=f"job-{number}") for number in range(3))
    config.write_text('[clusters.a]\n[clusters.b]\nbootstrap_servers = "127.0.0.1:9"\n' + jobs)
    assert main(["watch", "-c", str(config), "--once"]) == code
    out, err = capfd.readouterr()
    assert err.splitlines() == [str(error) for error in troubles]
    assert out.count("\nreconciler_up{") == 3
