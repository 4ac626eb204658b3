"""The content of a plan's page, without a browser."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
import subprocess
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reconciler.cli.main import main
from reconciler.cli.page.advice import MOST_SETS, next_steps, path_for_job, row_steps
from reconciler.cli.page.page import WIDEST, asset, bar, fill
from reconciler.cli.page.page import Markup as Safe
from reconciler.core.text import command
from reconciler.core.verdicts import Position, Skips
from reconciler.plan.document import NotJudged, Plan, StartPolicy, parse_plan
from reconciler.plan.rows import SinkOutcome, SinkRow
from tests.cli.page.shown_plans import FILES, MARKUP, V, all_moved, every_ending, hostile, html_of, job, many, plan, row


class Markup(HTMLParser):
    """The page as a browser's parser sees it: tags with their attributes, and the text outside of style and script."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] not in ("style", "script"):
            self.text.append(data)


def words(html: str) -> str:
    return re.sub(r"\s+", " ", " ".join(Markup(html).text))


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize("made", [all_moved(), hostile()], ids=["moved", "hostile"])
def test_style_and_script_are_named_by_hash_and_nothing_else_may_run_or_load(made: Plan) -> None:
    html = html_of(made)
    tags = Markup(html).tags
    policy = next(attrs["content"] for _, attrs in tags if "http-equiv" in attrs)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["trusted-types"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.S)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"
    assert not re.search(r"https?://|@import|url\(", html)
    for tag, attrs in tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert not {name for name in attrs if name.startswith("on") or name in ("style", "src", "xlink:href")}
        assert (attrs.get("href") or "#").startswith("#")


def test_every_hostile_text_is_text() -> None:
    html = html_of(hostile())
    assert MARKUP not in html
    assert MARKUP in "".join(Markup(html).text)
    assert [tag for tag, _ in Markup(html).tags if tag == "script"] == ["script"]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", html)
    assert r"safe\u202ecod.topic-1" in words(html)
    assert r"one\u202etwo\x1b[31m\x00\u2028three\ud800" in words(html)
    html.encode()  # a lone surrogate would not be a file


def test_a_template_escapes_every_value_that_is_not_markup() -> None:
    assert fill("step", text=MARKUP, command="") == "<li>" + escape(MARKUP)
    assert fill("step", text=fill("by_hand", words="<"), command="$x") == '<li><span class="hand">&lt;</span>$x'
    assert fill("step", text=Safe("<b>") + "<i>", command="") == "<li>&lt;b&gt;&lt;i&gt;", "a sum is plain text again"
    with pytest.raises(KeyError):
        fill("step", text="")


def test_a_text_that_never_ends_does_not_fill_the_page() -> None:
    html = html_of(hostile())
    assert len(html) < 300_000
    assert "more) …" in html
    assert f"{'x' * 100}-2" in html  # what tells partitions apart is at the end


def test_5000_partitions_are_a_file_that_can_be_sent() -> None:
    html = html_of(many())
    assert len(re.findall("<tr role=row ", html)) == 5_000
    assert len(html.encode()) < 4_500_000


# ---------------------------------------------------------------- what it says

LOST = plan(job(row(0, V.LOST)))
BOUNDED = plan(job(row(0, V.EARLY, at_most=50)))


@pytest.mark.parametrize(
    ("made", "policy", "expected"),
    [
        (
            all_moved(),
            StartPolicy(),
            [
                *("Every partition may start", "0 records will be read again.", "5e" * 32, "MkU3OEVBNTcw"),
                *("reconciler apply failover.plan.json -c reconciler.toml", "Zm9vYmFyYmF6cXV4MTIzNA"),
                *("2026-11-22T03:00:00Z", "2026-11-22T04:00:00Z"),
            ],
        ),
        (
            every_ending(),
            StartPolicy(),
            ["Must not start: clicks, sums", "4 partitions need a decision.", "≤ 42,150,738"],
        ),
        (LOST, StartPolicy(), ["Must not start: clicks", "1 partition needs a decision."]),
        (plan(job(row(0))), StartPolicy(), ["The partition may start"]),
        (plan(job()), StartPolicy(), ["the plan holds no partition"]),
        (BOUNDED, StartPolicy(), ["The partition may start"]),
        (BOUNDED, StartPolicy(max_replay=49), ["1 partition needs a decision"]),
    ],
    ids=["moved", "every ending", "lost", "one", "none", "within max_replay", "above max_replay"],
)
def test_the_head_says_whether_it_may_start_and_how(made: Plan, policy: StartPolicy, expected: list[str]) -> None:
    said = words(html_of(made, policy))
    assert [each for each in expected if each not in said] == []


def test_both_ends_of_a_repeated_batch_are_one_partition() -> None:
    ends = [row(0, position=Position.START, at_most=5), row(0, position=Position.END, at_most=2)]
    said = words(html_of(plan(job(*ends, store="checkpoint:/srv/clicks?user=me"))))
    assert "The partition may start" in said
    assert "At most 7 records will be read again" in said, "those behind the batch's end come again, too"
    assert "a.events-0 start" in said
    assert "a.events-0 end" in said


def test_those_that_need_a_person_stand_first_and_are_open() -> None:
    rows = re.findall(r'<tr role=row class="(p?)".*?<details( open)?>', html_of(every_ending()), re.S)
    assert [("p" in kinds, bool(is_open)) for kinds, is_open in rows] == [(True, True)] * 4 + [(False, False)] * 9


def test_one_job_of_a_plan_is_shown_with_the_files_own_checksum(tmp_path: Path) -> None:
    file, html = tmp_path / "it's a.plan.json", tmp_path / "plan.html"
    file.write_text(every_ending().to_text(), encoding="utf-8")
    assert main(["show", str(file), "--job", "sums", "--html", str(html)]) == 0
    said = words(html.read_text(encoding="utf-8"))
    assert parse_plan(file.read_text(encoding="utf-8")).to_json()["sha256"] in said
    assert "a.orders-0" in said
    assert "a.events-0" not in said
    assert shlex.join(["-o", str(file), "--job", "sums", "--accept", "unresolved"]) in said


# ---------------------------------------------------------------- commands


def commands(made: Plan, policy: StartPolicy | None = None) -> list[list[str]]:
    return [shlex.split(step.command) for step in next_steps(made, policy or StartPolicy(), FILES) if step.command]


def test_each_jobs_decisions_are_one_command_that_keeps_the_earlier_ones() -> None:
    check, again, *others = commands(every_ending())
    decided = ["--job", "clicks", "--accept", "lost", "--accept", "early", "--set", "a.events:8=OFFSET"]
    assert check == ["reconciler", "plan", "-c", "reconciler.toml", *decided]
    assert again == ["reconciler", "plan", "-c", "reconciler.toml", "-o", "clicks-failover.plan.json", *decided]
    assert [line[-4:] for line in others] == [["--job", "sums", "--accept", "unresolved"]] * 2


def test_two_jobs_never_plan_into_one_file() -> None:
    """The second plan would replace the first one before it is applied."""
    paths = {path_for_job(Path("x/failover.plan.json"), name) for name in ("eu/clicks", "eu_clicks", "eu clicks")}
    assert len(paths) == 3
    assert {path.parent for path in paths} == {Path("x")}


def test_an_offset_that_skips_is_counted_and_offers_to_skip() -> None:
    detail = "set by hand to 77 (proven: 70); found: it"
    skipping = row(1, resume=77, record=76, set_by_hand=True, skips=Skips(5, 7), detail=detail)
    made = plan(job(skipping, row(2)))
    said = words(html_of(made))
    assert "skips 5 to 7" in said
    assert "records skipped by hand" in said
    assert "that offset skips 5 to 7 records" in said
    check, _ = commands(made)
    assert check[4:] == ["--job", "clicks", "--set", "a.events:1=77", "--accept", "skips"] or check[4:] == [
        "--job", "clicks", "--accept", "skips", "--set", "a.events:1=77",
    ]  # fmt: skip
    accepted = plan(job(replace(skipping, skips_accepted=True)))
    assert "5 to 7 records skipped by hand" in words(html_of(accepted))


def test_an_offset_that_was_set_by_hand_is_set_again() -> None:
    by_hand = row(1, V.UNRESOLVED, resume=77, record=76, set_by_hand=True, detail="set by hand to 77; found: nothing")
    check, _ = commands(plan(job(by_hand, row(2, V.LOST))))
    assert check[4:] == ["--job", "clicks", "--set", "a.events:1=77", "--accept", "lost"]


def test_a_thousand_unresolved_partitions_do_not_make_an_endless_command() -> None:
    rows = [row(n, V.UNRESOLVED, resume=None, record=None) for n in range(1_000)]
    steps = next_steps(plan(job(*rows)), StartPolicy(), FILES)
    assert any("992 more need --set" in step.text for step in steps)
    assert all((step.command or "").count("--set") <= MOST_SETS for step in steps)


def test_jobs_that_need_no_decision_can_continue() -> None:
    made = plan(job(row(0), name="ready"), job(row(1, V.LOST), name="stuck"))
    steps = next_steps(made, StartPolicy(), FILES)
    assert "for ready, which need no decision" in steps[-1].text
    assert steps[-1].command == "reconciler apply failover.plan.json -c reconciler.toml"


def test_a_checkpoint_whose_batchs_end_is_missing_is_not_copied_and_the_page_says_why() -> None:
    end = row(2, V.UNRESOLVED, position=Position.END, resume=None, record=None, anchor=None, absent=True)
    there = row(0, position=Position.START)
    made = plan(job(there, end, store="checkpoint:/srv/clicks"), job(row(0), name="sums"))
    assert [each[1] for each in commands(made)] == ["apply"]
    (why,) = [step.text for step in next_steps(made, StartPolicy(), FILES) if step.command is None]
    assert why.startswith("Job clicks must not start: a.events-2 end is unresolved: ")
    assert why.endswith("--accept unresolved.")


def test_no_decision_on_a_partition_is_offered_for_what_only_a_sink_forbids() -> None:
    drops = SinkRow("/srv/out", None, 7, 0, SinkOutcome.DROPS, "it has batches up to 7")
    made = plan(replace(job(row(0), row(1, V.LOST, resume=40)), sinks=(drops,)))
    offered = re.findall(r"(--accept \w+|--set [^ <]+)", words(html_of(made)))
    assert offered == ["--accept lost", "--accept lost", "--set a.events:1=40"]  # the first is in the row's reason


def test_of_the_end_of_a_batch_a_person_decides_only_that_it_may_be_missing() -> None:
    ends = [
        row(0, V.UNRESOLVED, position=Position.END, resume=None, record=None, absent=each) for each in (True, False)
    ]
    offered = [[shlex.split(step.command or "")[-1] for step in row_steps(end, job(end), FILES)] for end in ends]
    assert offered == [["unresolved"], []]


def test_beside_a_start_that_needs_a_person_the_end_of_a_batch_asks_for_no_decision_of_its_own() -> None:
    start = row(1, V.LOST, resume=40, position=Position.START)
    end = row(1, V.EARLY, resume=40, at_most=10**9, position=Position.END)
    said = words(html_of(plan(job(start, end))))
    assert "--accept lost" in said
    assert "--accept early" not in said


@pytest.mark.parametrize(
    ("stopped", "options"),
    [
        (row(3, V.UNRESOLVED, resume=None, record=None), [["--set", "a.events:3=OFFSET"]]),
        (row(3, V.UNRESOLVED, resume=None, record=None, absent=True), [["--accept", "unresolved"]]),
        (row(3, V.LOST, resume=40), [["--accept", "lost"], ["--set", "a.events:3=40"]]),
        (row(3, V.EARLY, resume=40, at_most=10**9), [["--accept", "early"], ["--set", "a.events:3=40"]]),
    ],
)
def test_each_stopped_partition_has_its_own_ways_out(stopped: object, options: list[list[str]]) -> None:
    steps = row_steps(stopped, job(stopped), FILES)  # type: ignore[arg-type]
    ways = [shlex.split(step.command or "") for step in steps]
    assert ways == [["reconciler", "plan", "-c", "reconciler.toml", "--job", "clicks", *way] for way in options]


@pytest.mark.parametrize("word", ["plain", "it's", "$(id)", "a b", "x\u202ey", "one\ntwo", "\x1b[2J", "q\\'\n", "`id`"])
def test_a_copied_command_means_what_was_meant_and_hides_nothing(word: str) -> None:
    line = command("printf", "%s", word)
    assert line.isprintable()
    environment = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(["bash", "-c", line], capture_output=True, check=True, env=environment)
    assert ran.stdout.decode() == word


# ---------------------------------------------------------------- the bar


def test_a_longer_replay_is_a_longer_bar_and_a_bound_looks_different() -> None:
    bars = [bar(row(0, V.EARLY, at_most=again), 1_000_000) for again in (1, 10, 1_000, 50_000, 1_000_000)]
    assert bars == ["w2 bound", "w4 bound", "w11 bound", "w16 bound", f"w{WIDEST} bound"]
    assert [bar(row(0, at_most=again, exact=again), 5) for again in (0, 7, 1_000)] == ["w0", "w7", f"w{WIDEST}"]
    assert bar(row(0, V.LOST, resume=None), 0) == "w0 bound"
    assert all(f".w{width} {{" in asset("page.css") for width in range(WIDEST + 1))


def test_numbers_of_any_size_are_shown() -> None:
    widest = row(0, V.EARLY, stored=2**63 - 1, anchor=0, resume=2**62, record=0, at_most=2**63 - 1)
    assert bar(widest, 2**63 - 1) == f"w{WIDEST} bound"
    assert f"time {10**18} ms" in unescape(html_of(hostile()))


def test_a_job_that_was_not_judged_leads_the_page() -> None:
    """Whatever the others are, the page must not read as fine."""
    sick = NotJudged("billing <b>", "The store at <host> gave no answer.")
    for made in (all_moved(), every_ending()):
        html = html_of(replace(made, not_judged=(sick,)))
        said = words(html)
        assert "Job billing <b> was not judged: The store at <host> gave no answer. Do not start it." in said
        assert "Not judged: billing <b>." in said
        assert "--job 'billing <b>'" in said
        assert 'class="verdict bad"' in html
    assert "Must not start: billing <b>" in words(html_of(replace(all_moved(), not_judged=(sick,))))
    assert "not judged" not in words(html_of(all_moved()))
