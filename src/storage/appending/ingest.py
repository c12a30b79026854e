"""What a client's batches become before `Log.prepare`: checked, with the topic's codec and time.

Pure. Three things, in this order:

- every batch is validated as the topic demands (`records.validate`); a header that understates its
  newest timestamp is put right;
- where `compression.type` names another codec than the batch has, its records are compressed anew:
  the same records under the same header (producer, sequence, attributes), only smaller or larger.
  It is then walked in either mode of `record.validation`, since it is inflated anyway;
- where `message.timestamp.type` is LogAppendTime, the batch gets the log's time. The records stay
  as they are, compressed or not; readers take the time of the header.

The first two are `admit`; they may take long, so a lane may do them ahead. The third is `stamp`; it
is done in the log's order, so that times rise as offsets do while the clock does. A batch that is
stored as it came is not copied.

Bounds: what one batch inflates to, and what one append grows to, is `inflate_bytes_max`; no batch
is stored above `message_bytes_max`, whether the client or the codec made it so large.
"""

from struct import Struct
from typing import TYPE_CHECKING, Final

from ...errors import MessageTooLarge, QuorumlogError
from ...records.batch import CODEC_MASK, HEADER_SIZE, LENGTH_END, BatchHeader
from ...records.compression import Codec
from ...records.record import Body
from ...records.validate import ValidationMode, check_size, with_append_time, with_records
from ..config import LogConfig
from .appends import Taken, headers_of, taken

if TYPE_CHECKING:
    from ...runtime.ports import Buffer

COMPRESSION_WEIGHT: Final = 16
"""To compress a byte takes about so many times as long as to inflate and walk one."""

WORK_RATIO: Final = 4
"""A batch that may be walked on the loop may inflate to so many times the size of one that is sent
to the lane unseen."""

_LENGTH: Final = Struct(">i")
_LENGTH_START: Final = LENGTH_END - _LENGTH.size
_CODEC_BYTE: Final = 22


class TooMuchWork(Exception):
    """The batches take longer than the loop may be held up: a lane is the place for them."""


def is_plain(batches: "Buffer", config: LogConfig) -> bool:
    """Whether `Log.prepare` can do all that is to do: one uncompressed batch, kept as it came."""
    return (
        len(batches) >= HEADER_SIZE
        and not batches[_CODEC_BYTE] & CODEC_MASK
        and not config.log_append_time
        and (config.compression_type is None or config.compression_type is Codec.NONE)
        and _LENGTH.unpack_from(batches, _LENGTH_START)[0] + LENGTH_END == len(batches)
    )


def is_worth_a_lane(batches: "Buffer", config: LogConfig, bytes_min: int) -> bool:
    """Whether to admit a client's batches takes too long for the loop, as far as their size says:
    large and, any of them, to be inflated or compressed. What is no row of batches is not: it is
    refused unread."""
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
    """Return by how many bytes `admit` may make the batches larger."""
    if config.compression_type is None:
        return 0
    count = len(headers_of(batches))
    bound = min(_total_max(batches, config), count * config.message_bytes_max)
    return max(0, bound - len(batches))


def admit(
    batches: "Buffer", config: LogConfig, *, wall_ms: int, bytes_min: int | None = None
) -> "Buffer":
    """Return the batches of one append validated and in the topic's codec; the same object when
    nothing is to be changed.

    With `bytes_min` (see `DirectoryConfig.cpu_lane_bytes_min`) raises TooMuchWork when that takes
    too long for the loop, at the cost of what it may take. Raises the errors of `validate_batch`,
    and MessageTooLarge for what the topic's codec makes too large.
    """
    work_left = None if bytes_min is None else WORK_RATIO * bytes_min
    parts: list[Buffer] = []
    is_changed = False
    total = 0
    for position, given in headers_of(batches):
        part, header, body, is_put_right = _walked(
            batches, position, given, config, wall_ms, work_left
        )
        is_changed = is_changed or is_put_right
        if work_left is not None and body is not None:
            work_left -= _work(header, config, body)
        if body is not None and _must_change(header, config):
            part = _packed_anew(header, config, body)
            is_changed = True
        total += len(part)
        if is_changed and total > _total_max(batches, config):
            raise MessageTooLarge(
                f"an append of {len(batches)} bytes becomes more than"
                f" {_total_max(batches, config)} {_as_the_topic_wants(config)}: send fewer batches"
                " at once"
            )
        parts.append(part)
    return b"".join(parts) if is_changed else batches


def stamp(batches: "Buffer", *, timestamp_ms: int) -> bytes:
    """Return the batches with the log's own time for every record; no record is touched."""
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
    """Return how long a batch takes, in bytes inflated."""
    weight = COMPRESSION_WEIGHT if _must_compress(header, config) else 1
    return weight * (body.end - body.start)


def _walked(
    batches: "Buffer",
    position: int,
    header: BatchHeader,
    config: LogConfig,
    wall_ms: int,
    work_left: int | None,
) -> Taken:
    """Validate a batch, see `taken`; raises TooMuchWork."""
    check_size(header.size, config.message_bytes_max)
    limit = config.inflate_bytes_max
    compresses = _must_compress(header, config)
    if work_left is not None and (compresses or _must_inflate(header, config)):
        limit = min(limit, max(0, work_left) // (COMPRESSION_WEIGHT if compresses else 1))
        if header.size - HEADER_SIZE > limit:
            raise TooMuchWork
    try:
        return taken(
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


def _packed_anew(header: BatchHeader, config: LogConfig, body: Body) -> bytes:
    assert config.compression_type is not None, "the topic keeps the producer's codec"
    records = memoryview(body.buffer)[body.start : body.end]
    packed = with_records(header, records, codec=config.compression_type)
    if len(packed) > config.message_bytes_max:
        raise MessageTooLarge(
            f"a batch of {header.size} bytes becomes one of {len(packed)}"
            f" {_as_the_topic_wants(config)}, which takes at most {config.message_bytes_max}: send"
            " smaller batches, raise its max.message.bytes, or set its compression.type=producer"
        )
    return packed


def _as_the_topic_wants(config: LogConfig) -> str:
    codec = config.compression_type
    assert codec is not None, "the topic keeps the producer's codec"
    form = "uncompressed" if codec is Codec.NONE else f"compressed by {codec.name.lower()}"
    return f"{form} as the topic's compression.type wants"


def _total_max(batches: "Buffer", config: LogConfig) -> int:
    return max(len(batches), config.inflate_bytes_max)
