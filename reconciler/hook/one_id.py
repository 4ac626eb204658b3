"""Tells rows of the two sides apart where both clusters report one id: clones, and the default ids of images.

The topic's id in an anchor tells the side, unless both clusters have that topic id, too. Where the source does not
answer, an anchor of another topic id than the destination's could be of either cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from reconciler.core.anchors import Anchor, real_topic_id
from reconciler.core.errors import NeedsPerson
from reconciler.ports import ClusterInfo, Row, TopicPartition

AskSource = Callable[[Iterable[str]], ClusterInfo | None]
"""Describes topics of the source; None if it does not answer, or is not configured."""
Rows = Mapping[TopicPartition, Row]


def tell_apart(
    rows: Rows, sources: Mapping[str, str], there: ClusterInfo, ask: AskSource, job: str | None, *, translated: bool
) -> Rows:
    """The rows, where those of the source with the destination's cluster id get an id that is not the destination's.

    ``sources``: the source's name of each topic of the destination. ``job``: None if a person's word says that unclear
    rows are the source's. ``translated``: a mirror writes the rows, also those under the destination's names; else only
    a name that both sides have leaves a doubt. Raises NeedsPerson for an unclear row otherwise.
    """
    doubtful = {
        key: row.stored.anchor
        for key, row in rows.items()
        if (translated or sources.get(key.topic) == key.topic)
        and key.topic in sources
        and row.stored.anchor is not None
        and row.stored.cluster_id == there.cluster_id
    }
    if not doubtful:
        return rows
    source = ask(sorted({sources[key.topic] for key in doubtful}))
    if source is not None and source.cluster_id != there.cluster_id:
        return rows
    found = dict(rows)
    for key, anchor in sorted(doubtful.items()):
        why = _why_not_own(key, anchor, there, source, sources[key.topic])
        if why and job is not None:
            raise _unclear(job, why)
        if why is not None:
            numbered = replace(anchor, cluster_id=f"{there.cluster_id} (source)")
            found[key] = replace(rows[key], stored=replace(rows[key].stored, anchor=numbered))
    return found


def _why_not_own(
    key: TopicPartition, anchor: Anchor, there: ClusterInfo, source: ClusterInfo | None, topic: str
) -> str | None:
    """None for the destination's own row, an empty text for the source's, else why it is unclear."""
    own, here = real_topic_id(anchor.topic_id), real_topic_id(there.topic_id(key.topic))
    if source is None:
        if own is None or here is None or own == here or topic != key.topic:
            return None
        return (
            f"the anchor of {key} is of a topic with the id {own}, and the destination's has {here}: it was created "
            f"again, or the source reports the same cluster id ({there.cluster_id}). The source does not answer"
        )
    shared = f"both clusters report the cluster id {there.cluster_id}"
    at_source = real_topic_id(source.topic_id(topic))
    if own is None or here is None or at_source is None:
        return f"{shared}, and the topic's id is not known for {key}"
    if here == at_source:
        return f"{shared}, and topic {key.topic} has the id {here} on both"
    if own == at_source:
        return ""
    return None if own == here else f"{shared}, and the anchor of {key} is of a topic id that neither has ({own})"


def _unclear(job: str, why: str) -> NeedsPerson:
    return NeedsPerson(
        f'On which side job "{job}" is to start is not clear: {why}.',
        hint="Say it: hook --to source, or hook --to destination. With other topic names at the destination "
        "([topics] policy, as in the mirror) the rows tell it without a word.",
    )
