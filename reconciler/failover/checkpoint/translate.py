"""From a plan's rows to the new offsets of a checkpoint's sources. Pure: nothing is opened here.

Each offset that a restart reads (``layout.readings``) is compared with the rows of one job, source by source:

- Every replaced offset must be the stored offset of the row that replaces it. This reveals a checkpoint that has gone
  on since the plan was made, and a plan for another checkpoint.
- A source moves whole, or not at all: one Kafka source reads one cluster.
- A partition that is only in the plan (it is new at the destination) is added. One that is only in the checkpoint is
  dropped if the plan spreads its records over others (``spread``), if the operator accepted that it is missing, or if
  nothing was read of it (offset 0): a plan has no row for such a partition that the destination lacks.
- A batch that a restart repeats has a start and an end. A plan without rows for the end (``position`` ``end``), or with
  an end before its start, repeats it empty: the batch after it begins at the proven start, so nothing is skipped, and
  records that the batch may have written are read again. Sources that stay keep their part of the batch, unless it is
  to be empty (``empty``): then theirs, too, comes in the batch after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import Changed, ConfigError, NeedsPerson, Refused
from reconciler.core.json_fields import FieldError
from reconciler.failover.checking.positions import moves_with_job
from reconciler.failover.sinks.judging import refuse
from reconciler.places.checkpoint.log import Offsets, by_partition, offsets_text
from reconciler.places.checkpoint.restart import END, NEXT, START, Checkpoint, Reading, adds_nothing, readings
from reconciler.plan.document import JobPlan, PartitionPlan, StartPolicy
from reconciler.plan.start import why_stopped

AGAIN = "Make sure that the query is stopped, then make a new plan."

Place = tuple[str, int]
Rows = Mapping[int, PartitionPlan]


@dataclass(frozen=True, slots=True)
class Translation:
    """The changes that let a copy continue elsewhere.

    ``edits``: the new text, by file and the source's name there. ``sources`` move, ``kept`` stay at their cluster;
    ``later`` are those of the kept whose part of the repeated batch comes in the next one.
    ``repeats_empty``: the repeated batch gets no records, of any source. ``lives_there``: the checkpoint's names are
    those of the plan's destination.
    """

    edits: Mapping[str, Mapping[str, str]]
    sources: tuple[str, ...]
    kept: tuple[str, ...]
    later: tuple[str, ...] = ()
    repeats_empty: bool = False
    lives_there: bool = False


@dataclass(frozen=True, slots=True)
class _Topic:
    """One topic of a job, with its rows for each position."""

    source: str
    name: str
    rows: Mapping[str, Rows]

    @property
    def starts(self) -> Rows:
        return self.rows.get(START) or self.rows.get(NEXT) or {}

    @property
    def ends(self) -> Rows:
        return self.rows.get(END) or {}

    def rows_at(self, position: str) -> Rows:
        return self.ends if position == END else self.starts


@dataclass(slots=True)
class _Work:
    """One translation in progress. ``names``: each topic by its name in the checkpoint.

    ``read``: by source, the topics that it reads, those of its start first. ``starts``: by source, its new start.
    ``ends``: where the batch ended at the source, for each place the lowest end of all sources that move.
    ``added_to``: the source that gets the topics that no source has read yet. ``has_records``: the repeated batch gets
    any.
    """

    topics: Sequence[_Topic]
    read: Mapping[str, Sequence[str]]
    names: dict[str, _Topic] = field(default_factory=dict)
    starts: dict[str, Offsets] = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    added_to: str | None = None
    has_records: bool = False


def refuse_undecided(job: JobPlan, policy: StartPolicy) -> None:
    """Raise NeedsPerson for a partition that must not start, or whose offset is not decided; and for a sink."""
    refuse(job.name, job.sinks)
    for row in job.partitions:
        why = why_stopped(row, policy)
        if why is None and row.resume_offset is None and not row.absent:
            why = "it has no offset: choose one with --set TOPIC:PARTITION=OFFSET"
        if why is not None:
            raise NeedsPerson(
                f"{row.key} of job {job.name} must not start ({row.finding.value}): {why}.",
                hint="Nothing was copied. Decide, then make a new plan.",
            )


def translate(found: Checkpoint, job: JobPlan, *, moved: bool, empty: bool = False) -> Translation:
    """The new offsets for every place that a restart reads. ``moved``: the job lives at the plan's destination.

    ``empty``: a repeated batch gets no records of any source.

    Raises Changed if the checkpoint no longer holds the offsets that were planned, ConfigError if the job's topics are
    not whole sources of it, NeedsPerson if two sources differ or a batch cannot be repeated empty, Refused for a source
    that is not understood.
    """
    if empty:
        job = job.without_ends
    topics = _topics(job)
    _refuse_changed(found, topics)
    places = readings(found)
    _refuse_unknown(found, places, topics)
    moving = [each for each in places if each.kafka is not None and _moves(each, places, topics)]
    if not moving:
        raise Changed(
            f"The checkpoint reads none of the topics of job {job.name}: {_listed(topic.source for topic in topics)}.",
            hint="Name the checkpoint that the plan was made for.",
        )
    read: dict[str, list[str]] = {}
    for each in moving:
        read.setdefault(each.source, []).extend(topic for topic, _ in each.kafka or ())
    work = _Work(topics, {source: list(dict.fromkeys(names)) for source, names in read.items()})
    _name_topics(work, moving, job, moved=moved)
    ends = by_partition(each.kafka for each in moving if each.position == END)
    work.ends = {(at.topic, at.partition): min(offsets) for at, offsets in ends.items()}
    edits: dict[str, dict[str, str]] = {}
    for each in sorted(moving, key=lambda reading: reading.position == END):
        edits.setdefault(each.file, {})[each.name] = _text(work, each)
    sources = tuple(dict.fromkeys(each.source for each in moving))
    kept = tuple(name for name in found.source_names if name not in sources)
    with_records = [name for name in kept if found.repeats_a_batch and not adds_nothing(found, name)]
    if not empty:
        is_empty = found.repeats_a_batch and not work.has_records and not with_records
        return Translation(edits, sources, kept, (), is_empty, moved)
    for file, name, text in _at_their_starts(found, places, with_records, job):
        edits.setdefault(file, {})[name] = text
    return Translation(edits, sources, kept, tuple(with_records), found.repeats_a_batch, moved)


def _refuse_changed(found: Checkpoint, topics: Sequence[_Topic]) -> None:
    """Raise Refused for a batch that Spark does not repeat, Changed for one that was committed since the plan."""
    if found.last is not None and found.repartitions:
        raise Refused(
            f"Batch {found.last.batch} spreads the state over {found.last.partitions} partitions and was not finished: "
            "Spark starts no query on such a checkpoint.",
            hint="Repartition it again with Spark, to the same number; then make a new plan.",
        )
    if found.last is not None and found.committed and any(topic.ends for topic in topics):
        raise Changed(f"Batch {found.last.batch} is committed, and was not when the plan was made.", hint=AGAIN)


def _at_their_starts(
    found: Checkpoint, places: Sequence[Reading], sources: Sequence[str], job: JobPlan
) -> Iterator[tuple[str, str, str]]:
    """The start of the batch for the ends of sources that stay: file, the source's name there, and text."""
    starts = {each.source: each for each in places if each.position == START and each.kafka is not None}
    ends = {each.source: each for each in places if each.position == END and each.kafka is not None}
    assert found.last is not None
    for source in sources:
        if source not in starts or source not in ends:
            raise NeedsPerson(
                f'Job "{job.name}" must not start on a copy: the end of batch {found.last.batch} is not proven, and '
                f"its source {source} is not Kafka's, so that the batch would be repeated with a part of its records. "
                "Its sink would take that for the whole.",
                hint="An end is proven if track runs while the job does. If the original is never started again, leave "
                "sink out of the configuration for this one start.",
            )
        yield ends[source].file, ends[source].name, starts[source].text


def _topics(job: JobPlan) -> list[_Topic]:
    rows: dict[tuple[str, str], dict[str, dict[int, PartitionPlan]]] = {}
    for row in job.partitions:
        at = rows.setdefault((row.source_topic, row.topic), {}).setdefault(row.position, {})
        if row.partition in at:
            raise Changed(f"The plan has two rows for {row.key} at one position.", hint="Make a new plan.")
        at[row.partition] = row
    return [_Topic(source, name, positions) for (source, name), positions in rows.items()]


# ---------------------------------------------------------------- which sources move


def _moves(reading: Reading, places: Sequence[Reading], topics: Sequence[_Topic]) -> bool:
    """True if the source reads a topic of the job; it must then read nothing else."""
    whole = {topic for each in places if each.source == reading.source for topic, _ in each.kafka or ()}
    known = {name for topic in topics for name in (topic.source, topic.name)}
    source = f"Source {reading.source} of the checkpoint"
    return moves_with_job(whole, known, source, "the plan's job", ", then make a new plan")


def _refuse_unknown(found: Checkpoint, places: Sequence[Reading], topics: Sequence[_Topic]) -> None:
    """Raise Refused for a source that names a topic of the job but has no Kafka offsets: it would not be moved."""
    texts = {(each.file, each.source): each.text for each in places if each.kafka is None}
    if found.last is not None:
        at = f"offsets/{found.last.batch}"
        texts.update({(at, each.name): each.text for each in found.last.sources if each.kafka is None})
    for (file, source), text in texts.items():
        for topic in topics:
            if any(json.dumps(name) in text for name in (topic.source, topic.name)):
                raise Refused(
                    f"Source {source} in {file} names the topic {topic.source}, and its offsets are not those of "
                    f"Spark's Kafka source: {text[:80]}",
                    hint="Only Spark's own Kafka source can be moved.",
                )


def _name_topics(work: _Work, moving: Sequence[Reading], job: JobPlan, *, moved: bool) -> None:
    """Find the topic of each name in the checkpoint: these are the names on the cluster where the job lives."""
    known = {topic.name if moved else topic.source: topic for topic in work.topics}
    read = [each for each in moving if each.position != END]
    names = {topic for each in moving for topic, _ in each.kafka or ()}
    if unnamed := sorted(names - known.keys()):
        raise ConfigError(
            f"The checkpoint reads {_listed(unnamed)}: no topics of job {job.name} on the cluster where it lives.",
            hint="See where it lives with status, and name the checkpoint that it uses there.",
        )
    for name in sorted(names):
        topic = known[name]
        _refuse_misfit(topic, name, read, job)
        if not any(key[0] == name for each in read for key in each.kafka or ()):
            _refuse_begun(topic, job)  # it came with the very batch that is repeated
        work.names[name] = topic
    _choose_for_new(work, moving, job)


def _choose_for_new(work: _Work, moving: Sequence[Reading], job: JobPlan) -> None:
    """A topic that no source has read from yet goes to the only source there is."""
    new = [topic for topic in work.topics if topic not in work.names.values()]
    if not new:
        return
    sources = {each.source for each in moving}
    if len(sources) > 1 or any(row.stored_offset is not None for topic in new for row in topic.starts.values()):
        raise Changed(
            f"The checkpoint does not read the topics {_listed(topic.source for topic in new)} of job {job.name}.",
            hint="Leave them out of the job's topics, or name the checkpoint that the plan was made for.",
        )
    (work.added_to,) = sources


# ---------------------------------------------------------------- does the plan fit


def _misfit(topic: _Topic, name: str, reading: Reading) -> str | None:
    """How the rows differ from the checkpoint's offsets of a topic under a name; None if they do not."""
    assert reading.kafka is not None
    now = {partition: offset for (each, partition), offset in reading.kafka.items() if each == name}
    if not now:
        return None
    rows = topic.rows_at(reading.position)
    for partition, row in sorted(rows.items()):
        if row.stored_offset != now.get(partition):
            return _difference(
                str(TopicPartition(name, partition)), row.stored_offset, now.get(partition), reading.file
            )
    beyond = sorted(partition for partition in set(now) - set(rows) if now[partition])  # nothing was read of the others
    if beyond and not any(row.spread for row in rows.values()):
        return f"{TopicPartition(name, beyond[0])} is in {reading.file}, and not in the plan"
    return None


def _difference(place: str, was: int | None, now: int | None, file: str) -> str:
    words = ["no offset" if number is None else f"offset {number}" for number in (was, now)]
    return f"{place} had {words[0]} when the plan was made, and has {words[1]} in {file} now"


def _refuse_misfit(topic: _Topic, name: str, read: Sequence[Reading], job: JobPlan) -> None:
    sources = [each for each in read if any(key[0] == name for key in each.kafka or ())]
    wrong = {each.source: why for each in sources if (why := _misfit(topic, name, each)) is not None}
    if not wrong:
        return
    if len(wrong) == len(sources):
        raise _misfits(job, next(iter(wrong.values())))
    raise NeedsPerson(
        f"The query reads {name} with several sources that are not equally far (source {_listed(sorted(wrong))}: "
        f"{wrong[min(wrong)]}), and a plan has one offset for a partition.",
        hint="Let the query catch up on its own cluster, or start a new one.",
    )


def _refuse_begun(topic: _Topic, job: JobPlan) -> None:
    for row in topic.starts.values():
        if row.stored_offset is not None:
            why = _difference(f"{topic.source}-{row.partition}", row.stored_offset, None, "the batch's start")
            raise _misfits(job, why)


def _misfits(job: JobPlan, why: str) -> Changed:
    return Changed(f"The checkpoint is not what the plan of job {job.name} was made from: {why}.", hint=AGAIN)


# ---------------------------------------------------------------- new offsets


def _text(work: _Work, reading: Reading) -> str:
    """The new text of one source in one file. Starts come before ends."""
    topics = [work.names[name] for name in work.read[reading.source]]
    if reading.source == work.added_to:
        topics += [topic for topic in work.topics if topic not in topics and topic not in work.names.values()]
    if reading.position == END:
        offsets = _ends(work, reading, topics)
        work.has_records |= offsets != work.starts.get(reading.source)
    else:
        offsets = work.starts[reading.source] = _offsets(topics, reading.position)
    try:
        return offsets_text(offsets, [topic.name for topic in topics])
    except FieldError as err:
        raise ConfigError(f"The plan's offset for {err}.", hint="Make a new plan.") from err


def _offsets(topics: Iterable[_Topic], position: str) -> dict[Place, int]:
    return {
        (row.topic, row.partition): row.resume_offset
        for topic in topics
        for row in topic.rows_at(position).values()
        if row.resume_offset is not None
    }


def _ends(work: _Work, reading: Reading, topics: Sequence[_Topic]) -> Offsets:
    """The ends of a repeated batch: never before its start, and at its start where the end is not known."""
    lowest = replace(reading, kafka=work.ends)  # where sources end at different offsets, the plan has the lowest
    for name in work.read[reading.source]:
        why = _misfit(work.names[name], name, lowest) if work.names[name].ends else None
        if why is not None:
            raise Changed(f"The checkpoint is not what the plan was made from: {why}.", hint=AGAIN)
    starts, ends = work.starts.get(reading.source, {}), _offsets(topics, END)
    return {place: max(start, ends.get(place, start)) for place, start in starts.items()}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
