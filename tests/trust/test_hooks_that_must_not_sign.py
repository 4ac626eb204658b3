"""What a hook without a key of its own says where plans must be signed: a way on that works for the job's store."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.cli import context
from reconciler.cli.main import main
from reconciler.config.settings import TrustSettings
from reconciler.core.errors import ExitCode, NeedsPerson
from reconciler.failover.writing.refusals import Refusal, of_store
from reconciler.state.start import CHECKPOINT_VARIABLE
from tests.in_memory import NOW, Memory, memory, stored
from tests.sinks.world import Query, query
from tests.starting import state_of
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
    hint = said_by(lambda: starts.start())
    assert "give it a [trust] signing_key, and start again" in hint
    assert "--starting-offsets prints" in hint
    assert "reconciler apply" not in hint
    starts.config = replace(starts.config, trust=replace(trust, signing_key=str(ada.private)))
    assert starts.start() == 5


def test_for_a_query_it_asks_for_a_signature_with_which_apply_makes_the_copy_that_the_next_start_takes(
    query: Query, ada: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = query.folder / "reconciler.toml"
    query.extra = f'[trust]\nrequire_signature = true\ntrusted_keys = ["{ada.public}"]\n'
    query.extra += f'[state]\nstore = "sqlite:///{query.folder}/state.db"'
    query.state = state_of(file, "clicks", "a")
    hint = said_by(query.start_at_destination)
    assert not Path(query.copy).exists()
    monkeypatch.setattr(context, "outside", lambda config: nullcontext(query.outside))
    sign, apply = (shlex.split(words) for words in re.findall("reconciler ([^;,]*)", hint))
    assert main([*sign[:-1], str(ada.private), "--yes"]) == ExitCode.OK
    assert main([*apply, "--yes"]) == ExitCode.OK
    assert query.start_at_destination()[CHECKPOINT_VARIABLE] == query.copy
