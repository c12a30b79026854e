"""The proxy forwards bytes, and each of its faults has its documented effect."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from quorumlog.testing import Direction, ForwardingProxy

WAIT_S = 60.0


@contextmanager
def echo_server() -> Iterator[str]:
    """A server that echoes on each connection. It yields its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def echo(connection: socket.socket) -> None:
        with connection:
            try:
                while content := connection.recv(4_096):
                    connection.sendall(content)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.settimeout(WAIT_S)
            threads.append(threading.Thread(target=echo, args=(connection,)))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for thread in threads:
            thread.join()


@pytest.fixture
def proxy() -> Iterator[ForwardingProxy]:
    with echo_server() as address, ForwardingProxy(address) as running:
        yield running


def connected(proxy: ForwardingProxy) -> socket.socket:
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


def received(connection: socket.socket, count: int) -> bytes:
    """Read so many bytes, or fewer if the connection ends."""
    content = b""
    while len(content) < count:
        try:
            more = connection.recv(count - len(content))
        except ConnectionError:
            break
        if not more:
            break
        content += more
    return content


def test_forwarded_bytes_are_counted(proxy: ForwardingProxy) -> None:
    content = bytes(range(256)) * 2_000
    with connected(proxy) as connection:
        connection.sendall(content)
        assert received(connection, len(content)) == content
        assert proxy.connections == 1
    assert proxy.passed_bytes(Direction.TO_SERVER) == len(content)
    assert proxy.passed_bytes(Direction.TO_CLIENT) == len(content)


def test_an_end_of_the_sending_side_is_passed_on(proxy: ForwardingProxy) -> None:
    with connected(proxy) as connection:
        connection.sendall(b"last words")
        connection.shutdown(socket.SHUT_WR)
        assert received(connection, 100) == b"last words"


def test_cut_ends_every_connection_and_accepts_new_ones(proxy: ForwardingProxy) -> None:
    with connected(proxy) as first, connected(proxy) as second:
        for connection in (first, second):
            connection.sendall(b"x")
            assert received(connection, 1) == b"x"
        proxy.cut()
        assert received(first, 1) == received(second, 1) == b""
    with connected(proxy) as third:
        third.sendall(b"y")
        assert received(third, 1) == b"y"


def test_held_bytes_arrive_in_order_after_the_release(proxy: ForwardingProxy) -> None:
    with connected(proxy) as connection:
        proxy.hold()
        connection.sendall(b"one ")
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.sendall(b"two")
        proxy.release()
        connection.settimeout(WAIT_S)
        assert received(connection, 7) == b"one two"


def test_silenced_connection_stays_open_without_traffic_while_new_ones_work(
    proxy: ForwardingProxy,
) -> None:
    with connected(proxy) as old:
        old.sendall(b"x")
        assert received(old, 1) == b"x"
        proxy.silence()
        old.sendall(b"y")
        with connected(proxy) as new:
            new.sendall(b"z")
            assert received(new, 1) == b"z"
        old.settimeout(0.1)
        with pytest.raises(TimeoutError):
            old.recv(1)


def test_one_direction_is_held_and_the_other_one_is_not(proxy: ForwardingProxy) -> None:
    with connected(proxy) as connection:
        proxy.hold(Direction.TO_CLIENT)
        connection.sendall(b"one")
        while proxy.passed_bytes(Direction.TO_SERVER) < 3:
            pass
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        proxy.release()
        connection.settimeout(WAIT_S)
        assert received(connection, 3) == b"one"


def test_corrupted_chunk_has_one_bit_changed(proxy: ForwardingProxy) -> None:
    with connected(proxy) as connection:
        proxy.corrupt(Direction.TO_CLIENT)
        connection.sendall(bytes(9))
        assert received(connection, 9) == bytes([0, 0, 0, 0, 0x10, 0, 0, 0, 0])
        connection.sendall(bytes(9))
        assert received(connection, 9) == bytes(9), "only the requested number of chunks"


def test_connection_ends_after_the_given_byte(proxy: ForwardingProxy) -> None:
    with connected(proxy) as connection:
        proxy.cut_after(Direction.TO_CLIENT, 3)
        connection.sendall(b"abcdef")
        assert received(connection, 6) in (b"abc", b"ab", b"a", b""), (
            "a reset may overtake the bytes"
        )
        assert proxy.passed_bytes(Direction.TO_CLIENT) == 3


def test_refusing_is_undone_at_the_same_address(proxy: ForwardingProxy) -> None:
    address = proxy.address
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connected(proxy)
    proxy.admit()
    assert proxy.address == address
    with connected(proxy) as connection:
        connection.sendall(b"again")
        assert received(connection, 5) == b"again"


def test_a_target_that_is_down_ends_the_connection() -> None:
    with ForwardingProxy("127.0.0.1:1") as proxy, connected(proxy) as connection:
        assert received(connection, 1) == b""


def test_leaving_ends_the_thread_and_the_connections() -> None:
    with echo_server() as address:
        before = threading.active_count()
        with ForwardingProxy(address) as proxy:
            connection = connected(proxy)
            connection.sendall(b"x")
            assert received(connection, 1) == b"x"
        assert received(connection, 1) == b""
        connection.close()
        assert threading.active_count() <= before + 1, "the echo of the connection may still end"
