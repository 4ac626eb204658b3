"""The metrics of hook runs for Prometheus, through the command and on a real cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.world import World, free_port, run_process, source_record

pytestmark = pytest.mark.system


def figures(text: str) -> dict[str, float]:
    return {
        sample.name.removeprefix("reconciler_hook_"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels == {"job": "clicks"}
    }


def test_every_end_of_a_hook_leaves_its_figures_and_a_start_finds_them_written(world: World) -> None:
    world.deliver(20, 6)
    world.processed(9, 3)
    folder = world.folder / "textfiles"
    folder.mkdir()
    extra = f'[metrics]\ntextfile = "{folder}"\n'
    config, plans = world.config(extra=extra), world.folder / "plans"
    file = folder / "reconciler_hook_clicks.prom"

    def after(code: int, *command: object, used: Path = config) -> dict[str, float]:
        file.unlink(missing_ok=True)
        ended = world.run(
            "hook", "--to", "destination", "-c", used, "--plans", plans, *(["--", *command] if command else [])
        )
        assert ended.code == code, ended.output
        found = figures(file.read_text())
        assert found["exit_code"] == code
        return found

    show = f"print(open({str(file)!r}).read())"
    started = run_process(
        "hook", "--to", "destination", "-c", config, "--plans", plans, "--", sys.executable, "-c", show
    )
    assert started.code == 0, started.output
    found = figures(started.out)
    assert (found["exit_code"], found["corrected_partitions"], found["blocked_partitions"]) == (0, 2, 0)
    assert file.stat().st_mode & 0o777 == 0o644

    assert after(0)["corrected_partitions"] == 0
    assert after(2, "no-such-command")["blocked_partitions"] == 0
    away = world.config(bootstrap=f"127.0.0.1:{free_port()}", extra=f'{extra}[search]\ndeadline = "1s"')
    assert after(6, used=away)["corrected_partitions"] == 0

    world.cluster.delete_records(world.mirrored, 0, before=world.offset_of(15))
    found = after(4)
    assert (found["blocked_partitions"], found["corrected_partitions"]) == (1, 0)


def test_metrics_that_cannot_be_delivered_do_not_stop_a_start(world: World) -> None:
    world.deliver(6)
    world.save({0: source_record(3).stored})
    extra = f'[metrics]\ntextfile = "{world.folder}/none"\npushgateway = "http://127.0.0.1:{free_port()}"'
    ended = world.run("hook", "--to", "destination", "-c", world.config(extra=extra), "--plans", world.folder / "plans")
    assert ended.code == 0
    assert ended.err.count("the metrics of this run did not reach") == 2
