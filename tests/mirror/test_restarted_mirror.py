"""A real mirror that was killed, and the source lost while it sent again: what command and metrics say of it.

By default the demo's last section proves that its own offsets skip and the job's do not, and
``tests/failover/unanchored/test_bare_offsets_on_clusters.py`` what command and metrics say of a real mirror.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler.cli.main import main
from tests.mirror.lost_mirror import GROUP, PARTITIONS, THERE, lost_while_sending_again

pytestmark = [pytest.mark.system, pytest.mark.thorough]

COUNT = 4_000


def test_what_mirrormakers_offsets_would_skip_is_counted_and_the_jobs_own_skip_nothing(
    tmp_path: Path, kafka_jars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with lost_while_sending_again(tmp_path, kafka_jars, COUNT) as lost:
        capsys.readouterr()
        code = main(["mirror", "-c", str(lost.config), "--format", "json"])
        found = json.loads(capsys.readouterr().out)
        main(["watch", "-c", str(lost.config), "--once"])
        families = text_string_to_metric_families(capsys.readouterr().out)
        figures = {sample.name: sample.value for family in families for sample in family.samples}
        main(["check", "-c", str(lost.config), "--format", "json"])
        (job,) = json.loads(capsys.readouterr().out)["jobs"]

    ours = {row["partition"]: row["resume_offset"] for row in job["partitions"]}
    lag = sum(row["replay"]["at_most"] for row in job["partitions"] if row["verdict"] == "bounded")
    truly = lost.skipped(lost.synced)
    assert truly > 0, "the mirror had sent everything again"
    assert lost.skipped(ours) == 0
    groups = [each for each in found["groups"] if each["group"] == GROUP]
    said = sum(each["skips_records"] for each in groups)
    assert truly - lag <= said <= truly
    assert figures["reconciler_mirror_offset_skips_records"] == said
    assert figures["reconciler_mirror_offset_replay_records"] == sum(each["replay_records"] for each in groups)
    assert figures["reconciler_mirror_heartbeat_age_seconds"] > 0
    assert figures["reconciler_mirror_delivered_age_seconds"] > 0
    assert {each["partition"]: each["synced_offset"] for each in groups} == lost.synced
    assert [each["topic"] for each in found["partitions"]] == [THERE] * PARTITIONS
    assert all(each["syncs"] and each["source_offset"] is not None for each in found["partitions"])
    assert all(each["sent_again_at_least"] for each in found["partitions"])
    assert found["unprepared"]["with_syncs"]["unresolved"] == 0
    assert (
        found["unprepared"]["with_syncs"]["replay_at_most"] <= found["unprepared"]["by_checkpoints"]["replay_at_most"]
    )
    assert found["heartbeat_at"] is not None
    assert code == 0
