"""The images' build, as far as that shows without a Docker daemon: the files that it copies."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from docker.utils.build import exclude_paths

from tests import ROOT

IMAGES = ROOT / "deploy" / "images"
DOCKERFILE = (IMAGES / "Dockerfile").read_text(encoding="utf-8")
COPIES = [line.split() for line in re.findall(r"^COPY (?!--from=)(.+)$", DOCKERFILE, re.MULTILINE)]


def sources() -> Iterator[str]:
    """What the Dockerfile copies from the build's context."""
    for words in COPIES:
        assert len(words) > 1, words
        assert not any(word.startswith("--") for word in words), f"an option that this test does not know: {words}"
        yield from words[:-1]


@pytest.fixture(scope="module")
def context() -> set[str]:
    """What Docker is sent: the paths of the repository that .dockerignore leaves."""
    lines = map(str.strip, (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines())
    return set(exclude_paths(str(ROOT), [line for line in lines if line and not line.startswith("#")]))


@pytest.mark.parametrize("source", sorted(set(sources())))
def test_what_the_dockerfile_copies_is_there_and_is_sent(source: str, context: set[str]) -> None:
    found = sorted(ROOT.glob(source))
    if source == "deploy/images/cache*":  # the one that may be missing, beside another source
        beside = next(words for words in COPIES if source in words)[:-1]
        assert [each for each in beside if "*" not in each], "COPY needs at least one existing file"
    else:
        assert found, f"{source} does not exist"
    files = [file for place in found for file in ([place] if place.is_file() else place.rglob("*")) if file.is_file()]
    names = {file.relative_to(ROOT).as_posix() for file in files if "__pycache__" not in file.parts}
    assert names <= context, f"excluded by .dockerignore: {sorted(names - context)}"
