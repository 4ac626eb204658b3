"""What vouches for a plan: a file alone neither starts a job nor names the cluster that gets its login."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.core.errors import Changed, ConfigError
from reconciler.core.question import StartAt
from reconciler.formats.plan import Plan
from reconciler.formats.start import JobStart, Side
from reconciler.hook import kept, trust
from reconciler.spark.handoff import from_environment, load, read_stream_options
from reconciler.spark.handoff.options import PLAN_VARIABLE, START_VARIABLE
from reconciler.spark.handoff.proof import CLUSTER_VARIABLE, DIGEST_VARIABLE, KEYS_VARIABLE, digest_of
from reconciler.trust import signing
from tests.spark.handoff.test_handoff import SMALL
from tests.trust.test_signing import Key, make

LASTS = replace(SMALL, expires_at="2999-01-01T00:00:00Z")
STOLEN = replace(LASTS, bootstrap_servers="thief:9092")
OWN = {"kafka.bootstrap.servers": "west:9092"}


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    return make(tmp_path_factory.mktemp("keys"), "ada")


OFFSETS = {"a.events": {"0": 10, "1": 20}}
START = JobStart(
    tool_version="0.1.0",
    created_at="now",
    job="clicks",
    group="clicks",
    side=Side.DESTINATION,
    bootstrap_servers="west:9092",
    cluster_id=None,
    topics=("a.events",),
    offsets=OFFSETS,
    new=StartAt(),
    may_be_new=True,
    include_headers=False,
)


@pytest.fixture
def hooked(tmp_path: Path) -> dict[str, str]:
    """The environment of a command that the hook has started."""
    files = kept.files(kept.folder(tmp_path / "plans"), "clicks", 0)
    files.plan.write_text(LASTS.to_text())
    files.start.write_text(START.to_text())
    names = {PLAN_VARIABLE: files.plan, START_VARIABLE: files.start}
    return {name: str(path) for name, path in names.items()} | {DIGEST_VARIABLE: digest_of(START.to_text())}


def signed(path: Path, plan: Plan, key: Key) -> Path:
    path.write_text(plan.to_text())
    trust.signed(path, plan, signing.private_key(key.private))
    return path


# ---------------------------------------------------------------- under the hook


def test_under_the_hook_the_start_is_the_file_that_the_hook_wrote(hooked):
    options = from_environment(environ=hooked).read_stream_options()
    assert options["kafka.bootstrap.servers"] == "west:9092"


@pytest.mark.parametrize("change", [{"bootstrap_servers": "thief:9092"}, {"offsets": {"a.events": {"0": 99, "1": 99}}}])
def test_a_start_that_was_changed_after_the_hook_is_refused_though_its_sum_fits(hooked, change):
    Path(hooked[START_VARIABLE]).write_text(replace(START, **change).to_text())
    with pytest.raises(Changed, match=f"is not the one that the hook wrote.*{DIGEST_VARIABLE}"):
        from_environment(environ=hooked)


def test_without_the_hooks_digest_the_environment_or_the_job_must_name_the_cluster(hooked):
    del hooked[DIGEST_VARIABLE]
    start = from_environment(environ=hooked)
    with pytest.raises(ConfigError, match="Only a file names the cluster at west:9092"):
        start.read_stream_options()
    assert start.read_stream_options(extra=OWN)["kafka.bootstrap.servers"] == "west:9092"
    vouched = from_environment(environ=hooked | {CLUSTER_VARIABLE: "east:9092 west:9092"})
    assert vouched.read_stream_options()["kafka.bootstrap.servers"] == "west:9092"
    with pytest.raises(ConfigError, match=f"would start at west:9092, and {CLUSTER_VARIABLE} names east:9092"):
        from_environment(environ=hooked | {CLUSTER_VARIABLE: "east:9092"})


def test_at_the_source_the_cluster_is_not_asked_before_something_vouches_for_it(hooked):
    Path(hooked[START_VARIABLE]).write_text(replace(START, side=Side.SOURCE).to_text())
    del hooked[DIGEST_VARIABLE]
    with pytest.raises(ConfigError, match="nothing vouches for the file"):
        from_environment(environ=hooked).whole(kafka_client={"sasl.password": "the job's"})


# ---------------------------------------------------------------- a plan by its path


def test_a_plans_file_alone_gets_no_login(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(STOLEN.to_text())
    login = {"kafka.sasl.jaas.config": "the job's"}
    for attempt in (
        lambda: read_stream_options(path, extra=login),
        lambda: read_stream_options(json.loads(path.read_text()), extra=login),
        lambda: load(path).also("events", kafka_client={"sasl.password": "the job's"}),
        lambda: load(path).matching(".*", kafka_client={"sasl.password": "the job's"}),
        lambda: load(SMALL).joined(replace(load(path), bootstrap_servers="west:9092", offsets={})).read_options(),
    ):
        with pytest.raises(ConfigError, match="nothing vouches for the file"):
            attempt()
    assert read_stream_options(path, extra=login | OWN)["kafka.bootstrap.servers"] == "west:9092"


# ---------------------------------------------------------------- trusted keys


def test_with_trusted_keys_a_plan_must_be_signed_by_one(tmp_path, key, monkeypatch):
    path = tmp_path / "plan.json"
    path.write_text(LASTS.to_text())
    monkeypatch.setenv(KEYS_VARIABLE, os.pathsep.join([str(key.public)]))
    with pytest.raises(Changed, match="is not signed"):
        load(path)
    assert read_stream_options(signed(path, LASTS, key))["kafka.bootstrap.servers"] == "west:9092"
    with pytest.raises(Changed, match=r"which is none of \[trust\] trusted_keys"):
        load(path, trusted_keys=[make(tmp_path, "ben").public])
    path.write_text(STOLEN.to_text())
    with pytest.raises(Changed, match="another plan"):
        load(path)
    with pytest.raises(Changed, match="given as an object has no signature"):
        load(LASTS.to_json())


def test_with_trusted_keys_an_expired_plan_is_refused_though_it_is_signed(tmp_path, key):
    path = signed(tmp_path / "plan.json", SMALL, key)
    with pytest.raises(Changed, match="The plan expired at 2026-01-01T01:00:00Z"):
        load(path, trusted_keys=[key.public])


def test_without_keys_an_expired_plan_is_warned_of_for_a_query_may_restart_with_it(tmp_path, caplog):
    path = tmp_path / "plan.json"
    path.write_text(SMALL.to_text())
    assert load(path).offsets
    assert "The plan was made at 2026-01-01T00:00:00Z and expired at 2026-01-01T01:00:00Z" in caplog.text
    caplog.clear()
    path.write_text(LASTS.to_text())
    assert load(path).offsets
    assert not caplog.text


def test_under_the_hook_trusted_keys_are_not_replaced_by_the_digest(hooked, key):
    keys = {KEYS_VARIABLE: str(key.public)}
    with pytest.raises(Changed, match="is not signed"):
        from_environment(environ=hooked | keys)
    signed(Path(hooked[PLAN_VARIABLE]), LASTS, key)
    assert from_environment(environ=hooked | keys).vouched
    del hooked[DIGEST_VARIABLE]
    Path(hooked[START_VARIABLE]).write_text(replace(START, bootstrap_servers="thief:9092").to_text())
    with pytest.raises(Changed, match="does not start where the signed plan"):
        from_environment(environ=hooked | keys)
    del hooked[PLAN_VARIABLE]
    with pytest.raises(ConfigError, match="Plans must be signed here"):
        from_environment(environ=hooked | keys)


# ---------------------------------------------------------------- the folder of plans


def test_the_folder_of_plans_is_made_for_its_owner_alone(tmp_path):
    folder = kept.folder(tmp_path / "state" / "plans")
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o702])
def test_a_folder_of_plans_that_others_may_write_to_is_refused(tmp_path, mode):
    folder = tmp_path / "plans"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(ConfigError, match=r"writable by other users.*chmod 700"):
        kept.folder(folder)
