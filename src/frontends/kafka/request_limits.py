"""Validation of a request's lengths and counts before memory is allocated for it.

`kio`'s reader trusts every length: an array that claims two thousand million elements makes it
allocate that many, which ends the process. So a request is first walked along its schema. Its
lengths must lie within the frame, a string may have 32,767 bytes, and a list of tagged fields ten
thousand. All arrays together have a limit by the API, which bounds the memory and the time that a
client without rights can use with one request. Kafka's brokers bound each array alone. Tagged
fields that a schema lacks are legal (KIP-482), but `kio`'s reader rejects them: the walk records
their positions, and they are cut out.
"""

import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from struct import Struct
from typing import Any, Final, TypeAlias

from ...errors import InvalidRequest
from .codecs.primitives import TEXT_BYTES_MAX
from .shapes import without_none

ELEMENTS_MAX: Final = 20_000  # of all arrays and tagged fields of a request together
ELEMENTS_MAX_OF_LISTS: Final = 50_000
"""For administrative requests with lists in their items, as of replicas and configs."""
ELEMENTS_MAX_OF_OFFSETS: Final = 110_000
"""For requests of a consumer about 100,000 partitions of 10,000 topics. Their handlers let other
tasks run after every few hundred."""
TAGS_MAX: Final = 10_000  # tagged fields of one list

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_SIZES: Final = {
    **dict.fromkeys(("int8", "uint8", "bool"), 1),
    **dict.fromkeys(("int16", "uint16", "error_code"), 2),
    **dict.fromkeys(("int32", "uint32", "timedelta_i32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "timedelta_i64", "datetime_i64"), 8),
    "uuid": 16,
}


@dataclass(frozen=True, slots=True)
class RequestCut:
    """A range of bytes hidden from the reader, and their replacement."""

    begin: int
    end: int  # exclusive
    instead: bytes


class RequestWalk:
    """One pass over a request."""

    __slots__ = ("cuts", "elements", "elements_max", "end", "frame")

    def __init__(self, frame: memoryview, elements_max: int) -> None:
        self.frame = frame
        self.elements_max = elements_max
        self.end = len(frame)
        self.elements = 0  # of all arrays, and tagged fields
        self.cuts: list[RequestCut] = []  # ascending

    def past(self, at: int, size: int) -> int:
        """Return the end of `size` bytes at `at`; raises InvalidRequest if the frame is shorter."""
        if size > self.end - at:
            raise InvalidRequest(
                f"field at byte {at}: {size} bytes; the frame ends at byte {self.end}"
            )
        return at + size

    def array(self, count: int, at: int, size_min: int) -> None:
        """Count an array's elements; raises InvalidRequest if they exceed the limit or the
        frame."""
        self.elements += count
        if self.elements > self.elements_max:
            raise InvalidRequest(
                f"request: its arrays claim {self.elements} elements; send at most"
                f" {self.elements_max} in one request"
            )
        self.past(at, count * size_min)

    def varint(self, at: int) -> tuple[int, int]:
        """Return an unsigned varint and its end; raises InvalidRequest."""
        value = shift = 0
        while shift < 35:
            end = self.past(at, 1)
            byte = self.frame[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, end
            shift += 7
            at = end
        raise InvalidRequest(f"varint at byte {at - 4}: longer than 5 bytes")


Take: TypeAlias = Callable[[RequestWalk, int], int]
"""Walks over the field at a position, and returns its end."""


@dataclass(frozen=True, slots=True)
class FieldWalk:
    """The walk over one field."""

    take: Take
    size_min: int  # lower bound of its encoded size
    is_fixed: bool = False  # `size_min` is its exact size


def walk_message(
    message: FieldWalk, frame: memoryview, begin: int, elements_max: int = ELEMENTS_MAX
) -> RequestWalk:
    """Walk over a whole message (see `step_over`); raises InvalidRequest if the frame ends early.

    Bytes after the message are cut, as Kafka's brokers ignore them too: librdkafka appends three
    bytes to a request for all topics.
    """
    walk = RequestWalk(frame, elements_max)
    end = message.take(walk, begin)
    if end != walk.end:
        walk.cuts.append(RequestCut(end, walk.end, b""))
    return walk


def without_cuts(frame: memoryview, begin: int, cuts: Sequence[RequestCut]) -> bytes:
    """Return the bytes from `begin` on with the cuts applied."""
    pieces: list[memoryview | bytes] = []
    for cut in cuts:
        pieces += (frame[begin : cut.begin], cut.instead)
        begin = cut.end
    pieces.append(frame[begin:])
    return b"".join(pieces)


# --- fields --------------------------------------------------------------------------------------


def step_over(schema: type[Any]) -> FieldWalk:
    """Return the walk over a message or a struct in one."""
    flexible: bool = schema.__flexible__
    hints = typing.get_type_hints(schema)
    plain: list[FieldWalk] = []
    tagged: dict[int, FieldWalk] = {}
    for field in fields(schema):
        tag = field.metadata.get("tag")
        step = _field(
            hints[field.name],
            field.metadata.get("kafka_type", ""),
            flexible=flexible,
            is_tagged=tag is not None,
        )
        if tag is None:
            plain.append(step)
        else:
            tagged[tag] = step
    if flexible:
        plain.append(_tags(tagged))
    return _sequence(_joined(plain))


def _field(hint: Any, kafka_type: str, *, flexible: bool, is_tagged: bool) -> FieldWalk:
    kind, is_optional = without_none(hint)
    if typing.get_origin(kind) is tuple:
        inner, _ = without_none(typing.get_args(kind)[0])
        element = _one(inner, kafka_type, flexible=flexible, is_optional=False)
        return _array(element, flexible=flexible, is_optional=is_optional)
    # A missing tagged struct has no tag, so it needs no null marker.
    return _one(kind, kafka_type, flexible=flexible, is_optional=is_optional and not is_tagged)


def _one(kind: Any, kafka_type: str, *, flexible: bool, is_optional: bool) -> FieldWalk:
    if hasattr(kind, "__dataclass_fields__"):
        step = step_over(kind)
        return _nullable(step) if is_optional else step
    size = _SIZES.get(kafka_type)
    if size is not None:
        return _fixed(size)
    assert kafka_type in ("string", "bytes", "records"), f"fields of type {kafka_type}"
    if kafka_type == "string":
        return _COMPACT_TEXT if flexible else _SHORT
    return _COMPACT if flexible else _LONG


def _fixed(size: int) -> FieldWalk:
    return FieldWalk(lambda walk, at: walk.past(at, size), size, is_fixed=True)


def _joined(steps: Sequence[FieldWalk]) -> list[FieldWalk]:
    """Merge neighbouring steps of fixed size into one."""
    found: list[FieldWalk] = []
    for step in steps:
        if found and step.is_fixed and found[-1].is_fixed:
            found[-1] = _fixed(found[-1].size_min + step.size_min)
        else:
            found.append(step)
    return found


def _sequence(steps: Sequence[FieldWalk]) -> FieldWalk:
    if len(steps) == 1:
        return steps[0]
    takes = tuple(step.take for step in steps)

    def take(walk: RequestWalk, at: int) -> int:
        for each in takes:
            at = each(walk, at)
        return at

    return FieldWalk(take, sum(step.size_min for step in steps), is_fixed=not steps)


def _nullable(step: FieldWalk) -> FieldWalk:
    """Return a step over a nullable struct: a marker below 0 means null (KIP-893)."""

    def take(walk: RequestWalk, at: int) -> int:
        behind = walk.past(at, 1)
        (mark,) = _INT8.unpack_from(walk.frame, at)
        return behind if mark < 0 else step.take(walk, behind)

    return FieldWalk(take, 1)


def _array(element: FieldWalk, *, flexible: bool, is_optional: bool) -> FieldWalk:
    # `kio` reads a null array as None also where the schema does not allow it; handlers must not
    # get it.
    count_min = -1 if is_optional else 0

    def take(walk: RequestWalk, at: int) -> int:
        if flexible:
            count, at = walk.varint(at)
            count -= 1
        else:
            behind = walk.past(at, 4)
            (count,) = _INT32.unpack_from(walk.frame, at)
            at = behind
        if count < count_min:
            raise InvalidRequest(
                f"array before byte {at}: length {count}; the least is {count_min}"
            )
        if count <= 0:
            return at
        walk.array(count, at, element.size_min)
        if element.is_fixed:
            return walk.past(at, count * element.size_min)
        for _ in range(count):
            at = element.take(walk, at)
        return at

    return FieldWalk(take, 1 if flexible else 4)


def _short_string(walk: RequestWalk, at: int) -> int:
    behind = walk.past(at, 2)
    (size,) = _INT16.unpack_from(walk.frame, at)
    return walk.past(behind, max(size, 0))


def _long_bytes(walk: RequestWalk, at: int) -> int:
    behind = walk.past(at, 4)
    (size,) = _INT32.unpack_from(walk.frame, at)
    return walk.past(behind, max(size, 0))


def _compact(walk: RequestWalk, at: int) -> int:
    size, behind = walk.varint(at)
    return walk.past(behind, max(size - 1, 0))


def _compact_text(walk: RequestWalk, at: int) -> int:
    size, behind = walk.varint(at)
    if size - 1 > TEXT_BYTES_MAX:  # a response of an older version could not carry it
        raise InvalidRequest(
            f"string at byte {at}: it has {size - 1} bytes; send at most {TEXT_BYTES_MAX}"
        )
    return walk.past(behind, max(size - 1, 0))


_SHORT: Final = FieldWalk(_short_string, 2)
_LONG: Final = FieldWalk(_long_bytes, 4)
_COMPACT: Final = FieldWalk(_compact, 1)
_COMPACT_TEXT: Final = FieldWalk(_compact_text, 1)


def _tags(known: dict[int, FieldWalk]) -> FieldWalk:
    """Return a step over the tagged fields at the end of a struct: each has a tag and a size."""

    def take(walk: RequestWalk, at: int) -> int:
        begin = at
        count, at = walk.varint(at)
        if count > TAGS_MAX:
            raise InvalidRequest(f"struct: {count} tagged fields; send at most {TAGS_MAX}")
        if count:
            walk.array(count, at, 2)
        kept: list[tuple[int, int]] = []
        behind_count, last = at, -1
        for _ in range(count):
            head = at
            tag, at = walk.varint(at)
            size, at = walk.varint(at)
            end = walk.past(at, size)
            if tag <= last:
                raise InvalidRequest(f"tagged field {tag}: not in ascending order, after {last}")
            step = known.get(tag)
            if step is not None:
                cuts = len(walk.cuts)
                if step.take(walk, at) != end:
                    raise InvalidRequest(f"tagged field {tag}: its size does not match its content")
                if len(walk.cuts) > cuts:  # cutting inside it would change its size too
                    raise InvalidRequest(f"tagged field {tag}: unknown tagged fields inside it")
                kept.append((head, end))
            last, at = tag, end
        if len(kept) < count:
            walk.cuts += _cuts(begin, behind_count, kept, at)
        return at

    return FieldWalk(take, 1)


def _cuts(
    begin: int, behind_count: int, kept: Sequence[tuple[int, int]], end: int
) -> list[RequestCut]:
    """Return the cuts that leave only the kept tagged fields: a new count, without the others."""
    assert len(kept) < 0x80, f"{len(kept)} known tagged fields need a longer count"
    found = [RequestCut(begin, behind_count, bytes([len(kept)]))]
    at = behind_count
    for head, behind in kept:
        found.append(RequestCut(at, head, b""))
        at = behind
    found.append(RequestCut(at, end, b""))
    return found
