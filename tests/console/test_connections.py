"""Connections that send no request, an incomplete one, or read no response."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from tests.console.process import Console, Visitor, console_process

from quorumlog.console.server import CONNECTIONS_MAX, REQUEST_S
from quorumlog.testing import Broker

WAIT_S = 60


@pytest.fixture
def own_console(broker: Broker) -> Iterator[Console]:
    """A console without connections of other tests."""
    with console_process("--bootstrap", broker.grpc) as console:
        yield console


@contextmanager
def connected(console: Console, count: int, sent: str = "") -> Iterator[list[socket.socket]]:
    """Open connections with small receive buffers and send a text on each."""
    host, _, port = console.address.rpartition(":")
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            one.settimeout(WAIT_S)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            one.connect((host, int(port)))
            with suppress(OSError):  # it was ended for another one
                one.sendall(sent.encode())
            opened.append(one)
        yield opened


def request(console: Console, path: str, cookie: str = "") -> str:
    """Return the text of a request on a connection that stays open."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {console.address}", f"Cookie: {cookie}", "", ""]
    return "\r\n".join(lines)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["silent", "half a request", "unread responses"])
def test_connections_of_strangers_do_not_keep_out_others(own_console: Console, kind: str) -> None:
    texts = {
        "silent": "",
        "half a request": request(own_console, "/")[:-4],
        "unread responses": request(own_console, "/static/htmx.min.js") * 20,
    }
    visitor = Visitor(own_console)
    visitor.login()
    with connected(own_console, 1, request(own_console, "/live/topics", visitor.cookie)) as mine:
        assert b"event: live" in receive_until(mine[0], b"event: live")
        with connected(own_console, CONNECTIONS_MAX + 10, texts[kind]):
            assert visitor.get("/topics").status == 200
        assert receive_until(mine[0], b"event: same"), "the open page has lost its updates"


def receive_until(connection: socket.socket, text: bytes) -> bytes:
    """Return the received bytes of a connection up to a text; b"" if it ends before."""
    found = b""
    while text not in found:
        part = connection.recv(65_536)
        if not part:
            return b""
        found += part
    return found


@pytest.mark.long
def test_connection_without_a_request_of_a_session_ends(own_console: Console) -> None:
    with (
        connected(own_console, 1) as silent,
        connected(own_console, 1, request(own_console, "/")[:-4]) as begun,
        connected(own_console, 1, request(own_console, "/")) as answered,
    ):
        assert WAIT_S > 2 * REQUEST_S
        for each in (*silent, *begun):
            assert receive_all(each) == b""
        assert b"401" in receive_all(answered[0])


def receive_all(connection: socket.socket) -> bytes:
    """Return the received bytes of a connection until its end; raise TimeoutError without one."""
    found = bytearray()
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            found += part
    return bytes(found)
