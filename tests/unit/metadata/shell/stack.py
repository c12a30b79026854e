"""One node with a controller and a broker session over a real log and network, without
partitions."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.kit.waits import AMPLE_MS, AMPLE_S

from quorumlog import simulation
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.metadata import CreateTopic
from quorumlog.metadata.config import ControllerConfig
from quorumlog.metadata.shell import (
    BrokerSession,
    BrokerSessionConfig,
    ControllerLocator,
    ControllerShell,
    MetadataPublisher,
    MetadataStateMachine,
)
from quorumlog.proto import controller_pb2 as pb
from quorumlog.raftlog import RaftConfig
from quorumlog.raftlog.shell import RaftNode
from quorumlog.runtime import Listener, Runtime, Scope, Stream
from quorumlog.services import CONTROLLER_BROKER_SESSION
from quorumlog.storage.shell.data_directory import DataDirectory

ONE = NodeId(1)
CLUSTER = ClusterId("c" * 22)
CALL_MS = AMPLE_MS
PATIENT = ControllerConfig(session_timeout_ms=AMPLE_MS)  # a busy machine fences no broker
QUICK = ControllerConfig(session_timeout_ms=300, session_tick_ms=50, applied_wait_ms=100)
Main = Callable[[Runtime, str], Coroutine[Any, Any, Any]]
Run = Callable[[Main], Any]


def run_simulated(main: Main) -> None:
    """Run on virtual time only: on a busy real machine a session of 0.3 s would expire."""
    simulation.run(lambda runtime: main(runtime, "/data"))


SessionStream = Stream[pb.BrokerSessionRequest, pb.BrokerSessionResponse]


async def answer_on(stream: SessionStream) -> pb.BrokerSessionResponse:
    answer = await stream.receive()
    assert answer is not None, "the controller ended the stream"
    return answer


@dataclass
class Stack:
    """One node with both roles, without partitions."""

    runtime: Runtime
    scope: Scope
    directory: DataDirectory
    raft: RaftNode
    controller: ControllerShell
    metadata: MetadataStateMachine
    publisher: MetadataPublisher
    listener: Listener

    def session_config(self, **changes: Any) -> BrokerSessionConfig:
        fields = {
            "cluster_id": CLUSTER,
            "broker_id": ONE,
            "directory_id": self.directory.meta.directory_id,
            "grpc_address": "127.0.0.1:1",
            "heartbeat_interval_ms": 50,
            "session_timeout_ms": AMPLE_MS,
        }
        return BrokerSessionConfig(**{**fields, **changes})

    @asynccontextmanager
    async def session(self, **changes: Any) -> AsyncIterator[BrokerSession]:
        """Start a broker session of this node and wait until it is unfenced."""
        config = self.session_config(**changes)
        session = BrokerSession(
            self.runtime,
            config=config,
            publisher=self.publisher,
            controllers=ControllerLocator.fixed({ONE: self.listener.address}),
        )
        task = self.scope.spawn(session.run(), name="session")
        await session.unfenced.wait()
        try:
            yield session
        finally:
            session.close()
            await task

    async def stream(self, node: int, incarnation: bytes) -> SessionStream:
        """Open a broker stream by hand and register."""
        channel = self.runtime.network.channel(self.listener.address)
        stream = await channel.stream(CONTROLLER_BROKER_SESSION, timeout_ms=0)
        registration = pb.BrokerRegistration(
            cluster_id=CLUSTER,
            broker_id=node,
            incarnation_id=incarnation * 16,
            directory_id=b"d" * 16,
            grpc_address="127.0.0.1:2",
        )
        await stream.send(pb.BrokerSessionRequest(registration=registration))
        return stream

    async def begun(self) -> None:
        """Wait until a metadata transaction is open."""
        async with asyncio.timeout(AMPLE_S):
            while self.metadata.open_transaction is None:  # noqa: ASYNC110 (there is no event)
                await asyncio.sleep(0.001)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the image fulfils the condition."""
        moved = asyncio.Event()
        self.publisher.on_applied(lambda _: moved.set())
        async with asyncio.timeout(AMPLE_S):
            while not condition():
                moved.clear()
                await moved.wait()

    def is_fenced(self, node: int) -> bool:
        broker = self.publisher.image.broker(node)
        return broker is not None and broker.fenced


@asynccontextmanager
async def started(
    runtime: Runtime,
    path: str,
    config: ControllerConfig | None = None,
    *,
    uncommitted_bytes_max: int = 1 << 24,
) -> AsyncIterator[Stack]:
    if not runtime.files.exists(f"{path}/meta.properties"):
        await DataDirectory.format(runtime, path, cluster_id=CLUSTER, node_id=ONE)
    async with runtime.tasks.scope("node") as scope:
        directory = await DataDirectory.open(runtime, scope, path)
        metadata = MetadataStateMachine()
        publisher = MetadataPublisher(metadata)
        controller = ControllerShell(
            runtime,
            cluster_id=CLUSTER,
            metadata=metadata,
            config=config or PATIENT,
        )
        raft = await RaftNode.open(
            runtime,
            scope,
            directory,
            cluster_id=CLUSTER,
            config=RaftConfig(
                node_id=ONE,
                directory_id=directory.meta.directory_id,
                uncommitted_bytes_max=uncommitted_bytes_max,
            ),
            state_machine=metadata,
        )
        controller.attach(raft)
        publishing = scope.spawn(publisher.run(), name="publisher")
        await raft.start()
        watching = scope.spawn(controller.run(), name="controller")
        listener = await runtime.network.serve("127.0.0.1:0", controller.handlers())
        try:
            yield Stack(runtime, scope, directory, raft, controller, metadata, publisher, listener)
        finally:
            await listener.close(1000)
            controller.close()
            await raft.close()
            publisher.close()
            await asyncio.gather(publishing, watching)
            await directory.close()


def create(name: str, topic_id: bytes = b"", partitions: int = 1) -> CreateTopic:
    return CreateTopic(name=name, topic_id=TopicId(topic_id), partitions=partitions)
