"""Bytes in, pieces between delimiters out; how delimiters are written on a command line.

A piece is bounded: of one that is longer than the limit nothing is kept, and it stands as an error
in its place, so that the pieces behind it are still found.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from ..errors import MessageTooLarge

Piece: TypeAlias = bytes | MessageTooLarge

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def unescape(text: str) -> str:
    r"""Return text with \n, \t, \r, \0, \\ and \xHH as the characters that they stand for; raises
    ValueError for another escape. \xHH above 7F is that byte, as `encode_escaped` writes it."""

    def character(match: re.Match[str]) -> str:
        name = match[1]
        if len(name) == 3:
            code = int(name[1:], 16)
            return chr(code) if code < 0x80 else chr(0xDC00 + code)
        if name not in _NAMED:
            raise ValueError(f"\\{name} is no escape: there are \\n \\t \\r \\0 \\\\ \\xHH")
        return _NAMED[name]

    return _ESCAPE.sub(character, text)


def encode_escaped(text: str) -> bytes:
    """Return the bytes of a text that `unescape` made."""
    return text.encode("utf-8", "surrogateescape")


def split(chunks: Iterable[bytes], delimiter: bytes, *, limit: int) -> Iterator[Piece]:
    """Yield what is between delimiters, in order; a delimiter at the very end begins no piece.

    An empty delimiter makes one piece of everything. Memory: a chunk and a piece.
    """
    if not delimiter:
        yield _whole(chunks, limit)
        return
    overlap = len(delimiter) - 1
    held = bytearray()  # of the piece that has no end yet
    dropped = 0  # bytes of it that are gone, because it is too long
    for chunk in chunks:
        if held or dropped:
            searched = max(0, len(held) - overlap)
            held += chunk
            end = held.find(delimiter, searched)
            if end < 0:
                if dropped + len(held) - overlap > limit:
                    gone = len(held) - overlap
                    dropped += gone
                    del held[:gone]
                continue
            yield _bounded(bytes(held[:end]), dropped, limit)
            chunk = bytes(held[end + len(delimiter) :])
            dropped = 0
        *whole, rest = chunk.split(delimiter)
        for piece in whole:
            yield piece if len(piece) <= limit else _too_large(len(piece), limit)
        held = bytearray(rest)
    if held or dropped:
        yield _bounded(bytes(held), dropped, limit)


def _whole(chunks: Iterable[bytes], limit: int) -> Piece:
    held = bytearray()
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size <= limit:
            held += chunk
        else:
            held.clear()
    return bytes(held) if size <= limit else _too_large(size, limit)


def _bounded(piece: bytes, dropped: int, limit: int) -> Piece:
    size = dropped + len(piece)
    return piece if size <= limit else _too_large(size, limit)


def _too_large(size: int, limit: int) -> MessageTooLarge:
    return MessageTooLarge(f"{size:,} bytes are more than a record may have, {limit:,}")
