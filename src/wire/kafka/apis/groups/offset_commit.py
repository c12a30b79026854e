"""OffsetCommit: a group stores how far it has read.

Since version 10 topics are named by their ids. Versions before 9 know nothing of groups of KIP-848;
what those are refused with is told in older words.
"""

from datetime import timedelta
from typing import Any, Final

from .....broker.groups.requests import CommitOffsets, Committed, OffsetToCommit
from .....errors import (
    GroupNotFound,
    IllegalGeneration,
    QuorumlogError,
    StaleMemberEpoch,
    UnknownTopicOrPartition,
)
from ...api import Answer, Call, Door, Fields
from ...group_codes import group_code
from ...large_answers import encoded
from ...messages import code_of
from .asking import NamedTopic, asked, named_topic, slices

UNSUPPORTED_VERSION: Final = 35

_KNOWS_EPOCHS: Final = 9  # of members, from this version on (KIP-848)
_MS: Final = timedelta(milliseconds=1)


async def handle(door: Door, call: Call) -> Answer:
    """Commit what names a partition that there is; the others have errors of their own."""
    topics = [(named_topic(door.image, part), part) for part in call.body.topics]
    codes: list[list[int]] = []
    wanted: list[OffsetToCommit] = []
    places: list[tuple[int, int]] = []  # of each of these, its topic's and its own position
    for topic, part in topics:
        of_topic: list[int] = []
        for one in part.partitions:
            error = _refusal(topic, one.partition_index)
            if error is None:
                places.append((len(codes), len(of_topic)))
                wanted.append(_offset(topic, one))
            of_topic.append(code_of(error))
        codes.append(of_topic)
    found = await _committed(door, call, wanted)
    for (topic_at, at), code in zip(places, found, strict=True):
        codes[topic_at][at] = code
    answer = {
        "topics": [
            {**topic.title, "partitions": _results(part, of_topic)}
            for (topic, part), of_topic in zip(topics, codes, strict=True)
        ]
    }
    return await encoded(door, call, answer, elements=sum(map(len, codes)) + len(topics))


async def _committed(door: Door, call: Call, wanted: list[OffsetToCommit]) -> list[int]:
    """Return the code of each offset."""
    body = call.body
    retention = getattr(body, "retention_time", None)
    codes: list[int] = []
    for offsets in slices(wanted):
        request = CommitOffsets(
            group=body.group_id,
            member_id=body.member_id,
            instance_id=getattr(body, "group_instance_id", None),
            generation=body.generation_id_or_member_epoch,
            retention_ms=-1 if retention is None else retention // _MS,
            offsets=tuple(offsets),
        )
        outcome: Committed | QuorumlogError = await asked(door, call, request)
        if isinstance(outcome, QuorumlogError):
            codes += [_code(call, outcome)] * len(offsets)
        else:
            codes += [code_of(error) for error in outcome.errors]
    return codes


def _refusal(topic: NamedTopic, index: int) -> QuorumlogError | None:
    if topic.image is None:
        return topic.missing()
    if index not in topic.image.partitions:
        return UnknownTopicOrPartition("there is no such partition", topic=topic.name)
    return None


def _offset(topic: NamedTopic, one: Any) -> OffsetToCommit:
    assert topic.image is not None
    return OffsetToCommit(
        topic=topic.name,
        partition=one.partition_index,
        offset=one.committed_offset,
        leader_epoch=getattr(one, "committed_leader_epoch", -1),
        note=one.committed_metadata or "",
        topic_id=topic.image.id,
    )


def _code(call: Call, error: QuorumlogError) -> int:
    if call.version < _KNOWS_EPOCHS:
        if isinstance(error, StaleMemberEpoch):
            return UNSUPPORTED_VERSION
        if isinstance(error, GroupNotFound):
            return IllegalGeneration.code
    return group_code(error)


def _results(part: Any, codes: list[int]) -> list[Fields]:
    return [
        {"partition_index": one.partition_index, "error_code": code}
        for one, code in zip(part.partitions, codes, strict=True)
    ]
