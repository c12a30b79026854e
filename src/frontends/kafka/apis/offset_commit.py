"""OffsetCommit: store a group's committed offsets.

Since version 10 topics are named by id. Versions before 9 predate the consumer protocol (KIP-848),
so its errors are mapped to older codes.
"""

from collections.abc import Sequence
from datetime import timedelta
from struct import error as StructError
from typing import Final

from ....broker.groups.requests import CommitOffsets, CommitOutcome, OffsetToCommit, PlainCommit
from ....errors import GroupNotFound, IllegalGeneration, QuorumlogError, StaleMemberEpoch
from ....metadata.acls import AclOperation, AclResourceType
from ..api import Answer, BrokerContext, Call, Client, Done, PreparedResponse
from ..codecs.groups import (
    Commit,
    encode_commit,
    encode_plain_commit,
    read_commit,
    read_plain_commit,
)
from ..encoding_offload import encode_if_large
from ..error_codes import UNSUPPORTED_VERSION, code_of, group_code
from ..group_calls import ask_coordinator, sort_offsets
from ..item_results import slices
from ..pending_group_call import begin_group_call

read = read_commit

BEGUN_MAX: Final = 100
"""A commit of more partitions takes a task: it may be stored in several steps."""

_KNOWS_EPOCHS: Final = 9  # the first version with member epochs (KIP-848)
_READ_TOPIC: Final = (AclOperation.READ, AclResourceType.TOPIC)
_MS: Final = timedelta(milliseconds=1)


class OffsetCommitResponse(PreparedResponse):
    """A response in a version with a hand-written encoder."""

    __slots__ = ("_body", "_codes", "_version")

    def __init__(self, version: int, body: Commit, codes: Sequence[int]) -> None:
        self._version = version
        self._body = body
        self._codes = codes

    @property
    def error_codes(self) -> Sequence[int]:
        """The error codes of partitions."""
        return [code for code in self._codes if code]

    def parts(self, throttle_ms: int) -> Sequence[bytes]:
        """Return the body."""
        topics = self._body.topics
        return (encode_commit(self._version, topics, self._codes, throttle_ms=throttle_ms),)


def at_once(broker: BrokerContext, client: Client, version: int, body: memoryview) -> bytes | None:
    """Store the commit of a member of a stable group; see `KafkaApi.at_once`."""
    try:
        commit = read_plain_commit(version, bytes(body))
        if commit is None or not _allows(broker, client, commit):
            return None
        if not broker.groups.commit_at_once(commit, broker.image):
            return None
    except (QuorumlogError, IndexError, UnicodeDecodeError, StructError):
        return None
    return encode_plain_commit(version, commit.topics)


def _allows(broker: BrokerContext, client: Client, commit: PlainCommit) -> bool:
    """Return True if the client may commit to the group, and read all topics."""
    authorizer, identity = broker.api.authorizer, client.identity
    if not authorizer.is_enabled:
        return True
    read = AclOperation.READ
    return authorizer.allows(identity, read, AclResourceType.GROUP, commit.group) and all(
        authorizer.allows(identity, read, AclResourceType.TOPIC, each.topic)
        for each in commit.topics
    )


def begin(broker: BrokerContext, call: Call, done: Done) -> bool:
    """Commit in one step, if all named partitions exist and the client may read them; otherwise
    return False."""
    body: Commit = call.body
    authorizer, client = broker.api.authorizer, call.client.identity
    if sum([len(topic.partitions) for topic in body.topics]) > BEGUN_MAX:
        return False
    image, wanted = broker.image, []
    for name, parts in body.topics:
        topic = image.topic(name)
        if topic is None or not authorizer.allows(client, *_READ_TOPIC, name):
            return False
        known, topic_id = topic.partitions, topic.id
        for part in parts:
            if part.partition_index not in known:
                return False
            wanted.append(
                OffsetToCommit(
                    topic=name,
                    partition=part.partition_index,
                    offset=part.committed_offset,
                    leader_epoch=part.committed_leader_epoch,
                    note=part.committed_metadata or "",
                    topic_id=topic_id,
                )
            )
    if not wanted:
        return False
    request = CommitOffsets(
        group=body.group_id,
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        generation=body.generation_id_or_member_epoch,
        offsets=tuple(wanted),
    )
    return begin_group_call(broker, call, request, _answer, done)


async def handle(broker: BrokerContext, call: Call) -> Answer:
    """Commit the offsets of existing partitions; the others have errors of their own."""
    found = await sort_offsets(broker, call)
    codes: list[int] = []
    for offsets in slices(found.wanted):
        topics = (each.topic for each in offsets)
        outcome = await ask_coordinator(broker, call, _request(call, offsets), topics=topics)
        codes += _codes(call, outcome, len(offsets))
    answer = {"topics": found.results(codes)}
    return await encode_if_large(
        broker, call, answer, elements=len(found.codes) + len(found.topics)
    )


def _request(call: Call, offsets: Sequence[OffsetToCommit]) -> CommitOffsets:
    body = call.body
    retention = getattr(body, "retention_time", None)
    return CommitOffsets(
        group=body.group_id,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        generation=body.generation_id_or_member_epoch,
        retention_ms=-1 if retention is None else retention // _MS,
        offsets=tuple(offsets),
    )


def _answer(call: Call, outcome: CommitOutcome | QuorumlogError) -> OffsetCommitResponse:
    body: Commit = call.body
    count = sum([len(topic.partitions) for topic in body.topics])
    return OffsetCommitResponse(call.version, body, _codes(call, outcome, count))


def _codes(call: Call, outcome: CommitOutcome | QuorumlogError, count: int) -> list[int]:
    """Return the error codes of `count` offsets that were committed together."""
    if isinstance(outcome, QuorumlogError):
        return [_code(call, outcome)] * count
    return [0 if error is None else code_of(error) for error in outcome.errors]


def _code(call: Call, error: QuorumlogError) -> int:
    if call.version < _KNOWS_EPOCHS:
        if isinstance(error, StaleMemberEpoch):
            return UNSUPPORTED_VERSION
        if isinstance(error, GroupNotFound):
            return IllegalGeneration.code
    return group_code(error)
