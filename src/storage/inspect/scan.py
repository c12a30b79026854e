"""Scan of a .log file from end to end, continuing after invalid parts.

Each batch is verified by itself: magic, length, CRC-32C, codec, and every record (number, lengths,
offsets and timestamps), all in compiled code. A range without a valid batch is returned as one
`InvalidRange`, and the scan searches for the next valid batch. Memory is bounded by `WINDOW_SIZE`
and the largest batch with a valid CRC: the content of a header causes no allocation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ...errors import CorruptionError, MessageTooLarge, QuorumlogError
from ...records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    OFFSET_MAX,
    BatchHeader,
    parse_header,
)
from ...records.checksum import crc32c
from ...records.codec import batch_body, decode_columns, sound_header, walk
from ...records.columns import WANT_OFFSET
from ...records.compression import INFLATE_LIMIT
from ...records.record import INT64_MAX, INT64_MIN, Malformed

if TYPE_CHECKING:
    from ...runtime.ports import File

WINDOW_SIZE: Final = 4 * 1024 * 1024
"""Bytes per read."""

STREAMED_SIZE: Final = 16 * 1024 * 1024
"""A larger batch is read as a whole only after its CRC was verified, a window at a time."""

LENGTH: Final = Struct(">i")
LENGTH_AT: Final = 8
MAGIC_AT: Final = 16
ATTRIBUTES_AT: Final = 22
"""The lower byte of the attributes."""
NOT_PLAIN: Final = 0x6F
"""Attributes: compressed, log append time, control, delete horizon."""
OFFSETS_AHEAD: Final = 2**31
"""Offsets that an invalid range may have held."""


class ValidBatch(NamedTuple):
    """A batch that is valid by itself.

    `content[at : at + header.size]` are its bytes; they are not kept after the next step. A tuple
    instead of a dataclass: one is created for every batch.
    """

    position: int
    header: BatchHeader
    content: bytes
    at: int
    fault: str | None = None  # its CRC is valid, but its records are not
    is_unproven: bool = False  # it inflates beyond the limit


@dataclass(frozen=True, slots=True)
class InvalidRange:
    """The range [position, end) without a valid batch; `end` is the next valid batch, or the file's
    end."""

    position: int
    end: int
    reason: str
    header: BatchHeader | None  # if readable; its fields may be wrong


Piece: TypeAlias = ValidBatch | InvalidRange


def scan(
    file: "File",
    position: int,
    end: int,
    *,
    next_offset: int,
    inflate_limit: int = INFLATE_LIMIT,
    with_records: bool = True,
) -> Iterator[Piece]:
    """Yield the content of [position, end), in order and without a gap. May wait for the device.

    After an invalid range, only batches above `next_offset`, or above the last valid batch, are
    accepted: record bytes may look like a batch. Without `with_records` only the CRC is checked,
    not the records.
    """
    window = _Window(file, end)
    while position < end:
        limit = inflate_limit if with_records else None
        for good in _goods(window.content, position - window.start, position, limit):
            header = good.header
            position = good.position + header.batch_length + LENGTH_END
            next_offset = max(next_offset, header.base_offset + header.last_offset_delta + 1)
            yield good
        if position >= end:
            return
        reason, found = _prove(window, position, end)
        if reason is None and found is not None:
            content, at = window.take(position, found.size)
            if len(content) - at >= found.size:
                continue  # it is in the window now
            reason = f"the file ends within a batch of {found.size} bytes"
        following = _next_good(window, position, end, found, next_offset)
        yield InvalidRange(position, following, reason or "", found)
        position = following


def _goods(
    content: bytes, at: int, position: int, inflate_limit: int | None
) -> Iterator[ValidBatch]:
    """Yield the batches from content[at] with valid headers and CRCs, as far as they are complete;
    `_prove` decides about the next one. Without a limit the records are not checked."""
    view, limit = memoryview(content), len(content)
    while 0 <= at <= limit - HEADER_SIZE:
        size = LENGTH.unpack_from(content, at + LENGTH_AT)[0] + LENGTH_END
        if size < HEADER_SIZE or size > limit - at:
            return
        header = None
        if inflate_limit is not None and not content[at + ATTRIBUTES_AT] & NOT_PLAIN:
            header = sound_header(
                view[at : at + size],
                keys_required=False,
                oldest_ms=INT64_MIN,
                newest_ms=INT64_MAX,
            )  # most batches take one call: header, CRC and records
        if header is not None:
            yield ValidBatch(position, header, content, at)
        else:
            header = BatchHeader._make(HEADER.unpack_from(content, at))
            if header.magic != MAGIC or crc32c(view[at + CRC_START : at + size]) != header.crc:
                return
            good = ValidBatch(position, header, content, at)
            yield good if inflate_limit is None else _proven(good, inflate_limit)
        at += size
        position += size


def _proven(good: ValidBatch, inflate_limit: int) -> ValidBatch:
    """Return the batch with the result of the check of its records."""
    fault, is_unproven = check_records(good.content, good.at, good.header, inflate_limit)
    if fault is None and not is_unproven:
        return good
    return good._replace(fault=fault, is_unproven=is_unproven)


class _Window:
    """The bytes of a file around the current position, read in large pieces."""

    def __init__(self, file: "File", end: int) -> None:
        self._file = file
        self._end = end
        self.content = b""
        self.start = 0  # its position in the file

    def take(self, position: int, size: int) -> tuple[bytes, int]:
        """Return (content, at): `size` bytes from `position` start at content[at], fewer at the
        end."""
        at = position - self.start
        if at < 0 or at + size > len(self.content):
            wanted = min(max(size, WINDOW_SIZE), self._end - position)
            self.content = self._file.read(position, wanted)
            while len(self.content) < min(size, wanted):  # short reads
                more = self._file.read(position + len(self.content), wanted - len(self.content))
                if not more:
                    break  # the file was truncated
                self.content += more
            self.start, at = position, 0
        return self.content, at

    def crc(self, position: int, end: int) -> int:
        """Return the CRC-32C of [position, end), with at most a window in memory."""
        crc = 0
        while position < end:
            part = self._file.read(position, min(WINDOW_SIZE, end - position))
            if not part:
                break
            crc = crc32c(part, crc)
            position += len(part)
        return crc


def _prove(window: _Window, position: int, end: int) -> tuple[str | None, BatchHeader | None]:
    """Return (reason, header): the reason is None for a valid batch, the header None without
    one."""
    content, at = window.take(position, min(HEADER_SIZE, end - position))
    try:
        header = parse_header(content, at)
    except CorruptionError as error:
        there = len(content) - at >= HEADER_SIZE
        return error.message, BatchHeader(*HEADER.unpack_from(content, at)) if there else None
    size = header.size
    if position + size > end:
        return f"a batch of {size} bytes reaches {position + size - end} beyond the end", header
    if size > STREAMED_SIZE:
        crc = window.crc(position + CRC_START, position + size)
    else:
        content, at = window.take(position, size)
        crc = crc32c(memoryview(content)[at + CRC_START : at + size])
    if crc != header.crc:
        return f"its CRC-32C is {crc:08x}, its header has {header.crc:08x}", header
    return None, header


def check_records(
    content: bytes, at: int, header: BatchHeader, inflate_limit: int
) -> tuple[str | None, bool]:
    """Return (fault of the records of a batch with a valid CRC, True if they inflate beyond the
    limit)."""
    delta, base = header.last_offset_delta, header.base_offset
    if delta < 0 or not 0 <= base <= OFFSET_MAX - delta:
        return None, False  # reported by the check of offsets
    try:
        if header.record_count == delta + 1:
            body = batch_body(content, at, header, inflate_limit=inflate_limit)
            walk(
                body,
                min_timestamp=INT64_MIN,
                max_timestamp=header.max_timestamp,
                keys_required=False,
            )
        else:  # compaction removed some of them
            batch = memoryview(content)[at : at + header.size]
            decode_columns(
                batch, wanted=WANT_OFFSET, with_control=True, inflate_limit=inflate_limit
            )
    except MessageTooLarge:
        return None, True
    except (Malformed, QuorumlogError) as error:
        return str(error) if isinstance(error, Malformed) else error.message, False
    return None, False


def _next_good(
    window: _Window, position: int, end: int, header: BatchHeader | None, next_offset: int
) -> int:
    """Return the position of the next valid batch after an invalid one, `end` without one."""
    if header is not None and header.batch_length > 0:
        following = position + header.batch_length + LENGTH_END
        if following == end or (following < end and _prove(window, following, end)[0] is None):
            return following
    position += 1
    while position + HEADER_SIZE <= end:
        content, at = window.take(position, HEADER_SIZE)
        found = content.find(MAGIC, at + MAGIC_AT)
        while found >= 0:
            candidate = position + found - at - MAGIC_AT
            if candidate + HEADER_SIZE > end:
                return end
            if _is_likely(content, found - MAGIC_AT, candidate, end, next_offset):
                reason, _ = _prove(window, candidate, end)
                if reason is None:
                    return candidate
                content, at = window.take(candidate, HEADER_SIZE)
                position, found = candidate, at + MAGIC_AT
            found = content.find(MAGIC, found + 1)
        position += max(1, len(content) - at - MAGIC_AT)
    return end


def _is_likely(content: bytes, at: int, position: int, end: int, next_offset: int) -> bool:
    """Return True if a batch may start at `position`, or if its header is incomplete.

    The test is so strict that among other bytes hardly any position needs a CRC.
    """
    if at < 0 or len(content) - at < HEADER_SIZE:
        return True
    fields = HEADER.unpack_from(content, at)
    base, length, last_delta, count = fields[0], fields[1], fields[6], fields[12]
    return bool(
        HEADER_SIZE - LENGTH_END <= length <= min(end - position, STREAMED_SIZE) - LENGTH_END
        and next_offset <= base <= next_offset + OFFSETS_AHEAD
        and last_delta >= 0
        and 0 <= count <= last_delta + 1
    )
