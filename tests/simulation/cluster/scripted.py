"""A cluster controlled by a scripted scenario: whole nodes, one client, explicit faults.

```python
with SimWorld(1) as world:
    stage = Stage(world, options_of(topic))
    stage.start()
    stage.produce(PLACE, 10)
    stage.cluster.kill(stage.leader(PLACE), power=True, down_ms=50)
    stage.finish()  # all faults end; no acknowledged record is lost
```
The invariants are checked after every step, and the client's history at the end.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from quorumlog.clients.log import AsyncLog
from quorumlog.clients.producer.batches import Delivery
from quorumlog.errors import QuorumlogError
from quorumlog.metadata import PartitionImage
from quorumlog.runtime import Runtime
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.links import apart, between
from quorumlog.simulation.world import NotReached, SimWorld
from quorumlog.testing.checkers import Place, Stored, check, describe

from ..checkers.cluster_invariants import ClusterInvariants
from ..checkers.stored_batches import PartitionFiles, StoredBatch, key_of
from ..faults.cluster_faults import NO_FAULTS, ClusterFaultInjector
from ..levels.node.application import Application, Notes
from .liveness import CONVERGE_MS, is_whole
from .machines import DATA
from .nodes import Cluster, ClusterNode
from .options import ClusterOptions, TopicPlan, Workload

T = TypeVar("T")

CLIENT: Final = "client1"
STEP_MS: Final = 10
START_MS: Final = 30_000
NEVER_MS: Final = 1 << 40
CATCH_UP_MS: Final = 20_000  # for followers, without writes
DO_MS: Final = 120_000  # for any awaited condition
QUIET: Final = Workload(
    producers=0,
    readers=0,
    burst_max=1,
    pause_ms=(100, 100),
    value_size_max=10,
    linger_ms=0,
    batch_size=10_000,
    compression="none",
    delivery_timeout_ms=60_000,
    records_max=1_000,
)


def options_of(
    *topics: TopicPlan,
    brokers: int = 3,
    is_combined: bool = True,
    session_timeout_ms: int = 3_000,
    lag_time_ms_max: int = 3_000,
) -> ClusterOptions:
    """Return options of three combined nodes, or of three controllers and some brokers."""
    return ClusterOptions(
        controllers=3,
        brokers=brokers,
        is_combined=is_combined,
        racks=0,
        election_timeout_ms=600,
        session_timeout_ms=session_timeout_ms,
        lag_time_ms_max=lag_time_ms_max,
        topics=topics,
    )


class ScriptedCluster:
    """The cluster, its client, and the faults of a scenario."""

    def __init__(self, world: SimWorld, options: ClusterOptions) -> None:
        entropy = world.entropy.stream("stage")
        self.world = world
        self.options = options
        self.cluster = Cluster(world, options, entropy.stream("cluster"))
        self.watch = ClusterInvariants(self.cluster)
        self.fault_injector = ClusterFaultInjector(
            self.cluster, NO_FAULTS, SimEntropy("nobody"), [CLIENT]
        )
        self.notes = Notes(
            now_ns=lambda: world.loop.now_ns,
            is_clean=not any(topic.is_unclean for topic in options.topics),
        )
        self.application: Application | None = None
        self._log: AsyncLog | None = None
        self._producers = 0

    # --- actions -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start every node, and wait until every replica of every topic is in sync."""
        self.cluster.start()
        self.world.node(CLIENT).spawn(self._run_client)
        self.until(
            lambda: (
                self._log is not None
                and all(self.state(place) is not None for place in self.options.places)
                and is_whole(self.cluster)
            ),
            "the cluster is whole",
            virtual_ms=START_MS,
        )

    def produce(self, place: Place, count: int, *, acks: str = "all") -> list[bytes]:
        """Produce records, wait for the acknowledgements and return their values."""
        return self.do(lambda runtime: self._produce(place, count, acks))

    def begin_to_produce(
        self, place: Place, count: int, *, acks: str = "all"
    ) -> "asyncio.Task[list[bytes]]":
        """Start producing records, as `produce` does, without waiting."""
        return self.begin(lambda runtime: self._produce(place, count, acks))

    def read(self, place: Place) -> list[bytes]:
        """Read a partition from its start to its end."""
        application = self._application()
        found = self.do(lambda runtime: application.read_partition(self._client(), *place))
        return [value for _, value in found]

    def take_down(self, node: ClusterNode, *, power: bool = False) -> None:
        """Kill a node, or cut its machine's power; it stays down until `bring_up`."""
        if power:
            self.cluster.note_damage(node)
        self.cluster.kill(node, power=power, down_ms=NEVER_MS)

    def bring_up(self, node: ClusterNode) -> None:
        """Start a node that was taken down."""
        node.restart_at_ms = self.world.now_ms()

    def isolate(self, node: ClusterNode, *, from_clients: bool = True) -> None:
        """Cut a node off from all other nodes, and from clients too."""
        others = [one.name for one in self.cluster.nodes if one is not node]
        others += [CLIENT] if from_clients else []
        self.world.fabric.barriers.close(apart([node.name], others))

    def cut(self, one: ClusterNode, other: ClusterNode, *, one_way: bool = False) -> None:
        """Cut two nodes off from each other, or only the direction from the first to the second."""
        barriers = self.world.fabric.barriers
        names = [one.name], [other.name]
        barriers.close(between(*names) if one_way else apart(*names))

    def mend(self) -> None:
        """End all faults of network and devices, and resume paused nodes."""
        self.fault_injector.end_all(self.cluster.nodes)

    def until(self, condition: Callable[[], bool], why: str, *, virtual_ms: int = DO_MS) -> None:
        """Let time pass until the condition holds; raises NotReached."""
        end_ms = self.world.now_ms() + virtual_ms
        while not condition():
            if self.world.now_ms() >= end_ms:
                raise NotReached(f"not within {virtual_ms} ms: {why}\n{self.cluster.describe()}")
            self.run(STEP_MS)

    def run(self, virtual_ms: int) -> None:
        """Let time pass; dead nodes are restarted when due."""
        end_ms = self.world.now_ms() + virtual_ms
        while self.world.now_ms() < end_ms:
            self.cluster.run(min(STEP_MS, end_ms - self.world.now_ms()))
            self.fault_injector.maintain_voters()
            client = self.world.node(CLIENT)
            if not client.alive:
                raise AssertionError("the client ended") from client.exit_error

    def begin(self, main: Callable[[Runtime], Coroutine[Any, Any, T]]) -> "asyncio.Task[T]":
        """Start a task on the client."""
        return self.world.node(CLIENT).attach(main, name="scene")

    def do(self, main: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the client and return its result."""
        task = self.begin(main)
        self.until(task.done, "the client is done")
        return task.result()

    def finish(self) -> Stored:
        """End all faults and check the run; return the stored records.

        Every replica must become in sync, the history must have no anomaly and every data directory
        must be sound.
        """
        self.mend()
        self.until(lambda: is_whole(self.cluster), "all is in sync", virtual_ms=CONVERGE_MS)
        self.check_logs()
        application = self._application()
        stored: Stored = self.do(lambda runtime: application.read_all())
        if self.notes.is_clean:
            found = check(self.notes.history, stored)
            assert not found, describe(found)
        self.cluster.check_directories()
        return stored

    def check_logs(self) -> None:
        """Raise AssertionError unless all replicas of every partition come to hold the same
        batches, from the latest log start on."""
        for place in self.options.places:
            self.until(
                partial(self._are_logs_equal, place),
                f"the replicas of {place} are the same",
                virtual_ms=CATCH_UP_MS,
            )

    def _are_logs_equal(self, place: Place) -> bool:
        logs = list(self.logs(place).values())
        start = max((log[0].base_offset for log in logs if log), default=0)
        shared = {tuple(key_of(one) for one in log if one.base_offset >= start) for log in logs}
        return len(shared) == 1

    # --- state ---------------------------------------------------------------------------------

    def state(self, place: Place) -> PartitionImage | None:
        """Return a partition in the newest committed metadata; None if there is none."""
        topic = self.cluster.newest_image.topic(place[0])
        return None if topic is None else topic.partitions.get(place[1])

    def partition(self, place: Place) -> PartitionImage:
        """Return an existing partition in the newest committed metadata."""
        state = self.state(place)
        assert state is not None, f"there is no {place}"
        return state

    def logs(self, place: Place) -> dict[str, list[StoredBatch]]:
        """Return the stored batches of each replica, by machine."""
        topic = self.cluster.newest_image.topic(place[0])
        assert topic is not None, f"there is no {place}"
        path = f"{DATA}/{place[0]}-{place[1]}"
        found = {}
        for node_id in topic.partitions[place[1]].replicas:
            node = self.cluster.node(node_id)
            found[node.name] = list(PartitionFiles(node.sim, path).batches(0, 1 << 62))
        return found

    def leader(self, place: Place) -> ClusterNode:
        """Return the leader of a partition, by the metadata."""
        leader = self.partition(place).leader
        assert leader >= 0, f"{place} has no leader"
        return self.cluster.node(leader)

    def followers(self, place: Place) -> list[ClusterNode]:
        """Return the other replicas."""
        state = self.partition(place)
        return [self.cluster.node(one) for one in state.replicas if one != state.leader]

    def bystander(self, place: Place) -> ClusterNode:
        """Return a follower that is not the active controller: its loss causes no controller
        election."""
        active = self.cluster.leader()
        return next(node for node in self.followers(place) if node is not active)

    def client(self) -> AsyncLog:
        """Return the client."""
        return self._client()

    # --- inside --------------------------------------------------------------------------------

    async def _run_client(self, runtime: Runtime) -> None:
        self.application = Application(
            runtime=runtime,
            name=CLIENT,
            bootstrap=self.cluster.bootstrap,
            options=self.options,
            workload=QUIET,
            notes=self.notes,
            creates=True,
        )
        log = await self.application.connect()
        await self.application.find_topics(log)
        self._log = log
        await asyncio.Event().wait()

    async def _produce(self, place: Place, count: int, acks: str) -> list[bytes]:
        """Send records with a new producer, a batch each, and wait for them; raises the first
        error."""
        self._producers += 1
        name, history = f"{CLIENT}.{self._producers}", self.notes.history
        given: list[tuple[bytes, Delivery]] = []
        async with self._client().producer(acks=acks, linger_ms=0, batch_size=1) as producer:
            for _ in range(count):
                value = self.notes.next_value(name, 3)
                history.invoke(name, place, value, at=self.notes.now_ns())
                given.append((value, await producer.send(place[0], value, partition=place[1])))
            for value, delivery in given:
                try:
                    offset = (await delivery).offset
                except QuorumlogError:
                    history.fail(value, at=self.notes.now_ns(), is_certain=False)
                    raise
                history.acknowledge(value, offset, at=self.notes.now_ns(), is_promise=acks == "all")
        return [value for value, _ in given]

    def _application(self) -> Application:
        assert self.application is not None, "the stage is not started"
        return self.application

    def _client(self) -> AsyncLog:
        assert self._log is not None, "the stage is not started"
        return self._log
