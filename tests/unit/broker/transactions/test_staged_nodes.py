"""Staged commits over gRPC in a cluster of three simulated nodes."""

from collections.abc import Iterator

import pytest

from quorumlog.clients.log import AsyncLog
from quorumlog.errors import (
    FencedWrite,
    InvalidProducerIdMapping,
    NumberTooOld,
    StageLost,
    TransactionalIdInUse,
    TransactionalIdNotFound,
)
from quorumlog.ids import ProducerIdentity

from .coordinated import add, cluster, create, end, init, markers
from .stage_client import NAME, StageClient

Nodes = Iterator[StageClient]


@pytest.fixture
def stage() -> Nodes:
    with cluster() as nodes:
        create(nodes, "t", partitions=3)
        yield StageClient(nodes)


def test_batch_of_many_tasks_is_visible_after_its_commit_alone(stage: StageClient) -> None:
    write = stage.open_write()
    winners = [stage.sealed(0, write, "t", b"%d" % task, task=task) for task in range(3)]
    loser = stage.sealed(0, write, "t", b"speculative", task=1, attempt=9)
    assert stage.committed("t") == []
    batch = stage.commit(0, write, winners)
    assert (batch.number, batch.write_id, batch.records, batch.visible) == (0, write, 3, True)
    stage.nodes.until(lambda: len(markers(stage.nodes, "t")) == 4)
    assert sorted(stage.committed("t"), key=str) == [b"0", b"1", b"2"]
    assert loser.producer_id not in {each.producer_id for each in winners}
    repeated = stage.begin(0, stage.open_write())
    assert repeated.committed == batch


def test_every_broker_serves_every_call_of_a_name(stage: StageClient) -> None:
    writes = [stage.open_write(via=number) for number in (1, 2, 3, 1)]
    assert writes == sorted(set(writes))
    for number, write in enumerate(writes[:3]):
        via = number + 1
        producer = stage.begun(number, write, via=via)
        assert stage.begun(number, write, via=via % 3 + 1) == producer
        stage.publish(producer, "t", 0, b"%d" % number)
        stage.seal(producer, {("t", 0): 1})
        assert stage.commit(number, write, [producer], via=via).write_id == write
        assert stage.describe(via=via).stage.last_committed == number
    assert [each.name for each in stage.names()] == [NAME]
    assert stage.committed("t") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("via", [1, 2, 3])
def test_errors_have_their_fields_on_the_wire(stage: StageClient, via: int) -> None:
    write = stage.open_write()
    stage.commit(4, write, [stage.sealed(4, write, "t", b"a")])
    with pytest.raises(NumberTooOld) as old:
        stage.begin(3, stage.open_write(), via=via)
    assert old.value.number == 4
    newest = stage.open_write()
    stage.begun(5, newest)
    with pytest.raises(FencedWrite) as fenced:
        stage.begin(5, write, via=via)
    assert fenced.value.write_id == newest
    lost = stage.begun(5, newest, task=1)
    with pytest.raises(StageLost) as found:
        stage.commit(5, newest, [lost], via=via)
    assert found.value.task == 0


def test_a_name_and_a_transactional_id_exclude_each_other(stage: StageClient) -> None:
    nodes = stage.nodes
    plain = init(nodes, name="plain")
    with pytest.raises(TransactionalIdInUse):
        stage.begun(0, stage.open_write(), name="plain")
    attempt = stage.begun(0, stage.open_write())
    with pytest.raises(TransactionalIdInUse):
        init(nodes, name=NAME)
    for producer in (ProducerIdentity(attempt.producer_id, 0), plain):
        with pytest.raises(TransactionalIdInUse):
            end(nodes, producer, name=NAME)
    with pytest.raises(InvalidProducerIdMapping):
        add(nodes, plain, ("t", 0), name=NAME)
    assert stage.add(attempt, ("t", 0)) == []
    assert add(nodes, plain, ("t", 0), name="plain").errors == (None,)


def test_description_creates_no_name(stage: StageClient) -> None:
    with pytest.raises(TransactionalIdNotFound):
        stage.describe()
    assert stage.names() == []


def test_attempt_is_described_and_aborted_by_its_listed_name() -> None:
    """The attempts of a name have its coordinator, out of many partitions on three nodes."""

    async def work(log: AsyncLog) -> None:
        for listed in await log.admin.list_transactions():
            described = await log.admin.describe_transaction(listed.name)
            assert described.producer_id == listed.producer_id
            assert [(each.topic, each.partition) for each in described.partitions] == [("t", 0)]
        assert await log.admin.find_hanging_transactions([("t", 0)]) == []
        await log.admin.abort_transaction(f"{NAME}#{producers[0].producer_id}")

    with cluster(transaction_state_log_num_partitions=20) as nodes:
        create(nodes, "t")
        stage = StageClient(nodes)
        write = stage.open_write()
        producers = [stage.sealed(0, write, "t", b"a", task=task) for task in range(5)]
        nodes.run(work)
        with pytest.raises(StageLost) as lost:
            stage.commit(0, write, producers)
        assert lost.value.task == 0
