"""The hook before a job that lives at home and was never moved. No cluster answers in these tests."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.cli.main import main
from reconciler.core.anchors import Anchor, StoredOffset, TopicPartition
from reconciler.core.question import StartAt
from reconciler.places.registry import open_store
from reconciler.ports import Change, Row
from reconciler.state.start import Start, load
from tests.starting import with_state
from tests.world import CommandResult, free_port, run_process

OWN = StoredOffset(42, Anchor(41, 1, b"id", None, "cluster-a", None), 1)


class Job:
    """A job in a folder, its store, and two clusters of which none can be reached."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "reconciler.toml"
        self.store = f"sqlite:///{folder}/offsets.db"
        self.configure()

    def configure(self, source: str = 'bootstrap_servers = "kafka-a:9092"', job: str = "") -> None:
        self.config.write_text(
            f'[clusters.a]\n{source}\n[clusters.b]\nbootstrap_servers = "127.0.0.1:{free_port()}"\n'
            f'[search]\ndeadline = "1ms"\n[[jobs]]\nhome = "a"\nname = "clicks"\ntopics = ["events"]\n'
            f'offsets = "{self.store}"\n{job}[jobs.identity]\nid = "header:message-id"\n'
        )
        with_state(self.config)

    def save(self, topic: str = "events", stored: StoredOffset = OWN) -> None:
        change = Change(TopicPartition(topic, 0), None, stored)
        open_store(self.store).write("clicks", [change], reason="test", now_ms=1)

    @property
    def rows(self) -> list[Row]:
        return open_store(self.store).read("clicks")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture
def run(job: Job, capsys: pytest.CaptureFixture[str]):
    def run(command: str, *more: object) -> CommandResult:
        capsys.readouterr()
        first, _, rest = command.partition(" ")
        plans = ("--plans", str(job.folder / "plans")) if first == "hook" else ()
        return CommandResult(
            main([first, *rest.split(), "-c", str(job.config), *plans, *map(str, more)]), *capsys.readouterr()
        )

    return run


def variables(ended: CommandResult) -> dict[str, str]:
    assert ended.code == 0, ended.output
    return dict(line.split("=", 1) for line in ended.out.splitlines())


def handed_over(found: dict[str, str]) -> Start:
    path = found["RECONCILER_START"]
    return load(Path(path).read_text(), path)


def test_the_source_lives_and_nothing_is_moved(job: Job, run) -> None:
    job.save()
    before = job.rows
    ended = run("hook")
    found = variables(ended)
    assert set(found) == {"RECONCILER_START", "RECONCILER_START_SHA256", "RECONCILER_STARTING_OFFSETS"}
    assert json.loads(Path(found["RECONCILER_STARTING_OFFSETS"]).read_text()) == {"events": {"0": 42}}
    said = 'job "clicks" starts on a, at its own offsets: it lives on a, and was never moved'
    assert said in ended.err
    assert job.rows == before

    start = handed_over(found)
    assert (start.job, start.cluster, start.bootstrap_servers, start.stay) == ("clicks", "a", "kafka-a:9092", 1)
    assert start.offsets == {TopicPartition("events", 0): 42}
    assert (start.identity.id, start.cluster_id, start.new) == ("header:message-id", "cluster-a", StartAt())
    assert {topic: str(stream) for topic, stream in start.topics.items()} == {"events": "events@a"}


def test_a_topic_that_the_job_does_not_list_stops_its_start_at_the_source_too(job: Job, run) -> None:
    job.save()
    job.save("dusk")
    ended = run("hook")
    assert ended.code == 4
    assert 'has 1 offset of "dusk" for group "clicks", and job "clicks" does not list that topic' in ended.err
    job.configure(job='ignore_topics = ["dusk"]\n')
    assert 'Job "clicks" ignores 1 offset of "dusk" (ignore_topics).' in run("hook").err


def test_a_job_that_runs_in_another_folder_finds_the_files_of_a_relative_one(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job.save()
    monkeypatch.chdir(job.folder)
    code = main(["hook", "-c", str(job.config), "--plans", "plans"])
    found = variables(CommandResult(code, *capsys.readouterr()))
    monkeypatch.chdir("/")
    assert handed_over(found).offsets == {TopicPartition("events", 0): 42}


def test_the_start_names_the_topic_whose_numbers_the_offsets_are(job: Job, run) -> None:
    """Only the job asks the source, where the topic may have been deleted and created again since."""
    job.save(stored=StoredOffset(42, Anchor(41, 1, b"id", None, "cluster-a", "of the topic"), 1))
    start = handed_over(variables(run("hook")))
    assert start.topic_ids == {"events": ("of the topic",)}


def test_an_earlier_starts_plan_does_not_reach_the_command(job: Job) -> None:
    job.save()
    ended = run_process(
        "hook", "-c", job.config, "--plans", job.folder / "plans", "--", "env", RECONCILER_PLAN="/of/an/earlier/start"
    )
    assert ended.code == 0, ended.output
    assert "RECONCILER_START=" in ended.out
    assert "RECONCILER_PLAN=" not in ended.out


def test_a_start_at_the_source_leaves_its_figures(job: Job) -> None:
    job.save()
    job.config.write_text(f'[metrics]\ntextfile = "{job.folder}"\n{job.config.read_text()}')
    file = job.folder / "reconciler_hook_clicks.prom"
    ended = run_process("hook", "-c", job.config, "--plans", job.folder / "plans", "--", "cat", file)
    assert ended.code == 0, ended.output
    assert 'reconciler_hook_exit_code{from="a",job="clicks",owner="",to="a"} 0.0' in ended.out


def test_only_the_last_starts_are_kept(job: Job, run) -> None:
    job.save()
    plans = job.folder / "plans"
    plans.mkdir()
    for number in range(30):
        (plans / f"clicks-20200101T0000{number:02d}-000-1.start.json").write_text("{}")
    run("hook")
    assert len(list(plans.glob("*.start.json"))) == 20


def test_a_row_that_cannot_be_read_needs_a_person_and_is_named(job: Job, run) -> None:
    """At the source the job would start without that partition's offset; nothing is retried by itself."""
    job.save()
    with closing(sqlite3.connect(job.store.removeprefix("sqlite:///"))) as db, db:
        db.execute("UPDATE reconciler_offsets SET anchor_offset = 1.5")
    ended = run("hook")
    assert (ended.code, ended.out) == (4, "")
    assert "'events-0'" in ended.err
    assert "the anchor's offset is 1.5, not a whole number" in ended.err


# ---------------------------------------------------------------- the command, and the figures of a run


@pytest.fixture
def figures(job: Job) -> Path:
    """The folder of the hook's figures, of which ``job``'s configuration knows."""
    job.save()
    folder = job.folder / "figures"
    folder.mkdir()
    job.config.write_text(f'{job.config.read_text()}[metrics]\ntextfile = "{folder}"\n')
    return folder


def last_code(figures: Path) -> int:
    (file,) = figures.iterdir()
    return int(float(re.findall(r"^reconciler_hook_exit_code\S* (\S+)", file.read_text(), re.MULTILINE)[0]))


def test_a_command_that_the_system_does_not_run_is_no_start(job: Job, figures: Path) -> None:
    """It is found and may be run, so the figures said 0 before; the kernel knows no such format."""
    command, file = job.folder / "job.sh", job.folder / "hook.env"
    command.write_bytes(b"\x00no format")
    command.chmod(0o755)
    plans = job.folder / "plans"
    ended = run_process("hook", "-c", job.config, "--plans", plans, "--env-file", file, "--", command)
    assert (ended.code, "job.sh cannot be run: Exec format error." in ended.err) == (2, True)
    assert (last_code(figures), file.exists()) == (2, False)


@pytest.mark.parametrize("wrong", ["--wait=-1", "--env-file=reconciler.toml", "--env-file=reconciler.toml/hook.env"])
def test_a_wrong_option_is_in_the_figures(job: Job, figures: Path, run, monkeypatch, wrong: str) -> None:
    monkeypatch.chdir(job.folder)
    before = job.config.read_text()
    assert run("hook", wrong).code == 2
    assert (last_code(figures), job.config.read_text()) == (2, before)


def test_the_command_finds_signals_as_it_would_without_a_hook(job: Job) -> None:
    """Python ignores two of them: a producer in a pipe would never end."""
    job.save()
    show = ("grep", "SigIgn", "/proc/self/status")
    ended = run_process("hook", "-c", job.config, "--plans", job.folder / "plans", "--", *show)
    assert (ended.code, ended.out) == (0, subprocess.run(show, capture_output=True, text=True, check=True).stdout)
