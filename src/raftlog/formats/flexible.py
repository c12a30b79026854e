"""Kafka's flexible encoding (KIP-482), as far as control records use it.

Numbers are big-endian. Compact arrays and strings start with an unsigned varint of length + 1.
Tagged fields are at the end. Pure. Invalid bytes raise ValueError; the caller adds the position.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

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
