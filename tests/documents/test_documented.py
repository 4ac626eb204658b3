"""Nothing that a person can type, configure or read off is left out of the documents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.main import COMMANDS, module_of
from reconciler.config.file import load_config
from reconciler.config.table import Table
from reconciler.core.verdicts import Verdict
from tests import ROOT
from tests.documents import generate, metrics_page

DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "deploy").rglob("*.md"))]
MOST_WORDS = {
    "docs/how-to": 1_200,
    "docs/how-to/alerts.md": 1_450,
    "docs/decisions": 250,
    "README.md": 1_200,
}
"""By page or folder; 2,500 for others."""
ALL_WORDS = 50_000
WHOLE = """
[clusters.a]
[clusters.b]
bootstrap_servers = "b:9092"
[topics]
[search]
[policy]
[trust]
[watch]
[metrics]
[[jobs]]
home = "a"
name = "clicks"
topics = ["events"]
offsets = "memory:"
[jobs.identity]
"""


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, head: str) -> str:
    """The text under a heading of the second level."""
    found = re.search(rf"^## {re.escape(head)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, f"the page has no section ## {head}"
    return found[1]


@pytest.mark.parametrize("path", generate.pages(), ids=lambda path: path.stem)
def test_what_comes_from_the_code_is_as_in_the_code(path: Path) -> None:
    """If this fails: ``python -m tests.documents.generate``, and read the diff."""
    text = path.read_text("utf-8")
    assert generate.filled(text, generate.parts()) == text


@pytest.mark.parametrize("name", COMMANDS)
def test_options_that_are_explained_once_say_which_commands_take_them(name: str) -> None:
    parsers = [parser for _, parser in generate.parsers_of(name)]
    taken = {spelling for each in parsers for option in generate.options_of(each) for spelling in option.option_strings}
    rows = re.findall(r"^\| `(--[\w-]+).*?` \| (`.*?) \|", page("reference/commands.md"), re.MULTILINE)
    assert len(rows) > 5
    assert {option for option, commands in rows if f"`{name}`" in commands} == taken & {option for option, _ in rows}


def test_every_module_of_a_command_is_in_the_groups() -> None:
    """A module without ``HELP`` is a part of another one's command."""
    folder = ROOT / "reconciler" / "cli" / "commands"
    found = {path for path in folder.glob("*.py") if re.search(r"^HELP = ", path.read_text("utf-8"), re.MULTILINE)}
    named = {ROOT.joinpath(*module_of(name).split(".")).with_suffix(".py") for name in COMMANDS}
    assert found == named, "GROUPS of reconciler/cli/main.py"


def test_every_command_is_in_the_reference() -> None:
    pages = [path.read_text("utf-8") for path in (DOCS / "reference" / "commands").glob("*.md")]
    heads = [head for text in pages for head in re.findall(r"^## ([a-z-]+)\n\n<!--\1-->$", text, re.MULTILINE)]
    assert sorted(heads) == sorted(COMMANDS)


def test_the_findings_are_listed_from_best_to_worst() -> None:
    rows = page("reference/findings.md").partition("| finding |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE) == [each.value for each in sorted(Verdict)]


def test_details_that_a_page_explains_are_details() -> None:
    """Of ``unresolved``: each has its way out there."""
    rows = section(page("how-to/decide-by-hand.md"), "unresolved")
    explained = re.findall(r"^\| (?!detail|---)(.*?) \|", rows, re.MULTILINE)
    assert len(explained) > 3
    texts = [path.read_text("utf-8") for path in (ROOT / "reconciler").rglob("*.py")]
    parts = [part for each in explained for part in each.split("…") if part.strip()]
    unknown = [part for part in parts if not any(part.strip() in text for text in texts)]
    assert not unknown, f"docs/how-to/decide-by-hand.md: {unknown}"


def test_every_configuration_key_is_in_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[tuple[str, str]] = set()
    take = Table.take

    def noted(table: Table, key: str, *details: Any, **more: Any) -> Any:
        asked.add((table._name.replace("jobs clicks", "jobs"), key))
        return take(table, key, *details, **more)

    monkeypatch.setattr(Table, "take", noted)
    path = tmp_path / "reconciler.toml"
    path.write_text(WHOLE)
    load_config(path, {})
    asked = {(re.sub(r"^clusters\..*", "clusters", table), key) for table, key in asked if table != "clusters"}
    reference = page("reference/configuration.md")
    missing = []
    for table, key in sorted(asked):
        rows = section(reference, "[[jobs]]" if table == "jobs" else f"[{table}]") if table else reference
        named = f"`{key}`" in rows if table else f"[{key}]" in rows
        missing += [] if named else [(table, key)]
    assert not missing
    heads = re.findall(r"^## \[+([a-z.]+)\]+$", reference, re.MULTILINE)
    assert set(heads) == {key for table, key in asked if not table} | {"jobs.identity"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_can_be_read_at_once(path: Path) -> None:
    name = path.relative_to(ROOT)
    most = MOST_WORDS.get(str(name), MOST_WORDS.get(str(name.parent), 2_500))
    assert len(path.read_text("utf-8").split()) <= most


def test_all_pages_together_are_short() -> None:
    assert sum(len(path.read_text("utf-8").split()) for path in PAGES if path.name != "changes.md") <= ALL_WORDS


def test_every_page_is_in_the_index() -> None:
    index = page("index.md")
    links = set(
        re.findall(r"\]\(([^)#]+\.md)", index + page("reference/stores.md").replace("(stores/", "(reference/stores/"))
    )
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert pages - links == {"index.md"}


def slug(head: str) -> str:
    """As forges make a heading's address: lower case, no marks, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", head.strip().lower().replace("`", "")).replace(" ", "-")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, head = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists():
            broken.append(link)
        elif head:
            heads = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            broken += [] if head in {slug(each) for each in heads} else [link]
    assert not broken


def test_every_threat_names_tests_that_are_there() -> None:
    text = (DOCS / "explanation" / "security.md").read_text(encoding="utf-8")
    table = text.partition("## Threats, and the tests")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    for row in rows:
        named, path = re.findall(r"`([\w/.]*)::(test_\w+)`", row), ""
        assert named, row
        for file, test in named:
            path = file or path
            assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{test}"


def test_every_metric_is_in_the_reference() -> None:
    text = page("reference/metrics.md")
    assert [each.name for each in metrics_page.metrics() if f"`{each.name}" not in text] == []
