"""A snapshot file: record batches of the field's format, framed by control batches (KIP-630).

    snapshot = header batch, data batch*, footer batch
    header   = SnapshotHeader, KRaftVersion, Voters
    footer   = SnapshotFooter

Offsets count up from 0 over all batches, each batch carries the snapshot's epoch and its own CRC,
and the footer the checksum of everything before it. So a missing end, a gap and a foreign piece are
found. Timestamps are 0 and nothing is compressed: the same state has the same bytes on all nodes.
Pure.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from ...errors import CorruptionError, MessageTooLarge, SnapshotDamaged
from ...ids import Epoch, Offset
from ...records.batch import HEADER_SIZE, BatchHeader, check_crc, parse_header
from ...records.codec import decode_batch, encode_batch
from ...records.record import Record
from ..core.log_view import SnapshotId
from ..core.voters import VoterSet
from .control import (
    CHECKSUM_SIZE,
    Control,
    KRaftVersion,
    SnapshotFooter,
    SnapshotHeader,
    control_batch,
    decode_controls,
)

CHECKPOINT_SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".checkpoint.part"
"""Of a file that is being received."""
BATCH_BYTES: Final = 256 * 1024
"""A slice of values goes into batches of about so much, or one larger value."""
BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""No batch of a snapshot is larger."""

BOOTSTRAP: Final = SnapshotId(Offset(0), Epoch(0))
"""Names the snapshot that a formatting leaves: it says who votes at the log's start, and holds no
state."""

_OFFSET_DIGITS: Final = 20
_EPOCH_DIGITS: Final = 10


def checkpoint_name(snapshot: SnapshotId, suffix: str = CHECKPOINT_SUFFIX) -> str:
    """Return the name of a snapshot's file."""
    offset, epoch = snapshot.end_offset, snapshot.epoch
    return f"{offset:0{_OFFSET_DIGITS}d}-{epoch:0{_EPOCH_DIGITS}d}{suffix}"


def snapshot_of_name(name: str) -> SnapshotId | None:
    """Return which snapshot a file's name says it is; None when it is no such name."""
    offset, dash, epoch = name.removesuffix(CHECKPOINT_SUFFIX).partition("-")
    is_number = offset.isascii() and offset.isdigit() and epoch.isascii() and epoch.isdigit()
    is_snapshot = name.endswith(CHECKPOINT_SUFFIX) and dash and is_number
    if not is_snapshot or (len(offset), len(epoch)) != (_OFFSET_DIGITS, _EPOCH_DIGITS):
        return None
    return SnapshotId(Offset(int(offset)), Epoch(int(epoch)))


class SnapshotEncoder:
    """Makes a snapshot file, piece by piece."""

    __slots__ = ("_checksum", "_next_offset", "size", "snapshot", "voters")

    def __init__(self, snapshot: SnapshotId, voters: VoterSet) -> None:
        self.snapshot = snapshot
        self.voters = voters  # in force where the snapshot ends
        self.size = 0  # bytes made so far
        self._next_offset = 0
        self._checksum = blake2b(digest_size=CHECKSUM_SIZE)

    def header(self) -> bytes:
        """Return how the file begins."""
        assert self.size == 0, f"the header comes first, not behind {self.size} bytes"
        end_offset = self.snapshot.end_offset
        return self._control(SnapshotHeader(end_offset), KRaftVersion(), self.voters)

    def batches(self, values: Sequence[bytes]) -> bytes:
        """Return the next batches, one for about `BATCH_BYTES`; raises MessageTooLarge."""
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
        """Return how the file ends."""
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
                f"a value of the state makes a batch of {len(batch)} bytes, a snapshot's batches"
                f" have at most {BATCH_BYTES_MAX}"
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
    """Reads and proves a snapshot file, piece by piece."""

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
        """`with_values`: have `feed` return them; else it only proves."""
        self.snapshot = snapshot
        self.voters: VoterSet | None = None  # once the header was read
        self.is_whole = False  # the footer was read
        self.is_foreign = False  # another server wrote it: it is no good here, nor damaged
        self.position = 0  # bytes read and proven
        self._pending = b""  # of a batch whose end has not come yet
        self._next_offset = 0
        self._checksum = blake2b(digest_size=CHECKSUM_SIZE)
        self._with_values = with_values

    def feed(self, content: bytes) -> list[list[bytes]]:
        """Take the next bytes of the file; return the values of each data batch that they end.

        Raises SnapshotDamaged.
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
        """The file ends here: return its voters; raises SnapshotDamaged when it is not whole."""
        if self._pending:
            raise self._damaged(f"it ends with {len(self._pending)} bytes of an unfinished batch")
        if not self.is_whole or self.voters is None:
            raise self._damaged("its footer is missing")
        return self.voters

    def _header(self, content: bytes, position: int) -> BatchHeader | None:
        """Return the header of the batch at `position`, None when not all of it is there."""
        left = len(content) - position
        if self.is_whole and left:
            raise self._damaged("bytes follow its footer")
        if left < HEADER_SIZE:
            return None
        try:
            header = parse_header(content, position)
        except CorruptionError as error:
            raise self._damaged(error.message) from error
        if header.size > BATCH_BYTES_MAX:
            raise self._damaged(f"a batch would have {header.size} bytes")
        return header if header.size <= left else None

    def _batch(self, content: bytes, position: int, header: BatchHeader) -> list[bytes]:
        """Take one batch in; return its values."""
        if header.base_offset != self._next_offset or header.leader_epoch != self.snapshot.epoch:
            raise self._damaged(
                f"a batch of offset {header.base_offset} and epoch {header.leader_epoch} is where"
                f" offset {self._next_offset} of epoch {self.snapshot.epoch} should be"
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
                    raise self._damaged(f"its header says that it ends at offset {end_offset}")
                self.voters = voters
            case (SnapshotHeader(end_offset=None), *_):
                self.is_foreign = True
                raise self._damaged("another server wrote it, without the end offset in its header")
            case _:
                raise self._damaged("it does not begin with a snapshot's header")

    def _take_footer(self, controls: tuple[Control, ...]) -> None:
        match controls:
            case (SnapshotFooter(checksum=checksum),):
                if checksum != self._checksum.digest():
                    raise self._damaged("its checksum is wrong")
                self.is_whole = True
            case _:
                raise self._damaged("a control batch lies inside it")

    def _damaged(self, reason: str) -> SnapshotDamaged:
        name = checkpoint_name(self.snapshot)
        return SnapshotDamaged(
            f"the snapshot {name} is damaged: {reason}", path=name, position=self.position
        )
