"""Reading the [anchors] store; its errors name it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from reconciler.core.errors import ConfigError, ReconcilerError, Unreachable
from reconciler.ports import OffsetStore, TopicPartition
from reconciler.stores.paired.rules import AnchorRows
from reconciler.stores.paired.steps import ASIDE, gathered


def refuse_unable(anchors: OffsetStore) -> None:
    """Raise ConfigError for a store that cannot keep other stores' anchors. Contacts no server."""
    if not anchors.capabilities.keeps_other_anchors:
        raise ConfigError(
            f"The store {anchors.address} cannot keep the anchors of other stores.",
            hint="Choose another [anchors] store, for example sqlite:////srv/anchors.db.",
        )


def read_kept(
    anchors: OffsetStore, group: str, topics: Iterable[str] | None = None
) -> dict[TopicPartition, AnchorRows]:
    """The anchors kept for a group's rows. Raises what ``anchors.read`` raises, naming the [anchors] store."""
    wanted = None if topics is None else set(topics)
    for name in wanted or ():
        if name.endswith(ASIDE):
            raise ConfigError(
                f"A topic with anchors in the [anchors] store cannot be called {name!r}: {ASIDE!r} is reserved.",
                hint="Rename the topic, or keep the job's offsets in a store with room for anchors.",
            )
    names = None if wanted is None else sorted({name + end for name in wanted for end in ("", ASIDE)})
    with of_anchors():
        return gathered(anchors.read(group, names))


@contextmanager
def of_anchors() -> Iterator[None]:
    """Errors of the anchor store name it: the address in them is not that of the job's store."""
    try:
        yield
    except ReconcilerError as error:
        named = type(error)(f"The [anchors] store: {error.message}", hint=error.hint)
        named.retryable = error.retryable
        if isinstance(named, Unreachable):
            pass
        raise named from error
