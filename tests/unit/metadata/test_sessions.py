"""Broker sessions: expiry, suspicion after a broken stream, and shutdown."""

from quorumlog.errors import StaleBrokerEpoch
from quorumlog.ids import DirectoryId, NodeId, Offset
from quorumlog.metadata import BrokerImage, BrokerSessions

ONE = NodeId(1)
EPOCH = Offset(5)


def sessions() -> BrokerSessions:
    return BrokerSessions(timeout_ms=3000, tick_ms=250, now_ms=0)


def is_current(book: BrokerSessions, stream: int) -> bool:
    """Return True if heartbeats of broker 1 on this stream are accepted."""
    try:
        book.heartbeat(ONE, stream, applied_offset=Offset(-1), now_ms=0)
    except StaleBrokerEpoch:
        return False
    return True


def is_expected(book: BrokerSessions, node: NodeId, now_ms: int) -> bool:
    """Return True if a broker that shuts down waits for this one."""
    leaving = NodeId(77)
    book.connect(leaving, EPOCH, now_ms)
    book.leave(leaving, EPOCH, Offset(1_000))
    return not book.may_leave(leaving, [node], now_ms)


def tick_until(book: BrokerSessions, *, start_ms: int, end_ms: int) -> list[tuple[int, int]]:
    """Tick as the shell does. Return (time, broker) of every expiry."""
    expired: list[tuple[int, int]] = []
    for now_ms in range(start_ms, end_ms + 1, 250):
        expired.extend((now_ms, broker) for broker, _ in book.tick((), now_ms).expired)
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


def test_expired_session_invalidates_its_stream() -> None:
    book = sessions()
    stream = book.connect(ONE, EPOCH, 0)
    tick_until(book, start_ms=0, end_ms=3000)
    assert not is_current(book, stream)
    assert not book.is_connected(ONE)


def test_newer_stream_replaces_an_older_one() -> None:
    book = sessions()
    old = book.connect(ONE, EPOCH, 0)
    book.heartbeat(ONE, old, applied_offset=Offset(9), now_ms=0)
    new = book.connect(ONE, EPOCH, 0)
    assert not is_current(book, old)
    book.disconnect(ONE, old, 0)
    assert is_current(book, new)
    assert book.applied_offset(ONE) == 9, "the same process still has its applied records"


def test_new_registration_has_applied_nothing_yet() -> None:
    book = sessions()
    stream = book.connect(ONE, EPOCH, 0)
    book.heartbeat(ONE, stream, applied_offset=Offset(9), now_ms=0)
    book.connect(ONE, Offset(12), 0)
    assert book.applied_offset(ONE) == -1


def test_applied_offset_never_decreases() -> None:
    book = sessions()
    stream = book.connect(ONE, EPOCH, 0)
    book.heartbeat(ONE, stream, applied_offset=Offset(9), now_ms=0)
    book.heartbeat(ONE, stream, applied_offset=Offset(8), now_ms=0)
    assert book.applied_offset(ONE) == 9


def test_own_stall_extends_every_session_by_one_timeout() -> None:
    book = sessions()
    book.connect(ONE, EPOCH, 0)
    assert tick_until(book, start_ms=0, end_ms=1000) == []
    assert book.tick((), 9000).expired == [], "eight seconds of the controller's own stall"
    assert tick_until(book, start_ms=9250, end_ms=11750) == []
    assert tick_until(book, start_ms=12000, end_ms=12000) == [(12000, 1)]


def test_new_leadership_gives_every_unfenced_broker_one_timeout() -> None:
    book = sessions()
    book.connect(NodeId(9), EPOCH, 0)
    brokers = [broker(1, fenced=False), broker(2, fenced=True)]
    book.begin_leadership(brokers, 10_000)
    assert tick_until(book, start_ms=10_000, end_ms=13_000) == [(13_000, 1)]


def test_fenced_session_is_dropped_unless_its_broker_returned() -> None:
    book = sessions()
    book.connect(ONE, EPOCH, 0)
    tick_until(book, start_ms=0, end_ms=3000)
    book.remove(ONE, EPOCH)
    assert tick_until(book, start_ms=3250, end_ms=9000) == []
    stream = book.connect(ONE, EPOCH, 9000)
    book.remove(ONE, EPOCH)
    assert is_current(book, stream)


def suspects_until(book: BrokerSessions, *, start_ms: int, end_ms: int) -> list[tuple[int, int]]:
    """Check as the shell does. Return (time, broker) of every suspicion."""
    found: list[tuple[int, int]] = []
    now_ms = start_ms
    while now_ms <= end_ms:
        found.extend((now_ms, broker) for broker, _ in book.tick((), now_ms).suspects)
        now_ms += book.next_look_ms(now_ms)
    return found


def test_a_broker_whose_stream_broke_is_suspect_300_ms_later_and_again_while_it_is_away() -> None:
    book = sessions()
    stream = book.connect(ONE, EPOCH, 0)
    assert suspects_until(book, start_ms=0, end_ms=1000) == []
    book.disconnect(ONE, stream, 1000)
    assert suspects_until(book, start_ms=1000, end_ms=1299) == []
    assert suspects_until(book, start_ms=1300, end_ms=1950) == [(1300, 1), (1600, 1), (1900, 1)]
    assert book.is_absent(ONE, EPOCH)


def test_broker_that_returned_in_time_is_not_suspect() -> None:
    book = sessions()
    stream = book.connect(ONE, EPOCH, 0)
    book.disconnect(ONE, stream, 0)
    book.connect(ONE, EPOCH, 299)
    assert suspects_until(book, start_ms=300, end_ms=2500) == []
    assert not book.is_absent(ONE, EPOCH)


def test_end_of_an_older_stream_makes_no_broker_suspect() -> None:
    book = sessions()
    old = book.connect(ONE, EPOCH, 0)
    book.connect(ONE, EPOCH, 100)
    book.disconnect(ONE, old, 100)
    assert suspects_until(book, start_ms=100, end_ms=2500) == []


def test_new_leadership_suspects_brokers_without_a_stream_after_a_second() -> None:
    book = sessions()
    book.begin_leadership([broker(1, fenced=False), broker(2, fenced=False)], 10_000)
    book.connect(NodeId(2), EPOCH, 10_900)
    assert suspects_until(book, start_ms=10_000, end_ms=11_100) == [(11_000, 1)]


def test_after_its_own_stall_the_controller_suspects_no_broker_for_a_second() -> None:
    book = sessions()
    stream = book.connect(ONE, EPOCH, 0)
    book.tick((), 0)
    book.disconnect(ONE, stream, 100)
    assert suspects_until(book, start_ms=5000, end_ms=5999) == []
    assert suspects_until(book, start_ms=6000, end_ms=6000) == [(6000, 1)]


def test_checks_are_as_rare_as_ticks_unless_a_suspicion_is_due() -> None:
    book = sessions()
    stream = book.connect(ONE, EPOCH, 0)
    assert book.next_look_ms(0) == 250
    book.disconnect(ONE, stream, 0)
    assert book.next_look_ms(100) == 200
    assert book.next_look_ms(400) == 1


def test_broker_may_shut_down_once_all_connected_active_brokers_applied_it() -> None:
    book = sessions()
    others = [ONE, NodeId(2), NodeId(3)]
    for node in others:
        stream = book.connect(node, EPOCH, 0)
    assert not book.may_leave(ONE, others, 1), "the shutdown is not granted yet"
    book.leave(ONE, EPOCH, Offset(40))
    assert not book.may_leave(ONE, others, 1)
    book.heartbeat(NodeId(3), stream, applied_offset=Offset(40), now_ms=1)
    assert not book.may_leave(ONE, others, 1)
    book.disconnect(NodeId(2), stream - 1, 1)
    assert not book.may_leave(ONE, others, 300), "it may return shortly"
    assert book.may_leave(ONE, others, 301), "an absent broker does not delay it"


def test_leave_is_for_the_registration_that_asked() -> None:
    book = sessions()
    book.connect(ONE, EPOCH, 0)
    book.leave(ONE, Offset(3), Offset(40))
    assert not book.may_leave(ONE, [ONE], 1)
    book.leave(ONE, EPOCH, Offset(40))
    book.connect(ONE, EPOCH, 1)
    assert book.may_leave(ONE, [ONE], 1), "a new stream of the same process still has it"
    book.connect(ONE, Offset(50), 2)
    assert not book.may_leave(ONE, [ONE], 1)


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


def test_broker_with_a_broken_stream_is_expected_for_300_ms_and_a_silent_one_is_not() -> None:
    book = sessions()
    stream = book.connect(ONE, EPOCH, 0)
    book.disconnect(ONE, stream, 1000)
    assert is_expected(book, ONE, 1299)
    assert not is_expected(book, ONE, 1300)
    book.connect(ONE, EPOCH, 1400)
    tick_until(book, start_ms=1400, end_ms=4400)
    assert not is_expected(book, ONE, 4400)


def test_new_leadership_expects_all_brokers_for_a_second() -> None:
    book = sessions()
    book.begin_leadership([broker(1, fenced=False), broker(2, fenced=True)], 5000)
    assert is_expected(book, ONE, 5999)
    assert not is_expected(book, ONE, 6000)
    assert not is_expected(book, NodeId(2), 5000)


def test_shutdown_waits_for_brokers_that_are_expected_to_connect() -> None:
    book = sessions()
    book.begin_leadership([broker(1, fenced=False), broker(2, fenced=False)], 5000)
    book.connect(ONE, EPOCH, 5000)
    book.leave(ONE, EPOCH, Offset(20))
    others = [ONE, NodeId(2)]
    assert not book.may_leave(ONE, others, 5999)
    assert book.may_leave(ONE, others, 6000), "an absent broker is not awaited"


def test_unfenced_broker_without_a_session_gets_one() -> None:
    book = sessions()
    book.connect(NodeId(3), EPOCH, 0)
    tick_until(book, start_ms=0, end_ms=1000)
    book.tick([broker(1, fenced=False), broker(2, fenced=True), broker(3, fenced=False)], 1000)
    assert book.is_connected(NodeId(3)), "an existing session stays"
    assert [node for node, _ in book.tick((), 1300).suspects] == [1]
    assert tick_until(book, start_ms=1250, end_ms=4000) == [(3000, 3), (4000, 1)]
