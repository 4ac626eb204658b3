"""The mirror that ``init`` writes down: by the options, or the topics; and how it writes it."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from reconciler.cli.commands.init_mirror import find_mirror, naming_rule
from reconciler.config.file import load_config
from reconciler.core.errors import ConfigError
from reconciler.core.question import TopicPolicy
from reconciler.kafka.mirror.topics import Mirror
from reconciler.preflight.survey import propose
from reconciler.preflight.text import Proposed, ProposedJob, config_text

EMPTY_ALIAS = ("checkpointsinternal", "heartbeats", "mm2-offset-syncsinternal", "mm2-offsets.a.internal", "orders")

Found = Callable[..., Mirror]


@pytest.fixture
def found() -> Found:
    """The mirror that is found with these options in a cluster with these topics."""

    def find(*topics: str, **given: Any) -> Mirror:
        usual = {"alias": None, "policy": None, "separator": None, "topic": []}
        return find_mirror(argparse.Namespace(**{**usual, **given}), topics)

    return find


def test_the_alias_must_be_in_front_of_a_topic(found: Found) -> None:
    assert found("src.x", "y.replica", "z.replica", alias="src").policy is TopicPolicy.DEFAULT
    with pytest.raises(ConfigError, match=r'name like "src\.TOPIC" is here'):
        found("x", "y", alias="src")


def test_of_several_sources_the_others_are_named(found: Found, caplog: pytest.LogCaptureFixture) -> None:
    of_both = ("a.checkpoints.internal", "c.checkpoints.internal", "a.orders", "a.clicks", "c.orders")
    assert found(*of_both).alias == "a"
    assert "Sources mirrored here, too: c. Name one with --alias." in caplog.text
    assert found(*of_both, alias="c").topics == ("c.orders",)


def test_a_source_that_no_topic_names_must_be_given(found: Found) -> None:
    with pytest.raises(ConfigError, match="no topic of MirrorMaker's own here"):
        found("orders", "clicks.eu")


@pytest.mark.parametrize("given", [{}, {"policy": "identity"}, {"alias": "a"}, {"alias": "a", "policy": "identity"}])
def test_an_empty_alias_is_recognized_and_its_topics_are_written(
    found: Found, given: dict[str, str], tmp_path: Path
) -> None:
    mirror = found(*EMPTY_ALIAS, **given)
    assert (mirror.alias, mirror.topics) == ("a", ("orders",))
    assert written(mirror, tmp_path)["mirror"] == {
        "offset_syncs_topic": "mm2-offset-syncsinternal",
        "checkpoints_topic": "checkpointsinternal",
    }


def test_an_empty_alias_alone_leaves_the_separator_in_front(found: Found, tmp_path: Path) -> None:
    mirror = found(".checkpoints.internal", ".heartbeats", "mm2-offset-syncs..internal", ".orders", "local")
    assert (mirror.topics, mirror.source_of(".orders")) == ((".orders",), "orders")
    made = written(mirror, tmp_path)
    assert made["topics"]["policy"] == ".{topic}"
    own = {"offset_syncs_topic": "mm2-offset-syncs..internal", "checkpoints_topic": ".checkpoints.internal"}
    assert made["mirror"] == own
    assert load_config(tmp_path / "reconciler.toml", {}).topics.destination_of("orders") == ".orders"


def test_a_rule_is_written_as_the_configuration_takes_it(found: Found, tmp_path: Path) -> None:
    mirror = found("x_a", "y_a", alias="a", policy="{topic}_{cluster}")
    assert written(mirror, tmp_path)["topics"] == {"policy": "{topic}_{cluster}"}
    assert load_config(tmp_path / "reconciler.toml", {}).topics.destination_of("x") == "x_a"


def test_a_function_that_fetches_tokens_is_allowed_in_the_same_file(found: Found, tmp_path: Path) -> None:
    client = {"oauth": "python:tests.kafka.security.tokens:fetched"}
    made = written(found("a.x", alias="a"), tmp_path, client)
    assert (made["clusters"]["b"]["client"], made["policy"]) == (client, {"python": ["tests.kafka.security.tokens"]})


def written(mirror: Mirror, folder: Path, client: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    job = ProposedJob("g", ["x"], "memory:x", propose({}), "")
    text = config_text(Proposed("0", "b", "b:9092", "id", client, None, mirror, [job]))
    (folder / "reconciler.toml").write_text(text)
    load_config(folder / "reconciler.toml", {})
    return tomllib.loads(text)


def test_a_policy_is_one_of_two_or_a_template() -> None:
    assert [naming_rule(text) for text in ("default", "identity", "{topic}.x")] == ["default", "identity", "{topic}.x"]
    with pytest.raises(argparse.ArgumentTypeError, match="a template must have"):
        naming_rule("names")
