"""A reload cannot move the listener: the log speaks of the address that is listened on, whatever the file says now."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.cli.commands.prepare import watch
from reconciler.kafka import opening
from reconciler.kafka.rate_limit import RateLimit
from reconciler.watch.listener import Access, ListenAddress, Site
from reconciler.watch.metrics import Figures
from reconciler.watch.schedule import Requested

Reload = Callable[[str], list[str]]


@pytest.fixture
def reloaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Reload]:
    """``reloaded(HOST)`` listens on port 9464 there. A reload with another ``listen`` gives the log's lines."""
    caplog.set_level(logging.INFO, "reconciler.watch")
    monkeypatch.setattr(opening, "open_log", lambda *_, **__: argparse.Namespace(close=lambda: None))
    path = tmp_path / "reconciler.toml"
    figures, limit = Figures(lambda: 0), RateLimit(50, lambda: 0.0, lambda _: None)

    def started(host: str, option: str | None = None) -> Reload:
        options = argparse.Namespace(config=path, job=[], every=None, listen=option, once=False)
        site = Site(figures.registry(), lambda: None, Access())

        def reload(listen: str) -> list[str]:
            path.write_text(
                '[source]\nalias = "a"\n[destination]\nbootstrap_servers = "b:9092"\n'
                f'[watch]\nlisten = "{listen}"\n'
                '[[jobs]]\nname = "clicks"\ngroup = "clicks"\ntopics = ["events"]\nstore = "memory:"\n',
                encoding="utf-8",
            )
            caplog.clear()
            address = ListenAddress(host, 9464)
            process = watch.Process(options, figures, limit, site, Requested(), lambda _: None, address)
            process.prepare().use()
            return [record.getMessage() for record in caplog.records]

        return reload

    return started


def test_a_changed_address_needs_a_restart_and_the_log_says_so(reloaded: Callable[..., Reload]) -> None:
    reload = reloaded("127.0.0.1")
    assert reload("127.0.0.1:9464") == []
    assert reload("0.0.0.0:9464") == [
        "[watch] listen is 0.0.0.0:9464 now, and watch still listens on 127.0.0.1:9464. Restart it to change that."
    ]


def test_an_open_listener_is_warned_of_also_when_the_file_names_another_address(
    reloaded: Callable[..., Reload],
) -> None:
    lines = reloaded("0.0.0.0")("127.0.0.1:9464")
    assert [line.partition(" without")[0] for line in lines[:1]] == ["Listening on 0.0.0.0:9464"]
    assert len(lines) == 2


def test_an_address_of_the_command_line_stays_whatever_the_file_says(reloaded: Callable[..., Reload]) -> None:
    assert reloaded("127.0.0.1", "127.0.0.1:9464")("0.0.0.0:9464") == []
