"""OffsetForLeaderEpoch: return the end offsets of leader epochs, by which a consumer detects
truncation of records that it has read (KIP-320)."""

from typing import Any, Final

from ....broker import EpochEndOutcome, EpochEndSpec
from ....runtime.steps import step_counter
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..authorized_operations import describe_denial
from ..error_codes import fetch_code
from ..item_results import PARTS_A_STEP, slices
from ..request_limits import ELEMENTS_MAX_OF_OFFSETS


async def offset_for_leader_epoch(broker: BrokerContext, call: Call) -> Answer:
    """Look up the epoch of every partition."""
    topics: list[Fields] = []
    take_turn = step_counter(PARTS_A_STEP)
    for topic in call.body.topics:
        await take_turn()
        denial = describe_denial(broker, call, topic.topic)
        results: list[Fields] = []
        for parts in slices(topic.partitions):
            await take_turn(len(parts))
            if denial is not None:
                results += (
                    {"error_code": denial.code, "partition": part.partition} for part in parts
                )
                continue
            outcomes = await broker.reader.epoch_ends([_spec(topic.topic, part) for part in parts])
            results += map(_result, outcomes)
        topics.append({"topic": topic.topic, "partitions": results})
    return {"topics": topics}


def _spec(topic: str, part: Any) -> EpochEndSpec:
    current = part.current_leader_epoch
    return EpochEndSpec(topic, part.partition, part.leader_epoch, None if current < 0 else current)


def _result(outcome: EpochEndOutcome) -> Fields:
    error = outcome.error
    return {
        "error_code": 0 if error is None else fetch_code(error),
        "partition": outcome.spec.partition,
        "leader_epoch": outcome.leader_epoch,
        "end_offset": outcome.end_offset,
    }


API: Final = KafkaApi(
    key=23,
    name="OffsetForLeaderEpoch",
    low=2,
    high=4,
    flexible=4,
    handle=offset_for_leader_epoch,
    elements_max=ELEMENTS_MAX_OF_OFFSETS,
)
