"""Histories of applications, checked against the records of a real broker."""

from collections.abc import Iterator

import pytest

from quorumlog.clients.blocking.log import Log
from quorumlog.errors import InvalidRequest, UnknownTopicOrPartition
from quorumlog.testing import Broker, ClientHistory
from quorumlog.testing.checkers import AnomalyKind

pytestmark = pytest.mark.slow

RECORDS = 4
TOPIC = "input"


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    with Broker() as broker:
        broker.create_topic(TOPIC)
        with broker.connect() as log:
            yield log


@pytest.fixture
def history(log: Log) -> ClientHistory:
    """A history of four acknowledged records at offsets 0 to 3, the only records of a topic."""
    log.admin.delete_topic(TOPIC)
    log.admin.create_topic(TOPIC)
    history = ClientHistory()
    with log.producer() as producer:
        for number in range(RECORDS):
            history.send(producer, TOPIC, b"%d" % number).result()
    return history


def process(history: ClientHistory, offsets: list[int], *, value: bytes | None = None) -> None:
    for offset in offsets:
        history.processed("billing", TOPIC, 0, offset, value or b"%d" % offset)


@pytest.mark.long
@pytest.mark.parametrize(
    ("offsets", "found"),
    [
        ([0, 1, 2], r"1 not processed\n.*billing has not processed b'3' at input-0 offset 3"),
        ([0, 2, 1, 3], r"1 reordered\n.*billing processed input-0 offset 1 after offset 2"),
        ([0, 1, 3], r"1 not processed\n.*b'2' at input-0 offset 2"),
    ],
)
def test_what_an_application_misses_or_reorders_is_found(
    log: Log, history: ClientHistory, offsets: list[int], found: str
) -> None:
    process(history, offsets)
    with pytest.raises(AssertionError, match=found):
        history.check(log)


def test_a_repeat_counts_only_if_each_record_must_be_processed_once(
    log: Log, history: ClientHistory
) -> None:
    process(history, [0, 1, 2, 1, 2, 3])
    history.check(log)
    with pytest.raises(AssertionError, match=r"2 processed twice\n.*input-0 offset 1 again"):
        history.check(log, exactly_once=True)
    history.check(log, exactly_once=True, allowed=frozenset({AnomalyKind.PROCESSED_TWICE}))


def test_a_value_that_is_not_stored_there_is_found(log: Log, history: ClientHistory) -> None:
    process(history, [0, 1, 2, 3])
    process(history, [3], value=b"other")
    with pytest.raises(AssertionError, match="inconsistent offset"):
        history.check(log)


def test_an_acknowledged_record_that_is_no_longer_stored_is_found(
    log: Log, history: ClientHistory
) -> None:
    log.admin.delete_topic(TOPIC)
    log.admin.create_topic(TOPIC)
    with pytest.raises(AssertionError, match="4 lost write"):
        history.check(log)


def test_a_refused_record_and_a_repeated_value_are_errors(log: Log, history: ClientHistory) -> None:
    with log.producer() as producer:
        with pytest.raises(UnknownTopicOrPartition):
            history.send(producer, TOPIC, b"new", partition=7).result()
        with pytest.raises(InvalidRequest, match="b'0' is not unique"):
            history.send(producer, TOPIC, b"0")
    history.check(log)
