"""Produce: append record batches.

Records are views of the request's frame until the log has them. Each partition has its own result,
and all of them are queued in their logs before the next request begins. Versions 0 to 2 are
advertised and not supported: librdkafka requires them in ApiVersions (KAFKA-18659).
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from ....broker import Acks
from ....broker.shell.produce import (
    NO_APPEND_TIME,
    Appended,
    AppendOutcome,
    DelayedProduce,
)
from ....broker.verification import TransactionalWrite
from ....errors import (
    InvalidRecord,
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidTimestamp,
    QuorumlogError,
    UnknownTopicId,
    UnsupportedForMessageFormat,
)
from ....ids import TopicId
from ....metadata.acls import AclOperation, AclResourceType
from ....native import ProduceRun, RunTail
from ....records.batch import has_more_batches
from ....runtime import Buffer
from ..api import (
    Answer,
    BrokerContext,
    Call,
    Client,
    Done,
    EncodedResponses,
    KafkaApi,
    PreparedResponse,
)
from ..broker_context import PLACED_A_STEP
from ..codecs.leaders import NodeEndpoint
from ..codecs.produce import (
    FLEXIBLE,
    ProducePart,
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
    encode_produce,
    read_produce,
)
from ..endpoints import current_leader, leader_endpoints
from ..error_codes import produce_code
from ..frames import RequestFrameReader
from ..item_results import NAMED_TWICE, repeated
from ..request import answer_head

WAITS_FOR_OTHERS: Final = -1
_ACKS: Final = {WAITS_FOR_OTHERS: Acks.ALL, 0: Acks.NONE, 1: Acks.LEADER}
MAGIC: Final = 2  # of record batches
_MAGIC_AT: Final = 16  # in a batch, and in a message of the old formats
_ADDS: Final = 12  # the first version that adds the partition to the transaction (KIP-890)
_KNOWS_ABORTABLE: Final = 11  # the first version with TRANSACTION_ABORTABLE
INFLATED_BYTES_MAX: Final = 512 << 10  # of one run, on the event loop: a millisecond or two
TIMEOUT_MS_MAX: Final = 600_000
DISK_MS_MAX: Final = 60_000  # timeout of requests that do not wait for other replicas
_WRITE_TOPIC: Final = (AclOperation.WRITE, AclResourceType.TOPIC)


class ProduceResponse(PreparedResponse):
    """A response with the results of all partitions."""

    __slots__ = ("_endpoints", "_has_errors", "_topics", "_version")

    def __init__(
        self,
        version: int,
        topics: Sequence[tuple[ProduceTopic, Sequence[ProduceResult]]],
        endpoints: Sequence[NodeEndpoint],
        *,
        has_errors: bool,
    ) -> None:
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


class _InFlight:
    """A request between its appends and its response."""

    __slots__ = ("_broker", "_call", "_done", "_left", "_outcomes", "_step")

    def __init__(self, broker: BrokerContext, call: Call, done: Done) -> None:
        self._broker = broker
        self._call = call
        self._done = done
        self._outcomes: list[DelayedProduce | AppendOutcome] = []  # of the partitions, in order
        self._left = 0  # partitions without an outcome
        self._step = 0  # of its deadline

    def begin(self) -> None:
        """Queue the appends of the partitions that are left, and answer at once if all have
        completed."""
        broker, call = self._broker, self._call
        broker.writer.figures.waiting += 1
        for _ in _place_rest(broker, call):
            pass
        outcomes = self._outcomes = call.body.outcomes
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

    def _wait(self) -> None:
        """Answer, after the outcomes that are missing."""
        if not self._left:
            self._answer()
            return
        request: ProduceRequest = self._call.body
        self._step = _add_deadline(self._broker, self._expire, request.acks, request.timeout_ms)

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
            endpoints = leader_endpoints(broker, call.client, errors) if errors else ()
            self._done(ProduceResponse(call.version, topics, endpoints, has_errors=bool(errors)))
        else:  # no response: an error closes the connection
            self._done(errors[0] if errors else None)

    def _count(self, acks: int, failures: int) -> None:
        """Update metrics."""
        figures = self._broker.writer.figures
        figures.waiting -= 1
        figures.failures += failures
        for outcome in self._outcomes:
            if isinstance(outcome, Appended):
                figures.records += outcome.next_offset - outcome.base_offset
        if acks in _ACKS:
            took_ms = self._broker.runtime.clock.now_ms() - self._call.began_ms
            figures.took_ms[_ACKS[acks]].observe(took_ms)


def _add_deadline(
    broker: BrokerContext, expire: Callable[[], None], acks: int, timeout_ms: int
) -> int:
    """Schedule the deadline of requests that begin to wait; return its step."""
    if acks != WAITS_FOR_OTHERS:  # clients set their timeout for the other replicas
        timeout_ms = DISK_MS_MAX
    clock = broker.runtime.clock
    deadline_ms = clock.now_ms() + min(max(timeout_ms, 0), TIMEOUT_MS_MAX)
    return broker.deadlines.add(expire, deadline_ms, clock)


class ProduceRequestRun:
    """Consecutive requests of one connection that are stored by one write to each log.

    The usual requests only, see `native.ProduceRun`. They are answered together, when all their
    batches are acknowledged.
    """

    __slots__ = (
        *("_began_ms", "_broker", "_client", "_done", "_left", "_outcomes", "_run", "_step"),
        "_wall_ms",
    )

    def __init__(self, broker: BrokerContext, client: Client, count_max: int) -> None:
        self._broker = broker
        self._client = client
        self._began_ms = 0  # of the wait
        self._wall_ms = broker.runtime.clock.wall_ms()
        self._done: Done | None = None
        # of the tails that are not acknowledged at once
        self._outcomes: dict[RunTail, DelayedProduce | AppendOutcome] = {}
        self._left = 0  # tails without an outcome
        self._step = 0  # of its deadline
        frame_bytes_max = broker.settings.request_bytes_max
        self._run = ProduceRun(self._tail, frame_bytes_max, count_max, INFLATED_BYTES_MAX)

    @property
    def count(self) -> int:
        """The number of requests."""
        return self._run.count

    @property
    def size(self) -> int:
        """The bytes of their frames."""
        return self._run.size

    def take(self, frames: RequestFrameReader) -> None:
        """Cut the next complete frames as far as their requests are usual."""
        if not frames.large_bytes:
            frames.skip_to(self._run.take(*frames.rest()))
            return
        large = frames.large_frame()
        if large is not None and self._run.take_frame(large):
            frames.drop_first()

    def _tail(self, acks: int, by_id: bool, title: bytes, partition: int) -> RunTail | None:
        """Return the tail of a partition's log, None if its batches must be handled alone."""
        hosted = self._broker.hosted
        if by_id:
            replica = hosted.find_by_id(TopicId(title), partition)
        else:
            replica = hosted.find(str(title, "utf-8", "replace"), partition)
        if replica is None:
            return None
        authorizer = self._broker.api.authorizer
        if not authorizer.allows(self._client.identity, *_WRITE_TOPIC, replica.partition.topic):
            return None
        for tail in self._run.tails:
            if tail.owner is replica:
                return None  # it would begin again: its topic was named by the other, name or id
        return self._broker.writer.begin_run(replica, _ACKS[acks], self._wall_ms)

    def end(self) -> Answer | Exception:
        """Write all batches. Return the answer; None if `wait` must follow."""
        run, outcomes = self._run, self._outcomes
        acks = _ACKS[run.acks]
        for tail in run.tails:
            if not tail.count:
                continue
            outcome = self._broker.writer.end_run(tail, acks)
            if outcome is None:
                continue
            if isinstance(outcome, DelayedProduce):
                known = outcome.outcome()
                if known is None:
                    self._left += 1
                    outcome.call_when_done(partial(self._completed, tail))
                else:
                    outcomes[tail] = known
                    continue
            outcomes[tail] = outcome
        return None if self._left else self._answer(0)

    def wait(self, done: Done) -> None:
        """Call `done` with the answer, at the deadline at the latest."""
        broker, run = self._broker, self._run
        self._done = done
        self._began_ms = broker.runtime.clock.now_ms()
        broker.writer.figures.waiting += run.count
        self._step = _add_deadline(broker, self._expire, run.acks, run.timeout_ms)

    def _completed(self, tail: RunTail, outcome: AppendOutcome) -> None:
        self._outcomes[tail] = outcome
        self._left -= 1
        if not self._left:
            self._broker.deadlines.remove(self._expire, self._step)
            self._answer_later()

    def _expire(self) -> None:
        """Answer at the deadline: pending appends have timed out."""
        for tail, one in self._outcomes.items():
            if isinstance(one, DelayedProduce):
                self._outcomes[tail] = one.expire()
        self._answer_later()

    def _answer_later(self) -> None:
        assert self._done is not None, "nothing waits for the answer"
        self._broker.writer.figures.waiting -= self.count
        self._done(self._answer(self._broker.runtime.clock.now_ms() - self._began_ms))

    def _answer(self, took_ms: int) -> Answer | Exception:
        """Return the responses; with acks=0 there is none, and an error closes the connection."""
        run, figures = self._run, self._broker.writer.figures
        figures.took_ms[_ACKS[run.acks]].observe(took_ms, run.count)
        if not self._outcomes:
            return EncodedResponses(run.responses)
        errors: list[QuorumlogError] = []
        for outcome in self._outcomes.values():
            if isinstance(outcome, Appended):
                figures.records += outcome.next_offset - outcome.base_offset
            else:
                assert isinstance(outcome, QuorumlogError), f"{outcome} is pending"
                errors.append(outcome)
        if not errors:
            return EncodedResponses(run.responses)
        responses, codes = self._with_errors(errors)
        figures.failures += len(codes)
        return EncodedResponses(responses, codes) if run.acks else errors[0]

    def _with_errors(self, errors: Sequence[QuorumlogError]) -> tuple[bytes, Sequence[int]]:
        """Return the responses where some tails failed, and the error codes of their partitions."""
        endpoints = leader_endpoints(self._broker, self._client, errors)
        frames: list[bytes] = []
        codes: list[int] = []
        for correlation_id, version, placed in self._run.requests():
            failed: list[QuorumlogError] = []
            topics = [
                (
                    ProduceTopic("", b"", [], title),
                    [self._part_result(*part, failed) for part in parts],
                )
                for title, parts in placed
            ]
            body = encode_produce(
                version, topics, throttle_ms=0, endpoints=endpoints if failed else ()
            )
            flexible = version >= FLEXIBLE
            frames += (answer_head(correlation_id, len(body), flexible=flexible), body)
            codes += map(produce_code, failed)
        return b"".join(frames), codes

    def _part_result(
        self, partition: int, tail: RunTail, base_offset: int, failed: list[QuorumlogError]
    ) -> ProduceResult:
        outcome = self._outcomes.get(tail)
        if outcome is None or isinstance(outcome, Appended):
            start = tail.log_start_offset
            return ProduceResult(partition, 0, base_offset, NO_APPEND_TIME, start)
        return _result(ProducePart(partition, None), outcome, failed)


def begin(broker: BrokerContext, call: Call, done: Done) -> bool:
    """Append every partition's batches, and answer when they are acknowledged according to
    `acks`."""
    _InFlight(broker, call, done).begin()
    return True


def opening(broker: BrokerContext, call: Call) -> Coroutine[Any, Any, None] | None:
    """Return a coroutine that waits until all partitions that are left can be queued at once, or
    None. Of many partitions it queues all but the last in steps."""
    request: ProduceRequest = call.body
    waits: list[Coroutine[Any, Any, None]] = []
    for topic in request.topics:
        name = _name(broker, topic) if topic.topic_id else topic.name
        if not broker.api.authorizer.allows(call.client.identity, *_WRITE_TOPIC, name):
            continue
        for partition, _ in topic.parts:
            wait = broker.writer.opening(name, partition)
            if wait is not None:
                waits.append(wait)
    left = sum(len(topic.parts) for topic in request.topics) - len(request.outcomes)
    if left > PLACED_A_STEP:
        return _open_and_place(broker, call, waits, left - PLACED_A_STEP)
    return _all(waits) if waits else None


async def _all(waits: Sequence[Coroutine[Any, Any, None]]) -> None:
    try:
        for wait in waits:  # they are opened concurrently
            await wait
    finally:
        for wait in waits:
            wait.close()  # closes a coroutine that was not started before a cancellation


async def _open_and_place(
    broker: BrokerContext, call: Call, waits: Sequence[Coroutine[Any, Any, None]], count: int
) -> None:
    """Wait until all partitions are open, then queue `count` of them in steps."""
    await _all(waits)
    for _ in islice(_place_rest(broker, call), count):
        await broker.take_produce_turn()


def _place_rest(broker: BrokerContext, call: Call) -> Iterator[None]:
    """Queue the batches of each partition that has no outcome yet in its log, one a step."""
    request: ProduceRequest = call.body
    outcomes = request.outcomes
    transaction, denial = _transaction(broker, call), _transaction_denial(broker, call)
    parts = [(topic, part) for topic in request.topics for part in topic.parts]
    twice = () if len(parts) == 1 else repeated(map(_place_of, parts))
    for named in parts[len(outcomes) :]:
        if _place_of(named) in twice:
            outcomes.append(InvalidRequest(NAMED_TWICE))
        else:
            outcomes.append(denial or _place(broker, call, *named, transaction))
        yield


def _place_of(named: tuple[ProduceTopic, ProducePart]) -> tuple[bytes, int]:
    """Return the topic, by its name or id in the request, and the partition."""
    topic, part = named
    return bytes(topic.title), part.partition


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


def _transaction(broker: BrokerContext, call: Call) -> TransactionalWrite | None:
    """Return the transaction that the request names, None without one."""
    transactional_id = call.body.transactional_id
    if transactional_id is None:
        return None
    return TransactionalWrite(
        transactional_id,
        call.version >= _ADDS,
        call.version >= _KNOWS_ABORTABLE,
        partial(_check_transactional_write, broker, call),
    )


def _check_transactional_write(broker: BrokerContext, call: Call, topic: str) -> None:
    """Raise the error of a client that lost its session or its rights."""
    call.check_session()
    denial = _transaction_denial(broker, call)
    if denial is not None:
        raise denial
    broker.api.authorizer.check(call.client.identity, *_WRITE_TOPIC, topic)


def _transaction_denial(broker: BrokerContext, call: Call) -> QuorumlogError | None:
    """Return the error of a transactional id that the client may not write with."""
    transactional_id = call.body.transactional_id
    if transactional_id is None:
        return None
    authorizer, client = broker.api.authorizer, call.client.identity
    return authorizer.denial(
        client, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id
    )


def _place(
    broker: BrokerContext,
    call: Call,
    topic: ProduceTopic,
    part: ProducePart,
    transaction: TransactionalWrite | None,
) -> DelayedProduce | QuorumlogError:
    """Queue one partition's batches in its log."""
    partition, records = part
    request: ProduceRequest = call.body
    try:
        authorizer, client = broker.api.authorizer, call.client.identity
        name, topic_id = topic.name, topic.topic_id
        if topic_id:
            name = _name(broker, topic)
            if not name:
                raise UnknownTopicId("topic id: unknown here; look up the topic by name again")
            authorizer.check_topic_of_id(client, AclOperation.WRITE, name)
        else:
            authorizer.check(client, *_WRITE_TOPIC, name)
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
        if has_more_batches(records):
            raise InvalidRecord("records: more than one batch for this partition; send one")
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
    run=ProduceRequestRun,
)
