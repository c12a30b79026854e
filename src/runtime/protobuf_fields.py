"""Manual protobuf encoding for messages whose batches must not be copied into an object.

A message object copies every `bytes` field when it is parsed, read, assigned and serialized. Here
such a field is a view of the received bytes, or a part that is joined once when the message is
sent. Groups are refused. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from .ports import Buffer

Q = TypeVar("Q", bound=Message)
M = TypeVar("M", bound=Message)

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5
INT32: Final = 1 << 32
INT64: Final = 1 << 64


def number_of(message: Any, field: str) -> int:
    """Return a field's number in the .proto file."""
    number: int = message.DESCRIPTOR.fields_by_name[field].number
    return number


# --- decoding ------------------------------------------------------------------------------------


def take_out(raw: bytes, field: int, at: int, end: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the message in [at, end) without the length-delimited fields of this number, and the
    ranges of their values. Raise DecodeError."""
    rest: list[bytes] = []
    found: list[tuple[int, int]] = []
    while at < end:
        begin = at
        number, kind, value, at = field_at(raw, at, end)
        if number == field and kind == LENGTH:
            found.append((value, at))
        else:
            rest.append(raw[begin:at])
    return b"".join(rest), found


def field_at(raw: bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """Return (field number, wire type, value, position after it).

    The value of a varint is its unsigned number, of other types the position of its first byte.
    """
    tag, at = varint_at(raw, at, end)
    field, kind = tag >> 3, tag & 7
    if not 1 <= field < 1 << 29:
        raise DecodeError(f"field number {field}")
    if kind == VARINT:
        value, behind = varint_at(raw, at, end)
        return field, kind, value, behind
    if kind == LENGTH:
        size, at = varint_at(raw, at, end)
    elif kind == FIXED64:
        size = 8
    elif kind == FIXED32:
        size = 4
    else:
        raise DecodeError(f"wire type {kind} of field {field}")
    if size > end - at:
        raise DecodeError(f"field {field} extends beyond the end")
    return field, kind, at, at + size


def varint_at(raw: bytes, at: int, end: int) -> tuple[int, int]:
    """Return an unsigned number and the position after it. Raise DecodeError."""
    value = shift = 0
    while at < end and shift < 70:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % INT64, at
        shift += 7
    raise DecodeError("a varint does not end")


def signed(value: int, modulus: int) -> int:
    """Return a varint as a signed value of a field with this modulus, INT32 or INT64."""
    value %= modulus
    return value - modulus if value >= modulus >> 1 else value


def text_of(raw: bytes) -> str:
    """Return the text of a string's bytes. Raise DecodeError."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"text is not UTF-8: {error}") from None


# --- encoding ------------------------------------------------------------------------------------


class EncodedMessage(Generic[M]):
    """A message of class M as parts of its encoding, joined once when it is sent."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self._parts = parts

    def SerializeToString(self, *, deterministic: bool = False) -> bytes:
        """Return the message's bytes, which are always deterministic."""
        return b"".join(self._parts)


def prefix(field: int, size: int) -> bytes:
    """Return the tag and length of a field of `size` bytes."""
    return encode_varint(field << 3 | LENGTH) + encode_varint(size)


def encode_varint(value: int) -> bytes:
    """Return the encoding of an unsigned number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# --- both ----------------------------------------------------------------------------------------


class Parts(Generic[Q, M]):
    """A message Q whose only repeated field has elements M with a `bytes` field of batches."""

    __slots__ = ("_batches", "_element", "_elements")

    def __init__(self, message: type[Q], elements: str, element: type[M], batches: str):
        self._element: Any = element
        self._elements = number_of(message, elements)
        self._batches = number_of(element, batches)

    def split(self, raw: bytes) -> tuple[bytes, list[tuple[M, memoryview]]]:
        """Return the message without its elements, and each element without its batches, with a
        view of them.

        Raise DecodeError as the message class would.
        """
        view = memoryview(raw)
        rest, places = take_out(raw, self._elements, 0, len(raw))
        found = []
        for at, end in places:
            head, batches = take_out(raw, self._batches, at, end)
            begin, behind = batches[-1] if batches else (0, 0)
            found.append((self._element.FromString(head), view[begin:behind]))
        return rest, found

    def join(self, message: Q, elements: Iterable[tuple[M, Sequence[Buffer]]]) -> EncodedMessage[Q]:
        """Encode the message without elements, and elements without batches, with these."""
        parts: list[Buffer] = [message.SerializeToString(deterministic=True)]
        for element, batches in elements:
            head = element.SerializeToString(deterministic=True)
            size = sum(map(len, batches))
            if size:
                head += prefix(self._batches, size)
            parts.append(prefix(self._elements, len(head) + size) + head)
            parts += batches
        return EncodedMessage(parts)
