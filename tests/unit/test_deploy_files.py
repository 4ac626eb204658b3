"""Every file of ``deploy/`` is an example that a test runs, and the README there knows it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TESTED_BY = {
    "reconciler.toml": ["system/test_deploy_spark_submit.py", "system/test_deploy_systemd.py"],
    "spark-submit.sh": ["system/test_deploy_spark_submit.py"],
    "systemd/clicks.service": ["system/test_deploy_systemd.py"],
    "systemd/clicks-pre.service": ["system/test_deploy_systemd.py"],
    "kubernetes/hook-init-container.yaml": ["system/test_deploy_kubernetes.py"],
    "kubernetes/spark-application.yaml": ["system/test_deploy_kubernetes.py"],
    "airflow/clicks.py": ["system/test_deploy_airflow.py"],
    "prometheus/": ["unit/test_alert_rules.py", "system/test_alerts.py"],
    "grafana/": ["unit/test_dashboard.py"],
    "compose/": ["system/*containers*.py"],
    "images/": ["containers.py", "system/private_daemon.py", "system/test_containers.py"],
    "mirror/": ["system/*containers*.py"],
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
