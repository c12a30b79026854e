"""Keys and values of `__transaction_state`: bytes that Kafka 4.3.1 wrote, and round trips."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.broker.transactions.formats import decode, encode
from quorumlog.broker.transactions.records import (
    CLIENT_EPOCH_MAX,
    EPOCH_MAX,
    AttemptState,
    FreeProducerId,
    ProducerIdForgotten,
    StagedAttempt,
    StagedName,
    StagedNameForgotten,
    StagedPartition,
    StagedRecord,
    TransactionalIdForgotten,
    TransactionMetadata,
    TransactionState,
)
from quorumlog.errors import CorruptionError
from quorumlog.ids import TopicId

KEY = bytes.fromhex("000000086f72646572732d31")
# Written by MessageUtil of kafka-transaction-coordinator-4.3.1.jar.
ONGOING_0 = bytes.fromhex(
    "0000000000000000126700070000ea60010000000200125f5f636f6e73756d65725f6f66667365747300000001"
    "0000001100066f72646572730000000200000000000000030000018bcfe5687b0000018bcfe56800"
)
ONGOING_1 = bytes.fromhex(
    "0001000000000000126700070000ea600103135f5f636f6e73756d65725f6f666673657473020000001100076f"
    "7264657273030000000000000003000000018bcfe5687b0000018bcfe5680000"
)
EMPTY_0 = bytes.fromhex(
    "0000000000000000126700000000ea6000ffffffff0000018bcfe5687bffffffffffffffff"
)
EMPTY_1 = bytes.fromhex("0001000000000000126700000000ea6000000000018bcfe5687bffffffffffffffff00")
REPLACING = bytes.fromhex(
    "000100000000000012677fff0000ea600202076f72646572730200000000000000018bcfe5687b0000018bcfe5"
    "68000300080000000000001267010800000000000012c002020002"
)
REPLACED = bytes.fromhex(
    "000100000000000012c000000000ea6004010000018bcfe5687b0000018bcfe568000200080000000000001267"
    "02020002"
)

EMPTY = TransactionMetadata(
    transactional_id="orders-1",
    producer_id=4711,
    producer_epoch=0,
    timeout_ms=60_000,
    state=TransactionState.EMPTY,
    updated_ms=1_700_000_000_123,
)
ONGOING = replace(
    EMPTY,
    producer_epoch=7,
    state=TransactionState.ONGOING,
    partitions=frozenset({("orders", 3), ("orders", 0), ("__consumer_offsets", 17)}),
    started_ms=1_700_000_000_000,
)


@pytest.mark.parametrize(
    ("value", "record"),
    [(EMPTY_0, EMPTY), (EMPTY_1, EMPTY), (ONGOING_0, ONGOING), (ONGOING_1, ONGOING)],
)
def test_both_versions_of_kafka_are_read(value: bytes, record: TransactionMetadata) -> None:
    assert decode(KEY, value) == record


@pytest.mark.parametrize(("value", "record"), [(EMPTY_1, EMPTY), (ONGOING_1, ONGOING)])
def test_a_record_is_written_as_kafka_writes_it(value: bytes, record: TransactionMetadata) -> None:
    assert encode(record) == (KEY, value)


def test_a_record_of_kafka_gets_the_last_epoch_that_kafka_does_not_store() -> None:
    replacing = decode(KEY, REPLACING)
    assert replacing == replace(
        EMPTY,
        next_producer_id=4800,
        producer_epoch=EPOCH_MAX,
        last_producer_epoch=CLIENT_EPOCH_MAX,
        state=TransactionState.PREPARE_COMMIT,
        partitions=frozenset({("orders", 0)}),
        started_ms=1_700_000_000_000,
        version=2,
    )
    assert decode(KEY, REPLACED) == replace(
        EMPTY,
        producer_id=4800,
        previous_producer_id=4711,
        last_producer_epoch=CLIENT_EPOCH_MAX,
        state=TransactionState.COMPLETE_COMMIT,
        started_ms=1_700_000_000_000,
        version=2,
    )


def test_a_tombstone_has_no_value() -> None:
    forgotten = TransactionalIdForgotten(transactional_id="orders-1")
    assert encode(forgotten) == (KEY, None)
    assert decode(KEY, None) == forgotten


def test_other_key_types_are_skipped() -> None:
    assert decode(b"\0\1\0\1a", b"anything") is None
    assert decode(None, b"anything") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", ONGOING_1),
        (KEY[:-1], ONGOING_1),
        (KEY, b"\0\2" + ONGOING_1[2:]),  # an unknown version
        (KEY, ONGOING_1[:16] + b"\6" + ONGOING_1[17:]),  # Dead is never stored
        (KEY, ONGOING_1[:16] + b"\x0b" + ONGOING_1[17:]),  # no such state
        (KEY, REPLACING[:-1]),
        (KEY, ONGOING_1[:-1] + b"\1\2\1\0"),  # a tagged number of one byte
    ],
)
def test_a_malformed_record_is_reported_with_its_place(key: bytes, value: bytes) -> None:
    with pytest.raises(CorruptionError, match=r"__transaction_state-5: .* record 77 is malformed"):
        decode(key, value, offset=77, partition=5)


def test_a_name_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="32768 bytes"):
        encode(TransactionalIdForgotten(transactional_id="x" * 32_768))


ids = st.one_of(st.just(-1), st.integers(0, 2**63 - 1))
epochs = st.integers(-1, EPOCH_MAX)
stored = st.sampled_from([state for state in TransactionState if state < TransactionState.DEAD])
metadata = st.builds(
    TransactionMetadata,
    transactional_id=st.text(min_size=1, max_size=20),
    producer_id=st.integers(0, 2**63 - 1),
    previous_producer_id=ids,
    next_producer_id=ids,
    producer_epoch=st.integers(0, EPOCH_MAX),
    last_producer_epoch=epochs,
    timeout_ms=st.integers(0, 2**31 - 1),
    state=stored,
    partitions=st.frozensets(st.tuples(st.text(max_size=9), st.integers(0, 2**31 - 1)), max_size=9),
    updated_ms=st.integers(0, 2**62),
    started_ms=st.integers(-1, 2**62),
    version=st.integers(0, 2),
).map(
    lambda made: (
        replace(made, partitions=frozenset()) if made.state is TransactionState.EMPTY else made
    )
)


@given(metadata)
def test_every_record_is_read_as_it_was_written(record: TransactionMetadata) -> None:
    key, value = encode(record)
    if record.previous_producer_id == record.producer_id:
        record = replace(record, previous_producer_id=-1)
    assert decode(key, value) == record


@given(metadata, st.data())
@settings(max_examples=200)
def test_damaged_bytes_are_reported_or_read_as_another_record(
    record: TransactionMetadata, data: st.DataObject
) -> None:
    key, value = encode(record)
    assert value is not None
    place = data.draw(st.integers(0, len(value) - 1))
    for damaged in (value[:place], value[:place] + b"\xff" + value[place + 1 :]):
        with suppress(CorruptionError):
            decode(key, damaged)


# --- staged commits -------------------------------------------------------------------------------

numbers = st.integers(-1, 2**63 - 1)
names = st.text(max_size=20)
staged: st.SearchStrategy[StagedRecord] = st.one_of(
    st.builds(
        StagedName,
        transactional_id=names,
        last_committed=numbers,
        committed_write_id=numbers,
        committed_count=numbers,
        write_id=numbers,
        number=numbers,
        fenced_write_id=numbers,
        committing=st.lists(st.tuples(ids, epochs), max_size=4).map(tuple),
        updated_ms=numbers,
    ),
    st.builds(StagedNameForgotten, transactional_id=names),
    st.builds(
        StagedAttempt,
        producer_id=ids,
        producer_epoch=epochs,
        transactional_id=names,
        number=numbers,
        write_id=numbers,
        task=numbers,
        attempt=numbers,
        state=st.sampled_from([AttemptState.OPEN, AttemptState.SEALED, AttemptState.ABORTING]),
        partitions=st.lists(
            st.builds(
                StagedPartition,
                topic=st.sampled_from(["a", "b"]),
                partition=st.integers(0, 3),
                topic_id=st.sampled_from([TopicId(b"1" * 16), TopicId(b"2" * 16)]),
                count=numbers,
                last_sequence=st.integers(-1, 2**31 - 1),
            ),
            max_size=4,
        ).map(lambda made: tuple(sorted(made))),
        timeout_ms=st.integers(0, 2**31 - 1),
        started_ms=numbers,
    ),
    st.builds(FreeProducerId, producer_id=ids, producer_epoch=epochs),
    st.builds(ProducerIdForgotten, producer_id=ids),
)


@given(staged)
def test_every_record_of_staged_commits_is_read_as_it_was_written(record: StagedRecord) -> None:
    assert decode(*encode(record)) == record


@given(staged, st.data())
@settings(max_examples=200)
def test_a_shortened_record_of_staged_commits_is_reported(
    record: StagedRecord, data: st.DataObject
) -> None:
    key, value = encode(record)
    if value is None:
        return
    place = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(CorruptionError):
        decode(key, value[:place])


def test_the_partitions_of_a_topic_share_its_name_and_id() -> None:
    """Each addition of partitions stores all of the attempt again."""
    partitions = tuple(
        StagedPartition(topic="t" * 200, partition=index, topic_id=TopicId(b"t" * 16))
        for index in range(100)
    )
    attempt = StagedAttempt(
        producer_id=1,
        producer_epoch=0,
        transactional_id="n",
        number=0,
        write_id=0,
        task=0,
        attempt=0,
        state=AttemptState.OPEN,
        partitions=partitions,
        timeout_ms=0,
        started_ms=0,
    )
    _, value = encode(attempt)
    assert value is not None
    assert len(value) < 2_100


def test_a_committing_attempt_is_never_stored() -> None:
    attempt = StagedAttempt(
        producer_id=1,
        producer_epoch=0,
        transactional_id="n",
        number=0,
        write_id=0,
        task=0,
        attempt=0,
        state=AttemptState.COMMITTING,
        timeout_ms=0,
        started_ms=0,
    )
    with pytest.raises(CorruptionError):
        decode(*encode(attempt))
