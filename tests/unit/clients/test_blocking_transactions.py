"""Transactions of the blocking clients, with a broker in its own process."""

import threading
from typing import Any

import pytest
from tests.kit.command import succeed
from tests.kit.node_process import lose_topic
from tests.kit.waits import wait_until_blocking

from quorumlog.clients.blocking import Log
from quorumlog.errors import (
    ClientClosed,
    InvalidProducerEpoch,
    InvalidRequest,
    InvalidTxnState,
    ProducerFenced,
    QuorumlogError,
    TransactionAbortable,
)
from quorumlog.processing import Processor
from quorumlog.testing import Broker


def committed(log: Log, topic: str, count: int) -> list[bytes | None]:
    """Return the first committed values of a topic."""
    with log.consumer(topic) as consumer:
        return [record.value for record in consumer.records(max_records=count)]


def test_block_commits_at_its_end_and_aborts_after_an_error(log: Log) -> None:
    log.admin.create_topic("blocks")
    with log.producer(transactional_id="blocks") as producer:
        with producer.transaction():
            delivery = producer.send("blocks", "a")
            producer.send_many("blocks", ["b", "c"])
        assert delivery.result().offset == 0

        def fail() -> None:
            with producer.transaction():
                producer.send("blocks", "d")
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        with producer.transaction():
            producer.send("blocks", "e")
        with pytest.raises(InvalidTxnState, match="no transaction is open"):
            producer.send("blocks", b"f")
    assert committed(log, "blocks", 4) == [b"a", b"b", b"c", b"e"]


def test_threads_share_the_open_transaction(log: Log) -> None:
    log.admin.create_topic("threads")
    with log.producer(transactional_id="threads") as producer, producer.transaction():
        threads = [
            threading.Thread(target=producer.send, args=("threads", f"{number}"))
            for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = committed(log, "threads", 8)
    assert sorted(found, key=str) == [b"%d" % number for number in range(8)]


def test_failed_record_is_abortable_and_a_fenced_producer_is_not(log: Log) -> None:
    log.admin.create_topic("failing", configs={"max.message.bytes": "1000"})
    with log.producer(transactional_id="failing") as producer:
        with pytest.raises(TransactionAbortable), producer.transaction():
            producer.send("failing", "x" * 2_000)
        with producer.transaction():
            producer.send("failing", "fits")
        producer.begin_transaction()
        producer.send("failing", "zombie").result()
        with log.producer(transactional_id="failing") as newer:
            with pytest.raises(InvalidProducerEpoch):
                producer.send("failing", "zombie").result()
            with pytest.raises(TransactionAbortable, match="which raises ProducerFenced"):
                producer.commit_transaction()
            plain: Any = log.consumer("failing")
            with pytest.raises(InvalidRequest, match="Consumer has no group"):
                producer.send_offsets(plain)
            with pytest.raises(ProducerFenced):
                producer.abort_transaction()
            with pytest.raises(ClientClosed):
                producer.begin_transaction()
            with newer.transaction():
                newer.send("failing", "newer")
    assert committed(log, "failing", 2) == [b"fits", b"newer"]


def test_refused_part_of_a_bulk_makes_the_transaction_abortable(log: Log) -> None:
    def fails_for_three(topic: str, key: Any, value: Any, partitions: int) -> int | None:
        if value == b"3":
            raise ValueError(topic)
        return 0

    log.admin.create_topic("refused")
    with log.producer(transactional_id="refused", partitioner=fails_for_three) as producer:

        def send(*more: bytes) -> None:
            with producer.transaction():
                producer.send_many("refused", [b"%d" % number for number in range(8)])
                for value in more:
                    producer.send("refused", value)

        for more in ((), (b"more",)):
            with pytest.raises(TransactionAbortable, match="the transaction cannot commit"):
                send(*more)
        with producer.transaction():
            producer.send("refused", b"next")
    assert committed(log, "refused", 1) == [b"next"]


def test_processor_counts_each_record_once_over_a_restart(log: Log) -> None:
    for name in ("source", "target", "dead"):
        log.admin.create_topic(name)
    with log.producer() as producer:
        producer.send_many("source", [f"{number}" for number in range(30)])

    def run(fails: bool) -> None:
        with Processor(
            log,
            "upper",
            group="upper",
            topics="source",
            idle_ms=1_000,
            dead_letter="dead",
            consumer_settings={"max_poll_records": 7},
        ) as processor:
            for turn, batch in enumerate(processor):
                for record in batch:
                    if record.text == "13":
                        batch.reject(record, ValueError("unlucky"))
                    else:
                        batch.send("target", record.text)
                if fails and turn == 1:
                    raise KeyError
                assert batch.commit()

    with pytest.raises(KeyError):
        run(fails=True)
    run(fails=False)
    found = committed(log, "target", 29)
    assert found == [b"%d" % number for number in range(30) if number != 13]
    assert committed(log, "dead", 1) == [b"13"]


def test_aborted_batch_is_read_again(log: Log) -> None:
    log.admin.create_topic("again")
    log.admin.create_topic("once")
    with log.producer() as producer:
        producer.send_many("again", ["0", "1", "2"])
    with Processor(log, "again", group="again", topics="again", idle_ms=1_000) as processor:
        seen = []
        for turn, batch in enumerate(processor):
            seen += [record.text for record in batch]
            batch.send("once", f"{turn}")
            if turn:
                assert batch.commit()
            else:
                batch.abort()
    assert seen == ["0", "1", "2"] * 2
    assert committed(log, "once", 1) == [b"1"]


def test_abort_of_a_batch_can_be_repeated_until_the_consumer_is_back(log: Log) -> None:
    log.admin.create_topic("repeated")
    with log.producer() as producer:
        producer.send("repeated", "0").result()
    with Processor(log, "repeated", group="repeated", topics="repeated") as processor:
        batch = next(processor)
        batch.send("repeated", "1")
        processor.consumer.close(commit=False)
        for _ in range(2):
            with pytest.raises(ClientClosed):
                batch.abort()
        with pytest.raises(InvalidTxnState, match="aborted before"):
            batch.commit()
        assert not log.admin.describe_transaction("repeated").is_open


def test_consumer_seeks_back_to_its_committed_offsets(log: Log) -> None:
    log.admin.create_topic("back", partitions=2)
    with log.producer() as producer:
        for partition in (0, 1):
            producer.send_many("back", ["0", "1", "2"], partition=partition).result()
    with log.group_consumer("back", "back", start="latest", auto_commit=False) as consumer:
        with log.producer() as producer:
            for partition in (0, 1):
                producer.send_many("back", ["3", "4", "5"], partition=partition).result()
        consumer.commit({("back", 1): 1})
        found = [next(consumer) for _ in range(5)]  # one of six waits in the buffer
        assert {record.offset for record in found} <= {3, 4, 5}
        assert consumer.seek_to_committed() == {("back", 0): 3, ("back", 1): 1}
        offsets = sorted(
            (record.partition, record.offset) for record in consumer.records(max_records=8)
        )
        assert offsets == [(0, 3), (0, 4), (0, 5), *((1, offset) for offset in range(1, 6))]


@pytest.mark.long
@pytest.mark.parametrize("is_polled", [False, True])
def test_records_of_a_later_transaction_are_not_committed_when_their_partition_was_lost(
    is_polled: bool,
) -> None:
    """The second record was in the buffer or in the application while the offset of the first one
    was committed."""
    settings = {
        "group.consumer.session.timeout.ms": 2_000,
        "group.consumer.heartbeat.interval.ms": 200,
    }
    with Broker(settings=settings) as broker, broker.connect(request_timeout_ms=500) as log:
        broker.create_topic("in")
        with log.producer() as plain:
            plain.send_many("in", ["0", "1", "2"]).result()
        with (
            log.producer(transactional_id="later") as producer,
            log.group_consumer("later", "in", auto_commit=False) as consumer,
        ):
            polled = iter(consumer.poll() if is_polled else consumer)
            for offset, text in enumerate(("0", "1")):
                assert next(polled).text == text
                offsets = {("in", 0): offset + 1} if is_polled else None
                producer.begin_transaction()
                if text == "1":
                    broker.pause()
                    wait_until_blocking(lambda: not consumer.assignment())
                    broker.resume()
                    wait_until_blocking(lambda: bool(consumer.positions()))
                    with pytest.raises(TransactionAbortable, match="were revoked"):
                        producer.send_offsets(consumer, offsets)
                    producer.abort_transaction()
                else:
                    producer.send_offsets(consumer, offsets)
                    producer.commit_transaction()
            assert next(consumer).text == "1"


def test_commands_show_and_abort_transactions(log: Log, address: str) -> None:
    log.admin.create_topic("shown")
    producer = log.producer(transactional_id="shown")
    producer.begin_transaction()
    producer.send("shown", "open", partition=0).result()
    with log.producer() as plain:
        plain.send("shown", "behind").result()
    assert "shown" in succeed("transactions", "list", "--state", "ongoing", address=address)
    described = succeed("transactions", "describe", "shown", address=address)
    assert "Transactional id shown: Ongoing" in described
    assert "shown" in described.splitlines()[-1]
    explained = succeed("explain", "lso", "shown", address=address)
    assert "shown-0: the last stable offset 0 is 2 offsets below" in explained
    assert "quorumlog transactions abort shown" in explained
    assert (
        succeed("transactions", "find-hanging", "shown", address=address)
        == "No hanging transactions.\n"
    )
    consumed = succeed(
        "consume", "shown", "--until-end", "--isolation", "read_uncommitted", address=address
    )
    assert consumed == "open\nbehind\n"
    assert succeed("consume", "shown", "--until-end", address=address) == ""
    succeed("transactions", "abort", "shown", "--yes", address=address)
    assert succeed("consume", "shown", "--max", "1", address=address) == "behind\n"
    with pytest.raises(QuorumlogError):
        producer.commit_transaction()
    producer.close()


@pytest.mark.long
def test_commands_find_and_abort_a_transaction_that_its_coordinator_lost() -> None:
    with Broker() as broker:
        broker.create_topic("lost", partitions=2)
        with broker.connect() as log:
            producer = log.producer(transactional_id="lost")
            producer.begin_transaction()
            producer.send("lost", "open", partition=1).result()
            with log.producer() as plain:
                plain.send("lost", "behind", partition=1).result()
            broker.stop()
            lose_topic(broker.data_dir, "__transaction_state")
            broker.start()
            address = broker.grpc
            listed = succeed("transactions", "find-hanging", "lost", "-o", "json", address=address)
            assert '"first_offset": 0' in listed
            explained = succeed("explain", "lso", "lost", address=address)
            assert "quorumlog transactions find-hanging lost -p 1 --abort" in explained
            assert succeed("consume", "lost", "--until-end", address=address) == ""
            aborted = succeed("transactions", "find-hanging", "--abort", "--yes", address=address)
            assert aborted.splitlines()[-1] == "Aborted 1 transaction."
            assert succeed("consume", "lost", "--until-end", address=address) == "behind\n"
            again = succeed("transactions", "find-hanging", address=address)
            assert again == "No hanging transactions.\n"
            with pytest.raises(QuorumlogError):
                producer.commit_transaction()
            producer.close()
