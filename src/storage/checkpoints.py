"""The small text files of a data directory, in Kafka's formats.

Three shapes: offset checkpoints ("version, count, entries": recovery points, log start offsets,
high watermarks), the leader epoch checkpoint of a log, and Java properties (meta.properties,
partition.metadata). Text in, values out; the shell reads and replaces the files.

    0                       version
    2                       number of entries
    flights 0 8128          topic, partition, offset      (or: leader epoch, start offset)
    flights 1 496

`Checkpoints` is the content of all checkpoint files of a directory:

    recovery-point-offset-checkpoint    everything below is fsynced
    log-start-offset-checkpoint         nothing below is readable
    replication-offset-checkpoint       the high watermark: everything below is committed
    cleaner-offset-checkpoint           a compacted log is clean below

The first three come from the logs themselves, the last one from the cleaner. Pure.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ..errors import CorruptionError
from ..ids import ClusterId, DirectoryId, NodeId, TopicId
from .layout import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    log_name,
    split_log_name,
)

if TYPE_CHECKING:
    from .log import Log


CHECKPOINT_VERSION: Final = 0
META_VERSION: Final = "1"
ID_SIZE: Final = 16
UNSYNCED_BYTES_MAX: Final = "unsynced_bytes_max"
GAPS_BELOW: Final = "gaps_below"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryMeta:
    """The identity of a data directory (meta.properties)."""

    cluster_id: ClusterId
    node_id: NodeId
    directory_id: DirectoryId  # drawn at formatting: a wiped disk is another voter (KIP-853)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMeta:
    """The metadata of a log's folder (partition.metadata)."""

    topic_id: TopicId
    # Limit of unsynced bytes at the time of the last writes; None: no limit.
    unsynced_bytes_max: int | None = None
    # Compaction may have removed a segment's last offsets only below it; None: unknown.
    gaps_below: int | None = None


# --- checkpoints -------------------------------------------------------------------------------


def encode_offsets(offsets: Mapping[str, int]) -> bytes:
    """Encode log name -> offset, sorted by name."""
    rows = []
    for name in sorted(offsets):
        parts = split_log_name(name)
        assert parts is not None, f"{name!r} is not the name of a log"
        rows.append(f"{parts[0]} {parts[1]} {offsets[name]}")
    return _encode_rows(rows)


def decode_offsets(content: bytes, path: str = "") -> dict[str, int]:
    """Decode log name -> offset; raises CorruptionError.

    An empty file has no entries: Kafka creates the files of a new directory empty.
    """
    offsets: dict[str, int] = {}
    if not content:
        return offsets
    for number, row in enumerate(_decode_rows(content, path), start=3):
        parts = row.split(" ")
        if len(parts) != 3:
            raise CorruptionError(f"line {number} must be 'topic partition offset'", path=path)
        offsets[log_name(parts[0], _int(parts[1], path))] = _int(parts[2], path)
    return offsets


def encode_epochs(epochs: Sequence[tuple[int, int]]) -> bytes:
    """Encode (leader epoch, start offset), in order."""
    return _encode_rows([f"{epoch} {start}" for epoch, start in epochs])


def decode_epochs(content: bytes, path: str = "") -> list[tuple[int, int]]:
    """Decode (leader epoch, start offset); raises CorruptionError unless both ascend."""
    epochs: list[tuple[int, int]] = []
    for number, row in enumerate(_decode_rows(content, path), start=3):
        parts = row.split(" ")
        if len(parts) != 2:
            raise CorruptionError(f"line {number} must be 'epoch offset'", path=path)
        entry = (_int(parts[0], path), _int(parts[1], path))
        if epochs and not (epochs[-1][0] < entry[0] and epochs[-1][1] < entry[1]):
            raise CorruptionError(f"line {number}: epochs and offsets must ascend", path=path)
        epochs.append(entry)
    return epochs


def _encode_rows(rows: Sequence[str]) -> bytes:
    return "\n".join([str(CHECKPOINT_VERSION), str(len(rows)), *rows, ""]).encode()


def _decode_rows(content: bytes, path: str) -> list[str]:
    lines = _text(content, path).splitlines()
    if len(lines) < 2:
        raise CorruptionError("the version and the count are missing", path=path)
    if lines[0] != str(CHECKPOINT_VERSION):
        raise CorruptionError(f"checkpoint version {lines[0]!r} is not supported", path=path)
    rows = [line for line in lines[2:] if line]
    if _int(lines[1], path) != len(rows):
        raise CorruptionError(f"the count is {lines[1]}, {len(rows)} entries follow", path=path)
    return rows


# --- properties --------------------------------------------------------------------------------


def encode_meta(meta: DirectoryMeta) -> bytes:
    """Encode meta.properties."""
    return (
        f"cluster.id={meta.cluster_id}\n"
        f"directory.id={encode_id(meta.directory_id)}\n"
        f"node.id={meta.node_id}\n"
        f"version={META_VERSION}\n"
    ).encode()


def decode_meta(content: bytes, path: str = "") -> DirectoryMeta:
    """Decode meta.properties; raises CorruptionError when a value is missing or wrong."""
    values = _properties(content, path, "=")
    missing = [key for key in ("cluster.id", "node.id", "directory.id") if key not in values]
    if missing:
        raise CorruptionError(f"{', '.join(missing)} missing", path=path)
    return DirectoryMeta(
        cluster_id=ClusterId(values["cluster.id"]),
        node_id=NodeId(_int(values["node.id"], path)),
        directory_id=DirectoryId(decode_id(values["directory.id"], path)),
    )


def encode_partition_metadata(
    topic_id: TopicId, unsynced_bytes_max: int | None = None, gaps_below: int | None = None
) -> bytes:
    """Encode partition.metadata. Kafka's readers stop after the topic id."""
    text = f"version: 0\ntopic_id: {encode_id(topic_id)}\n"
    if unsynced_bytes_max is not None:
        text += f"{UNSYNCED_BYTES_MAX}: {unsynced_bytes_max}\n"
    if gaps_below is not None:
        text += f"{GAPS_BELOW}: {gaps_below}\n"
    return text.encode()


def decode_partition_metadata(content: bytes, path: str = "") -> PartitionMeta:
    """Decode partition.metadata; raises CorruptionError. A value on a torn line is None."""
    values = _properties(content, path, ":")
    if "topic_id" not in values:
        raise CorruptionError("topic_id missing", path=path)

    def number(key: str) -> int | None:
        text = values.get(key, "")
        return int(text) if text.isdecimal() and content.endswith(b"\n") else None

    return PartitionMeta(
        topic_id=TopicId(decode_id(values["topic_id"], path)),
        unsynced_bytes_max=number(UNSYNCED_BYTES_MAX),
        gaps_below=number(GAPS_BELOW),
    )


def encode_id(raw: bytes) -> str:
    """Return 16 bytes as 22 characters of base64url, Kafka's text form of an id."""
    return urlsafe_b64encode(raw).decode().rstrip("=")


def decode_id(text: str, path: str = "") -> bytes:
    """Return the 16 bytes of an id's text form; raises CorruptionError."""
    try:
        raw = urlsafe_b64decode(text + "==")
    except ValueError:
        raw = b""
    if len(raw) != ID_SIZE:
        raise CorruptionError(f"{text!r} is no id of 22 base64url characters", path=path)
    return raw


def _properties(content: bytes, path: str, separator: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in _text(content, path).splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        key, found, value = line.partition(separator)
        if not found:
            raise CorruptionError(f"{line!r} is not 'key{separator}value'", path=path)
        values[key.strip()] = value.strip()
    return values


def _text(content: bytes, path: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CorruptionError("the file is not text", path=path, position=error.start) from None


def _int(text: str, path: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise CorruptionError(f"{text!r} is not a whole number", path=path) from None


# --- the files of a directory ------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Checkpoints:
    """The current content of the checkpoint files; offsets by log name, 0 for a missing log."""

    recovery_points: dict[str, int] = field(default_factory=dict)
    log_starts: dict[str, int] = field(default_factory=dict)
    high_watermarks: dict[str, int] = field(default_factory=dict)
    cleaner_offsets: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    @staticmethod
    def from_files(contents: Mapping[str, bytes]) -> "Checkpoints":
        """Decode the offset checkpoints among a directory's small files; raises CorruptionError."""
        stored = Checkpoints()
        for name, offsets in stored.by_file().items():
            if name in contents:
                offsets.update(decode_offsets(contents[name], name))
        return stored

    def by_file(self) -> dict[str, dict[str, int]]:
        """Return the offsets of each file by its name, in the order of replacement."""
        return {
            LOG_START_OFFSETS: self.log_starts,
            HIGH_WATERMARKS: self.high_watermarks,
            CLEANER_OFFSETS: self.cleaner_offsets,
            RECOVERY_POINTS: self.recovery_points,
        }

    def copy(self) -> "Checkpoints":
        """Return an independent copy."""
        return Checkpoints(
            recovery_points=dict(self.recovery_points),
            log_starts=dict(self.log_starts),
            high_watermarks=dict(self.high_watermarks),
            cleaner_offsets=dict(self.cleaner_offsets),
            epochs=dict(self.epochs),
        )

    def update(self, logs: "Iterable[Log]") -> list["Log"]:
        """Update from the state of these logs; return the logs with changed epochs.

        A log that failed, or was never flushed, is skipped.
        """
        changed = []
        for log in logs:
            if log.failure is not None:
                continue
            if log.recovery_point == 0 or log.high_watermark == 0:
                # the stored one is from before a truncation to the start, after an unclean election
                self.high_watermarks.pop(log.name, None)
            if log.recovery_point == 0:
                continue
            epochs = log.epochs.entries()
            # An epoch that starts at the log start may belong to deleted records, or to an append
            # that is not durable yet. It is stored only if it can be just one of them.
            is_sure = not log.log_start_offset == log.recovery_point < log.log_end_offset
            if is_sure and self.epochs.get(log.name) != epochs:
                self.epochs[log.name] = epochs
                changed.append(log)
            if log.log_start_offset > 0:
                self.log_starts[log.name] = log.log_start_offset
            if log.high_watermark > 0:
                self.high_watermarks[log.name] = log.high_watermark
            self.recovery_points[log.name] = log.recovery_point
        return changed

    def changed_files(self, other: "Checkpoints") -> dict[str, dict[str, int]]:
        """Return the files, with their offsets, that differ from `other`."""
        others = other.by_file()
        return {name: own for name, own in self.by_file().items() if own != others[name]}

    def remove_log(self, name: str) -> dict[str, dict[str, int]]:
        """Remove a deleted log; return the changed files without it."""
        self.epochs.pop(name, None)
        return {
            file: dict(offsets)
            for file, offsets in self.by_file().items()
            if offsets.pop(name, None) is not None
        }
