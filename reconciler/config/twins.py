"""Jobs that share stored offsets, and topics of one job whose rows would be taken for each other's."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from reconciler.config.places import has_groups, one_store
from reconciler.config.settings import Job, TopicNames
from reconciler.config.table import Unknown
from reconciler.core.errors import ConfigError


def faults_beside(
    job: Job, others: Sequence[Job], topics: TopicNames, place_of: Callable[[str], Hashable]
) -> Iterator[ConfigError]:
    """What is wrong with a job beside the ``others``, and with the names of its topics."""
    yield from _among(job, topics)
    has_own = isinstance(job.store, Unknown) or has_groups(job.store)
    mine = None if has_own else place_of(job.store)
    for other in others:
        if other.name == job.name:
            yield ConfigError(f'Two jobs are named "{job.name}".', hint="Rename one of them.")
            return
        if (
            (other.group == job.group or (not has_own and place_of(other.store) == mine))
            and _are_one(other.store, job.store, place_of)
            and (common := _names(job, topics) & _names(other, topics))
        ):
            shared = "of a topic" if {*job.topics} & {*other.topics} else f'under the name "{min(common)}"'
            of_store, own = ("one group", "group") if has_own else ("which has no groups", "store")
            yield ConfigError(
                f'Jobs "{other.name}" and "{job.name}" share the stored offsets {shared}: one store, {of_store}.',
                hint=f"Give one of them a {own} of its own, or make them one job.",
            )
            return


def _among(job: Job, topics: TopicNames) -> Iterator[ConfigError]:
    """Two topics of one job that have, or come to have, one name."""
    try:
        names = {topic: topics.destination_of(topic) for topic in job.topics if not isinstance(topic, Unknown)}
    except ConfigError as error:
        yield error
        return
    given = list(names.values())
    twice = next((name for name in given if given.count(name) > 1), None)
    if twice is not None:
        yield ConfigError(
            f'Two topics of job "{job.name}" have the name "{twice}" at the destination.',
            hint="Correct [topics.names]: each needs a name of its own.",
        )
    for topic, name in names.items():
        if name != topic and name in names:
            yield ConfigError(
                f'Topic "{topic}" of job "{job.name}" is called "{name}" at the destination, and "{name}" is another '
                "topic of the job at the source: an offset that is stored under this name could be of either.",
                hint="Let two jobs read them, each with a group of its own.",
            )
            return


def _names(job: Job, topics: TopicNames) -> set[str]:
    """The names under which the job may have rows."""
    known = [topic for topic in job.topics if not isinstance(topic, Unknown)]
    try:
        return {*known, *map(topics.destination_of, known)}
    except ConfigError:  # ``_among`` says it
        return {*known}


def _are_one(store: str, other: str, place_of: Callable[[str], Hashable]) -> bool:
    if isinstance(store, Unknown) or isinstance(other, Unknown):
        return False
    return one_store(store, other, place_of)
