"""Files that may let this process run code: root's and the caller's, below folders that no other user can change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.config.file import load_config
from reconciler.config.ownership import FileEntry, doubt_about, first_doubt, folders_above
from reconciler.core.errors import ConfigError

ME, OTHER = 1000, 1001
FILE = FileEntry(Path("/srv/r/r.toml"), ME, 0o100644)
SRV, ROOT_FOLDER = FileEntry(Path("/srv"), 0, 0o40755), FileEntry(Path("/"), 0, 0o40755)
CODE = """
[clusters.a]
[clusters.b]
bootstrap_servers = "b:9092"
[policy]
python = ["os"]
[[jobs]]
home = "a"
name = "clicks"
topics = ["events"]
offsets = "sqlite:///offsets.db"
"""


def folder(owner: int, mode: int, *, read_only: bool = False) -> list[FileEntry]:
    return [FileEntry(Path("/srv/r"), owner, 0o40000 | mode, read_only), SRV, ROOT_FOLDER]


MINE = folder(ME, 0o755)
TRUSTED = {
    "mine": (FILE, MINE),
    "root's, below root's folders": (FileEntry(FILE.path, 0, 0o100644), folder(0, 0o755)),
    "mine, in a folder like /tmp": (FILE, folder(0, 0o1777)),
    "in a volume that is mounted read-only": (
        FileEntry(FILE.path, 0, 0o100666, True),
        folder(0, 0o777, read_only=True),
    ),
}
DOUBTED = {
    "of another user": (FileEntry(FILE.path, OTHER, 0o100600), MINE, "belongs to user 1001"),
    "of another user, read-only": (FileEntry(FILE.path, OTHER, 0o100400, True), MINE, "belongs to user 1001"),
    "writable by the group": (FileEntry(FILE.path, ME, 0o100664), MINE, "the file is writable by other users"),
    "in another user's folder": (FILE, folder(OTHER, 0o755), "/srv/r belongs to user 1001"),
    "in another user's folder like /tmp": (FILE, folder(OTHER, 0o1777), "/srv/r belongs to user 1001"),
    "in a folder that the group may write to": (FILE, folder(ME, 0o775), "/srv/r is writable by other users"),
    "in a folder that all may write to": (FILE, folder(0, 0o777), "/srv/r is writable by other users"),
    "below such a folder": (FILE, [*MINE, FileEntry(Path("/"), 0, 0o40777)], "/ is writable by other users"),
}


@pytest.mark.parametrize(("file", "folders"), TRUSTED.values(), ids=TRUSTED.keys())
def test_a_file_that_only_root_and_the_caller_can_change_is_trusted(file: FileEntry, folders: list[FileEntry]) -> None:
    assert first_doubt(file, folders, ME) is None


@pytest.mark.parametrize(("file", "folders", "why"), DOUBTED.values(), ids=DOUBTED.keys())
def test_a_file_that_others_can_change_is_not(file: FileEntry, folders: list[FileEntry], why: str) -> None:
    doubt = first_doubt(file, folders, ME)
    assert doubt is not None
    assert why in doubt.why


def test_root_trusts_no_other_user() -> None:
    assert first_doubt(FILE, MINE, 0) is not None


def test_the_folders_of_a_link_and_of_its_target_count(tmp_path: Path) -> None:
    for name in ("links", "files", "other"):
        (tmp_path / name).mkdir()
    file, link = tmp_path / "files" / "r.toml", tmp_path / "links" / "r.toml"
    file.write_text(CODE)
    link.symlink_to(file)
    found = {entry.path for entry in folders_above(link)}
    assert {file.resolve().parent, link.parent, Path("/")} <= found
    load_config(link)
    for where in ("links", "files"):
        (tmp_path / where).chmod(0o777)
        with pytest.raises(ConfigError, match=f"{where} is writable by other users, who can replace it"):
            load_config(link)
        (tmp_path / where).chmod(0o1777)
        load_config(link)


def test_a_configuration_of_another_user_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.toml"
    path.write_text(CODE)
    load_config(path)
    other = os.geteuid() + 1 or 1
    if os.geteuid() == 0:
        os.chown(path, other, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(ConfigError, match=r"\[policy\] python lets this file run code, and the file belongs to user"):
        load_config(path)
    path.write_text(CODE.replace('python = ["os"]', ""))
    load_config(path)


def test_folders_that_cannot_be_examined_are_doubted(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text("")
    doubt = doubt_about(tmp_path / "gone" / "r.toml", file.stat())
    assert doubt is not None
    assert "cannot be examined" in doubt.why
