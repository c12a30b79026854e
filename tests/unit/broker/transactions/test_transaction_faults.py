"""Faults below transactions: full disks, an unclean election, an unreadable record."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.kit.replica_cluster import Cluster

from quorumlog.broker.transactions.config import TRANSACTIONS_TOPIC
from quorumlog.broker.transactions.formats import encode
from quorumlog.broker.transactions.records import (
    AttemptState,
    FreeProducerId,
    StagedAttempt,
    StagedName,
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from quorumlog.broker.transactions.requests import DescribeTransaction, EndTransaction
from quorumlog.errors import CoordinatorNotAvailable, DiskFull, QuorumlogError
from quorumlog.ids import ProducerIdentity
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Runtime
from quorumlog.storage import AppendOrigin

from .coordinated import (
    NAME,
    add,
    asked,
    begun,
    cluster,
    coordinating,
    coordinator,
    end,
    init,
    led,
    markers,
    on,
    send,
    stable,
    tried,
)


def state(nodes: Cluster) -> str:
    return tried(nodes, DescribeTransaction(transactional_id=NAME)).state


def create(nodes: Cluster, *replicas: int, **configs: str) -> None:
    """Create topic "t" on these nodes, the first of which leads."""
    nodes.create(*replicas, **configs)
    nodes.until(lambda: led(nodes, "t") == replicas[0])


@contextmanager
def full_disk(nodes: Cluster, number: int) -> Iterator[None]:
    disk = nodes.machine(number).device.disk
    disk.capacity_bytes = disk.used_bytes()
    yield
    disk.capacity_bytes = None


def store(nodes: Cluster, producer: ProducerIdentity, value: bytes, *, adds: bool = False) -> None:
    """Append the first batch of a transaction, as often as it takes."""
    for _ in range(100):
        try:
            send(nodes, "t", producer, 0, value, adds=adds)
        except QuorumlogError as error:
            if not error.retriable:
                raise
            nodes.world.run_for(200)
        else:
            return
    send(nodes, "t", producer, 0, value, adds=adds)


def test_decision_that_a_full_disk_refuses_is_made_once_there_is_space() -> None:
    with cluster() as nodes:
        number = coordinating(nodes)
        others = [other for other in nodes.numbers if other != number]
        create(nodes, *others)
        producer = init(nodes)
        add(nodes, producer, ("t", 0))
        send(nodes, "t", producer, 0, b"x")
        request = EndTransaction(
            transactional_id=NAME, producer=producer, commit=True, bumps_epoch=True
        )
        with full_disk(nodes, number):
            task = begun(nodes, number, request)
            nodes.until(task.done)
            with pytest.raises(CoordinatorNotAvailable, match="could not be stored"):
                task.result()
            assert markers(nodes, "t") == []
        following = end(nodes, producer)
        nodes.until(lambda: stable(nodes, "t"))
        assert markers(nodes, "t") == [(following.producer_epoch, True)]


def test_full_disk_of_a_partition_refuses_batches_and_delays_the_marker() -> None:
    with cluster() as nodes:
        coordinates = coordinating(nodes)
        number, other = (each for each in nodes.numbers if each != coordinates)
        create(nodes, number, other)
        producer = init(nodes)
        add(nodes, producer, ("t", 0))
        send(nodes, "t", producer, 0, b"stored")
        with full_disk(nodes, number):
            with pytest.raises(DiskFull):
                send(nodes, "t", producer, 1, b"refused")
            following = end(nodes, producer)
            nodes.world.run_for(5_000)
            assert state(nodes) == "PrepareCommit"
            assert coordinator(nodes, coordinating(nodes)).census().markers == 1
        nodes.until(lambda: stable(nodes, "t"))
        assert markers(nodes, "t") == [(following.producer_epoch, True)]
        assert nodes.values(number, "t") == [b"stored"]
        store(nodes, following, b"next", adds=True)


def test_transaction_ends_after_an_unclean_election_below_it() -> None:
    """Its records are lost. The marker ends it where nothing of it is left, and delays no one."""
    with cluster() as nodes:
        coordinating(nodes)
        create(nodes, 1, 2, unclean_leader_election_enable="true", min_insync_replicas="1")
        producer = init(nodes)
        add(nodes, producer, ("t", 0))
        barrier = nodes.separate(1, 2)
        nodes.until(lambda: nodes.isr("t") == {1})
        store(nodes, producer, b"lost")
        nodes.crash(1)
        nodes.until(lambda: led(nodes, "t") == 2, 60_000)
        following = end(nodes, producer)
        nodes.until(lambda: markers(nodes, "t") == [(following.producer_epoch, True)])
        nodes.until(lambda: stable(nodes, "t"))
        store(nodes, following, b"next", adds=True)
        last = end(nodes, following)
        nodes.join_again(barrier)
        nodes.start(1)
        nodes.until(lambda: markers(nodes, "t")[1:] == [(last.producer_epoch, True)])
        assert nodes.everywhere(1, 2) == [b"next"]
        nodes.until(lambda: stable(nodes, "t"))


@pytest.mark.parametrize(
    ("record", "names"),
    [
        (
            StagedName(transactional_id="n", updated_ms=1),
            "version 9 is unknown",
        ),
        (FreeProducerId(producer_id=7, producer_epoch=0), "version 9 is unknown"),
        (
            TransactionMetadata(
                transactional_id="n",
                producer_id=7,
                producer_epoch=0,
                timeout_ms=1,
                state=TransactionState.EMPTY,
                updated_ms=1,
            ),
            "version 9 is unknown",
        ),
        (
            StagedAttempt(
                producer_id=7,
                producer_epoch=0,
                transactional_id="n",
                number=0,
                write_id=1,
                task=0,
                attempt=0,
                state=AttemptState.OPEN,
                timeout_ms=900_000,
                started_ms=1,
            ),
            "the record of the name is missing",
        ),
    ],
)
def test_partition_with_an_unreadable_record_is_not_served(
    record: TransactionRecord, names: str
) -> None:
    """Without it, some partitions of a decided transaction could get the other outcome."""
    key, value = encode(record)
    assert value is not None
    if not isinstance(record, StagedAttempt):
        value = b"\0\x09" + value[2:]
    with cluster(1) as nodes:
        init(nodes)

        async def store_record(_: Runtime) -> None:
            directory = nodes.nodes[1].parts.directory
            assert directory is not None
            await directory.append_nowait(
                nodes.replica(1, TRANSACTIONS_TOPIC).log,
                encode_batch([Record(0, 1, key, value)]),
                leader_epoch=0,
                origin=AppendOrigin.INTERNAL,
                flush=True,
            )

        on(nodes, 1, store_record)
        nodes.crash(1)
        nodes.start(1)
        nodes.world.run_for(10_000)
        request = DescribeTransaction(transactional_id=NAME)
        with pytest.raises(CoordinatorNotAvailable, match=f"cannot be loaded: .*{names}"):
            asked(nodes, 1, request)


def test_partition_with_a_damaged_batch_is_not_served() -> None:
    with cluster(1) as nodes:
        init(nodes)
        nodes.world.run_for(3_000)  # a checkpoint has the flushed end
        nodes.crash(1)
        disk = nodes.machine(1).device.disk
        disk.file(f"/var/quorumlog/{TRANSACTIONS_TOPIC}-0/{0:020}.log").flip(80, 3)
        nodes.start(1)
        nodes.world.run_for(10_000)
        with pytest.raises(CoordinatorNotAvailable, match=r"cannot be loaded: .*CRC"):
            asked(nodes, 1, DescribeTransaction(transactional_id=NAME))
