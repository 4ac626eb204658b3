"""Offsets that a function of the operator's reads (``python:module:function``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError, Refused, Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.places.registry import open_store
from reconciler.ports import TopicPartition
from tests.in_memory import BASE, Memory, content, memory

__all__ = ["memory"]

Rows = Callable[[str], Any]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Rows:
    """Opens the store of a function with this body; its module is called ``places_of_ours_N``."""
    monkeypatch.syspath_prepend(tmp_path)
    made = 0

    def open_with(body: str) -> Any:
        nonlocal made
        made += 1
        name = f"places_of_ours_{abs(hash(request.node.name))}_{made}"
        (tmp_path / f"{name}.py").write_text(f"def rows(group, topics):\n    {body}\n")
        return open_store(f"python:{name}:rows")

    return open_with


def test_a_job_fails_over_by_what_the_function_reads_once_its_module_is_allowed(memory: Memory, opened: Rows) -> None:
    """Record 6 was processed last; its id alone finds it at the destination."""
    store = opened(f"return [(topic, 0, {BASE + 7}, None, b'k6') for topic in topics if topic == 'events']")
    memory.deliver(range(10))
    memory.place, memory.of_job = store.address, '[jobs.identity]\nid = "key"\n'
    with pytest.raises(ConfigError, match=r"names the Python module .*, which \[policy\] python does not allow"):
        memory.config()
    config = memory.config(f'[policy]\npython = ["{store.address.split(":")[1]}"]\n')
    found = check(config, config.jobs, replace(memory.outside, open_store=open_store)).plan.jobs[0].partitions[0]
    assert (found.finding, found.resume_offset, found.replay_exact) == (Verdict.EXACT, 7, 0)


def test_rows_are_read_as_they_are_given_and_another_shape_hides_no_other(opened: Rows) -> None:
    rows = [("e", 1, 8), ("e", 0, 7, content(6)[0], b"id"), ("e", 2, 9, None, None), ("other", 0, 1)]
    wrong = [("e", 3, "12"), ("e", 4, 1, 2, "id"), ("e", -6, 1), ("e", 7, 1), ("e", 7, 2)]
    store = opened(f"assert group == 'g' and topics == {{'e'}}; return {[*rows, *wrong]!r}")
    found = store.read("g", ["e"])
    anchor = Anchor(timestamp_ms=content(6)[0], id=b"id")
    sound = {row.key: row.stored for row in found if row.malformed is None}
    e = [TopicPartition("e", number) for number in range(3)]
    assert sound == {e[0]: StoredOffset(7, anchor), e[1]: StoredOffset(8), e[2]: StoredOffset(9)}
    said = [row.malformed.message for row in found if row.malformed is not None]
    assert len(said) == 4, said
    assert sum("it is given twice" in each for each in said) == 1
    for of_any_topic in ("e5", (b"e", 0, 1), ("e", 0)):
        with pytest.raises(Refused, match=r"gave .*, which is not"):
            opened(f"return [{of_any_topic!r}]").read("g", ["e"])
    with pytest.raises(Refused, match=r"is the job's own, and read-only here"):
        store.check_writable("g")


@pytest.mark.parametrize(("raised", "kind"), [("OSError('away')", Unreachable), ("KeyError('off')", Refused)])
def test_a_function_that_fails_is_told_with_its_own_words(opened: Rows, raised: str, kind: type[Exception]) -> None:
    with pytest.raises(
        kind, match=r"The function of python:.*:rows failed: (OSError: away|KeyError: 'off')\."
    ) as caught:
        opened(f"raise {raised}").read("g")
    assert type(caught.value) is kind
