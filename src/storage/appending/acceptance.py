"""Whether a log takes what it is given to append: right in itself, as its origin demands, and in
its place behind what the log has.

Fast to accept, slow to explain: one call of the codec decides on the usual append, and only what it
does not take is looked at rule by rule, which says what is wrong with it, if anything is.
"""

from typing import TYPE_CHECKING

from ...errors import InvalidRecord
from ...records.batch import check_crc
from ...records.codec import sealed_headers, sound_header
from ...records.record import INT64_MAX, INT64_MIN
from ..config import LogConfig
from ..origin import Headers, Origin
from ..segments.index import RELATIVE_OFFSET_MAX
from .appends import headers_of, taken

if TYPE_CHECKING:
    from ...runtime.ports import Buffer


def accepted(
    batches: "Buffer", config: LogConfig, *, origin: Origin, wall_ms: int
) -> tuple["Buffer", Headers]:
    """Return what an append holds, and its headers: whole batches with right CRCs, and of a
    client's every record as the config demands; the same object unless `taken` changes a batch.
    Raises the errors of `validate_batch`, InvalidRecord when it is empty."""
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
    """Return the header of a client's one uncompressed batch if nothing is wrong with it."""
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
            f"a replicated batch ends {span} offsets behind the log's end, {next_offset}, and no "
            "index spans that: start the log anew behind the gap"
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
