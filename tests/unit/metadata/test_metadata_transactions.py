"""Images, deltas and snapshots contain a metadata transaction completely or not at all."""

import asyncio

import pytest

from quorumlog import simulation
from quorumlog.errors import CorruptionError
from quorumlog.ids import TopicId
from quorumlog.metadata.delta import ImageDelta
from quorumlog.metadata.shell import MetadataPublisher, MetadataStateMachine
from quorumlog.proto import metadata_records_pb2 as pb
from quorumlog.runtime import Runtime

BEGIN = pb.MetadataRecord(begin_transaction=pb.BeginTransactionRecord(name="two topics"))
END = pb.MetadataRecord(end_transaction=pb.EndTransactionRecord())
ABORT = pb.MetadataRecord(abort_transaction=pb.AbortTransactionRecord(reason="fell"))


def topic(number: int) -> pb.MetadataRecord:
    topic_id = TopicId(bytes([number]) * 16)
    return pb.MetadataRecord(topic=pb.TopicRecord(topic_id=topic_id, name=f"t{number}"))


class Log:
    """A state machine that gets records at consecutive offsets."""

    def __init__(self) -> None:
        self.metadata = MetadataStateMachine()
        self.publisher = MetadataPublisher(self.metadata)
        self.end = 0

    def commit(self, *records: pb.MetadataRecord) -> None:
        values = [record.SerializeToString() for record in records]
        self.metadata.committed(self.end, 1, values)
        self.end += len(records)

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.metadata.committed_image.sorted_topics()]


def test_transaction_is_invisible_before_its_end() -> None:
    log = Log()
    log.commit(topic(1), BEGIN, topic(2))
    log.commit(topic(3))
    assert log.names == ["t1"]
    assert log.metadata.committed_image.offset == 0
    assert log.metadata.open_transaction == "two topics"
    log.commit(END)
    assert log.names == ["t1", "t2", "t3"]
    assert log.metadata.committed_image.offset == 4
    assert log.metadata.open_transaction is None


def test_aborted_transaction_is_never_visible() -> None:
    log = Log()
    log.commit(topic(1), BEGIN, topic(2), ABORT, topic(3))
    assert log.names == ["t1", "t3"]
    assert log.metadata.committed_image.offset == 4
    log.commit(topic(2))  # the same id again: it never existed
    assert log.names == ["t1", "t2", "t3"]


def test_no_snapshot_is_taken_inside_a_transaction() -> None:
    log = Log()
    log.commit(topic(1), BEGIN, topic(2))
    assert log.metadata.snapshot() is None
    log.commit(END)
    slices = log.metadata.snapshot()
    assert slices is not None
    assert sum(len(values) for values in slices) == 2


def test_transaction_is_published_as_one_change() -> None:
    deltas: list[ImageDelta] = []

    async def main(runtime: Runtime) -> None:
        log = Log()
        log.publisher.subscribe(deltas.append)
        async with runtime.tasks.scope("test") as scope:
            scope.spawn(log.publisher.run(), name="publisher")
            log.commit(topic(1))
            await log.publisher.wait_applied(0, timeout_ms=1_000)
            log.commit(BEGIN, topic(2))
            await asyncio.sleep(0.01)
            assert log.publisher.applied_offset == 0
            log.commit(topic(3), END, topic(4))
            await log.publisher.wait_applied(5, timeout_ms=1_000)
            log.publisher.close()

    simulation.run(main)
    created = [[each.name for each in delta.created_topics()] for delta in deltas]
    assert created == [["t1"], ["t2", "t3", "t4"]]


def test_restored_state_drops_an_open_transaction() -> None:
    source, log = Log(), Log()
    source.commit(topic(1), topic(2))
    log.commit(BEGIN, topic(3))
    slices = source.metadata.snapshot()
    assert slices is not None
    log.metadata.begin_restore()
    for values in slices:
        log.metadata.restore(values)
    log.metadata.end_restore(7, 1)
    assert log.metadata.open_transaction is None
    assert log.names == ["t1", "t2"]


@pytest.mark.parametrize("records", [(BEGIN, BEGIN), (END,), (ABORT,), (BEGIN, END, END)])
def test_inconsistent_transaction_marks_stop_the_node(records: tuple[pb.MetadataRecord]) -> None:
    with pytest.raises(CorruptionError, match="transaction"):
        Log().commit(*records)
