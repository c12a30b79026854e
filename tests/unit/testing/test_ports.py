"""Ports reserved for a test are given to no other process until its node listens there."""

import socket

import pytest

from quorumlog.testing.node_settings import NodeEndpoints
from quorumlog.testing.ports import MAY_SHARE, Ports

pytestmark = pytest.mark.skipif(not MAY_SHARE, reason="ports are let go at the start here")

PORTS_TRIED = 2_000


def place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


@pytest.fixture
def ports() -> "Ports":
    return Ports()


def test_reserved_port_is_given_to_no_other_process(ports: Ports) -> None:
    mine = {place(ports.take())[1] for _ in range(20)}
    assert len(mine) == 20
    for _ in range(PORTS_TRIED):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            assert other.getsockname()[1] not in mine
    ports.close()


def test_reserved_port_refuses_connections_until_a_listener_opens(ports: Ports) -> None:
    where = place(ports.take())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(where)
    for _ in range(2):  # a node that restarts
        with socket.create_server(where) as listener, socket.create_connection(where) as caller:
            connection, _ = listener.accept()
            connection.close()
            caller.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(where)
    ports.close()


def test_nodes_share_no_address(ports: Ports) -> None:
    nodes = [NodeEndpoints.take(ports) for _ in range(3)]
    addresses = [
        address
        for node in nodes
        for address in (node.kafka, node.grpc, node.controller, node.raft, node.replica, node.http)
    ]
    assert len(set(addresses)) == 18
    ports.close()
