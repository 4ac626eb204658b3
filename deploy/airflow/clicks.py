"""Example for Airflow 3: a job that starts where it lives, and on another cluster only at checked offsets.

It also loads in Airflow 2 that has the provider "standard".

Choose one of two DAGs. ``clicks`` has one task: the hook replaces itself with spark-submit, so every retry begins with
a check. ``clicks_by_operator`` is for jobs that an operator starts, and passes on the hook's offsets.

A start that needs a decision (4), or whose configuration is wrong (2), fails at once and is not retried. Failures that
may resolve themselves (5, 6, 7, and the job's own failures) are retried.

`reconciler move` moves the job, at its next start. All workers must reach the state store ([state] in the
configuration): one in a database, not a file of one machine.

To change: the paths, the job's name, the schedule, the notifications of failures.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from datetime import timedelta
from functools import cached_property
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.hooks.subprocess import SubprocessHook

try:
    from airflow.sdk import DAG, BaseOperator, task
except ImportError:  # Airflow 2
    from airflow.decorators import task
    from airflow.models.baseoperator import BaseOperator
    from airflow.models.dag import DAG

try:
    from airflow.sdk.exceptions import AirflowException, AirflowFailException
except ImportError:  # before Airflow 3.2 they are elsewhere, and a later one warns of that place
    from airflow.exceptions import AirflowException, AirflowFailException

CONFIG = os.environ.get("RECONCILER_CONFIG", "/etc/clicks/reconciler.toml")
HOOK = ["reconciler", "hook", "--config", CONFIG, "--job", "clicks", "--wait", "300"]
APPLICATION = os.environ.get("CLICKS_APPLICATION", "/srv/clicks/clicks.py")
NOT_RETRIED = {2: "the configuration is wrong", 4: "a partition needs a decision"}
RETRIES = {"retries": 3, "retry_delay": timedelta(minutes=1)}


def judge(code: int) -> None:
    """Raise the exception with which Airflow retries the task, or fails it for good, by the hook's exit code."""
    if code in NOT_RETRIED:
        raise AirflowFailException(f"The job was not started: {NOT_RETRIED[code]} (exit code {code}).")
    if code != 0:
        raise AirflowException(f"Exit code {code}: Airflow retries the task.")


class HookedCommand(BaseOperator):
    """Runs the hook, which replaces itself with ``command``: one process, which stops with the task."""

    template_fields = ("command",)

    def __init__(self, *, command: list[str], **options: Any) -> None:
        super().__init__(**options)
        self.command = command

    @cached_property
    def process(self) -> SubprocessHook:
        return SubprocessHook()

    def execute(self, context: Any) -> None:
        judge(self.process.run_command([*HOOK, "--", *self.command]).exit_code)

    def on_kill(self) -> None:
        self.process.send_sigterm()


with DAG("clicks", schedule=None, max_active_runs=1):
    HookedCommand(task_id="clicks", command=["spark-submit", APPLICATION], **RETRIES)


with DAG("clicks_by_operator", schedule=None, max_active_runs=1, render_template_as_native_obj=True):

    @task(**RETRIES)
    def offsets() -> dict[str, str]:
        """Environment variables for the job. They name files: both tasks must run where these can be read."""
        hook = subprocess.run(HOOK, stdout=subprocess.PIPE, text=True)
        judge(hook.returncode)
        return dict(line.split("=", 1) for line in shlex.split(hook.stdout))

    # No retries: the job alone would start at outdated offsets. Clear both tasks instead.
    job = SparkSubmitOperator(task_id="job", application=APPLICATION, env_vars=offsets(), retries=0)
