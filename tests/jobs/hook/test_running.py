"""What the hook asks of a group before it starts a consumer in it: who its members are."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from reconciler.config.file import Cluster, Config, Job, load_config
from reconciler.core.errors import Changed, Unreachable
from reconciler.jobs.hook.where import LONGEST_SESSION_S, Side, place_of, refuse_running, refuse_running_behind
from reconciler.state.locations import Location, Phase
from tests.in_memory import Memory


@dataclass
class Groups:
    """A cluster's groups, and the seconds until their members are gone."""

    members_leave_at: float = 0.0
    error: Unreachable | None = None
    fails_for_s: float = 20.0
    now: float = 0.0
    asked: list[str] = field(default_factory=list)
    groups: set[str] = field(default_factory=set)

    def store_on(self, cluster: Cluster, address: str) -> Groups:
        self.asked.append(f"{address} on {cluster.bootstrap_servers}")
        return self

    def members(self, group: str) -> tuple[str, ...]:
        self.groups.add(group)
        if self.error is not None:
            self.now += self.fails_for_s
            raise self.error
        return ("old-job at 10.0.0.7",) if self.now < self.members_leave_at else ()

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def close(self) -> None:
        pass


@pytest.fixture
def config(memory: Memory) -> Config:
    path = memory.folder / "groups.toml"
    path.write_text(
        '[clusters.a]\nbootstrap_servers = "a:9092"\n[clusters.b]\nbootstrap_servers = "b:9092"\n'
        '[[jobs]]\nhome = "a"\nname = "clicks"\ntopics = ["events"]\noffsets = "kafka-group:"\n'
        '[[jobs]]\nhome = "a"\nname = "rows"\ngroup = "clicks"\ntopics = ["events"]\noffsets = "sqlite:///offsets.db"\n'
    )
    return load_config(path, {})


def wait(config: Config, groups: Groups, side: Side = Side.SOURCE, job: str = "clicks") -> None:
    chosen: Job = config.chosen(job)[0]
    refuse_running(
        config,
        chosen,
        side,
        groups.store_on,  # type: ignore[arg-type]
        monotonic=lambda: groups.now,
        pause=groups.pause,
    )


@pytest.mark.parametrize(("side", "cluster"), [(Side.SOURCE, "a:9092"), (Side.DESTINATION, "b:9092")])
def test_a_group_whose_members_stay_longer_than_a_session_is_not_joined(
    config: Config, side: Side, cluster: str
) -> None:
    groups = Groups(members_leave_at=1e9)
    with pytest.raises(Changed, match=rf"live members at the {side.value} \(old-job at 10.0.0.7\)") as refused:
        wait(config, groups, side)
    assert groups.asked == [f"kafka-group: on {cluster}"]
    assert groups.now == pytest.approx(LONGEST_SESSION_S, abs=2)
    assert "Stop it first" in str(refused.value.hint)


@pytest.mark.parametrize(("cluster", "group"), [("a", "clicks"), ("b", "a.clicks")])
def test_members_are_those_of_the_groups_name_where_the_job_starts(
    config: Config, memory: Memory, cluster: str, group: str
) -> None:
    path, groups = memory.folder / "groups.toml", Groups()
    path.write_text(
        path.read_text().replace('"kafka-group:"', '"kafka-group:"\ngroup = {a = "clicks", b = "a.clicks"}')
    )
    config = load_config(path, {})
    place = place_of(
        config, config.jobs[0], Location(Phase.MOVING, "a", 1, "ana", 0, to="b") if cluster == "b" else None
    )
    wait(place.config, groups, place.side)
    assert (place.cluster, groups.groups) == (cluster, {group})


def test_a_member_that_has_crashed_is_waited_for_and_said_once(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    groups = Groups(members_leave_at=45)
    wait(config, groups)
    assert groups.now == pytest.approx(45, abs=2)
    (said,) = caplog.messages
    assert "(old-job at 10.0.0.7): waiting at most 50 s" in said


def test_a_group_without_members_is_started_at_once(config: Config) -> None:
    groups = Groups()
    wait(config, groups)
    assert groups.now == 0


def test_a_job_whose_offsets_are_elsewhere_has_no_group_to_ask(config: Config) -> None:
    groups = Groups(members_leave_at=1e9)
    wait(config, groups, job="rows")
    assert groups.asked == []


def test_a_source_that_does_not_answer_is_told_of_and_the_destination_is_needed(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    groups = Groups(error=Unreachable("No answer."))
    wait(config, groups)
    assert 'whether group "clicks" has live members at the source is unknown: No answer.' in caplog.text
    assert groups.now == 20
    with pytest.raises(Unreachable):
        wait(config, groups, Side.DESTINATION)
    assert groups.now == 60, "asked until search.deadline, 30 s, had passed"


@pytest.mark.parametrize(("phase", "asks"), [(Phase.MOVING, True), (Phase.LIVES, False)])
def test_a_job_that_moves_must_not_run_on_in_the_group_that_it_leaves(
    config: Config, memory: Memory, caplog: pytest.LogCaptureFixture, phase: Phase, asks: bool
) -> None:
    path = memory.folder / "groups.toml"
    path.write_text(
        path.read_text().replace('"kafka-group:"', '"kafka-group:"\ngroup = {a = "clicks", b = "a.clicks"}')
    )
    config = load_config(path, {})
    place = place_of(config, config.jobs[0], Location(phase, "a", 1, "ana", 0, to="b" if asks else None))

    def ask(groups: Groups) -> Groups:
        store_on = groups.store_on
        refuse_running_behind(place, store_on, monotonic=lambda: groups.now, pause=groups.pause)  # type: ignore[arg-type]
        return groups

    found = ask(Groups())
    assert (found.asked, found.groups) == ((["kafka-group: on a:9092"], {"clicks"}) if asks else ([], set()))
    if asks:
        with pytest.raises(Changed, match=r"live members at the source \(old-job at 10.0.0.7\)"):
            ask(Groups(members_leave_at=1e9))
        assert ask(Groups(error=Unreachable("No answer."))).now == 20, "a lost cluster is asked once"
        assert 'whether group "clicks" has live members at the source is unknown: No answer.' in caplog.text
