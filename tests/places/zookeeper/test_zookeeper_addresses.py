"""ZooKeeper addresses: which store each opens, and the error for a wrong one, without any secret."""

import pytest

from reconciler.core.errors import ConfigError
from reconciler.places.registry import open_store


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("zookeeper://h/kafka", "it has no layout=, which is one of consumers, single"),
        ("zookeeper://h/kafka?layout=singel", "layout='singel' is not one of consumers, single"),
        ("zookeeper://h?layout=consumers&number=end", "number='end' is not one of next, last, first"),
        ("zookeeper://h?layout=consumers&save=from", "'save' is not one of its parameters"),
        ("zookeeper://h?layout", "its parameters are not NAME=VALUE&NAME=VALUE"),
        ("zookeeper:///kafka?layout=consumers", "it names no host"),
        ("zookeeper://:2181?layout=consumers", "it names no host"),
        ("zookeeper://h:port?layout=consumers", "its hosts are not HOST:PORT"),
        ("zookeeper://user@h?layout=consumers", "its credentials are not USER:PASSWORD"),
        ("zookeeper://h/a//b?layout=consumers", "the znode '' in its path"),
        ("zookeeper://h/a#b?layout=consumers", "has a # in it"),
        ("zookeeper://h/?layout=consumers&of_group=g", "of_group goes with layout=single only"),
    ],
)
def test_a_wrong_address_is_refused_with_the_reason_and_an_example(address, why):
    with pytest.raises(ConfigError) as caught:
        open_store(address)
    assert why in caught.value.message
    assert "zookeeper://h1:2181,h2:2181/kafka?layout=consumers" in caught.value.hint


def test_a_password_is_not_shown():
    for address in ("zookeeper://u:pw@h/?layout=consumers&nope=1", "zookeeper://u:pw@h:x/?layout=consumers"):
        with pytest.raises(ConfigError) as caught:
            open_store(address)
        assert "pw" not in str(caught.value)
    store = open_store("zookeeper://u:p%40w@h1,[::1]:2182/kafka/dc%201?layout=consumers&number=first")
    assert store.address == "zookeeper://h1,[::1]:2182/kafka/dc%201?layout=consumers&number=first"
    assert store._ensemble._credentials == "u:p@w"
    assert store._chroot == "/kafka/dc 1"


@pytest.mark.parametrize("login", ["u:12/pw", "u:1,2/pw", "u/pw", "u:1/pw/pw", "me:12@x/pw"])
def test_the_end_of_a_password_with_a_bare_slash_is_not_taken_for_a_znode(login):
    with pytest.raises(ConfigError, match=r"@ behind its hosts .* in a login, write / .* as %2F") as caught:
        open_store(f"zookeeper://{login}@h1:2181/kafka?layout=consumers")
    assert "pw" not in str(caught.value)
    assert open_store("zookeeper://h/a%40b?layout=consumers")._chroot == "/a@b"


def test_capabilities_need_no_server():
    able = open_store("zookeeper://no-such-host/?layout=single").capabilities
    assert (able.writable, able.keeps_anchors, able.atomic_batches) == (True, False, False)
