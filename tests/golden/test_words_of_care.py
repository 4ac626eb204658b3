"""Words people read before and after a failover: configuration, tracking, checkpoints, trust, outages."""

from __future__ import annotations

import pytest

from tests.golden.compare import Goldens
from tests.golden.corpus import BASE, HEAD, OFFSETS, Checkpoint, Estate, deliver, job, tracked
from tests.golden.internals import NOW_MS
from tests.golden.keys import write_key
from tests.golden.world import DESTINATION, GONE, SOURCE, World
from tests.kafka.mirror.written import write_checkpoints, write_syncs

CONFIG = ("-c", "reconciler.toml")
WIDE = 500
"""Columns, where paths of unknown length are shown: no line is folded then."""
CHECKED = "config check -c reconciler.toml --offline"

# ---------------------------------------------------------------- configuration

WRONG = {
    "no TOML": "[clusters.a\n",
    "empty": "",
    "unknown keys": HEAD + "[search]\nmax_disoder = '1s'\nscan_records = 0\n[serach]\n" + job("clicks", ["events"]),
    "wrong types and words": HEAD + '[policy]\nbehind = "go"\nmax_replay = "many"\n' + job("clicks", ["events"]),
    "no jobs": HEAD,
    "two jobs of one name": HEAD + job("clicks", ["events"]) + job("clicks", ["more"]),
    "an environment variable that is not set": HEAD + job("clicks", ["${TOPIC}"]),
    "a file that is not there": HEAD + '[clusters.b.client]\nsasl.password = "file:nowhere"\n' + job("c", ["e"]),
    "a secret in plain text": HEAD + '[clusters.b.client]\nsasl.password = "hunter2"\n' + job("c", ["e"]),
    "a store's address that makes no sense": HEAD + job("clicks", ["events"], "hbase://h:1/t?layout=round"),
    "an identity that is none": HEAD + job("clicks", ["events"], id="column:id"),
    "one cluster twice": HEAD.replace(SOURCE, DESTINATION) + job("clicks", ["events"]),
    "a home that is no cluster": HEAD + job("clicks", ["events"]).replace('home = "a"', 'home = "c"'),
    "a name that is no stream": HEAD + '[topics.names.b]\nevents = "x"\n' + job("clicks", ["events"]),
}


@pytest.mark.parametrize("command", ["plan -c reconciler.toml", CHECKED])
def test_a_configuration_that_is_wrong(world: World, goldens: Goldens, command: str) -> None:
    said = []
    for what, text in WRONG.items():
        world.file("reconciler.toml", text)
        said.append(f"# {what}\n{world.session(command)}")
    goldens.check(f"words/wrong-configuration-{command.split()[0]}.txt", "\n".join(said))


def test_a_configuration_in_words(estate: Estate, goldens: Goldens) -> None:
    said = [estate.world.session(CHECKED, f"{CHECKED} --job clicks", f"{CHECKED} --job nobody")]
    estate.world.environ(SECRET="hunter2", LOGIN="me")
    estate.with_section(
        '[clusters.b.client]\nsecurity.protocol = "SASL_SSL"\nsasl.mechanism = "PLAIN"\nsasl.username = "${LOGIN}"\n'
        'sasl.password = "${SECRET}"\n[topics.names.b]\n"ties@a" = "bound"\n'
        '[policy]\nnew = "latest"\nbehind = "wait"\nno_anchor = "row-time"\nplan_expires = "90m"\n'
        '[search]\nmax_disorder = "5s"\n[metrics]\ntextfile = "node"\n'
        '[watch]\nlisten = "0.0.0.0:9464"\nevery = "5m"\n'
    )
    said.append(estate.world.session(CHECKED))
    goldens.check("words/config-check.txt", "\n".join(said))


def test_config_check_as_json(estate: Estate, goldens: Goldens) -> None:
    found = estate.world.run("config", "check", *CONFIG, "--offline", "--format", "json")
    goldens.check("words/config-check.json", found.out)


MIRROR = "mirror -c reconciler.toml --job clicks"


def test_what_the_mirror_says_of_itself(estate: Estate, goldens: Goldens) -> None:
    """Nothing at first, then checkpoints that skip, then offset syncs."""
    log = estate.world.destination
    said = [estate.world.session(MIRROR)]
    deliver(estate.world, "a.events", range(2, 4))
    write_checkpoints(log, (BASE + 2, 2), (BASE + 4, 12), group="clicks", at_ms=NOW_MS - 60_000)
    write_checkpoints(log, (BASE + 9, 9), group="billing", at_ms=NOW_MS - 3_000)
    said.append(estate.world.session(MIRROR))
    write_syncs(log, (BASE, 0), (BASE + 9, 9), at_ms=NOW_MS - 180_000)
    write_syncs(log, (BASE + 3, 11), at_ms=NOW_MS)
    said.append(estate.world.session(MIRROR))
    goldens.check("words/mirror.txt", "\n".join(said))
    goldens.check("formats/mirror/report.json", estate.world.run(*MIRROR.split(), "--format", "json").out)


def test_init_writes_a_configuration(estate: Estate, goldens: Goldens) -> None:
    world = estate.world
    for topic in ("a.checkpoints.internal", "mm2-offset-syncs.a.internal", "__consumer_offsets"):
        world.destination.create(topic, 1)
    to = f"init --bootstrap-servers {DESTINATION} --store {OFFSETS}"
    said = world.session(
        f"{to} -o made.toml --source-bootstrap-servers {SOURCE}",
        f"{to} -o made.toml",
        f"{to} -o - --group clicks --topic events",
        f"{to} -o - --group nobody",
        f"{to} -o - --alias z",
        f"{to} -o - --records 0",
        "init",
        "config check -c made.toml --offline",
        "plan -c made.toml --job ready",
    )
    goldens.check("words/init.txt", said)
    goldens.check("words/init.toml", world.read("made.toml"))


# ---------------------------------------------------------------- tracking and checkpoints


def test_track(world: World, goldens: Goldens) -> None:
    tracked(world, committed=False)
    said = [world.session("track -c reconciler.toml --once", "track -c reconciler.toml --once")]
    said.append(world.session("track -c reconciler.toml --every 0"))
    world.source.partition("events", 1).delete_before(9)
    Checkpoint(world, committed=True)
    said.append(world.session("track -c reconciler.toml --once"))
    world.file("reconciler.toml", HEAD.replace(f'bootstrap_servers = "{SOURCE}"\n', "") + job("counts", ["events"]))
    world.located()
    said.append(world.session("track -c reconciler.toml --once"))
    world.file("reconciler.toml", HEAD + job("counts", ["events"]))
    said.append(world.session("track -c reconciler.toml --once"))
    goldens.check("words/track.txt", "\n".join(said))


def test_track_names_the_jobs_without_a_row(world: World, goldens: Goldens) -> None:
    tracked(world, committed=True)
    jobs = [
        job("counts", ["events"], "checkpoint:checkpoint", id="none"),
        job("cuonts", ["evnets"], "checkpoint:checkpoint"),
    ]
    world.file("reconciler.toml", HEAD + "".join(jobs))
    world.located()
    goldens.check("words/track-no-rows.txt", world.session("track -c reconciler.toml --once"))


@pytest.mark.parametrize("of", ["committed", "stopped"])
def test_a_checkpoints_failover(world: World, goldens: Goldens, of: str) -> None:
    tracked(world, committed=of == "committed")
    world.columns(WIDE)
    assert world.run("track", *CONFIG, "--once").code == 0
    said = world.session(
        "checkpoint show checkpoint",
        "plan -c reconciler.toml",
        "plan -c reconciler.toml -o p.json",
        "drill -c reconciler.toml --temp .",
    )
    world.located(to="b")
    hook = "hook -c reconciler.toml --plans plans"
    said += "\n" + world.session(
        "move -c reconciler.toml --to b",
        hook,
        hook,
        "checkpoint show checkpoint-2",
        "status -c reconciler.toml",
        "status -c reconciler.toml --history",
    )
    goldens.check(f"words/checkpoint-{of}.txt", said)


def test_a_checkpoint_that_cannot_be_read(world: World, goldens: Goldens) -> None:
    tracked(world, committed=True)
    said = [world.session("checkpoint show nowhere", "plan -c reconciler.toml --job counts")]
    world.file("checkpoint/offsets/1", "v3\n{}\n{}")
    said.append(world.session("checkpoint show checkpoint", "plan -c reconciler.toml"))
    goldens.check("words/checkpoint-refused.txt", "\n".join(said))


def test_a_drill(estate: Estate, goldens: Goldens) -> None:
    said = estate.world.session(
        "drill -c reconciler.toml --temp . --job ready",
        "drill -c reconciler.toml --temp . --job clicks",
        "drill -c reconciler.toml --temp . --job stuck",
        "drill -c reconciler.toml --temp nowhere --job stuck",
        "drill -c reconciler.toml --temp .",
    )
    goldens.check("words/drill.txt", said)


# ---------------------------------------------------------------- trust


@pytest.fixture
def trusting(estate: Estate) -> World:
    """Plans must be signed by Ada or by Ben."""
    for name in ("ada", "ben", "eve"):
        write_key(estate.world.folder, name)
    estate.with_section('[trust]\nrequire_signature = true\ntrusted_keys = ["ada.pub.pem", "ben.pub.pem"]')
    return estate.world


def test_signed_plans(trusting: World, goldens: Goldens) -> None:
    trusting.with_state()
    apply, shown = "apply p.json -c reconciler.toml --yes", "show p.json -c reconciler.toml"
    said = trusting.session(
        "plan -c reconciler.toml --job clicks -o p.json",
        apply,
        shown,
        "show p.json",
        "sign p.json -c reconciler.toml --key eve.pem --yes",
        shown,
        apply,
        "sign p.json -c reconciler.toml --key ada.pem",
        "sign p.json -c reconciler.toml --key nowhere.pem --yes",
        "sign p.json -c reconciler.toml --key ada.pub.pem --yes",
        "sign p.json -c reconciler.toml --key ada.pem --yes",
        shown,
        "show p.json",
        apply,
    )
    trusting.located(to="b")
    said += "\n" + trusting.session("hook -c reconciler.toml --job clicks --plans plans")
    goldens.check("words/signed-plans.txt", said)
    trusting.file("p.json", trusting.read("p.json") + " ")
    goldens.check("words/signed-plan-altered.txt", trusting.session(shown, "show p.json --starting-offsets", apply))


# ---------------------------------------------------------------- outages, and what needs more than memory


def test_a_cluster_and_stores_that_cannot_be_reached(world: World, goldens: Goldens) -> None:
    quick = '[search]\ndeadline = "100ms"\n'
    away = HEAD.replace(DESTINATION, GONE)
    deliver(world, "a.events", range(3))
    texts = {
        "the destination": away + quick + job("clicks", ["events"]),
        "zookeeper": HEAD + quick + job("clicks", ["events"], f"zookeeper://{GONE}/k?layout=consumers&timeout=0.2"),
        "a store that is not there": HEAD + quick + job("clicks", ["events"], "sqlite:///nowhere/offsets.db"),
        "a folder that is not there": HEAD + quick + job("clicks", ["events"], "files:nowhere"),
    }
    said = []
    for what, text in texts.items():
        world.file("reconciler.toml", text)
        said.append(f"# {what}\n{world.session('plan -c reconciler.toml')}")
    goldens.check("words/unreachable.txt", "\n".join(said))


def test_watch_and_audit_with_wrong_input(estate: Estate, goldens: Goldens) -> None:
    said = estate.world.session(
        "watch -c reconciler.toml --every 0",
        "watch -c nowhere.toml --once",
        "watch -c reconciler.toml --listen here --once",
        "audit nowhere.json -c reconciler.toml",
    )
    goldens.check("words/other-commands.txt", said)
