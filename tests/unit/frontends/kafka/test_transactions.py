"""The requests of transactions through the Kafka listener, in every version."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.kit.kafka_client import RawClient
from tests.kit.kafka_node import KafkaNode

from quorumlog.api import transactions
from quorumlog.broker.coordinator.key_hash import partition_of
from quorumlog.broker.transactions.requests import BeginAttempt
from quorumlog.ids import ProducerIdentity
from quorumlog.records import decode_all

from .group_calls import FIND_COORDINATOR, OFFSET_FETCH, ready
from .produce_fetch import fetch, fetched, produced, run_with_topic
from .transaction_calls import (
    ADD_PARTITIONS,
    GROUP,
    ID,
    LIST_TRANSACTIONS,
    WRITE_MARKERS,
    add,
    added,
    described,
    ended,
    group_added,
    initialised,
    new_producer,
    offsets_sent,
    sent,
    transactional_batch,
    until_state,
)

PRODUCER_FENCED, INVALID_PRODUCER_EPOCH = 90, 47
INVALID_TXN_STATE, TRANSACTION_ABORTABLE = 48, 120
NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR = 6, 16
INVALID_PRODUCER_ID_MAPPING, INVALID_TRANSACTION_TIMEOUT, INVALID_REQUEST = 49, 50, 42
UNKNOWN_TOPIC_OR_PARTITION, OPERATION_NOT_ATTEMPTED = 3, 55
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
TRANSACTIONAL_ID_NOT_FOUND, INVALID_REGULAR_EXPRESSION = 105, 128
METADATA = 3  # a request
READ_COMMITTED = 1
TRANSACTION = 1  # a key type

Work = Callable[[RawClient], Awaitable[None]]


def run(work: Work) -> None:
    """Run `work` with a client of a node that has topic `t` of three partitions."""

    async def main(kafka: KafkaNode) -> None:
        await work(kafka.client)

    run_with_topic(main)


async def committed(client: RawClient, *, version: int = 12) -> tuple[list[bytes | None], Any]:
    """Return the committed values of partition 0 without markers, and the result of the fetch."""
    (result,) = await fetched(client, (0, 0), version=version, isolation_level=READ_COMMITTED)
    return [record.value for record in decode_all(result.records or b"")], result


@pytest.mark.parametrize("version", range(6))
def test_every_version_initialises_a_transactional_producer(version: int) -> None:
    async def work(client: RawClient) -> None:
        code, first = await initialised(client, version=version)
        assert (code, first.producer_epoch) == (0, 0)
        code, second = await initialised(client, version=version)
        assert (code, second) == (0, ProducerIdentity(first.producer_id, 1))

    run(work)


@pytest.mark.parametrize("version", range(3, 6))
def test_a_producer_that_was_replaced_is_fenced_by_the_code_of_its_version(version: int) -> None:
    async def work(client: RawClient) -> None:
        old = await new_producer(client)
        await new_producer(client)
        code, _ = await initialised(
            client,
            version=version,
            producer_id=old.producer_id,
            producer_epoch=old.producer_epoch,
        )
        # KIP-360: a retry of the last request gets the same response; KIP-588
        assert code in (0, PRODUCER_FENCED if version >= 4 else INVALID_PRODUCER_EPOCH)
        await new_producer(client)
        code, _ = await initialised(
            client,
            version=version,
            producer_id=old.producer_id,
            producer_epoch=old.producer_epoch,
        )
        assert code == (PRODUCER_FENCED if version >= 4 else INVALID_PRODUCER_EPOCH)

    run(work)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transaction_timeout": 0}, INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout": 900_001}, INVALID_TRANSACTION_TIMEOUT),
        ({"transactional_id": ""}, INVALID_REQUEST),
        ({"producer_id": 7, "producer_epoch": -1}, INVALID_REQUEST),
        ({"producer_id": -1, "producer_epoch": 7}, INVALID_REQUEST),
    ],
)
def test_an_invalid_producer_is_refused(fields: dict[str, Any], code: int) -> None:
    async def work(client: RawClient) -> None:
        assert (await initialised(client, **fields)) == (code, ProducerIdentity(-1, -1))

    run(work)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("versions", [(0, 3, 0), (1, 5, 1), (2, 8, 2), (3, 9, 3), (3, 11, 4)])
def test_every_version_of_the_older_protocol_ends_a_transaction(
    versions: tuple[int, int, int], commit: bool
) -> None:
    adding, producing, ending = versions

    async def work(client: RawClient) -> None:
        producer = await new_producer(client)
        assert await added(client, producer, ("t", 0), version=adding) == [0]
        assert await sent(client, producer, 0, b"a", b"b", version=producing) == 0
        assert (await committed(client))[0] == []
        assert (await ended(client, producer, commit=commit, version=ending)).error_code == 0
        state = await until_state(client, "CompleteCommit" if commit else "CompleteAbort")
        assert state.producer_epoch == producer.producer_epoch
        values, result = await committed(client)
        assert values == [b"a", b"b"]
        assert result.last_stable_offset == result.high_watermark == 3  # with the marker
        assert len(result.aborted_transactions or ()) == (0 if commit else 1)
        await add(client, producer, ("t", 0))
        assert await sent(client, producer, 2, b"c") == 0

    run(work)


@pytest.mark.parametrize("commit", [True, False])
def test_the_newer_protocol_adds_partitions_by_the_first_write_and_raises_the_epoch(
    commit: bool,
) -> None:
    async def work(client: RawClient) -> None:
        producer = await new_producer(client)
        for number in range(3):
            assert await sent(client, producer, 0, b"%d" % number, version=12) == 0
            answer = await ended(client, producer, commit=commit, version=5)
            assert answer.error_code == 0
            following = ProducerIdentity(answer.producer_id, answer.producer_epoch)
            assert following == (producer.producer_id, producer.producer_epoch + 1)
            producer = following
        await until_state(client, "CompleteCommit" if commit else "CompleteAbort")
        _, result = await committed(client)
        assert len(result.aborted_transactions or ()) == (0 if commit else 3)

    run(work)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (9, INVALID_TXN_STATE),
        (10, INVALID_TXN_STATE),
        (11, TRANSACTION_ABORTABLE),
    ],
)
def test_a_write_outside_of_a_transaction_is_refused_by_the_code_of_its_version(
    version: int, code: int
) -> None:
    async def work(client: RawClient) -> None:
        producer = await new_producer(client)
        await add(client, producer, ("t", 1))
        assert await sent(client, producer, 0, b"a", version=version) == code
        assert await fetch(client, 0) == b""

    run(work)


def test_a_transactional_batch_without_a_transactional_id_is_refused() -> None:
    async def work(client: RawClient) -> None:
        producer = await new_producer(client)
        await add(client, producer, ("t", 0))
        code = await sent(client, producer, 0, b"a", transactional_id=None)
        assert code == INVALID_TXN_STATE
        assert await fetch(client, 0) == b""

    run(work)


def test_a_write_after_the_end_of_its_transaction_is_refused() -> None:
    async def work(client: RawClient) -> None:
        producer = await new_producer(client)
        assert await sent(client, producer, 0, b"a", version=12) == 0
        assert (await ended(client, producer, version=5)).error_code == 0
        await until_state(client, "CompleteCommit")
        late = transactional_batch(producer, 1, b"late")
        (result,) = await produced(client, (0, late), version=12, transactional_id=ID)
        assert result.error_code == INVALID_PRODUCER_EPOCH

    run(work)


@pytest.mark.parametrize("version", range(4))
def test_a_fenced_producer_adds_no_partition(version: int) -> None:
    async def work(client: RawClient) -> None:
        zombie = await new_producer(client)
        await new_producer(client)
        fenced = PRODUCER_FENCED if version >= 2 else INVALID_PRODUCER_EPOCH
        assert await added(client, zombie, ("t", 0), ("t", 1), version=version) == [fenced] * 2

    run(work)


@pytest.mark.parametrize("version", range(5))
def test_a_fenced_producer_adds_no_offsets_and_ends_nothing(version: int) -> None:
    async def work(client: RawClient) -> None:
        await ready(client)
        zombie = await new_producer(client)
        producer = await new_producer(client)
        await add(client, producer, ("t", 0))
        fenced = PRODUCER_FENCED if version >= 2 else INVALID_PRODUCER_EPOCH
        assert await group_added(client, zombie, version=version) == fenced
        assert (await ended(client, zombie, version=version)).error_code == fenced
        assert (await until_state(client, "Ongoing")).producer_id == producer.producer_id

    run(work)


def test_an_unknown_partition_refuses_the_whole_addition() -> None:
    async def work(client: RawClient) -> None:
        producer = await new_producer(client)
        codes = await added(client, producer, ("t", 0), ("t", 7), ("nowhere", 0))
        assert codes == [
            OPERATION_NOT_ATTEMPTED,
            UNKNOWN_TOPIC_OR_PARTITION,
            UNKNOWN_TOPIC_OR_PARTITION,
        ]
        answer = await client.ask(
            LIST_TRANSACTIONS, 0, state_filters=("Empty",), producer_id_filters=()
        )
        assert [each.transactional_id for each in answer.transaction_states] == [ID]
        other = ProducerIdentity(producer.producer_id + 1, 0)
        assert await added(client, other, ("t", 0)) == [INVALID_PRODUCER_ID_MAPPING]

    run(work)


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_and_add_batches_of_transactions(version: int) -> None:
    async def work(client: RawClient) -> None:
        producer = await new_producer(client)
        outside = TRANSACTION_ABORTABLE if version >= 5 else INVALID_TXN_STATE
        partition = ("t", 0)
        verified = await added(client, producer, partition, version=version, verify_only=True)
        assert verified == [outside]
        assert await added(client, producer, partition, version=version) == [0]
        verified = await added(
            client, producer, partition, ("t", 1), version=version, verify_only=True
        )
        assert verified == [0, outside]

    run(work)


def test_each_transaction_of_a_batch_has_its_own_result() -> None:
    async def work(client: RawClient) -> None:
        producer = await new_producer(client)
        known = {
            "transactional_id": ID,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "verify_only": False,
            "topics": [{"name": "t", "partitions": (0, 2)}],
        }
        unknown = {**known, "transactional_id": "unknown"}
        answer = await client.ask(ADD_PARTITIONS, 5, transactions=[unknown, known])
        codes = {
            each.transactional_id: [
                int(part.partition_error_code)
                for topic in each.topic_results
                for part in topic.results_by_partition
            ]
            for each in answer.results_by_transaction
        }
        assert codes == {"unknown": [INVALID_PRODUCER_ID_MAPPING] * 2, ID: [0, 0]}

    run(work)


async def stored(
    client: RawClient, *, require_stable: bool = False, group: str = GROUP
) -> tuple[int, int]:
    """Return the error code and the offset of the group at partition 0 of topic `t`."""
    asked = {
        "group_id": group,
        "member_id": None,
        "member_epoch": -1,
        "topics": [{"name": "t", "partition_indexes": (0,)}],
    }
    answer = await client.ask(OFFSET_FETCH, 8, groups=[asked], require_stable=require_stable)
    (found,) = answer.groups
    (part,) = found.topics[0].partitions
    return int(part.error_code), part.committed_offset


UNSTABLE_OFFSET_COMMIT = 88


@pytest.mark.parametrize("version", range(5))
def test_first_offsets_of_a_transaction_create_the_offsets_topic(version: int) -> None:
    async def work(client: RawClient) -> None:
        producer = await new_producer(client)
        assert await group_added(client, producer, version=version) == 0

    run(work)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
def test_every_version_commits_offsets_with_the_transaction(version: int, commit: bool) -> None:
    async def work(client: RawClient) -> None:
        await ready(client)
        producer = await new_producer(client)
        if version < 5:
            assert await group_added(client, producer) == 0
        codes = await offsets_sent(client, producer, (0, 12), (9, 1), version=version)
        assert codes == [0, UNKNOWN_TOPIC_OR_PARTITION]
        assert await stored(client) == (0, -1)
        assert await stored(client, require_stable=True) == (UNSTABLE_OFFSET_COMMIT, -1)
        end = await ended(client, producer, commit=commit, version=5 if version == 5 else 4)
        assert end.error_code == 0
        await until_state(client, "CompleteCommit" if commit else "CompleteAbort")
        offset = 12 if commit else -1
        assert await stored(client, require_stable=True) == (0, offset)

    run(work)


def test_another_transactional_id_adds_no_offsets_to_an_open_transaction() -> None:
    async def work(client: RawClient) -> None:
        await ready(client)
        await new_producer(client, "other")
        producer = await new_producer(client)
        assert await offsets_sent(client, producer, (0, 12), version=5) == [0]
        codes = await offsets_sent(client, producer, (1, 13), version=5, transactional_id="other")
        assert codes == [INVALID_PRODUCER_ID_MAPPING]

    run(work)


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, INVALID_TXN_STATE), (3, INVALID_TXN_STATE), (4, TRANSACTION_ABORTABLE)],
)
def test_offsets_outside_of_a_transaction_are_refused(version: int, code: int) -> None:
    async def work(client: RawClient) -> None:
        await ready(client)
        producer = await new_producer(client)
        assert await offsets_sent(client, producer, (0, 12), version=version) == [code]
        assert await stored(client, require_stable=True) == (0, -1)

    run(work)


@pytest.mark.parametrize("version", [3, 5])
def test_a_member_that_left_commits_no_offsets(version: int) -> None:
    """KIP-447: the transaction of a consumer that lost its partitions."""

    async def work(client: RawClient) -> None:
        await ready(client)
        producer = await new_producer(client)
        assert await group_added(client, producer) == 0
        gone: dict[str, Any] = {"generation_id": 3, "member_id": "gone", "group_instance_id": None}
        codes = await offsets_sent(client, producer, (0, 12), version=version, **gone)
        assert codes in ([22], [25])  # ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID
        assert await stored(client, require_stable=True) == (0, -1)

    run(work)


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_of_a_transactional_id_is_found(version: int) -> None:
    async def work(client: RawClient) -> None:
        await new_producer(client)
        if version >= 4:
            answer = await client.ask(
                FIND_COORDINATOR, version, key_type=TRANSACTION, coordinator_keys=(ID,)
            )
            (found,) = answer.coordinators
        elif version:
            found = await client.ask(FIND_COORDINATOR, version, key_type=TRANSACTION, key=ID)
        else:
            return  # groups only
        assert (found.error_code, found.node_id) == (0, 1)

    run(work)


def test_transactions_are_listed_by_every_filter() -> None:
    async def names(client: RawClient, version: int = 2, **fields: Any) -> list[str]:
        filters = {
            "state_filters": (),
            "producer_id_filters": (),
            **({"duration_filter": -1} if version >= 1 else {}),
            **({"transactional_id_pattern": None} if version >= 2 else {}),
            **fields,
        }
        answer = await client.ask(LIST_TRANSACTIONS, version, **filters)
        assert answer.error_code == fields.get("code", 0)
        return [each.transactional_id for each in answer.transaction_states]

    async def work(client: RawClient) -> None:
        first = await new_producer(client, "first")
        second = await new_producer(client, "second")
        assert await added(client, second, ("t", 0), transactional_id="second") == [0]
        for version in range(3):
            assert await names(client, version) == ["first", "second"]
        assert await names(client, state_filters=("Ongoing",)) == ["second"]
        assert await names(client, producer_id_filters=(first.producer_id,)) == ["first"]
        assert await names(client, duration_filter=3_600_000) == []
        assert await names(client, duration_filter=0) == ["second"]
        assert await names(client, transactional_id_pattern="f.*") == ["first"]
        assert await names(client, transactional_id_pattern="f") == []
        answer = await client.ask(
            LIST_TRANSACTIONS, 0, state_filters=("Ongoing", "Flying"), producer_id_filters=()
        )
        assert answer.unknown_state_filters == ("Flying",)
        bad = await client.ask(
            LIST_TRANSACTIONS,
            2,
            state_filters=(),
            producer_id_filters=(),
            duration_filter=-1,
            transactional_id_pattern="(",
        )
        assert bad.error_code == INVALID_REGULAR_EXPRESSION

    run(work)


def test_pattern_that_is_too_complex_for_the_listed_ids_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(client: RawClient) -> None:
        for name in ("a" * 40, "a" * 60):
            await new_producer(client, name)
        filters = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1}
        for pattern, code in (("a.*", 0), ("(a?){40}.*", INVALID_REGULAR_EXPRESSION)):
            answer = await client.ask(
                LIST_TRANSACTIONS, 2, **filters, transactional_id_pattern=pattern
            )
            assert answer.error_code == code, pattern

    monkeypatch.setattr(transactions, "MATCH_STEPS_MAX", 5_000)
    run(work)


def test_a_transactional_id_is_described_with_its_partitions() -> None:
    async def work(client: RawClient) -> None:
        producer = await new_producer(client)
        await add(client, producer, ("t", 0), ("t", 2))
        found, missing, empty = await described(client, ID, "missing", "")
        assert (found.error_code, found.transaction_state) == (0, "Ongoing")
        assert (found.producer_id, found.producer_epoch) == producer
        assert found.transaction_timeout.total_seconds() == 60
        assert found.transaction_start_time is not None
        assert [(each.topic, each.partitions) for each in found.topics] == [("t", (0, 2))]
        assert missing.error_code == TRANSACTIONAL_ID_NOT_FOUND
        assert empty.error_code == INVALID_REQUEST

    run(work)


def test_staged_attempt_is_described_and_closed_to_producers() -> None:
    async def main(kafka: KafkaNode) -> None:
        client, transactions = kafka.client, kafka.node.parts.transactions
        assert transactions is not None
        other = await new_producer(client, "other")  # creates the topic
        deadline_ms = kafka.runtime.clock.now_ms() + 20_000
        attempt = await transactions.ask(
            BeginAttempt(
                transactional_id=ID, number=0, write_id=1, task=0, attempt=0, timeout_ms=900_000
            ),
            deadline_ms=deadline_ms,
        )
        assert isinstance(attempt, ProducerIdentity)
        assert await sent(client, attempt, 0, b"a", version=12) == 0
        listed = f"{ID}#{attempt.producer_id}"
        found, missing = await described(client, listed, f"{ID}#{other.producer_id}")
        assert (found.error_code, found.transaction_state) == (0, "Ongoing")
        assert found.producer_id == attempt.producer_id
        assert [(each.topic, each.partitions) for each in found.topics] == [("t", (0,))]
        assert missing.error_code == TRANSACTIONAL_ID_NOT_FOUND
        assert (await initialised(client))[0] == INVALID_REQUEST
        assert (await ended(client, attempt)).error_code == INVALID_REQUEST
        await ready(client)
        for version in (4, 5):  # the leader of the offsets verifies, or adds
            codes = await offsets_sent(client, attempt, (0, 1), version=version)
            assert codes == [INVALID_REQUEST]
        assert await group_added(client, attempt) == INVALID_REQUEST
        assert (await committed(client))[0] == []

    run_with_topic(main)


async def marked(client: RawClient, producer: ProducerIdentity, version: int, **fields: Any) -> int:
    """Write an abort marker to partition 0 of topic `t`. Return the error code."""
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": "t", "partition_indexes": (0,)}],
        "coordinator_epoch": 0,
        **({"transaction_version": 1} if version >= 2 else {}),
        **fields,
    }
    answer = await client.ask(WRITE_MARKERS, version, markers=[marker])
    (written,) = answer.markers
    assert written.producer_id == producer.producer_id
    (topic,) = written.topics
    (part,) = topic.partitions
    return int(part.error_code)


@pytest.mark.parametrize("version", [1, 2])
def test_an_operator_aborts_a_transaction_in_one_partition(version: int) -> None:
    async def work(client: RawClient) -> None:
        producer = await new_producer(client)
        await add(client, producer, ("t", 0))
        assert await sent(client, producer, 0, b"a") == 0
        assert await marked(client, producer, version) == 0
        _, result = await committed(client)
        assert [each.producer_id for each in result.aborted_transactions] == [producer.producer_id]
        assert result.last_stable_offset == result.high_watermark == 2
        nowhere: Sequence[dict[str, Any]] = [{"name": "nowhere", "partition_indexes": (0,)}]
        code = await marked(client, producer, version, topics=nowhere)
        assert code == UNKNOWN_TOPIC_OR_PARTITION

    run(work)


def test_a_gap_in_the_sequence_is_refused_and_nothing_else_is_lost() -> None:
    async def work(client: RawClient) -> None:
        producer = await new_producer(client)
        await add(client, producer, ("t", 0))
        assert await sent(client, producer, 0, b"a") == 0
        assert await sent(client, producer, 5, b"gap") == OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await sent(client, producer, 1, b"b") == 0
        assert (await ended(client, producer)).error_code == 0
        await until_state(client, "CompleteCommit")
        assert (await committed(client))[0] == [b"a", b"b"]

    run(work)


@pytest.mark.parametrize(("version", "code"), [(3, INVALID_TXN_STATE), (4, TRANSACTION_ABORTABLE)])
def test_offsets_of_another_group_are_refused(version: int, code: int) -> None:
    """Its offsets are in another partition, which the transaction does not include."""
    other = "other"
    assert partition_of(other, 50) != partition_of(GROUP, 50)

    async def work(client: RawClient) -> None:
        for group in (GROUP, other):
            await ready(client, group)
        producer = await new_producer(client)
        assert await group_added(client, producer) == 0
        assert await offsets_sent(client, producer, (0, 12), version=version) == [0]
        codes = await offsets_sent(client, producer, (0, 13), version=version, group_id=other)
        assert codes == [code]
        assert (await ended(client, producer)).error_code == 0
        await until_state(client, "CompleteCommit")
        assert await stored(client, require_stable=True) == (0, 12)
        assert await stored(client, require_stable=True, group=other) == (0, -1)

    run(work)


@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_ends_a_transaction_in_a_partition_of_group_offsets(version: int) -> None:
    async def work(client: RawClient) -> None:
        offsets = [
            {"name": "__consumer_offsets", "partition_indexes": (partition_of(GROUP, 50),)},
        ]
        producer = await new_producer(client)
        code = await marked(client, producer, version, topics=offsets)
        assert code == NOT_LEADER_OR_FOLLOWER  # there is no group yet
        await ready(client)
        assert await group_added(client, producer) == 0
        assert await offsets_sent(client, producer, (0, 12)) == [0]
        assert await stored(client, require_stable=True) == (UNSTABLE_OFFSET_COMMIT, -1)
        assert await marked(client, producer, version, topics=offsets) == 0
        assert await stored(client, require_stable=True) == (0, -1)

    run(work)


def test_operators_of_a_cluster_without_transactions_create_no_topic() -> None:
    async def work(client: RawClient) -> None:
        answer = await client.ask(
            LIST_TRANSACTIONS,
            2,
            state_filters=(),
            producer_id_filters=(),
            duration_filter=-1,
            transactional_id_pattern=None,
        )
        assert (answer.error_code, list(answer.transaction_states)) == (0, [])
        (found,) = await described(client, ID)
        assert found.error_code == TRANSACTIONAL_ID_NOT_FOUND
        producer = ProducerIdentity(1, 0)
        assert await added(client, producer, ("t", 0)) == [NOT_COORDINATOR]
        assert not await has_transaction_topic(client)
        await new_producer(client)
        assert await has_transaction_topic(client)

    run(work)


async def has_transaction_topic(client: RawClient) -> bool:
    answer = await client.ask(METADATA, 1, topics=None)
    return "__transaction_state" in [each.name for each in answer.topics]
