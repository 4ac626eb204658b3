"""Every file of ``deploy/`` is an example that a test runs, and the README there knows it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests import ROOT

DEPLOY = ROOT / "deploy"
TESTED_BY = {
    "reconciler.toml": ["deploy/test_deploy_spark_submit.py", "deploy/test_deploy_systemd.py"],
    "spark-submit.sh": ["deploy/test_deploy_spark_submit.py"],
    "systemd/clicks.service": ["deploy/test_deploy_systemd.py"],
    "systemd/clicks-pre.service": ["deploy/test_deploy_systemd.py"],
    "kubernetes/": ["deploy/kubernetes/test_*.py"],
    "airflow/clicks.py": ["deploy/test_deploy_airflow.py", "deploy/test_airflow_versions.py"],
    "prometheus/": ["jobs/watch/test_alert_rules.py"],
    "grafana/": ["deploy/test_dashboard.py"],
    "compose/": ["deploy/*containers*.py"],
    "images/": [
        "demo/lab/containers.py",
        "demo/lab/private_daemon.py",
        "deploy/test_containers.py",
        "deploy/test_images.py",
    ],
    "locks/": ["deploy/test_locks.py", "deploy/test_light_install.py"],
    "mirror/": ["deploy/*containers*.py"],
}
"""A file, or a folder with all that is in it, and the tests that run it, as patterns below ``tests``."""

FILES = sorted(
    file.relative_to(DEPLOY).as_posix()
    for file in DEPLOY.rglob("*")
    if file.is_file() and file.name != "README.md" and not {"__pycache__", "cache"} & {*file.parts}
)


@pytest.mark.parametrize("file", FILES)
def test_every_file_has_its_tests(file: str) -> None:
    """They are there, and name the file, or its folder."""
    patterns = next((tests for place, tests in TESTED_BY.items() if file == place or file.startswith(place)), [])
    assert patterns, f"{file} is run by no test"
    names = (Path(file).name, f"{Path(file).parts[0]}/", f'"{Path(file).parts[0]}"')
    found = {pattern: sorted((ROOT / "tests").glob(pattern)) for pattern in patterns}
    assert all(found.values()), f"{file}: {found}"
    assert any(name in test.read_text() for tests in found.values() for test in tests for name in names)


@pytest.mark.parametrize("file", FILES)
def test_the_readme_knows_every_file(file: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (DEPLOY / "README.md").read_text())
    own = [link for link in links if not link.startswith(("..", "http"))]
    assert any(file == link or (link.endswith("/") and file.startswith(link)) for link in own)


def test_the_readmes_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", (DEPLOY / "README.md").read_text()):
        assert link.startswith("http") or (DEPLOY / link).exists(), link


@pytest.mark.parametrize("file", [file for file in FILES if file.endswith(".sh")])
def test_a_shell_understands_every_script(file: str) -> None:
    first = (DEPLOY / file).read_text().splitlines()[0]
    shell = "bash" if "bash" in first else "sh"
    said = subprocess.run([shell, "-n", DEPLOY / file], capture_output=True, text=True, timeout=30, check=False)
    assert (said.returncode, said.stderr) == (0, "")
