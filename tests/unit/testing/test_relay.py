"""A relay that holds delays all bytes and connects until its release.

Only the test accepts on the target listener, so established connections are in its queue.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import pytest
from tests.kit.waits import wait_until_blocking

from quorumlog.testing import Direction, ForwardingProxy

T = TypeVar("T")

WAIT_S = 60.0
SENT_MAX = 1 << 28
SILENCE_S = 0.1  # a socket that received nothing for so long will receive nothing


@pytest.fixture
def target() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT_S)
        yield listener


@pytest.fixture
def proxy(target: socket.socket) -> Iterator[ForwardingProxy]:
    with ForwardingProxy(f"127.0.0.1:{target.getsockname()[1]}") as running:
        yield running


def connected(proxy: ForwardingProxy) -> socket.socket:
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


def accepted(target: socket.socket) -> socket.socket:
    connection, _ = target.accept()
    connection.settimeout(WAIT_S)
    return connection


def is_silent(listener: socket.socket, act: Callable[[], T]) -> bool:
    """Return True if a socket has nothing to read."""
    listener.settimeout(SILENCE_S)
    try:
        act()
    except TimeoutError:
        return True
    finally:
        listener.settimeout(WAIT_S)
    return False


def test_connect_during_a_hold_completes_at_the_release(
    proxy: ForwardingProxy, target: socket.socket
) -> None:
    proxy.hold()
    with connected(proxy) as caller:
        caller.sendall(b"early")
        assert is_silent(target, target.accept)
        proxy.release()
        with accepted(target) as server:
            assert server.recv(5) == b"early"
            server.sendall(b"answer")
            assert caller.recv(6) == b"answer"


def test_connect_cancelled_during_a_hold_never_reaches_the_target(
    proxy: ForwardingProxy, target: socket.socket
) -> None:
    proxy.hold()
    with connected(proxy) as caller:
        caller.sendall(b"in vain")
        wait_until_blocking(lambda: proxy.connections == 1)
    wait_until_blocking(lambda: proxy.connections == 0)
    proxy.release()
    assert is_silent(target, target.accept)


def test_only_a_hold_towards_the_server_delays_connects(
    proxy: ForwardingProxy, target: socket.socket
) -> None:
    proxy.hold(Direction.TO_CLIENT)
    with connected(proxy) as caller, accepted(target) as server:
        caller.sendall(b"asked")
        assert server.recv(5) == b"asked"
        server.sendall(b"told")
        assert is_silent(caller, lambda: caller.recv(4))
        proxy.release()
        assert caller.recv(4) == b"told"


def test_end_of_stream_during_a_hold_arrives_after_the_last_bytes(
    proxy: ForwardingProxy, target: socket.socket
) -> None:
    with connected(proxy) as caller, accepted(target) as server:
        caller.sendall(b"1")
        assert server.recv(1) == b"1"
        proxy.hold()
        caller.sendall(b"2")
        caller.close()
        assert is_silent(server, lambda: server.recv(1))
        proxy.release()
        assert server.recv(1) == b"2"
        assert server.recv(1) == b""


def test_sender_into_a_held_relay_is_slowed_down_without_loss(
    proxy: ForwardingProxy, target: socket.socket
) -> None:
    with connected(proxy) as caller, accepted(target) as server:
        proxy.hold()
        caller.settimeout(SILENCE_S)
        sent = 0
        with suppress(TimeoutError):
            while sent < SENT_MAX:
                sent += caller.send(bytes(1 << 16))
        assert sent < SENT_MAX, "the relay never stops reading"
        proxy.release()
        received = 0
        while received < sent:
            received += len(server.recv(1 << 20))
        assert received == sent


def test_delay_applies_to_each_chunk_in_order(
    proxy: ForwardingProxy, target: socket.socket
) -> None:
    with connected(proxy) as caller, accepted(target) as server:
        proxy.delay_s = 0.02
        began_s = time.monotonic()
        caller.sendall(b"a")
        assert server.recv(1) == b"a"
        assert time.monotonic() - began_s >= 0.02
        caller.sendall(b"b")
        caller.close()
        assert server.recv(1) == b"b"
        assert server.recv(1) == b""


def test_a_proxy_whose_port_is_taken_does_not_start(target: socket.socket) -> None:
    proxy = ForwardingProxy("127.0.0.1:1", port=target.getsockname()[1])
    with pytest.raises(OSError, match="in use"), proxy:
        pass
