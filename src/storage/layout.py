"""Names of files and folders in a data directory, as Kafka's tools expect them.

One folder per partition, `<topic>-<partition>`; the files of a segment are named by its base offset
in 20 digits. This module touches no file.
"""

from typing import Final

# --- in the data directory ---------------------------------------------------------------------

META_PROPERTIES: Final = "meta.properties"
LOCK: Final = ".lock"
CLEAN_MARKER: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
QUORUM_STATE: Final = "quorum-state"
INITIAL_CREDENTIALS: Final = "initial-credentials"

SMALL_FILES: Final = frozenset(
    {
        META_PROPERTIES,
        CLEAN_MARKER,
        RECOVERY_POINTS,
        LOG_START_OFFSETS,
        HIGH_WATERMARKS,
        CLEANER_OFFSETS,
        QUORUM_STATE,
    }
)
"""What is read when the directory is taken over; a few lines a log at most."""

# --- in a log's folder -------------------------------------------------------------------------

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
TEMPORARY_SUFFIX: Final = ".tmp"
PART_SUFFIX: Final = ".part"
DELETED_FOLDER_SUFFIX: Final = "-delete"
ASIDE_FOLDER_SUFFIX: Final = "-damaged"  # of damaged logs, kept for inspection

LEFTOVER_SUFFIXES: Final = (DELETED_SUFFIX, TEMPORARY_SUFFIX, PART_SUFFIX, CLEANED_SUFFIX)
"""Suffixes of unfinished work; the next opening of the log removes such files."""

NAME_BYTES_MAX: Final = 255
"""Maximum size of a name in a folder, on every common file system."""

OFFSET_DIGITS: Final = 20
"""Base offsets are zero-padded to this width, so that names sort like offsets."""


def segment_file(base_offset: int, suffix: str) -> str:
    """Return the name of one of a segment's files."""
    return f"{base_offset:0{OFFSET_DIGITS}d}{suffix}"


def segment_base(name: str, suffix: str = LOG_SUFFIX) -> int | None:
    """Return the base offset in a file's name, None if it is not a segment's file."""
    stem = name.removesuffix(suffix)
    if stem == name or len(stem) != OFFSET_DIGITS or not is_number(stem):
        return None
    return int(stem)


def swap_file(base_offset: int, end_offset: int, suffix: str) -> str:
    """Return the name of a file that will replace the files of the segments of [base, end)."""
    return f"{base_offset:0{OFFSET_DIGITS}d}-{end_offset}{suffix}{SWAP_SUFFIX}"


def swap_range(name: str, suffix: str = LOG_SUFFIX) -> tuple[int, int] | None:
    """Return the offsets [base, end) that a swap file replaces, None for another file. Kafka's own
    names omit the end: it is -1 then."""
    stem = name.removesuffix(suffix + SWAP_SUFFIX)
    if stem == name:
        return None
    base, dash, end = stem.partition("-")
    if len(base) != OFFSET_DIGITS or not is_number(base) or (dash and not is_number(end)):
        return None
    return int(base), int(end) if dash else -1


def log_name(topic: str, partition: int) -> str:
    """Return the folder name of a partition's log."""
    return f"{topic}-{partition}"


def split_log_name(name: str) -> tuple[str, int] | None:
    """Return (topic, partition) of a folder name, None if it is not a log's folder."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not is_number(partition):
        return None
    return topic, int(partition)


def deleted_folder(name: str, token: str) -> str:
    """Return the name of a log's folder before its files are unlinked. The token makes truncated
    long names unique."""
    suffix = f".{token}{DELETED_FOLDER_SUFFIX}"
    return name[: NAME_BYTES_MAX - len(suffix)] + suffix


def aside_folder(name: str, token: str) -> str:
    """Return the name of a quarantined log's folder; it is not a log's name."""
    suffix = f".{token}{ASIDE_FOLDER_SUFFIX}"
    return name[: NAME_BYTES_MAX - len(suffix)] + suffix


def join(folder: str, name: str) -> str:
    """Return the path of a name in a folder."""
    return f"{folder}/{name}"


def parent_of(path: str) -> str:
    """Return the folder part of a path."""
    return path.rpartition("/")[0]


def is_number(text: str) -> bool:
    """Return True if the text consists of ASCII digits."""
    return text.isascii() and text.isdigit()


def side_lane(path: str) -> str:
    """Return the name of the lane for the small files of a data directory."""
    return f"side:{path}"


def lane_of(path: str) -> str:
    """Return the name of a data directory's write lane."""
    return f"write:{path}"
