"""The lock files hold what pyproject.toml asks for, each package with hashes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = ROOT / "deploy" / "locks"
LINE = re.compile(r"^(?P<name>[\w.\-]+)==(?P<version>\S+)(?: ;.*?)? \\$")


def locked(path: Path) -> dict[str, str]:
    """Name and version of each package. Fails for a package without a hash."""
    found: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", path.read_text(encoding="utf-8").strip()):
        first, *hashes = block.splitlines()
        match = LINE.match(first)
        assert match, f"{path.name}: {first}"
        assert hashes, first
        assert all("--hash=sha256:" in each for each in hashes), first
        found[canonicalize_name(match["name"])] = match["version"]
    return found


def wanted(extras: Iterable[str]) -> list[Requirement]:
    """What the project and these extras require, extras of its own resolved."""
    texts = list(PROJECT["dependencies"])
    for extra in extras:
        for text in PROJECT["optional-dependencies"][extra]:
            own = Requirement(text)
            if own.name == PROJECT["name"]:
                texts += [str(each) for each in wanted(own.extras)]
            else:
                texts.append(text)
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize(
    ("path", "extra"), [(ROOT / ".ci" / "requirements.txt", "test"), (LOCKS / "image.txt", "all")], ids=["ci", "image"]
)
def test_a_lock_fits_the_projects_ranges(path: Path, extra: str) -> None:
    versions = locked(path)
    for requirement in wanted([extra]):
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement


def test_the_light_install_is_part_of_the_whole_in_the_same_versions() -> None:
    everything, ranges = locked(LOCKS / "image.txt"), {each.name: each for each in wanted(["all"])}
    light = locked(LOCKS / "light.txt")
    assert {name: everything.get(name) for name in light} == light
    asked = [Requirement(line) for line in (LOCKS / "light.in").read_text().splitlines() if line and line[0] != "#"]
    for each in asked:
        assert each.specifier == ranges[each.name].specifier, each
    assert not light.keys() & {"pyspark", "py4j", "happybase", "thriftpy2", "numpy"}
