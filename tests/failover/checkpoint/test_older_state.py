"""Which files of state a restart reads: by Spark's rules, and all of them where these do not say."""

from __future__ import annotations

import pytest

from reconciler.places.checkpoint.files import older_state, repeated_state

STORE = "state/0/1"
ONE, TWO = "0a7e29c4-60d8-4f7b-9a3f-0a4b5f3f3c11", "b1b5cf9e-8a3e-4a52-9b5f-5f5a7e6f2d22"


def left_out(*names: str, version: int) -> set[str]:
    paths = {f"{STORE}/{name}" for name in names}
    return {name.removeprefix(f"{STORE}/") for name in older_state(paths, version)}


def deltas(*numbers: int) -> list[str]:
    return [f"{number}.delta" for number in numbers]


def test_what_lies_before_the_last_snapshot_but_one_is_older_with_its_checksums() -> None:
    names = [
        *deltas(*range(1, 31)),
        "10.snapshot",
        "20.snapshot",
        "28.snapshot",
        ".19.delta.crc",
        "19.delta.crc",
        ".19.delta.crc.crc",
    ]
    found = left_out(*names, version=30)
    assert found == {*deltas(*range(1, 20)), "10.snapshot", ".19.delta.crc", "19.delta.crc", ".19.delta.crc.crc"}


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([*deltas(*range(1, 31)), "20.snapshot"], "a damaged snapshot would have none before it"),
        ([*deltas(*range(1, 30)), "10.snapshot", "20.snapshot"], "the version itself is not there"),
        ([*deltas(*range(1, 25), *range(26, 31)), "10.snapshot", "20.snapshot"], "a version is missing"),
        (["metadata", "schema", "0x1.delta", "-1.delta", "1.delta.tmp", ".1.delta.0.TID7.tmp"], "unknown names"),
    ],
)
def test_a_store_is_kept_whole_in_doubt(names: list[str], why: str) -> None:
    assert left_out(*names, version=30) == set(), why


def test_the_stores_of_a_join_are_judged_each_for_itself() -> None:
    left, right = f"{STORE}/left-keyToNumValues", f"{STORE}/right-keyToNumValues"
    names = {f"{left}/{each}" for each in [*deltas(1, 2, 3), "1.snapshot", "2.snapshot", "3.snapshot"]}
    names |= {f"{right}/{each}" for each in deltas(1, 2, 3)}
    assert older_state(names, 3) == {f"{left}/1.delta", f"{left}/1.snapshot"}


def test_files_of_rocksdb_stay() -> None:
    names = ["1.zip", "2.zip", "3.zip", "1.changelog", "2.changelog", "3.changelog", "SSTs/a.sst", "logs/a.log"]
    assert left_out(*names, version=3) == {"1.zip", "1.changelog"}


def test_of_several_attempts_at_a_version_none_is_a_snapshot() -> None:
    changes = [f"{number}_{ONE}.changelog" for number in range(1, 8)]
    snapshots = [f"{number}_{ONE}.zip" for number in (2, 4, 6)]
    assert left_out(*changes, *snapshots, version=7) == {f"{n}_{ONE}.changelog" for n in (1, 2, 3)} | {f"2_{ONE}.zip"}
    assert left_out(*changes, *snapshots, f"6_{TWO}.changelog", version=7) == {f"1_{ONE}.changelog"}


def of_a_repeated_batch(*names: str, version: int) -> set[str]:
    found = repeated_state({f"{STORE}/{name}" for name in names}, version)
    return {name.removeprefix(f"{STORE}/") for name in found}


def test_the_snapshot_of_a_batch_that_is_repeated_is_found_with_its_checksums() -> None:
    """Spark would read it before the changes that the repeated batch writes."""
    snapshots = ["3.snapshot", ".3.snapshot.crc", "5.snapshot", ".5.snapshot.crc", "5.snapshot.crc"]
    found = of_a_repeated_batch(*deltas(1, 2, 3, 4, 5), ".5.delta.crc", *snapshots, version=4)
    assert found == {"5.snapshot", ".5.snapshot.crc", "5.snapshot.crc"}
    assert of_a_repeated_batch("2.zip", "3.changelog", "4.changelog", "4.zip", version=3) == {"4.zip"}
    assert of_a_repeated_batch("1.delta", "1.snapshot", version=0) == {"1.snapshot"}


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([*deltas(1, 2, 3, 4), "2.snapshot", "4.snapshot"], "it is the version that the next batch reads"),
        (["3.zip", "4.zip", "5.zip"], "it is all that a sink with the batch leaves of it"),
        ([*deltas(1, 2, 4, 5), "5.snapshot"], "the version itself cannot be read"),
        ([*deltas(4, 5), "5.snapshot"], "the version itself cannot be read"),
        ([f"{n}_{ONE}.{kind}" for n in (3, 4, 5) for kind in ("changelog", "zip")], "the commits name attempts"),
        (["4.changelog", "4.zip", f"5_{ONE}.changelog", "5.zip"], "the changes are another attempt's"),
    ],
)
def test_a_snapshot_that_may_be_needed_is_not_of_a_repeated_batch(names: list[str], why: str) -> None:
    assert of_a_repeated_batch(*names, version=4) == set(), why
