"""The images' build, as far as that shows without a Docker daemon: the files that it copies, the jars it asks for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker.utils.build import exclude_paths

from reconciler.artifacts import JarSet, connector_set, kafka_set, pyspark_version
from tests import ROOT
from tests.demo.lab.servers.jars import hbase_set

IMAGES = ROOT / "deploy" / "images"
DOCKERFILE = (IMAGES / "Dockerfile").read_text(encoding="utf-8")
COPIES = [line.split() for line in re.findall(r"^COPY (?!--from=)(.+)$", DOCKERFILE, re.MULTILINE)]
JARS = re.findall(r"/jars/jars\.sh (\w+)$", DOCKERFILE, re.MULTILINE)


# ---------------------------------------------------------------- files


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


# ---------------------------------------------------------------- jars


def cached(jars: JarSet, cache: Path) -> None:
    """Put a set into a cache as if it were complete: its manifest says that it has one jar, which is empty."""
    (cache / jars.name).mkdir(parents=True)
    (cache / jars.name / "one.jar").touch()
    manifest = {"set": jars.definition(), "files": {"one.jar": 0}}
    (cache / jars.name / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def copied_modules(src: Path) -> None:
    """What the Dockerfile copies to /src, below ``src``."""
    for *names, target in COPIES:
        if not target.startswith("/src/"):
            continue
        place = src / target.removeprefix("/src/")
        (place if target.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        for source in (ROOT / name for name in names):
            if source.is_dir():
                shutil.copytree(source, place)
            else:
                shutil.copy(source, place)


@pytest.mark.parametrize("name", JARS)
def test_the_script_finds_each_set_of_jars_with_the_modules_that_the_images_have(name: str, tmp_path: Path) -> None:
    """The images copy single modules for it, so that other changes do not fetch all jars again."""
    copied_modules(tmp_path / "src")
    sets = {"kafka": kafka_set, "spark": lambda: connector_set(pyspark_version())}
    jars = {**sets, "hbase": hbase_set}[name]()
    cached(jars, tmp_path / "jars")
    script = tmp_path / "jars.sh"
    script.write_text(re.sub(r"(?<=['\" ])(?=/(jars|out)\b)", str(tmp_path), (IMAGES / "jars.sh").read_text()))
    paths = {"PYTHON": sys.executable, "PYTHONPATH": str(tmp_path / "src"), "RECONCILER_CACHE": str(tmp_path / "jars")}
    environment = {**os.environ, **paths}
    ended = subprocess.run(
        ["bash", script, name], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "out" / (jars.name if name == "spark" else "") / "one.jar").is_file()


def test_the_dockerfile_asks_for_the_jars_of_every_server() -> None:
    assert sorted(JARS) == ["hbase", "kafka", "spark"]
