"""Acceptance of an append: valid in itself, allowed for its origin, and contiguous with the log.

The usual append takes one call of the codec. Only if that call does not accept it, each rule is
checked in turn to find the error, if there is one.
"""

from typing import TYPE_CHECKING

from ..errors import InvalidRecord
from ..records.batch import check_crc
from ..records.codec import sealed_headers, sound_header
from ..records.record import INT64_MAX, INT64_MIN
from .append import headers_of, taken
from .config import LogConfig
from .index import RELATIVE_OFFSET_MAX
from .origin import Headers, Origin

if TYPE_CHECKING:
    from ..runtime.ports import Buffer


def accepted(
    batches: "Buffer", config: LogConfig, *, origin: Origin, wall_ms: int
) -> tuple["Buffer", Headers]:
    """Return the batches of an append and their headers: whole batches with valid CRCs, and a
    client's batches as the config requires. The result is the same object unless `taken` changes a
    batch. Raises the errors of `validate_batch`, InvalidRecord if there is no batch."""
    if origin is Origin.CLIENT:
        headers = _sound_headers(batches, config, wall_ms)
    else:
        headers = sealed_headers(batches)
    if headers is not None:
        return batches, headers
    headers = headers_of(batches)
    if origin is not Origin.CLIENT:
        for position, header in headers:
            check_crc(batches, position, header)
        return batches, headers
    parts = [
        taken(batches, position, header, config, wall_ms=wall_ms) for position, header in headers
    ]
    if any(part.is_changed for part in parts):
        batches = b"".join(part.batch for part in parts)
        headers = headers_of(batches)
    return batches, headers


def _sound_headers(batches: "Buffer", config: LogConfig, wall_ms: int) -> Headers | None:
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


def check_continues(
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
