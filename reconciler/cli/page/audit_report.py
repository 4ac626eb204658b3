"""An audit's result as a text table, and as one HTML page: no network, no script, readable in light and dark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.page.style import document, text
from reconciler.cli.terminal.table import Cell, render
from reconciler.cli.terminal.text import fold, visible

if TYPE_CHECKING:
    from reconciler.spark.audit.result import AuditResult, Example, PartitionResult

HEADS = ("partition", "stored", "resume", "lost", "possibly", "doubled", "announced", "beyond", "reordered")
EXAMPLES_IN_TEXT = 10
_BAD = frozenset({"lost", "possibly_lost", "doubled_beyond", "reordered"})
_SHOWN = ("lost", "possibly_lost", "doubled", "doubled_as_announced", "doubled_beyond", "reordered")


def audit_text(result: AuditResult, *, columns: int, colour: bool) -> str:
    """A row a partition, then examples, then what was compared and what could not be known."""
    rows = [_cells(row, result) for row in result.partitions]
    table = render(HEADS, rows, right=frozenset(range(1, len(HEADS))), columns=columns, colour=colour)
    shown = [_told(_example(example), columns) for example in result.examples[:EXAMPLES_IN_TEXT]]
    if len(result.examples) > len(shown):
        shown.append(f"  … {len(result.examples) - len(shown):,} more in the JSON")
    parts = [table, fold(f"{result.verdict}: {_sum(result)}", columns, indent="  ")]
    parts += ["\n".join(["for example:", *shown])] if shown else []
    parts += ["\n".join(["compared:", *(_told(said, columns) for said in result.compared)])]
    parts += ["\n".join(["not known:", *(_told(said, columns) for said in result.unknown)])] if result.unknown else []
    return "\n\n".join(parts)


def _told(said: str, columns: int) -> str:
    return fold(f"  {visible(said)}", columns, indent="    ")


def audit_page(result: AuditResult) -> str:
    """The whole page. Every name and sentence is escaped."""
    heads = "".join(f'<th scope="col"{" class=n" if index else ""}>{text(head)}' for index, head in enumerate(HEADS))
    rows = "".join(_html_row(row, result) for row in result.partitions)
    examples = "".join(f"<li>{text(_example(example))}" for example in result.examples)
    tone = "good" if result.verdict == "clean" else "bad"
    source = result.source_cluster_id or "not compared"
    body = (
        f'<header class="verdict {tone}"><h1>{text(result.verdict)}</h1><p>Audit of {text(result.job)}, '
        f"{text(result.created_at)}; source <code>{text(source)}</code>, destination "
        f"<code>{text(result.destination_cluster_id)}</code>, {text(result.semantics)}. {text(_sum(result))}</p>"
        f'</header><main><h2>Partitions</h2><div class="wide"><table class="plain"><thead><tr>{heads}</thead>'
        f"<tbody>{rows}</tbody></table></div>{_html_list('Compared', result.compared)}"
        f"{_html_list('Not known', result.unknown)}"
        f"{f'<h2>Examples</h2><ul>{examples}</ul>' if examples else ''}</main>"
    )
    return document(f"{result.verdict} · reconciler audit", body)


def _sum(result: AuditResult) -> str:
    totals = result.totals
    doubled = f"{totals['doubled']:,} doubled ({totals['doubled_as_announced']:,} of them announced by the plan)"
    possibly = f", {totals['possibly_lost']:,} possibly lost" if totals["possibly_lost"] else ""
    return f"{totals['lost']:,} lost{possibly}, {doubled}, {totals['reordered']:,} reordered."


def _figures(row: PartitionResult, result: AuditResult) -> list[tuple[str, str | None]]:
    """Texts with their tones; a dash where nothing was compared."""
    judged = {"reordered": _judges_order(result), "lost": _judges_loss(result), "possibly_lost": result.has_output}
    shown: list[tuple[str, str | None]] = []
    for name in _SHOWN:
        count = row.figures[name]
        if not judged.get(name, True):
            shown.append(("-", None))
        else:
            shown.append((f"{count:,}", "bad" if count and name in _BAD else ("dim" if not count else None)))
    return shown


def _judges_loss(result: AuditResult) -> bool:
    return result.has_output or result.source_cluster_id is not None


def _judges_order(result: AuditResult) -> bool:
    return any(said.startswith("reordered:") for said in result.compared)


def _name(row: PartitionResult) -> str:
    return row.topic if row.partition is None else f"{row.topic}-{row.partition}"


def _offsets(row: PartitionResult) -> list[str]:
    return ["-" if offset is None else f"{offset:,}" for offset in (row.stored_offset, row.resume_offset)]


def _cells(row: PartitionResult, result: AuditResult) -> list[Cell]:
    tone = "good" if row.is_clean else "bad"
    figures = [Cell(text, None if tone == "dim" else tone) for text, tone in _figures(row, result)]
    return [Cell(_name(row), tone), *(Cell(text) for text in _offsets(row)), *figures]


def _html_row(row: PartitionResult, result: AuditResult) -> str:
    figures = "".join(f'<td class="{_class(tone)}">{text(said)}' for said, tone in _figures(row, result))
    offsets = "".join(f"<td class=n>{text(said)}" for said in _offsets(row))
    return f"<tr><td class={'good' if row.is_clean else 'bad'}>{text(_name(row))}{offsets}{figures}"


def _class(tone: str | None) -> str:
    return "n bad" if tone == "bad" else "n"


def _html_list(head: str, sentences: tuple[str, ...]) -> str:
    items = "".join(f"<li>{text(said)}" for said in sentences)
    return f"<h2>{text(head)}</h2><ul>{items}</ul>" if items else ""


def _example(example: Example) -> str:
    places = []
    if example.source_offset is not None:
        places.append(f"{example.source_topic}:{example.source_partition} at {example.source_offset:,} of the source")
    if example.destination_offset is not None:
        places.append(
            f"{example.topic}:{example.destination_partition} at {example.destination_offset:,} of the destination"
        )
    where = ", ".join(places) or f"of {example.source_topic}"
    often = f", {example.count:,} times" if example.count > 1 else ""
    hashed = f", id {example.id_hash}" if example.id_hash else ""
    return f"{example.kind.replace('_', ' ')}: {where}{often}{hashed}"
