"""The ISR requests of a leader after a refusal."""

from collections.abc import Sequence

from quorumlog import simulation
from quorumlog.broker import Acks, LeaderAndIsr, Partition
from quorumlog.broker.isr import BrokerFacts, FollowerFetch
from quorumlog.broker.shell.produce import DelayedProduce
from quorumlog.broker.shell.replica import Replica, ReplicaDeps
from quorumlog.broker.shell.replication.alter_partition import REVIEW_MS, AlterPartitionManager
from quorumlog.errors import IneligibleReplica
from quorumlog.ids import ClusterId, Epoch, NodeId, Offset, TopicId
from quorumlog.metadata.commands import IsrChange, PartitionsAltered
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Runtime, Scope
from quorumlog.storage import LogConfig
from quorumlog.storage.shell.data_directory import DataDirectory

ME, OTHER = NodeId(1), NodeId(2)
STATE = LeaderAndIsr(
    leader_epoch=Epoch(1),
    partition_epoch=0,
    isr=(ME,),
    replicas=(ME, OTHER),
    min_isr=1,
    counts_flushed=False,
)


class RefusingController:
    """A controller that refuses every replica."""

    async def alter_partitions(
        self, changes: Sequence[IsrChange], *, timeout_ms: int
    ) -> PartitionsAltered:
        return PartitionsAltered(results=tuple(IneligibleReplica("fenced") for _ in changes))


def led(runtime: Runtime, scope: Scope, directory: DataDirectory, active: set[NodeId]) -> Replica:
    deps = ReplicaDeps(
        clock=runtime.clock,
        scope=scope,
        directory=directory,
        follow=lambda _: None,
        forget=lambda _: None,
        review_isr=lambda _: None,
        failed=lambda _, __: None,
    )
    partition = Partition(
        "t",
        0,
        ME,
        waits_max=10,
        brokers=lambda node: BrokerFacts(Offset(node), node in active),
        lag_time_max_ms=10 * REVIEW_MS,
    )
    replica = Replica(deps, partition, topic_id=TopicId(b"t" * 16), config=LogConfig(), after=None)
    replica.lead(STATE, LogConfig())
    return replica


def test_review_after_a_refusal_acknowledges_what_it_commits() -> None:
    """The review may commit records: the metadata exclude the refused replica by then. Regression:
    the released produce request was never answered."""
    active = {ME, OTHER}

    async def main(runtime: Runtime) -> None:
        await DataDirectory.format(runtime, "/data", cluster_id=ClusterId("c" * 22), node_id=ME)
        async with runtime.tasks.scope("test") as scope:
            directory = await DataDirectory.open(runtime, scope, "/data")
            replica = led(runtime, scope, directory, active)
            log, clock = await replica.opened(), runtime.clock

            def append() -> DelayedProduce:
                batch = encode_batch([Record(0, 1, None, b"value")])
                pending = DelayedProduce(directory.completed, replica, batch, Acks.ALL, Epoch(1))
                directory.submit(log, pending)
                return pending

            await append().wait_until(clock, clock.now_ms() + 1_000)
            requests = AlterPartitionManager(clock, RefusingController())
            running = scope.spawn(requests.run(), name="requests")
            fetch = FollowerFetch(
                broker_epoch=Offset(OTHER),
                leader_epoch=Epoch(1),
                log_end_offset=Offset(1),
                flushed_end_offset=Offset(1),
                log_start_offset=Offset(0),
            )
            leader = replica.partition.check_leader(1)
            replica.progressed(leader.fetched(OTHER, fetch, clock.now_ms()))
            requests.request_change(replica)
            pending = append()
            assert pending.outcome() is None, "the other replica may still join the ISR"
            active.discard(OTHER)
            appended = await pending.wait_until(clock, clock.now_ms() + 2 * REVIEW_MS)
            assert (appended.base_offset, replica.partition.high_watermark) == (1, 2)
            running.cancel()
            await directory.close()

    simulation.run(main)
