"""Broker addresses in responses, by the listener and the host that the client used."""

import pytest

from quorumlog.frontends.kafka.api import Client
from quorumlog.frontends.kafka.endpoints import controller_of, endpoints
from quorumlog.ids import DirectoryId, NodeId
from quorumlog.metadata import (
    EMPTY_IMAGE,
    ControllerConfig,
    MetadataImage,
    RegisterBroker,
    UnfenceBroker,
    decide,
    replay_batch,
)

HERE, OTHER, THIRD = NodeId(1), NodeId(2), NodeId(3)


class Brokers:
    """An image with the brokers that a test registers."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE

    def _do(self, command: RegisterBroker | UnfenceBroker) -> None:
        decision = decide(self.image, command, ControllerConfig())
        assert not hasattr(decision, "slices")
        self.image = replay_batch(
            self.image,
            decision.records,
            base_offset=self.image.offset + 1,
            epoch=1,
        )

    def add(
        self, node: NodeId, *, grpc: str = "h:9094", fenced: bool = False, **listeners: str
    ) -> None:
        command = RegisterBroker(
            broker_id=node,
            incarnation_id=bytes([node]) * 16,
            directory_id=DirectoryId(bytes([node]) * 16),
            grpc_address=grpc,
            rack=f"r{node}",
            kafka_listeners=tuple(listeners.items()),
        )
        self._do(command)
        if not fenced:
            epoch = self.image.brokers[node].epoch
            self._do(UnfenceBroker(broker_id=node, broker_epoch=epoch))

    def advertised(
        self, *, listener: str = "OUT", local: str = "dialled:9092", with_fenced: bool = False
    ) -> dict[int, str]:
        client = Client(peer="p:1", local=local, listener=listener)
        found = endpoints(self.image, client, asked=HERE, with_fenced=with_fenced)
        return {each.node_id: f"{each.host}|{each.port}" for each in found.values()}


def test_client_gets_the_addresses_of_its_listener_name() -> None:
    brokers = Brokers()
    brokers.add(HERE, IN="in-1:9092", OUT="out-1:19092")
    brokers.add(OTHER, IN="in-2:9092", OUT="out-2:19092")
    assert brokers.advertised(listener="OUT") == {1: "out-1|19092", 2: "out-2|19092"}
    assert brokers.advertised(listener="IN") == {1: "in-1|9092", 2: "in-2|9092"}


def test_a_broker_without_a_listener_of_the_name_is_left_out() -> None:
    brokers = Brokers()
    brokers.add(HERE, IN="in-1:9092", OUT="out-1:19092")
    brokers.add(OTHER, IN="in-2:9092")
    assert brokers.advertised(listener="OUT") == {1: "out-1|19092"}


def test_fenced_brokers_are_left_out_unless_requested() -> None:
    brokers = Brokers()
    brokers.add(HERE, OUT="out-1:9092")
    brokers.add(OTHER, OUT="out-2:9092", fenced=True)
    assert brokers.advertised() == {1: "out-1|9092"}
    assert brokers.advertised(with_fenced=True) == {1: "out-1|9092", 2: "out-2|9092"}


def test_broker_on_all_interfaces_has_the_host_that_the_client_used() -> None:
    brokers = Brokers()
    brokers.add(HERE, grpc="internal:9094", OUT=":9092")
    assert brokers.advertised(local="203.0.113.7:9092") == {1: "203.0.113.7|9092"}


def test_other_broker_on_all_interfaces_of_the_same_machine_has_the_same_host() -> None:
    brokers = Brokers()
    brokers.add(HERE, grpc="127.0.0.1:9094", OUT=":9092")
    brokers.add(OTHER, grpc="127.0.0.1:9194", OUT=":9192")
    assert brokers.advertised(local="198.51.100.4:9092") == {
        1: "198.51.100.4|9092",
        2: "198.51.100.4|9192",
    }


def test_other_broker_on_all_interfaces_of_another_machine_has_its_own_host() -> None:
    brokers = Brokers()
    brokers.add(HERE, grpc="one.example.net:9094", OUT=":9092")
    brokers.add(OTHER, grpc="two.example.net:9094", OUT=":9092")
    assert brokers.advertised(local="198.51.100.4:9092") == {
        1: "198.51.100.4|9092",
        2: "two.example.net|9092",
    }


@pytest.mark.parametrize(
    ("local", "host"),
    [("[::1]:9092", "::1"), ("[::ffff:192.0.2.1]:9092", "192.0.2.1"), ("h.x:9092", "h.x")],
)
def test_host_has_no_address_syntax(local: str, host: str) -> None:
    brokers = Brokers()
    brokers.add(HERE, OUT=":9092")
    assert brokers.advertised(local=local) == {1: f"{host}|9092"}


def test_configured_ipv6_host_has_no_brackets() -> None:
    brokers = Brokers()
    brokers.add(HERE, OUT="[2001:db8::1]:9092")
    assert brokers.advertised() == {1: "2001:db8::1|9092"}


def test_controller_id_is_the_controller_or_a_broker_that_forwards() -> None:
    brokers = Brokers()
    brokers.add(HERE, OUT="out-1:9092")
    brokers.add(OTHER, OUT="out-2:9092")
    client = Client(peer="p:1", local="out-1:9092", listener="OUT")
    alive = endpoints(brokers.image, client, asked=HERE)
    assert controller_of(alive, OTHER, HERE) == OTHER
    assert controller_of(alive, 101, HERE) == HERE
    assert controller_of({OTHER: alive[OTHER]}, -1, HERE) == OTHER
    assert controller_of({}, -1, HERE) == -1
