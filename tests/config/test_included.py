"""One configuration in several files: ``include`` and ``[defaults]``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.config.file import Config, load_config
from reconciler.core.errors import ConfigError

CLUSTERS = '[clusters.a]\n[clusters.b]\nbootstrap_servers = "b:9092"\n'
DEFAULTS = '[defaults]\nhome = "a"\noffsets = "sqlite:///offsets.db"\nidentity = { id = "key", timestamp = "record" }\n'
Write = Callable[..., Config]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes ``reconciler.toml`` and the files of ``jobs.d``, by name, and loads the first."""

    def load(text: str, **files: str) -> Config:
        for name, content in {"reconciler": text, **files}.items():
            path = tmp_path / ("" if name == "reconciler" else "jobs.d") / f"{name}.toml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
            path.chmod(0o600)
        return load_config(tmp_path / "reconciler.toml", {})

    return load


def job(name: str, more: str = "") -> str:
    return f'[[jobs]]\nname = "{name}"\ntopics = ["{name}"]\n{more}'


def including(*patterns: str) -> str:
    return f"include = [{', '.join(repr(each) for each in patterns)}]\n{CLUSTERS}{DEFAULTS}"


def test_jobs_of_included_files_come_behind_the_files_own_in_the_order_of_their_names(write: Write) -> None:
    text = including("jobs.d/*.toml", "jobs.d/two.toml") + job("own")
    config = write(text, two=job("last"), one=job("first") + job("second"))
    assert [each.name for each in config.jobs] == ["own", "first", "second", "last"]


def test_a_job_has_the_defaults_that_it_does_not_set_also_one_by_one_in_its_identity(write: Write) -> None:
    text = CLUSTERS + DEFAULTS + job("plain") + job("other", 'home = "b"\nidentity = { id_order = "increasing" }\n')
    plain, other = write(text).jobs
    assert (plain.home, other.home, other.store) == ("a", "b", "sqlite:///offsets.db")
    assert [each.identity.id_of is not None for each in (plain, other)] == [True, True]
    assert plain.identity.id_order != other.identity.id_order


@pytest.mark.parametrize(
    ("text", "files", "said"),
    [
        (including("jobs.d/*.toml"), {}, 'include = "jobs.d/*.toml" names no file'),
        (including("jobs.d/*.toml"), {"x": "[search]\n"}, "x.toml: an included file has [[jobs]] alone, and this one"),
        (including("jobs.d/*.toml"), {"x": "[[jobs"}, "x.toml: it is not TOML"),
        (including("jobs.d/*.toml"), {"x": job("twice"), "y": job("twice")}, "twice"),
        (f'include = "jobs.d"\n{CLUSTERS}{job("x")}', {}, "include must be a list of paths"),
        (f'{CLUSTERS}[defaults]\nname = "x"\n{job("x")}', {}, "[defaults] has name, which jobs do not share"),
        (f'defaults = "a"\n{CLUSTERS}{job("x")}', {}, "[defaults] must be a table"),
    ],
)
def test_a_fault_is_named_with_its_file(write: Write, text: str, files: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        write(text, **files)
    assert said in "\n".join(str(each) for each in (caught.value, *caught.value.others))


def test_an_included_file_that_others_may_write_lets_no_code_run(write: Write, tmp_path: Path) -> None:
    policy = '[policy]\npython = ["ids"]\n'
    write(including("jobs.d/*.toml") + policy, x=job("x"))
    (tmp_path / "jobs.d" / "x.toml").chmod(0o666)
    with pytest.raises(ConfigError, match=r"lets this file run code, and .* is writable by other users"):
        load_config(tmp_path / "reconciler.toml", {})
