"""The names that a message suggests for a name that does not exist."""

from __future__ import annotations

import pytest

from reconciler.near import MOST_LISTED, MOST_LOOKS, NearTopics, known_names, near_topics


@pytest.mark.parametrize(
    ("wanted", "source", "there", "near"),
    [
        ("a.orders", "orders", ["us-west.orders", "clicks"], ["us-west.orders"]),
        ("a.orders", "orders", ["orders", "borders"], ["borders", "orders"]),
        ("a.ordrs", "ordrs", ["us-west.orders", "clicks"], ["us-west.orders"]),
        ("orders", "orders", ["us-west.orders"], ["us-west.orders"]),
        ("a.orders", "orders", ["a_orders", "a.orders"], ["a_orders"]),
        ("a.orders", "orders", ["__orders", "mm2-orders", "orders.internal"], []),
        ("a.orders", "orders", ["orders.copy", "orders-dr", "payments"], ["orders-dr", "orders.copy"]),
        ("a.orders", "orders", ["payments", "x"], []),
    ],
)
def test_names_like_a_topic_and_its_name_under_other_prefixes(
    wanted: str, source: str, there: list[str], near: list[str]
) -> None:
    assert near_topics(wanted, source, there) == near_topics(wanted, source, reversed(there)) == near


def test_the_topic_itself_under_another_prefix_goes_before_names_like_it() -> None:
    there = [*(f"a.orders{number}" for number in range(9)), "us-west.orders"]
    assert "us-west.orders" in near_topics("a.orders", "orders", there)


def test_topics_are_listed_once_and_looked_up_a_few_times() -> None:
    listed: list[int] = []

    def names() -> list[str]:
        listed.append(1)
        return ["us.t0", "eu.t0"]

    near = NearTopics(names)
    assert near.of("a.t0", "t0") == '"eu.t0" or "us.t0"'
    for number in range(1, MOST_LOOKS):
        near.of(f"a.other{number}", f"other{number}")
    assert near.of("a.t0", "t0") != ""
    assert near.of("t0", "t0") == ""
    assert len(listed) == 1


def test_few_names_are_told_as_they_are_and_of_many_those_like_it() -> None:
    assert known_names("likes", ["views", "clicks"]) == "views, clicks"
    assert known_names("likes", []) == "none"
    many = [f"job-{number}" for number in range(MOST_LISTED)]
    assert known_names("clikcs", [*many, "clicks"]) == "clicks"
    assert known_names("billing", [*many, "clicks"]) == "11 others, none with a name like it"
