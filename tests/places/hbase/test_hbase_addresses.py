"""Addresses of stores in HBase: which store each opens, and the error for a wrong one."""

import socket

import pytest

from reconciler.core.errors import ConfigError, Unreachable
from reconciler.places.registry import open_store

GOOD = {
    "hbase://h/t?layout=cloudera&transport=framed&protocol=compact&timeout=0.5": False,
    "hbase://h:9090/t?layout=cloudera": False,
    "hbase://h:9090/cdap_system:log.meta?layout=cdap-logsaver&prefix=100&of_group=logs": True,
    "hbase://h:9090/cdap_system:metrics.kafka.meta?layout=cdap-metrics": False,
    "hbase://h:9090/kv?layout=cdap-flowlet&id_of=json:$.id&column=d:c": True,
    "hbase://h:9090/kv?layout=cdap-flowlet&id_of=key&key_of=python:os.path:join&find=python:os.path:join": True,
}


@pytest.mark.parametrize("address", GOOD)
def test_capabilities_need_no_server(address):
    store = open_store(address)
    able = store.capabilities
    assert (able.keeps_anchors, able.writable) == (GOOD[address], True)
    assert store.address == address
    store.close()


@pytest.mark.parametrize(
    ("address", "what", "hint"),
    [
        ("hbase:t", "is not the address of an HBase store", "hbase://thrift-host:9090/TABLE?layout=cloudera"),
        ("hbase://h:9090", "is not the address", "TABLE"),
        ("hbase://h:9090/a/b?layout=cloudera", "is not the address", "TABLE"),
        ("hbase://h:port/t?layout=cloudera", "is not the address", "TABLE"),
        ("hbase://user:pw@h/t?layout=cloudera", "is not the address", "no user and no password"),
        ("hbase://h/a%00b?layout=cloudera", "NUL", "Correct the name"),
        (
            "hbase://h/t",
            "no layout=, which is one of cloudera, cdap-logsaver, cdap-metrics, cdap-flowlet",
            "hbase://thrift-host:9090/TABLE?layout=cloudera",
        ),
        (
            "hbase://h/t?layout=cloudera&prefix=100",
            "'prefix' is not one of its parameters (layout, transport, protocol, timeout, number)",
            "hbase://thrift-host:9090/TABLE?layout=cloudera",
        ),
        (
            "hbase://h/t?layout=cloudera&anchors=x",
            "'anchors' is not one of its parameters (layout, transport, protocol, timeout, number)",
            "hbase://thrift-host:9090/TABLE?layout=cloudera",
        ),
        ("hbase://h/t?layout=cloudera&transport=tls", "transport='tls' is not one of buffered, framed", "hbase://"),
        ("hbase://h/t?layout=cloudera&timeout=0", "timeout='0' is not a time in seconds, above 0", "hbase://"),
        ("hbase://h/t?layout=cdap-logsaver", "prefix is missing", "prefix=100 for the log writer, prefix=101"),
        ("hbase://h/t?layout=cdap-logsaver&prefix=4294967296", "is not the prefix", "prefix=100"),
        ("hbase://h/t?layout=cdap-flowlet", "needs id_of=", "python:package.module:function"),
        ("hbase://h/t?layout=cdap-flowlet&id_of=what", 'id = "what" is not known', ""),
        ("hbase://h/t?layout=cdap-flowlet&id_of=key&key_of=x", 'key_of = "x" must read', ""),
        ("hbase://h/t?layout=cdap-flowlet&id_of=key&find=python:no.such:f", 'find = "python:no.such:f"', "PYTHONPATH"),
        ("hbase://h/t?layout=cdap-flowlet&id_of=key&column=x:c", "is not a column of CDAP's family", "d:c"),
        # An empty variable in a script is no choice: without of_group, every group would read the rows.
        ("hbase://h/t?layout=cdap-metrics&of_group=", "of_group= is empty", "hbase://"),
        ("hbase://[::1]:9090/t?layout=cloudera", "is an IPv6 address, and HBase's Python client connects", "hbase://"),
        # Nothing behind a bare # would be read: neither the end of the name nor the parameters that follow.
        ("hbase://h/t?layout=cdap-metrics&of_group=team#1", "a # in it, which must be written as %23", "hbase://"),
    ],
)
def test_a_wrong_address_is_refused_with_the_known_choices(address, what, hint):
    with pytest.raises(ConfigError) as caught:
        open_store(address)
    assert what in caught.value.message
    assert hint in (caught.value.hint or "")
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("layout", ["cloudera", "cdap-metrics"])
def test_without_a_server_every_call_is_unreachable(layout):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store = open_store(f"hbase://127.0.0.1:{port}/t?layout={layout}&timeout=0.2")
    for call in (lambda: store.read("g"), lambda: store.check_writable("g"), store.create):
        with pytest.raises(Unreachable, match=f"No HBase Thrift server answers at 127.0.0.1:{port}") as caught:
            call()
        assert "hbase thrift start" in caught.value.hint


def test_a_silent_listener_times_out():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        store = open_store(f"hbase://127.0.0.1:{silent.getsockname()[1]}/t?layout=cloudera&timeout=0.2")
        with pytest.raises(Unreachable, match=r"gave no answer within 0\.2 s") as caught:
            store.read("g")
    assert "transport=framed" in caught.value.hint
