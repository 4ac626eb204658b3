"""A plan's page as a person meets it: in a headless Chromium, by mouse and by keyboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.page.shown_plans import PLANTED, all_moved, every_ending, hostile, html_of, many

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

    Opened = Callable[..., Page]

pytestmark = pytest.mark.system


def rows(view: Page) -> Locator:
    return view.locator("#rows tbody tr:not([hidden])")


def names(view: Page) -> list[str]:
    return rows(view).locator("th").all_text_contents()


def column(view: Page, number: int) -> list[str]:
    return [text.strip() for text in rows(view).locator(f":scope > :nth-child({number})").all_text_contents()]


def head_of(view: Page, name: str) -> Locator:
    return view.locator("#rows").get_by_role("columnheader", name=name, exact=True)


def said(view: Page) -> str:
    return view.locator("#count").inner_text()


# ---------------------------------------------------------------- without a script


@pytest.mark.thorough
def test_without_a_script_the_whole_table_is_there_and_details_open(opened: Opened) -> None:
    view = opened(every_ending(), java_script_enabled=False)
    assert rows(view).count() == 13
    assert view.locator("#tools").is_hidden()
    assert view.locator("button:visible").count() == 0
    assert view.locator("#rows thead th").first.inner_text() == "Partition"
    row = view.get_by_role("row", name="a.events-3")
    assert row.locator(".more").is_hidden()
    row.locator("summary").click()
    assert "7 probes in 2 rounds" in row.locator(".more").inner_text()
    assert "--set a.events:8=OFFSET" in view.get_by_role("row", name="a.events-8").locator("pre").inner_text()


# ---------------------------------------------------------------- filters


def test_text_filters_names_offsets_and_sentences(opened: Opened) -> None:
    view = opened(every_ending())
    search = view.get_by_role("searchbox")
    for text, expected in (
        ("orders", ["a.orders-0", "a.orders-1", "a.orders-2"]),
        ("5200", ["a.events-2"]),
        ("5,200", ["a.events-2"]),
        ("ORDERS sent again", ["a.orders-2"]),
        ("scan_records sums", []),
    ):
        search.fill(text)
        assert names(view) == expected
        assert said(view) == f"{len(expected)} of 13 rows"
    assert view.locator("#none").is_visible()
    search.fill("")
    assert said(view) == "13 rows"


# ---------------------------------------------------------------- sorting


def numbers(texts: list[str]) -> list[int | None]:
    return [None if text == "–" else int(re.sub(r"\D", "", text)) for text in texts]


@pytest.mark.thorough
@pytest.mark.parametrize(("head", "place"), [("Stored", 4), ("Resume", 5), ("Again", 6)])
def test_numbers_sort_as_numbers_and_what_has_none_stays_last(opened: Opened, head: str, place: int) -> None:
    view = opened(every_ending())
    button = head_of(view, head).get_by_role("button")
    for order, reverse in (("descending", True), ("ascending", False)):
        button.click()
        assert head_of(view, head).get_attribute("aria-sort") == order
        found = numbers(column(view, place))
        known = [number for number in found if number is not None]
        assert found == sorted(known, reverse=reverse) + [None] * (len(found) - len(known))


@pytest.mark.thorough
def test_names_sort_by_their_numbers_and_one_column_at_a_time_is_sorted(opened: Opened) -> None:
    view = opened(many(60, 3))
    assert head_of(view, "Finding").get_attribute("aria-sort") == "descending"
    assert column(view, 3)[0] == "unresolved"
    heads = view.locator("#rows thead th[aria-sort]")
    assert heads.count() == 7
    head_of(view, "Partition").get_by_role("button").click()
    assert names(view)[:12] == [f"a.events-of-0-{n}" for n in range(12)]
    sorts = [heads.nth(n).get_attribute("aria-sort") for n in range(7)]
    assert sorts == ["ascending", *["none"] * 6]
    for head in ("Job", "Finding", "Found by"):
        head_of(view, head).get_by_role("button").click()
    assert head_of(view, "Finding").get_attribute("aria-sort") == "none"
    assert rows(view).count() == 60


# ---------------------------------------------------------------- keyboard


@pytest.mark.thorough
def test_all_of_it_has_a_name_and_is_reached_by_keyboard(opened: Opened) -> None:
    view = opened(every_ending())
    nameless = view.evaluate(
        """() => [...document.querySelectorAll("button, input, select, summary, a")].filter(
            (e) => !(e.textContent.trim() || e.labels?.[0]?.textContent.trim() || e.ariaLabel)).length"""
    )
    assert nameless == 0
    view.keyboard.press("Tab")
    assert view.evaluate("document.activeElement.textContent") == "Skip to the table"
    assert view.get_by_text("Skip to the table").bounding_box()["x"] >= 0  # type: ignore[index]
    view.keyboard.press("/")
    assert view.evaluate("document.activeElement.id") == "filter"
    assert view.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)") >= 2
    view.keyboard.type("a/b")
    assert view.get_by_role("searchbox").input_value() == "a/b"
    view.keyboard.press("Escape")
    assert view.get_by_role("searchbox").input_value() == ""
    assert said(view) == "13 rows"
    head_of(view, "Resume").get_by_role("button").focus()
    view.keyboard.press("Enter")
    assert head_of(view, "Resume").get_attribute("aria-sort") == "descending"
    summary = view.get_by_role("row", name="a.events-0").locator("summary")
    summary.focus()
    view.keyboard.press("Space")
    assert view.get_by_role("row", name="a.events-0").locator(".more").is_visible()


def test_a_command_is_copied_whole(opened: Opened) -> None:
    view = opened(every_ending(), permissions=["clipboard-read", "clipboard-write"])
    box = view.get_by_role("row", name="a.events-8").locator(".command")
    box.get_by_role("button", name="Copy").click()
    box.get_by_role("button", name=re.compile("Copied|Selected")).wait_for()
    taken = view.evaluate("getSelection().toString() || navigator.clipboard.readText()")
    assert taken == "reconciler plan -c reconciler.toml --job clicks --set a.events:8=OFFSET"


# ---------------------------------------------------------------- hostile content


def test_hostile_texts_run_nothing_whatever_is_clicked(opened: Opened) -> None:
    view = opened(hostile())
    for summary in view.locator("summary").all():
        summary.click()
    view.get_by_role("searchbox").fill("script")
    for head in view.locator("#rows thead button").all():
        head.click()
    view.get_by_role("button", name="Show all").click()
    assert view.evaluate("window.planted") is None
    assert view.locator("img, iframe, #rows tbody script").count() == 0
    assert r"safe\u202ecod.topic-1" in names(view)


@pytest.mark.thorough
def test_the_pages_policy_stops_a_script_that_got_in_all_the_same(opened: Opened) -> None:
    hole = f"<script>{PLANTED}</script><img src=x onerror={PLANTED}><p style='color:red' id=styled>x</p>"
    view = opened(html_of(all_moved()).replace("<main>", f"<main>{hole}"))
    view.wait_for_load_state("load")
    assert view.evaluate("window.planted") is None
    assert view.evaluate("getComputedStyle(document.getElementById('styled')).color") != "rgb(255, 0, 0)"
    with pytest.raises(Exception, match="TrustedHTML"):
        view.evaluate("document.body.innerHTML = '<b>x</b>'")
    assert sum("Content Security Policy" in text for text in opened.complaints) >= 3  # type: ignore[attr-defined]
    opened.complaints.clear()  # type: ignore[attr-defined]
    assert rows(view).count() == 4


def drawn(row: Locator) -> bool:
    return bool(row.locator("td").first.evaluate("(e) => e.checkVisibility({contentVisibilityAuto: true})"))


# ---------------------------------------------------------------- large, and old


@pytest.mark.thorough
def test_of_5000_partitions_only_those_in_sight_are_drawn_and_all_are_found(opened: Opened) -> None:
    view = opened(many())
    assert said(view) == "5,000 rows"
    assert not drawn(rows(view).last)
    view.locator("#filter").fill("events-of-2-77")
    assert said(view) == "11 of 5,000 rows"
    view.locator("#filter").fill("")
    view.locator("#person").check()
    assert said(view) == "10 of 5,000 rows"
    view.locator("#person").uncheck()
    view.locator("#rows thead [data-sort=stored] button").click()
    assert rows(view).first.locator("th").inner_text() == "a.events-of-3-1249"
    rows(view).last.scroll_into_view_if_needed()
    assert drawn(rows(view).last)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("now", "expected", "kind"),
    [
        ("2026-11-22T03:15:00Z", "(45 min left)", "muted"),
        ("2026-11-22T07:30:00Z", "(expired 4 h ago: apply refuses it, make a new plan)", "expired"),
        ("2026-12-22T07:30:00Z", "(expired 30 days ago: apply refuses it, make a new plan)", "expired"),
    ],
)
def test_the_page_says_how_long_the_plan_can_still_be_applied(
    opened: Opened, now: str, expected: str, kind: str
) -> None:
    view: Any = opened(all_moved())
    view.clock.set_fixed_time(now)
    view.reload()
    left = view.locator("#left")
    assert (left.inner_text().strip(), left.get_attribute("class")) == (expected, kind)
