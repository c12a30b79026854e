"""Preparation of a source's batches for a mirror, and detection of divergence. Pure.

A batch is forwarded without its producer id: the id belongs to the source cluster and may be in
use in the target. A source returns committed records only, so a batch of a transaction is forwarded
as one outside of transactions; markers and aborted batches become gaps. Offsets, timestamps, keys,
values, headers and the codec are preserved. The base sequence is replaced by the batch's leader
epoch in the source. Only a later comparison reads it, to detect whether both logs are still equal.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ...records import (
    BatchHeader,
    Codec,
    Record,
    decode_all,
    decode_batch,
    encode_batch,
    iterate_batches,
)
from ...records.batch import (
    BATCHES_MAX,
    CONTROL_BIT,
    NO_PRODUCER,
    OFFSET_MAX,
    TRANSACTIONAL_BIT,
    check_crc,
    renumbered,
)
from ...records.compression import Buffer


@dataclass(frozen=True, slots=True)
class PreparedBatches:
    """The batches to append for one response of a source."""

    parts: list[Buffer]  # whole batches in pieces, views of the response if possible
    size: int  # bytes of them; 0: none
    next_offset: int  # offset of the next fetch
    end_offset: int  # end of the copy after the append
    count: int  # records in it
    last_epoch: int  # the source's leader epoch of the last batch, -1: there is none
    newest_ms: int  # the largest timestamp, -1: none

    @property
    def records(self) -> bytes:
        """The batches, joined."""
        return b"".join(self.parts)


def prepare(batches: Buffer, from_offset: int, end_offset: int = OFFSET_MAX) -> PreparedBatches:
    """Return the source's batches of records in [from_offset, end_offset), without producer ids
    and transactional bits.

    A batch that begins before `from_offset` is cut; no batch may contain `end_offset` and begin
    before it. At most BATCHES_MAX batches are returned. Raises CorruptionError if a batch is
    malformed or its CRC is wrong.
    """
    view = memoryview(batches)
    parts: list[Buffer] = []
    size = 0
    next_offset = copy_end = from_offset
    taken, count, epoch, newest_ms = 0, 0, -1, -1
    for position, header in iterate_batches(view):
        if header.base_offset >= end_offset:
            next_offset = end_offset
            break
        if taken == BATCHES_MAX:
            break  # the rest is fetched again
        if header.next_offset <= from_offset:
            continue
        if header.attributes & CONTROL_BIT:
            next_offset = header.next_offset
            continue
        # The forwarded batch gets a new checksum, which would hide corruption.
        check_crc(view, position, header)
        next_offset, epoch = header.next_offset, header.leader_epoch
        batch = view[position : position + header.size]
        if header.base_offset < from_offset:
            rest = _rest(batch, header, from_offset)
            if rest is None:
                continue
            batch, copy_end = rest
        else:
            copy_end = next_offset
        parts += renumbered(
            batch,
            producer_id=NO_PRODUCER,
            producer_epoch=-1,
            base_sequence=max(-1, epoch),
            attributes=header.attributes & ~TRANSACTIONAL_BIT,
        )
        taken += 1
        size += len(batch)
        newest_ms = max(newest_ms, header.max_timestamp)
        count += header.record_count
    return PreparedBatches(parts, size, next_offset, copy_end, count, epoch, newest_ms)


def encode_at_offsets(
    records: list[Record], *, leader_epoch: int = -1, codec: Codec = Codec.NONE
) -> bytes:
    """Encode one batch of ascending records, preserving their offsets and gaps."""
    return encode_batch(
        records,
        base_offset=records[0].offset,
        leader_epoch=leader_epoch,
        codec=codec,
        keep_offsets=True,
    )


class Divergence(NamedTuple):
    """The divergence of a copy and its source."""

    offset: int
    what: str  # description of the source's batch or record there


def find_divergence(mine: Buffer, theirs: Buffer) -> Divergence | None:
    """Return the first divergence that batches of a copy and its source show, or None.

    The split of records into batches does not count. Records may be equal and the logs diverged:
    an offset written in another leader epoch was written again. Epochs never decrease with the
    offset, so that adjacent batches show a divergence, too.
    """
    offset = first_difference(mine, theirs)
    if offset is not None:
        return Divergence(offset, "another record")
    copied = [
        (header.base_offset, header.next_offset, header.base_sequence)
        for _, header in iterate_batches(mine)
        if header.producer_id == NO_PRODUCER and header.base_sequence >= 0
    ]
    for _, header in iterate_batches(theirs):
        if header.leader_epoch < 0:
            continue  # the source had no leader epochs then
        for base, behind, epoch in copied:
            if header.next_offset <= base:
                is_other = header.leader_epoch > epoch
            elif header.base_offset >= behind:
                is_other = header.leader_epoch < epoch
            else:
                is_other = header.leader_epoch != epoch
            if is_other:
                what = f"a batch of another leader epoch ({header.leader_epoch}, not {epoch})"
                return Divergence(header.base_offset, what)
    return None


def overlap(mine: Buffer, theirs: Buffer) -> bool:
    """Return True if batches of both logs have an offset in common."""
    copied = [(header.base_offset, header.next_offset) for _, header in iterate_batches(mine)]
    return any(
        header.base_offset < behind and base < header.next_offset
        for _, header in iterate_batches(theirs)
        for base, behind in copied
    )


def first_difference(mine: Buffer, theirs: Buffer) -> int | None:
    """Return the first offset at which both logs have different records, or None.

    The split of records into batches does not count.
    """
    ours = {record.offset: record for record in decode_all(mine)}
    for record in decode_all(theirs):
        own = ours.get(record.offset)
        if own is not None and own != record:
            return record.offset
    return None


def _rest(
    batch: memoryview, header: BatchHeader, from_offset: int
) -> tuple[memoryview, int] | None:
    """Encode a batch's records from an offset; return it with its end, or None if there are
    none."""
    kept = [record for record in decode_batch(batch) if record.offset >= from_offset]
    if not kept:
        return None
    return memoryview(encode_at_offsets(kept, codec=header.codec)), kept[-1].offset + 1
