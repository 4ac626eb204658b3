"""What a hook without a key of its own says where plans must be signed: a way on that works for the job's store."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.checkpoints.clone import clone
from reconciler.config.settings import TrustSettings
from reconciler.core.errors import NeedsPerson
from reconciler.failover.writing.refusals import Refusal, of_store
from reconciler.formats.start import Side
from reconciler.spark.handoff.options import CHECKPOINT_VARIABLE
from tests.in_memory import NOW, Memory, memory, stored
from tests.sinks.world import Query, query
from tests.stores.paired.test_handed_again import Starts
from tests.trust.test_signing import Key, ada, keys

__all__ = ["ada", "keys", "memory", "query"]


@pytest.fixture
def starts(memory: Memory) -> Starts:
    """A job in its own Delta table; what it has processed is at the destination."""
    memory.deliver(range(20))
    made = Starts(memory)
    made.stored("events", stored(4, written_at_ms=NOW - 1000))
    return made


def said_by(start: Callable[[], object]) -> str:
    with pytest.raises(NeedsPerson, match="a plan must be signed by a person first") as caught:
        start()
    assert caught.value.hint is not None
    return caught.value.hint


def test_for_a_job_that_stores_its_own_offsets_it_asks_for_a_key_with_which_it_hands_them_over(
    starts: Starts, ada: Key
) -> None:
    """``apply`` would send the user back to the hook."""
    assert of_store(starts.config.jobs[0]) is Refusal.STORED_BY_JOB
    trust = TrustSettings(require_signature=True, trusted_keys=(str(ada.public),))
    starts.config = replace(starts.config, trust=trust)
    hint = said_by(lambda: starts.start(Side.DESTINATION))
    assert "give it a [trust] signing_key, and start again" in hint
    assert "--starting-offsets prints" in hint
    assert "reconciler apply" not in hint
    starts.config = replace(starts.config, trust=replace(trust, signing_key=str(ada.private)))
    assert starts.start(Side.DESTINATION) == 5


def test_for_a_query_the_hook_names_the_copy_that_the_next_start_takes(query: Query, ada: Key) -> None:
    query.extra = f'[trust]\nrequire_signature = true\ntrusted_keys = ["{ada.public}"]'
    copy = str(query.folder / "copy")
    hint = said_by(lambda: query.start_at_destination(copy))
    (words,) = [shlex.split(each.split(", and")[0]) for each in hint.split("then ")[1:]]
    assert words[:3] == ["reconciler", "checkpoint", "clone"]
    path, new_path, _, plan = words[3:7]
    assert hint.startswith(f"Look at it: reconciler sign {plan} --key FILE; then ")
    clone(path, new_path, Path(plan), config=query.config(), outside=query.outside)
    assert query.start_at_destination(copy)[CHECKPOINT_VARIABLE] == copy


def test_for_a_query_without_a_place_for_the_copy_the_hook_asks_for_that_first(query: Query, ada: Key) -> None:
    query.extra = f'[trust]\nrequire_signature = true\ntrusted_keys = ["{ada.public}"]'
    with pytest.raises(NeedsPerson, match="which is done in a copy"):
        query.start_at_destination(None)
