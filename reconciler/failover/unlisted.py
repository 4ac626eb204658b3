"""Topics that a job lists and its store lacks, and topics that its store has and no job lists.

A misspelt group, a group that never synced and a wrong store look like a job that has never run: ``no_rows`` says what
the store holds instead.

A start would not read a topic that no job lists. A query on a pattern gets new topics while the configuration stays the
same. An old topic that the job no longer reads looks the same, so the operator names it in ``ignore_topics``.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from reconciler.config.file import Config, Job
from reconciler.config.places import has_groups, one_store
from reconciler.config.settings import TopicNames
from reconciler.core.errors import ConfigError, NeedsPerson, NotCreated, ReconcilerError, Refused
from reconciler.core.text import counted, some
from reconciler.near import MOST_NAMES, near_names
from reconciler.places.registry import is_end_of_batch
from reconciler.ports import NamesGroups, OffsetReader, groups_of, topic_counts

MOST_TOPICS = 3

log = logging.getLogger(__name__)


class UnlistedTopics(NeedsPerson):
    """A start of the job would leave topics unread of which its store has offsets."""


@dataclass(frozen=True, slots=True)
class Unlisted:
    """How many offsets a store has of each topic that no job lists, by the source's names.

    ``ignored``: those of topics in ``ignore_topics``. ``unknown``: why the store could not be asked, as a sentence.
    """

    topics: Mapping[str, int] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    unknown: str = ""

    @property
    def what(self) -> str:
        """Like ``3 offsets of "night_2", "night_3"``."""
        return offsets_of(self.topics)

    @property
    def way_out(self) -> str:
        """The operator's next step, as a sentence."""
        these = "it" if len(self.topics) == 1 else "them"
        names = ", ".join(f'"{topic}"' for topic in sorted(self.topics))
        return (
            f"Add {these} to the topics of this job, or of another job of this group; or write "
            f"ignore_topics = [{names}] in this job's [[jobs]] table, if no job is to read {these} from here on."
        )


def find_unlisted(config: Config, job: Job, store: OffsetReader) -> Unlisted:
    """The topics that the job's group has in ``store``, and that neither it nor another job of the group lists.

    Raises Unreachable if the store does not answer.
    """
    held: Mapping[str, int] = {}
    try:
        if not is_end_of_batch(job.store):  # whose checkpoint is another job's
            held = topic_counts(store, job.group)
    except NotCreated:
        pass
    except (ConfigError, Refused) as error:  # it may be read topic by topic alone
        return Unlisted(unknown=error.message)
    listed = _names(config.topics, [topic for each in _sharing(config, job) for topic in each.topics])
    counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for topic, count in held.items():
        if topic not in listed:
            name = config.topics.source_of(topic)
            counts[topic in job.ignore_topics or name in job.ignore_topics][name] += count
    return Unlisted(counts[False], counts[True])


def refuse_unlisted(job: Job, address: str, found: Unlisted) -> None:
    """Raise UnlistedTopics for topics that a start of the job would leave unread. ``address`` is its store's."""
    if found.unknown:
        doubt = f'Job "{job.name}" may have offsets of topics that it does not list: {found.unknown}'
        _say_once(logging.WARNING, doubt)
    if found.ignored:
        _say_once(logging.INFO, f'Job "{job.name}" ignores {offsets_of(found.ignored)} (ignore_topics).')
    if found.topics:
        those = "that topic" if len(found.topics) == 1 else "those topics"
        raise UnlistedTopics(
            f'{address} has {found.what} for group "{job.group}", and job "{job.name}" does not list {those}: '
            "its start would leave their records unread.",
            hint=found.way_out,
        )


@cache
def _say_once(level: int, sentence: str) -> None:
    """Log it once a process: a watcher checks every job each minute."""
    log.log(level, "%s", sentence)


def _sharing(config: Config, job: Job) -> list[Job]:
    """The configured jobs that may have rows where this one has: of its group; or of its store, if that has none."""
    alone = not has_groups(job.store)
    return [each for each in config.jobs if each.group == job.group or (alone and one_store(each.store, job.store))]


def _names(names: TopicNames, topics: Collection[str]) -> set[str]:
    """The topics by the names of both clusters."""
    return {*topics, *map(names.destination_of, topics)}


def offsets_of(topics: Mapping[str, int]) -> str:
    """Like ``3 offsets of "night_2", "night_3"``: the offsets' number, by topic."""
    names = some([f'"{topic}"' for topic in sorted(topics)], MOST_TOPICS)
    return f"{counted(sum(topics.values()), 'offset')} of {names}"


def no_rows(store: OffsetReader, group: str, *topics: str) -> str:
    """Half a sentence: what was looked for, and what the store holds instead, as far as it lists that.

    Without ``topics``, rows of any mirrored topic were looked for.
    """
    names = [topic for topic in dict.fromkeys(topics) if topic]
    of = f"{' or '.join(map(_quoted, names)) or 'any mirrored topic'} for group {_quoted(group)}"
    others = topics_of(store, group)
    if others:
        return f"no rows of {of}; this group has rows of {_listed(others, names)}"
    groups = _asked(lambda: groups_of(store))
    if isinstance(store, NamesGroups):
        groups = (_asked(store.group_names) or set()) - {group} or groups
    if groups:
        return f"no rows of {of}; this store has {_listed(groups, [group])}"
    return f"no rows of {of}" + ("; this store is empty" if groups is not None else "")


def topics_of(store: OffsetReader, group: str) -> set[str] | None:
    """The topics of which the group has rows; None if the store does not list them."""
    return _asked(lambda: {row.key.topic for row in store.read(group)})


def _asked(call: Callable[[], Iterable[str] | None]) -> set[str] | None:
    """The names; None if the store does not list them: they only help, so a failure is ignored."""
    try:
        found = call()
    except ReconcilerError:
        return None
    return None if found is None else set(found)


def _listed(names: set[str], wanted: list[str]) -> str:
    """The names most like the wanted ones; all, if they are few; else their number."""
    near = [each for name in wanted for each in near_names(name, names)]
    if near or len(names) <= MOST_NAMES:
        return ", ".join(map(_quoted, list(dict.fromkeys(near))[:MOST_NAMES] or sorted(names)))
    return f"{len(names):,} others, none with a name like it"


def _quoted(name: str) -> str:
    return f'"{name}"'
