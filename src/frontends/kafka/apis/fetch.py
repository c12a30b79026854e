"""Fetch: return record batches, from the page cache to the socket.

There are no fetch sessions: the response's session id 0 (KIP-227) makes clients name all their
partitions in each request. Records are never converted to another format.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ....broker import FetchSpec, FoundRecords
from ....broker.shell.reads import TOO_FEW, FetchWait, SegmentRange, UsualFound, UsualPart
from ....broker.shell.replica import Replica
from ....errors import InvalidRequest, Overloaded, QuorumlogError
from ....ids import TopicId
from ....metadata.acls import AclOperation, AclResourceType
from ....native import UsualFetch, encode_fetch
from ....native import read_fetch as read_fetch_at_once
from ....runtime import Buffer
from ..api import (
    BrokerContext,
    Call,
    Client,
    DelayedAnswer,
    Done,
    FileRange,
    KafkaApi,
    Part,
    PreparedResponse,
)
from ..codecs.fetch import (
    BY_ID,
    FLEXIBLE,
    FetchPart,
    FetchRequest,
    FetchResult,
    FetchTopic,
    encode_end,
    encode_found,
    encode_result,
    encode_top,
    encode_topic,
    read_fetch,
)
from ..codecs.leaders import CurrentLeader, NodeEndpoint
from ..endpoints import current_leader, leader_endpoints
from ..error_codes import SESSION_ID_NOT_FOUND, UNKNOWN_TOPIC_ID, fetch_code
from ..quota_charge import fetch_bytes_max

MAX_WAIT_MS_MAX: Final = 60_000
READ_COMMITTED: Final = 1
NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1  # of a session: close it, or create none
NO_TAGS: Final = b"\x00"
_READ_TOPIC: Final = (AclOperation.READ, AclResourceType.TOPIC)


class FetchResponse(PreparedResponse):
    """A response with leases on files until it is queued."""

    __slots__ = ("_endpoints", "_error_code", "_is_good", "_topics", "_version")

    def __init__(
        self,
        version: int,
        topics: Sequence[tuple[FetchTopic, Sequence[FoundRecords | FetchResult]]],
        *,
        endpoints: Sequence[NodeEndpoint] = (),
        error_code: int = 0,
        is_good: bool = False,
    ) -> None:
        """`is_good`: no result has an error."""
        self._is_good = is_good
        self._version = version
        self._topics = topics
        self._endpoints = endpoints
        self._error_code = error_code

    @property
    def size(self) -> int:
        """Bytes of records in the response."""
        return sum(
            one.size for _, found in self._topics for one in found if isinstance(one, FoundRecords)
        )

    @property
    def error_codes(self) -> Sequence[int]:
        """The error codes of the response and of its partitions."""
        if self._is_good:
            return ()
        codes = [self._error_code]
        for _, results in self._topics:
            for one in results:
                if isinstance(one, FetchResult):
                    codes.append(one.error_code)
                elif one.error is not None:
                    codes.append(fetch_code(one.error))
        return [code for code in codes if code]

    def parts(self, throttle_ms: int) -> Sequence[Part]:
        """Return the body: bytes around the records, and file ranges for the records."""
        version = self._version
        no_tags = NO_TAGS if version >= FLEXIBLE else b""
        out: list[Part] = []
        head = [
            encode_top(
                version,
                throttle_ms=throttle_ms,
                error_code=self._error_code,
                session_id=NO_SESSION,
                topic_count=len(self._topics),
            )
        ]
        for topic, results in self._topics:
            head.append(
                encode_topic(
                    version, name=topic.name, topic_id=topic.topic_id, part_count=len(results)
                )
            )
            for part, found in zip(topic.parts, results, strict=True):
                if isinstance(found, FetchResult):
                    head += encode_result(version, found)
                    continue
                taken = found.range
                if taken is None or found.aborted:
                    before, behind = encode_result(version, _result(part, found))
                else:
                    before, behind = _before(version, found, taken.size), no_tags
                head.append(before)
                if taken is not None:
                    out += (b"".join(head), FileRange(taken.file, taken.position, taken.size))
                    head = []
                head.append(behind)
            head.append(no_tags)
        head.append(encode_end(version, self._endpoints))
        out.append(b"".join(head))
        return out

    def release(self) -> None:
        """Release the leases on the files."""
        for _, results in self._topics:
            for found in results:
                if isinstance(found, FoundRecords):
                    found.release()


class UsualResponse(PreparedResponse):
    """A response without errors, with leases on files until it is queued."""

    __slots__ = ("_chunks", "_size")

    def __init__(self, chunks: Sequence[bytes | SegmentRange], size: int) -> None:
        """`chunks` are the body in order; `size` is the bytes of records in it."""
        self._chunks = chunks
        self._size = size

    @property
    def size(self) -> int:
        """Bytes of records in the response."""
        return self._size

    def parts(self, throttle_ms: int) -> Sequence[Part]:
        """Return the body: bytes, and file ranges for the records."""
        assert not throttle_ms, "a request is answered at once without quotas"
        return [
            FileRange(one.file, one.position, one.size) if isinstance(one, SegmentRange) else one
            for one in self._chunks
        ]

    def release(self) -> None:
        """Release the leases on the files."""
        for one in self._chunks:
            if isinstance(one, SegmentRange):
                one.release()


class DelayedFetch(DelayedAnswer):
    """A usual request that waits until there are enough bytes."""

    __slots__ = ("_asked", "_began_ms", "_broker", "_client", "_request", "_version", "_wait")

    def __init__(
        self,
        broker: BrokerContext,
        client: Client,
        version: int,
        request: UsualFetch,
        asked: Sequence[UsualPart],
    ) -> None:
        """`asked` are the partitions of the request, as found in this turn of the loop."""
        self._broker, self._client = broker, client
        self._version, self._request = version, request
        self._asked = asked
        self._began_ms = broker.runtime.clock.now_ms()
        self._wait: FetchWait | None = None

    def start(self, woken: Callable[[], None]) -> bool:
        """Wait until one of the partitions moves, or the time is up."""
        wait_ms = min(self._request[0], MAX_WAIT_MS_MAX)
        replicas = [replica for replica, _ in self._asked]
        principal = self._client.identity.principal
        self._wait = self._broker.reader.wait(replicas, wait_ms, woken, principal=principal)
        return self._wait is not None

    def answer(self) -> PreparedResponse | None:
        """Read again; None also if there are still too few bytes, and time is left."""
        assert self._wait is not None, "answered without a wait"
        broker, is_due = self._broker, self._wait.is_due
        asked = _asked(broker, self._client, self._version, self._request)
        if asked is None:
            return None
        waited_ms = broker.runtime.clock.now_ms() - self._began_ms
        found = _find(broker, self._request, asked, is_due=is_due, waited_ms=waited_ms)
        if found is None or found is TOO_FEW:
            return None
        return UsualResponse(*_encode(self._version, self._request, found))

    def cancel(self) -> None:
        """Stop waiting."""
        if self._wait is not None:
            self._wait.cancel()


def answer_at_once(
    broker: BrokerContext, client: Client, version: int, body: memoryview
) -> list[Buffer] | PreparedResponse | DelayedFetch | None:
    """Answer a usual request from the page cache; see `KafkaApi.at_once`."""
    request = read_fetch_at_once(version, body)
    if request is None:
        return None
    asked = _asked(broker, client, version, request)
    if asked is None:
        return None
    found = _find(broker, request, asked)
    if found is None:
        return None
    if found is TOO_FEW:
        return DelayedFetch(broker, client, version, request, asked)
    chunks, size = _encode(version, request, found)
    buffers: list[Buffer] = []
    for one in chunks:
        if isinstance(one, SegmentRange):
            return UsualResponse(chunks, size)
        buffers.append(one)
    return buffers


def _asked(
    broker: BrokerContext, client: Client, version: int, request: UsualFetch
) -> list[UsualPart] | None:
    """Return the partitions of a usual request with their replicas; None if it asks for a session,
    or if one of them is not open or the client may not read it."""
    *_, session_id, session_epoch, topics = request
    if session_id != NO_SESSION and session_epoch != FINAL_EPOCH:
        return None
    authorizer = broker.api.authorizer
    is_restricted = authorizer.is_enabled
    asked: list[UsualPart] = []
    for title, parts in topics:
        for part in parts:
            replica = _hosted(broker, version, title, part[0])
            if replica is None or not replica.is_open or replica.is_given_up:
                return None
            if is_restricted and not authorizer.allows(
                client.identity, *_READ_TOPIC, replica.partition.topic
            ):
                return None
            asked.append((replica, part))
    return asked


def _find(
    broker: BrokerContext,
    request: UsualFetch,
    asked: Sequence[UsualPart],
    *,
    is_due: bool = False,
    waited_ms: int = -1,
) -> list[UsualFound] | None:
    """Read the partitions of a usual request; see `ReplicaReader.find_at_once`."""
    max_wait_ms, min_bytes, max_bytes, isolation, *_ = request
    max_bytes = min(max(max_bytes, 0), broker.requests.fetch_bytes_max)
    return broker.reader.find_at_once(
        asked,
        min_bytes=min(min_bytes, max_bytes) if max_wait_ms > 0 and not is_due else 0,
        max_bytes=max_bytes,
        committed_only=isolation == READ_COMMITTED,
        waited_ms=waited_ms,
    )


def _encode(
    version: int, request: UsualFetch, found: Sequence[UsualFound]
) -> tuple[list[bytes | SegmentRange], int]:
    """Return the body of a response in order, and the bytes of records in it."""
    _, _, _, isolation, _, _, topics = request
    tells_aborted = isolation == READ_COMMITTED
    chunks: list[bytes | SegmentRange] = encode_fetch(version, topics, found, tells_aborted)
    return chunks, sum(one[3] for one in found)


def _hosted(broker: BrokerContext, version: int, title: bytes, partition: int) -> Replica | None:
    if version >= BY_ID:
        return broker.hosted.find_by_id(TopicId(title), partition)
    return broker.hosted.find(str(title, "utf-8", "replace"), partition)


class _Asked:
    """A request with its topics' names resolved."""

    def __init__(self, broker: BrokerContext, call: Call) -> None:
        request: FetchRequest = call.body
        self._broker = broker
        self._call = call
        self._named = [(topic, *self._name(topic)) for topic in request.topics]
        self.specs = [
            _spec(request, topic, name, part)
            for topic, name, code in self._named
            if not code
            for part in topic.parts
        ]
        self.max_bytes = fetch_bytes_max(broker, call, max(request.max_bytes, 0))
        self.min_bytes = min(request.min_bytes, self.max_bytes)  # more could never be returned
        # Errors, and a request without partitions, are answered at once.
        is_whole = not any(code for _, _, code in self._named)
        waits = is_whole and bool(self.specs)
        self.max_wait_ms = min(max(request.max_wait_ms, 0), MAX_WAIT_MS_MAX) if waits else 0

    def answer(self, found: Sequence[FoundRecords]) -> FetchResponse:
        """Return the response for the records found."""
        rest, is_good = iter(found), True
        topics: list[tuple[FetchTopic, Sequence[FoundRecords | FetchResult]]] = []
        for topic, name, code in self._named:
            results = [] if code else [next(rest) for _ in topic.parts]
            if not code and (denial := self._denial(name)) is not None:  # after a wait
                code = denial.code
                for each in results:
                    each.release()
            if code:
                topics.append((topic, [FetchResult(part.partition, code) for part in topic.parts]))
                is_good = False
            else:
                topics.append((topic, results))
        errors = [one.error for one in found if one.error is not None]
        endpoints = leader_endpoints(self._broker, self._call.client, errors) if errors else ()
        return FetchResponse(
            self._call.version, topics, endpoints=endpoints, is_good=is_good and not errors
        )

    def _name(self, topic: FetchTopic) -> tuple[str, int]:
        """Return the topic's name and 0, or an error code: no topic has its id, or the client may
        not read it."""
        name = topic.name
        if topic.topic_id:
            found = self._broker.image.topic_of_id(topic.topic_id)
            if found is None:
                return "", UNKNOWN_TOPIC_ID
            name = found.name
        denial = self._denial(name)
        return name, 0 if denial is None else denial.code

    def _denial(self, name: str) -> QuorumlogError | None:
        authorizer = self._broker.api.authorizer
        return authorizer.denial(self._call.client.identity, *_READ_TOPIC, name)


def begin(broker: BrokerContext, call: Call, done: Done) -> bool:
    """Answer from the page cache, without waiting."""
    refusal = _refusal(call)
    if refusal is not None:
        done(refusal)
        return True
    asked = _Asked(broker, call)
    found = broker.reader.find_nowait(
        asked.specs,
        min_bytes=asked.min_bytes if asked.max_wait_ms else 0,
        max_bytes=asked.max_bytes,
    )
    if found is None:
        return False
    done(asked.answer(found))
    return True


async def fetch(broker: BrokerContext, call: Call) -> FetchResponse:
    """Read each partition, and wait for `min_bytes` up to `max_wait_ms`."""
    refusal = _refusal(call)
    if refusal is not None:
        return refusal
    asked = _Asked(broker, call)
    waited_ms = broker.runtime.clock.now_ms() - call.began_ms  # as a `DelayedFetch`
    try:
        found = await broker.reader.find(
            asked.specs,
            max_wait_ms=max(0, asked.max_wait_ms - waited_ms),
            min_bytes=asked.min_bytes,
            max_bytes=asked.max_bytes,
            principal=call.client.identity.principal,
        )
    except Overloaded as error:
        return _refused(call, error)
    return asked.answer(found)


def _refusal(call: Call) -> FetchResponse | None:
    """Return the response to an unsupported kind of request, or None."""
    request: FetchRequest = call.body
    if request.session_id != NO_SESSION and request.session_epoch != FINAL_EPOCH:
        return FetchResponse(call.version, [], error_code=SESSION_ID_NOT_FOUND)
    if request.replica_id >= 0:
        return _refused(call, InvalidRequest("replica id: followers use another protocol here"))
    return None


def _spec(request: FetchRequest, topic: FetchTopic, name: str, part: FetchPart) -> FetchSpec:
    partition, leader_epoch, offset, last_epoch, max_bytes = part
    return FetchSpec(
        name,
        partition,
        offset,
        max_bytes if max_bytes > 0 else 0,
        leader_epoch if leader_epoch >= 0 else None,
        topic.topic_id,
        request.rack,
        request.isolation == READ_COMMITTED,
        last_epoch,
    )


def _before(version: int, found: FoundRecords, records_size: int) -> bytes:
    """Return the bytes in front of the records of a partition without errors or extra fields."""
    preferred = found.preferred_replica
    return encode_found(
        version,
        partition=found.spec.partition,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        tells_aborted=found.spec.committed_only,
        preferred_replica=-1 if preferred is None else preferred,
        records_size=records_size,
    )


def _result(part: FetchPart, found: FoundRecords) -> FetchResult:
    error = found.error
    if error is not None:
        leader: CurrentLeader | None = current_leader(error)
        return FetchResult(part.partition, fetch_code(error), leader=leader)
    preferred = found.preferred_replica
    return FetchResult(
        part.partition,
        0,
        found.high_watermark,
        found.last_stable_offset,
        found.log_start_offset,
        found.aborted if found.spec.committed_only else None,
        -1 if preferred is None else preferred,
        found.size,
        found.diverging,
    )


def _refused(call: Call, error: QuorumlogError) -> FetchResponse:
    """Return a response with the same error for every partition."""
    request: FetchRequest = call.body
    code = fetch_code(error)
    return FetchResponse(
        call.version,
        [
            (topic, [FetchResult(part.partition, code) for part in topic.parts])
            for topic in request.topics
        ],
    )


API: Final = KafkaApi(
    key=1,
    name="Fetch",
    low=4,
    high=18,
    flexible=FLEXIBLE,
    handle=fetch,
    begin=begin,
    read=read_fetch,
    at_once=answer_at_once,
)
