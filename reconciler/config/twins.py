"""Jobs that share stored offsets, and topics of one job whose rows would be taken for each other's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence

from reconciler.config.places import has_groups, one_store
from reconciler.config.settings import Job
from reconciler.config.streams import Naming, Stream
from reconciler.config.table import Unknown
from reconciler.core.errors import ConfigError


def faults_beside(
    job: Job,
    others: Sequence[Job],
    naming: Naming,
    clusters: Collection[str],
    place_of: Callable[[str], Hashable],
    *,
    is_recorded: bool,
) -> Iterator[ConfigError]:
    """What is wrong with a job beside the ``others``, and with the names of its topics.

    ``is_recorded``: a state store says where the jobs live.
    """
    yield from _among(job, naming, clusters, is_recorded=is_recorded)
    has_own = isinstance(job.store, Unknown) or has_groups(job.store)
    mine = None if has_own else place_of(job.store)
    for other in others:
        if other.name == job.name:
            yield ConfigError(f'Two jobs are named "{job.name}".', hint="Rename one of them.")
            return
        if (
            (_share_group(other, job, clusters) or (not has_own and place_of(other.store) == mine))
            and _are_one(other.store, job.store, place_of)
            and (common := _names(job, naming, clusters) & _names(other, naming, clusters))
        ):
            shared = "of a topic" if {*job.topics} & {*other.topics} else f'under the name "{min(common)}"'
            of_store, own = ("one group", "group") if has_own else ("which has no groups", "place for its offsets")
            yield ConfigError(
                f'Jobs "{other.name}" and "{job.name}" share the stored offsets {shared}: one store, {of_store}.',
                hint=f"Give one of them a {own} of its own, or make them one job.",
            )
            return


def _share_group(one: Job, other: Job, clusters: Collection[str]) -> bool:
    return any(one.group_on(cluster) == other.group_on(cluster) for cluster in clusters)


def _among(job: Job, naming: Naming, clusters: Collection[str], *, is_recorded: bool) -> Iterator[ConfigError]:
    """Two topics of one job that have one name on a cluster, or a name that is another's on another cluster."""
    streams = [each for each in job.streams if not isinstance(each.topic, Unknown)]
    owners: dict[str, Stream] = {}
    for cluster in clusters:
        try:
            named = naming.by_name(streams, cluster)
        except ValueError as error:
            yield ConfigError(
                f'Two topics of job "{job.name}" have one name: {error}.',
                hint="Correct [topics]: each needs a name of its own.",
            )
            return
        for name, stream in named.items():
            other = owners.setdefault(name, stream)
            if other != stream and not is_recorded:
                yield ConfigError(
                    f'Topics {other} and {stream} of job "{job.name}" are both called "{name}", on different clusters: '
                    "without a [state] store, nothing says of which an offset under this name is.",
                    hint='Add [state] store = "ADDRESS".',
                )
                return


def _names(job: Job, naming: Naming, clusters: Collection[str]) -> set[str]:
    """The names under which the job may have rows."""
    known = [each for each in job.streams if not isinstance(each.topic, Unknown)]
    return {naming.name_on(stream, cluster) for stream in known for cluster in clusters}


def _are_one(store: str, other: str, place_of: Callable[[str], Hashable]) -> bool:
    if isinstance(store, Unknown) or isinstance(other, Unknown):
        return False
    return one_store(store, other, place_of)
