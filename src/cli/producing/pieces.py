"""Bytes in, pieces between delimiters out.

A piece is bounded: of one that is longer than the limit nothing is kept, and it stands as an error
in its place, so that the pieces behind it are still found.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from ...errors import MessageTooLarge

Piece: TypeAlias = bytes | MessageTooLarge


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
