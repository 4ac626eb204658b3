"""Jobs without anchors beside a MirrorMaker: no answer skips a record, and every bound holds.

The long ones are commands: python -m tests.simulation.campaign random --family bare --cases 1000000
and python -m tests.simulation.campaign pairs --records 3 --resends 2
"""

from __future__ import annotations

from functools import partial

import pytest

from reconciler.core import reconcile
from reconciler.core.mirrored import by_pairs, carried, syncs
from reconciler.core.mirrored.pairs import usable_checkpoints, usable_syncs
from reconciler.core.verdicts import Finding, Verdict
from tests.simulation.campaign import add_up, blocks, finds, try_seeds
from tests.simulation.tally import Tally
from tests.simulation.worlds.unanchored import bare, bare_small, both_ways, renewed_carried
from tests.simulation.worlds.unanchored.bare_small import BareTally

some = partial(try_seeds, name="bare")
THOROUGHLY = 15_000
"""Worlds of each kind in the thorough run, some 110 seconds of a processor; the commands above take any number."""


@pytest.fixture(scope="module")
def campaign(thorough: bool, jobs: int) -> Tally:
    cases = THOROUGHLY if thorough else 300
    return add_up(some, blocks(0, cases), Tally(), jobs)


def test_nothing_is_skipped_and_every_bound_holds(campaign: Tally) -> None:
    assert not campaign.broken, campaign.text()


def test_every_ill_was_tried(campaign: Tally) -> None:
    tried = {kind for kind, _ in campaign.verdicts}
    assert tried >= {
        *("bare, sent again", "bare, aborted", "bare, expired", "bare, compacted", "bare, LogAppendTime"),
        *("bare, recreated", "bare, syncs", "bare, checkpoints alone", "bare, no pairs", "source offsets missing"),
        *("bare, local writers among", "bare, markers", "bare, payload time"),
        *("bare, copied checkpoints", "bare, checkpoints too far"),
    }


def test_three_of_ten_are_exact_although_most_of_these_mirrors_are_sick(campaign: Tally) -> None:
    exact = campaign.verdicts["bare, syncs", Verdict.EXACT.value]
    of_all = sum(count for (kind, _), count in campaign.verdicts.items() if kind == "bare, syncs")
    assert exact > 0.3 * of_all  # measured over 30,000 seeds: 0.33


MORE = [pytest.param(*sizes, marks=pytest.mark.thorough) for sizes in ((5, 1), (2, 2), (5, 2))]


@pytest.mark.parametrize(("records", "resends"), [(2, 1), *MORE])
def test_every_history_of_a_few_records(records: int, resends: int, jobs: int) -> None:
    parts = 8
    tally = add_up(
        bare_small.judge_all,
        [[(records, resends, part, parts)] for part in range(parts)],
        BareTally(),
        jobs,
    )
    assert tally.asked > 10_000
    assert tally.is_clean, tally.text()
    assert tally.verdicts["exact"] > 500


# ---------------------------------------------------------------- the campaign finds what it is to find
# The seeds begin right before the first worlds that show it.


@pytest.mark.thorough
def test_counting_copies_that_were_sent_again_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where numbers are missing as many times as records came again, the distances of two syncs are equal."""
    monkeypatch.setattr(syncs._News, "_is_new", lambda *_: True)
    assert finds(bare_small.judge_all, [[(5, 1, part, 40)] for part in range(40)], "skips:")


def test_a_place_that_is_used_as_it_stands_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As MirrorMaker does: right behind the copy that the sync names."""

    def trusting(case, below, record, above, records):  # type: ignore[no-untyped-def]
        found = yield from right(case, below, record, above, records)
        return [by_pairs.replace(found[0], resume_offset=below.downstream + 1, record_offset=None)]

    right = by_pairs._after
    monkeypatch.setattr(by_pairs, "_after", trusting)
    assert finds(some, blocks(0, 500, 50), "skips", at_least=3)


@pytest.mark.thorough
def test_pairs_of_a_topic_that_was_recreated_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.core.mirrored.pairs.usable_syncs", list)
    assert finds(some, blocks(550, 950, 50), "skips")
    monkeypatch.setattr("reconciler.core.mirrored.pairs.usable_syncs", usable_syncs)
    monkeypatch.setattr("reconciler.core.mirrored.pairs.usable_checkpoints", lambda checkpoints, _: checkpoints)
    assert finds(some, blocks(250, 1250, 50), "skips")
    assert usable_checkpoints([], []) == []


@pytest.mark.thorough
def test_checkpoints_of_a_mirrormaker_before_3_5_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.core.mirrored.pairs.copied_checkpoints", lambda *_: set())
    assert finds(some, blocks(0, 1000, 50), "skips")
    monkeypatch.undo()
    monkeypatch.setattr(by_pairs, "_without_too_far", lambda evidence: evidence)
    assert finds(some, blocks(0, 1000, 50), "skips")


@pytest.mark.thorough
def test_a_checkpoint_that_is_taken_for_the_next_record_alone_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may stand far behind the offset, where the records in between were gone when the mirror sent again."""
    monkeypatch.setattr(by_pairs, "earliest", lambda found: found[0])
    history = bare_small.History((0, 1, 0, 2), (10, 10, 10), 0, (), (2, 1), 1, increasing=False)
    assert list(bare_small.broken_promises(history, bare_small.answer(history))) == ["skips: [1]"]


def test_the_same_seed_is_the_same_world_and_gets_the_same_answer() -> None:
    for seed in range(50):
        assert bare.describe(seed) == bare.describe(seed)


# ---------------------------------------------------------------- records that carry the source's offset


@pytest.fixture(scope="module")
def carrying(thorough: bool, jobs: int) -> Tally:
    cases = THOROUGHLY if thorough else 500
    return add_up(partial(try_seeds, name="carried"), blocks(0, cases), Tally(), jobs)


def test_by_offsets_that_records_carry_nothing_is_skipped(carrying: Tally) -> None:
    assert not carrying.broken, carrying.text()


def test_by_offsets_that_records_carry_nothing_repeats_that_need_not(carrying: Tally) -> None:
    plain, best = (
        sum(count for (found, _), count in carrying.verdicts.items() if found == kind)
        for kind in ("carried, plain", "carried, plain, nothing repeats that need not")
    )
    assert plain > carrying.trials / 4
    assert best >= 0.95 * plain


def no_turns(*_: object):  # type: ignore[no-untyped-def]
    yield from ()
    return []


@pytest.mark.thorough
def test_a_number_that_bisection_found_and_no_search_confirmed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(question, anchor, *, candidate, may_step):  # type: ignore[no-untyped-def]
        yield from ()
        return Finding(Verdict.EXACT, candidate.offset, 0, 0)

    monkeypatch.setattr(carried, "search", trusting)
    monkeypatch.setattr(carried, "turns_before", no_turns)  # it asks the same search
    assert finds(partial(try_seeds, name="carried"), blocks(0, 1000, 50), "skips", at_least=3)


# ---------------------------------------------------------------- two clusters that mirror each other


OWN_LIVE = "syncs of this mirror, live"


@pytest.fixture(scope="module")
def two_ways(thorough: bool, jobs: int) -> Tally:
    cases = THOROUGHLY if thorough else 700
    return add_up(partial(try_seeds, name="both-ways"), blocks(0, cases), Tally(), jobs)


def test_syncs_of_another_mirror_skip_nothing_and_its_own_are_not_doubted(two_ways: Tally) -> None:
    assert not two_ways.broken, two_ways.text()


def test_either_mirror_was_restarted_and_sent_again(two_ways: Tally) -> None:
    again = {kind for kind, _ in two_ways.verdicts if kind.endswith(", sent again")}
    assert again == {f"syncs {owner}, sent again" for owner in both_ways.WORDS}


def test_a_mirror_that_delivers_records_as_they_come_is_believed(two_ways: Tally) -> None:
    live = {verdict: count for (kind, verdict), count in two_ways.verdicts.items() if kind == OWN_LIVE}
    exact = live.get(Verdict.EXACT.value, 0)
    assert sum(live.values()) > two_ways.trials / 8
    assert exact > 0.3 * sum(live.values())


def test_few_places_are_right_by_chance(two_ways: Tally) -> None:
    """These logs are short: a place of the other mirror's may happen to fit."""
    chance = sum(count for (kind, _), count in two_ways.verdicts.items() if kind == "both ways, skips by chance")
    assert chance <= 0.003 * two_ways.trials  # measured over 9,000 seeds: 0.0008


@pytest.mark.thorough
def test_syncs_that_nothing_confirms_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncs, "confirmed_syncs", lambda pairs, *_: usable_syncs(pairs.syncs))
    assert finds(partial(try_seeds, name="both-ways"), blocks(900, 1100, 50), "skips", at_least=2)


# ---------------------------------------------------------------- a source topic that was recreated


def test_numbers_of_a_topic_that_was_recreated_skip_nothing_where_a_larger_one_is_left(
    thorough: bool, jobs: int
) -> None:
    cases = THOROUGHLY if thorough else 200
    tally = add_up(partial(try_seeds, name="renewed"), blocks(0, cases), Tally(), jobs)
    assert not tally.broken, tally.text()
    assert {kind for kind, _ in tally.verdicts} >= {
        *("renewed", "renewed, nothing shows it"),
        *("renewed, number of the old topic", "renewed, number of the new topic"),
    }


@pytest.mark.thorough
def test_a_record_that_is_newer_than_a_pair_of_a_larger_number_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_pairs, "_denied", lambda *_: None)
    assert finds(partial(try_seeds, name="renewed"), blocks(0, 1000, 50), "skips", at_least=3)


@pytest.mark.thorough
def test_records_that_are_newer_than_the_row_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def believing(_: object, finding: Finding):  # type: ignore[no-untyped-def]
        yield from ()
        return finding

    monkeypatch.setattr(reconcile, "judge_by_row_age", believing)
    assert finds(partial(try_seeds, name="renewed"), blocks(0, 600, 50), "passes")


def test_numbers_that_records_carry_skip_nothing_where_they_begin_again(thorough: bool, jobs: int) -> None:
    cases = THOROUGHLY if thorough else 200
    tally = add_up(partial(try_seeds, name="renewed-carried"), blocks(0, cases), Tally(), jobs)
    assert not tally.broken, tally.text()
    assert ("renewed, carried, shown", "unresolved") in tally.verdicts


@pytest.mark.parametrize("seed", [13_349, 20_642], ids=["in front of a wide gap", "among six restarts"])
def test_a_recreated_topic_whose_numbers_begin_again_is_unresolved(seed: int) -> None:
    (trial,) = renewed_carried.try_seed(seed)
    assert "renewed, carried, shown" in trial.kinds
    assert (trial.verdict, trial.broken) == ("unresolved", ())


@pytest.mark.thorough
def test_looking_for_numbers_that_begin_again_in_front_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried, "turns_before", no_turns)
    assert finds(partial(try_seeds, name="renewed-carried"), blocks(450, 1050, 50), "skips", at_least=3)
