"""The mirror that ``init`` writes down: by the options, or by the destination's topics."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence

from reconciler.config.settings import MirrorSettings
from reconciler.core.errors import ConfigError
from reconciler.core.question import TopicPolicy, TopicTemplate
from reconciler.core.text import counted
from reconciler.kafka.mirror.topics import Mirror, is_source, mirrors, named

log = logging.getLogger("reconciler.init")


def naming_rule(text: str) -> str:
    """The value of --policy."""
    if text not in (TopicPolicy.DEFAULT, TopicPolicy.IDENTITY):
        try:
            TopicTemplate.of(text, "a")
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"is not default or identity, and a template {error}") from error
    return text


def find_mirror(options: argparse.Namespace, topics: Sequence[str]) -> Mirror:
    """The mirror that fills the cluster with these topics; the options replace what was found in them."""
    separator = options.separator or "."
    given: str | None = options.alias
    if options.policy == TopicPolicy.IDENTITY:
        renamed = [each for each in mirrors(topics) if each.own != MirrorSettings() and given in (None, each.alias)]
        return renamed[0] if renamed else named(given, TopicPolicy.IDENTITY, separator, topics)
    if options.policy is not None and "{" in options.policy:
        return _filled(named(given, TopicPolicy.NAMES, separator, topics, template=options.policy))
    found = [each for each in mirrors(topics) if given in (None, each.alias)]
    if options.policy is not None:
        found = [each for each in found if each.policy == options.policy]
    if options.separator is not None:
        found = [each for each in found if each.policy is TopicPolicy.IDENTITY or each.separator == separator]
    if found:
        return _best(found)
    by_alias = named(given, TopicPolicy.DEFAULT, separator, topics)
    if given is not None and (options.policy is not None or by_alias.topics):
        return _filled(by_alias)
    if given is not None:
        return _filled(by_alias)
    if is_source(topics):
        raise ConfigError(
            "This cluster has a mirror's offset syncs and no mirrored topic: it looks like the source.",
            hint="Give the other cluster, where jobs continue after a failover; or add --alias or --policy.",
        )
    raise ConfigError(
        "There is no topic of MirrorMaker's own here, so its name of the source is not known.",
        hint="Add --alias NAME, or --policy identity if topics keep their names.",
    )


def _best(found: Sequence[Mirror]) -> Mirror:
    best = found[0]
    if len(found) > 1:
        others = ", ".join(str(each.alias) for each in found[1:])
        log.warning("Sources mirrored here, too: %s. Name one with --alias.", others)
    there = counted(len(best.topics), "topic")
    source = "a source without a name" if best.alias is None else f'source "{best.alias}"'
    log.info("mirrored here: %s, %s, by %s", source, there, ", ".join(best.seen))
    return best


def _filled(mirror: Mirror) -> Mirror:
    if not mirror.topics:
        name = mirror.rule.name_of("TOPIC")
        like = "" if name == "TOPIC" else f' with a name like "{name}"'
        raise ConfigError(
            f"No mirrored topic{like} is here.",
            hint="Correct --alias or --separator, or use --policy identity or '{topic}.SUFFIX'. Check that the mirror "
            "has run.",
        )
    return mirror
