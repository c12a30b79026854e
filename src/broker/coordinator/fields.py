"""Encodings of the fields in keys and values of the coordinators' topics.

Integers are big-endian. Strings, bytes and arrays follow their length. In flexible versions that is
a varint of the length + 1, and every structure ends with its tagged fields.
"""

from collections.abc import Callable, Iterable
from struct import Struct, error
from typing import Final, TypeVar

from ...errors import CorruptionError

T = TypeVar("T")

INT8: Final = Struct(">b")
INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")
INT16_MAX: Final = 2**15 - 1
VARINT_BYTES_MAX: Final = 5


class MalformedField(Exception):
    """The bytes do not match their type and version; the text gives the reason."""


def malformed_record(
    topic: str, error: Exception, *, offset: int, partition: int | None
) -> CorruptionError:
    """Return the error of a record with a malformed key or value."""
    return CorruptionError(
        f"{topic}: record {offset} is malformed: {error}",
        position=offset,
        topic=topic,
        partition=partition,
    )


class FieldWriter:
    """Encodes fields to the end of `out`."""

    __slots__ = ("_flexible", "out")

    def __init__(self, version: int, *, flexible: bool) -> None:
        """Start with the type of a key or the version of a value."""
        self.out = bytearray(INT16.pack(version))
        self._flexible = flexible

    def int8(self, value: int) -> None:
        self.out += INT8.pack(value)

    def int16(self, value: int) -> None:
        self.out += INT16.pack(value)

    def int32(self, value: int) -> None:
        self.out += INT32.pack(value)

    def int64(self, value: int) -> None:
        self.out += INT64.pack(value)

    def raw(self, value: bytes) -> None:
        self.out += value

    def text(self, value: str | None) -> None:
        """Encode a string; raise ValueError if its length exceeds the limit of the version."""
        if value is None:
            self.out += b"\0" if self._flexible else b"\xff\xff"
            return
        content = value.encode()
        if self._flexible:
            self.varint(len(content) + 1)
        elif len(content) > INT16_MAX:
            raise ValueError(f"a string has {len(content)} bytes; the limit is {INT16_MAX}")
        else:
            self.out += INT16.pack(len(content))
        self.out += content

    def content(self, value: bytes) -> None:
        """Encode a byte string."""
        self._length(len(value))
        self.out += value

    def items(self, values: Iterable[T], put: Callable[[T], None]) -> None:
        """Encode an array; `put` encodes one item."""
        listed = list(values)
        self._length(len(listed))
        for value in listed:
            put(value)

    def varint(self, value: int) -> None:
        while value > 0x7F:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)

    def end(self, tagged: Iterable[tuple[int, bytes]] = ()) -> None:
        """End a structure with its tagged fields, by ascending tag; no-op if the version is not
        flexible."""
        if not self._flexible:
            return
        listed = list(tagged)
        self.varint(len(listed))
        for tag, content in listed:
            self.varint(tag)
            self.varint(len(content))
            self.out += content

    def _length(self, length: int) -> None:
        if self._flexible:
            self.varint(length + 1)
        else:
            self.out += INT32.pack(length)


class FieldReader:
    """Decodes fields from the front of a buffer; every method raises Malformed on invalid bytes."""

    __slots__ = ("_at", "_buffer", "flexible")

    def __init__(self, buffer: bytes, at: int = 0) -> None:
        self._buffer = buffer
        self._at = at
        self.flexible = False

    def int8(self) -> int:
        return self._number(INT8)

    def int16(self) -> int:
        return self._number(INT16)

    def int32(self) -> int:
        return self._number(INT32)

    def int64(self) -> int:
        return self._number(INT64)

    def raw(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._buffer):
            raise MalformedField(
                f"{size} bytes at position {self._at} exceed the {len(self._buffer)} bytes"
            )
        found = bytes(self._buffer[self._at : end])
        self._at = end
        return found

    def maybe_text(self) -> str | None:
        length = self.varint() - 1 if self.flexible else self.int16()
        if length == -1:
            return None
        try:
            return self.raw(length).decode()
        except UnicodeDecodeError:
            raise MalformedField(
                f"the string that ends at position {self._at} is not UTF-8"
            ) from None

    def text(self) -> str:
        found = self.maybe_text()
        if found is None:
            raise MalformedField(f"null before position {self._at} in shift of a string")
        return found

    def content(self) -> bytes:
        return self.raw(self._length())

    def maybe_items(self, take: Callable[[], T]) -> list[T] | None:
        """Decode an array that may be null."""
        count = self._length()
        return None if count == -1 else self._items(count, take)

    def items(self, take: Callable[[], T]) -> list[T]:
        return self._items(self._length(), take)

    def _items(self, count: int, take: Callable[[], T]) -> list[T]:
        if not 0 <= count <= len(self._buffer) - self._at:  # every item has at least one byte
            raise MalformedField(
                f"{count} items before position {self._at} exceed the {len(self._buffer)} bytes"
            )
        return [take() for _ in range(count)]

    def varint(self) -> int:
        value, shift = 0, 0
        for byte in self._buffer[self._at : self._at + VARINT_BYTES_MAX]:
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise MalformedField(f"the varint before position {self._at} is incomplete or too long")

    def end(self) -> dict[int, bytes]:
        """End a structure; return its tagged fields."""
        found: dict[int, bytes] = {}
        if self.flexible:
            for _ in range(self.varint()):
                tag = self.varint()
                found[tag] = self.raw(self.varint())
        return found

    def _length(self) -> int:
        return self.varint() - 1 if self.flexible else self.int32()

    def numbers(self, form: Struct) -> tuple[int, ...]:
        """Decode adjacent integers."""
        try:
            values: tuple[int, ...] = form.unpack_from(self._buffer, self._at)
        except error:
            raise MalformedField(
                f"integers of {form.size} bytes at position {self._at} exceed the"
                f" {len(self._buffer)} bytes"
            ) from None
        self._at += form.size
        return values

    def _number(self, form: Struct) -> int:
        return self.numbers(form)[0]
