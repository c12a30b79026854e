"""What requests of consumer groups have in common: whom they ask, and how topics are named."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

from .....broker.groups.records import Partitions
from .....broker.groups.requests import GroupRequest
from .....errors import QuorumlogError, UnknownTopicId, UnknownTopicOrPartition
from .....ids import TopicId
from .....metadata import MetadataImage, TopicImage
from ...api import ANSWER_MS_MAX, Call, Door, Fields

R = TypeVar("R")

WAIT_MS_MAX: Final = 2**31
"""How long a member may wait for the others: the time-outs of its group end that, which are at most
as long."""

PARTS_A_REQUEST: Final = 1_000
"""Partitions whose offsets are stored together; of a request with more, so many after another."""

NO_OFFSET: Final = -1


async def asked(door: Door, call: Call, request: GroupRequest[R]) -> R | QuorumlogError:
    """Have the coordinator answer as soon as it can; returns the error that came instead."""
    try:
        return await door.groups.ask(request, deadline_ms=call.began_ms + ANSWER_MS_MAX)
    except QuorumlogError as error:
        return error


async def waited_for(door: Door, call: Call, request: GroupRequest[R]) -> R | QuorumlogError:
    """Have the coordinator answer, which it may do only once other members have asked."""
    try:
        return await door.groups.ask(request, deadline_ms=call.began_ms + WAIT_MS_MAX)
    except QuorumlogError as error:
        return error


def host_of(call: Call) -> str:
    """Return where a member calls from, as descriptions have it: without the port."""
    return _host_of(call.client.peer)


@lru_cache(maxsize=4_096)  # every heartbeat of KIP-848 asks for it
def _host_of(peer: str) -> str:
    return "/" + peer.rpartition(":")[0].removeprefix("[").removesuffix("]")


# --- topics --------------------------------------------------------------------------------------


@dataclass(slots=True)  # not frozen: every commit makes some
class NamedTopic:
    """A topic as one part of a request names it."""

    title: Fields  # how the answer names it: by name, or by id
    image: TopicImage | None  # None: there is none
    name: str  # empty: the id says nothing here

    def missing(self) -> QuorumlogError:
        """Return why nothing can be done with it."""
        if self.name:
            return UnknownTopicOrPartition("no such topic here; check the name", topic=self.name)
        return UnknownTopicId("no topic has this id; look its name up again")


def named_topic(image: MetadataImage, part: Any) -> NamedTopic:
    """Look a topic up that a part of a request names, in new versions by its id."""
    name = getattr(part, "name", None)
    if name is not None:
        return NamedTopic({"name": name}, image.topic(name), name)
    raw = b"" if part.topic_id is None else part.topic_id.bytes
    topic = image.topic_of_id(raw)
    return NamedTopic({"topic_id": raw}, topic, "" if topic is None else topic.name)


def slices(parts: Sequence[R]) -> Iterable[Sequence[R]]:
    """Yield parts of a request, so many at a time as are stored together."""
    for begin in range(0, len(parts), PARTS_A_REQUEST):
        yield parts[begin : begin + PARTS_A_REQUEST]


def read_partitions(topics: Iterable[Any]) -> Partitions:
    """Return partitions that a member names by topic ids."""
    found: dict[TopicId, frozenset[int]] = {}
    for topic in topics:
        if topic.topic_id is not None and topic.partitions:
            topic_id = TopicId(topic.topic_id.bytes)
            found[topic_id] = found.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return found


def partition_fields(partitions: Partitions) -> list[Fields]:
    """Return partitions by the ids of their topics, in order."""
    return [
        {"topic_id": topic_id, "partitions": sorted(partitions[topic_id])}
        for topic_id in sorted(partitions)
    ]
