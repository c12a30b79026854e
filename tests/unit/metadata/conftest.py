"""Both runtimes, and a cluster of commands that decides and replays without a log."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from quorumlog import simulation
from quorumlog.ids import DirectoryId, NodeId, Offset, TopicId
from quorumlog.metadata import (
    EMPTY_IMAGE,
    BrokerStopping,
    Command,
    ControllerConfig,
    CreateTopic,
    Decision,
    FenceBroker,
    MetadataImage,
    PartitionImage,
    RegisterBroker,
    TopicImage,
    UnfenceBroker,
    decide,
    replay_batch,
)
from quorumlog.metadata.decision import RECORDS_A_STEP
from quorumlog.proto.metadata_records_pb2 import MetadataRecord
from quorumlog.runtime import Runtime, real


@dataclass
class Cluster:
    """Commands in, images out; offsets as the log would give them."""

    image: MetadataImage = EMPTY_IMAGE
    config: ControllerConfig = field(default_factory=ControllerConfig)

    def do(self, command: Command) -> Decision:
        """A long decision comes back as one, all its slices together."""
        decision = decide(self.image, command, self.config)
        if isinstance(decision, Decision):
            self.replay(decision.records)
            return decision
        records = []
        for part in decision.slices:
            assert len(part) <= RECORDS_A_STEP
            self.replay(part)
            records.extend(part)
        reply, brokers = decision.finish(self.image)
        return Decision(records=tuple(records), reply=reply, brokers=brokers)

    def replay(self, records: tuple[MetadataRecord, ...]) -> None:
        base_offset = self.image.offset + 1
        self.image = replay_batch(self.image, records, base_offset=base_offset, epoch=1)

    def register(
        self,
        node: int,
        incarnation: int = 0,
        *,
        boot: str = "boot",
        clean: bool = False,
        disk: int = 0,
    ) -> Decision:
        """The same boot: a process crash. Another one: a power cut, unless `clean`. Another disk:
        everything is lost."""
        return self.do(
            RegisterBroker(
                broker_id=NodeId(node),
                incarnation_id=bytes([node, incarnation]) * 8,
                directory_id=DirectoryId(bytes([node, disk]) * 8),
                grpc_address=f"localhost:{9000 + node}",
                boot_id=boot,
                clean_start=clean,
            )
        )

    def start(self, *nodes: int) -> None:
        for node in nodes:
            self.register(node)
            self.unfence(node)

    def unfence(self, node: int) -> Decision:
        return self.do(UnfenceBroker(broker_id=NodeId(node), broker_epoch=self.epoch(node)))

    def fence(self, node: int) -> Decision:
        return self.do(FenceBroker(broker_id=NodeId(node), broker_epoch=self.epoch(node)))

    def stop(self, node: int) -> Decision:
        return self.do(BrokerStopping(broker_id=NodeId(node), broker_epoch=self.epoch(node)))

    def epoch(self, node: int) -> Offset:
        return self.image.brokers[NodeId(node)].epoch

    def create(self, name: str, **fields: object) -> Decision:
        topic_id = TopicId((name.encode() * 16)[:16])
        command = CreateTopic(**{"name": name, "topic_id": topic_id, **fields})  # type: ignore[arg-type]
        return self.do(command)

    def topic(self, name: str) -> TopicImage:
        topic = self.image.topic(name)
        assert topic is not None
        return topic

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        return self.topic(name).partitions[index]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


Main = Callable[[Runtime, str], Coroutine[Any, Any, Any]]


@pytest.fixture(params=["real", "simulated"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Main], Any]:
    """Run `main(runtime, data_dir)` on either runtime."""
    if request.param == "real":
        return lambda main: real.run(lambda runtime: main(runtime, str(tmp_path / "data")))
    return lambda main: simulation.run(lambda runtime: main(runtime, "/data"))
