"""DescribeQuorum: return the leader, voters and observers of the metadata log (KIP-595, KIP-836,
KIP-853).

The log is partition 0 of a topic name that no other request accepts.
"""

from typing import Any, Final

from ....api.quorum import QuorumDescription, QuorumReplicaState
from ....errors import NotLeaderOrFollower, QuorumlogError, UnknownTopicOrPartition
from ....metadata.topic_names import METADATA_TOPIC
from ..api import Answer, BrokerContext, Call, Fields, KafkaApi
from ..encoding_offload import encode_if_large
from ..error_codes import error_fields
from ..item_results import by_topic, outcome

LISTENER: Final = "CONTROLLER"
"""The name of the listener between the nodes of the quorum."""

UNKNOWN: Final = -1


async def describe_quorum(broker: BrokerContext, call: Call) -> Answer:
    """Return the quorum's state as its leader reports it."""
    places = [
        (topic.topic_name, part.partition_index)
        for topic in call.body.topics
        for part in topic.partitions
    ]
    if places != [(METADATA_TOPIC, 0)]:
        unknown = UnknownTopicOrPartition(f"the only partition is {METADATA_TOPIC}-0; ask for it")
        refused = ((topic, _refused(index, unknown)) for topic, index in places)
        return await encode_if_large(broker, call, _answer(refused), elements=len(places))
    described = await outcome(broker.api.quorum.describe(call.context))
    if isinstance(described, QuorumlogError):
        return error_fields(described)
    if described.answered_by != described.leader_id:
        refusal = NotLeaderOrFollower("quorum: no leader answered; retry")
        return _answer([(METADATA_TOPIC, _refused(0, refusal))])
    fields = _described(described, wall_ms=broker.runtime.clock.wall_ms())
    return {**_answer([(METADATA_TOPIC, fields)]), "nodes": _nodes(described)}


def _answer(results: Any) -> dict[str, Any]:
    topics = by_topic(results, topic_as="topic_name", partitions_as="partitions")
    return {**error_fields(None), "topics": topics}


def _refused(index: int, error: QuorumlogError) -> Fields:
    return {
        "partition_index": index,
        **error_fields(error),
        "leader_id": UNKNOWN,
        "leader_epoch": UNKNOWN,
        "high_watermark": UNKNOWN,
    }


def _described(quorum: QuorumDescription, *, wall_ms: int) -> Fields:
    return {
        "partition_index": 0,
        **error_fields(None),
        "leader_id": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "current_voters": [_replica(each, wall_ms=wall_ms) for each in quorum.voters],
        "observers": [_replica(each, wall_ms=wall_ms) for each in quorum.observers],
    }


def _replica(replica: QuorumReplicaState, *, wall_ms: int) -> Fields:
    heard_ms = UNKNOWN if replica.heard_ms_ago < 0 else wall_ms - replica.heard_ms_ago
    return {
        "replica_id": replica.id,
        "replica_directory_id": replica.directory_id,
        "log_end_offset": replica.log_end_offset,
        "last_fetch_timestamp": heard_ms,
        "last_caught_up_timestamp": heard_ms if replica.lag == 0 else UNKNOWN,
    }


def _nodes(quorum: QuorumDescription) -> list[Fields]:
    """Return the addresses of the voters."""
    nodes: list[Fields] = []
    for voter in quorum.voters:
        host, _, port = voter.address.rpartition(":")
        listener = {"name": LISTENER, "host": host.strip("[]"), "port": int(port or 0)}
        nodes.append({"node_id": voter.id, "listeners": [listener] if port else []})
    return nodes


API: Final = KafkaApi(
    key=55, name="DescribeQuorum", low=0, high=2, flexible=0, handle=describe_quorum
)
