"""OffsetFetch: return the committed offsets of groups.

Until version 7 a request names one group, since 8 several (KIP-709). Since 10 topics are named by
id. Version 1 has no top-level error, so that error is repeated for each partition.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

from ....broker.groups.requests import FetchOffsets, StoredOffset
from ....errors import QuorumlogError
from ....metadata import MetadataImage
from ....metadata.acls import AclOperation, AclResourceType
from ....runtime.steps import step_counter
from ..api import Answer, BrokerContext, Call, Fields
from ..encoding_offload import encode_if_large
from ..error_codes import code_of, group_code
from ..group_calls import NO_OFFSET, NamedTopic, ask_coordinator, named_topic
from ..item_results import PARTS_A_STEP, by_topic, in_steps

_FAILS_AS_A_WHOLE: Final = 2  # the first version with a top-level error
_TELLS_EPOCHS: Final = 5  # the first version with leader epochs
_TAKES_MANY: Final = 8  # the first version with several groups
_KNOWS_IDS: Final = 10  # the first version with topic ids in place of names


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Fetch the offsets of each named group once, with its own result; and each partition of a
    group once."""
    body = call.body
    groups: Iterable[Any] = (body,)
    if call.version >= _TAKES_MANY:
        groups = {group.group_id: group for group in body.groups}.values()
    take_turn, results = step_counter(PARTS_A_STEP), list[Fields]()
    for group in groups:
        await take_turn()
        results.append(await _group(broker, call, group))
    elements = sum(len(topic["partitions"]) for each in results for topic in each["topics"])
    if call.version >= _TAKES_MANY:
        return await encode_if_large(
            broker, call, {"groups": results}, elements=len(results) + elements
        )
    (result,) = results
    answer = {"topics": result["topics"]}
    if call.version >= _FAILS_AS_A_WHOLE:
        answer["error_code"] = result["error_code"]
    return await encode_if_large(broker, call, answer, elements=elements)


async def _group(broker: BrokerContext, call: Call, group: Any) -> Fields:
    image = broker.image
    wanted = None
    if group.topics is not None:
        once: dict[Hashable, tuple[Any, dict[int, None]]] = {}
        for part in group.topics:
            key = getattr(part, "name", None), getattr(part, "topic_id", None)
            once.setdefault(key, (part, {}))[1].update(dict.fromkeys(part.partition_indexes))
        wanted = await in_steps(
            (named_topic(broker, call, part, AclOperation.DESCRIBE), tuple(indexes))
            for part, indexes in once.values()
        )
    outcome = await ask_coordinator(broker, call, _request(call, group, wanted))
    code, topics = 0, list[Fields]()
    if not isinstance(outcome, QuorumlogError):
        if wanted is None:
            authorizer, client = broker.api.authorizer, call.client.identity
            describe, topic = AclOperation.DESCRIBE, AclResourceType.TOPIC
            topics = _all(
                call,
                image,
                [
                    each
                    for each in outcome
                    if authorizer.allows(client, describe, topic, each.topic)
                ],
            )
        else:
            topics = await _named(call, wanted, outcome)
    elif call.version >= _FAILS_AS_A_WHOLE:
        code = group_code(outcome)
    else:
        code = group_code(outcome)
        for named, indexes in wanted or ():
            results = await in_steps(_nothing(call, index, code) for index in indexes)
            topics.append({**named.title, "partitions": results})
    result: dict[str, Any] = {"topics": topics, "error_code": code}
    if call.version >= _TAKES_MANY:
        result["group_id"] = group.group_id
    return result


def _request(
    call: Call, group: Any, wanted: Sequence[tuple[NamedTopic, Sequence[int]]] | None
) -> FetchOffsets:
    return FetchOffsets(
        group=group.group_id,
        partitions=None
        if wanted is None
        else tuple(
            (topic.name, index) for topic, indexes in wanted if topic.name for index in indexes
        ),
        member_id=getattr(group, "member_id", None) or "",
        member_epoch=getattr(group, "member_epoch", -1),
        require_stable=getattr(call.body, "require_stable", False),
    )


async def _named(
    call: Call,
    wanted: Sequence[tuple[NamedTopic, Sequence[int]]],
    outcome: Sequence[StoredOffset],
) -> list[Fields]:
    stored = {(each.topic, each.partition): each for each in outcome}
    topics: list[Fields] = []
    for topic, indexes in wanted:
        if topic.name:
            results = await in_steps(
                _result(call, stored.get((topic.name, index)), index) for index in indexes
            )
        else:
            code = code_of(topic.missing())
            results = await in_steps(_nothing(call, index, code) for index in indexes)
        topics.append({**topic.title, "partitions": results})
    return topics


def _all(call: Call, image: MetadataImage, outcome: Sequence[StoredOffset]) -> list[Fields]:
    """Return all stored offsets; with topic ids, deleted topics are left out."""
    if call.version < _KNOWS_IDS:
        results = ((each.topic, _result(call, each, each.partition)) for each in outcome)
        return list(by_topic(results, topic_as="name", partitions_as="partitions"))
    topics: dict[bytes, list[Fields]] = {}
    for each in outcome:
        topic = image.topic(each.topic)
        if topic is not None:
            topics.setdefault(topic.id, []).append(_result(call, each, each.partition))
    found: list[Fields] = []
    found += ({"topic_id": topic_id, "partitions": of} for topic_id, of in topics.items())
    return found


def _result(call: Call, stored: StoredOffset | None, index: int) -> Fields:
    if stored is None:
        return _nothing(call, index, 0)
    if stored.error is not None:
        return _nothing(call, index, code_of(stored.error))
    fields = {
        "partition_index": index,
        "committed_offset": stored.offset,
        "metadata": stored.note,
        "error_code": 0,
    }
    if call.version >= _TELLS_EPOCHS:
        fields["committed_leader_epoch"] = stored.leader_epoch
    return fields


def _nothing(call: Call, index: int, code: int) -> Fields:
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET,
        "metadata": "",
        "error_code": code,
    }
