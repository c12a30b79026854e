"""A snapshot file: record batches of Kafka's format, framed by control batches (KIP-630).

    snapshot = header batch, data batch*, footer batch
    header   = SnapshotHeader, KRaftVersion, Voters
    footer   = SnapshotFooter

Offsets count up from 0 over all batches. Each batch has the snapshot's epoch and its own CRC, and
the footer has the checksum of everything before it, so truncation, gaps and foreign parts are
detected. Timestamps are 0 and nothing is compressed: equal states have equal bytes on all nodes.
Pure.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from ..errors import CorruptionError, MessageTooLarge, SnapshotDamaged
from ..ids import Epoch, Offset
from ..records.batch import HEADER_SIZE, BatchHeader, check_crc, parse_header
from ..records.codec import decode_batch, encode_batch
from ..records.record import Record
from .control_records import (
    CHECKSUM_SIZE,
    Control,
    KRaftVersion,
    SnapshotFooter,
    SnapshotHeader,
    control_batch,
    decode_controls,
)
from .log_view import SnapshotId
from .voters import VoterSet

CHECKPOINT_SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".checkpoint.part"
"""The suffix of a file that is being received."""
BATCH_BYTES: Final = 256 * 1024
"""The target size of a batch of values; a larger value gets its own batch."""
BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""The maximum size of a batch in a snapshot."""

BOOTSTRAP: Final = SnapshotId(Offset(0), Epoch(0))
"""The id of the bootstrap snapshot, written by formatting. It contains the voters at the log's
start and no state."""

_OFFSET_DIGITS: Final = 20
_EPOCH_DIGITS: Final = 10


def checkpoint_name(snapshot: SnapshotId, suffix: str = CHECKPOINT_SUFFIX) -> str:
    """Return the name of a snapshot's file."""
    offset, epoch = snapshot.end_offset, snapshot.epoch
    return f"{offset:0{_OFFSET_DIGITS}d}-{epoch:0{_EPOCH_DIGITS}d}{suffix}"


def snapshot_of_name(name: str) -> SnapshotId | None:
    """Return the snapshot id in a file name, or None if it is not a snapshot's name."""
    offset, dash, epoch = name.removesuffix(CHECKPOINT_SUFFIX).partition("-")
    is_number = offset.isascii() and offset.isdigit() and epoch.isascii() and epoch.isdigit()
    is_snapshot = name.endswith(CHECKPOINT_SUFFIX) and dash and is_number
    if not is_snapshot or (len(offset), len(epoch)) != (_OFFSET_DIGITS, _EPOCH_DIGITS):
        return None
    return SnapshotId(Offset(int(offset)), Epoch(int(epoch)))


class SnapshotEncoder:
    """Encodes a snapshot file in parts."""

    __slots__ = ("_checksum", "_next_offset", "size", "snapshot", "voters")

    def __init__(self, snapshot: SnapshotId, voters: VoterSet) -> None:
        self.snapshot = snapshot
        self.voters = voters  # in force at the snapshot's end
        self.size = 0  # bytes encoded so far
        self._next_offset = 0
        self._checksum = blake2b(digest_size=CHECKSUM_SIZE)

    def header(self) -> bytes:
        """Return the header of the file."""
        assert self.size == 0, f"header after {self.size} bytes"
        end_offset = self.snapshot.end_offset
        return self._control(SnapshotHeader(end_offset), KRaftVersion(), self.voters)

    def batches(self, values: Sequence[bytes]) -> bytes:
        """Return the next batches of about `BATCH_BYTES` each. Raise MessageTooLarge."""
        made = []
        first = size = 0
        for index, value in enumerate(values):
            if size and size + len(value) > BATCH_BYTES:
                made.append(self._data(values[first:index]))
                first, size = index, 0
            size += len(value)
        if first < len(values):
            made.append(self._data(values[first:]))
        return b"".join(made)

    def footer(self) -> bytes:
        """Return the footer of the file."""
        return self._control(SnapshotFooter(self._checksum.digest()))

    def _data(self, values: Sequence[bytes]) -> bytes:
        records = [
            Record(offset=0, timestamp_ms=0, key=None, value=value, headers=()) for value in values
        ]
        batch = encode_batch(
            records, base_offset=self._next_offset, leader_epoch=self.snapshot.epoch
        )
        if len(batch) > BATCH_BYTES_MAX:
            raise MessageTooLarge(
                f"snapshot: a value makes a batch of {len(batch)} bytes; the limit is"
                f" {BATCH_BYTES_MAX}"
            )
        return self._made(batch, len(values))

    def _control(self, *controls: Control) -> bytes:
        batch = control_batch(*controls, base_offset=self._next_offset, epoch=self.snapshot.epoch)
        return self._made(batch, len(controls))

    def _made(self, batch: bytes, count: int) -> bytes:
        self._checksum.update(batch)
        self._next_offset += count
        self.size += len(batch)
        return batch


class SnapshotDecoder:
    """Decodes and verifies a snapshot file in parts."""

    __slots__ = (
        "_checksum",
        "_next_offset",
        "_pending",
        "_with_values",
        "is_foreign",
        "is_whole",
        "position",
        "snapshot",
        "voters",
    )

    def __init__(self, snapshot: SnapshotId, *, with_values: bool) -> None:
        """Start at the header. `feed` returns the values only if `with_values`."""
        self.snapshot = snapshot
        self.voters: VoterSet | None = None  # set once the header is read
        self.is_whole = False  # the footer is read
        self.is_foreign = False  # written by another server: not usable here, but not damaged
        self.position = 0  # bytes read and verified
        self._pending = b""  # of an incomplete batch
        self._next_offset = 0
        self._checksum = blake2b(digest_size=CHECKSUM_SIZE)
        self._with_values = with_values

    def feed(self, content: bytes) -> list[list[bytes]]:
        """Decode the next bytes of the file and return the values of each completed data batch.

        Raise SnapshotDamaged.
        """
        content = self._pending + content if self._pending else content
        position = 0
        found: list[list[bytes]] = []
        while True:
            header = self._header(content, position)
            if header is None:
                self._pending = content[position:]
                return found
            try:
                check_crc(content, position, header)
                values = self._batch(content, position, header)
            except SnapshotDamaged:
                raise
            except CorruptionError as error:
                raise self._damaged(error.message) from error
            if values:
                found.append(values)
            position += header.size
            self.position += header.size

    def finish(self) -> VoterSet:
        """Return the voters at the end of the file. Raise SnapshotDamaged if it is incomplete."""
        if self._pending:
            raise self._damaged(f"it ends with {len(self._pending)} bytes of an incomplete batch")
        if not self.is_whole or self.voters is None:
            raise self._damaged("its footer is missing")
        return self.voters

    def _header(self, content: bytes, position: int) -> BatchHeader | None:
        """Return the header of the batch at `position`, or None if the batch is incomplete."""
        left = len(content) - position
        if self.is_whole and left:
            raise self._damaged(f"{left} bytes follow its footer")
        if left < HEADER_SIZE:
            return None
        try:
            header = parse_header(content, position)
        except CorruptionError as error:
            raise self._damaged(error.message) from error
        if header.size > BATCH_BYTES_MAX:
            raise self._damaged(f"a batch has {header.size} bytes; the limit is {BATCH_BYTES_MAX}")
        return header if header.size <= left else None

    def _batch(self, content: bytes, position: int, header: BatchHeader) -> list[bytes]:
        """Verify one batch and return its values."""
        if header.base_offset != self._next_offset or header.leader_epoch != self.snapshot.epoch:
            raise self._damaged(
                f"it has a batch at offset {header.base_offset} of epoch {header.leader_epoch};"
                f" expected offset {self._next_offset} of epoch {self.snapshot.epoch}"
            )
        values: list[bytes] = []
        if self.voters is None:
            self._take_header(decode_controls(content, position) if header.is_control else ())
        elif header.is_control:
            self._take_footer(decode_controls(content, position))
        elif self._with_values:
            values = [record.value or b"" for record in decode_batch(content, position)]
        self._next_offset = header.next_offset
        self._checksum.update(content[position : position + header.size])
        return values

    def _take_header(self, controls: tuple[Control, ...]) -> None:
        match controls:
            case (SnapshotHeader(end_offset=int(end_offset)), KRaftVersion(), VoterSet() as voters):
                if end_offset != self.snapshot.end_offset:
                    raise self._damaged(f"its header has end offset {end_offset}")
                self.voters = voters
            case (SnapshotHeader(end_offset=None), *_):
                self.is_foreign = True
                raise self._damaged("another server wrote it: its header has no end offset")
            case _:
                raise self._damaged("it does not begin with a snapshot header")

    def _take_footer(self, controls: tuple[Control, ...]) -> None:
        match controls:
            case (SnapshotFooter(checksum=checksum),):
                if checksum != self._checksum.digest():
                    raise self._damaged("its checksum does not match")
                self.is_whole = True
            case _:
                raise self._damaged("it has a control batch between header and footer")

    def _damaged(self, reason: str) -> SnapshotDamaged:
        name = checkpoint_name(self.snapshot)
        return SnapshotDamaged(
            f"snapshot {name}: damaged; {reason}", path=name, position=self.position
        )
