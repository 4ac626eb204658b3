r"""From a plan to the options that start a Spark Kafka source exactly where the plan says.

Plain Python: needs no pyspark. A plan is the file that ``reconciler plan`` or ``reconciler hook`` wrote, given as a
path or as the decoded JSON object; its checksum is verified before it is used.

    from reconciler.spark import handoff

    start = handoff.from_environment()                      # under `reconciler hook … -- spark-submit job.py`
    events = spark.readStream.format("kafka").options(**start.read_stream_options()).load()

A query may add topics that are not in the plan, such as the destination's own, or subscribe by a pattern:

    start = handoff.from_environment().also("events")                    # a.events by plan, events from its beginning
    start = handoff.from_environment().matching(r"(a\.)?events")         # the same, as subscribePattern

Only a *new* query uses ``startingOffsets``. One that continues from a checkpoint ignores them: correct the checkpoint
itself (``reconciler checkpoint clone``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler.core.errors import ConfigError, NeedsPerson
from reconciler.core.verdicts import STOPS, Position, Verdict
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan, PlanSource, parse_plan

PLAN_VARIABLE = "RECONCILER_PLAN"
OFFSETS_VARIABLE = "RECONCILER_STARTING_OFFSETS"
CHECKPOINT_VARIABLE = "RECONCILER_CHECKPOINT"
"""Set for a job that goes on from a checkpoint."""

Offsets = dict[str, dict[str, int]]
"""Topic to partition (as text, as Spark's JSON has it) to the next offset to read."""

DECIDED_BY_OFFSETS = frozenset(
    {"subscribe", "subscribepattern", "assign", "failondataloss"}
    | {"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp", "startingoffsetsbytimestampstrategy"}
    | {"endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"}
)
"""Options (lower case: Spark ignores case) that would override or contradict the plan's offsets."""
_LATEST = -1
_POLICIES = {"earliest": -2, "latest": _LATEST}
"""Where a partition without a planned offset starts, in Spark's own numbers."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """One job's verified starting point: where the records are, and the next offset of every partition."""

    job: str
    bootstrap_servers: str
    offsets: Mapping[str, Mapping[str, int]]
    pattern: str | None = None

    def also(self, *topics: str, new: str = "earliest", kafka_client: Mapping[str, str] | None = None) -> Handoff:
        """This, with topics that are not in the plan: all their partitions start as ``new`` says.

        ``new`` is ``earliest`` or ``latest``. The partitions are looked up in the cluster; ``kafka_client`` holds more
        librdkafka properties for it. For a job that reads ``events`` of the destination beside ``a.events``.

        Raises ConfigError for a topic that does not exist or is already in the plan; Unreachable or Refused.
        """
        from reconciler.spark.handoff.cluster import partitions_of

        if double := sorted(set(topics) & set(self.offsets)):
            raise ConfigError(
                f"The plan of job {self.job} has {', '.join(double)} already.",
                hint="Leave it out of also(): its start is in the plan.",
            )
        return self._with(partitions_of(self._client(kafka_client), topics), new)

    def matching(
        self, pattern: str, *, new: str = "earliest", kafka_client: Mapping[str, str] | None = None
    ) -> Handoff:
        """This as a ``subscribePattern``, which must match every topic of the plan as a whole.

        Spark needs an offset for every partition that matches when the query starts. They are looked up in the cluster,
        and those that are not in the plan start as ``new`` says: ``earliest`` or ``latest``. (Spark reads topics that
        appear later from their beginning.)

        Raises ConfigError for a pattern that leaves out a planned topic, NeedsPerson if a planned topic has new
        partitions; Unreachable or Refused.
        """
        from reconciler.spark.handoff.cluster import compiled, partitions_of, require_planned, topics_matching

        wanted, client = compiled(pattern), self._client(kafka_client)
        if left_out := [topic for topic in self.offsets if not wanted.fullmatch(topic)]:
            raise ConfigError(
                f'The pattern "{pattern}" does not match {", ".join(left_out)} of the plan of job {self.job}: the '
                "query would not read on there.",
                hint=r'Let it match the names at the destination too, for example r"(a\.)?events".',
            )
        there = partitions_of(client, {*topics_matching(client, pattern), *self.offsets})
        require_planned(self.offsets, there)
        more = {topic: partitions for topic, partitions in there.items() if topic not in self.offsets}
        return replace(self._with(more, new), pattern=pattern)

    def joined(self, other: Handoff) -> Handoff:
        """The starting points of two jobs or plans combined, for a query that reads the topics of both.

        Raises ConfigError if both have the same topic, or they are for different clusters.
        """
        if self.bootstrap_servers != other.bootstrap_servers:
            raise ConfigError(
                f"Jobs {self.job} and {other.job} start on two clusters ({self.bootstrap_servers} and "
                f"{other.bootstrap_servers}).",
                hint="Read each with its own source.",
            )
        if double := sorted(set(self.offsets) & set(other.offsets)):
            raise ConfigError(
                f"Jobs {self.job} and {other.job} both have a start for {', '.join(double)}.",
                hint="Name only one of them.",
            )
        return replace(self, job=f"{self.job}, {other.job}", offsets={**self.offsets, **other.offsets})

    def _client(self, more: Mapping[str, str] | None) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap_servers, **(more or {})}

    def _with(self, topics: Mapping[str, Iterable[int]], new: str) -> Handoff:
        if new not in _POLICIES:
            raise ConfigError(f'new = "{new}" is not known.', hint='Use "earliest" or "latest".')
        start = _POLICIES[new]
        added = {topic: {str(number): start for number in numbers} for topic, numbers in topics.items()}
        return replace(self, offsets={**self.offsets, **added})

    def starting_offsets_json(self) -> str:
        """The ``startingOffsets`` text: compact, topics by name and partitions by number."""
        return _compact(self.offsets)

    def read_stream_options(self, *, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """As the function of this name."""
        return _options(self, extra)

    def read_options(
        self,
        *,
        ending_offsets: str | Mapping[str, Mapping[str, int]] = "latest",
        extra: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """As the function of this name."""
        if any(offset == _LATEST for of in self.offsets.values() for offset in of.values()):
            raise ConfigError(
                "A batch read cannot begin at the latest record: it would have nothing to read.",
                hint='Add topics with new="earliest", or leave them out.',
            )
        options = _options(self, extra)
        options["endingOffsets"] = _ending_offsets(self, ending_offsets)
        return options


Jobs = str | Iterable[str] | None
"""A job of the plan; or several, whose topics one query reads; or None for the plan's only job."""


def load(plan: PlanSource, job: Jobs = None) -> Handoff:
    """The starting point of one job of a plan, or of several as one; ``job`` may be left out when there is only one.

    Raises ``Changed`` if this is not a plan or was altered, ``NeedsPerson`` if a partition has no offset to start at or
    it is not clear which job is meant, ``ConfigError`` if the file cannot be read or Spark could not use its
    partitions. A plan's expiry is ignored: it limits how long the plan may be *applied*, and old offsets only mean more
    replay.
    """
    parsed = plan if isinstance(plan, Plan) else parse_plan(_text(plan))
    names = [job] if job is None or isinstance(job, str) else list(job)
    if not names:
        raise ConfigError("No job is named.", hint="Name one, or leave job out where the plan has only one.")
    chosen = [parsed.job(name) for name in names]
    first, *others = [Handoff(each.name, parsed.bootstrap_servers, _offsets(each)) for each in chosen]
    for other in others:
        first = first.joined(other)
    return first


def starting_offsets(plan: PlanSource, job: Jobs = None) -> Offsets:
    """Every partition of the plan's destination topics and its next offset: ``{"a.events": {"0": 42, "1": 7}}``.

    Raises as ``load`` does.
    """
    return {topic: dict(partitions) for topic, partitions in load(plan, job).offsets.items()}


def starting_offsets_json(plan: PlanSource, job: Jobs = None) -> str:
    """The same as Spark's ``startingOffsets`` text: ``{"a.events":{"0":42,"1":7}}``. Raises as ``load`` does."""
    return load(plan, job).starting_offsets_json()


def read_stream_options(
    plan: PlanSource, job: Jobs = None, *, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """All options of ``spark.readStream.format("kafka")`` for a new query that starts at the plan's offsets.

    ``extra`` adds options (security, ``includeHeaders``, ``maxOffsetsPerTrigger``) and may replace
    ``kafka.bootstrap.servers``; one that would override the plan's offsets is a ``ConfigError``. Else raises as
    ``load`` does.

        spark.readStream.format("kafka").options(**read_stream_options("plan.json", "clicks")).load()
    """
    return load(plan, job).read_stream_options(extra=extra)


def read_options(
    plan: PlanSource,
    job: Jobs = None,
    *,
    ending_offsets: str | Mapping[str, Mapping[str, int]] = "latest",
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The same for a batch read, ``spark.read.format("kafka")``.

    ``ending_offsets`` is exclusive: ``"latest"``, or for every partition the offset to stop before (-1: latest).

        spark.read.format("kafka").options(**read_options("plan.json", ending_offsets={"a.events": {"0": 90}})).load()
    """
    return load(plan, job).read_options(ending_offsets=ending_offsets, extra=extra)


def from_environment(job: Jobs = None, *, environ: Mapping[str, str] | None = None) -> Handoff:
    """The starting point that ``reconciler hook`` prepared: its plan, checked against its starting-offsets file.

    Raises ``ConfigError`` if the hook's variables are absent or their files cannot be read or disagree; else as
    ``load`` does.
    """
    env = os.environ if environ is None else environ
    absent = [name for name in (PLAN_VARIABLE, OFFSETS_VARIABLE) if not env.get(name)]
    if absent:
        raise ConfigError(
            f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not set in this process's environment.",
            hint="Start the job by `reconciler hook -c FILE -- COMMAND`. Where the driver runs on another machine "
            "(cluster deploy mode), ship both files to it and set the variables there.",
        )
    plan = parse_plan(_text(env[PLAN_VARIABLE]))
    if env.get(CHECKPOINT_VARIABLE):  # it holds both positions of a repeated batch, and Spark goes by it
        plan = plan.starts
    found = load(plan, job)
    handed = _read_offsets_file(env[OFFSETS_VARIABLE])
    if any(handed.get(topic) != partitions for topic, partitions in found.offsets.items()):
        raise ConfigError(
            f"{env[OFFSETS_VARIABLE]} ({OFFSETS_VARIABLE}) does not hold the offsets of job {found.job} in "
            f"{env[PLAN_VARIABLE]} ({PLAN_VARIABLE}): they are from different runs.",
            hint="Start the job by `reconciler hook` again, which rewrites both.",
        )
    return found


def _text(plan: Mapping[str, object] | str | os.PathLike[str]) -> str:
    if isinstance(plan, Mapping):
        return json.dumps(plan)
    try:
        return Path(plan).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The plan {os.fspath(plan)} cannot be read: {error}.",
            hint="Give the path of a file that `reconciler plan` or `reconciler hook` wrote.",
        ) from error


def _offsets(job: JobPlan) -> Offsets:
    _require_startable(job)
    by_topic: dict[str, dict[int, int]] = {}
    for row in job.partitions:
        if row.verdict is Verdict.MISSING:
            continue  # a person accepted it: the destination has no such partition to start
        if row.resume_offset is None or row.resume_offset < 0:
            raise ConfigError(
                f"The plan's offset for {_name(row)} is {row.resume_offset}, which Spark does not accept as an offset.",
                hint="Plan again with --set TOPIC:PARTITION=OFFSET, an offset of 0 or more.",
            )
        partitions = by_topic.setdefault(row.topic, {})
        if row.partition in partitions:
            raise ConfigError(
                f"The plan names {_name(row)} twice in job {job.name}.",
                hint="Make sure that no two topics are mapped to the same name.",
            )
        partitions[row.partition] = row.resume_offset
    if not by_topic:
        raise ConfigError(
            f"The plan has no partition for job {job.name}.", hint="Check the job's topics and plan again."
        )
    for topic, partitions in by_topic.items():
        _require_all_partitions(topic, partitions)
    return {
        topic: {str(number): by_topic[topic][number] for number in sorted(by_topic[topic])}
        for topic in sorted(by_topic)
    }


def _require_startable(job: JobPlan) -> None:
    two_ended = list(dict.fromkeys(_name(row) for row in job.partitions if row.position != Position.NEXT))
    if two_ended:
        raise ConfigError(
            f"Job {job.name} stopped within a batch: the plan has a start and an end for {', '.join(two_ended)}, which "
            "only a checkpoint can hold.",
            hint="Continue it from a corrected copy of its checkpoint.",
        )
    undecided = [f"{_name(row)} ({row.verdict.value})" for row in job.partitions if not _may_start(row)]
    if undecided:
        raise NeedsPerson(
            f"By the plan job {job.name} may not start: {', '.join(undecided)}.",
            hint="`reconciler show PLAN` gives the reasons; then plan again with --set TOPIC:PARTITION=OFFSET or "
            "--accept VERDICT (or --accept skips).",
        )


def _may_start(row: PartitionPlan) -> bool:
    """True if the plan found an offset, or a person gave one or accepted that the partition is missing."""
    if (row.verdict in STOPS or row.no_rows) and not row.set_by_hand:
        return False
    if row.skips is not None and not row.skips_accepted:
        return False
    return row.resume_offset is not None or row.verdict is Verdict.MISSING


def _name(row: PartitionPlan) -> str:
    return f"{row.topic}:{row.partition}"


def _require_all_partitions(topic: str, partitions: Mapping[int, int]) -> None:
    """Spark needs exactly the assigned partitions: it reads one that is left out from the earliest record."""
    holes = sorted(set(range(max(partitions) + 1)) - set(partitions))
    if holes:
        raise ConfigError(
            f"The plan names {len(partitions)} partitions of {topic} up to {max(partitions)}, but not "
            f"{', '.join(map(str, holes))}: Spark needs every partition of a topic.",
            hint="Make the plan again for the whole topic.",
        )


def _options(start: Handoff, extra: Mapping[str, str] | None) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": start.bootstrap_servers,
        **_subscription(start),
        "startingOffsets": start.starting_offsets_json(),
        # An offset outside the log must fail: with "false" Spark would silently jump.
        "failOnDataLoss": "true",
    }
    for name, value in (extra or {}).items():
        if name.lower() in DECIDED_BY_OFFSETS:
            raise ConfigError(
                f"extra has the option {name}, which would override the plan.",
                hint="Leave it out: the plan decides topics and start, and ending_offsets the end of a batch read.",
            )
        options[_known_spelling(name, options)] = str(value)
    return options


def _subscription(start: Handoff) -> dict[str, str]:
    if start.pattern is not None:
        return {"subscribePattern": start.pattern}
    return {"subscribe": ",".join(sorted(start.offsets))}


def _known_spelling(name: str, options: Mapping[str, str]) -> str:
    """Spark's option names ignore case; a dict's do not, and of two spellings either might win."""
    return next((known for known in options if known.lower() == name.lower()), name)


def _ending_offsets(start: Handoff, ending: str | Mapping[str, Mapping[str, int]]) -> str:
    if isinstance(ending, str):
        if ending != "latest":
            raise ConfigError(
                f'ending_offsets is "{ending}": use "latest", or offsets by topic and partition.',
            )
        return ending
    ends = {topic: {str(number): offset for number, offset in of.items()} for topic, of in ending.items()}
    if {topic: set(of) for topic, of in ends.items()} != {topic: set(of) for topic, of in start.offsets.items()}:
        raise ConfigError(
            f"ending_offsets does not name exactly the partitions of {', '.join(start.offsets)} that the plan has.",
            hint="Give every partition an end; -1 stands for the latest record.",
        )
    for topic, of in ends.items():
        for number, end in of.items():
            if end != _LATEST and end < start.offsets[topic][number]:
                raise ConfigError(
                    f"ending_offsets stops {topic} partition {number} at {end}, before its start at "
                    f"{start.offsets[topic][number]}.",
                    hint="Give an end at or after the start, or -1 for the latest record.",
                )
    return _compact(ends)


def _read_offsets_file(path: str) -> dict[str, dict[str, int]]:
    try:
        decoded = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{OFFSETS_VARIABLE} names {path}, which cannot be read as JSON: {error}.") from error
    if not isinstance(decoded, dict):
        raise ConfigError(f"{OFFSETS_VARIABLE} names {path}, which is not a JSON object of topics.")
    return decoded


def _compact(offsets: Mapping[str, Mapping[str, int]]) -> str:
    ordered = {topic: {n: offsets[topic][n] for n in sorted(offsets[topic], key=int)} for topic in sorted(offsets)}
    return json.dumps(ordered, separators=(",", ":"))
