"""A headless Chromium for the tests of pages, driven by Playwright; the machine's own, nothing is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from reconciler.plan.document import Plan
from tests.cli.page.shown_plans import html_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
Opened = Callable[..., "Page"]


def _cannot(reason: str) -> NoReturn:
    if os.environ.get("RECONCILER_REQUIRE_SYSTEM") == "1":
        pytest.fail(f"pages are to be tried in a browser here: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        _cannot(f"none of {', '.join(PROGRAMS)} is installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _cannot("playwright is not installed (the extra `test` has it)")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program)
        yield started
        started.close()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Opened]:
    """Opens a plan's page (or given markup). No script may fail, and nothing but the file may be asked for."""
    contexts, complaints, asked = [], [], []

    def open_it(shown: Plan | str, *, width: int = 1360, height: int = 900, **options: Any) -> Page:
        file = tmp_path / f"{len(contexts)}.html"
        file.write_text(shown if isinstance(shown, str) else html_of(shown), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        view = context.new_page()
        view.set_default_timeout(30_000)  # other tests may have the machine
        view.on("pageerror", lambda error: complaints.append(str(error)))
        view.on("console", lambda message: complaints.append(message.text))
        view.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        view.on("request", lambda request: asked.append(request.url))
        view.goto(file.as_uri())
        return view

    open_it.complaints = complaints  # type: ignore[attr-defined]
    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith(tmp_path.as_uri())] == []
