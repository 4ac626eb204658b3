"""What a hook without a key of its own says where plans must be signed: a way on that works for the job's store."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from reconciler.cli import context
from reconciler.cli.main import main
from reconciler.core.errors import ExitCode, NeedsPerson
from reconciler.state.start import CHECKPOINT_VARIABLE
from tests.failover.sinks.world import Query, query
from tests.plan.test_signing import Key, ada, keys
from tests.starting import state_of

__all__ = ["ada", "keys", "query"]


def said_by(start: Callable[[], object]) -> str:
    with pytest.raises(NeedsPerson, match="an operator must sign the plan first") as caught:
        start()
    assert caught.value.hint is not None
    return caught.value.hint


def test_for_a_query_it_asks_for_a_signature_with_which_apply_makes_the_copy_that_the_next_start_takes(
    query: Query, ada: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = query.folder / "reconciler.toml"
    query.extra = f'[trust]\nrequire_signature = true\ntrusted_keys = ["{ada.public}"]\n'
    query.extra += f'[state]\nstore = "sqlite:///{query.folder}/state.db"'
    query.state = state_of(file, "clicks", "a")
    query.keep_anchor(2)
    hint = said_by(query.start_at_destination)
    assert not Path(query.copy).exists()
    monkeypatch.setattr(context, "outside", lambda config: nullcontext(query.outside))
    sign, apply = (shlex.split(words) for words in re.findall("reconciler ([^;,]*)", hint))
    assert main([*sign[:-1], str(ada.private), "--yes"]) == ExitCode.OK
    assert main([*apply, "--yes"]) == ExitCode.OK
    assert query.start_at_destination()[CHECKPOINT_VARIABLE] == query.copy
