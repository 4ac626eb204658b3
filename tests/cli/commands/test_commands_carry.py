"""Moving anchors between stores, and handing plans to Spark and to people."""

from __future__ import annotations

import io
import json
import re
import shutil
from html.parser import HTMLParser

import pytest

from reconciler.core.anchors import StoredOffset
from tests.world import BASE, World, run_process, source_record

pytestmark = pytest.mark.system


def content(world: World, address: str | None = None) -> list[object]:
    return [(row.key, row.stored.offset, row.stored.anchor) for row in world.rows(address)]


# ---------------------------------------------------------------- anchors


@pytest.fixture
def full(world: World) -> World:
    """A store with an anchored row, a bare one and a sentinel; none of it needs a cluster."""
    world.save({0: source_record(5).stored, 1: StoredOffset(BASE + 9, None, 1_700_000_000_000), 2: StoredOffset(-1)})
    return world


def test_anchors_go_to_a_file_and_into_another_store(full: World) -> None:
    other, lines = f"sqlite:///{full.folder / 'other.db'}", full.folder / "anchors.jsonl"
    exported = full.run("anchors", "export", "-c", full.config(), lines)
    assert (exported.code, exported.out) == (0, ""), exported.output
    assert "3 rows written to" in exported.err
    config = full.config(full.job(store=other))
    imported = full.run("anchors", "import", "-c", config, lines)
    assert (imported.code, imported.out) == (0, "")
    assert "3 rows written, 0 existed already." in imported.err
    assert content(full, other) == content(full)
    after = full.rows(other)
    again = full.run("anchors", "import", "-c", config, lines)
    assert (again.code, "0 rows written, 3 existed already." in again.err) == (0, True)
    assert full.rows(other) == after


@pytest.mark.parametrize("order", [("-c", "{c}", "{p}"), ("{p}", "-c", "{c}"), ("-c", "{c}", "--job", "clicks", "{p}")])
def test_the_path_may_stand_where_help_shows_it(full: World, order: tuple[str, ...]) -> None:
    path, config = full.folder / "anchors.jsonl", full.config()
    ended = full.run("anchors", "export", *(word.format(c=config, p=path) for word in order))
    assert ended.code == 0, ended.err
    assert len(path.read_text().splitlines()) == 3


def test_anchors_go_through_a_pipe(full: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = f"sqlite:///{full.folder / 'other.db'}"
    exported = full.run("anchors", "export", "-c", full.config())
    assert (exported.code, exported.err) == (0, "")
    rows = [json.loads(line) for line in exported.out.splitlines()]
    assert {row["format"] for row in rows} == {"reconciler.anchors/1"}
    assert [(row["topic"], row["partition"], row["stored_offset"]) for row in rows] == [
        (full.topic, 0, BASE + 6),
        (full.topic, 1, BASE + 9),
        (full.topic, 2, -1),
    ]
    assert [row["anchor"] is None for row in rows] == [False, True, True]
    monkeypatch.setattr("sys.stdin", io.StringIO(exported.out))
    assert full.run("anchors", "import", "-c", full.config(full.job(store=other))).code == 0
    assert content(full, other) == content(full)


def test_rows_that_differ_are_not_overwritten_unasked(full: World) -> None:
    lines = full.folder / "anchors.jsonl"
    config = full.config()
    lines.write_text(full.run("anchors", "export", "-c", config).out)
    wanted = content(full)
    full.save({0: source_record(8).stored})
    before = full.rows()
    refused = full.run("anchors", "import", lines, "-c", config)
    assert refused.code == 5
    assert f"{full.topic}-0 is stored already, with offset {BASE + 9}. Nothing was written." in refused.err
    assert "--replace" in refused.err
    assert full.rows() == before
    replaced = full.run("anchors", "import", lines, "-c", config, "--replace")
    assert (replaced.code, "1 row written, 2 existed already." in replaced.err) == (0, True)
    assert content(full) == wanted


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (lambda line: line | {"group": "others"}, 'No job of the configuration has group "others"'),
        (lambda line: line | {"offset": 1}, "Line 2 of the anchor lines: offset is not a field of this format"),
        (lambda line: line | {"format": "x/1"}, "Line 2 of the anchor lines: format is not 'reconciler.anchors/1'"),
    ],
)
def test_lines_that_do_not_belong_write_nothing(full: World, change, answer: str) -> None:
    lines, config = full.folder / "anchors.jsonl", full.config()
    first, second, _ = map(json.loads, full.run("anchors", "export", "-c", config).out.splitlines())
    lines.write_text("\n".join(map(json.dumps, (first, change(second)))) + "\n")
    full.save({0: source_record(8).stored})
    before = full.rows()
    ended = full.run("anchors", "import", lines, "-c", config, "--replace")
    assert ended.code == 2
    assert answer in ended.err
    assert full.rows() == before


# ---------------------------------------------------------------- showing a plan


@pytest.fixture
def planned(world: World) -> World:
    world.deliver(12, 6)
    world.save({0: source_record(5).stored})
    world.plan(world.config())
    return world


def test_show_prints_a_plan_as_sparks_starting_offsets(planned: World) -> None:
    ended = run_process("show", planned.plan_file, "--starting-offsets")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out) == {planned.mirrored: {"0": planned.offset_of(5) + 1, "1": 0}}


def test_show_prints_a_plan_as_a_table(planned: World) -> None:
    ended = planned.run("show", planned.plan_file)
    assert ended.code == 0
    assert f"for cluster {planned.cluster.cluster_id}" in ended.out
    assert "1 moved, 1 new" in ended.out
    assert "PARTITION" in ended.out


def test_offsets_that_were_not_proven_are_not_handed_out(world: World) -> None:
    world.deliver(6)
    world.save({0: StoredOffset(BASE + 4)})
    world.plan(world.config())
    ended = world.run("show", world.plan_file, "--starting-offsets")
    assert (ended.code, ended.out) == (4, "")
    assert "unresolved" in ended.err
    assert "--set TOPIC:PARTITION=OFFSET" in ended.err


def test_a_plan_of_several_jobs_must_be_told_which(world: World) -> None:
    world.deliver(6)
    world.processed(3)
    other = world.folder / "other.db"
    shutil.copy(world.address.removeprefix("sqlite:///"), other)
    world.plan(world.config(world.job("one"), world.job("two", store=f"sqlite:///{other}")))
    unsaid = world.run("show", world.plan_file, "--starting-offsets")
    assert (unsaid.code, unsaid.out) == (4, "")
    assert "Which job? The plan holds: one, two." in unsaid.err
    said = world.run("show", world.plan_file, "--starting-offsets", "--job", "two")
    assert json.loads(said.out) == {world.mirrored: {"0": world.offset_of(3) + 1}}
    table = world.run("show", world.plan_file, "--job", "two")
    assert "job two" in table.out
    assert "job one" not in table.out
    assert world.run("show", world.plan_file, "--job", "three").code != 0


def test_the_page_is_self_contained_and_its_names_are_escaped(world: World) -> None:
    class Page(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.tags: list[str] = []
            self.text = ""

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.tags.append(tag)

        def handle_data(self, data: str) -> None:
            self.text += data

    name = '<script>alert(1)</script> & "friends"'
    world.deliver(6)
    world.processed(3)
    world.plan(world.config(world.job(name)))
    file = world.folder / "plan.html"
    ended = world.run("show", world.plan_file, "--html", file)
    assert (ended.code, f"Written to {file}" in ended.out) == (0, True)
    html = file.read_text(encoding="utf-8")
    page = Page()
    page.feed(html)
    assert name in page.text
    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    assert page.tags.count("script") == 1  # its own, which the page's policy names by hash
    assert not re.search(r"https?://|@import|url\(", html)
    assert f"{world.mirrored}-0" in page.text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode_gets_the_result_all_the_same(world: World, encoding: str) -> None:
    world.deliver(60)
    record = source_record(5)
    world.save({0: StoredOffset(record.offset + 20, record.anchor)})  # a bound: it is shown with a sign for "at most"
    config = world.config()
    ended = run_process("check", "-c", config, PYTHONIOENCODING=encoding, COLUMNS="200")
    assert ended.code == 3, ended.output
    assert "1 bounded" in ended.out
    told = run_process("check", "-c", config, PYTHONIOENCODING="utf-8", COLUMNS="200")
    row, row_told = (
        next(each for each in one.out.splitlines() if f"{world.mirrored}-0 " in each) for one in (ended, told)
    )
    bound = re.search(r"≤ ([\d,]+)", row_told)
    assert bound is not None
    assert f"<={bound[1]}" in row
    assert len(row) == len(row_told)  # the columns stay where they are
    assert "?" not in ended.output


@pytest.mark.parametrize("arguments", [("init", "--help"), ("check", "--explain")], ids=" ".join)
def test_help_is_shown_on_a_terminal_without_unicode(arguments: tuple[str, ...]) -> None:
    ended = run_process(*arguments, PYTHONIOENCODING="ascii")
    assert (ended.code, ended.err) == (0, "")
    assert "..." in ended.out or "<=" in ended.out


def test_json_for_a_terminal_without_unicode_holds_the_same_values(world: World) -> None:
    world.deliver(6)
    world.processed(3)
    config = world.config(world.job("Öl"))
    ended = run_process("check", "-c", config, "--format", "json", PYTHONIOENCODING="ascii")
    assert [job["name"] for job in json.loads(ended.out)["jobs"]] == ["Öl"]
