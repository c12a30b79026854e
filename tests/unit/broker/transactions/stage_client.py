"""Drivers and tasks of staged commits over gRPC, in a cluster of simulated nodes."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message
from tests.kit.replica_cluster import Cluster

from quorumlog.errors import QuorumlogError
from quorumlog.proto import groups_pb2, log_pb2, transactions_pb2
from quorumlog.proto import staged_commits_pb2 as pb
from quorumlog.records import decode_all
from quorumlog.runtime import Method, Runtime
from quorumlog.services import (
    LOG_FETCH,
    LOG_PUBLISH,
    STAGED_COMMITS_ABORT,
    STAGED_COMMITS_ADD_PARTITIONS,
    STAGED_COMMITS_BEGIN,
    STAGED_COMMITS_COMMIT,
    STAGED_COMMITS_DESCRIBE,
    STAGED_COMMITS_LIST,
    STAGED_COMMITS_OPEN_WRITE,
    STAGED_COMMITS_SEAL,
)

from .coordinated import led

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

NAME = "spark/query/"
CALL_MS = 20_000


class StageClient:
    """Calls of one name, of any broker unless one is given."""

    def __init__(self, nodes: Cluster) -> None:
        self.nodes = nodes
        self._calls = 0

    def ask(
        self, method: Method[Q, R], request: Q, *, via: int = 0, timeout_ms: int = CALL_MS
    ) -> R:
        """Call a broker once; raises its error."""

        async def main(runtime: Runtime) -> None:
            channel = runtime.network.channel(f"n{via or min(self.nodes.nodes)}:9094")
            try:
                found.append(await channel.call(method, request, timeout_ms=timeout_ms))
            finally:
                await channel.close()

        found: list[R] = []
        self._calls += 1
        task = self.nodes.world.node(f"caller{self._calls}").spawn(main)
        self.nodes.world.run_until(task, virtual_ms=timeout_ms + 10_000)
        task.result()
        return found[0]

    def call(self, method: Method[Q, R], request: Q, **options: Any) -> R:
        """Call brokers until the error is not retriable."""
        for _ in range(100):
            try:
                return self.ask(method, request, **options)
            except QuorumlogError as error:
                if not error.retriable:
                    raise
            self.nodes.world.run_for(200)
        return self.ask(method, request, **options)

    # --- drivers and tasks ------------------------------------------------------------------------

    def open_write(self, via: int = 0) -> int:
        answer = self.call(STAGED_COMMITS_OPEN_WRITE, pb.OpenWriteRequest(), via=via)
        return answer.write_id

    def begin(
        self,
        number: int,
        write_id: int,
        *,
        task: int = 0,
        attempt: int | None = None,
        name: str = NAME,
        via: int = 0,
    ) -> pb.BeginAttemptResponse:
        request = pb.BeginAttemptRequest(
            name=name,
            number=number,
            write_id=write_id,
            task=task,
            attempt=task if attempt is None else attempt,
        )
        return self.call(STAGED_COMMITS_BEGIN, request, via=via)

    def begun(
        self, number: int, write_id: int, **options: Any
    ) -> transactions_pb2.ProducerIdentity:
        answer = self.begin(number, write_id, **options)
        assert answer.WhichOneof("outcome") == "producer"
        return answer.producer

    def add(
        self,
        producer: transactions_pb2.ProducerIdentity,
        *partitions: tuple[str, int],
        name: str = NAME,
    ) -> list[str]:
        request = transactions_pb2.AddPartitionsRequest(
            transactional_id=name,
            producer=producer,
            partitions=[groups_pb2.GroupPartition(topic=t, partition=p) for t, p in partitions],
        )
        answer = self.call(STAGED_COMMITS_ADD_PARTITIONS, request)
        return [error.name for error in answer.errors]

    def publish(
        self,
        producer: transactions_pb2.ProducerIdentity,
        topic: str,
        sequence: int,
        *values: bytes,
        partition: int = 0,
        key: bytes | None = None,
        name: str = NAME,
    ) -> int:
        """Append at the leader; return the first offset."""
        request = log_pb2.PublishRequest(
            topic=topic,
            partition=partition,
            records=[log_pb2.Record(key=key, value=value) for value in values],
            producer=producer,
            base_sequence=sequence,
            transactional_id=name,
        )
        self.nodes.until(lambda: led(self.nodes, topic, partition) > 0)
        leader = led(self.nodes, topic, partition)
        return self.call(LOG_PUBLISH, request, via=leader).base_offset

    def seal(
        self,
        producer: transactions_pb2.ProducerIdentity,
        records: Mapping[tuple[str, int], int],
        *,
        name: str = NAME,
    ) -> None:
        request = pb.SealAttemptRequest(
            name=name,
            producer=producer,
            partitions=[
                pb.SealedPartition(
                    topic=topic, partition=partition, records=count, last_sequence=count - 1
                )
                for (topic, partition), count in records.items()
            ],
        )
        self.call(STAGED_COMMITS_SEAL, request)

    def sealed(
        self,
        number: int,
        write_id: int,
        topic: str,
        *values: bytes,
        task: int = 0,
        attempt: int | None = None,
        name: str = NAME,
    ) -> transactions_pb2.ProducerIdentity:
        """A task attempt with records in one partition."""
        producer = self.begun(number, write_id, task=task, attempt=attempt, name=name)
        self.publish(producer, topic, 0, *values, name=name)
        self.seal(producer, {(topic, 0): len(values)}, name=name)
        return producer

    def commit(
        self,
        number: int,
        write_id: int,
        producers: Sequence[transactions_pb2.ProducerIdentity],
        *,
        name: str = NAME,
        via: int = 0,
        timeout_ms: int = CALL_MS,
    ) -> pb.CommittedBatch:
        """Commit one attempt of each task, by ascending task."""
        request = pb.CommitStageRequest(
            name=name,
            number=number,
            write_id=write_id,
            attempts=[
                pb.CommittedAttempt(task=task, producer=each) for task, each in enumerate(producers)
            ],
        )
        answer = self.call(STAGED_COMMITS_COMMIT, request, via=via, timeout_ms=timeout_ms)
        return answer.committed

    def abort(self, number: int, write_id: int, *, name: str = NAME) -> pb.AbortStageResponse:
        request = pb.AbortStageRequest(name=name, number=number, write_id=write_id)
        return self.call(STAGED_COMMITS_ABORT, request)

    # --- operators and readers --------------------------------------------------------------------

    def names(self) -> list[pb.StageListing]:
        answer = self.call(STAGED_COMMITS_LIST, pb.ListStagesRequest())
        assert not answer.errors
        return list(answer.stages)

    def describe(self, name: str = NAME, *, via: int = 0) -> pb.DescribeStageResponse:
        return self.call(STAGED_COMMITS_DESCRIBE, pb.DescribeStageRequest(name=name), via=via)

    def committed(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """The values that a read_committed reader sees."""
        request = log_pb2.FetchRequest(isolation=log_pb2.ISOLATION_READ_COMMITTED)
        request.partitions.add(topic=topic, partition=partition, offset=0)
        leader = led(self.nodes, topic, partition)
        (result,) = self.call(LOG_FETCH, request, via=leader).results
        assert not result.HasField("error"), result.error
        return [record.value for record in decode_all(result.records)]
