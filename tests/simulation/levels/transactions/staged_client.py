"""Drivers and tasks of staged commits: the calls to any broker, and the records of the attempts.

The brokers forward the calls to the coordinator of a name. Every call may be repeated; requests may
arrive late, or once more. Records go to the leaders in Kafka's protocol, with the name as
transactional id.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from quorumlog.clients.retry import is_retriable
from quorumlog.errors import FencedWrite, NumberTooOld, QuorumlogError, StageLost
from quorumlog.ids import ProducerIdentity
from quorumlog.proto import staged_commits_pb2 as pb
from quorumlog.proto import transactions_pb2
from quorumlog.records.compression import Codec
from quorumlog.runtime import Channel, Method, Runtime
from quorumlog.services import (
    STAGED_COMMITS_ABORT,
    STAGED_COMMITS_BEGIN,
    STAGED_COMMITS_COMMIT,
    STAGED_COMMITS_KEEP_ALIVE,
    STAGED_COMMITS_OPEN_WRITE,
    STAGED_COMMITS_SEAL,
)
from quorumlog.testing.checkers import Place, Transaction

from ..kafka.client import KafkaClient
from . import calls
from .calls import Generation, Interference, TransactionCalls
from .producer import Observations
from .staged_history import BatchKey, StagedBatch, StagedHistory

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

RETRY_S: Final = 0.15
STAGE_TIMEOUT_MS: Final = 120_000  # the shortest one


class AttemptFailed(Exception):
    """A task attempt ends: a batch of its records was refused, or has no known result."""


@dataclass(slots=True, kw_only=True)
class StagedClient:
    """The connections of one process, and the shared histories."""

    runtime: Runtime
    name: str  # of the process
    bootstrap: Sequence[str]  # gRPC
    kafka_bootstrap: Sequence[str]
    observed: Observations
    history: StagedHistory
    timeout_ms: int  # of a request
    interference: Interference | None = None
    topics: Sequence[str] = ()
    _channels: dict[str, Channel] = field(default_factory=dict)
    _late: set["asyncio.Task[None]"] = field(default_factory=set)
    _next: int = 0
    _kafka: KafkaClient | None = None
    _calls: TransactionCalls | None = None

    async def close(self) -> None:
        """Close every connection; late requests still arrive."""
        if self._calls is not None:
            self._calls.close()
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    # --- drivers -------------------------------------------------------------------------------

    async def open_write(self) -> int:
        """Return a write id, with retries."""
        answer = await self.ask(STAGED_COMMITS_OPEN_WRITE, pb.OpenWriteRequest())
        return answer.write_id

    async def commit(
        self, key: BatchKey, write_id: int, winners: Mapping[int, "StagedAttempt"], *, wait_ms: int
    ) -> StagedBatch:
        """Commit a batch; repeat it for a time. Raises FencedWrite, StageLost and NumberTooOld, and
        another QuorumlogError without a result."""
        named = frozenset(attempt.transaction.name for attempt in winners.values())
        self.history.request_commit(key, write_id, named, at=self.observed.now_ns())
        request = pb.CommitStageRequest(
            name=key[0],
            number=key[1],
            write_id=write_id,
            attempts=[
                pb.CommittedAttempt(task=task, producer=_message(attempt.producer))
                for task, attempt in winners.items()
            ],
        )
        answer = await self.ask(STAGED_COMMITS_COMMIT, request, wait_ms=wait_ms)
        return self._answered(key, answer.committed)

    async def abort(
        self,
        key: BatchKey,
        write_id: int,
        producer: ProducerIdentity | None = None,
        *,
        wait_ms: int | None = None,
    ) -> StagedBatch | None:
        """Abort a write, or one attempt of it; return the batch if the number is committed."""
        request = pb.AbortStageRequest(name=key[0], number=key[1], write_id=write_id)
        if producer is not None:
            request.producer.CopyFrom(_message(producer))
        answer = await self.ask(STAGED_COMMITS_ABORT, request, wait_ms=wait_ms)
        if answer.HasField("committed"):
            return self._answered(key, answer.committed)
        if producer is None:
            self.history.refuse(key, write_id)
        return None

    # --- tasks ---------------------------------------------------------------------------------

    async def begin(
        self, key: BatchKey, write_id: int, task: int, attempt: int
    ) -> "StagedAttempt | StagedBatch":
        """Begin a task attempt, or return the batch if the number is committed."""
        request = pb.BeginAttemptRequest(
            name=key[0],
            number=key[1],
            write_id=write_id,
            task=task,
            attempt=attempt,
            stage_timeout_ms=STAGE_TIMEOUT_MS,
        )
        answer = await self.ask(STAGED_COMMITS_BEGIN, request)
        if answer.WhichOneof("outcome") == "committed":
            return self._answered(key, answer.committed)
        producer = ProducerIdentity(answer.producer.producer_id, answer.producer.producer_epoch)
        self.observed.generations[producer.producer_id] = Generation.NEW
        at = self.observed.now_ns()
        transaction = self.history.begin(key, write_id, task, producer, at=at)
        return StagedAttempt(self, key, write_id, task, producer, transaction)

    async def produce(
        self, attempt: "StagedAttempt", place: Place, values: Sequence[bytes], sequence: int
    ) -> tuple[int, int]:
        """Send a batch to the leader; return the error code and the first offset."""
        found = await self._producing()
        return await found.produce(
            place,
            [(None, value) for value in values],
            transactional_id=attempt.key[0],
            producer=attempt.producer,
            sequence=sequence,
        )

    async def look(self) -> None:
        """Wait a little, and refresh the leaders."""
        await asyncio.sleep(RETRY_S)
        await self._producing()
        assert self._kafka is not None
        try:
            await self._kafka.look(self.topics)
        except QuorumlogError as error:
            self.observed.errors[type(error).__name__] += 1

    # --- calls ---------------------------------------------------------------------------------

    async def ask(self, method: Method[Q, R], request: Q, *, wait_ms: int | None = None) -> R:
        """Call one broker after the other until one answers, or refuses for good."""
        clock = self.runtime.clock
        end_ms = clock.now_ms() + (1 << 40 if wait_ms is None else wait_ms)
        while True:
            try:
                return await self._ask_once(method, request)
            except QuorumlogError as error:
                self.observed.errors[f"{method.path.rpartition('/')[2]} {error.name}"] += 1
                if not is_retriable(error) or clock.now_ms() >= end_ms:
                    raise
            self._next += 1
            await asyncio.sleep(RETRY_S)

    async def _ask_once(self, method: Method[Q, R], request: Q) -> R:
        address = self.bootstrap[self._next % len(self.bootstrap)]
        self._interfere(address, method, request)
        return await self._channel(address).call(method, request, timeout_ms=self.timeout_ms)

    def _channel(self, address: str) -> Channel:
        found = self._channels.get(address)
        if found is None:
            found = self._channels[address] = self.runtime.network.channel(address)
        return found

    def _interfere(self, address: str, method: Method[Any, Any], request: Any) -> None:
        """Send a copy of the request later, by a drawn chance."""
        found = self.interference
        if found is None or found.entropy.uniform(0, 1) >= found.delayed + found.repeated:
            return
        low, high = found.delay_ms
        delay_s = (low + found.entropy.below(high - low)) / 1000
        found.counts["staged copies"] += 1
        sending = self._send_late(address, method, request, delay_s)
        task = asyncio.get_running_loop().create_task(sending)
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _send_late(
        self, address: str, method: Method[Any, Any], request: Any, delay_s: float
    ) -> None:
        await asyncio.sleep(delay_s)
        channel = self.runtime.network.channel(address)
        try:
            await channel.call(method, request, timeout_ms=self.timeout_ms)
        except QuorumlogError as error:
            self.observed.errors[f"late {error.name}"] += 1
        finally:
            await channel.close()

    async def _producing(self) -> TransactionCalls:
        if self._calls is None:
            self._kafka = KafkaClient(
                self.runtime,
                self.kafka_bootstrap,
                name=self.name,
                timeout_ms=self.timeout_ms,
                codec=Codec.NONE,
            )
            self._calls = TransactionCalls(
                self.runtime,
                self._kafka,
                self.name,
                Generation.NEW,
                timeout_ms=self.timeout_ms,
                interference=self.interference,
            )
            await self.look()
        return self._calls

    def _answered(self, key: BatchKey, committed: pb.CommittedBatch) -> StagedBatch:
        batch = StagedBatch(
            committed.number, committed.write_id, committed.records, committed.visible
        )
        self.history.answer(key, batch, at=self.observed.now_ns())
        return batch


@dataclass(slots=True)
class StagedAttempt:
    """A task attempt, as its executor has it."""

    client: StagedClient
    key: BatchKey
    write_id: int
    task: int
    producer: ProducerIdentity
    transaction: Transaction
    counts: dict[Place, int] = field(default_factory=dict)  # acknowledged records
    is_sealed: bool = False

    async def write(self, place: Place, values: Sequence[bytes], *, wait_ms: int = 20_000) -> None:
        """Append records, with retries of the same batch; raises AttemptFailed."""
        observed, clock = self.client.observed, self.client.runtime.clock
        for value in values:
            observed.history.send(self.transaction, place, value, at=observed.now_ns())
        sequence, end_ms = self.counts.get(place, 0), clock.now_ms() + wait_ms
        while clock.now_ms() < end_ms:
            try:
                code, offset = await self.client.produce(self, place, values, sequence)
            except QuorumlogError as error:
                observed.errors[type(error).__name__] += 1
                await self.client.look()
                continue
            if code in (calls.NONE, calls.DUPLICATE_SEQUENCE):
                self.counts[place] = sequence + len(values)
                for number, value in enumerate(values):
                    known = -1 if code else offset + number
                    observed.history.records.acknowledge(value, known, at=observed.now_ns())
                return
            observed.errors[f"staged produce {code}"] += 1
            if code not in calls.RETRIABLE:
                raise AttemptFailed(f"{place}: error {code}")
            await self.client.look()
        raise AttemptFailed(f"{place}: no answer")

    async def keep_alive(self) -> None:
        """Extend the deadline; raises StageLost."""
        request = pb.KeepAttemptAliveRequest(name=self.key[0], producer=_message(self.producer))
        await self.client.ask(STAGED_COMMITS_KEEP_ALIVE, request)

    async def seal(self) -> None:
        """Seal the attempt; raises StageLost."""
        request = pb.SealAttemptRequest(
            name=self.key[0],
            producer=_message(self.producer),
            partitions=[
                pb.SealedPartition(
                    topic=topic, partition=index, records=count, last_sequence=count - 1
                )
                for (topic, index), count in self.counts.items()
            ],
        )
        await self.client.ask(STAGED_COMMITS_SEAL, request)
        self.is_sealed = True

    async def abort(self) -> None:
        """Abort this attempt alone."""
        await self.client.abort(self.key, self.write_id, self.producer)


REFUSED: Final = (FencedWrite, StageLost, NumberTooOld)
"""The errors that end a write, or a task of it."""


def _message(producer: ProducerIdentity) -> transactions_pb2.ProducerIdentity:
    return transactions_pb2.ProducerIdentity(
        producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
    )
