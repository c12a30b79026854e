"""Offsets of many partitions, and their JSON form.

The form is that of Spark's Kafka connector: `{"topic": {"0": 23, "1": -1}}`, where an offset is the
*next to read*. Written JSON has sorted keys: Spark compares a stream's offsets as text, and another
order would look like new data. Pure; uses no Spark type.
"""

import base64
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn, TypeAlias

from quorumlog.errors import InvalidConfig
from quorumlog.ids import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
NUMBER_MAX: Final = 2**63 - 1
"""The maximum of the protocol and of Spark's LongType."""


Offsets: TypeAlias = dict[TopicPartition, int]
"""The next offset to read of each partition."""

OffsetsJson: TypeAlias = dict[str, dict[str, Any]]
"""The JSON object of offsets: topic -> partition as text -> offset, with ids; see
`StreamOffsets`."""

IDS: Final = "#ids"
CLUSTER: Final = "#cluster"
"""Not valid as topic names, which have letters, digits, '.', '_' and '-'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffsets:
    """The offsets of a stream with the ids of cluster and topics, which identify recreated topics
    and other clusters. Unknown ids are empty or missing.

    In JSON the ids are next to the topics, under a name that no topic can have:
    `{"#ids": {"#cluster": "...", "topic": "..."}, "topic": {"0": 23}}`.
    """

    offsets: Offsets
    cluster: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> OffsetsJson:
        """Return the JSON object of a checkpoint, with sorted keys."""
        topics = sorted({place.topic for place in self.offsets} & self.topic_ids.keys())
        ids = {CLUSTER: self.cluster} | {topic: self.topic_ids[topic] for topic in topics}
        return ({IDS: ids} if self.cluster and topics else {}) | to_json(self.offsets)

    @classmethod
    def from_json(cls, nested: Mapping[str, Mapping[str, Any]]) -> "StreamOffsets":
        """Return the offsets of a checkpoint, with or without ids. Raise InvalidConfig for the
        format of a newer release."""
        ids = dict(nested.get(IDS, {}))
        cluster = ids.pop(CLUSTER, "")
        offsets = {topic: ends for topic, ends in nested.items() if topic != IDS}
        strange = sorted(topic for topic in offsets if topic.startswith("#"))
        if strange:
            raise InvalidConfig(
                f"the checkpoint has {strange[0]!r}, which a newer release of quorumlog has "
                "written; run the query with that release"
            )
        return cls(offsets=from_json(offsets), cluster=cluster, topic_ids=ids)

    def recreated_in(self, later: "StreamOffsets") -> set[str]:
        """Return the topics that have another id in `later`; none if it is of another cluster."""
        if not self.cluster or self.cluster != later.cluster:
            return set()
        return {
            topic
            for topic, topic_id in self.topic_ids.items()
            if later.topic_ids.get(topic, topic_id) != topic_id
        }

    def id_of(self, topic: str) -> bytes:
        """Return a topic's id, empty if unknown."""
        text = self.topic_ids.get(topic, "")
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

    def without(self, topics: Collection[str]) -> "StreamOffsets":
        """Return the offsets without some topics."""
        if not topics:
            return self
        offsets = {place: at for place, at in self.offsets.items() if place.topic not in topics}
        return replace(self, offsets=offsets)


def topic_id_text(topic_id: bytes) -> str:
    """Return a topic's id as text: 22 characters of base64url."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetsJson:
    """Return nested dicts whose insertion order is the sorted order of their (text) keys."""
    nested: OffsetsJson = {}
    for place in sorted(offsets, key=lambda place: (place.topic, str(place.partition))):
        nested.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return nested


def from_json(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets of an object that `to_json` returned (JSON after `json.loads`)."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in nested.items()
        for partition, offset in partitions.items()
    }


def parse_positions(option: str, text: str, *, lowest: int, meaning: str) -> Offsets:
    """Parse an option's `{"topic": {"0": number}}`; numbers are >= `lowest`, and `meaning` is the
    hint of the error. Raise InvalidConfig with the option's name."""
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
    """Parse `{"topic": [0, 1]}`, sorted. Raise InvalidConfig with the option's name."""
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
    _refuse(option, f"has {index!r} instead of a partition index, 0 or more")


def _refuse(option: str, what: str) -> NoReturn:
    raise InvalidConfig(f"option {option!r} {what}")
