"""Produce: batches in.

Records are views of the request's frame until the log has them. Each partition's part stands for
itself; all of them have their place in their logs before the next request begins. The low versions
0 to 2 are advertised and not answered: librdkafka needs to see them (KAFKA-18659).
"""

from collections.abc import Sequence
from typing import Final

from ....broker import Acks
from ....broker.shell.appends import PendingAppend
from ....errors import (
    CorruptionError,
    InvalidRequiredAcks,
    InvalidTxnState,
    QuorumlogError,
    UnknownTopicId,
    UnsupportedForMessageFormat,
)
from ....runtime import Buffer
from ..api import Api, Call, Door
from ..hot.codes import produce_code
from ..hot.leaders import Endpoint
from ..hot.produce import (
    FLEXIBLE,
    ProducePart,
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
    encode_produce,
    read_produce,
)
from ..leading import endpoints_of, leader_told

_ACKS: Final = {-1: Acks.ALL, 0: Acks.NONE, 1: Acks.LEADER}
_MAGIC_AT: Final = 16  # in a batch, and in a message of the old formats
TIMEOUT_MS_MAX: Final = 600_000


class ProduceAnswer:
    """An answer whose results are known."""

    __slots__ = ("_endpoints", "_topics", "_version")

    def __init__(
        self,
        version: int,
        topics: Sequence[tuple[ProduceTopic, Sequence[ProduceResult]]],
        endpoints: Sequence[Endpoint],
    ) -> None:
        self._version = version
        self._topics = topics
        self._endpoints = endpoints

    @property
    def size(self) -> int:
        """It has no records."""
        return 0

    def parts(self, throttle_ms: int) -> Sequence[Buffer]:
        """Return the body."""
        return [
            encode_produce(
                self._version, self._topics, throttle_ms=throttle_ms, endpoints=self._endpoints
            )
        ]

    def release(self) -> None:
        """Nothing is held."""


async def produce(door: Door, call: Call) -> ProduceAnswer | None:
    """Append every partition's batches, and wait for them as `acks` says."""
    request: ProduceRequest = call.body
    timeout_ms = min(max(request.timeout_ms, 0), TIMEOUT_MS_MAX)
    deadline_ms = call.began_ms + timeout_ms
    placed = []
    for topic in request.topics:
        appends = [await _place(door, request, topic, part) for part in topic.parts]
        placed.append((topic, appends))
    errors: list[QuorumlogError] = []
    topics = []
    for topic, appends in placed:
        results = [
            await _settle(part, append, deadline_ms, errors)
            for part, append in zip(topic.parts, appends, strict=True)
        ]
        topics.append((topic, results))
    if request.acks == 0:
        if errors:  # nobody reads an answer: the end of the connection tells to look again
            raise errors[0]
        return None
    return ProduceAnswer(call.version, topics, endpoints_of(door, call, errors))


async def _place(
    door: Door, request: ProduceRequest, topic: ProduceTopic, part: ProducePart
) -> PendingAppend | QuorumlogError:
    """Give one partition's batches their place in the log."""
    try:
        acks = _ACKS.get(request.acks)
        if acks is None:
            raise InvalidRequiredAcks(f"acks is {request.acks}; give -1, 0 or 1")
        if request.transactional_id is not None:
            raise InvalidTxnState("transactions are not offered yet: send without a transaction")
        records = part.records
        if records is None or not len(records):
            raise CorruptionError("the request has no batch for this partition; send one")
        if len(records) > _MAGIC_AT and records[_MAGIC_AT] < 2:
            raise UnsupportedForMessageFormat(
                f"the records have format {records[_MAGIC_AT]}; only version 2 is taken"
            )
        name = topic.name
        if topic.topic_id:
            found = door.image.topic_of_id(topic.topic_id)
            if found is None:
                raise UnknownTopicId("no topic has this id here; look its name up again")
            name = found.name
        return await door.replicas.submit(
            name, part.partition, records, acks=acks, leader_epoch=None, topic_id=topic.topic_id
        )
    except QuorumlogError as error:
        return error


async def _settle(
    part: ProducePart,
    append: PendingAppend | QuorumlogError,
    deadline_ms: int,
    errors: list[QuorumlogError],
) -> ProduceResult:
    try:
        if isinstance(append, QuorumlogError):
            raise append
        done = await append.settle(deadline_ms)
    except QuorumlogError as error:
        errors.append(error)
        return ProduceResult(
            part.partition,
            produce_code(error),
            error_message=str(error),
            leader=leader_told(error),
        )
    return ProduceResult(
        part.partition, 0, done.base_offset, done.log_append_time_ms, done.log_start_offset
    )


API: Final = Api(
    key=0,
    name="Produce",
    low=3,
    high=13,
    flexible=FLEXIBLE,
    handle=produce,
    read=read_produce,
    advertised_low=0,
    begins_in_order=True,
)
