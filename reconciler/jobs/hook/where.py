"""Where a start is, by the job's location: on the cluster where the job lives, or on the one to which it is moving.

A job that was never moved starts at its own offsets, as it has stored them: nothing is contacted for that. Everywhere
else its offsets are checked against the cluster where it starts.

A consumer group has members while its job runs: another start would be a second consumer. A member that has crashed is
counted until its session times out, so the hook waits for that before it says that the job runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from reconciler.config.file import Cluster, Config, Job
from reconciler.config.settings import cluster_table
from reconciler.core.anchors import real_topic_id
from reconciler.core.errors import Changed, ConfigError, NeedsPerson, NotCreated, Unreachable
from reconciler.core.question import StartPlace
from reconciler.core.text import some
from reconciler.failover.checking.numbers import job_topics
from reconciler.failover.outside import StoreOpener
from reconciler.failover.unlisted import no_rows
from reconciler.failover.whereabouts import located
from reconciler.places.registry import traits
from reconciler.ports import HasMembers, OffsetStore, Row, TopicPartition, by_key
from reconciler.retry import insist
from reconciler.state.jobs import JobState
from reconciler.state.locations import Location, Phase
from reconciler.state.plans import Numbers


class Side(StrEnum):
    """The cluster that a start reads, of the two of its configuration."""

    SOURCE = "source"
    DESTINATION = "destination"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job starts now, and why. ``config`` and ``job`` are for the direction of the start.

    ``location`` is None at the job's first start.
    """

    config: Config
    job: Job
    location: Location | None
    side: Side
    why: str

    @property
    def cluster(self) -> str:
        return self.config.here if self.side is Side.SOURCE else self.config.there

    @property
    def is_moving(self) -> bool:
        return self.location is not None and self.location.phase is not Phase.LIVES


def place_of(config: Config, job: Job, location: Location | None, plans: Mapping[int, Numbers] | None = None) -> Place:
    """Where the job starts. Pure. ``plans``: those by which it was moved."""
    if location is None:
        at_home = config.on(job.home)
        return Place(at_home, at_home.chosen(job.name)[0], None, Side.SOURCE, "it is its first start, at home")
    if location.phase is Phase.LIVES and location.plan is None:
        why = f"it lives on {location.cluster}, and was never moved"
        at_home = config.on(location.cluster)
        return Place(at_home, at_home.chosen(job.name)[0], location, Side.SOURCE, why)
    to = location.to or location.cluster
    there = located(config, [job], {job.name: location}, to, {job.name: plans or {}})
    why = f"it lives on {to}" if location.to is None else f"{location.by} moves it to {to}"
    return Place(there, there.chosen(job.name)[0], location, Side.DESTINATION, why)


@dataclass(frozen=True, slots=True)
class Held:
    """A job's rows. ``absent``: half a sentence on what was looked for, where the store holds none."""

    rows: Mapping[TopicPartition, Row]
    absent: str = ""


def held_by(config: Config, job: Job, open_store: StoreOpener) -> Held:
    """The job's rows under all its names. Raises as stores do; a store that does not exist yet holds none."""
    try:
        with closing(open_store(job.store)) as store:
            rows = by_key(store.read(job.group, job_topics(config, job)))
            return Held(rows, "" if rows else no_rows(store, job.group, *job.topics))
    except NotCreated as error:
        return Held({}, absent=error.message.rstrip("."))


def refuse_known(state: JobState, job: Job, held: Held) -> None:
    """Raise NeedsPerson at the first start of a job whose place holds numbers: nothing records whose they are."""
    if not held.rows:
        return
    names = some([str(key) for key in sorted(held.rows)], 3)
    home = state.command("move", "--to", job.home)
    hint = f"If it has always run at home, say so once: {home}"
    if elsewhere := sorted({key.topic for key in held.rows} - set(job.topics)):
        hint = (
            f"The rows of {some(elsewhere, 3)} show that it was moved before: mount or restore its state store. "
            f"Only if it lives at home now: {home}"
        )
    raise NeedsPerson(f'Where job "{job.name}" lives is not recorded, and its place holds offsets: {names}.', hint=hint)


def offsets_as_stored(place: Place, held: Held, *, may_be_new: bool) -> dict[TopicPartition, int]:
    """The offsets that the job has stored where it lives. Sentinels are left out.

    Raises ConfigError without that cluster's address, NeedsPerson where there is no row of the topics and the job is
    not called new, and for a row that cannot be read.
    """
    job, config = place.job, place.config
    if config.source is None:
        raise ConfigError(
            f'Job "{job.name}" lives on {config.here}, and {cluster_table(config.here)} bootstrap_servers is missing.',
            hint="Add it. If that cluster is lost, move the job with move --to.",
        )
    rows = {key: row for key, row in held.rows.items() if key.topic in job.topics}
    if bad := next((row.malformed for row in rows.values() if row.malformed is not None), None):
        raise NeedsPerson(bad.message, hint=f"{bad.hint} Then start the job again.")
    if not may_be_new:
        refuse_without_rows(config, job, held)
    return {key: row.stored.offset for key, row in rows.items() if not row.stored.is_sentinel}


def numberings(rows: Iterable[Row]) -> list[str]:
    """The clusters in whose numbering the rows are, as their anchors say."""
    return sorted({found for row in rows if (found := row.stored.cluster_id) is not None})


def topic_ids(rows: Iterable[Row]) -> dict[str, tuple[str, ...]]:
    """The ids of the topics in whose numbering the rows' offsets are, by topic, as their anchors say."""
    found: dict[str, set[str]] = {}
    for row in rows:
        anchor = None if row.stored.is_sentinel else row.stored.anchor
        if anchor is not None and (id_ := real_topic_id(anchor.topic_id)) is not None:
            found.setdefault(row.key.topic, set()).add(id_)
    return {topic: tuple(sorted(found[topic])) for topic in sorted(found)}


def refuse_without_rows(config: Config, job: Job, held: Held) -> None:
    """Raise NeedsPerson for a job without a row of its topics; for one topic without, if it would start at the latest.

    A topic that starts at the earliest skips nothing: it may have had no record until now.
    """
    there = {key.topic for key in held.rows}
    lacking = [topic for topic in job.topics if topic not in there]
    if not lacking or (len(lacking) < len(job.topics) and config.new_of(job).place is StartPlace.EARLIEST):
        return
    of = "" if len(lacking) == len(job.topics) else f" of {', '.join(lacking)}"
    absent = held.absent or f"the store has rows of {', '.join(sorted(there))} alone"
    raise NeedsPerson(
        f'Job "{job.name}" has no stored offset{of}: {absent}.',
        hint="Correct the group or the store. If the job is new, start it once with --accept new, or write "
        'new = "earliest" in its [[jobs]] table until it has stored its first offsets.',
    )


LONGEST_SESSION_S = 50.0
"""Kafka's default session timeout is 45 seconds (``session.timeout.ms``, ``group.consumer.session.timeout.ms``)."""
MEMBERS_POLL_S = 2.0

StoreOn = Callable[[Cluster, str], OffsetStore]
"""Opens the store at an address, on a cluster; the caller closes it."""

log = logging.getLogger("reconciler.jobs.hook")


def refuse_running(
    config: Config,
    job: Job,
    side: Side,
    store_on: StoreOn,
    *,
    monotonic: Callable[[], float],
    pause: Callable[[float], None],
) -> None:
    """Wait until the job's group has no members on the side where the job starts. Raise Changed if some stay.

    Raises Unreachable if the destination does not answer within ``search.deadline``. The source is asked once:
    the job itself needs it.
    """
    cluster = config.source if side is Side.SOURCE else config.destination
    if cluster is None or not traits(job.store).holds_commits:
        return
    until = monotonic() + (config.search.deadline_s if side is Side.DESTINATION else 0.0)
    try:
        with closing(store_on(cluster, job.store)) as store:
            if isinstance(store, HasMembers):
                ask = partial(insist, partial(store.members, job.group), left_s=lambda: until - monotonic())
                _wait_until_left(job, side, ask, monotonic, pause)
    except Unreachable as error:
        if side is Side.DESTINATION:
            raise
        log.warning('whether group "%s" has live members at the source is unknown: %s', job.group, error.message)


def refuse_running_behind(
    place: Place, store_on: StoreOn, *, monotonic: Callable[[], float], pause: Callable[[float], None]
) -> None:
    """The same for the cluster that the job leaves: consumers that were not stopped would continue there.

    That cluster may be lost: it is asked once, and is not needed.
    """
    config, here = place.config, place.location
    if here is None or here.phase is Phase.LIVES or here.cluster != config.here:
        return
    job = replace(place.job, group=place.job.group_on(config.here))
    refuse_running(config, job, Side.SOURCE, store_on, monotonic=monotonic, pause=pause)


def _wait_until_left(
    job: Job,
    side: Side,
    ask: Callable[[], Sequence[str]],
    monotonic: Callable[[], float],
    pause: Callable[[float], None],
) -> None:
    until = monotonic() + LONGEST_SESSION_S
    said: Sequence[str] = ()
    while members := ask():
        shown = some(sorted(members), 3)
        if monotonic() >= until:
            raise Changed(
                f'Group "{job.group}" has live members at the {side.value} ({shown}): job "{job.name}" runs, and this '
                "start would be a second consumer.",
                hint="Stop it first; if it has crashed, start it again once its session has timed out. If the group is "
                "to have several consumers, start the others without the hook.",
            )
        if members != said:
            log.info(
                'group "%s" has live members at the %s (%s): waiting at most %.0f s, since one that has crashed is '
                "counted until its session times out",
                job.group,
                side.value,
                shown,
                until - monotonic(),
            )
        said = members
        pause(MEMBERS_POLL_S)
