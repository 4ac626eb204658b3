"""From a plan to the options that start a Spark Kafka source exactly where the plan says.

Plain Python: needs no pyspark. A plan is the file that ``reconciler plan`` or ``reconciler hook`` wrote, given as a
path or as the decoded JSON object; its checksum is verified before anything in it is believed.

    from reconciler.spark import handoff

    start = handoff.from_environment()                      # under `reconciler hook … -- spark-submit job.py`
    events = spark.readStream.format("kafka").options(**start.read_stream_options()).load()

Only a *new* query honours ``startingOffsets``. One that continues from a checkpoint ignores them: correct the
checkpoint itself (``reconciler checkpoint clone``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.core.errors import ConfigError, NeedsPerson
from reconciler.core.plan import JobPlan, PartitionPlan, Plan, parse_plan
from reconciler.core.verdicts import STOPS, Verdict

PLAN_VARIABLE = "RECONCILER_PLAN"
OFFSETS_VARIABLE = "RECONCILER_STARTING_OFFSETS"

PlanSource = Plan | Mapping[str, object] | str | os.PathLike[str]
"""A plan, its decoded JSON, or the path of its file."""
Offsets = dict[str, dict[str, int]]
"""Topic to partition (as text, as Spark's JSON has it) to the next offset to read."""

_DECIDED_HERE = frozenset(
    {"subscribe", "subscribepattern", "assign", "failondataloss"}
    | {"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp", "startingoffsetsbytimestampstrategy"}
    | {"endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"}
)
"""Options (lower case: Spark ignores case) that would override or contradict the plan's offsets."""
_LATEST = -1


@dataclass(frozen=True, slots=True)
class Handoff:
    """One job's verified starting point: where the records are, and the next offset of every partition."""

    job: str
    bootstrap_servers: str
    offsets: Mapping[str, Mapping[str, int]]

    def starting_offsets_json(self) -> str:
        """The ``startingOffsets`` text: compact, topics by name and partitions by number."""
        return _compact(self.offsets)

    def read_stream_options(self, *, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """See the function of this name."""
        return _options(self, extra)

    def read_options(
        self,
        *,
        ending_offsets: str | Mapping[str, Mapping[str, int]] = "latest",
        extra: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """See the function of this name."""
        options = _options(self, extra)
        options["endingOffsets"] = _ending_offsets(self, ending_offsets)
        return options


def load(plan: PlanSource, job: str | None = None) -> Handoff:
    """The starting point of one job of a plan; ``job`` may be left out when the plan has only one.

    Raises ``Changed`` if this is no plan or was altered, ``NeedsPerson`` if it does not say where every partition may
    start or which job is meant, ``ConfigError`` if the file cannot be read or Spark could not use the partitions it
    names. A plan's expiry is not looked at: it bounds how long the plan may be *applied*, and offsets that grew old
    only mean more replay.
    """
    parsed = plan if isinstance(plan, Plan) else parse_plan(_text(plan))
    chosen = parsed.job(job)
    return Handoff(chosen.name, parsed.bootstrap_servers, _offsets(chosen))


def starting_offsets(plan: PlanSource, job: str | None = None) -> Offsets:
    """Every partition of the plan's destination topics and its next offset: ``{"a.events": {"0": 42, "1": 7}}``.

    Raises as ``load`` does.
    """
    return {topic: dict(partitions) for topic, partitions in load(plan, job).offsets.items()}


def starting_offsets_json(plan: PlanSource, job: str | None = None) -> str:
    """The same as Spark's ``startingOffsets`` text: ``{"a.events":{"0":42,"1":7}}``. Raises as ``load`` does."""
    return load(plan, job).starting_offsets_json()


def read_stream_options(
    plan: PlanSource, job: str | None = None, *, extra: Mapping[str, str] | None = None
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
    job: str | None = None,
    *,
    ending_offsets: str | Mapping[str, Mapping[str, int]] = "latest",
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The same for a batch read, ``spark.read.format("kafka")``.

    ``ending_offsets`` is exclusive: ``"latest"``, or for every partition the offset to stop before (-1: latest).

        spark.read.format("kafka").options(**read_options("plan.json", ending_offsets={"a.events": {"0": 90}})).load()
    """
    return load(plan, job).read_options(ending_offsets=ending_offsets, extra=extra)


def from_environment(job: str | None = None, *, environ: Mapping[str, str] | None = None) -> Handoff:
    """What ``reconciler hook`` left for this process: its plan, checked against its starting-offsets file.

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
    found = load(env[PLAN_VARIABLE], job)
    handed = _read_offsets_file(env[OFFSETS_VARIABLE])
    if any(handed.get(topic) != partitions for topic, partitions in found.offsets.items()):
        raise ConfigError(
            f"{env[OFFSETS_VARIABLE]} ({OFFSETS_VARIABLE}) does not hold the offsets of job {found.job} in "
            f"{env[PLAN_VARIABLE]} ({PLAN_VARIABLE}): they are of different runs.",
            hint="Start the job by `reconciler hook` again, so that both are written anew.",
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
                f"The plan's offset for {_name(row)} is {row.resume_offset}, which Spark would not take as an offset.",
                hint="Plan again with --set TOPIC:PARTITION=OFFSET, an offset of 0 or more.",
            )
        partitions = by_topic.setdefault(row.topic, {})
        if row.partition in partitions:
            raise ConfigError(
                f"The plan names {_name(row)} twice in job {job.name}.",
                hint="See that no two topics get the same name.",
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
    two_ended = [_name(row) for row in job.partitions if row.position != "next"]
    if two_ended:
        raise ConfigError(
            f"Job {job.name} stopped within a batch: the plan has a start and an end for {', '.join(two_ended)}, which "
            "only a checkpoint can hold.",
            hint="Continue it from a corrected copy of its checkpoint.",
        )
    undecided = [f"{_name(row)} ({row.verdict.value})" for row in job.partitions if not _may_start(row)]
    if undecided:
        raise NeedsPerson(
            f"The plan does not say that job {job.name} may start at {', '.join(undecided)}.",
            hint="See `reconciler show PLAN` for why; then plan again with --set TOPIC:PARTITION=OFFSET or "
            "--accept VERDICT.",
        )


def _may_start(row: PartitionPlan) -> bool:
    """True if the plan found an offset, or a person gave one or accepted that the partition is missing."""
    if row.verdict in STOPS and not row.set_by_hand:
        return False
    return row.resume_offset is not None or row.verdict is Verdict.MISSING


def _name(row: PartitionPlan) -> str:
    return f"{row.topic}:{row.partition}"


def _require_all_partitions(topic: str, partitions: Mapping[int, int]) -> None:
    """Spark wants exactly the assigned partitions: one left out is read from the earliest record."""
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
        "subscribe": ",".join(sorted(start.offsets)),
        "startingOffsets": start.starting_offsets_json(),
        # An offset outside the log must fail: with "false" Spark would silently jump.
        "failOnDataLoss": "true",
    }
    for name, value in (extra or {}).items():
        if name.lower() in _DECIDED_HERE:
            raise ConfigError(
                f"extra has the option {name}, which would override what the plan says.",
                hint="Leave it out: the plan decides topics and start, and ending_offsets the end of a batch read.",
            )
        options[_known_spelling(name, options)] = str(value)
    return options


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
