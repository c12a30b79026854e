"""Who is silent for too long, and what proves nothing."""

from quorumlog.ids import DirectoryId, NodeId, Offset
from quorumlog.metadata import BrokerImage, BrokerSessions

ONE = NodeId(1)
EPOCH = Offset(5)


def sessions() -> BrokerSessions:
    return BrokerSessions(timeout_ms=3000, tick_ms=250, now_ms=0)


def tick_until(book: BrokerSessions, *, start_ms: int, end_ms: int) -> list[tuple[int, int]]:
    """Tick as the shell does; return (time, broker) of every expiry."""
    expired: list[tuple[int, int]] = []
    for now_ms in range(start_ms, end_ms + 1, 250):
        expired.extend((now_ms, broker) for broker, _ in book.tick(now_ms))
    return expired


def test_silent_broker_expires_after_the_timeout() -> None:
    book = sessions()
    book.connect(ONE, EPOCH, 0)
    assert tick_until(book, start_ms=0, end_ms=3250) == [(3000, 1)]


def test_heartbeats_keep_a_session_alive() -> None:
    book = sessions()
    stream = book.connect(ONE, EPOCH, 0)
    assert tick_until(book, start_ms=0, end_ms=2000) == []
    book.heartbeat(ONE, stream, applied_offset=Offset(7), now_ms=2000)
    assert tick_until(book, start_ms=2250, end_ms=4750) == []
    assert tick_until(book, start_ms=5000, end_ms=5000) == [(5000, 1)]
    assert book.applied_offset(ONE) == 7


def test_expired_session_takes_its_stream_along() -> None:
    book = sessions()
    stream = book.connect(ONE, EPOCH, 0)
    tick_until(book, start_ms=0, end_ms=3000)
    assert not book.is_current(ONE, stream)
    assert not book.is_connected(ONE)


def test_newer_stream_replaces_an_older_one() -> None:
    book = sessions()
    old = book.connect(ONE, EPOCH, 0)
    book.heartbeat(ONE, old, applied_offset=Offset(9), now_ms=0)
    new = book.connect(ONE, EPOCH, 0)
    assert not book.is_current(ONE, old)
    book.disconnect(ONE, old, 0)
    assert book.is_current(ONE, new)
    assert book.applied_offset(ONE) == 9, "the same life has not forgotten what it applied"


def test_new_registration_has_applied_nothing_yet() -> None:
    book = sessions()
    stream = book.connect(ONE, EPOCH, 0)
    book.heartbeat(ONE, stream, applied_offset=Offset(9), now_ms=0)
    book.connect(ONE, Offset(12), 0)
    assert book.applied_offset(ONE) == -1


def test_applied_offset_never_goes_back() -> None:
    book = sessions()
    stream = book.connect(ONE, EPOCH, 0)
    book.heartbeat(ONE, stream, applied_offset=Offset(9), now_ms=0)
    book.heartbeat(ONE, stream, applied_offset=Offset(8), now_ms=0)
    assert book.applied_offset(ONE) == 9


def test_own_stall_extends_every_session_by_one_timeout() -> None:
    book = sessions()
    book.connect(ONE, EPOCH, 0)
    assert tick_until(book, start_ms=0, end_ms=1000) == []
    assert book.tick(9000) == [], "eight seconds of our own deafness"
    assert tick_until(book, start_ms=9250, end_ms=11750) == []
    assert tick_until(book, start_ms=12000, end_ms=12000) == [(12000, 1)]


def test_new_leadership_gives_every_unfenced_broker_one_timeout() -> None:
    book = sessions()
    book.connect(NodeId(9), EPOCH, 0)
    brokers = [broker(1, fenced=False), broker(2, fenced=True)]
    book.begin_leadership(brokers, 10_000)
    assert tick_until(book, start_ms=10_000, end_ms=13_000) == [(13_000, 1)]


def test_fenced_session_is_forgotten_unless_it_came_back() -> None:
    book = sessions()
    book.connect(ONE, EPOCH, 0)
    tick_until(book, start_ms=0, end_ms=3000)
    book.remove(ONE, EPOCH)
    assert tick_until(book, start_ms=3250, end_ms=9000) == []
    stream = book.connect(ONE, EPOCH, 9000)
    book.remove(ONE, EPOCH)
    assert book.is_current(ONE, stream)


def broker(node: int, *, fenced: bool) -> BrokerImage:
    return BrokerImage(
        id=NodeId(node),
        epoch=EPOCH,
        incarnation_id=b"i" * 16,
        directory_id=DirectoryId(b"d" * 16),
        grpc_address="localhost:1",
        rack="",
        boot_id="",
        fenced=fenced,
        stopping=False,
    )
