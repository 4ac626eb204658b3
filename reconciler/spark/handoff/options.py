r"""From a plan to the options that start a Spark Kafka source exactly where the plan says.

Plain Python: needs no pyspark. A plan is the file that ``reconciler plan`` or ``reconciler hook`` wrote, given as a
path or as the decoded JSON object; its checksum is verified before it is used.

    from reconciler.spark import handoff

    start = handoff.from_environment()         # under `reconciler hook … -- spark-submit job.py`, on either side
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
from typing import Any

from reconciler.clock import clock_ms
from reconciler.core.errors import ConfigError
from reconciler.formats.plan import Plan, PlanSource
from reconciler.formats.start import JobStart, Side
from reconciler.spark.handoff import arguments, proof
from reconciler.spark.handoff.planned import EARLIEST, LATEST, Offsets, offsets_of

PLAN_VARIABLE = "RECONCILER_PLAN"
OFFSETS_VARIABLE = "RECONCILER_STARTING_OFFSETS"
START_VARIABLE = "RECONCILER_START"
CHECKPOINT_VARIABLE = "RECONCILER_CHECKPOINT"
"""Set for a job that goes on from a checkpoint."""

DECIDED_BY_OFFSETS = frozenset(
    {"subscribe", "subscribepattern", "assign", "failondataloss"}
    | {"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp", "startingoffsetsbytimestampstrategy"}
    | {"endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"}
)
"""Options (lower case: Spark ignores case) that would override or contradict the plan's offsets."""
_POLICIES = {"earliest": EARLIEST, "latest": LATEST}  # where a partition without a planned offset starts


@dataclass(frozen=True, slots=True)
class Handoff:
    """One job's starting point: where the records are, and the next offset of every partition.

    ``start`` is what the hook wrote, None for a plan's own hand-off. At the source, ``offsets`` are those that the job
    has stored until ``whole`` adds the other partitions. ``kept_in`` is the checkpoint that the hook names, if any.
    ``vouched``: more than the file itself confirms the cluster's name (``proof``). ``needs_headers``: a job that was
    joined reads its identity off headers. ``old``: why its offsets may be old (``age``).
    """

    job: str
    bootstrap_servers: str
    offsets: Mapping[str, Mapping[str, int]]
    pattern: str | None = None
    start: JobStart | None = None
    is_whole: bool = True
    kept_in: str | None = None
    vouched: bool = True
    needs_headers: bool = False
    old: str = ""

    @property
    def side(self) -> Side:
        """The cluster that the job reads now."""
        return Side.DESTINATION if self.start is None else self.start.side

    def whole(self, kafka_client: Mapping[str, str] | None = None) -> Handoff:
        """This with an offset for every partition that exists. At the source they are looked up there.

        ``kafka_client`` holds more librdkafka properties for it. Raises NeedsPerson if the source is another cluster
        than that of the stored offsets, ConfigError for a topic that does not exist, Unreachable or Refused.
        """
        if self.is_whole or self.start is None:
            return self
        from reconciler.spark.handoff.source import complete

        return replace(self, offsets=complete(self.start, self._client(kafka_client)), is_whole=True)

    def checkpoint(self, base: str | os.PathLike[str]) -> str:
        """The query's checkpointLocation for this stay on this cluster: ``base``, or ``base-2``, ``base-3``, ….

        Restarts get the same one. After a move, a correction by the hook, or its rollback, a new query begins in a new
        one: an old checkpoint would continue at offsets that no longer hold. For a job whose store is its checkpoint,
        it is the path that the hook names. Raises as the file system does, ConfigError without the hook, and for a base
        without a name of its own.
        """
        if self.kept_in is not None:
            return self.kept_in
        if self.start is None:
            raise ConfigError(
                "Only the hook knows which checkpoint location goes with this start.",
                hint="Start the job by `reconciler hook`, or choose a new location yourself.",
            )
        from reconciler.spark.handoff.locations import location

        return location(base, self.start, old=self.old)

    def transaction_id(self, base: str | os.PathLike[str] | None = None) -> str:
        """A name for the batches of this query, for ``txnAppId``: ``base`` as for ``checkpoint``.

        It belongs to the checkpoint: the same at every restart and in a copy, another one for a new checkpoint, whose
        batches begin at 0 again. Without ``base`` for a job whose checkpoint the hook names. Raises as ``checkpoint``.
        """
        if self.start is None:
            raise ConfigError("Only the hook knows which checkpoint goes with this start.", hint="Start the job by it.")
        if base is None and self.kept_in is None:
            raise ConfigError(
                "Which checkpoint? A transaction's name belongs to one.",
                hint="Give the base that checkpoint() gets: transaction_id(base).",
            )
        from reconciler.spark.handoff.locations import transaction_id

        return transaction_id(self.checkpoint(base or ""), self.start)

    def also(self, *topics: str, new: str = "earliest", kafka_client: Mapping[str, str] | None = None) -> Handoff:
        """This, with topics that are not in the plan: all their partitions start as ``new`` says.

        ``new`` is ``earliest`` or ``latest``. The partitions are looked up in the cluster; ``kafka_client`` holds more
        librdkafka properties for it. For a job that reads ``events`` of the destination beside ``a.events``.

        Raises ConfigError for a topic that does not exist or is already in the plan; Unreachable or Refused.
        """
        from reconciler.spark.handoff.cluster import partitions_of

        start = _start_of(new)
        if not self.is_whole:
            return self.whole(kafka_client).also(*topics, new=new, kafka_client=kafka_client)
        if double := sorted(set(topics) & set(self.offsets)):
            raise ConfigError(
                f"The plan of job {self.job} has {', '.join(double)} already.",
                hint="Leave it out of also(): its start is in the plan.",
            )
        return self._with(partitions_of(self._client(kafka_client), topics), start)

    def matching(
        self, pattern: str, *, new: str = "earliest", kafka_client: Mapping[str, str] | None = None
    ) -> Handoff:
        """This as a ``subscribePattern`` for whole names, which must match every topic of the plan.

        Spark needs an offset for every partition that matches when the query starts. They are looked up in the cluster,
        and those that are not in the plan start as ``new`` says: ``earliest`` or ``latest``. (Spark reads topics that
        appear later from their beginning.)

        Raises ConfigError for a pattern that leaves out a planned topic, NeedsPerson if a planned topic has new
        partitions; Unreachable or Refused.
        """
        from reconciler.spark.handoff.cluster import compiled, partitions_of, require_planned, topics_matching, whole

        wanted, start = compiled(pattern), _start_of(new)
        if not self.is_whole:
            return self.whole(kafka_client).matching(pattern, new=new, kafka_client=kafka_client)
        client = self._client(kafka_client)
        if left_out := [topic for topic in self.offsets if not wanted.fullmatch(topic)]:
            raise ConfigError(
                f'The pattern "{pattern}" does not match {", ".join(left_out)} of the plan of job {self.job}: the '
                "query would not read on there.",
                hint=r'Let it match the names at the destination too, for example r"(a\.)?events".',
            )
        there = partitions_of(client, {*topics_matching(client, whole(pattern)), *self.offsets})
        require_planned(self.offsets, there)
        more = {topic: partitions for topic, partitions in there.items() if topic not in self.offsets}
        # Spark searches for the expression within names: without the anchors it would read a.events-old, too.
        return replace(self._with(more, start), pattern=whole(pattern))

    def joined(self, other: Handoff, *, kafka_client: Mapping[str, str] | None = None) -> Handoff:
        """The starting points of two jobs or plans combined, for a query that reads the topics of both.

        At the source, the partitions of both are looked up as in ``whole``. Raises as that does, and ConfigError if
        both have the same topic, or they are for different clusters.
        """
        if self.bootstrap_servers != other.bootstrap_servers:
            raise ConfigError(
                f"Jobs {self.job} and {other.job} start on two clusters ({self.bootstrap_servers} and "
                f"{other.bootstrap_servers}).",
                hint="Read each with its own source.",
            )
        if not (self.is_whole and other.is_whole):
            return self.whole(kafka_client).joined(other.whole(kafka_client))
        if double := sorted(set(self.offsets) & set(other.offsets)):
            raise ConfigError(
                f"Jobs {self.job} and {other.job} both have a start for {', '.join(double)}.",
                hint="Name only one of them.",
            )
        return replace(
            self,
            job=f"{self.job}, {other.job}",
            offsets={**self.offsets, **other.offsets},
            start=_both(self.start, other.start),
            vouched=self.vouched and other.vouched,
            needs_headers=_needs_headers(self) or _needs_headers(other),
            old=self.old or other.old,
        )

    def _client(self, kafka_client: Mapping[str, str] | None) -> dict[str, Any]:
        more = arguments.options(kafka_client, "kafka_client")
        if not (self.vouched or "bootstrap.servers" in more):
            raise proof.cluster_not_vouched_for(self.bootstrap_servers, 'kafka_client={"bootstrap.servers": …}')
        return {"bootstrap.servers": self.bootstrap_servers, **more}

    def _with(self, topics: Mapping[str, Iterable[int]], start: int) -> Handoff:
        added = {topic: {str(number): start for number in numbers} for topic, numbers in topics.items()}
        return replace(self, offsets={**self.offsets, **added})

    def starting_offsets_json(self) -> str:
        """The ``startingOffsets`` text: compact, topics by name and partitions by number."""
        return compact(self.whole().offsets)

    def read_stream_options(
        self, *, extra: Mapping[str, str] | None = None, kafka_client: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """As the function of this name; with ``includeHeaders`` where the job's identity is read off headers.

        At the source, the partitions are looked up as in ``whole``.
        """
        return _options(self.whole(kafka_client), extra)

    def read_options(
        self,
        *,
        ending_offsets: str | Mapping[str, Mapping[str, int]] = "latest",
        extra: Mapping[str, str] | None = None,
        kafka_client: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """As the function of this name."""
        if not self.is_whole:
            return self.whole(kafka_client).read_options(ending_offsets=ending_offsets, extra=extra)
        if any(offset == LATEST for of in self.offsets.values() for offset in of.values()):
            raise ConfigError(
                "A batch read cannot begin at the latest record: it would have nothing to read.",
                hint='Add topics with new="earliest", or leave them out.',
            )
        options = _options(self, extra)
        options["endingOffsets"] = _ending_offsets(self, ending_offsets)
        return options


Jobs = str | Iterable[str] | None
"""A job of the plan; or several, whose topics one query reads; or None for the plan's only job."""


def load(plan: PlanSource, job: Jobs = None, *, trusted_keys: proof.Keys = None) -> Handoff:
    """The starting point of one job of a plan, or of several as one; ``job`` may be left out when there is only one.

    ``trusted_keys`` are paths of public keys, by default those of ``$RECONCILER_TRUSTED_KEYS``: with any, the plan must
    be signed by one of them, and must not have expired. Without, an expired plan is only warned of, in the log: a query
    that has a checkpoint does not use the plan's offsets.

    Raises ``Changed`` if this is not a plan or was altered, ``NeedsPerson`` if a partition has no offset to start at or
    it is not clear which job is meant, ``ConfigError`` if the file cannot be read or Spark could not use its
    partitions.
    """
    parsed, vouched = proof.read(plan, os.environ, trusted_keys=trusted_keys, now_ms=clock_ms())
    return of_plan(parsed, job, vouched=vouched)


def of_plan(parsed: Plan, job: Jobs, *, vouched: bool) -> Handoff:
    """The hand-off of a plan that was read; ``vouched`` as in ``Handoff``."""
    names = arguments.job_names(job)
    chosen = [parsed.job()] if names is None else [parsed.job(name) for name in names]
    servers = parsed.bootstrap_servers
    first, *others = [Handoff(each.name, servers, offsets_of(each, parsed.policy), vouched=vouched) for each in chosen]
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


def _start_of(new: str) -> int:
    if new not in _POLICIES:
        raise ConfigError(f"new = {new!a} is not known.", hint='Use "earliest" or "latest".')
    return _POLICIES[new]


def _needs_headers(start: Handoff) -> bool:
    return start.needs_headers or (start.start is not None and start.start.include_headers)


def _both(start: JobStart | None, other: JobStart | None) -> JobStart | None:
    """The first start, for a query that goes on in a checkpoint only if neither job was corrected since."""
    if start is None or other is None:
        return start
    sinks = tuple(dict.fromkeys((*start.sinks, *other.sinks)))
    return replace(start, correction=max(start.correction, other.correction), sinks=sinks)


def _options(start: Handoff, extra: Mapping[str, str] | None) -> dict[str, str]:
    subscription = {"subscribe": ",".join(sorted(start.offsets))}
    if start.pattern is not None:
        from reconciler.spark.handoff.cluster import refuse_unmatched

        refuse_unmatched(start.offsets, start.pattern, start.job)
        subscription = {"subscribePattern": start.pattern}
    options = {
        "kafka.bootstrap.servers": start.bootstrap_servers,
        **subscription,
        "startingOffsets": start.starting_offsets_json(),
        # An offset outside the log must fail: with "false" Spark would silently jump.
        "failOnDataLoss": "true",
    }
    if _needs_headers(start):
        options["includeHeaders"] = "true"
    more = arguments.options(extra, "extra")
    own_cluster = any(name.lower() == "kafka.bootstrap.servers" for name in more)
    if not (start.vouched or own_cluster):
        raise proof.cluster_not_vouched_for(start.bootstrap_servers, 'extra={"kafka.bootstrap.servers": …}')
    for name, value in more.items():
        if name.lower() in DECIDED_BY_OFFSETS:
            raise ConfigError(
                f"extra has the option {name}, which would override the plan.",
                hint="Leave it out: the plan decides topics and start, and ending_offsets the end of a batch read.",
            )
        options[_known_spelling(name, options)] = value
    return options


def _known_spelling(name: str, options: Mapping[str, str]) -> str:
    """Spark's option names ignore case; a dict's do not, and of two spellings either might win."""
    return next((known for known in options if known.lower() == name.lower()), name)


def _ending_offsets(start: Handoff, ending: str | Mapping[str, Mapping[str, int]]) -> str:
    if isinstance(ending, str):
        if ending != "latest":
            raise ConfigError(f'ending_offsets is "{ending}": use "latest", or offsets by topic and partition.')
        return ending
    ends = arguments.ends(ending)
    if {topic: set(of) for topic, of in ends.items()} != {topic: set(of) for topic, of in start.offsets.items()}:
        raise ConfigError(
            f"ending_offsets does not name exactly the partitions of {', '.join(start.offsets)} that the plan has.",
            hint="Give every partition an end; -1 stands for the latest record.",
        )
    for topic, of in ends.items():
        for number, end in of.items():
            if end != LATEST and end < start.offsets[topic][number]:
                raise ConfigError(
                    f"ending_offsets stops {topic} partition {number} at {end}, before its start at "
                    f"{start.offsets[topic][number]}.",
                    hint="Give an end at or after the start, or -1 for the latest record.",
                )
    return compact(ends)


def compact(offsets: Mapping[str, Mapping[str, int]]) -> str:
    """Offsets as Spark's ``startingOffsets`` text."""
    ordered = {topic: {n: offsets[topic][n] for n in sorted(offsets[topic], key=int)} for topic in sorted(offsets)}
    return json.dumps(ordered, separators=(",", ":"))
