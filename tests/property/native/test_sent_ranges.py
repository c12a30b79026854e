"""The compiled sender sends the bytes that plain Python would, as far as the socket has space."""

import os
import select
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.waits import AMPLE_S

sender: Any = pytest.importorskip("quorumlog.runtime._sender", exc_type=ImportError)
if not sender.CAN_SEND:
    pytest.skip("no threads that send on this system", allow_module_level=True)

ENDS_EARLY = -1
FILE = bytes(range(251)) * 1_000
PIECE = 10_000


class Asked(NamedTuple):
    """A range with the bytes around it."""

    head: bytes
    position: int
    size: int
    tail: bytes

    @property
    def content(self) -> bytes:
        """The bytes that a socket with space gets: a short file ends them."""
        sent = FILE[self.position : self.position + self.size]
        return self.head + sent + (self.tail if len(sent) == self.size else b"")

    @property
    def fault(self) -> int:
        """The number of the error."""
        return ENDS_EARLY if self.position + self.size > len(FILE) else 0


SIZES = st.sampled_from([1, 2, 4_095, 4_096, 4_097, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 60_000])
asked_of = st.builds(
    Asked,
    st.binary(max_size=30) | st.just(b"head" * 1_000),
    st.integers(0, 9_000) | st.integers(len(FILE) - 5_000, len(FILE) - 1),
    SIZES | st.integers(1, 20_000),
    st.binary(max_size=30) | st.just(b"tail" * 1_000),
)


@contextmanager
def opened(buffer_bytes: int = 1 << 20) -> Iterator[tuple[int, socket.socket, socket.socket]]:
    """Open the file and the ends of a connection, the first one not blocking."""
    near, far = socket.socketpair()
    with near, far, tempfile.TemporaryFile() as file:
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        file.write(FILE)
        file.flush()
        yield file.fileno(), near, far


def received(near: socket.socket, far: socket.socket) -> bytes:
    """Return all that was sent."""
    near.shutdown(socket.SHUT_WR)
    parts = []
    while part := far.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


@settings(max_examples=200, deadline=None)
@given(asked_of, st.booleans(), st.sampled_from([1 << 20, 4_096]))
def test_what_has_space_is_sent_at_once(asked: Asked, probes: bool, buffer_bytes: int) -> None:
    with opened(buffer_bytes) as (file, near, far):
        head, position, size, tail = asked
        sent, fault = sender.send_now(near.fileno(), file, position, size, head, tail, probes)
        got = received(near, far)
        assert got == asked.content[:sent]
        if buffer_bytes > len(asked.content):
            assert (sent, fault) == (len(asked.content), asked.fault)
        else:
            assert fault == 0 or sent == len(asked.content)


@pytest.mark.parametrize("head", [b"head", b""])
def test_the_error_of_a_closed_peer_is_returned(head: bytes) -> None:
    with opened() as (file, near, far):
        far.close()
        sent, fault = sender.send_now(near.fileno(), file, 0, 100, head, b"", False)
    assert (sent, os.strerror(fault)) == (0, "Broken pipe")


def ended(threads: Any, count: int) -> list[tuple[int, int, int, bool]]:
    """Wait for so many jobs."""
    found: list[tuple[int, int, int, bool]] = []
    while len(found) < count:
        assert select.select([threads.descriptor], [], [], AMPLE_S)[0], f"{len(found)} ended"
        found += threads.ended()
    assert threads.ended() == []
    assert not select.select([threads.descriptor], [], [], 0)[0]
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(asked_of, st.booleans()), min_size=1, max_size=4), st.integers(1, 3))
def test_threads_send_every_range_to_its_socket(
    asked: list[tuple[Asked, bool]], count: int
) -> None:
    threads = sender.Sender(count, PIECE, 50, 64 << 10)
    connections = [opened() for _ in asked]
    ends = [each.__enter__() for each in connections]
    for number, ((each, probes), (file, near, _)) in enumerate(zip(asked, ends, strict=True)):
        given_number = threads.begin(
            near.fileno(), file, each[1], each[2], each[0], each[3], probes
        )
        assert given_number == number
    found = sorted(ended(threads, len(asked)))
    assert threads.under_way == 0
    for (each, _), (_, near, far), job in zip(asked, ends, found, strict=True):
        assert received(near, far) == each.content
        assert job[1:] == (len(each.content), each.fault, False)
    threads.close()
    threads.close()
    for connection in connections:
        connection.__exit__(None, None, None)


def test_a_peer_that_does_not_read_gets_what_has_space() -> None:
    """And a peer that has gone ends the job with its error; the next job is not held up."""
    threads = sender.Sender(1, PIECE, 5, 64 << 10)
    with opened(4_096) as (file, near, far), opened() as (_, other, gone):
        gone.close()
        threads.begin(near.fileno(), file, 0, len(FILE), b"head", b"tail", False)
        threads.begin(other.fileno(), file, 0, len(FILE), b"head", b"tail", False)
        (_, sent, fault, _), (_, none, error, _) = sorted(ended(threads, 2))
        assert (fault, none, os.strerror(error)) == (0, 0, "Broken pipe")
        assert 0 < sent < len(FILE)
        assert received(near, far) == (b"head" + FILE)[:sent]
    threads.close()


def test_a_stopped_job_ends_and_sends_no_more() -> None:
    """The peer's patience is long: only the stop ends the job early."""
    threads = sender.Sender(1, PIECE, 500, 1)
    with opened(4_096) as (file, near, far):
        number = threads.begin(near.fileno(), file, 0, len(FILE), b"", b"tail", False)
        threads.stop(number)
        threads.stop(number + 1)  # unknown
        (found,) = ended(threads, 1)
        assert (found[0], found[2]) == (number, 0)
        assert found[1] < len(FILE)
        assert received(near, far) == FILE[: found[1]]
    threads.close()
