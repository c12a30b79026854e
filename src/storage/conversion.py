"""Conversion of a client's batches before `LogAppender.prepare`: validation, codec and timestamps.

Pure. Three steps, in this order:

- Validate each batch as the topic requires (`records.validate`), and correct a header that
  understates its newest timestamp.
- If `compression.type` names another codec than the batch has, recompress its records under the
  same header (producer, sequence, attributes). Its records are then checked in either mode of
  `record.validation`, since they are inflated anyway.
- If `message.timestamp.type` is LogAppendTime, set the log's time in the header. The records stay
  unchanged, compressed or not; readers use the time of the header.

`admit` performs the first two; they may take long, so a lane may run them in advance. `stamp`
performs the third; it runs in log order, so that timestamps ascend with offsets while the clock
does. A batch that needs no change is not copied.

Bounds: `inflate_bytes_max` limits the inflated size of a batch and the converted size of an append.
No batch is stored above `message_bytes_max`, before or after recompression.
"""

from struct import Struct
from typing import TYPE_CHECKING, Final

from ..errors import MessageTooLarge, QuorumlogError
from ..records.batch import CODEC_MASK, HEADER_SIZE, LENGTH_END, BatchHeader
from ..records.compression import Codec
from ..records.record import Body
from ..records.validate import ValidationMode, check_size, with_append_time, with_records
from .append import AcceptedBatch, accept_batch, headers_of
from .config import LogConfig

if TYPE_CHECKING:
    from ..runtime.ports import Buffer

COMPRESSION_WEIGHT: Final = 16
"""Cost of compressing a byte, in units of inflating and checking one."""

WORK_RATIO: Final = 4
"""The inflated size allowed on the loop, as a multiple of the size that goes to the lane
directly."""

_LENGTH: Final = Struct(">i")
_LENGTH_START: Final = LENGTH_END - _LENGTH.size
_CODEC_BYTE: Final = 22


class TooMuchWork(Exception):
    """The batches would block the loop too long; a lane must process them."""


def is_plain(batches: "Buffer", config: LogConfig) -> bool:
    """Return True if `LogAppender.prepare` needs no conversion: one uncompressed batch, stored
    unchanged."""
    return (
        len(batches) >= HEADER_SIZE
        and not batches[_CODEC_BYTE] & CODEC_MASK
        and not config.converts
        and _LENGTH.unpack_from(batches, _LENGTH_START)[0] + LENGTH_END == len(batches)
    )


def is_worth_a_lane(batches: "Buffer", config: LogConfig, bytes_min: int) -> bool:
    """Return True if `admit` would block the loop too long, judged by size: the batches are large
    and at least one must be inflated or compressed. Malformed batches give False: they are rejected
    unread."""
    if len(batches) <= bytes_min:
        return False
    try:
        return any(
            _must_inflate(header, config) or _must_compress(header, config)
            for _, header in headers_of(batches)
        )
    except QuorumlogError:
        return False


def growth_max(batches: "Buffer", config: LogConfig) -> int:
    """Return the largest number of bytes by which `admit` can grow the batches."""
    if config.compression_type is None:
        return 0
    count = len(headers_of(batches))
    bound = min(_total_max(batches, config), count * config.message_bytes_max)
    return max(0, bound - len(batches))


def admit(
    batches: "Buffer", config: LogConfig, *, wall_ms: int, bytes_min: int | None = None
) -> "Buffer":
    """Return the batches of one append validated and in the topic's codec; the same object if
    nothing changes.

    With `bytes_min` (see `DirectoryConfig.cpu_lane_bytes_min`) raises TooMuchWork if that would
    block the loop too long, after at most the allowed work. Raises the errors of `validate_batch`,
    and MessageTooLarge if recompression exceeds a limit.
    """
    work_left = None if bytes_min is None else WORK_RATIO * bytes_min
    parts: list[Buffer] = []
    is_changed = False
    total = 0
    for position, given in headers_of(batches):
        part, header, body, is_corrected = _walked(
            batches, position, given, config, wall_ms, work_left
        )
        is_changed = is_changed or is_corrected
        if work_left is not None and body is not None:
            work_left -= _work(header, config, body)
        if body is not None and _must_change(header, config):
            part = _recompressed(header, config, body)
            is_changed = True
        total += len(part)
        if is_changed and total > _total_max(batches, config):
            raise MessageTooLarge(
                f"an append of {len(batches)} bytes exceeds {_total_max(batches, config)} bytes"
                f" {_codec_clause(config)}; send fewer batches at once"
            )
        parts.append(part)
    return b"".join(parts) if is_changed else batches


def stamp(batches: "Buffer", *, timestamp_ms: int) -> bytes:
    """Return the batches with the log's time for every record; the records are unchanged."""
    stamped = [
        with_append_time(batches, position, header, timestamp_ms=timestamp_ms)
        for position, header in headers_of(batches)
    ]
    return stamped[0] if len(stamped) == 1 else b"".join(stamped)


def _must_change(header: BatchHeader, config: LogConfig) -> bool:
    return config.compression_type not in (None, header.attributes & CODEC_MASK)


def _must_inflate(header: BatchHeader, config: LogConfig) -> bool:
    if not header.attributes & CODEC_MASK:
        return False
    return config.record_validation is ValidationMode.FULL or _must_change(header, config)


def _must_compress(header: BatchHeader, config: LogConfig) -> bool:
    return _must_change(header, config) and config.compression_type is not Codec.NONE


def _work(header: BatchHeader, config: LogConfig, body: Body) -> int:
    """Return the cost of a batch, in bytes inflated."""
    weight = COMPRESSION_WEIGHT if _must_compress(header, config) else 1
    return weight * (body.end - body.start)


def _walked(
    batches: "Buffer",
    position: int,
    header: BatchHeader,
    config: LogConfig,
    wall_ms: int,
    work_left: int | None,
) -> AcceptedBatch:
    """Validate a batch, see `accept_batch`; raises TooMuchWork."""
    check_size(header.size, config.message_bytes_max)
    limit = config.inflate_bytes_max
    compresses = _must_compress(header, config)
    if work_left is not None and (compresses or _must_inflate(header, config)):
        limit = min(limit, max(0, work_left) // (COMPRESSION_WEIGHT if compresses else 1))
        if header.size - HEADER_SIZE > limit:
            raise TooMuchWork
    try:
        return accept_batch(
            batches,
            position,
            header,
            config,
            wall_ms=wall_ms,
            inflate_limit=limit,
            is_walked=_must_change(header, config),
        )
    except MessageTooLarge:
        if limit < config.inflate_bytes_max:
            raise TooMuchWork from None
        raise


def _recompressed(header: BatchHeader, config: LogConfig, body: Body) -> bytes:
    assert config.compression_type is not None, "the topic keeps the producer's codec"
    records = memoryview(body.buffer)[body.start : body.end]
    packed = with_records(header, records, codec=config.compression_type)
    if len(packed) > config.message_bytes_max:
        raise MessageTooLarge(
            f"a batch of {header.size} bytes takes {len(packed)} {_codec_clause(config)}; the"
            f" topic's max.message.bytes is {config.message_bytes_max}; send smaller batches, raise"
            " the limit, or set compression.type=producer"
        )
    return packed


def _codec_clause(config: LogConfig) -> str:
    codec = config.compression_type
    assert codec is not None, "the topic keeps the producer's codec"
    form = "uncompressed" if codec is Codec.NONE else f"compressed by {codec.name.lower()}"
    return f"{form} (the topic's compression.type)"


def _total_max(batches: "Buffer", config: LogConfig) -> int:
    return max(len(batches), config.inflate_bytes_max)
