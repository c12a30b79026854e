"""Appends to a log: acceptance, reservation of offsets, and the write to the file.

`LogAppender.prepare` accepts batches and makes a `LogWrite`, the shell writes it with `write_fully`
(on the loop or in the write lane), and `complete` or `failed` ends it. A failed write is undone, or
the log fails.

Batches are accepted if they are valid, allowed for their origin, and contiguous with the log. The
usual append takes one call of the codec. Only if that call does not accept it, each rule is checked
in turn to find the error, if there is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ..errors import DiskFailed, InvalidRecord
from ..records.batch import (
    LENGTH_END,
    PREFIX_SIZE,
    BatchHeader,
    check_crc,
    client_batches,
    iterate_batches,
    parse_header,
    stamp,
)
from ..records.codec import sealed_headers, sound_header
from ..records.record import INT64_MAX, INT64_MIN, Body
from ..records.validate import (
    ANY_TIMESTAMP,
    TimestampLimits,
    ValidationMode,
    validate_batch,
    with_newest,
)
from .config import LogConfig
from .index import RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from ..runtime.ports import Buffer, File
    from .producer_state import Changes
    from .segment import Segment


Headers: TypeAlias = list[tuple[int, BatchHeader]]
"""(position in the buffer, header) of each batch."""


class AppendOrigin(Enum):
    """The origin of an append, which determines its validation."""

    CLIENT = "client"  # fully validated; offsets and epoch are stamped
    # built by this node: only the CRC is checked; offsets and epoch are stamped
    INTERNAL = "internal"
    REPLICATED = "replicated"  # stamped by a leader: offsets stay and must continue the log


BUFFERS_MAX: Final = 512
"""Maximum buffers per write call; the kernel's limit (IOV_MAX) is 1024."""


@dataclass(slots=True)
class BatchLocation:
    """The position of one batch in its segment. Not frozen: each append makes one."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int


class LogWrite:
    """An append with reserved offsets: `buffers` are written at `position` of `file`.

    Offsets are [base_offset, next_offset). Nothing is copied: the buffers are a stamped prefix and
    a view of the rest of the producer's bytes.
    """

    __slots__ = (
        "base_offset",
        "batches",
        "buffers",
        "file",
        "next_offset",
        "position",
        "producers",
        "segment",
        "size",
    )

    def __init__(
        self,
        segment: "Segment",
        file: "File",
        *,
        position: int,
        size: int,
        buffers: "list[Buffer]",
        batches: list[BatchLocation],
    ) -> None:
        self.segment = segment
        self.file = file
        self.base_offset = batches[0].base_offset
        self.next_offset = batches[-1].last_offset + 1
        self.position = position
        self.size = size
        self.buffers = buffers
        self.batches = batches
        self.producers: Changes = ()  # its changes to producers with ids

    @property
    def last_offset(self) -> int:
        """Offset of the last record (inclusive)."""
        return self.next_offset - 1


class WriteFailed(Exception):
    """A write did not reach the file completely. `is_undone`: the file has its former size."""

    def __init__(self, error: OSError, *, is_undone: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_undone = is_undone


def write_fully(
    file: "File", position: int, buffers: "Sequence[Buffer]", *, unsynced_bytes_max: int = 0
) -> None:
    """Write all buffers at `position`, completing short writes.

    With `unsynced_bytes_max` a longer write is synced in between, so that a power cut tears at most
    that many bytes. Raises WriteFailed after truncating the file to `position`, if possible.
    """
    left: Sequence[Buffer] = buffers
    at = synced = position
    while left:
        if unsynced_bytes_max and at - synced >= unsynced_bytes_max:
            _sync_between(file)
            synced = at
        most = unsynced_bytes_max - (at - synced) if unsynced_bytes_max else 0
        try:
            written = file.write(at, _take_buffers(left, most))
        except OSError as error:
            raise WriteFailed(error, is_undone=_is_truncated_back(file, position)) from error
        at += written
        left = _drop_bytes(left, written)


def _sync_between(file: "File") -> None:
    try:
        file.sync()
    except OSError as error:  # not undoable: earlier bytes may be lost already
        raise WriteFailed(error, is_undone=False) from error


def _take_buffers(buffers: "Sequence[Buffer]", most: int) -> "Sequence[Buffer]":
    """Return the buffers of one write call: at most BUFFERS_MAX, and `most` bytes if > 0."""
    accept_batch = buffers if len(buffers) <= BUFFERS_MAX else buffers[:BUFFERS_MAX]
    if not most:
        return accept_batch
    for index, buffer in enumerate(accept_batch):
        if most <= len(buffer):
            return [*accept_batch[:index], memoryview(buffer)[:most]]
        most -= len(buffer)
    return accept_batch


def _is_truncated_back(file: "File", size: int) -> bool:
    try:
        file.truncate(size)
    except OSError:
        return False
    return True


def _drop_bytes(buffers: "Sequence[Buffer]", count: int) -> "Sequence[Buffer]":
    """Return the buffers after the first `count` bytes."""
    for index, buffer in enumerate(buffers):
        if count < len(buffer):
            rest: Buffer = memoryview(buffer)[count:] if count else buffer
            return [rest, *buffers[index + 1 :]]
        count -= len(buffer)
    assert count == 0, f"{count} more bytes written than passed"
    return []


class AcceptedBatch(NamedTuple):
    """One batch of a client, as the log stores it."""

    batch: "Buffer"
    header: BatchHeader
    body: Body | None  # its records inflated; None if they were not checked
    is_changed: bool  # the batch differs from the client's


def accept_batch(
    batches: "Buffer",
    position: int,
    header: BatchHeader,
    config: LogConfig,
    *,
    wall_ms: int,
    inflate_limit: int | None = None,
    is_walked: bool = False,
) -> AcceptedBatch:
    """Validate one batch of a client under the log's config. A header that understates the newest
    timestamp is corrected, see `with_newest`. Raises the errors of `validate_batch`.

    `inflate_limit` overrides the config's limit, `is_walked` its validation mode.
    """
    limits = TimestampLimits(wall_ms, config.timestamp_before_max_ms, config.timestamp_after_max_ms)
    limit = config.inflate_bytes_max if inflate_limit is None else inflate_limit
    check = partial(
        validate_batch,
        mode=ValidationMode.FULL if is_walked else config.record_validation,
        max_bytes=config.message_bytes_max,
        inflate_limit=limit,
        keys_required=config.compacted,
        timestamps=ANY_TIMESTAMP if config.log_append_time else limits,
    )
    try:
        body = check(batches, position, header)
    except InvalidRecord:
        better = with_newest(batches, position, header, inflate_limit=limit)
        if better is None:
            raise
        header = parse_header(better)
        return AcceptedBatch(better, header, check(better, 0, header), True)
    return AcceptedBatch(
        memoryview(batches)[position : position + header.size], header, body, False
    )


def headers_of(batches: "Buffer") -> Headers:
    """Return (position, header) of each batch of a client's append; raises CorruptionError for torn
    batches, InvalidRecord if there is no batch or more than BATCHES_MAX."""
    if not len(batches):
        raise InvalidRecord("the append has no batch")
    header = parse_header(batches)
    if header.size == len(batches):
        return [(0, header)]  # the usual case
    return list(client_batches(batches))


def check_epoch(folder: str, leader_epoch: int, *, latest: int) -> None:
    """Raise DiskFailed if a log holds a later epoch than its leader's: the leader has the newest
    epoch of its cluster, so another cluster wrote the folder."""
    if leader_epoch < latest:
        raise DiskFailed(
            f"{folder} holds batches of leader epoch {latest}, above the partition's epoch"
            f" {leader_epoch}; another cluster wrote it; it can be read, not appended to"
        )


def extent(headers: Headers) -> tuple[int, int]:
    """Return (number of offsets, largest timestamp) of the batches."""
    if len(headers) == 1:
        header = headers[0][1]
        return header.last_offset_delta + 1, header.max_timestamp
    offsets = sum(header.last_offset_delta + 1 for _, header in headers)
    return offsets, max(header.max_timestamp for _, header in headers)


def stamp_batches(
    batches: "Buffer", headers: Headers, position: int, next_offset: int, leader_epoch: int
) -> "tuple[list[Buffer], list[BatchLocation]]":
    """Stamp offsets and epoch; return the buffers to write and the position of each batch."""
    view = memoryview(batches)
    buffers: list[Buffer] = []
    placed = []
    for at, header in headers:
        size = header.batch_length + LENGTH_END
        last_offset = next_offset + header.last_offset_delta
        buffers.append(stamp(header, base_offset=next_offset, leader_epoch=leader_epoch))
        buffers.append(view[at + PREFIX_SIZE : at + size])
        placed.append(
            BatchLocation(
                position + at, size, next_offset, last_offset, header.max_timestamp, leader_epoch
            )
        )
        next_offset = last_offset + 1
    return buffers, placed


def place_batches(headers: Headers, position: int) -> list[BatchLocation]:
    return [
        BatchLocation(
            position + at,
            header.size,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            header.leader_epoch,
        )
        for at, header in headers
    ]


def accept_append(
    batches: "Buffer", config: LogConfig, *, origin: AppendOrigin, wall_ms: int
) -> tuple["Buffer", Headers]:
    """Return the batches of an append and their headers: whole batches with valid CRCs, and a
    client's batches as the config requires. The result is the same object unless `accept_batch`
    changes a batch. Raises the errors of `validate_batch`, InvalidRecord if there is no batch."""
    if origin is AppendOrigin.CLIENT:
        headers = sound_headers(batches, config, wall_ms)
    else:
        headers = sealed_headers(batches)
    if headers is not None:
        return batches, headers
    if origin is not AppendOrigin.CLIENT:
        if not len(batches):
            raise InvalidRecord("the append has no batch")
        headers = list(iterate_batches(batches))
        for position, header in headers:
            check_crc(batches, position, header)
        return batches, headers
    headers = headers_of(batches)
    parts = [
        accept_batch(batches, position, header, config, wall_ms=wall_ms)
        for position, header in headers
    ]
    if any(part.is_changed for part in parts):
        batches = b"".join(part.batch for part in parts)
        headers = headers_of(batches)
    return batches, headers


def sound_headers(batches: "Buffer", config: LogConfig, wall_ms: int) -> Headers | None:
    """Return the header of a client's single uncompressed batch if it is valid, else None."""
    if len(batches) > config.message_bytes_max:
        return None
    oldest_ms, newest_ms = INT64_MIN, INT64_MAX
    if not config.log_append_time:
        oldest_ms = max(oldest_ms, wall_ms - config.timestamp_before_max_ms)
        newest_ms = min(newest_ms, wall_ms + config.timestamp_after_max_ms)
    header = sound_header(
        batches, keys_required=config.compacted, oldest_ms=oldest_ms, newest_ms=newest_ms
    )
    return None if header is None else [(0, header)]


def check_contiguous(
    headers: Headers, next_offset: int, *, latest_epoch: int, may_have_gaps: bool
) -> None:
    """Raise InvalidRecord unless a leader's batches continue a log that ends at `next_offset`."""
    epoch = latest_epoch
    span = headers[-1][1].next_offset - next_offset
    if span > RELATIVE_OFFSET_MAX:
        raise InvalidRecord(
            f"a replicated batch ends {span} offsets after the log end, {next_offset}; an index"
            f" spans {RELATIVE_OFFSET_MAX}; delete the replica's log to start it after the gap"
        )
    for _, header in headers:
        expected = header.base_offset == next_offset
        if not expected and not (may_have_gaps and header.base_offset > next_offset):
            raise InvalidRecord(
                f"a replicated batch starts at {header.base_offset}, the log ends at {next_offset}"
            )
        if header.leader_epoch < epoch:
            raise InvalidRecord(
                f"a replicated batch of epoch {header.leader_epoch} follows epoch {epoch}"
            )
        next_offset, epoch = header.next_offset, header.leader_epoch
