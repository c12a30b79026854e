"""The records of a partition that a load decodes."""

from quorumlog.broker.coordinator.shell.loader import RecordWindow
from quorumlog.ids import ProducerIdentity
from quorumlog.records import Record
from quorumlog.records.control import TransactionMarker

PRODUCER = ProducerIdentity(7, 0)
COMMIT = TransactionMarker(PRODUCER, 0, True, 0)


def record(offset: int, key: bytes | None) -> Record:
    return Record(offset, 0, key, b"value")


def test_window_keeps_the_newest_record_of_each_key_in_log_order() -> None:
    window = RecordWindow()
    entries = [(record(offset, key), None) for offset, key in enumerate((b"a", b"b", b"a", b"c"))]
    window.add(entries)
    assert len(window) == 3
    assert list(window.take()) == entries[1:]
    assert not window.take()


def test_window_keeps_records_of_transactions_markers_and_records_without_a_key() -> None:
    entries = (
        (record(0, b"a"), PRODUCER),
        (record(1, b"a"), PRODUCER),
        COMMIT,
        (record(3, None), None),
        (record(4, None), None),
        (record(5, b"a"), None),
        COMMIT,
    )
    window = RecordWindow()
    window.add(entries)
    assert list(window.take()) == list(entries)
