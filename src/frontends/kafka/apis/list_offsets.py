"""ListOffsets: return the offset of a timestamp, of the log start, of the log end.

There is no tiered storage: the earliest local offset (-4) is the log start offset, and the latest
tiered offset (-5) and the earliest pending upload (-6) do not exist.
"""

from typing import Any, Final

from ....broker import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetOutcome, OffsetSpec
from ....errors import InvalidRequest, OffsetNotAvailable, QuorumlogError
from ....runtime.steps import step_counter
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..authorized_operations import describe_denial
from ..error_codes import LEADER_NOT_AVAILABLE, UNSUPPORTED_VERSION, fetch_code
from ..item_results import PARTS_A_STEP
from ..request_limits import ELEMENTS_MAX_OF_OFFSETS

EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
READ_COMMITTED: Final = 1
_KNOWS_NOT_AVAILABLE: Final = 5
"""The first version of clients that know OFFSET_NOT_AVAILABLE."""
CONSUMERS: Final = (-1, -2)  # replica ids of consumers; -2: a debugging consumer

_FIRST_VERSIONS: Final = {
    EARLIEST: 1,
    LATEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


async def list_offsets(broker: BrokerContext, call: Call) -> Answer:
    """Look up each partition's timestamp."""
    committed_only = getattr(call.body, "isolation_level", 0) == READ_COMMITTED
    seen: set[tuple[str, int]] = set()
    topics = []
    take_turn = step_counter(PARTS_A_STEP)
    for topic in call.body.topics:
        results = []
        await take_turn()
        denial = describe_denial(broker, call, topic.name)
        for part in topic.partitions:
            await take_turn()
            place = (topic.name, part.partition_index)
            if place in seen:
                refusal = InvalidRequest("partition: named twice in the request; name each once")
                results.append(_failed(part, refusal))
                continue
            seen.add(place)
            if denial is not None:
                results.append(_failed(part, denial))
                continue
            results.append(await _result(broker, call, topic.name, part, committed_only))
        topics.append({"name": topic.name, "partitions": results})
    return {"topics": topics}


async def _result(
    broker: BrokerContext, call: Call, topic: str, part: Any, committed_only: bool
) -> Fields:
    timestamp = int(part.timestamp)
    if timestamp < 0 and call.version < _FIRST_VERSIONS.get(timestamp, call.version + 1):
        return {"partition_index": part.partition_index, "error_code": UNSUPPORTED_VERSION}
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return {"partition_index": part.partition_index, "error_code": 0}
    epoch = getattr(part, "current_leader_epoch", -1)
    spec = OffsetSpec(
        topic,
        part.partition_index,
        EARLIEST if timestamp == EARLIEST_LOCAL else timestamp,
        leader_epoch=epoch if epoch >= 0 else None,
        committed_only=committed_only,
    )
    (outcome,) = await broker.reader.list_offsets([spec])
    if outcome.error is None:
        return _found(outcome)
    return {
        "partition_index": part.partition_index,
        "error_code": offset_code(outcome.error, call.version),
    }


def offset_code(error: QuorumlogError, version: int) -> int:
    """Return the code of a partition's error. Clients of old versions do not know
    OFFSET_NOT_AVAILABLE (KIP-207)."""
    if isinstance(error, OffsetNotAvailable) and version < _KNOWS_NOT_AVAILABLE:
        return LEADER_NOT_AVAILABLE
    return fetch_code(error)


def _found(outcome: OffsetOutcome) -> Fields:
    return {
        "partition_index": outcome.spec.partition,
        "error_code": 0,
        "timestamp": outcome.timestamp_ms,
        "offset": outcome.offset,
        "leader_epoch": outcome.leader_epoch,
    }


def _failed(part: Any, error: QuorumlogError) -> Fields:
    return {"partition_index": part.partition_index, "error_code": fetch_code(error)}


API: Final = KafkaApi(
    key=2,
    name="ListOffsets",
    low=1,
    high=11,
    flexible=6,
    handle=list_offsets,
    elements_max=ELEMENTS_MAX_OF_OFFSETS,
)
