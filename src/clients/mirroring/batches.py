"""What of a source's batches a mirror sends on, and whether a copy is one of its source. Pure.

A batch goes on as it is but for its producer: that is the source cluster's, and another one may
have its number where the copy is. Offsets, timestamps, keys, values, headers and the codec stay.
Where a producer's sequence would be stands the leader epoch that the batch has in the source:
nobody reads it there but the next mirror, which tells by it whether both logs are still one.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from ...errors import InvalidTxnState
from ...records import (
    BatchHeader,
    Codec,
    Record,
    decode_all,
    decode_batch,
    encode_batch,
    iterate_batches,
)
from ...records.batch import CONTROL_BIT, NO_PRODUCER, TRANSACTIONAL_BIT, check_crc, renumbered
from ...records.compression import Buffer

_MARKS: Final = CONTROL_BIT | TRANSACTIONAL_BIT


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is sent on of an answer of a source."""

    parts: list[Buffer]  # whole batches, in pieces that are views of the answer where they can be
    size: int  # bytes of them; 0: there is nothing new
    next_offset: int  # where to go on reading
    end_offset: int  # where a copy ends once it has them
    count: int  # records in it
    last_epoch: int  # the source's leader epoch of the last batch, -1: there is none
    newest_ms: int  # the largest timestamp, -1: none

    @property
    def records(self) -> bytes:
        """The batches in one piece."""
        return b"".join(self.parts)


def prepared(batches: Buffer, from_offset: int) -> Prepared:
    """Return what a source's whole batches have from an offset on, without their producers.

    A batch that begins before it is cut. Raises InvalidTxnState for a batch of a
    transaction, CorruptionError for what is none, or was damaged.
    """
    view = memoryview(batches)
    parts: list[Buffer] = []
    size = 0
    next_offset = end_offset = from_offset
    count, epoch, newest_ms = 0, -1, -1
    for position, header in iterate_batches(view):
        if header.next_offset <= from_offset:
            continue
        if header.attributes & _MARKS:
            raise InvalidTxnState(
                f"the source has a transaction at offset {header.base_offset}, and transactions are"
                " not mirrored yet: leave this topic out"
            )
        # What is sent on has a checksum of its own, which would hide any damage from then on.
        check_crc(view, position, header)
        next_offset, epoch = header.next_offset, header.leader_epoch
        batch = view[position : position + header.size]
        if header.base_offset < from_offset:
            rest = _rest(batch, header, from_offset)
            if rest is None:
                continue
            batch, end_offset = rest
        else:
            end_offset = next_offset
        parts += renumbered(
            batch, producer_id=NO_PRODUCER, producer_epoch=-1, base_sequence=max(-1, epoch)
        )
        size += len(batch)
        newest_ms = max(newest_ms, header.max_timestamp)
        count += header.record_count
    return Prepared(parts, size, next_offset, end_offset, count, epoch, newest_ms)


def batch_of(records: list[Record], *, leader_epoch: int = -1, codec: Codec = Codec.NONE) -> bytes:
    """Return one batch of records at their offsets, ascending, with their gaps."""
    return encode_batch(
        records,
        base_offset=records[0].offset,
        leader_epoch=leader_epoch,
        codec=codec,
        keep_offsets=True,
    )


class Parting(NamedTuple):
    """Where a copy and its source are two logs, and how that shows."""

    offset: int
    what: str  # that the source has there, other than the copy


def parting(mine: Buffer, theirs: Buffer) -> Parting | None:
    """Return where batches of a copy and of its source show that the logs have parted, None: they
    do not. How records are put into batches does not count.

    Not two records alone may differ: an offset that was written in another leader epoch was written
    anew, and epochs never fall from offset to offset, so that batches side by side tell, too.
    """
    offset = first_difference(mine, theirs)
    if offset is not None:
        return Parting(offset, "another record")
    copied = [
        (header.base_offset, header.next_offset, header.base_sequence)
        for _, header in iterate_batches(mine)
        if header.producer_id == NO_PRODUCER and header.base_sequence >= 0
    ]
    for _, header in iterate_batches(theirs):
        if header.leader_epoch < 0:
            continue  # of a cluster that had none then
        for base, behind, epoch in copied:
            if header.next_offset <= base:
                is_other = header.leader_epoch > epoch
            elif header.base_offset >= behind:
                is_other = header.leader_epoch < epoch
            else:
                is_other = header.leader_epoch != epoch
            if is_other:
                what = f"a batch of another leader epoch ({header.leader_epoch}, not {epoch})"
                return Parting(header.base_offset, what)
    return None


def meet(mine: Buffer, theirs: Buffer) -> bool:
    """Whether there are batches of both that have an offset in common."""
    copied = [(header.base_offset, header.next_offset) for _, header in iterate_batches(mine)]
    return any(
        header.base_offset < behind and base < header.next_offset
        for _, header in iterate_batches(theirs)
        for base, behind in copied
    )


def first_difference(mine: Buffer, theirs: Buffer) -> int | None:
    """Return the first offset at which two logs have different records, None: none of those that
    both have here. How records are put into batches does not count."""
    ours = {record.offset: record for record in decode_all(mine)}
    for record in decode_all(theirs):
        own = ours.get(record.offset)
        if own is not None and own != record:
            return record.offset
    return None


def _rest(
    batch: memoryview, header: BatchHeader, from_offset: int
) -> tuple[memoryview, int] | None:
    """Return a batch of the records from an offset on, and its end; None: there are none."""
    kept = [record for record in decode_batch(batch) if record.offset >= from_offset]
    if not kept:
        return None
    return memoryview(batch_of(kept, codec=header.codec)), kept[-1].offset + 1
