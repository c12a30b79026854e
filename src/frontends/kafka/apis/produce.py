"""Produce: append record batches.

Records are views of the request's frame until the log has them. Each partition has its own result,
and all of them are queued in their logs before the next request begins. Versions 0 to 2 are
advertised and not supported: librdkafka requires them in ApiVersions (KAFKA-18659).
"""

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final

from ....broker import Acks
from ....broker.shell.produce import (
    Appended,
    AppendOutcome,
    DelayedProduce,
    ReplicaRun,
)
from ....broker.shell.replica import Replica
from ....broker.verification import TransactionalWrite
from ....errors import (
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTimestamp,
    QuorumlogError,
    UnknownTopicId,
    UnsupportedForMessageFormat,
)
from ....runtime import Buffer
from ..api import Answer, BrokerContext, Call, Done, FileRange, KafkaApi, Part, PreparedResponse
from ..codecs.leaders import NodeEndpoint
from ..codecs.produce import (
    FLEXIBLE,
    ProducePart,
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
    RepeatReader,
    encode_produce,
    encode_repeats,
    read_plain,
    read_produce,
)
from ..endpoints import current_leader, leader_endpoints
from ..error_codes import produce_code
from ..frames import SIZE

WAITS_FOR_OTHERS: Final = -1
_ACKS: Final = {WAITS_FOR_OTHERS: Acks.ALL, 0: Acks.NONE, 1: Acks.LEADER}
MAGIC: Final = 2  # of record batches
_MAGIC_AT: Final = 16  # in a batch, and in a message of the old formats
_ADDS: Final = 12  # the first version that adds the partition to the transaction (KIP-890)
_KNOWS_ABORTABLE: Final = 11  # the first version with TRANSACTION_ABORTABLE
TIMEOUT_MS_MAX: Final = 600_000
DISK_MS_MAX: Final = 60_000  # timeout of requests that do not wait for other replicas


class ProduceResponse(PreparedResponse):
    """A response with the results of all partitions."""

    __slots__ = ("_base_offsets", "_endpoints", "_has_errors", "_topics", "_version")

    def __init__(
        self,
        version: int,
        topics: Sequence[tuple[ProduceTopic, Sequence[ProduceResult]]],
        endpoints: Sequence[NodeEndpoint],
        *,
        has_errors: bool,
        base_offsets: Sequence[int] = (),
    ) -> None:
        """`base_offsets`: the results of the request's repeats, which share its errors."""
        self._base_offsets = base_offsets
        self._version = version
        self._topics = topics
        self._endpoints = endpoints
        self._has_errors = has_errors

    @property
    def error_codes(self) -> Sequence[int]:
        """The error codes of partitions."""
        if not self._has_errors:
            return ()
        return [one.error_code for _, results in self._topics for one in results if one.error_code]

    def parts(self, throttle_ms: int) -> Sequence[Buffer]:
        """Return the body."""
        return (
            encode_produce(
                self._version, self._topics, throttle_ms=throttle_ms, endpoints=self._endpoints
            ),
        )

    def repeated(self, body: Part) -> Sequence[Buffer]:
        """Return the bodies for the repeats."""
        assert not isinstance(body, FileRange), "the body is a file range"
        if self._has_errors:
            return [body] * len(self._base_offsets)
        return encode_repeats(body, self._topics[0][0].title, self._base_offsets)


class _InFlight:
    """A request between its appends and its response, with its repeats."""

    __slots__ = ("_broker", "_call", "_done", "_left", "_outcomes", "_step", "repeats")

    def __init__(self, broker: BrokerContext, call: Call, done: Done) -> None:
        self._broker = broker
        self._call = call
        self._done = done
        self._outcomes: list[DelayedProduce | AppendOutcome] = []  # of the partitions, in order
        self._left = 0  # partitions without an outcome
        self._step = 0  # of its deadline
        self.repeats: list[int] = []  # base offsets of the batches of its repeats

    def begin(self) -> None:
        """Queue every partition's append, and answer at once if all have completed."""
        broker, request, outcomes = self._broker, self._call.body, self._outcomes
        broker.writer.figures.waiting += 1
        transaction = _transaction(self._call)
        for topic in request.topics:
            for part in topic.parts:
                outcomes.append(_place(broker, request, topic, part, transaction))
        for at, append in enumerate(outcomes):
            if not isinstance(append, DelayedProduce):
                continue
            outcome = append.outcome()
            if outcome is None:
                self._left += 1
                append.call_when_done(partial(self._completed, at))
            else:
                outcomes[at] = outcome
        self._wait()

    def resume(self, outcome: DelayedProduce | AppendOutcome) -> None:
        """Continue a request with one partition after its append."""
        known = outcome.outcome() if isinstance(outcome, DelayedProduce) else outcome
        self._outcomes.append(outcome if known is None else known)
        if isinstance(outcome, DelayedProduce) and known is None:
            self._left = 1
            outcome.call_when_done(partial(self._completed, 0))
        self._wait()

    def _wait(self) -> None:
        """Answer, after the outcomes that are missing."""
        broker, request = self._broker, self._call.body
        if not self._left:
            self._answer()
            return
        timeout_ms = DISK_MS_MAX
        if request.acks == WAITS_FOR_OTHERS:  # clients set their timeout for this case
            timeout_ms = min(max(request.timeout_ms, 0), TIMEOUT_MS_MAX)
        clock = broker.runtime.clock
        self._step = broker.deadlines.add(self._expire, clock.now_ms() + timeout_ms, clock)

    def _completed(self, at: int, outcome: AppendOutcome) -> None:
        self._outcomes[at] = outcome
        self._left -= 1
        if not self._left:
            self._broker.deadlines.remove(self._expire, self._step)
            self._answer()

    def _expire(self) -> None:
        """Answer at the deadline: pending appends have timed out."""
        self._outcomes = [
            one.expire() if isinstance(one, DelayedProduce) else one for one in self._outcomes
        ]
        self._answer()

    def _answer(self) -> None:
        broker, call = self._broker, self._call
        request: ProduceRequest = call.body
        errors: list[QuorumlogError] = []
        outcomes = iter(self._outcomes)
        topics = [
            (topic, [_result(part, next(outcomes), errors) for part in topic.parts])
            for topic in request.topics
        ]
        self._count(request.acks, len(errors))
        if request.acks != 0:
            endpoints = leader_endpoints(broker, call, errors) if errors else ()
            has_errors = bool(errors)
            self._done(
                ProduceResponse(
                    call.version,
                    topics,
                    endpoints,
                    has_errors=has_errors,
                    base_offsets=self.repeats,
                )
            )
        else:  # no response: an error closes the connection
            self._done(errors[0] if errors else None)

    def _count(self, acks: int, failures: int) -> None:
        """Update metrics."""
        figures = self._broker.writer.figures
        count = 1 + len(self.repeats)
        figures.waiting -= count
        figures.failures += failures * count
        for outcome in self._outcomes:
            if isinstance(outcome, Appended):
                figures.records += outcome.next_offset - outcome.base_offset
        if acks in _ACKS:
            took_ms = self._broker.runtime.clock.now_ms() - self._call.began_ms
            figures.took_ms[_ACKS[acks]].observe(took_ms, count)


class _Added:
    """A request of a run, with its repeats: the batches [base_offset, next_offset) of one log."""

    __slots__ = ("base_offset", "body_size", "length_at", "next_offset", "request", "run")

    def __init__(
        self, request: _InFlight, run: ReplicaRun, base_offset: int, body_size: int, length_at: int
    ) -> None:
        self.request = request
        self.run = run
        self.base_offset = base_offset
        self.next_offset = run.next_offset
        self.body_size = body_size
        self.length_at = length_at  # of the records, in the body


class ProduceRun:
    """Consecutive requests that are stored by one write to each log.

    Requests have one uncompressed batch each, as producers send them by default. The batches are
    written from the connection's read buffer, before it is read again. Most requests of a producer
    repeat the previous one with other records, and take no more than a comparison of their bytes.
    """

    __slots__ = ("_added", "_broker", "_runs", "_wall_ms")

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._wall_ms = broker.runtime.clock.wall_ms()
        self._runs: dict[Replica, ReplicaRun] = {}
        self._added: list[_Added] = []

    def add(self, call: Call, body: memoryview, done: Done) -> bool:
        """Add a request; False if it must be handled alone, and all before it first."""
        request = read_plain(call.version, body)
        acks = None if request is None else _ACKS.get(request.acks)
        if request is None or acks is None:
            return False
        topic = request.topics[0]
        partition, records = topic.parts[0]
        name = _name(self._broker, topic)
        writer = self._broker.writer
        replica = writer.hosted(name, partition, topic.topic_id)
        if replica is None or records is None:
            return False
        run = self._runs.get(replica)
        if run is None:
            run = writer.begin_run(replica, acks)
            if run is None:
                return False
            self._runs[replica] = run
        if run.acks is not acks:
            return False
        base_offset = run.add(records, self._wall_ms)
        if base_offset is None:
            return False
        title = bytes(topic.title)  # the response may follow after the next read
        topic = ProduceTopic(topic.name, topic.topic_id, [ProducePart(partition, None)], title)
        call.body = ProduceRequest(None, request.acks, request.timeout_ms, [topic])
        writer.figures.waiting += 1
        writer.figures.bytes += len(records)
        in_flight = _InFlight(self._broker, call, done)
        self._added.append(_Added(in_flight, run, base_offset, len(body), request.length_at))
        return True

    def repeat(
        self, frame: memoryview, source: memoryview, start: int, end: int, count_max: int
    ) -> tuple[list[int], int]:
        """Add the requests that repeat the one added last; see `RequestRun.repeat`."""
        added = self._added[-1]
        run, base_offsets, wall_ms = added.run, added.request.repeats, self._wall_ms
        reader = RepeatReader(frame, len(frame) - added.body_size + added.length_at)
        frame_bytes_max = self._broker.settings.request_bytes_max
        correlation_ids: list[int] = []
        size = 0
        while len(correlation_ids) < count_max:
            found = reader.read(source, start, end)
            if found is None:
                break
            correlation_id, records, behind = found
            if behind - start - SIZE.size > frame_bytes_max:
                break
            base_offset = run.add(records, wall_ms)
            if base_offset is None:
                break
            correlation_ids.append(correlation_id)
            base_offsets.append(base_offset)
            size += len(records)
            start = behind
        added.next_offset = run.next_offset
        figures = self._broker.writer.figures
        figures.waiting += len(correlation_ids)
        figures.bytes += size
        return correlation_ids, start

    def end(self) -> None:
        """Write all batches; answer the requests that need no other replica's acknowledgement."""
        for run in self._runs.values():
            run.write()
        for added in self._added:
            added.request.resume(added.run.outcome(added.base_offset, added.next_offset))


def begin(broker: BrokerContext, call: Call, done: Done) -> bool:
    """Append every partition's batches, and answer when they are acknowledged according to
    `acks`."""
    _InFlight(broker, call, done).begin()
    return True


def opening(broker: BrokerContext, call: Call) -> Coroutine[Any, Any, None] | None:
    """Return a coroutine that waits until all partitions can be queued at once, or None."""
    request: ProduceRequest = call.body
    waits: list[Coroutine[Any, Any, None]] = []
    for topic in request.topics:
        name = _name(broker, topic) if topic.topic_id else topic.name
        for partition, _ in topic.parts:
            wait = broker.writer.opening(name, partition)
            if wait is not None:
                waits.append(wait)
    return _all(waits) if waits else None


async def _all(waits: Sequence[Coroutine[Any, Any, None]]) -> None:
    try:
        for wait in waits:  # they are opened concurrently
            await wait
    finally:
        for wait in waits:
            wait.close()  # closes a coroutine that was not started before a cancellation


async def produce(broker: BrokerContext, call: Call) -> Answer:
    """Do the same as `begin`, in a task."""
    waits = opening(broker, call)
    if waits is not None:
        await waits
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def done(outcome: Answer | Exception) -> None:
        if isinstance(outcome, Exception):
            answered.set_exception(outcome)
        else:
            answered.set_result(outcome)

    begin(broker, call, done)
    return await answered


def _name(broker: BrokerContext, topic: ProduceTopic) -> str:
    """Return the topic's name, or "" if no topic has its id."""
    if not topic.topic_id:
        return topic.name
    found = broker.image.topic_of_id(topic.topic_id)
    return "" if found is None else found.name


def _transaction(call: Call) -> TransactionalWrite | None:
    """Return the transaction that the request names, None without one."""
    transactional_id = call.body.transactional_id
    if transactional_id is None:
        return None
    return TransactionalWrite(
        transactional_id, call.version >= _ADDS, call.version >= _KNOWS_ABORTABLE
    )


def _place(
    broker: BrokerContext,
    request: ProduceRequest,
    topic: ProduceTopic,
    part: ProducePart,
    transaction: TransactionalWrite | None,
) -> DelayedProduce | QuorumlogError:
    """Queue one partition's batches in its log."""
    partition, records = part
    try:
        acks = _ACKS.get(request.acks)
        if acks is None:
            raise InvalidRequiredAcks(f"acks: {request.acks} is invalid; give -1, 0 or 1")
        if not records:
            raise InvalidRecord("records: no batch for this partition; send one")
        size = len(records)
        if size > _MAGIC_AT and records[_MAGIC_AT] < MAGIC:
            raise UnsupportedForMessageFormat(
                f"records: format {records[_MAGIC_AT]} is not supported; use format {MAGIC}"
            )
        name, topic_id = topic.name, topic.topic_id
        if topic_id:
            name = _name(broker, topic)
            if not name:
                raise UnknownTopicId("topic id: unknown here; look up the topic by name again")
        append = broker.writer.submit_nowait(name, partition, records, acks, topic_id, transaction)
        broker.writer.figures.bytes += size
        return append
    except QuorumlogError as error:
        return error


def _result(
    part: ProducePart, outcome: DelayedProduce | AppendOutcome, errors: list[QuorumlogError]
) -> ProduceResult:
    if isinstance(outcome, Appended):
        return ProduceResult(
            part.partition,
            0,
            outcome.base_offset,
            outcome.log_append_time_ms,
            outcome.log_start_offset,
        )
    assert isinstance(outcome, QuorumlogError), f"partition {part.partition}: {outcome} is pending"
    errors.append(outcome)
    return ProduceResult(
        part.partition,
        produce_code(outcome),
        error_message=str(outcome),
        leader=current_leader(outcome),
        record_errors=outcome.record_errors
        if isinstance(outcome, InvalidRecord | InvalidTimestamp)
        else (),
    )


API: Final = KafkaApi(
    key=0,
    name="Produce",
    low=3,
    high=13,
    flexible=FLEXIBLE,
    handle=produce,
    begin=begin,
    opening=opening,
    read=read_produce,
    advertised_low=0,
    begins_in_order=True,
    run=ProduceRun,
)
