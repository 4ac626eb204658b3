"""The hook finds its folder of plans in each pod of ``deploy/kubernetes`` as it left it in the pod before.

For a pod with an fsGroup, the kubelet changes a volume's permissions each time that it mounts it, before the containers
start. ``mount`` does what Kubernetes' ``pkg/volume/volume_linux.go`` does.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.core.errors import ConfigError
from reconciler.jobs.hook import kept
from tests.deploy.deployed import DEPLOY

READ_WRITE, ENTER = 0o660, 0o110


def with_group(value: Any) -> Iterator[dict[str, Any]]:
    """All security contexts that set an fsGroup, wherever they are."""
    if isinstance(value, dict):
        if "fsGroup" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from with_group(each)


CONTEXTS = [
    pytest.param(context, id=path.name)
    for path in sorted((DEPLOY / "kubernetes").rglob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    for context in with_group(document)
]


def mount(volume: Path, policy: str | None) -> None:
    """Give a volume to the pod's group. Here that is this process's own, which any user may set."""
    group, root = os.getegid(), volume.stat()
    wanted = READ_WRITE | ENTER | stat.S_ISGID
    if policy == "OnRootMismatch" and root.st_gid == group and root.st_mode & wanted == wanted:
        return
    for folder, _, files in os.walk(volume, topdown=False):  # the root comes last
        for path in (*(Path(folder, name) for name in files), Path(folder)):
            os.chown(path, -1, group)
            path.chmod(stat.S_IMODE(path.stat().st_mode) | (wanted if path.is_dir() else READ_WRITE))


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """An empty file system, as it was made."""
    volume = tmp_path / "state"
    volume.mkdir(mode=0o755)
    return volume


@pytest.mark.parametrize("context", CONTEXTS)
def test_the_second_pods_hook_takes_the_folder_of_the_first(context: dict[str, Any], volume: Path) -> None:
    for _ in range(3):
        mount(volume, context.get("fsGroupChangePolicy"))
        assert stat.S_IMODE(volume.stat().st_mode) & 0o770 == 0o770, "the pod's user can write to the volume"
        folder = kept.folder(volume / "plans")
        (folder / "clicks.plan.json").touch(mode=0o600)
    assert stat.S_IMODE(folder.stat().st_mode) & 0o777 == 0o700


def test_by_kubernetes_default_policy_the_hook_would_refuse_it(volume: Path) -> None:
    """Why the manifests set one."""
    mount(volume, None)
    folder = kept.folder(volume / "plans")
    mount(volume, None)
    with pytest.raises(ConfigError, match="writable by other users"):
        kept.folder(folder)
