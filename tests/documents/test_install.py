"""The README's commands install what they need: a user's no more, the tests' what CI installs and runs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions

from packaging.requirements import Requirement

from tests import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = [text.strip() for kind, text in re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.M) if not kind]
PACKAGE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def script(name: str) -> str:
    return (ROOT / ".ci" / name).read_text(encoding="utf-8")


def test_the_first_command_installs_for_a_user_and_runs_the_demo() -> None:
    (first,) = [block for block in BLOCKS if "pip install" in block]
    install, demo = first.split(" && ")[1:]
    assert install == ".venv/bin/pip install --quiet ."
    assert demo == ".venv/bin/reconciler demo"


def test_the_guide_installs_as_the_readme_does() -> None:
    section = (ROOT / "docs/guide.md").read_text(encoding="utf-8").partition("## 1.")[2].partition("\n## ")[0]
    assert re.findall(r"^    (pip .*)", section, re.MULTILINE) == ["pip install ."]


def test_what_the_first_command_installs_opens_every_store_that_the_demo_uses() -> None:
    """The tests' own environment has all extras: their packages are hidden here."""
    extras = [needs for name, needs in PACKAGE["optional-dependencies"].items() if name not in ("all", "test")]
    packages = {Requirement(need).name for needs in extras for need in needs}
    packages -= {Requirement(need).name for need in PACKAGE["dependencies"]}  # confluent-kafka, with a client more
    hidden = {module for module, owners in packages_distributions().items() if {*owners} & packages}
    assert {"requests", "kazoo", "psycopg"} <= hidden
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({sorted(hidden)!r}))\n"
        "from reconciler.places.registry import open_store\n"
        "for address in ('sqlite:////tmp/none.db', 'checkpoint:/tmp/none', 'kafka-group:'):\n"
        "    open_store(address, kafka_client={'bootstrap.servers': 'localhost:1'})\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_every_extra_is_named_where_the_installation_is_described() -> None:
    page = " ".join((ROOT / "docs/how-to/install.md").read_text(encoding="utf-8").split())
    (named,) = re.findall(r"The \[extras\]\(\S+\) are ([^.]*)\.", page)
    assert {*re.findall(r"`(\w+)`", named)} == {*PACKAGE["optional-dependencies"]} - {"test"}


def test_the_tests_are_set_up_and_run_as_in_ci() -> None:
    assert re.findall(r"`\.venv/bin/(pip install [^`]+)`", README) == ["pip install -e '.[test]'"]
    assert "The README's pip install -e '.[test]'" in script("setup"), "CI pins the versions of the same packages"
    (command,) = [block for block in BLOCKS if block.startswith(".venv/bin/pytest")]
    assert command == script("run").splitlines()[-1]


def test_pyspark_is_named_as_it_is_required() -> None:
    (required,) = [each for each in PACKAGE["dependencies"] if each.startswith("pyspark")]
    first, beyond = re.findall(r"\d\.\d+", required)
    assert required == f"pyspark>={first},<{beyond}"
    last = f"4.{int(beyond.removeprefix('4.')) - 1}"
    (spark,) = re.findall(r"^\| Spark \| (.*)", README, re.MULTILINE)
    assert spark.startswith(f"PySpark {first} to {last} (")
    for page in ("spark", "range-batches"):
        text = " ".join((ROOT / f"docs/reference/{page}.md").read_text().split())
        assert f"Needs pyspark {first} to {last} " in text, page


def test_every_dependency_has_its_reason() -> None:
    reasons = (ROOT / "docs/decisions/0006-dependencies.md").read_text(encoding="utf-8")
    needs = [*PACKAGE["dependencies"], *(need for extra in PACKAGE["optional-dependencies"].values() for need in extra)]
    names = {Requirement(need).name for need in needs} - {PACKAGE["name"]}
    missing = sorted(name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", reasons))
    assert not missing, f"docs/decisions/0006-dependencies.md does not say why: {missing}"
