"""The quick campaign: some thousand random failovers, and not one promise broken.

The long one is a command: python -m tests.simulation.campaign random --cases 1000000 --first-seed 12345
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from reconciler.core import resent, search, timebound
from reconciler.core.matching import Matcher
from reconciler.core.verdicts import Verdict
from tests.simulation.campaign import add_up, blocks, finds, main, try_seeds
from tests.simulation.oracle import replayed, skipped
from tests.simulation.tally import Tally, at_share
from tests.simulation.worlds import mirrored, own, spreads
from tests.simulation.worlds.carrying import answer, carry_out
from tests.simulation.worlds.cases import Case
from tests.simulation.worlds.making import make_case


@pytest.fixture(scope="module")
def seeds(thorough: bool) -> int:
    return 30_000 if thorough else 1_500


@pytest.fixture(scope="module")
def campaign(seeds: int, jobs: int) -> Tally:
    return add_up(try_seeds, blocks(0, seeds), Tally(), jobs)


def test_nothing_is_skipped_and_every_bound_holds(campaign: Tally, seeds: int) -> None:
    assert campaign.trials > seeds
    assert not campaign.broken, campaign.text()


def test_no_search_asks_more_than_a_logarithm_outside_of_its_scans(campaign: Tally) -> None:
    assert not campaign.over_limit, campaign.text()


def test_the_median_ordinary_search_takes_three_probes(campaign: Tally, seeds: int) -> None:
    assert campaign.ordinary.total() > seeds / 300
    assert at_share(campaign.ordinary, 0.5) <= 3


def test_something_can_always_be_proven_where_anything_is_known(campaign: Tally) -> None:
    """Of a job without anchors and a mirror without pairs nothing is known."""
    assert campaign.verdicts["", Verdict.UNRESOLVED.value] == campaign.verdicts["bare", Verdict.UNRESOLVED.value]


def test_every_ill_was_tried(campaign: Tally) -> None:
    tried = {kind for kind, _ in campaign.verdicts}
    assert tried >= {
        *("monotone", "ties", "one time", "bounded", "unbounded", "future", "clock back", "payload time"),
        *("payload time, deletions", "payload time, written again"),
        *("LogAppendTime", "compacted", "expired", "markers", "aborted", "sent again", "local writers among"),
        *("local writers after", "anchor lags", "recreated", "cut and written again", "other partitions"),
    }


def test_the_same_seed_is_the_same_world_and_gets_the_same_answer() -> None:
    for seed in range(100):
        for family in (mirrored, own, spreads):
            assert family.describe(seed) == family.describe(seed)


# ---------------------------------------------------------------- the campaign itself


@pytest.mark.thorough
def test_a_search_that_resumes_after_the_last_copy_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign must detect the mistake that this product exists to avoid."""
    land_right = search._found

    def land_late(case, replay, copy, resume, record_offset, *more):  # type: ignore[no-untyped-def]
        return land_right(case, replay, copy, resume + 1, record_offset, *more)

    monkeypatch.setattr(search, "_found", land_late)
    assert finds(partial(try_seeds, name="mirrored"), blocks(0, 500, 50), "skips", at_least=3)


@pytest.mark.thorough
def test_taking_a_record_that_its_producer_wrote_again_for_a_copy_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an id that no two records share tells the two, and these worlds have none."""
    monkeypatch.setattr(Matcher, "tells_copies", True)
    monkeypatch.setattr(timebound, "WHOLE", 0)  # else these small logs are read from their start
    monkeypatch.setattr(timebound, "NEAR", 1)
    seeds = blocks(0, 2000, 50)
    assert finds(partial(try_seeds, name="mirrored"), seeds, "skips")
    assert finds(partial(try_seeds, name="mirrored"), seeds, "replays", at_least=3)


@pytest.mark.thorough
def test_a_search_that_promises_too_little_replay_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_found", _boastful(search._found))
    assert finds(try_seeds, blocks(0, 500, 50), "replays", at_least=3)


def _boastful(found):  # type: ignore[no-untyped-def]
    return lambda *parts: replace(found(*parts), replay_at_most=0, replay_exact=0)


def test_a_failing_seed_replays_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(search, "_found", _boastful(search._found))
    seed, sentence = try_seeds(range(500)).failures[0]
    assert main(["seed", str(seed)]) == 1
    assert f"BROKEN: {sentence}" in capsys.readouterr().out


def test_the_oracle_counts_by_hand() -> None:
    case = next(_with_a_skip_to_count())
    world = carry_out(case)
    finding = answer(case, world)
    late = replace(finding, resume_offset=max(world.held) + 1)
    early = replace(finding, resume_offset=0, record_offset=None)
    assert len(skipped(case, world, late)) == sum(index > case.processed for index in world.held.values())
    assert replayed(case, world, early) == sum(0 <= index <= case.processed for index in world.held.values())
    assert skipped(case, world, early) == []
    assert replayed(case, world, late) == 0


def _with_a_skip_to_count() -> Iterator[Case]:
    for seed in range(1000):
        case = make_case(seed)
        if not case.local and not case.among and case.deleted == case.cleaned == 0 and case.sent > case.processed + 3:
            yield case


# ---------------------------------------------------------------- mirrors that restart often


@pytest.fixture(scope="module")
def restarted(thorough: bool, jobs: int) -> Tally:
    cases = 30_000 if thorough else 600
    return add_up(partial(try_seeds, name="resent"), blocks(0, cases), Tally(), jobs)


def test_what_a_restarted_mirror_sent_again_is_stepped_over_and_nothing_is_skipped(restarted: Tally) -> None:
    assert not restarted.broken, restarted.text()
    aborted = sum(count for (kind, _), count in restarted.verdicts.items() if kind == "resent, aborted ones read")
    assert aborted > restarted.trials / 10


def test_after_complete_re_sends_nothing_repeats_that_need_not(restarted: Tally) -> None:
    complete, best = (
        sum(count for (found, _), count in restarted.verdicts.items() if found == kind)
        for kind in ("resent, complete", "resent, complete, nothing repeats that need not")
    )
    assert complete > restarted.trials / 8
    assert best >= 0.95 * complete


@pytest.mark.thorough
def test_stepping_over_records_that_do_not_come_again_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resent._Tail, "barrier", lambda _: (None, {}))
    assert finds(partial(try_seeds, name="resent"), blocks(0, 500, 50), "skips", at_least=3)


def test_taking_records_of_an_older_time_for_processed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resent, "_look_in_front", _all_there)
    assert finds(partial(try_seeds, name="resent"), blocks(0, 2000, 50), "skips")


def _all_there(*_: object):  # type: ignore[no-untyped-def]
    yield from ()
    return set()
