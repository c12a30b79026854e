"""Offsets of many partitions, and their JSON form.

The form is the one users of Spark's Kafka connector write: `{"topic": {"0": 23, "1": -1}}`, an
offset being the *next to read*. What we write has its keys in sorted order: Spark compares a
stream's offsets as text, and another order would look like new data.
Owns no I/O and knows no Spark type.
"""

import base64
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from quorumlog.errors import InvalidConfig

LATEST: Final = -1
EARLIEST: Final = -2
NUMBER_MAX: Final = 2**63 - 1
"""What the protocol and Spark's LongType hold."""


class TopicPartition(NamedTuple):
    """One partition of a topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets: TypeAlias = dict[TopicPartition, int]
"""The next offset to read of each partition."""

OffsetsJson: TypeAlias = dict[str, dict[str, Any]]
"""What `json.dumps` makes an offset text of: topic -> partition as text -> offset; with the text of
what the offsets are of, see `StreamOffsets`."""

IDS: Final = "#ids"
CLUSTER: Final = "#cluster"
"""No names of topics: those have letters, digits, '.', '_' and '-'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffsets:
    """Where a stream is, and of what: a topic that was deleted and created anew is another one, and
    so are those of another cluster. What is not known is empty, or not there.

    In JSON the ids stand beside the topics, under a name that is none:
    `{"#ids": {"#cluster": "...", "topic": "..."}, "topic": {"0": 23}}`.
    """

    offsets: Offsets
    cluster: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> OffsetsJson:
        """Return what a checkpoint holds, its keys in sorted order."""
        topics = sorted({place.topic for place in self.offsets} & self.topic_ids.keys())
        ids = {CLUSTER: self.cluster} | {topic: self.topic_ids[topic] for topic in topics}
        return ({IDS: ids} if self.cluster and topics else {}) | to_json(self.offsets)

    @classmethod
    def from_json(cls, nested: Mapping[str, Mapping[str, Any]]) -> "StreamOffsets":
        """Return what a checkpoint holds, also one that knows of no ids; raises InvalidConfig for
        one of a version to come."""
        ids = dict(nested.get(IDS, {}))
        cluster = ids.pop(CLUSTER, "")
        offsets = {topic: ends for topic, ends in nested.items() if topic != IDS}
        strange = sorted(topic for topic in offsets if topic.startswith("#"))
        if strange:
            raise InvalidConfig(
                f"the checkpoint has {strange[0]!r}, so a newer version of quorumlog has written "
                "it: run the query with that one"
            )
        return cls(offsets=from_json(offsets), cluster=cluster, topic_ids=ids)

    def made_anew(self, later: "StreamOffsets") -> set[str]:
        """Return the topics that are others in `later`; none of another cluster."""
        if not self.cluster or self.cluster != later.cluster:
            return set()
        return {
            topic
            for topic, topic_id in self.topic_ids.items()
            if later.topic_ids.get(topic, topic_id) != topic_id
        }

    def id_of(self, topic: str) -> bytes:
        """Return a topic's id, empty where it is not known."""
        text = self.topic_ids.get(topic, "")
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

    def without(self, topics: Collection[str]) -> "StreamOffsets":
        """Return the same without some topics."""
        if not topics:
            return self
        offsets = {place: at for place, at in self.offsets.items() if place.topic not in topics}
        return replace(self, offsets=offsets)


def topic_id_text(topic_id: bytes) -> str:
    """Return a topic's id as it is written: 22 characters of base64url."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetsJson:
    """Return nested dicts whose insertion order is the sorted order of their (text) keys."""
    nested: OffsetsJson = {}
    for place in sorted(offsets, key=lambda place: (place.topic, str(place.partition))):
        nested.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return nested


def from_json(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets of what `to_json` made (a checkpoint's JSON after `json.loads`)."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in nested.items()
        for partition, offset in partitions.items()
    }


def parse_positions(option: str, text: str, *, lowest: int, meaning: str) -> Offsets:
    """Parse an option's `{"topic": {"0": number}}`; numbers are >= `lowest`, and `meaning` says
    what they are. Raises InvalidConfig naming the option."""
    example = '{"topic": {"0": 23, "1": 42}}'
    nested = _load(option, text, example)
    if not isinstance(nested, dict) or not nested:
        _refuse(option, f"must be a JSON object like {example}, with {meaning}")
    positions: Offsets = {}
    for topic, partitions in nested.items():
        if not isinstance(partitions, dict) or not partitions:
            _refuse(option, f"has no partitions for topic {topic!r}; the form is {example}")
        for partition, number in partitions.items():
            place = TopicPartition(topic, _partition(option, partition))
            is_whole = isinstance(number, int) and not isinstance(number, bool)
            if not is_whole or not lowest <= number <= NUMBER_MAX:
                _refuse(option, f"has {number!r} for {place}; {meaning}")
            positions[place] = number
    return positions


def parse_assignment(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Parse `{"topic": [0, 1]}`, sorted; raises InvalidConfig naming the option."""
    example = '{"topic": [0, 1]}'
    nested = _load(option, text, example)
    if not isinstance(nested, dict) or not nested:
        _refuse(option, f"must be a JSON object like {example}")
    places: set[TopicPartition] = set()
    for topic, partitions in nested.items():
        if not isinstance(partitions, list) or not partitions:
            _refuse(option, f"has no partitions for topic {topic!r}; the form is {example}")
        places.update(TopicPartition(topic, _partition(option, index)) for index in partitions)
    return tuple(sorted(places))


def _load(option: str, text: str, example: str) -> object:
    try:
        loaded: object = json.loads(text)
    except ValueError as error:
        raise InvalidConfig(
            f"option {option!r} is not JSON ({error}); the form is {example}"
        ) from error
    return loaded


def _partition(option: str, index: object) -> int:
    if isinstance(index, str) and index.isascii() and index.isdecimal():
        return int(index)
    if isinstance(index, int) and not isinstance(index, bool) and index >= 0:
        return index
    _refuse(option, f"has {index!r} where a partition index, 0 or more, is wanted")


def _refuse(option: str, what: str) -> NoReturn:
    raise InvalidConfig(f"option {option!r} {what}")
