"""The configuration: every key, and every fault as a sentence with the file and the key."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.config.file import SearchSettings, load_config, read_config
from reconciler.core.anchors import IdOrder
from reconciler.core.errors import ConfigError
from reconciler.core.question import Behind, NoAnchor, StartAt, StartPlace
from reconciler.failover.whereabouts import where_living
from reconciler.plan.document import StartPolicy
from tests.config.configurations import FULL, LEAST, Load


@pytest.fixture
def complaint(load: Load, tmp_path: Path) -> Callable[..., str]:
    def of(text: str, **environment: str) -> str:
        with pytest.raises(ConfigError) as caught:
            load(text, **environment)
        assert caught.value.message.startswith(str(tmp_path / "reconciler.toml"))
        return str(caught.value)

    return of


def test_the_least_there_can_be_and_its_defaults(load: Load) -> None:
    config = load(LEAST)
    assert config.source is None
    assert config.destination.client == {"bootstrap.servers": "b:9092"}
    assert config.search == SearchSettings(0, 100_000, 30.0)
    assert config.policy.new == StartAt(StartPlace.EARLIEST)
    assert config.policy.start == StartPolicy(Behind.START, 1_000_000)
    assert (config.policy.no_anchor, config.policy.plan_expires_ms) == (NoAnchor.MIRROR, 86_400_000)
    (job,) = config.jobs
    assert (job.name, job.group, job.topics, job.store) == ("clicks", "readers", ("events",), "sqlite:///offsets.db")
    assert (job.identity.record_time, job.identity.id_of, job.identity.id_order) == (True, None, IdOrder.OPAQUE)
    assert config.topics.destination_of("events") == "a.events"


def test_every_key_is_read(load: Load) -> None:
    config = load(FULL, SECRET="hush", PLACE="var")
    assert config.source is not None
    assert config.source.client == {"bootstrap.servers": "a:9092", "client.id": "tracker"}
    assert config.destination.client == {
        "bootstrap.servers": "b:9092,c:9092",
        "security.protocol": "SASL_SSL",
        "sasl.username": "me",
        "sasl.password": "hush",
        "enable.ssl.certificate.verification": "true",
        "socket.timeout.ms": "5000",
    }
    assert [config.topics.destination_of(topic) for topic in ("events", "special")] == ["prod_events", "renamed"]
    assert config.search == SearchSettings(5_000, 10, 120.0)
    assert config.policy.new == StartAt(StartPlace.TIME, 1_769_835_600_000)
    assert config.policy.start == StartPolicy(Behind.WAIT, 7)
    assert (config.policy.no_anchor, config.policy.plan_expires_ms) == (NoAnchor.ROW_TIME, 5_400_000)
    clicks, views = config.jobs
    assert (clicks.topics, clicks.store) == (("events", "special"), "sqlite:///var/offsets.db")
    assert (clicks.identity.record_time, clicks.identity.id_order) == (False, IdOrder.INCREASING)
    assert (views.name, views.store) == ("views", "kafka-group:")
    assert config.chosen("views") == (views,)
    assert config.chosen() == (clicks, views)
    with pytest.raises(ConfigError, match=r'has no job "likes"\. It has: clicks, views'):
        config.chosen("likes")


def test_the_identity_policy_keeps_names(load: Load) -> None:
    assert load(LEAST + '[topics]\npolicy = "identity"').topics.destination_of("events") == "events"


def test_a_table_of_names_has_the_exceptions(load: Load) -> None:
    topics = load(f'{LEAST}[topics.names.b]\n"events@a" = "mirror-of-events"').topics
    assert (topics.destination_of("events"), topics.destination_of("others")) == ("mirror-of-events", "a.others")
    assert (topics.source_of("mirror-of-events"), topics.source_of("a.others")) == ("events", "others")
    assert topics.source_of("others") == "others"


def test_a_configuration_serves_both_directions(load: Load) -> None:
    """What is produced on b while the job lives there is another stream, with another name on each side."""
    config = load(LEAST.replace('home = "a"', 'home = "a"\norigins = ["a"]') + '[topics]\nseparator = "_"\n')
    back = config.toward("a")
    assert (config.here, config.there, config.jobs[0].topics) == ("a", "b", ("events",))
    assert (back.here, back.there, back.jobs[0].topics) == ("b", "a", ("a_events",))
    assert back.topics.destination_of("a_events") == "events"
    assert back.topics.destination_of("events") == "b_events"
    assert back.toward("b") == config
    with pytest.raises(ConfigError, match=r'no cluster "c"\. It has: a, b'):
        config.toward("c")


RENAMED = LEAST.replace('group = "readers"', 'group = {a = "readers", b = "a.readers"}').replace(
    '"sqlite:///offsets.db"', '"kafka-group:"'
)


def test_a_group_has_its_own_name_on_each_cluster(load: Load) -> None:
    config = load(RENAMED)
    ways = {"to b": config, "to a": config.toward("a"), "on a": config.on("a"), "on b": config.on("b")}
    names = {way: each.jobs[0].group for way, each in ways.items()}
    assert names == {"to b": "a.readers", "to a": "readers", "on a": "readers", "on b": "a.readers"}
    ((living, _),) = where_living(config, config.jobs, {})
    assert (living.here, living.jobs[0].group) == ("a", "readers")


def test_jobs_share_a_group_if_they_do_so_on_one_cluster(complaint: Callable[..., str], load: Load) -> None:
    other = '[[jobs]]\nhome = "a"\nname = "views"\ntopics = ["events"]\noffsets = "kafka-group:"\ngroup = {}\n'
    assert 'Jobs "clicks" and "views" share the stored' in complaint(RENAMED + other.format('"a.readers"'))
    assert len(load(RENAMED + other.format('{a = "viewers", b = "others"}')).jobs) == 2


def test_nobody_moves_to_a_cluster_without_an_address(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"\[clusters\.a\] bootstrap_servers is missing"):
        _ = load(LEAST).toward("a").destination


def test_of_several_clusters_a_move_goes_from_home_to_the_one_that_is_named(load: Load) -> None:
    config = load(LEAST + '[clusters.c]\nbootstrap_servers = "c:9092"\n').toward("c")
    assert (config.here, config.jobs[0].topics[0], config.topics.destination_of("events")) == (
        "a",
        "events",
        "a.events",
    )


@pytest.mark.parametrize(
    ("rule", "name"),
    [("{topic}.replica", "events.replica"), ("{cluster}_{topic}", "a_events"), ("x-{topic}.{cluster}", "x-events.a")],
)
def test_one_rule_names_all_topics_that_are_not_listed(load: Load, rule: str, name: str) -> None:
    names = load(f'{LEAST}[topics]\npolicy = "{rule}"\n[topics.names.b]\n"other@a" = "theirs"\n').topics
    assert (names.destination_of("events"), names.destination_of("other")) == (name, "theirs")


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        ("{cluster}.replica", "must have {topic} once"),
        ("{topic}.{topic}", "must have {topic} once"),
        ("{topic}/replica", "may have only {topic}, {cluster}"),
        ("{topic}.{alias}", "may have only {topic}, {cluster}"),
        ("{topic}", 'keeps every name: that is "identity"'),
    ],
)
def test_a_rule_that_names_nothing_is_a_fault(complaint: Callable[..., str], rule: str, cause: str) -> None:
    assert f'[topics] policy = "{rule}" {cause}' in complaint(inside("topics", f'policy = "{rule}"'))


@pytest.mark.parametrize(
    "pair", ['"re:(.*)@a" = "x.y"', '"events@a" = "$1.y"', '"orders-*@a" = "x"', '"x@a" = "{topic}.y"']
)
def test_a_pattern_among_the_names_is_a_fault_with_the_way_out(complaint: Callable[..., str], pair: str) -> None:
    said = complaint(inside("topics.names.b", pair))
    assert "has what is no topic's name. List each topic." in said
    assert 'policy = "{topic}.replica"' in said


def test_a_secret_is_read_from_a_file_as_it_stands(load: Load, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush ${NOT_A_NAME}\n")
    text = LEAST.replace("[[jobs]]", f'[clusters.b.client]\n"sasl.password" = "file:{tmp_path / "secret"}"\n[[jobs]]')
    assert load(text).destination.client["sasl.password"] == "hush ${NOT_A_NAME}"


def test_a_replacement_is_not_expanded_again(load: Load) -> None:
    text = LEAST.replace('group = "readers"', 'group = "${ONE}"')
    assert load(text, ONE="${TWO}", TWO="no").jobs[0].group == "${TWO}"


@pytest.mark.parametrize(("text", "ms"), [("250ms", 250), ("0s", 0), (" 3 m ", 180_000), ("2h", 7_200_000)])
def test_a_duration_is_read_with_its_unit(load: Load, text: str, ms: int) -> None:
    assert load(f'{LEAST}[search]\nmax_disorder = "{text}"\n').search.max_disorder_ms == ms


def inside(section: str, line: str) -> str:
    return f"{LEAST}\n[{section}]\n{line}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (inside("search", 'max_disordr = "1s"'), "[search] max_disordr is not a known key. Did you mean max_disorder?"),
        (inside("search", "zzz = 1"), "[search] zzz is not a known key. Known here: deadline, max_disorder"),
        (inside("policy", "nwe = 1"), "[policy] nwe is not a known key. Did you mean new?"),
        (
            LEAST + '[jobs.policy]\nplan_expires = "1h"',
            "[jobs clicks.policy] plan_expires is not a known key. Known here: behind, max_replay, no_anchor.",
        ),
        (LEAST + "[jobs.search]\nscan_record = 9", "[jobs clicks.search] scan_record is not a known key. Did you mean"),
        (inside("topics", "names2 = 1"), "[topics] names2 is not a known key. Did you mean names?"),
        (inside("state", "stor = 1"), "[state] stor is not a known key. Did you mean store?"),
        (LEAST.replace("bootstrap_servers", "bootstrap"), "[clusters.b] bootstrap is not a known key. Did you mean"),
        (LEAST.replace("group", "gruop"), "[jobs clicks] gruop is not a known key. Did you mean group?"),
        (LEAST.replace('home = "a"\n', ""), "[jobs clicks] home is missing"),
        (
            LEAST.replace('home = "a"', 'home = "c"'),
            '[jobs clicks] home = "c" is not one of a, b. It is the cluster where',
        ),
        (RENAMED.replace(', b = "a.readers"', ""), "[jobs clicks.group] b is missing."),
        (RENAMED.replace("b = ", "b = 'x', c = "), "[jobs clicks.group] c is not a known key. Known here: a, b."),
        (RENAMED.replace('"a.readers"', '""'), "[jobs clicks.group] b is empty."),
        (
            RENAMED.replace("kafka-group:", "sqlite:///offsets.db"),
            "[jobs clicks] group names a group on each cluster, and its offsets are not in a cluster's group.",
        ),
        (LEAST + 'origins = ["b"]', '[jobs clicks] origins lacks the job\'s home, "a". Add it.'),
        (LEAST + 'origins = ["a", "c"]', '[jobs clicks] origins has "c", which is not a cluster. Known are a, b.'),
        (LEAST + '[clusters."a b"]', "[clusters.a b] is not a name that MirrorMaker could use. Correct the name."),
        (LEAST + "gruop = 1", "[jobs clicks] gruop is not a known key. Did you mean group?"),
        (LEAST + '[jobs.identity]\nidd = "key"', "[jobs clicks.identity] idd is not a known key"),
        (
            LEAST.replace('[clusters.b]\nbootstrap_servers = "b:9092"', ""),
            "[clusters] a is alone. Add the cluster where",
        ),
        (LEAST.replace('"b:9092"', '""'), "[clusters.b] bootstrap_servers is empty"),
        (LEAST.replace('"b:9092"', "9092"), "[clusters.b] bootstrap_servers must be text in quotes, not 9092"),
        (
            LEAST.replace("b:9092", "http://b:9092"),
            "bootstrap_servers is not a list of brokers. Write it",
        ),
        (LEAST.replace("b:9092", "b:9092;c:9092"), "[clusters.b] bootstrap_servers is not a list of brokers"),
        (LEAST.replace("b:9092", "b:9092 c:9092"), "[clusters.b] bootstrap_servers is not a list of brokers"),
        (LEAST.replace("b:9092", "b:port"), "[clusters.b] bootstrap_servers is not a list of brokers"),
        (LEAST.replace("b:9092", " , "), "[clusters.b] bootstrap_servers is not a list of brokers"),
        (
            LEAST.replace("b:9092", "b:9092, c:9093").replace(
                "[clusters.a]", "[clusters.a]\nbootstrap_servers = 'C:9093,b'"
            ),
            "[clusters.a] and [clusters.b] both have b:9092 in bootstrap_servers: a broker is in one cluster.",
        ),
        (
            LEAST.replace("b:9092", "[::1]").replace(
                "[clusters.a]", "[clusters.a]\nbootstrap_servers = 'ssl://[::1]:9092/'"
            ),
            "[clusters.a] and [clusters.b] both have [::1]:9092 in bootstrap_servers",
        ),
        (inside("search", 'deadline = "0s"'), "[search] deadline must be above 0."),
        (inside("clusters.b.client", '"bootstrap.servers" = "c"'), "bootstrap.servers is given twice"),
        (
            inside("clusters.b.client", 'metadata.broker.list = "elsewhere:9092"'),
            "[clusters.b] client: metadata.broker.list is another name for the brokers",
        ),
        (
            LEAST.replace(
                "[clusters.b]", '[clusters.a.client]\n"metadata.broker.list" = "elsewhere:9092"\n[clusters.b]'
            ),
            "[clusters.a] client: metadata.broker.list is another name for the brokers",
        ),
        (
            inside("clusters.b.client", '"sasl.username" = "one"\nsasl.username = "two"'),
            "[clusters.b] client: sasl.username is given twice, with quotes and without. Give it once.",
        ),
        (
            inside("topics.names.b", 'events = "there"'),
            '[topics.names.b] events is not TOPIC@CLUSTER. Write it like "events@a" = "other-name".',
        ),
        (inside("clusters.b.client", '"a.b" = [1]'), "[clusters.b] client: a.b cannot be a list"),
        (inside("topics", 'policy = "other"'), '[topics] policy = "other" is not one of default, identity'),
        (
            inside("search", 'max_disorder = "5"'),
            '[search] max_disorder = "5" is not a duration. Write it like "500ms"',
        ),
        (inside("search", 'max_disorder = "-5s"'), "is not a duration"),
        (inside("search", "max_disorder = 5"), "[search] max_disorder must be text in quotes, not 5"),
        (inside("search", "scan_records = true"), "[search] scan_records must be a whole number, not True"),
        (inside("search", "scan_records = 1.5"), "[search] scan_records must be a whole number, not 1.5"),
        (inside("policy", "max_replay = -1"), "[policy] max_replay = -1 must be at least 0"),
        (inside("policy", 'no_anchor = "go"'), '[policy] no_anchor = "go" is not one of mirror, row-time, stop'),
        (inside("policy", 'new = "now"'), '[policy] new = "now" is not "earliest", "latest" or a time'),
        (inside("policy", 'new = "2026-01-31T06:00:00"'), "Write a time with its zone"),
        (LEAST.replace("[[jobs]]", "[jobs]"), "[jobs] is one table, and must be a list of them. Write [[jobs]]"),
        (LEAST.replace("[[jobs]]", "[job]"), "job is not a known key. Write [[jobs]], in double brackets"),
        (LEAST.replace("[[jobs]]", "[[job]]"), "job is not a known key. Write [[jobs]], in double brackets"),
        ("jobs = [1]\n" + LEAST.partition("[[jobs]]")[0], "[[jobs]] must be tables"),
        (LEAST.replace('["events"]', "[]"), "[jobs clicks] topics must be a list of different topic names"),
        (LEAST.replace('["events"]', '["e", "e"]'), "must be a list of different topic names"),
        (LEAST.replace('["events"]', '["e", ""]'), "must be a list of different topic names"),
        (
            LEAST.replace("[[jobs]]", '[[jobs]]\nsink = "hudi:/data/t"'),
            "sink names a Hudi table, whose batches are not",
        ),
        (LEAST.replace('["events"]', '["re:night_.*"]'), 'topics has "re:night_.*", which is not the name of a topic'),
        (LEAST.replace('["events"]', '["e", "night_[0-9]+"]'), 'topics has "night_[0-9]+", which is not the name'),
        (LEAST.replace('["events"]', '["events"]\nignore_topics = ["events"]'), 'ignore_topics has "events", and so'),
        (LEAST.replace('["events"]', '"events"'), "topics must be a list, not 'events'. For example topics = ["),
        (LEAST.replace('"clicks"', '""'), "name is empty"),
        (LEAST + '[jobs.identity]\ntimestamp = "wall"', 'timestamp = "wall" is not known'),
        (LEAST + '[jobs.identity]\nid = "json:id"', "is not a path this product reads"),
        (
            LEAST.replace("[[jobs]]", '[policy]\npython = ["nowhere"]\n[[jobs]]')
            + '[jobs.identity]\nid = "python:nowhere:f"',
            "No module named 'nowhere'",
        ),
        (inside("policy", 'python = "os"'), "[policy] python must be a list, not 'os'"),
        (inside("policy", "python = [1]"), "[policy] python must be a list of names"),
        (inside("policy", f"max_replay = {2**63}"), "[policy] max_replay must be at most 9223372036854775807"),
        (inside("search", 'deadline = "40000d"'), '[search] deadline = "40000d" is longer than a hundred years'),
        (LEAST + '[jobs.identity]\nid_order = "up"', 'id_order = "up" is not known'),
        (
            LEAST + '[jobs.identity]\nunit = "s"',
            '[jobs clicks.identity] unit = "s" says something of a time in the record, and timestamp is "record".',
        ),
        (
            LEAST + '[jobs.identity]\nid_order = "increasing"',
            '[jobs clicks.identity] id_order = "increasing" says something of ids, and id is "none". Set id, too.',
        ),
        (LEAST + '[jobs.identity]\nunit = "min"', 'unit = "min" is not known'),
        ('{"format": "reconciler.plan/1"}', "It looks like JSON, as a plan is: -c names the configuration."),
        ("clusters:\n  a:\n", "(at line 1, column 9). Correct that line: [table] over a table, name"),
        (LEAST.replace('home = "a"', 'home = "a"\nhome = "b"'), "It is given twice: leave one out"),
        (f"{LEAST}[clusters.a]\n", "It is given twice: leave one out"),
        (f"{LEAST}[jobs]\n", "or write [[jobs]], in double brackets, over each job."),
        (f"{LEAST}[search]\ndeadline = 0x{'f' * 6000}", "it has a number of thousands of digits. TOML's integers have"),
        (LEAST.replace("[clusters.a]", "[clusters]\na = 1"), "[clusters] a must be a table, not 1"),
    ],
)
def test_every_fault_is_a_sentence(complaint, text: str, words: str) -> None:
    assert words in complaint(text)


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        ("metrics", ("textfile",)),
        ("metrics", ("pushgateway",)),
        ("state", ("store",)),
        ("mirror", ("offset_syncs_topic", "checkpoints_topic", "offsets_topic")),
    ],
)
def test_a_setting_whose_variable_is_empty_is_refused(tmp_path: Path, section: str, keys: tuple[str, ...]) -> None:
    """Taken for one that is left out, a login would be off; taken for a path, it is the working directory."""
    path = tmp_path / "reconciler.toml"
    path.write_text(inside(section, "\n".join(f'{key} = "${{EMPTY}}"' for key in keys)))
    found = read_config(path, {"EMPTY": ""})
    assert isinstance(found, list)
    assert [fault.message for fault in found] == [f"{path}: [{section}] {key} is empty." for key in keys]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            'id = "hdr:x"\ntimestamp = "wall"\nunit = "min"\nid_order = "up"\nsource_offset = "key"',
            ["id_order", "unit", "timestamp", "id", "source_offset"],
        ),
        ('id = "python:os:getcwd"\ntimestamp = "wall"\nid_order = "increasing"', ["id", "timestamp"]),
        ('id = 5\nid_order = "increasing"\nunique_ids = true', ["id"]),
        ('timestamp = 5\nunit = "s"', ["timestamp"]),
        ("unique_ids = true", ["unique_ids"]),
    ],
)
def test_every_fault_of_an_identity_is_told_and_none_that_follows_from_another(
    tmp_path: Path, settings: str, words: list[str]
) -> None:
    path = tmp_path / "reconciler.toml"
    path.write_text(f"{LEAST}[jobs.identity]\n{settings}\n")
    found = read_config(path, {})
    assert isinstance(found, list)
    begin = f"{path}: [jobs clicks.identity] "
    assert [each.message.removeprefix(begin).partition(" ")[0] for each in found] == words, found


def test_a_file_of_an_editor_on_windows_is_read(tmp_path: Path) -> None:
    """It begins with a byte order mark, which no editor shows, and its lines end with CR and LF."""
    path = tmp_path / "reconciler.toml"
    path.write_bytes(b"\xef\xbb\xbf" + LEAST.replace("\n", "\r\n").encode())
    assert load_config(path, {}).jobs[0].name == "clicks"


def test_two_topics_with_one_name_at_the_destination(complaint) -> None:
    """Two stored offsets for one partition: neither could be called right."""
    text = LEAST.replace('["events"]', '["one", "two"]') + '[topics.names.b]\n"one@a" = "x"\n"two@a" = "x"\n'
    assert "one@a and two@a are both x on b" in complaint(text)


@pytest.mark.parametrize(
    "line",
    [
        'bootstrap_servers = "b:9092"\nbootstrap_server = "${S}"',
        'bootstrap_servers = "b:9092"\nclient = "${S}"',
        'bootstrap_servers = "b:9092"\n[policy]\nnew = "${S}"',
        'bootstrap_servers = "b:9092"\n[search]\ndeadline = "x${S}y"',
        'bootstrap_servers = "b:9092"\n[search]\nscan_records = "file:FILE"',
        'bootstrap_servers = "b:9092"\n[topics]\npolicy = "${S}"',
    ],
)
def test_a_secret_is_not_repeated_in_a_complaint(complaint, tmp_path, line: str) -> None:
    secret = "hush'\\hush"
    (tmp_path / "secret").write_text(secret)
    text = LEAST.replace('bootstrap_servers = "b:9092"', line.replace("FILE", str(tmp_path / "secret")))
    said = complaint(text, S=secret)
    assert "hush" not in said.replace(str(tmp_path), "")


def test_a_configuration_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "reconciler.toml"
    path.write_bytes(base64.b64decode("/////w=="))
    with pytest.raises(ConfigError, match=r"cannot be read: it is not UTF-8 text\. Save it as UTF-8, or name"):
        load_config(path, {})
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory\. Name a file"):
        load_config(tmp_path, {})


@pytest.mark.parametrize("servers", ["b", "SASL_SSL://b:1", "b:1, c:2,", "[::1]:9092", "::1", "10.0.0.1:1", "b_1.x:1"])
def test_brokers_as_the_client_reads_them(load: Load, servers: str) -> None:
    assert load(LEAST.replace("b:9092", servers)).destination.bootstrap_servers == servers


def test_two_topics_of_a_job_whose_names_change_places(load: Load, complaint: Callable[..., str]) -> None:
    """Without a record, the row of ``events`` would be taken for that of ``b.events`` at the destination."""
    both = LEAST.replace('home = "a"', 'home = "a"\norigins = ["a", "b"]')
    said = complaint(both)
    assert 'Topics events@a and events@b of job "clicks" are both called "events", on different clusters' in said
    config = load(f'{both}[state]\nstore = "files:state"\n')
    assert config.jobs[0].topics == ("events", "b.events")


def test_two_jobs_of_a_group_whose_topics_names_change_places(load: Load, complaint: Callable[..., str]) -> None:
    other = of_two_jobs("sqlite:///offsets.db", "sqlite:///offsets.db").replace('home = "a"', 'home = "b"', 1)
    assert "share the stored offsets of a topic: one store, one group" in complaint(other)
    apart = of_two_jobs("sqlite:///offsets.db", "sqlite:///others.db").replace('home = "a"', 'home = "b"', 1)
    assert len(load(apart).jobs) == 2


@pytest.mark.parametrize(
    ("store", "other"),
    [
        ("sqlite:///offsets.db", "sqlite:///./offsets.db"),
        ("sqlite:///offsets.db", "SQLITE:///{}/offsets.db"),
        ("files:offsets", "files:./offsets/?keep=5"),
        ("checkpoint:{}/clicks", "checkpoint:clicks/"),
        ("zookeeper://a,b/k?layout=single", "zookeeper://b,a:2181/k?timeout=9&layout=single"),
    ],
)
def test_two_jobs_share_stored_offsets_however_their_store_is_spelt(
    complaint: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, other: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "share the stored offsets" in complaint(of_two_jobs(store.format(tmp_path), other.format(tmp_path)))


@pytest.mark.parametrize(
    ("store", "other"),
    [
        ("sqlite:///offsets.db", "sqlite:///other.db"),
        ("sqlite:///offsets", "files:offsets"),
        ("files:~\\u0000/offsets", "files:offsets"),
    ],
)
def test_jobs_of_one_group_in_two_stores_share_nothing(load: Load, store: str, other: str) -> None:
    assert len(load(of_two_jobs(store, other)).jobs) == 2


TABLE = "postgresql://h/db?table=t&topic=a&partition=b&offset=c"


@pytest.mark.parametrize(
    "store",
    [
        TABLE,
        TABLE.replace("postgresql", "Postgres"),
        "zookeeper://h/k?layout=single",
        "checkpoint:clicks",
        "hbase://h/t?layout=cdap-logsaver&prefix=100",
        "delta:clicks?layout=commit&number=next",
        "iceberg:lab/db.t?layout=summary&number=next&property=offs",
    ],
)
def test_two_groups_share_the_stored_offsets_of_a_store_without_groups(
    complaint: Callable[..., str], store: str
) -> None:
    said = complaint(of_two_jobs(store, store).replace('"readers"', '"others"', 1))
    assert "share the stored offsets of a topic: one store, which has no groups" in said


@pytest.mark.parametrize(
    "store",
    [
        "sqlite:///offsets.db",
        f"{TABLE}&group=d",
        "postgresql://h/db",
        "zookeeper://h/k?layout=consumers",
        "hbase://h/t?layout=cloudera",
        "delta:clicks?layout=commit&number=next&property={{group}}",
        "delta:clicks?layout=txn&number=last&app_id={{group}}-{{partition}}&topic_name=events&partitions=1",
        "iceberg:lab/db.t?layout=columns&number=last&topic=a&partition=b&offset=c&group=d",
    ],
)
def test_two_groups_share_nothing_in_a_store_with_groups(load: Load, store: str) -> None:
    text = of_two_jobs(store.format(), store.format()).replace('"readers"', '"others"', 1)
    assert len(load(text).jobs) == 2


def test_two_stores_that_are_not_known_are_not_said_to_be_one(tmp_path: Path) -> None:
    (fault,) = faults_of(tmp_path, of_two_jobs("${UNSET}", "${UNSET}"))
    assert "${UNSET} is not set" in fault


def of_two_jobs(store: str, other: str) -> str:
    """Of one group and one topic."""
    twin = LEAST[LEAST.index("[[jobs]]") :].replace('name = "clicks"', 'name = "views"')
    return LEAST.replace("sqlite:///offsets.db", store) + twin.replace("sqlite:///offsets.db", other)


def faults_of(folder: Path, text: str) -> list[str]:
    path = folder / "reconciler.toml"
    path.write_text(text)
    found = read_config(path, {})
    assert isinstance(found, list)
    return [str(fault).removeprefix(f"{path}: ") for fault in found]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (LEAST.replace('["events"]', '["events", "events"]'), "[jobs clicks] topics must be a list of different topic"),
        (
            f'{LEAST}[topics.names.b]\n"events@a" = ""\n',
            "[topics.names.b] events@a is empty. Give it, or leave it out.",
        ),
        (
            f'{LEAST}[topics.names.b]\n"events@a" = ["a.events"]\n',
            "[topics.names.b] events@a must be text in quotes, not a list.",
        ),
        (f'{LEAST}[topics]\nnames = "a.events"\n', "[topics] names must be a table, not 'a.events'."),
        (f"topics = 1\n{LEAST}", "[topics] must be a table, not 1."),
        (
            LEAST.replace('["events"]', '["events", "views"]')
            + '[topics.names.b]\n"events@a" = "${UNSET}"\n"views@a" = "${UNSET}"\n',
            "${UNSET} is not set in the environment.",
        ),
        (
            LEAST.replace('"a"', "1") + '[topics.names.b]\n"views@a" = "views"\n',
            "[jobs clicks] home must be text in quotes, not 1.",
        ),
    ],
)
def test_no_second_complaint_about_topics_follows_from_the_first(tmp_path: Path, text: str, fault: str) -> None:
    (found,) = faults_of(tmp_path, text)
    assert found.startswith(fault)


def test_a_plan_that_would_expire_at_once_is_refused(complaint) -> None:
    assert "at least" in complaint(LEAST.replace("[[jobs]]", '[policy]\nplan_expires = "0s"\n[[jobs]]'))


@pytest.mark.parametrize("key", ["name", "home", "topics", "offsets"])
def test_a_misspelt_required_key_is_one_fault_that_suggests_the_right_one(tmp_path: Path, key: str) -> None:
    slip = key[:-2] + key[-1] + key[-2]
    path = tmp_path / "reconciler.toml"
    path.write_text(LEAST.replace(f"\n{key} =", f"\n{slip} =", 1))
    found = read_config(path, {})
    assert isinstance(found, list)
    (fault,) = found
    assert f"{key} is missing, and {slip} is not a known key." in fault.message
    assert fault.hint == f"Did you mean {key}?"


def test_a_required_signature_needs_a_trusted_key(tmp_path: Path) -> None:
    path = tmp_path / "reconciler.toml"
    path.write_text(f"{LEAST}\n[trust]\nrequire_signature = true\n")
    found = read_config(path)
    assert isinstance(found, list)
    (fault,) = found
    assert "[trust] require_signature is true, and no key is trusted." in fault.message
    path.write_text(f'{LEAST}\n[trust]\nrequire_signature = true\ntrusted_keys = ["a.pem"]\n')
    assert not isinstance(read_config(path), list)
