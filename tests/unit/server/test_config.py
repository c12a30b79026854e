"""The table of a node's settings: accepted values and error messages."""

import json

import pytest

from quorumlog.errors import InvalidConfig
from quorumlog.ids import DirectoryId, NodeId
from quorumlog.server.addresses import VoterEntry, id_text, parse_voter
from quorumlog.server.broker_services import advertised_kafka
from quorumlog.server.config import NodeConfig, parse_toml, settings, toml_source

A, B = id_text(b"a" * 16), id_text(b"b" * 16)


def test_dotted_keys_and_tables_are_equivalent() -> None:
    dotted = 'data.dir = "/d"\nnode.id = 7\nlisteners.grpc = "127.0.0.1:0"\n'
    tables = '[data]\ndir = "/d"\n[node]\nid = 7\n[listeners]\ngrpc = "127.0.0.1:0"\n'
    assert parse_toml(dotted, source="a") == parse_toml(tables, source="b")
    assert parse_toml(dotted, source="a").node_id == 7


def test_defaults_listen_on_localhost_only() -> None:
    config = NodeConfig(data_dir="/d")
    assert config.grpc_listener == "127.0.0.1:9094"
    assert config.controller_listener == "127.0.0.1:9093"
    assert (config.is_broker, config.is_controller) == (True, True)


def test_an_unknown_key_is_refused_with_the_nearest_right_one() -> None:
    with pytest.raises(
        InvalidConfig, match=r"node\.toml:2: unknown setting listener\.grpc; did you"
    ):
        parse_toml('data.dir = "/d"\nlistener.grpc = "x:1"', source="node.toml")


def test_unknown_key_without_a_similar_one_lists_all_keys() -> None:
    with pytest.raises(InvalidConfig, match=r"known are advertised\.controller, .*subscribe"):
        toml_source("zzz = 1", path="node.toml")


def test_a_file_that_is_not_toml_is_named() -> None:
    with pytest.raises(InvalidConfig, match=r"n\.toml is not TOML"):
        parse_toml("data.dir = ", source="n.toml")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "data.dir: missing"),
        ({"data.dir": ""}, "data.dir: empty"),
        ({"data.dir": 5}, "data.dir is 5; give text"),
        ({"data.dir": "/d", "node.id": "x"}, "node.id is 'x'; give a whole number"),
        ({"data.dir": "/d", "node.id": True}, "node.id is True; give a whole number"),
        ({"data.dir": "/d", "node.id": -1}, "node.id is -1; give 0..2147483647"),
        ({"data.dir": "/d", "node.roles": []}, "node.roles: []"),
        ({"data.dir": "/d", "node.roles": ["observer"]}, "give controller, broker, or both"),
        ({"data.dir": "/d", "node.roles": "broker"}, "give a list of text"),
        ({"data.dir": "/d", "node.roles": ["broker"]}, "needs controller.bootstrap"),
        (
            {
                "data.dir": "/d",
                "node.roles": ["broker"],
                "controller.voters": ["1@127.0.0.1:9093", "2@127.0.0.1:9193"],
            },
            "remove the node from the voters",
        ),
        ({"data.dir": "/d", "group.consumer.assignors": ["sticky"]}, "give uniform or range"),
        ({"data.dir": "/d", "group.consumer.assignors": []}, "give uniform or range"),
        ({"data.dir": "/d", "listeners.grpc": "0.0.0.0:1"}, "for clients in advertised.grpc"),
        ({"data.dir": "/d", "node.roles": [1]}, "give a list of text"),
        ({"data.dir": "/d", "listeners.grpc": "9094"}, 'listeners.grpc: "9094"; give host:port'),
        ({"data.dir": "/d", "listeners.grpc": "h:70000"}, "a port of 0..65535"),
        ({"data.dir": "/d", "listeners.grpc": ""}, "listeners.grpc: "),
        ({"data.dir": "/d", "listeners.grpc": "h:" + "9" * 5_000}, "a port of 0..65535"),
        ({"data.dir": "/d", "listeners.grpc": "h:\u0661"}, "a port of 0..65535"),
        ({"data.dir": "/d", "listeners.grpc": "::1:9094"}, "in brackets, [::1]:9094"),
        (
            {"data.dir": "/d", "controller.voters": ["9" * 5_000 + "@h:1"]},
            'give "id@host:port:directory id"',
        ),
        ({"data.dir": "/d", "advertised.grpc": "x"}, "advertised.grpc: "),
        ({"data.dir": "/d", "controller.voters": ["1"]}, 'give "id@host:port:directory id"'),
        ({"data.dir": "/d", "controller.voters": ["1@h:1", "1@h:2"]}, "have the same node id"),
        ({"data.dir": "/d", "controller.voters": ["1@h:1", "2@h:1"]}, "have the same address"),
        (
            {"data.dir": "/d", "controller.voters": [f"1@h:1:{A}", f"2@h:2:{A}"]},
            "have the same dir",
        ),
        ({"data.dir": "/d", "controller.voters": [f"1@h:1:{A}", "2@h:2"]}, "storage random-id"),
        ({"data.dir": "/d", "controller.voters": [f"1@h:1:{A[:-1]}"]}, "22 characters of base64"),
        ({"data.dir": "/d", "controller.voters": ["1@h:1:" + "A" * 22]}, "22 characters of base"),
        ({"data.dir": "/d", "controller.voters": ["1@h:1:" + "é" * 22]}, "22 characters of base"),
        ({"data.dir": "/d", "controller.voters": [f"1@h:1:{A}", f"2@h:0:{B}"]}, "no fixed port"),
        ({"data.dir": "/d", "controller.bootstrap": ["h"]}, "controller.bootstrap: "),
        ({"data.dir": "/d", "advertised.controller": "h"}, "advertised.controller: "),
        (
            {
                "data.dir": "/d",
                "controller.bootstrap": ["h:1"],
                "listeners.controller": "0.0.0.0:9093",
            },
            "controllers in advertised.controller",
        ),
        (
            {
                "data.dir": "/d",
                "controller.bootstrap": ["h:1"],
                "listeners.controller": "127.0.0.1:0",
            },
            "controllers in advertised.controller",
        ),
        (
            {"data.dir": "/d", "listeners.http": "h:1"},
            "listeners.http: h:1 is beyond loopback, and needs TLS; give ssl.certificate.file and",
        ),
        (
            {"data.dir": "/d", "listeners.grpc": "h:1"},
            "listeners.grpc: gRPC clients use PLAINTEXT on h:1, beyond loopback; give"
            " grpc.security.protocol=SASL_SSL with a certificate, or allow.insecure.listeners=true",
        ),
        (
            {"data.dir": "/d", "controller.heartbeat.ms": 501},
            "give at most 500",
        ),
        (
            {"data.dir": "/d", "produce.inflight.requests.max": 0},
            "produce.inflight.requests.max is 0; give 1..1000 requests",
        ),
    ],
)
def test_invalid_value_is_named_with_the_valid_ones(
    values: dict[str, object], message: str
) -> None:
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
    with pytest.raises(InvalidConfig) as caught:
        parse_toml(text, source="node.toml")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("listeners", "advertised", "message"),
    [
        (["9092"], [], 'listeners.kafka: "9092"; give host:port'),
        ([":9092"], [], "0.0.0.0:9092 for every interface"),
        (["PLAINTEXT://:9092"], [], "0.0.0.0:9092 for every interface"),
        (["h:1"], [], "PLAINTEXT uses PLAINTEXT on h:1, beyond loopback; give SASL_SSL://h:1 with"),
        (["SASL_PLAINTEXT://[::]:1"], [], "SASL_PLAINTEXT on [::]:1, beyond loopback; give SASL_S"),
        (["127.0.0.1.evil:1"], [], "PLAINTEXT on 127.0.0.1.evil:1, beyond loopback"),
        (["h:1", "h:2"], [], "two listeners are named PLAINTEXT; use another name"),
        (["A://h:1", "A://h:2"], [], "two listeners are named A"),
        (["in://h:1"], [], "use capital letters"),
        (["://h:1"], [], "use capital letters"),
        (["SSL://h:1"], [], "the listener SSL uses TLS; give it and ssl.key.file"),
        (["h:1"], ["OUT://x:2"], "listeners.kafka has no listener named OUT; its names are PLAIN"),
        ([], ["x:2"], "listeners.kafka has no listener named PLAINTEXT; its names are none"),
        (["h:1"], ["0.0.0.0:2"], "clients cannot connect to"),
        (["h:1"], ["x:0"], "clients cannot connect to"),
        (["h:1"], ["x"], 'advertised.kafka: "x"; give host:port'),
        (["h:1"], ["x:1", "y:1"], "advertised.kafka: two listeners are named PLAINTEXT"),
    ],
)
def test_errors_of_kafka_listeners_are_named(
    listeners: list[str], advertised: list[str], message: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        NodeConfig(
            data_dir="/d", kafka_listeners=tuple(listeners), advertised_kafka=tuple(advertised)
        )
    assert message in caught.value.message


def test_several_kafka_listeners_have_names() -> None:
    config = NodeConfig(
        data_dir="/d",
        allow_insecure_listeners=True,
        kafka_listeners=("0.0.0.0:9092", "OUT_1://[::]:9192"),
        advertised_kafka=("OUT_1://broker.example.net:443",),
    )
    opened = {"PLAINTEXT": "0.0.0.0:9092", "OUT_1": "[::]:9192"}
    assert dict(advertised_kafka(config, opened)) == {
        "PLAINTEXT": ":9092",
        "OUT_1": "broker.example.net:443",
    }


def test_kafka_listener_of_one_interface_is_advertised_unchanged() -> None:
    config = NodeConfig(data_dir="/d", kafka_listeners=("127.0.0.1:0",))
    advertised = advertised_kafka(config, {"PLAINTEXT": "127.0.0.1:40001"})
    assert advertised == (("PLAINTEXT", "127.0.0.1:40001"),)


def test_every_setting_has_a_doc_and_a_default_of_its_kind() -> None:
    rows = list(settings())
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        assert row.doc.endswith("."), row.name
        assert row.default is None or isinstance(row.default, row.kind), row.name
        if row.kind is int:
            assert None not in (row.low, row.high), row.name


# --- the quorum ----------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["h:1", "127.0.0.1:9093", "[::1]:9093"])
@pytest.mark.parametrize("directory_id", [None, DirectoryId(b"a" * 16)])
def test_voter_round_trip(address: str, directory_id: DirectoryId | None) -> None:
    voter = VoterEntry(node_id=NodeId(7), address=address, directory_id=directory_id)
    assert parse_voter(str(voter)) == voter


def test_node_contacts_the_other_voters() -> None:
    config = NodeConfig(
        data_dir="/d",
        node_id=2,
        roles=("controller",),
        controller_voters=(f"1@h:1:{A}", f"2@h:2:{B}"),
        controller_bootstrap=("h:9", "h:1"),
        controller_listener="0.0.0.0:2",
        allow_insecure_listeners=True,
    )
    assert config.quorum_bootstrap == ("h:1", "h:9")
    assert config.quorum_address == "h:2"
    assert not config.is_alone
    assert (config.is_broker, config.is_controller) == (False, True)


def test_a_controller_without_clients_needs_no_address_for_them() -> None:
    config = NodeConfig(data_dir="/d", roles=("controller",), grpc_listener="0.0.0.0:9094")
    assert config.is_alone
    assert config.quorum_address == "127.0.0.1:9093"


def test_raft_listener_defaults_to_any_port_of_the_controllers_host() -> None:
    assert NodeConfig(data_dir="/d").stream_listener == "127.0.0.1:0"
    assert NodeConfig(data_dir="/d", controller_listener="[::1]:5").stream_listener == "[::1]:0"
    elsewhere = NodeConfig(data_dir="/d", raft_listener="h:7", allow_insecure_listeners=True)
    assert elsewhere.stream_listener == "h:7"
    with pytest.raises(InvalidConfig, match=r"listeners\.raft"):
        NodeConfig(data_dir="/d", raft_listener="nowhere")


def test_lone_node_may_use_port_zero() -> None:
    config = NodeConfig(data_dir="/d", controller_listener="127.0.0.1:0")
    assert config.quorum_address == ""


def test_node_outside_of_the_voters_contacts_them_all() -> None:
    config = NodeConfig(data_dir="/d", node_id=3, controller_voters=("1@h:1",))
    assert config.quorum_bootstrap == ("h:1",)
    assert config.own_entry is None
