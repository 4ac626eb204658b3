"""Python modules run only if the configuration's owner lists them, and no other user can write the list."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reconciler.config.file import load_config
from reconciler.core.errors import ConfigError

CONFIG = """
[clusters.a]
[clusters.b]
bootstrap_servers = "b:9092"
POLICY
[[jobs]]
home = "a"
name = "clicks"
group = "readers"
topics = ["events"]
offsets = "STORE"
[jobs.identity]
id = "ID"
"""
FLOWLET = "hbase://h/t?layout=cdap-flowlet&id_of="


class Written:
    """A configuration, and a module beside it that leaves a mark when it is imported."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.module = folder, name
        self.mark = folder / "imported"
        (folder / f"{name}.py").write_text(
            f"open({str(self.mark)!r}, 'w').close()\ndef id_of(record): return record.key\n"
        )

    def config(self, *, id: str = "none", store: str = "memory:", policy: str = "", mode: int = 0o644) -> Path:
        path = self.folder / "reconciler.toml"
        path.write_text(CONFIG.replace("ID", id).replace("STORE", store).replace("POLICY", policy))
        path.chmod(mode)
        return path


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Written:
    monkeypatch.syspath_prepend(tmp_path)
    return Written(tmp_path, f"ids_{abs(hash(request.node.nodeid))}")


def python(written: Written) -> str:
    return f"python:{written.module}:id_of"


def test_a_listed_module_is_used(written: Written) -> None:
    config = load_config(written.config(id=python(written), policy=f'[policy]\npython = ["{written.module}"]'))
    assert config.jobs[0].identity.id_of is not None
    assert written.mark.exists()


@pytest.mark.parametrize("place", ["id", "id_of", "key_of", "find", "hidden in the address"])
def test_a_module_that_is_not_listed_is_refused_and_not_imported(written: Written, place: str) -> None:
    named = python(written)
    policy = '[policy]\npython = ["os"]'
    path = {
        "id": lambda: written.config(id=named, policy=policy),
        "id_of": lambda: written.config(store=FLOWLET + named, policy=policy),
        "key_of": lambda: written.config(store=f"{FLOWLET}key&key_of={named}", policy=policy),
        "find": lambda: written.config(store=f"{FLOWLET}key&find={named}", policy=policy),
        "hidden in the address": lambda: written.config(
            store=FLOWLET + named.replace("python", "p%79t\\thon").replace("\\t", "\\u0009"), policy=policy
        ),
    }[place]()
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert f"names the Python module '{written.module}', which [policy] python does not allow" in str(caught.value)
    assert f'[policy] python = ["{written.module}"]' in str(caught.value.hint)
    assert not written.mark.exists()
    assert written.module not in sys.modules


def test_a_modules_name_is_read_as_the_store_reads_it(written: Written) -> None:
    """A plus in an address is a plus: as a space, the module that is allowed would not be the one that is imported."""
    store = f"{FLOWLET}python:{written.module}+x:id_of"
    with pytest.raises(ConfigError, match=r"the Python module '\w+\+x', which \[policy\] python does not allow"):
        load_config(written.config(store=store, policy=f'[policy]\npython = ["{written.module} x"]'))


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_other_users_may_write_to_may_not_allow_modules(written: Written, mode: int) -> None:
    allowed = f'[policy]\npython = ["{written.module}"]'
    with pytest.raises(ConfigError, match="the file is writable by other users") as caught:
        load_config(written.config(policy=allowed, mode=mode))
    assert "chmod go-w" in str(caught.value.hint)
    load_config(written.config(policy=allowed, mode=0o600))
    load_config(written.config(mode=mode))


@pytest.mark.parametrize(
    "name", ["plugin.library.paths", "ssl.engine.location", "ssl.providers", "sasl.kerberos.kinit.cmd"]
)
@pytest.mark.parametrize("cluster", ["a", "b"])
def test_such_a_file_may_not_name_libraries_and_commands_for_the_client(
    written: Written, cluster: str, name: str
) -> None:
    path = written.config(policy=f'[clusters.{cluster}.client]\n"{name}" = "x"', mode=0o666)
    path.write_text(path.read_text().replace("[clusters.a]", '[clusters.a]\nbootstrap_servers = "a:9092"'))
    with pytest.raises(ConfigError, match=f"{name} lets this file run code"):
        load_config(path)
    path.chmod(0o644)
    load_config(path)


def test_a_file_that_other_users_may_write_to_imports_nothing(written: Written) -> None:
    allowed = f'[policy]\npython = ["{written.module}"]'
    with pytest.raises(ConfigError, match="is writable by other users"):
        load_config(written.config(id=python(written), policy=allowed, mode=0o666))
    assert not written.mark.exists()


@pytest.mark.parametrize("code", ["raise RuntimeError('no')", "import sys; sys.exit(0)", "this is not Python"])
def test_a_module_that_cannot_be_imported_is_the_configurations_fault(written: Written, code: str) -> None:
    (written.folder / f"{written.module}.py").write_text(code)
    with pytest.raises(ConfigError, match="when it was imported"):
        load_config(written.config(id=python(written), policy=f'[policy]\npython = ["{written.module}"]'))
