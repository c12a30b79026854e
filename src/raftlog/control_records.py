"""Control records: leader changes, voter sets, and the header and footer of a snapshot.

They are byte-compatible with Kafka's dump tools (KIP-595, KIP-630, KIP-853). The key is version and
type, two bytes each; the value is a structure in the flexible encoding. Extensions are tagged
fields, which Kafka's readers skip. Pure.

The flexible encoding (KIP-482) has big-endian numbers, compact arrays and strings after an unsigned
varint of length + 1, and tagged fields at the end. Invalid bytes raise ValueError; the caller adds
the position.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from ..errors import CorruptionError, InvalidRequest
from ..ids import DirectoryId, NodeId, Offset
from ..records.batch import BatchHeader, parse_header
from ..records.codec import decode_batch, encode_batch
from ..records.record import Record
from .log_view import EntryKind
from .voters import Voter, VoterSet

if TYPE_CHECKING:
    from ..runtime.ports import Buffer

T = TypeVar("T")

NO_TAGS: bytes = b"\0"
"""The end of a structure without tagged fields."""


def varint(number: int) -> bytes:
    """Encode an unsigned number, seven bits per byte, lowest first."""
    assert number >= 0, f"{number} is below 0"
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def compact_string(text: str) -> bytes:
    """Encode a non-null string."""
    content = text.encode()
    return varint(len(content) + 1) + content


def compact_array(items: Iterable[bytes]) -> bytes:
    """Encode an array of encoded items."""
    encoded = tuple(items)
    return varint(len(encoded) + 1) + b"".join(encoded)


def tags(fields: Mapping[int, bytes]) -> bytes:
    encoded = (varint(tag) + varint(len(fields[tag])) + fields[tag] for tag in sorted(fields))
    return varint(len(fields)) + b"".join(encoded)


class Cursor:
    """A read position in an encoded structure."""

    __slots__ = ("_content", "_position")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        end = self._position + size
        if end > len(self._content):
            raise ValueError(f"{size} bytes needed, {len(self._content) - self._position} left")
        taken = self._content[self._position : end]
        self._position = end
        return taken

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        """Return the numbers of a fixed layout."""
        return layout.unpack(self.take(layout.size))

    def varint(self) -> int:
        """Return an unsigned number of at most five bytes."""
        number = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise ValueError("a number has more than five bytes")

    def string(self) -> str:
        """Return a compact string. Null is invalid."""
        length = self.varint()
        if length == 0:
            raise ValueError("a string is null")
        return self.take(length - 1).decode()

    def array(self, read: Callable[["Cursor"], T]) -> tuple[T, ...]:
        """Return a compact array, with `read` for each item. Null is invalid."""
        length = self.varint()
        if length == 0:
            raise ValueError("an array is null")
        if length - 1 > len(self._content):
            raise ValueError(f"an array of {length - 1} items in {len(self._content)} bytes")
        return tuple(read(self) for _ in range(length - 1))

    def tags(self) -> dict[int, bytes]:
        """Return the tagged fields, including unknown ones."""
        fields: dict[int, bytes] = {}
        for _ in range(self.varint()):
            tag = self.varint()
            fields[tag] = self.take(self.varint())
        return fields

    def end(self) -> None:
        """Raise ValueError if bytes follow."""
        if self._position != len(self._content):
            raise ValueError(f"{len(self._content) - self._position} bytes follow the end")


CHECKSUM_SIZE: Final = 16
"""The size of the footer's BLAKE2b checksum."""

_KEY: Final = struct.Struct(">hh")
_SHORT: Final = struct.Struct(">h")
_SHORTS: Final = struct.Struct(">hh")
_LEADER: Final = struct.Struct(">hi")
_HEADER: Final = struct.Struct(">hq")
_NODE: Final = struct.Struct(">i")
_PORT: Final = struct.Struct(">H")
_OFFSET: Final = struct.Struct(">q")
_DIRECTORY_SIZE: Final = 16
_LISTENER: Final = "CONTROLLER"
_KRAFT_VERSION: Final = 1  # voters are log records (KIP-853)
_KRAFT_VERSIONS: Final = (0, 1)  # supported by a voter
_END_OFFSET_TAG: Final = 5000
_CHECKSUM_TAG: Final = 5001


class ControlType(IntEnum):
    """The type in a control record's key. Persistent: values never change."""

    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    VOTERS = 6


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The no-op that opens a leader's epoch."""

    leader_id: NodeId
    voters: tuple[Voter, ...]
    granting: tuple[Voter, ...]  # voters that granted their vote, if recorded


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """The start of a snapshot of the state before this offset, or None if another server wrote
    it."""

    end_offset: Offset | None


@dataclass(frozen=True, slots=True)
class SnapshotFooter:
    """The end of a snapshot, with the checksum of every byte before the footer's batch."""

    checksum: bytes


@dataclass(frozen=True, slots=True)
class KRaftVersion:
    """The storage version of voters: 1, as log records."""

    version: int = _KRAFT_VERSION


Control = LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | VoterSet


# --- batches -----------------------------------------------------------------------------------


def control_batch(*controls: Control, base_offset: int, epoch: int, timestamp_ms: int = 0) -> bytes:
    """Return the batch of these records."""
    records = []
    for control in controls:
        key, value = encode_control(control)
        records.append(
            Record(offset=0, timestamp_ms=timestamp_ms, key=key, value=value, headers=())
        )
    return encode_batch(records, base_offset=base_offset, leader_epoch=epoch, is_control=True)


def decode_controls(content: "Buffer", position: int = 0) -> tuple[Control, ...]:
    """Return the records of the control batch at `position`. Raise CorruptionError."""
    header = parse_header(content, position)
    controls = []
    for record in decode_batch(content, position):
        try:
            controls.append(decode_control(record.key or b"", record.value or b""))
        except (ValueError, InvalidRequest) as error:
            raise CorruptionError(
                f"control record at offset {header.base_offset}: not readable; {error}",
                position=position,
            ) from error
    return tuple(controls)


def entry_kind(
    content: "Buffer", position: int, header: BatchHeader
) -> tuple[EntryKind, VoterSet | None]:
    """Return the kind of a log batch and its voter set. Raise CorruptionError."""
    if not header.is_control:
        return EntryKind.DATA, None
    match decode_controls(content, position):
        case (LeaderChange(),):
            return EntryKind.LEADER_CHANGE, None
        case (VoterSet() as voters,):
            return EntryKind.VOTERS, voters
        case _:
            raise CorruptionError(
                f"control batch at offset {header.base_offset}: not valid in a log",
                position=position,
            )


# --- records -----------------------------------------------------------------------------------


def encode_control(control: Control) -> tuple[bytes, bytes]:
    """Return key and value."""
    match control:
        case LeaderChange():
            kind = ControlType.LEADER_CHANGE
            value = _LEADER.pack(1, control.leader_id)
            value += _voters(control.voters) + _voters(control.granting) + NO_TAGS
        case SnapshotHeader():
            kind = ControlType.SNAPSHOT_HEADER
            offset = control.end_offset
            said = {} if offset is None else {_END_OFFSET_TAG: _OFFSET.pack(offset)}
            value = _HEADER.pack(0, 0) + tags(said)
        case SnapshotFooter():
            kind = ControlType.SNAPSHOT_FOOTER
            value = _SHORT.pack(0) + tags({_CHECKSUM_TAG: control.checksum})
        case KRaftVersion():
            kind = ControlType.KRAFT_VERSION
            value = _SHORTS.pack(0, control.version) + NO_TAGS
        case VoterSet():
            kind = ControlType.VOTERS
            members = (_member(voter, address) for voter, address in control.members)
            value = _SHORT.pack(0) + compact_array(members) + NO_TAGS
    return _KEY.pack(0, kind), value


def decode_control(key: bytes, value: bytes) -> Control:
    """Return the record. Raise ValueError if it is not readable, InvalidRequest if its voter set is
    invalid."""
    if len(key) != _KEY.size:
        raise ValueError(f"the key has {len(key)} bytes, not {_KEY.size}")
    kind = ControlType(_KEY.unpack(key)[1])
    cursor = Cursor(value)
    control: Control
    match kind:
        case ControlType.LEADER_CHANGE:
            _, leader_id = cursor.numbers(_LEADER)
            voters, granting = cursor.array(_read_voter), cursor.array(_read_voter)
            control = LeaderChange(NodeId(leader_id), voters, granting)
            cursor.tags()
        case ControlType.SNAPSHOT_HEADER:
            cursor.numbers(_HEADER)
            content = cursor.tags().get(_END_OFFSET_TAG)
            control = SnapshotHeader(None if content is None else _offset(content))
        case ControlType.SNAPSHOT_FOOTER:
            cursor.numbers(_SHORT)
            control = SnapshotFooter(cursor.tags().get(_CHECKSUM_TAG, b""))
        case ControlType.KRAFT_VERSION:
            _, version = cursor.numbers(_SHORTS)
            control = KRaftVersion(version)
            cursor.tags()
        case ControlType.VOTERS:
            cursor.numbers(_SHORT)
            control = VoterSet(cursor.array(_read_member))
            cursor.tags()
    cursor.end()
    return control


def _offset(content: bytes) -> Offset:
    if len(content) != _OFFSET.size:
        raise ValueError(f"an offset has {len(content)} bytes, not {_OFFSET.size}")
    return Offset(_OFFSET.unpack(content)[0])


def _voters(voters: tuple[Voter, ...]) -> bytes:
    return compact_array(
        _NODE.pack(voter.node_id) + voter.directory_id + NO_TAGS for voter in voters
    )


def _read_voter(cursor: Cursor) -> Voter:
    (node_id,) = cursor.numbers(_NODE)
    directory_id = cursor.take(_DIRECTORY_SIZE)
    cursor.tags()
    return Voter(NodeId(node_id), DirectoryId(directory_id))


def _member(voter: Voter, address: str) -> bytes:
    endpoints = [_endpoint(address)] if address else []
    return (
        _NODE.pack(voter.node_id)
        + voter.directory_id
        + compact_array(endpoints)
        + _SHORTS.pack(*_KRAFT_VERSIONS)
        + NO_TAGS
        + NO_TAGS
    )


def _endpoint(address: str) -> bytes:
    """Encode an address. An address other than "host:port" is stored whole, with port 0."""
    host, colon, digits = address.rpartition(":")
    is_port = digits.isascii() and digits.isdigit() and digits == str(int(digits))
    if not (colon and host and is_port and 0 < int(digits) < 2**16):
        host, digits = address, "0"
    return compact_string(_LISTENER) + compact_string(host) + _PORT.pack(int(digits)) + NO_TAGS


def _read_member(cursor: Cursor) -> tuple[Voter, str]:
    (node_id,) = cursor.numbers(_NODE)
    voter = Voter(NodeId(node_id), DirectoryId(cursor.take(_DIRECTORY_SIZE)))
    addresses = cursor.array(_read_endpoint)
    cursor.numbers(_SHORTS)
    cursor.tags()
    cursor.tags()
    return voter, addresses[0] if addresses else ""


def _read_endpoint(cursor: Cursor) -> str:
    cursor.string()
    host = cursor.string()
    (port,) = cursor.numbers(_PORT)
    cursor.tags()
    return f"{host}:{port}" if port else host
