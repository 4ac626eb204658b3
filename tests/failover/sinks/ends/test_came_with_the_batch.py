"""A partition that the killed batch was the first to read, and that the destination does not have yet.

MirrorMaker looks for new partitions from time to time only. The topic has one name on both clusters, or two.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.cli.commands.plan import verdict_code
from reconciler.core.errors import ExitCode, NeedsPerson
from reconciler.core.verdicts import Verdict
from reconciler.failover.outside import ByHand
from reconciler.places.checkpoint.reading import read_checkpoint
from tests.failover.sinks.ends.test_one_name import END, stopped
from tests.failover.sinks.world import Query, query

__all__ = ["query", "stopped"]

LEFT_OUT = ByHand(accepted=frozenset({Verdict.UNRESOLVED}))


@pytest.fixture(params=["query", "stopped"])
def begun(request: pytest.FixtureRequest) -> Query:
    made: Query = request.getfixturevalue(request.param)
    made.files.planned(3, {"o": {0: END, 1: 10}})
    return made


@pytest.mark.parametrize("has_it", [True, False])
def test_a_partition_that_came_with_the_batch_has_a_row_and_stops_the_job(begun: Query, has_it: bool) -> None:
    if has_it:
        begun.put_out(range(3, 4))
    else:
        (begun.output / "_spark_metadata" / "3").unlink(missing_ok=True)
    checked = begun.check()
    rows = [(row.partition, row.position, row.finding) for row in checked.plan.job().partitions]
    assert (1, "end", Verdict.UNRESOLVED) in rows
    assert verdict_code(checked, begun.config().policy.start) is ExitCode.NEEDS_PERSON
    with pytest.raises(NeedsPerson, match=r"o-1 of job clicks must not start \(unresolved\)"):
        begun.clone()
    with pytest.raises(NeedsPerson, match="a partition needs a decision"):
        begun.start_at_destination()


def test_a_person_may_leave_it_out(begun: Query) -> None:
    (begun.output / "_spark_metadata" / "3").unlink(missing_ok=True)
    checked = begun.check(by_hand=LEFT_OUT)
    assert verdict_code(checked, begun.config().policy.start) is ExitCode.CORRECTABLE
    made = begun.clone(by_hand=LEFT_OUT)
    (position,) = read_checkpoint(made.new_path).positions
    assert position.start == position.end
    assert {partition for _, partition in position.end or ()} == {0}
    assert Path(made.new_path).exists()
