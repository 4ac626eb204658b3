"""One start of a job: correct its stored offsets if it is at the destination, and prepare the command's environment.

The hook makes a plan and applies it without an operator in between. Where ``[trust]`` requires signatures, it signs its
plans with ``signing_key``: the signature says that this machine may decide, not that a person has reviewed the plan.
Without such a key it starts only jobs whose offsets are right, and leaves the other plans to the operator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.config.addresses import scheme_of, without_secrets
from reconciler.config.file import Config, Job
from reconciler.config.identity import IdentitySettings, SpecifiedIdentity
from reconciler.core.errors import ConfigError, NeedsPerson, NotCreated, Unreachable
from reconciler.core.text import command, counted
from reconciler.core.verdicts import Position, Verdict
from reconciler.failover.check import Checked
from reconciler.failover.outside import Outside
from reconciler.failover.unlisted import find_unlisted, refuse_unlisted
from reconciler.failover.writing.moves import Copied, carry_out, finish, numbers_of, replaced_in_copy
from reconciler.fileio import write_whole
from reconciler.jobs.hook import checkpoint, kept
from reconciler.jobs.hook.kept import KeptFiles
from reconciler.jobs.hook.where import Held, Place, numberings, offsets_as_stored, topic_ids
from reconciler.plan.costs import outcome
from reconciler.plan.document import JobPlan, Plan
from reconciler.plan.start import Offsets, offsets_of, spark_text, why_stopped
from reconciler.state import start as starts
from reconciler.state.jobs import JobState
from reconciler.state.locations import Location, Phase, Stamp, first

if TYPE_CHECKING:
    from reconciler.failover.writing.apply import JobChanges
    from reconciler.plan.document import Plan
    from reconciler.plan.ed25519 import PrivateKey
    from reconciler.plan.signing import TrustSettings

SINKS_OF_THE_JOB = frozenset({"files", "delta", "iceberg"})

log = logging.getLogger("reconciler.jobs.hook")


@dataclass(frozen=True, slots=True)
class Start:
    """A start whose settings are usable."""

    place: Place
    state: JobState
    folder: Path
    key: PrivateKey | None
    original: checkpoint.Original | None
    stamp: Stamp

    @property
    def config(self) -> Config:
        return self.place.config

    @property
    def job(self) -> Job:
        return self.place.job

    @classmethod
    def of(
        cls,
        place: Place,
        job: Job,
        state: JobState,
        *,
        plans: Path | None,
        stamp: Stamp,
    ) -> Start:
        """``job`` is the configuration's.

        Raises ConfigError for a key or a folder of plans that cannot be used, and NeedsPerson for an old state store.
        """
        key, folder = _signing_key(place.config.trust), kept.folder(plans)
        _refuse_older_store(place, state, folder)
        return cls(place, state, folder, key, checkpoint.original_of(job, place.job), stamp)

    def correct(self, checked: Checked, outside: Outside, show: Callable[[Plan], None]) -> dict[str, str]:
        """Keep the plan, correct what is stored, and return the variables that the command finds.

        ``show`` shows a plan that stops the job or that is about to be applied. Raises NeedsPerson for a job that must
        not start.
        """
        files = kept.files(self.folder, self.job.name, outside.now_ms())
        plan = checked.shown(self.config.policy.start)
        write_whole(files.plan, plan.texts())
        self._sign(plan, files.plan)
        stopped = any(why_stopped(row, self.config.policy.start) for row in checked.deciding)
        by_sink = plan.job().stopped_by
        if stopped or by_sink or checked.to_write:
            show(plan)
        if stopped:
            raise NeedsPerson(
                f'Job "{self.job.name}" must not start: a partition needs a decision.', hint=f"Plan: {files.plan}"
            )
        if sinks := plan.job().sinks:
            from reconciler.failover.sinks.judging import refuse

            refuse(self.job.name, sinks)
        offsets = offsets_of(plan.starts.job(), plan.policy)
        location, path = self.place.location, self.original.path if self.original else None
        if checked.to_write or self.place.is_moving:
            location, path = self._move(checked, plan, files, outside)
        else:
            log.info("%s: %s", nothing_to_correct(plan.job()), outcome(plan))
            if checked.to_reanchor and not self._waits_for_person:
                location = self._reanchor(plan, files, outside)
        assert location is not None, "only a first start has none, and that is not checked"
        start = self._start(location, offsets, {key.topic for key in offsets})
        names = self._handed_over(files, replace(start, cluster_id=plan.cluster_id), path)
        return names | {starts.PLAN_VARIABLE: str(files.plan.absolute())}

    def _move(
        self, checked: Checked, plan: Plan, files: KeptFiles, outside: Outside
    ) -> tuple[Location | None, str | None]:
        """Write the numbers between the locations that say so. Returns the last one, and the checkpoint's path."""
        if checked.to_write:
            self._require_signature(plan, files.plan)
        if self.original is not None:
            there = self._copy(checked, plan, outside)
            if checked.to_write:
                write_whole(files.applied, "")
            return there, there.checkpoint or self.original.path
        return self._apply(plan, files, outside), None

    def _copy(self, checked: Checked, plan: Plan, outside: Outside) -> Location:
        """Let the query continue in a copy of its checkpoint, or in place if there is nothing to correct."""
        original, location = self.original, self.place.location
        assert original is not None, "only a query's checkpoint is copied"

        def copied() -> str:
            return original.copied(self.config, self.job, checked.plan, outside) if checked.to_write else original.path

        replaced = replaced_in_copy(plan, self.config, self.job, outside)
        numbers = numbers_of(plan, self.job, self.config, 1 if location is None else location.stay, replaced)
        return carry_out(self.state, self.config, self.job, numbers, Copied(copied), self.stamp, seen=location)

    @property
    def is_begun(self) -> bool:
        """True if a run that was killed has begun to write the job's numbers, and this one finishes that.

        A checkpoint's copy is made again; a query that goes back needs none.
        """
        location = self.place.location
        if location is None or location.phase is not Phase.WRITING or location.plan is None:
            return False
        return self.original is None or self.state.plan(location.plan).is_back

    def finish(self, outside: Outside) -> None:
        """Write the rest of the numbers, by the plan of the run that was killed."""
        location = self.place.location
        assert location is not None, "is_begun"
        now = finish(self.state, location, self.job, outside, self.stamp)
        log.info('the move of job "%s" to %s was begun before, and is written now', self.job.name, now.cluster)

    def as_stored(self, held: Held, outside: Outside, *, may_be_new: bool) -> dict[str, str]:
        """The variables of a start at the job's own offsets. Writes nothing to the store, and contacts no cluster.

        Raises as ``offsets_as_stored`` and ``refuse_unlisted`` do.
        """
        may_be_new = may_be_new or self.job.new is not None or self.place.location is None
        offsets = offsets_as_stored(self.place, held, may_be_new=may_be_new)
        if held.rows or may_be_new:
            with suppress(NotCreated), closing(outside.open_store(self.job.store)) as store:
                refuse_unlisted(self.job, store.address, find_unlisted(self.config, self.job, store))
        if self.original is not None and self.job.sinks:
            from reconciler.failover.sinks.judging import refuse_start

            refuse_start(self.job.name, self.job.sinks, self.original.path, placed=False)
        files = kept.files(self.folder, self.job.name, outside.now_ms())
        rows = [row for key, row in held.rows.items() if key.topic in self.job.topics]
        clusters = numberings(rows)
        start = replace(
            self._start(self.place.location or first(self.job.home, self.stamp), offsets, set(self.job.topics)),
            new=self.config.new_of(self.job),
            cluster_id=clusters[0] if clusters else None,
            topic_ids=topic_ids(rows),
        )
        return self._handed_over(files, start, self.original.path if self.original else None)

    def _start(self, location: Location, offsets: Offsets, topics: Collection[str]) -> starts.Start:
        """The start of the stay that the location names."""
        cluster = self.config.clusters[location.cluster]
        assert cluster is not None, "a cluster without an address was refused"
        streams = self.config.topics.naming.by_name(self.job.streams, location.cluster)
        identity = self.job.identity
        return starts.Start(
            job=self.job.name,
            cluster=location.cluster,
            bootstrap_servers=cluster.bootstrap_servers,
            stay=location.stay,
            store=_address(self.config, self.state),
            store_id=self.state.store.id,
            topics={topic: stream for topic, stream in streams.items() if topic in topics},
            offsets=offsets,
            identity=identity.settings if isinstance(identity, SpecifiedIdentity) else IdentitySettings(),
            config=None if self.config.file is None else str(self.config.file.absolute()),
            sinks=self._sinks,
        )

    @property
    def _sinks(self) -> tuple[str, ...]:
        """The sinks that the job compares with its own checkpoint. An address with a login is left out."""
        if self.original is not None:
            return ()  # they were compared here
        return tuple(each for each in self.job.sinks if scheme_of(each) in SINKS_OF_THE_JOB)

    def _handed_over(self, files: KeptFiles, start: starts.Start, path: str | None) -> dict[str, str]:
        """Write the start's files; the variables that name them. ``path``: the checkpoint to start on."""
        if path is not None:
            from reconciler.places.folder import absolute  # the starts of other jobs need no file systems

            start = replace(start, checkpoint=absolute(path))
        text = starts.dump(start)
        write_whole(files.start, text)
        write_whole(files.starting_offsets, spark_text(start.offsets) + "\n")
        names = {
            starts.START_VARIABLE: str(files.start.absolute()),  # the job may run in another folder
            starts.OFFSETS_VARIABLE: str(files.starting_offsets.absolute()),
            starts.DIGEST_VARIABLE: starts.digest_of(text.encode()),
        }
        return names if start.checkpoint is None else names | {starts.CHECKPOINT_VARIABLE: start.checkpoint}

    def _require_signature(self, plan: Plan, path: Path) -> None:
        """Raise NeedsPerson where the operator must sign the plan, and Changed if the signature does not fit."""
        if self._waits_for_person:
            sign = command("reconciler", "sign", path, "--key", "FILE")
            write = command("reconciler", "apply", path, "-c", self.config.file)
            raise NeedsPerson(
                "The offsets need correcting, and an operator must sign the plan first: do not start.",
                hint=f"Review and sign it: {sign}; then {write}, and start again.",
            )
        if self.key is not None:
            from reconciler.plan import signing  # most starts have nothing to sign

            content = plan.to_text().encode()  # the file may have changed since
            signing.check(path, content, plan.sha256, self.config.trust)

    @property
    def _waits_for_person(self) -> bool:
        """True if the operator must sign the plan before anything is written."""
        return self.config.trust.require_signature and self.key is None

    def _sign(self, plan: Plan, path: Path) -> None:
        """Sign the plan, if there is a key: a job whose keys are named takes no other plan."""
        if self.key is not None:
            from reconciler.plan import signing

            signing.sign(path, plan.to_text().encode(), plan.sha256, self.key)

    def _reanchor(self, plan: Plan, files: KeptFiles, outside: Outside) -> Location | None:
        """Give rows that are right the destination's anchors; the location afterwards, since that begins a stay.

        Without them the job starts as well, unless they are half written.
        """
        try:
            self._require_signature(plan, files.plan)
            return self._apply(plan, files, outside)
        except Unreachable as error:
            now = self.state.location()
            if now is None or now.phase is not Phase.LIVES:
                raise
            log.warning("the right offsets of job %s keep the source's anchors: %s", self.job.name, error.message)
            return now

    def _apply(self, plan: Plan, files: KeptFiles, outside: Outside) -> Location | None:
        """Write the numbers; the location afterwards."""
        from reconciler.failover.writing.apply import prepare, refuse, write  # most starts have nothing to write

        (change,) = prepare(plan, self.config, outside)
        refuse(change)
        if not change.intended and not self.place.is_moving:
            log.info("every offset is right: another process has corrected them meanwhile")
            return self.state.location()
        location = write(change, plan, self.config, self.state, outside, self.stamp, seen=self.place.location)
        write_whole(files.applied, "")
        self._say_written(change, plan)
        return location

    def _say_written(self, change: JobChanges, plan: Plan) -> None:
        offsets = counted(len(change.intended), "offset")
        undo = self.state.command("rollback")
        if not change.intended:
            log.info("every offset is right; %s", outcome(plan))
        elif change.is_by_job:
            words = "%s recorded: the job begins there, and stores its own with its next transaction; %s"
            log.info(words, offsets, outcome(plan))
        elif all(item.keeps_offset for item in change.intended):
            log.info("%s left as stored, with the destination's anchors now. To undo: %s", offsets, undo)
        else:
            log.info("%s corrected; %s. To undo: %s", offsets, outcome(plan), undo)


def _signing_key(trust: TrustSettings) -> PrivateKey | None:
    """The key with which the hook signs its plans; None if there is none.

    It is read before every start, so that a key that cannot be used is found on an ordinary day. Raises ConfigError for
    such a key.
    """
    if trust.signing_key is None:
        return None
    from reconciler.plan import signing

    return signing.own_key(trust)


def _refuse_older_store(place: Place, state: JobState, folder: Path) -> None:
    """Raise NeedsPerson if the job was started here in a later stay than the state store knows.

    An old copy of the store, or a new one where it was not mounted, would start the job where it lived before. A start
    by a store at another address is another estate's.
    """
    name, stay = place.job.name, 1 if place.location is None else place.location.stay
    knows = "does not know it" if place.location is None else f"knows it only up to stay {stay}"
    file = kept.newest_start(folder, name)
    try:
        last = None if file is None else starts.load(file.read_text(encoding="utf-8"), str(file))
    except (ConfigError, OSError, UnicodeDecodeError):
        return  # torn, or removed just now: it shows nothing
    if last is None or last.store != _address(place.config, state) or last.stay <= stay:
        return
    raise NeedsPerson(
        f'Job "{name}" was last started here in stay {last.stay}, on {last.cluster}, and {state.store.shown} '
        f"{knows}: it is another state store, or an old copy of it.",
        hint="Do not start the job. Mount or restore the newest state store. Only if that is lost for good: record "
        f"where the job lives ({state.command('move', '--to', 'CLUSTER')}), then remove "
        f"{kept.starts_of(folder.absolute(), name)}",
    )


def _address(config: Config, state: JobState) -> str:
    """The state store's address for a job that runs in another folder, without its login."""
    return _absolute(without_secrets(config.state or state.store.shown))


def _absolute(store: str) -> str:
    scheme, _, path = store.partition(":")
    if scheme == "files":
        from reconciler.places.folder import absolute

        return f"files:{absolute(path)}"
    return f"sqlite:///{Path(path.removeprefix('///')).absolute()}" if scheme == "sqlite" else store


def nothing_to_correct(job: JobPlan) -> str:
    """Why nothing is written. A partition without a stored offset is new, and its offset is not called right."""
    rows = [row for row in job.partitions if row.position != Position.END]
    new = sum(row.finding is Verdict.NEW for row in rows)
    if not new:
        return "every offset is right"
    those, start = counted(new, "partition"), "starts as new" if new == 1 else "start as new"
    if new == len(rows):
        return f"no offset is stored, and {those} {start}"
    return f"every stored offset is right, and {those} without one {start}"
