"""``reconciler watch --once``: every job is checked, and the exit code is the worst of those that could not be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from reconciler.cli.commands import watch
from reconciler.cli.main import main
from reconciler.config.file import Config, Job
from reconciler.core.errors import Changed, NeedsPerson, ReconcilerError, Unreachable
from reconciler.failover.check import Checked, check
from reconciler.failover.outside import Outside
from reconciler.jobs.watch.checker import JobCheck, JobChecker
from tests.in_memory import Memory, stored

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


def test_jobs_whose_failures_take_long_leave_no_other_out(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    now = 0.0

    def slow(config: Config, jobs: Sequence[Job], outside: Outside) -> Checked:
        nonlocal now
        if {"job-0", "job-1"}.intersection(job.name for job in jobs):
            now += 10
            raise AWAY
        return check(config, jobs, outside)

    memory.deliver(range(10))
    for number in range(4):
        memory.save({0: stored(6)}, group=f"job-{number}")
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: now, sleep=lambda _: None))
    monkeypatch.setattr(watch, "check", slow)
    monkeypatch.setattr("reconciler.kafka.reading_process.open_log", lambda *_, **__: memory.log)
    monkeypatch.setattr("reconciler.places.registry.open_store", lambda *_, **__: memory.store)
    jobs = "".join(JOB.format(name=f"job-{number}") for number in range(4))
    memory.config(jobs=jobs)
    one_batch = ["--every", "1"]
    assert main(["watch", "-c", str(memory.folder / "reconciler.toml"), "--once", *one_batch]) == AWAY.exit_code
    out, err = capfd.readouterr()
    assert err.splitlines() == [str(AWAY)] * 2
    up = [line for line in out.splitlines() if line.startswith("reconciler_up{")]
    assert up == [
        f'reconciler_up{{from="a",job="job-{number}",owner="",to="b"}} {number >= 2:.1f}' for number in range(4)
    ]
