"""The page's table: a row a partition, those that need a decision first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reconciler.cli.page.advice import Files, row_steps
from reconciler.cli.page.picture import Scale, axis, picture
from reconciler.cli.page.style import text
from reconciler.cli.terminal.report import place_name, replay_text, tone_of
from reconciler.clock import stamp
from reconciler.formats.plan import JobPlan, PartitionPlan, PlanAnchor, StartPolicy, why_stopped

LONGEST_NAME = 300
MOST_OPEN = 5
"""So many partitions that need a decision have their details open when the page is."""

_HEADS = (
    ("partition", "", "Partition"),
    ("job", "j", "Job"),
    ("verdict", "c", "Verdict"),
    ("stored", "n", "Stored"),
    ("resume", "n", "Resume"),
    ("again", "n", "Read again"),
    ("proof", "y", "Found by"),
)
_FOUND_BY = {"id": "id", "fingerprint": "fingerprint", "timestamp": "time", None: "–"}


@dataclass(frozen=True, slots=True)
class Shown:
    """A partition with its job and, if it must not start, the reason."""

    row: PartitionPlan
    job: JobPlan
    job_number: int
    stopped: str | None

    @property
    def changes(self) -> bool:
        """True if the number the job starts at is another one than the stored one."""
        return self.row.resume_offset is not None and self.row.resume_offset != self.row.stored_offset


def shown_rows(jobs: Sequence[JobPlan], policy: StartPolicy) -> list[Shown]:
    """Those that need a decision first, then by verdict, the worst first; else as the plan has them."""
    rows = [
        Shown(row, job, number, why_stopped(row, policy)) for number, job in enumerate(jobs) for row in job.partitions
    ]
    return sorted(rows, key=lambda each: (each.stopped is None, -each.row.verdict.badness))


def table(rows: Sequence[Shown], policy: StartPolicy, files: Files, *, several_jobs: bool) -> str:
    """The whole table, as it stands without a script."""
    scale = Scale.of(each.row for each in rows)
    heads = "".join(_head(*head) for head in _HEADS)
    stopped = sum(each.stopped is not None for each in rows)
    body = "".join(
        _row(each, policy, files, scale, is_open=each.stopped is not None and stopped <= MOST_OPEN) for each in rows
    )
    jobs = " jobs" if several_jobs else ""
    return (
        f'<table class="rows{jobs}" id="rows" role="table"><caption class="away">Partitions, those that need a '
        'decision first</caption><thead role="rowgroup"><tr role="row">'
        f'{heads}<th class="g" role="columnheader"><span class="away">Picture</span>{axis(scale, policy.max_replay)}'
        f'</thead>\n<tbody role="rowgroup">\n{body}</tbody></table>'
    )


def _head(key: str, kind: str, name: str) -> str:
    first = ' aria-sort="descending"' if key == "verdict" else ""
    kind = f' class="{kind}"' if kind else ""
    return f'<th scope="col" role="columnheader"{kind} data-sort="{key}"{first}>{name}'


def _row(each: Shown, policy: StartPolicy, files: Files, scale: Scale, *, is_open: bool) -> str:
    row = each.row
    kinds = " ".join(kind for kind, is_so in (("p", each.stopped), ("c", each.changes)) if is_so)
    hand = '<span class="hand">by hand</span>' if row.set_by_hand else ""
    cells = (
        f'<th scope=row role=rowheader>{text(place_name(row), LONGEST_NAME)}<td role=cell class="j">'
        f'{text(each.job.name, 80)}<td role=cell class="c"><span class="v {tone_of(row, policy)}">'
        f'{row.verdict.value}</span>{hand}<td role=cell class="n a1">{_number(row.stored_offset)}'
        f'<td role=cell class="n a2">{_number(row.resume_offset)}<td role=cell class="n a3">{_again(row)}'
        f'<td role=cell class="y">{_FOUND_BY.get(row.matched_by, "–")}'
    )
    numbers = zip("sra", (row.stored_offset, row.resume_offset, row.replay_at_most), strict=True)
    data = "".join(f' data-{name}="{_data(value)}"' for name, value in numbers)
    drawn = picture(row, scale, stopped=each.stopped is not None)
    return (
        f'<tr role=row class="{kinds}" data-v={row.verdict.badness} data-j={each.job_number}{data}>'
        f'{cells}<td role=cell class="g">{drawn}<td role=cell class="d">'
        f"<details{' open' if is_open else ''}><summary>{text(row.detail)}</summary>"
        f'<div class="more">{"".join(_more(each, files))}</div></details>\n'
    )


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _again(row: PartitionPlan) -> str:
    return "–" if row.replay_at_most is None else text(replay_text(row))


def _data(value: int | None) -> str:
    return "" if value is None else f"{value:d}"


def _more(each: Shown, files: Files) -> Iterator[str]:
    row = each.row
    if each.stopped is not None:
        yield f'<p><strong class="bad">Needs a decision:</strong> {text(each.stopped)}.'
        for step in row_steps(row, each.job, files):
            yield f"<p>{text(step.said)}{command_box(step.command)}"
    names = f"From topic {text(row.source_topic, LONGEST_NAME)}. " if row.source_topic != row.topic else ""
    yield f"<p>{names}{_anchor(row.anchor, row.stored_offset)}"
    yield (
        f"<p>Looked for with {row.probes:,} {'probe' if row.probes == 1 else 'probes'} in {row.rounds:,} "
        f"{'round' if row.rounds == 1 else 'rounds'}."
    )


def command_box(line: str | None) -> str:
    """A command in a box of its own, to which the script adds a button."""
    return f'<div class="command"><pre><code>{text(line, 20_000)}</code></pre></div>' if line else ""


def _anchor(anchor: PlanAnchor | None, stored: int | None) -> str:
    if anchor is None:
        return "Nothing is stored." if stored is None else "Stored without an anchor."
    known = []
    if anchor.offset is not None:
        known.append(f"offset {anchor.offset:,} in stored numbers")
    if anchor.timestamp_ms is not None:
        known.append(f"time {_time(anchor.timestamp_ms)}")
    if anchor.id_hash is not None:
        known.append(f"id with hash <code>{text(anchor.id_hash)}</code>")
    if anchor.fingerprint is not None:
        known.append(f"fingerprint <code>{text(anchor.fingerprint)}</code>")
    return f"Anchor: {', '.join(known) or 'says only whose numbers these are'}."


def _time(epoch_ms: int) -> str:
    try:
        return f"{stamp(epoch_ms)[:-1]}.{epoch_ms % 1000:03d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms:,} ms"
