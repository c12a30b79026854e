"""The batches in a partition's folder on a simulated disk, without opening the log.

The parser follows appends incrementally: an unchanged folder costs a few steps. Checksum and leader
epoch identify a batch; they are equal if the records are.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quorumlog.errors import CorruptionError
from quorumlog.records.batch import HEADER_SIZE, parse_header
from quorumlog.simulation.disk import DiskTruncation, DiskWrite, FileBody, Folder
from quorumlog.simulation.world import SimNode

LOG_SUFFIX: Final = ".log"


class StoredBatch(NamedTuple):
    """A stored batch."""

    base_offset: int
    end_offset: int  # exclusive
    leader_epoch: int
    crc: int
    position: int  # end of the batch in its file


def key_of(batch: StoredBatch) -> tuple[int, int, int, int]:
    """Return the fields that are equal if the records are."""
    return batch.base_offset, batch.end_offset, batch.leader_epoch, batch.crc


@dataclass(slots=True)
class _Segment:
    base_offset: int
    body: FileBody
    batches: list[StoredBatch] = field(default_factory=list)
    first_header: bytes = b""
    last_header: bytes = b""

    def follow(self) -> None:
        """Parse appended bytes; parse everything again if the tail was replaced."""
        content = self.body.content
        if self.batches:
            start = self.batches[-2].position if len(self.batches) > 1 else 0
            if bytes(content[start : start + HEADER_SIZE]) != self.last_header:
                self.batches.clear()
        position = self.batches[-1].position if self.batches else 0
        end = self.batches[-1].end_offset if self.batches else self.base_offset
        while position + HEADER_SIZE <= len(content):
            raw = bytes(content[position : position + HEADER_SIZE])
            try:
                header = parse_header(raw)
            except CorruptionError:
                return
            if header.base_offset < end or position + header.size > len(content):
                return
            position, end, self.last_header = position + header.size, header.next_offset, raw
            self.batches.append(
                StoredBatch(header.base_offset, end, header.leader_epoch, header.crc, position)
            )


class PartitionFiles:
    """A partition's folder on the current disk of a machine."""

    def __init__(self, sim: SimNode, path: str) -> None:
        self._sim = sim
        self._path = path
        self._segments: dict[str, _Segment] = {}

    def end_offset(self) -> int:
        """Return the visible end offset, 0 for an empty folder."""
        segments = self._look()
        for segment in reversed(segments):
            if segment.batches:
                return segment.batches[-1].end_offset
        return segments[-1].base_offset if segments else 0

    def start_offset(self) -> int:
        """Return the base offset of the oldest segment, 0 for an empty folder."""
        segments = self._look()
        return segments[0].base_offset if segments else 0

    def durable_end_offset(self) -> int:
        """Return the end offset that certainly survives a power cut."""
        folder = durable_folder(self._sim, self._path)
        if folder is None:
            return 0
        end = 0
        for segment in self._look():
            name = f"{segment.base_offset:020d}{LOG_SUFFIX}"
            if folder.durable.get(name) is not segment.body:
                break
            end = max(end, segment.base_offset)
            bound = min(
                (
                    one.position if isinstance(one, DiskWrite) else one.size
                    for one in segment.body.unsynced
                    if not _is_durable(segment.body, one)
                ),
                default=len(segment.body.content),
            )
            for batch in segment.batches:
                if batch.position <= bound:
                    end = batch.end_offset
            if bound < len(segment.body.content):
                break
        return end

    def batches(self, start: int, end: int) -> Iterator[StoredBatch]:
        """Yield the batches with offsets in [start, end)."""
        for segment in self._look():
            if not segment.batches or segment.batches[-1].end_offset <= start:
                continue
            ends = [batch.end_offset for batch in segment.batches[-256:]]
            first = 0
            if ends[0] <= start:  # most calls concern the tail
                first = len(segment.batches) - len(ends) + bisect_left(ends, start + 1)
            for batch in segment.batches[first:]:
                if batch.base_offset >= end:
                    return
                if batch.end_offset > start:
                    yield batch

    def content(self, start: int, end: int) -> bytes:
        """Return the bytes of the batches with offsets in [start, end)."""
        found = bytearray()
        for segment in self._look():
            position = 0
            for batch in segment.batches:
                if batch.base_offset < end and batch.end_offset > start:
                    found += segment.body.content[position : batch.position]
                position = batch.position
        return bytes(found)

    def _look(self) -> list[_Segment]:
        folder = visible_folder(self._sim, self._path)
        if folder is None:
            self._segments.clear()
            return []
        found = []
        for name in sorted(name for name in folder.entries if name.endswith(LOG_SUFFIX)):
            body = folder.entries[name]
            if not isinstance(body, FileBody):
                continue
            segment = self._segments.get(name)
            if segment is None or segment.body is not body:
                base_offset = int(name.removesuffix(LOG_SUFFIX))
                segment = self._segments[name] = _Segment(base_offset, body)
            segment.follow()
            found.append(segment)
        return found


def _is_durable(body: FileBody, change: DiskWrite | DiskTruncation) -> bool:
    """Return True if a change writes bytes that are durable already: a recovery rewrites a log's
    tail."""
    if not isinstance(change, DiskWrite):
        return False
    end = change.position + len(change.data)
    return bytes(body.durable[change.position : end]) == bytes(change.data)


def visible_folder(sim: SimNode, path: str) -> Folder | None:
    """Return the folder of a path; None if there is none."""
    folder = sim.device.disk.root
    for part in path.strip("/").split("/"):
        entry = folder.entries.get(part)
        if not isinstance(entry, Folder):
            return None
        folder = entry
    return folder


def durable_folder(sim: SimNode, path: str) -> Folder | None:
    """Return the folder of a path if every name on the path is durable."""
    folder = sim.device.disk.root
    for part in path.strip("/").split("/"):
        entry = folder.durable.get(part)
        if not isinstance(entry, Folder):
            return None
        folder = entry
    return folder
