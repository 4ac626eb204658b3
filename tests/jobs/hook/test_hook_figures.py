"""The metrics of a hook run for Prometheus: a file or a push, however it ends; they never delay a start."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reconciler.config.settings import Job, MetricsSettings
from reconciler.core.anchors import RECORD_TIME_ONLY
from reconciler.core.errors import Changed, ConfigError, OutcomeUnknown, Unreachable
from reconciler.jobs.hook import figures as hook_figures
from reconciler.jobs.hook.figures import file_name, record_run

NAMES = (
    "exit_code",
    "timestamp_seconds",
    "duration_seconds",
    "corrected_partitions",
    "blocked_partitions",
    "replay_records",
)


CLICKS = Job("clicks", "clicks", ("events",), "memory:", RECORD_TIME_ONLY, home="a", owner="web")


def values(text: str, job: str = "clicks") -> dict[str, float]:
    found = {
        sample.name.removeprefix("reconciler_hook_"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels == {"job": job, "from": "a", "to": "a", "owner": "web"}
    }
    assert tuple(found) == NAMES
    return found


def read(folder: Path, job: str = "clicks") -> dict[str, float]:
    (file,) = folder.iterdir()
    assert file.name == file_name(job)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    return values(file.read_text(), job)


# ---------------------------------------------------------------- a file


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ZeroDivisionError(), 1),
        (ConfigError("x"), 2),
        (Changed("x"), 5),
        (Unreachable("x"), 6),
        (OutcomeUnknown("x"), 7),
    ],
)
def test_a_run_that_fails_leaves_its_exit_code(tmp_path: Path, error: Exception, code: int) -> None:
    with pytest.raises(type(error)), record_run(MetricsSettings(textfile=str(tmp_path)), CLICKS):
        raise error
    assert read(tmp_path)["exit_code"] == code


def test_an_interrupted_run_leaves_the_earlier_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), record_run(MetricsSettings(textfile=str(tmp_path)), CLICKS):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_the_next_run_replaces_the_file_and_no_other_jobs(tmp_path: Path) -> None:
    settings = MetricsSettings(textfile=str(tmp_path))
    for job, error in (("clicks", Unreachable("x")), ("orders", None), ("clicks", None)):
        try:
            with record_run(settings, replace(CLICKS, name=job)):
                if error is not None:
                    raise error
        except Unreachable:
            pass
    assert {file.name for file in tmp_path.iterdir()} == {file_name("clicks"), file_name("orders")}
    assert values((tmp_path / file_name("clicks")).read_text())["exit_code"] == 0


def test_a_file_is_never_seen_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = MetricsSettings(textfile=str(tmp_path))
    with record_run(settings, CLICKS):
        pass
    before = (tmp_path / file_name("clicks")).read_text()

    def killed(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "rename", killed)
    with record_run(settings, CLICKS):
        pass
    assert [file.read_text() for file in tmp_path.iterdir()] == [before]


def test_other_names_are_told_apart_and_lead_nowhere_else() -> None:
    names = [file_name(job) for job in ("a/b", "a b", "a_b", "../../etc/passwd", "ä", "")]
    assert len(set(names)) == len(names)
    assert all("/" not in name and name.endswith(".prom") for name in names)


def test_a_folder_that_is_not_there_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with record_run(MetricsSettings(textfile=str(tmp_path / "none")), CLICKS):
        pass
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().endswith(f"did not reach {tmp_path}/none: No such file or directory")


def test_without_metrics_the_library_is_not_even_loaded() -> None:
    code = (
        "import sys; from reconciler.jobs.hook.figures import record_run;"
        "from reconciler.config.settings import MetricsSettings\n"
        "with record_run(MetricsSettings(), None): pass\n"
        "sys.exit('prometheus_client' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------- a push gateway


class Gateway:
    """The requests to a push gateway: (method, path, authorization, text)."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, str | None, str]] = []
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                gateway.sent.append((self.command, self.path, self.headers["Authorization"], text))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server.server_port}"


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway()
    yield gateway
    gateway.server.shutdown()
    gateway.server.server_close()


def test_a_run_is_pushed_under_its_jobs_name(gateway: Gateway) -> None:
    with pytest.raises(Unreachable), record_run(MetricsSettings(pushgateway=f"http://{gateway.place}"), CLICKS):
        raise Unreachable("x")
    ((method, path, login, text),) = gateway.sent
    assert (method, path, login) == ("PUT", "/metrics/job/clicks", None)
    assert values(text)["exit_code"] == 6


def test_a_login_in_the_gateways_url_is_used_and_never_shown(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    with record_run(MetricsSettings(pushgateway=f"http://pusher:s%40cret@{gateway.place}/below"), CLICKS):
        pass
    ((_, path, login, _),) = gateway.sent
    assert (path, login) == ("/below/metrics/job/clicks", "Basic cHVzaGVyOnNAY3JldA==")
    gateway.server.server_close()
    with record_run(MetricsSettings(pushgateway=f"http://pusher:s%40cret@{gateway.place}"), CLICKS):
        pass
    (record,) = caplog.records
    assert f"did not reach http://{gateway.place}:" in record.getMessage()
    assert "cret" not in record.getMessage()


def test_a_push_that_never_ends_does_not_hold_the_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A name that does not resolve, an answer that comes letter by letter: no socket timeout ends those."""
    monkeypatch.setattr(hook_figures, "PUSH_S", 0.2)
    ended = threading.Event()
    monkeypatch.setattr("prometheus_client.push_to_gateway", lambda *_, **__: ended.wait(120))
    with record_run(MetricsSettings(pushgateway="http://gateway"), CLICKS) as run:
        run.blocked = 1
    assert not ended.is_set()
    assert [record.getMessage() for record in caplog.records] == [
        "the metrics of this run did not reach http://gateway: no answer in 0.2 s"
    ]
    ended.set()


@pytest.mark.parametrize("url", ["no-such-host.invalid:9091", "http://127.0.0.1:1", "ftp://x", "http://[", ""])
def test_a_gateway_that_is_nowhere_is_a_warning_and_the_file_is_written_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    with record_run(MetricsSettings(textfile=str(tmp_path), pushgateway=url), CLICKS):
        pass
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert read(tmp_path)["exit_code"] == 0
