"""Common parts of the group requests: calls of the coordinator, and topics by name or id."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

from ...broker.groups.records import Partitions
from ...broker.groups.requests import GroupRequest, OffsetToCommit
from ...errors import QuorumlogError, UnknownTopicId, UnknownTopicOrPartition
from ...ids import TopicId
from ...metadata import TopicImage
from ...metadata.acls import AclOperation, AclResourceType
from ...runtime.steps import step_counter
from .api import ANSWER_MS_MAX, BrokerContext, Call, Client, Fields
from .error_codes import code_of
from .item_results import PARTS_A_STEP

R = TypeVar("R")

WAIT_MS_MAX: Final = 2**31
"""The longest wait for other members: at least as long as any timeout of a group, which ends the
wait earlier."""

NO_OFFSET: Final = -1


async def ask_coordinator(
    broker: BrokerContext, call: Call, request: GroupRequest[R], *, topics: Iterable[str] = ()
) -> R | QuorumlogError:
    """Send a request to the coordinator; return its response or error. The client needs to read
    the topics."""
    try:
        check_topics(broker, call, topics)
        check_group_request(broker, call, request)
        return await broker.groups.ask(request, deadline_ms=call.began_ms + ANSWER_MS_MAX)
    except QuorumlogError as error:
        return error


async def ask_and_wait(
    broker: BrokerContext, call: Call, request: GroupRequest[R]
) -> R | QuorumlogError:
    """Send a request with a response that may depend on other members."""
    try:
        check_group_request(broker, call, request)
        response = await broker.groups.ask(request, deadline_ms=call.began_ms + WAIT_MS_MAX)
        check_group_request(broker, call, request)  # again, after the wait
    except QuorumlogError as error:
        return error
    return response


def check_group_request(broker: BrokerContext, call: Call, request: GroupRequest[Any]) -> None:
    """Raise GroupAuthorizationFailed unless the client may send the request to its group."""
    broker.api.authorizer.check(
        call.client.identity, request.operation, AclResourceType.GROUP, request.group
    )


def check_topics(broker: BrokerContext, call: Call, names: Iterable[str]) -> None:
    """Raise TopicAuthorizationFailed unless the client may still read topics, and
    SaslAuthenticationFailed if its session has ended. For a request of several steps."""
    call.check_session()
    for name in sorted(set(names)):
        broker.api.authorizer.check(
            call.client.identity, AclOperation.READ, AclResourceType.TOPIC, name
        )


def allows_group_request(broker: BrokerContext, client: Client, request: GroupRequest[Any]) -> bool:
    """Return True if the client may send the request to its group."""
    return broker.api.authorizer.allows(
        client.identity, request.operation, AclResourceType.GROUP, request.group
    )


def client_host(call: Call) -> str:
    """Return the client's host without its port, as descriptions have it."""
    return host_of(call.client.peer)


@lru_cache(maxsize=4_096)  # every heartbeat of KIP-848 calls it
def host_of(peer: str) -> str:
    """Return the host of "host:port" without its port, as descriptions have it."""
    return "/" + peer.rpartition(":")[0].removeprefix("[").removesuffix("]")


# --- topics --------------------------------------------------------------------------------------


@dataclass(slots=True)  # not frozen: every commit makes some
class NamedTopic:
    """A topic as one item of a request names it."""

    title: Fields  # the fields that name it in the response: its name or its id
    image: TopicImage | None  # None: no such topic, or not authorized
    name: str  # empty: unknown id, or not authorized
    denial: QuorumlogError | None = None

    def missing(self) -> QuorumlogError:
        """Return the error of a topic without an image."""
        if self.denial is not None:
            return self.denial
        if self.name:
            return UnknownTopicOrPartition(
                "the topic does not exist; check the name", topic=self.name
            )
        return UnknownTopicId("topic id: unknown here; look up the topic by name again")


def named_topic(
    broker: BrokerContext, call: Call, part: Any, operation: AclOperation
) -> NamedTopic:
    """Look up the topic that an item of a request names, in new versions by its id, for a client
    that needs the operation on it."""
    name, image = getattr(part, "name", None), broker.image
    if name is not None:
        named = NamedTopic({"name": name}, image.topic(name), name)
    else:
        raw = b"" if part.topic_id is None else part.topic_id.bytes
        topic = image.topic_of_id(raw)
        named = NamedTopic({"topic_id": raw}, topic, "" if topic is None else topic.name)
    authorizer, client = broker.api.authorizer, call.client.identity
    denial = None
    if named.name:
        denial = authorizer.denial(client, operation, AclResourceType.TOPIC, named.name)
    return named if denial is None else NamedTopic(named.title, None, "", denial)


@dataclass(slots=True)
class SortedOffsets:
    """The partitions of a commit, in the order of the request."""

    topics: list[tuple[NamedTopic, Any]]
    codes: list[int]  # of each; 0 while unknown
    wanted: list[OffsetToCommit]  # of existing partitions
    places: list[int]  # the positions of these among the codes

    def results(self, codes: Sequence[int]) -> Iterator[Fields]:
        """Yield the response's topics; `codes` are those of the existing partitions. Lazy, as
        `by_topic`."""
        for place, code in zip(self.places, codes, strict=True):
            self.codes[place] = code
        left = iter(self.codes)
        for topic, part in self.topics:
            results = [
                {"partition_index": one.partition_index, "error_code": next(left)}
                for one in part.partitions
            ]
            yield {**topic.title, "partitions": results}


async def sort_offsets(broker: BrokerContext, call: Call) -> SortedOffsets:
    """Return the offsets of a commit request; partitions that do not exist, or that the client may
    not read, have an error."""
    found, take_turn = SortedOffsets([], [], [], []), step_counter(PARTS_A_STEP)
    for part in call.body.topics:
        await take_turn()
        topic = named_topic(broker, call, part, AclOperation.READ)
        found.topics.append((topic, part))
        missing = code_of(topic.missing()) if topic.image is None else 0
        for one in part.partitions:
            await take_turn()
            code = missing
            if topic.image is not None:
                if one.partition_index in topic.image.partitions:
                    found.places.append(len(found.codes))
                    found.wanted.append(_offset(topic.image, one))
                else:
                    code = UnknownTopicOrPartition.code
            found.codes.append(code)
    return found


def _offset(topic: TopicImage, one: Any) -> OffsetToCommit:
    return OffsetToCommit(
        topic=topic.name,
        partition=one.partition_index,
        offset=one.committed_offset,
        leader_epoch=getattr(one, "committed_leader_epoch", -1),
        note=one.committed_metadata or "",
        topic_id=topic.id,
    )


def read_partitions(topics: Iterable[Any]) -> Partitions:
    """Return the partitions that a member names by topic ids."""
    found: dict[TopicId, frozenset[int]] = {}
    for topic in topics:
        if topic.topic_id is not None and topic.partitions:
            topic_id = TopicId(topic.topic_id.bytes)
            found[topic_id] = found.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return found


def partition_fields(partitions: Partitions) -> list[Fields]:
    """Return partitions by their topic ids, in ascending order."""
    return [
        {"topic_id": topic_id, "partitions": sorted(partitions[topic_id])}
        for topic_id in sorted(partitions)
    ]
