"""The encodings of classic consumers: ConsumerProtocolSubscription and ConsumerProtocolAssignment.

The coordinator decodes them where it needs topics, and encodes assignments for members of the
classic protocol in a KIP-848 group. Versions 0 to 3 are supported; a later version is decoded as
version 3, which the format allows. Integers are big-endian; bytes after the fields of a version are
ignored.

The bytes are a client's, so the number of topics and partitions to decode is limited: it is work of
the event loop.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct, error
from typing import Final

VERSION_MAX: Final = 3
PROTOCOL_TYPE: Final = "consumer"
TOPICS_MAX: Final = 10_000  # of one subscription, and that it owns or is assigned
ENTRIES_MAX: Final = 120_000
"""Topics and partitions that are decoded together: about 30 ms."""

_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
_HEAD: Final = Struct(">hi")  # of a subscription: version, number of topics


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSubscription:
    """A member's subscription."""

    version: int
    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # from version 1
    generation: int = -1  # from version 2
    rack: str | None = None  # from version 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerAssignment:
    """A member's assignment."""

    version: int
    partitions: Mapping[str, tuple[int, ...]]
    user_data: bytes | None = None


class EntryBudget:
    """The topics and partitions that may still be decoded."""

    def __init__(self, left: int = ENTRIES_MAX) -> None:
        self._left = left

    def take(self, count: int) -> None:
        """Raise ValueError if so many more are too many."""
        if count > self._left:
            raise ValueError(f"too many topics and partitions: {count} more than {self._left} left")
        self._left -= count


def decode_subscription(data: bytes, budget: EntryBudget | None = None) -> ConsumerSubscription:
    """Decode a subscription; raise ValueError if the bytes are malformed, or have more topics and
    partitions than the budget, by default ENTRIES_MAX, or more than TOPICS_MAX topics."""
    reader = _Reader(data, budget or EntryBudget())
    version = reader.int16()
    if version < 0:
        raise ValueError(f"{version} is not a version of a subscription")
    topics = tuple(reader.text() for _ in range(reader.count(TOPICS_MAX)))
    user_data = reader.data()
    owned = reader.partitions() if version >= 1 else {}
    generation = reader.int32() if version >= 2 else -1
    rack = reader.text_or_none() if version >= 3 else None
    return ConsumerSubscription(
        version=version,
        topics=topics,
        user_data=user_data,
        owned=owned,
        generation=generation,
        rack=rack,
    )


def decode_assignment(data: bytes, budget: EntryBudget | None = None) -> ConsumerAssignment:
    """Decode an assignment; raise ValueError if the bytes are malformed, or exceed the budget, by
    default ENTRIES_MAX. Empty bytes are an empty assignment."""
    if not data:
        return ConsumerAssignment(version=0, partitions={})
    reader = _Reader(data, budget or EntryBudget())
    version = reader.int16()
    if version < 0:
        raise ValueError(f"{version} is not a version of an assignment")
    partitions = reader.partitions()
    return ConsumerAssignment(version=version, partitions=partitions, user_data=reader.data())


def encode_subscription(subscription: ConsumerSubscription) -> bytes:
    """Encode in version `subscription.version`, at most 3."""
    version = min(subscription.version, VERSION_MAX)
    parts = [_SHORT.pack(version), _INT.pack(len(subscription.topics))]
    parts += map(_text, subscription.topics)
    parts.append(_data(subscription.user_data))
    if version >= 1:
        parts.append(_partitions(subscription.owned))
    if version >= 2:
        parts.append(_INT.pack(subscription.generation))
    if version >= 3:
        parts.append(_SHORT.pack(-1) if subscription.rack is None else _text(subscription.rack))
    return b"".join(parts)


def encode_assignment(assignment: ConsumerAssignment) -> bytes:
    """Encode in version `assignment.version`, at most 3."""
    version = min(assignment.version, VERSION_MAX)
    return b"".join(
        (
            _SHORT.pack(version),
            _partitions(assignment.partitions),
            _data(assignment.user_data),
        )
    )


def _text(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def _data(data: bytes | None) -> bytes:
    return _INT.pack(-1) if data is None else _INT.pack(len(data)) + data


def _partitions(partitions: Mapping[str, tuple[int, ...]]) -> bytes:
    parts = [_INT.pack(len(partitions))]
    for topic, indices in partitions.items():
        parts.append(_text(topic))
        parts.append(_INT.pack(len(indices)))
        parts += map(_INT.pack, indices)
    return b"".join(parts)


class _Reader:
    """Decodes fields from the front of a buffer; every failure is a ValueError."""

    def __init__(self, data: bytes, budget: EntryBudget) -> None:
        self._data = data
        self._budget = budget
        self._position = 0

    def int16(self) -> int:
        return self._number(_SHORT)

    def int32(self) -> int:
        return self._number(_INT)

    def count(self, limit: int = ENTRIES_MAX) -> int:
        """Decode the length of an array. Each element has at least 2 bytes."""
        count = self.int32()
        if not 0 <= count <= (len(self._data) - self._position) // 2:
            raise ValueError(f"{count} elements in {len(self._data)} bytes")
        if count > limit:
            raise ValueError(f"{count} elements; the limit is {limit}")
        self._budget.take(count)
        return count

    def text(self) -> str:
        text = self.text_or_none()
        if text is None:
            raise ValueError("a string is null")
        return text

    def text_or_none(self) -> str | None:
        size = self.int16()
        return None if size == -1 else self._take(size).decode()

    def data(self) -> bytes | None:
        size = self.int32()
        return None if size == -1 else self._take(size)

    def partitions(self) -> dict[str, tuple[int, ...]]:
        """Decode topics with partitions; entries of the same topic are merged."""
        found: dict[str, list[int]] = {}
        for _ in range(self.count(TOPICS_MAX)):
            indexes = found.setdefault(self.text(), [])
            indexes += self._numbers(self.count())
        return {topic: tuple(indexes) for topic, indexes in found.items()}

    def _numbers(self, count: int) -> tuple[int, ...]:
        return self._unpack(Struct(f">{count}i"))

    def _number(self, form: Struct) -> int:
        (number,) = self._unpack(form)
        return number

    def _unpack(self, form: Struct) -> tuple[int, ...]:
        try:
            numbers = form.unpack_from(self._data, self._position)
        except error as cut:
            raise ValueError(f"the bytes end at {len(self._data)}") from cut
        self._position += form.size
        return numbers

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ValueError(f"{size} bytes at {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return bytes(taken)


def version_of(subscription: bytes) -> int:
    """Return the version of a subscription, 0 if the bytes are not one."""
    return max(0, _SHORT.unpack_from(subscription)[0]) if len(subscription) >= _SHORT.size else 0


def topics_of(subscription: bytes, budget: EntryBudget | None = None) -> frozenset[str] | None:
    """Return the topics of a subscription. None if the bytes are not a subscription, or have more
    topics than the budget, by default ENTRIES_MAX, or than TOPICS_MAX.

    All versions start with the topics, so the rest is not decoded.
    """
    if len(subscription) < _HEAD.size:
        return None
    version, count = _HEAD.unpack_from(subscription)
    position = _HEAD.size
    longest = (len(subscription) - position) // _SHORT.size
    if version < 0 or not 0 <= count <= min(longest, TOPICS_MAX):
        return None
    try:
        (budget or EntryBudget()).take(count)
    except ValueError:
        return None
    topics = set()
    for _ in range(count):
        if position + _SHORT.size > len(subscription):
            return None
        (length,) = _SHORT.unpack_from(subscription, position)
        position += _SHORT.size
        if length < 0 or position + length > len(subscription):
            return None
        try:
            topics.add(subscription[position : position + length].decode())
        except UnicodeDecodeError:
            return None
        position += length
    return frozenset(topics)
