"""Plans to be shown: ordinary ones of any size, one of every ending, and one whose every text is hostile."""

from __future__ import annotations

from dataclasses import replace

from reconciler.cli.page.advice import Files
from reconciler.cli.page.page import page
from reconciler.core.verdicts import Verdict
from reconciler.plan.document import JobPlan, PartitionPlan, Plan, PlanAnchor, StartPolicy

V = Verdict
RLO = "\u202e"
FILES = Files("failover.plan.json", "reconciler.toml")


def html_of(made: Plan, policy: StartPolicy | None = None) -> str:
    """Its page."""
    return page(made, policy or StartPolicy(), sha256="5e" * 32, files=FILES)


def row(
    partition: int,
    verdict: Verdict = V.EXACT,
    *,
    stored: int | None = 4_514,
    anchor: int | None = 4_513,
    resume: int | None = 3_679,
    record: int | None = 3_678,
    at_most: int | None = 0,
    exact: int | None = None,
    by: str | None = "id",
    detail: str = "the anchor is at offset 3678 here",
    topic: str = "a.events",
    **more: object,
) -> PartitionPlan:
    """One partition as the search would have found it."""
    known = None
    if anchor is not None:
        known = PlanAnchor(anchor, 1_767_225_600_123, "4046d7935d63ce7bedd1898040e076c3", "00ffa7c24bd01a5e")
    found = PartitionPlan(
        source_topic="events",
        topic=topic,
        topic_id="6Wk2yVnJQ2mYc0o3m2T4RA",
        partition=partition,
        stored_offset=stored,
        anchor=known,
        finding=verdict,
        resume_offset=resume,
        replay_at_most=at_most if resume is not None else None,
        replay_exact=exact if exact is not None else (0 if at_most == 0 and resume is not None else None),
        matched_by=by,
        record_offset=record,
        probes=7,
        rounds=2,
        detail=detail,
    )
    return replace(found, **more)  # type: ignore[arg-type]


def plan(*jobs: JobPlan) -> Plan:
    return Plan(
        "0.1.0",
        "2026-11-22T03:00:00Z",
        "2026-11-22T04:00:00Z",
        "a",
        "b",
        "MkU3OEVBNTcwNTJENDM2Qk",
        "kafka-b-1:9092,kafka-b-2:9092",
        "Zm9vYmFyYmF6cXV4MTIzNA",
        jobs,
    )


def job(*rows: PartitionPlan, name: str = "clicks", store: str = "sqlite:////srv/clicks/offsets.db") -> JobPlan:
    return JobPlan(name, name, store, rows)


def all_moved() -> Plan:
    """Four partitions, nothing to decide: the demo's."""
    places = [(4_514, 3_679), (4_470, 3_612), (4_502, 3_669), (4_581, 3_737)]
    rows = [
        row(n, stored=stored, anchor=stored - 1, resume=there, record=there - 1, detail=f"the anchor is at {there - 1}")
        for n, (stored, there) in enumerate(places)
    ]
    return plan(job(*rows))


def every_ending() -> Plan:
    """Two jobs, all ten verdicts, four partitions that need a decision, one that has been decided."""
    clicks = job(
        row(0),
        row(1, V.EXACT, stored=812, anchor=811, resume=812, record=811, detail="the anchor is at its own offset"),
        row(2, V.EARLY, stored=5_200, anchor=4_513, at_most=686, detail="the anchor is 686 offsets older"),
        row(3, V.EARLY, by="timestamp", at_most=12, detail="3 records have the anchor's time"),
        row(4, V.NEW, stored=None, anchor=None, resume=0, record=None, by=None, detail="no stored offset"),
        row(5, V.BEHIND, resume=2_900, record=2_899, by=None, detail="the destination stops before the anchor"),
        row(6, V.LOST, resume=9_000, record=None, by=None, detail="the oldest record is newer than the anchor"),
        row(7, V.EARLY, at_most=42_000_000, by=None, detail="the anchor was not found within scan_records"),
        row(8, V.UNRESOLVED, anchor=None, resume=None, record=None, by=None, detail="stored without an anchor"),
        row(
            9,
            V.LOST,
            resume=9_100,
            record=9_099,
            at_most=0,
            by=None,
            set_by_hand=True,
            detail="accepted by hand: the oldest record is newer than the anchor",
        ),
    )
    sums = job(
        row(
            0, V.UNRESOLVED, topic="a.orders", resume=None, record=None, by=None, detail="it has no topic", absent=True
        ),
        row(1, V.EARLY, topic="a.orders", at_most=150_000, by=None, detail="partition counts differ"),
        row(2, topic="a.orders", at_most=40, exact=40, detail="40 records were sent again"),
        name="sums",
        store="postgresql://db.example/sums?table=offsets",
    )
    return plan(clicks, sums)


def many(partitions: int = 5_000, jobs: int = 4) -> Plan:
    """As many partitions as that, of every likely verdict; every 500th needs a decision."""
    made = []
    for number in range(jobs):
        rows = []
        for at in range(partitions // jobs):
            place = number * (partitions // jobs) + at
            base = 1_000_000 + 7_919 * place
            words = {"stored": base, "anchor": base - 1, "resume": base - 835, "record": base - 836}
            kind, most = V.EXACT, 0
            if place % 500 == 3:
                kind, words["resume"], words["record"] = V.UNRESOLVED, None, None
            elif place % 11 == 5:
                kind, most, words["anchor"] = V.EARLY, place % 1_700, base - 1 - place % 1_700
            elif place % 3 == 0:
                kind, words["resume"], words["record"] = V.EXACT, base, base - 1
            detail = f"the anchor is at offset {base - 836} here; the log was whole up to it"
            if kind is V.UNRESOLVED:
                words["anchor"], detail = None, "stored without an anchor: nothing says which record this is"
            by = None if kind is V.UNRESOLVED else "id"
            rows.append(row(at, kind, at_most=most, by=by, detail=detail, topic=f"a.events-of-{number}", **words))
        made.append(job(*rows, name=f"job-{number}"))
    return plan(*made)


PLANTED = "window.planted=1"
MARKUP = f"</script><script>{PLANTED}</script><img src=x onerror={PLANTED}>\"'><svg onload={PLANTED}>"


def hostile() -> Plan:
    """Every text that a plan has, as an attacker would write it."""
    rows = [
        row(
            0, V.UNRESOLVED, resume=None, record=None, topic=MARKUP, detail=MARKUP, source_topic=MARKUP, topic_id=MARKUP
        ),
        row(1, V.LOST, topic=f"safe{RLO}cod.topic", detail=f"one{RLO}two\x1b[31m\x00\u2028three\ud800"),
        row(2, V.LOST, topic="x" * 40_000, detail="y" * 40_000),
        row(3, V.LOST, topic="'; rm -rf ~; echo '\n$(id)`id`", detail="javascript:window.planted=1"),
        row(4, V.EXACT, topic="\u05d0\u05d1\u05d2 " + "e\u0301" * 3 + "\u4e2d\u6587", anchor=None),
    ]
    sealed = PlanAnchor(1, 10**18, MARKUP, MARKUP)
    rows[1] = replace(rows[1], anchor=sealed)
    made = plan(JobPlan(MARKUP, MARKUP, MARKUP, tuple(rows)), job(row(0), name="\u200bclicks"))
    words = ("tool_version", "created_at", "expires_at", "source_name", "source_cluster_id", "bootstrap_servers")
    return replace(made, cluster_id=MARKUP, **dict.fromkeys(words, MARKUP))
