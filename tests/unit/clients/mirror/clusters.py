"""Two simulated clusters, by default one node each, and a mirror between them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tests.kit.replica_cluster import Cluster

from quorumlog.clients.config import ClientConfig
from quorumlog.clients.connection import Connection
from quorumlog.clients.log import AsyncLog
from quorumlog.clients.mirror import ClusterSource, Mirror, MirrorReport, MirrorSource, Target
from quorumlog.clients.mirror.group_offsets import copy_group_offsets
from quorumlog.clients.mirror.mirror import CopyGroups
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimWorld

T = TypeVar("T")
Contents = list[tuple[int, bytes | None, bytes | None, int]]


class Clusters:
    """A source, a target, and the mirrors between them."""

    def __init__(
        self, world: SimWorld, *, source: Sequence[int] = (1,), target: Sequence[int] = (2,)
    ) -> None:
        self.world = world
        self.source = Cluster(world, source)
        self.target = Cluster(world, target)
        self.target._clients = 50  # both number the machines of their clients
        self.source.start()
        self.target.start()
        self.said: list[str] = []
        self.mirror: Mirror | None = None
        self.target_type: type[Target] = Target
        self.source_type: Callable[[Connection], MirrorSource] = ClusterSource
        self.copy_groups: CopyGroups | None = None  # in place of the command
        self._mirrors = 0

    async def _mirror(self, runtime: Runtime, topics: str, once: bool) -> MirrorReport:
        config = ClientConfig(call_timeout_ms=5_000)

        def connection(cluster: Cluster) -> Connection:
            return Connection(runtime, [f"n{n}:9094" for n in cluster.numbers], config)

        source, target = connection(self.source), connection(self.target)
        await source.open()
        await target.open()
        mirror = self.mirror = Mirror(
            runtime,
            self.source_type(source),
            self.target_type(target, replication=len(self.target.numbers)),
            topics=topics,
            refresh_ms=1_000,
            copy_groups=self.copy_groups
            or (lambda copied_to: copy_group_offsets(source, target, copied_to)),
            say=self.said.append,
        )
        try:
            return await mirror.run(once=once)
        finally:
            await source.close()
            await target.close()

    def start(self, topics: str = ".*") -> str:
        """Run a mirror until it crashes. Return the name of its machine."""
        self._mirrors += 1
        name = f"mirror{self._mirrors}"
        self.world.node(name).spawn(lambda runtime: self._mirror(runtime, topics, False))
        return name

    def once(self, topics: str = ".*", *, virtual_ms: int = 120_000) -> MirrorReport:
        """Run a mirror until its copies are complete."""
        self._mirrors += 1
        found: list[MirrorReport] = []

        async def main(runtime: Runtime) -> None:
            found.append(await self._mirror(runtime, topics, True))

        task = self.world.node(f"mirror{self._mirrors}").spawn(main)
        self.world.run_until(task, virtual_ms=virtual_ms)
        task.result()
        return found[0]

    def until(self, condition: Callable[[], bool], virtual_ms: int = 60_000) -> None:
        self.world.run_until(condition, virtual_ms=virtual_ms)

    def in_source(self, work: Callable[[AsyncLog], Awaitable[T]]) -> T:
        return self.source.run(work)

    def in_target(self, work: Callable[[AsyncLog], Awaitable[T]]) -> T:
        return self.target.run(work)

    def create(self, topic: str, *, partitions: int = 1, **configs: str) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}

        async def ask(log: AsyncLog) -> None:
            await log.admin.create_topic(topic, partitions=partitions, configs=named)

        self.in_source(ask)

    def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        async def work(log: AsyncLog) -> None:
            async with log.producer(linger_ms=0) as producer:
                for value in values:
                    await producer.send(topic, value, key=b"k" + value, partition=partition)

        self.in_source(work)

    def same(self, topic: str, partition: int = 0) -> Contents:
        """Return the contents of both sides, which must be equal."""
        theirs = contents(self.source, topic, partition)
        mine = contents(self.target, topic, partition)
        assert mine == theirs
        return mine

    def is_caught_up(self) -> bool:
        mirror = self.mirror
        return mirror is not None and mirror._is_done()


def contents(cluster: Cluster, topic: str, partition: int = 0) -> Contents:
    """Return offset, key, value and timestamp of every record of a partition."""

    async def work(log: AsyncLog) -> Contents:
        assign = {topic: [partition]}
        async with log.consumer(assign, start="earliest", until_end=True) as consumer:
            return [
                (record.offset, record.key, record.value, record.timestamp_ms)
                async for record in consumer
            ]

    return cluster.run(work)
