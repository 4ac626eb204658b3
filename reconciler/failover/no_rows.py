"""Reports a topic of which a store holds no row at all, with the group or topic that was probably meant.

A misspelt group, a group that never synced and a wrong store look like a job that has never run. What the store holds
instead tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reconciler.core.errors import ReconcilerError
from reconciler.near import MOST_NAMES, near_names
from reconciler.ports import NamesGroups, OffsetReader, groups_of


def no_rows(store: OffsetReader, group: str, *topics: str) -> str:
    """Half a sentence: what was looked for, and what the store holds instead, as far as it can say.

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
    """The topics of which the group has rows; None if the store does not tell."""
    return _asked(lambda: {row.key.topic for row in store.read(group)})


def _asked(call: Callable[[], Iterable[str] | None]) -> set[str] | None:
    """The names; None if the store does not tell: they only help, and are worth no failure."""
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
