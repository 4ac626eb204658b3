"""What the product's code never does: make code or objects out of data, or hand data to a shell, ours or a person's.

The one exception is named. A search that goes to Spark's executors is pickled by the driver and unpickled by the
executor, as Spark does with every task; what is in it was made here a moment before.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import reconciler
from reconciler.cli.main import COMMANDS

ROOT = Path(reconciler.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))

MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "yaml", "jsonpickle", "joblib"}
"""What makes objects, and so runs code, out of bytes."""
CALLS = {
    *("eval", "exec", "compile", "__import__"),
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"),
    *("tempfile.mktemp", "xml.etree.ElementTree.fromstring", "input"),
}
STARTS = {"subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_call", "subprocess.check_output"}


@functools.cache
def parsed(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module, parsed once for all rules."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def test_no_module_makes_code_of_data() -> None:
    found = {(name(path), each) for path in SOURCES for node in parsed(path) for each in made_of_data(node)}
    assert found == set()


def made_of_data(node: ast.AST) -> list[str]:
    found = [each for each in imported(node) if each.partition(".")[0] in MODULES or each in CALLS]
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        found += [called] if called in CALLS else []
        if called in STARTS or called.rpartition(".")[2] == "Popen":
            found += [f"{called}(shell=…)" for word in node.keywords if word.arg == "shell"]
        found += ["allow_pickle" for word in node.keywords if word.arg == "allow_pickle"]
    return found


def test_no_module_asks_for_a_groups_offsets_in_the_way_that_can_end_the_process() -> None:
    """librdkafka's issue 5040: it aborts when a broker answers that the group's coordinator is another one."""
    users = {name(path) for path in SOURCES for node in parsed(path) if "list_consumer_group_offsets" in _used(node)}
    assert users == set()


def _used(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""


def test_a_partitions_number_is_looked_up_and_never_compared_with_each() -> None:
    """``in`` on the tuple of ``ports.TopicInfo`` makes a job of 10,000 partitions compare 50,000,000 numbers."""
    users = {
        f"{name(path)}:{node.lineno}"
        for path in SOURCES
        for node in parsed(path)
        if isinstance(node, ast.Compare)
        for way, right in zip(node.ops, node.comparators, strict=True)
        if isinstance(way, ast.In | ast.NotIn) and _used(right) == "partitions"
    }
    assert users == set(), "use TopicInfo.has"


def test_modules_that_a_configuration_names_are_imported_in_one_place() -> None:
    """Elsewhere what is imported by a name that was computed is the product's own."""
    users = {
        name(path)
        for path in SOURCES
        for node in parsed(path)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("import_module")
        and not isinstance(node.args[0], ast.Constant)
    }
    assert users <= {"config/identity.py", "places/registry.py", "cli/main.py"}


FILLED_IN = re.compile(rf"reconciler (?:{'|'.join(COMMANDS)})\b[^.;:,`]*(?:\0|%s)")
HEADS = {("preflight/text.py", "init")}
"""Not commands to copy: the first comment of a configuration says which command wrote it."""


def test_a_command_line_to_copy_is_made_of_quoted_words() -> None:
    """``visible.command`` quotes: a path with a space in it must not become two words in a person's shell."""
    found = {(name(path), each) for path in SOURCES for node in parsed(path) for each in FILLED_IN.findall(text(node))}
    assert {(where, each) for where, each in found if (where, each.split()[1]) not in HEADS} == set()


def text(node: ast.AST) -> str:
    """The text of a literal, with a null where something is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


ARGUMENTS = {
    *("cli/arguments.py", "cli/page/advice.py"),
    *("failover/checking/decisions.py", "failover/checking/passes.py"),
}
"""Modules that quote what is given to ``--set``, TOPIC:PARTITION."""
DATA = {"places/files.py", "places/hbase/flowlet.py", "core/anchors.py"}
"""Where the two stand in a key or a version; and the one function that names a partition."""


def test_a_partition_is_named_as_kafkas_tools_do_it_and_by_one_function() -> None:
    pattern = re.compile(r"(?:topic|name)\w*\}[:-]\{[\w.]*partition")
    naming = {name(path) for path in SOURCES if pattern.search(path.read_text(encoding="utf-8"))}
    assert naming - ARGUMENTS - DATA == set(), "str() of a TopicPartition"
