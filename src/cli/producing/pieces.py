"""Splitter of a byte stream at delimiters.

Pieces are bounded: a piece above the limit is discarded and yields an error in its position, and
later pieces are still found.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from ...errors import MessageTooLarge

Piece: TypeAlias = bytes | MessageTooLarge


def split(chunks: Iterable[bytes], delimiter: bytes, *, limit: int) -> Iterator[Piece]:
    """Yield the pieces between delimiters; a delimiter at the end of the input starts no piece.

    An empty delimiter yields the whole input as one piece. Memory: one chunk and one piece.
    """
    if not delimiter:
        yield _whole(chunks, limit)
        return
    overlap = len(delimiter) - 1
    held = bytearray()  # the start of the incomplete piece
    dropped = 0  # its discarded bytes, if it is too long
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
    return MessageTooLarge(f"the record has {size:,} bytes; the limit is {limit:,}")
