"""Kafka's client is imported without what this product does not use of it, and still works as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NOT_NEEDED = {
    *("aiokafka", "asyncio", "difflib", "getpass", "pyspark", "random", "ssl", "subprocess", "tempfile", "tenacity"),
    *("reconciler.core.search", "reconciler.core.timebound", "reconciler.core.mirrored.by_pairs"),
    *("reconciler.failover.writing.apply", "reconciler.kafka.mirror.delivered"),
}

UNREACHABLE = """
[topics]
policy = "identity"
[clusters.a]
[clusters.b]
bootstrap_servers = "127.0.0.1:1"
[search]
deadline = "1ms"
[[jobs]]
home = "a"
name = "clicks"
topics = ["clicks"]
offsets = "sqlite:///none.db"
[jobs.identity]
id = "header:message-id"
"""


def output_of(program: str, path: Path | None = None) -> str:
    env = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env).stdout


def test_a_hook_whose_job_is_right_loads_nothing_that_is_for_others() -> None:
    program = (
        "import sys; from reconciler.cli.commands import hook\n"
        "from reconciler.failover.outside import connect\n"
        "with connect({'bootstrap.servers': '127.0.0.1:1'}, timeout_s=1, memory=1): print(*sys.modules)"
    )
    loaded = set(output_of(program).split())
    assert {"confluent_kafka", "reconciler.core.reconcile", "reconciler.kafka.worker"} <= loaded
    assert not loaded & NOT_NEEDED


def test_a_command_loads_the_client_without_what_is_for_others(tmp_path: Path) -> None:
    """Beside the threads of the command line: as a whole, since each part of it may start one."""
    (tmp_path / "reconciler.toml").write_text(UNREACHABLE)
    program = (
        "import sys; from reconciler.cli.main import main\n"
        f"sys.argv = ['reconciler', 'plan', '-c', {str(tmp_path / 'reconciler.toml')!r}]\n"
        "print(main(), *sys.modules)"
    )
    code, *loaded = output_of(program).split()
    assert code == "6"
    assert "confluent_kafka" in loaded
    assert not set(loaded) & NOT_NEEDED


def test_the_client_and_the_program_find_asyncio_when_they_use_it() -> None:
    program = (
        "import sys; from reconciler.kafka import import_client; import_client()\n"
        "import asyncio; asyncio.run(asyncio.sleep(0)); assert asyncio.__spec__\n"
        "modules = [each for name, each in sys.modules.items() if name.startswith('confluent_kafka')]\n"
        "assert all(each.asyncio.sleep is asyncio.sleep for each in modules if hasattr(each, 'asyncio'))\n"
        "print(len(modules))"
    )
    assert int(output_of(program)) > 1


def test_a_client_that_uses_asyncio_at_once_gets_it(tmp_path: Path) -> None:
    (tmp_path / "confluent_kafka.py").write_text("import asyncio\nfrom asyncio import Lock\nSLEEP = asyncio.sleep\n")
    program = (
        "from reconciler.kafka import import_client; import_client()\n"
        "import asyncio, confluent_kafka as c; print(c.SLEEP is asyncio.sleep, c.Lock is asyncio.Lock)"
    )
    assert output_of(program, tmp_path) == "True True\n"


def test_a_program_with_more_threads_imports_it_as_it_is() -> None:
    program = (
        "import sys, threading; from reconciler.kafka import import_client; waiting = threading.Event()\n"
        "threading.Thread(target=waiting.wait).start(); import_client()\n"
        "print('confluent_kafka' in sys.modules, 'asyncio' in sys.modules); waiting.set()"
    )
    assert output_of(program) == "False False\n"
