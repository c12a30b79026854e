"""Topics that change while a backup reads them."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.kit.waits import AMPLE_MS, run_patiently
from tests.unit.backup.samples import BACKUP, CLUSTER, manifest, topic

from quorumlog.backup.capture import Capture, CaptureOptions, CaptureReport
from quorumlog.backup.catalog import load_backup, newest_states
from quorumlog.backup.manifest import (
    DATA,
    BackupTopic,
    Manifest,
    encode_manifest,
    manifest_path,
)
from quorumlog.backup.objectstore import ObjectStore, open_store
from quorumlog.clients.blocking import Log
from quorumlog.clients.config import ClientConfig, parse_bootstrap
from quorumlog.clients.connection import Connection
from quorumlog.runtime import Runtime
from quorumlog.testing import Broker

pytestmark = pytest.mark.slow

pytest.importorskip("obstore")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker that the tests of this file share."""
    with Broker() as broker:
        yield broker


class InterruptedStore(ObjectStore):
    """A store that runs a function before it stores the first data object."""

    def __init__(self, store: ObjectStore, before: Callable[[], None]) -> None:
        super().__init__(store._runtime, store._store, store.url, store._folder)
        self._before: Callable[[], None] | None = before

    async def put(self, path: str, content: bytes) -> None:
        """Store an object."""
        if path.startswith(DATA) and self._before is not None:
            before, self._before = self._before, None
            before()
        await super().put(path, content)


def capture(
    broker: Broker, folder: Path, pattern: str, during: Callable[[], None]
) -> tuple[CaptureReport, Manifest]:
    """Make a backup. Call `during` when the first object is stored."""

    async def main(runtime: Runtime) -> tuple[CaptureReport, Manifest]:
        store = open_store(runtime, str(folder), creates=True)
        config = ClientConfig(connect_timeout_ms=AMPLE_MS)
        connection = Connection(runtime, parse_bootstrap(broker.grpc), config)
        await connection.open()
        try:
            options = CaptureOptions(pattern=re.compile(pattern))
            held = InterruptedStore(store, during)
            report = await Capture(runtime, connection, held, options).run()
            return report, await load_backup(store, report.backup)
        finally:
            await connection.close()

    return run_patiently(main)


def fill(log: Log, topic: str, partitions: int) -> None:
    """Write 24 MB to each partition: more than one object."""
    log.admin.create_topic(topic, partitions=partitions, configs={"segment.bytes": 1 << 20})
    with log.producer(compression="none") as producer:
        for _ in range(24):
            for partition in range(partitions):
                producer.send_many(topic, [bytes(1 << 16)] * 16, partition=partition)
            producer.flush()


@pytest.mark.long
def test_a_topic_that_is_deleted_is_left_out_and_reported(broker: Broker, tmp_path: Path) -> None:
    with broker.connect() as log:
        fill(log, "deleted", 1)

        def delete() -> None:
            with broker.connect() as other:
                other.admin.delete_topic("deleted")
                other.admin.create_topic("deleted", partitions=1)

        report, found = capture(broker, tmp_path, "deleted", delete)
    assert found.topics == []
    assert len(report.problems) == 1
    assert report.problems[0].startswith("deleted is not in the backup: it was deleted")
    assert found.problems == report.problems


def test_partitions_that_are_added_are_reported(broker: Broker, tmp_path: Path) -> None:
    with broker.connect() as log:
        fill(log, "grown", 1)

        def grow() -> None:
            with broker.connect() as other:
                other.admin.create_partitions("grown", 3)

        report, found = capture(broker, tmp_path, "grown", grow)
    assert [len(each.partitions) for each in found.topics] == [1]
    assert report.problems == ["grown has 3 partitions now; the backup has the 1 of its start"]


def test_records_that_expire_are_left_out(broker: Broker, tmp_path: Path) -> None:
    with broker.connect() as log:
        fill(log, "expired", 1)
        before = log.list_offsets("expired")[0]

        def expire() -> None:
            with broker.connect() as other:
                other.admin.delete_records("expired", {0: before - 10})
                with other.producer() as producer:
                    producer.send("expired", b"later")

        report, found = capture(broker, tmp_path, "expired", expire)
        (partition,) = found.topics[0].partitions
        assert report.problems == []
        assert (partition.start, partition.end) == (before - 10, before)
        assert sum(each.records for each in partition.ranges) == 16  # a whole batch


def test_a_backup_of_other_topics_does_not_hide_earlier_states(tmp_path: Path) -> None:
    """The earlier state records that the topic was compacted."""
    earlier, later = BACKUP, BACKUP.replace("2026", "2027")
    orders, users = topic("orders", 1), topic("users", 2)
    stored = (manifest(orders, users), replace(manifest(users), backup=later))

    async def main(runtime: Runtime) -> dict[str, BackupTopic]:
        store = open_store(runtime, str(tmp_path))
        for each in stored:
            await store.put(manifest_path(each.backup), encode_manifest(each))
        wanted = {orders.id, "f" * 32}
        return await newest_states(store, CLUSTER, wanted, lambda _: None)

    assert earlier < later
    assert run_patiently(main) == {orders.id: orders}
