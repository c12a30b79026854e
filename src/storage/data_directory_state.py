"""Operations on the files of a data directory: plain functions for the write lane.

Formatting, opening (lock, leftovers, checkpoints), recovering and deleting a log's folder, writing
the clean-shutdown marker. All functions wait for the device; `shell.data_directory` schedules them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ..errors import (
    CorruptionError,
    DirectoryInUse,
    DirectoryMismatch,
    DirectoryNotFormatted,
    DirectoryUnusable,
    DiskFailed,
    DiskFull,
    QuorumlogError,
)
from ..ids import ClusterId, NodeId, TopicId
from .checkpoints import (
    Checkpoints,
    DirectoryMeta,
    PartitionMeta,
    decode_meta,
    decode_partition_metadata,
    encode_meta,
    encode_offsets,
    encode_partition_metadata,
)
from .flush import Flush, perform_flush
from .layout import (
    CLEAN_MARKER,
    DELETED_FOLDER_SUFFIX,
    LEADER_EPOCHS,
    LOCK,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    SMALL_FILES,
    SNAPSHOT_SUFFIX,
    TEMPORARY_SUFFIX,
    join,
    segment_base,
    split_log_name,
)
from .recovery import LogState, Recovery, recover, rewrite
from .small_files import OUT_OF_SPACE, read_file, remove_tree, replace_file, write_file
from .truncation import (
    Truncation,
    TruncationPoint,
    find_truncation_point,
    perform_truncation,
    remove_segment,
)

if TYPE_CHECKING:
    from ..runtime.ports import FileLock, Files


NO_LIMIT: Final = 2**63 - 1


@dataclass(slots=True, kw_only=True)
class DataDirectoryState:
    """The state of a data directory at its opening."""

    lock: "FileLock"
    meta: DirectoryMeta
    is_clean: bool
    small_files: dict[str, bytes]
    stored: Checkpoints


def format_folder(
    files: "Files", path: str, meta: DirectoryMeta, first: Mapping[str, Mapping[str, bytes]]
) -> DirectoryMeta:
    """Format a data directory. Before it counts as formatted, the folders of `first` exist with
    their files: folder -> name -> content."""
    _make_folder(files, path)
    lock = _lock(files, path)
    try:
        meta_path = join(path, META_PROPERTIES)
        if files.exists(meta_path):
            there = decode_meta(read_file(files, meta_path), meta_path)
            check_owner(path, there, cluster_id=meta.cluster_id, node_id=meta.node_id)
            return there
        for name in log_names(files, path):
            begun = first.get(name, {})  # left by an interrupted formatting
            found = files.names(join(path, name))
            if name not in first or {one.removesuffix(TEMPORARY_SUFFIX) for one in found} - {
                *begun
            }:
                raise DirectoryMismatch(
                    f"{path} holds logs ({name}, ...) but no {META_PROPERTIES};"
                    " restore the file, or remove the logs"
                )
        for folder, contents in first.items():
            files.make_folder(join(path, folder))
            for name, content in contents.items():
                replace_file(files, join(path, folder), name, content)
        files.sync_folder(path)
        replace_file(files, path, META_PROPERTIES, encode_meta(meta))
        return meta
    finally:
        lock.release()


def _make_folder(files: "Files", path: str) -> None:
    """Make a folder and its missing parents, each name durable in the folder above it.

    All parents are synced, not only those of new folders: an earlier attempt may have crashed
    between making a folder and syncing its name, and that folder looks like an old one.
    """
    files.make_folder(path)
    name = path
    while name not in ("/", "."):
        name = _parent(name)
        try:
            files.sync_folder(name)
        except PermissionError:
            return  # no read permission, so no folder was made in it or above it


def _parent(path: str) -> str:
    folder, slash, _ = path.rstrip("/").rpartition("/")
    return folder or slash or "."


def load_state(files: "Files", path: str) -> DataDirectoryState:
    if not files.exists(join(path, META_PROPERTIES)):
        raise DirectoryNotFormatted(f"{path} is not formatted: {META_PROPERTIES} is missing")
    lock = _lock(files, path)
    try:
        return _load_state(files, path, lock)
    except (OSError, QuorumlogError):
        lock.release()
        raise


def _load_state(files: "Files", path: str, lock: "FileLock") -> DataDirectoryState:
    small: dict[str, bytes] = {}
    for name in files.names(path):
        if name.endswith((DELETED_FOLDER_SUFFIX, TEMPORARY_SUFFIX)):
            remove_tree(files, join(path, name))
        elif name in SMALL_FILES:  # other files belong to others, however large
            small[name] = read_file(files, join(path, name))
    stored = Checkpoints.from_files(small)
    files.sync_folder(path)
    return DataDirectoryState(
        lock=lock,
        meta=decode_meta(small[META_PROPERTIES], join(path, META_PROPERTIES)),
        is_clean=CLEAN_MARKER in small,
        small_files=small,
        stored=stored,
    )


def _lock(files: "Files", path: str) -> "FileLock":
    try:
        return files.lock(join(path, LOCK))
    except BlockingIOError:
        raise DirectoryInUse(f"{path} is in use by another process") from None


def check_owner(
    path: str, meta: DirectoryMeta, *, cluster_id: ClusterId | None, node_id: NodeId | None
) -> None:
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise DirectoryMismatch(f"{path} belongs to cluster {meta.cluster_id}, not {cluster_id}")
    if node_id is not None and meta.node_id != node_id:
        raise DirectoryMismatch(f"{path} belongs to node {meta.node_id}, not {node_id}")


def unusable(path: str, error: OSError) -> DirectoryUnusable:
    return DirectoryUnusable(f"{path} cannot be used: {error.strerror or error}")


def log_names(files: "Files", path: str) -> list[str]:
    return [
        name
        for name in files.names(path)
        if split_log_name(name) is not None and files.is_folder(join(path, name))
    ]


def topic_of_folder(files: "Files", folder: str) -> TopicId | None:
    """Return the topic id in a log's folder; None if it is missing."""
    meta, _ = meta_of_folder(files, folder)
    return None if meta is None else meta.topic_id


def meta_of_folder(files: "Files", folder: str) -> tuple[PartitionMeta | None, bytes]:
    """Return the metadata in a log's folder, None if it is missing, and the bytes of its file."""
    path = join(folder, PARTITION_METADATA)
    content = b""
    try:
        content = read_file(files, path)
        return decode_partition_metadata(content, path), content
    except (FileNotFoundError, CorruptionError):
        # torn before its first flush: no acknowledged record is in the folder
        return None, content


def recover_log(files: "Files", recovery: Recovery, topic_id: TopicId | None) -> LogState:
    """Recover a log, and store its topic id durably before anything is acknowledged.

    The stored limit of torn bytes applies, not today's config: the log may have been written under
    another one. From now on the folder has the limit of the config.
    """
    wanted = recovery.torn_bytes_max
    if topic_id is None:
        state = recover(files, recovery)
        state.unsynced_bytes_max = wanted
        return state
    folder = recovery.folder
    there, found = meta_of_folder(files, folder)
    if there is not None and there.topic_id != topic_id:
        raise DiskFailed(f"{folder} belongs to another topic of this name")
    was_flushed = recovery.is_clean or recovery.recovery_point > 0
    if there is None and recovery.recovery_point == 0 and files.exists(folder):
        _clear_unowned(files, folder, is_clean=recovery.is_clean)
    stored = None if there is None else there.unsynced_bytes_max
    said = None if there is None else there.gaps_below
    gaps_below = known_gaps(recovery, said)
    state = recover(files, replace(recovery, torn_bytes_max=stored, gaps_below=gaps_below))
    state.unsynced_bytes_max = wanted
    if not state.segments:
        state.gaps_below = 0 if recovery.config.compacted else None
        # The first append stores it again, without a sync; the content until then must hold for any
        # config.
        if stored is not None:
            store_meta(files, folder, encode_partition_metadata(topic_id), is_needed=True)
        return state
    if gaps_below is not None:
        state.gaps_below = min(gaps_below, state.segments[-1].base_offset)
    content = encode_partition_metadata(topic_id, wanted, state.gaps_below)
    if found != content:  # other values, or torn outside the topic id
        is_needed = there is None or is_wider(wanted, stored)
        if store_meta(files, folder, content, is_needed=is_needed):
            return state
        state.unsynced_bytes_max, state.gaps_below = stored, said
    if not was_flushed:
        file = files.open(join(folder, PARTITION_METADATA))
        try:
            rewrite(file, 0, file.size())
            file.sync()
        finally:
            file.close()
    return state


def known_gaps(recovery: Recovery, said: int | None) -> int | None:
    """Return the offset below which segments may lack their last offsets; `said`: as stored in the
    folder.

    If neither the folder nor a checkpoint has it for a compacted log, it is unbounded: the log came
    from another server or lost its checkpoints, and truncating it at a gap would empty it.
    """
    if said is None and recovery.cleaned_to is None:
        return NO_LIMIT if recovery.config.compacted else None
    return max(said or 0, recovery.cleaned_to or 0)


def is_wider(bound: int | None, than: int | None) -> bool:
    """Return True if a limit of unsynced bytes allows more than another."""
    return than is not None and (bound is None or bound > than)


def store_meta(files: "Files", folder: str, content: bytes, *, is_needed: bool) -> bool:
    """Store the metadata in a log's folder; return True if stored. On a full disk it is skipped
    unless needed: a wider limit than the true one is never wrong."""
    try:
        replace_file(files, folder, PARTITION_METADATA, content)
    except OSError as error:
        if is_needed or error.errno not in OUT_OF_SPACE:
            raise
        return False
    return True


def store_unsynced_limit(files: "Files", flush: Flush, folder: str, content: bytes | None) -> bool:
    """Make a log durable, then store its new limit of unsynced bytes; return False if the disk is
    full."""
    perform_flush(files, flush)
    return content is None or store_meta(files, folder, content, is_needed=False)


def _clear_unowned(files: "Files", folder: str, *, is_clean: bool) -> None:
    """Empty a folder that was never flushed and has no topic id: nothing in it was acknowledged,
    and it may belong to a deleted topic of this name.

    After a clean shutdown this directory has no such folder of its own: one with batches is
    rejected and kept.
    """
    has_batches = any(
        segment_base(name) is not None and files.size(join(folder, name)) > 0
        for name in files.names(folder)
    )
    if is_clean and has_batches:
        raise DiskFailed(
            f"{folder} has no topic id, so no node of this directory wrote it; put a"
            f" {PARTITION_METADATA} with the topic's id into it, or move it away"
        )
    _remove_segments(files, folder)


def _remove_segments(files: "Files", folder: str) -> None:
    """Unlink a log's segments, newest first."""
    for name in reversed(files.names(folder)):
        if segment_base(name) is not None:
            remove_segment(files, join(folder, name))
            files.sync_folder(folder)


def truncate_log(
    files: "Files", path: str, points: dict[str, int], name: str, truncation: Truncation
) -> TruncationPoint | CorruptionError | DiskFull:
    """Truncate a log. The recovery point is lowered first, so that no recovery treats truncated
    offsets as lost. `points` is a copy of the stored points.

    Return the error of a log that is too damaged to be truncated, or DiskFull if the recovery point
    cannot be stored; the log is unchanged then.
    """
    try:
        cut = find_truncation_point(truncation)
        point = 0 if cut.is_empty else cut.end_offset
        if points.get(name, 0) > point:
            lowered = {**points, name: point}  # a copy: a repeated call must store it again
            try:
                replace_file(files, path, RECOVERY_POINTS, encode_offsets(lowered))
            except OSError as error:
                return _no_room(path, error)
        perform_truncation(files, truncation, cut)
    except CorruptionError as error:
        return error
    return cut


def _no_room(path: str, error: OSError) -> DiskFull:
    """Return DiskFull for an error that free space resolves; raise any other error."""
    if error.errno not in OUT_OF_SPACE:
        raise error
    return DiskFull(f"{path}: no space is left; free some space, then retry")


def reset_log(
    files: "Files",
    folder: str,
    log_paths: Sequence[str],
    *,
    before: Callable[[], None],
    after: Callable[[], None],
) -> None:
    """Drop all segments of a log, newest first, each removal durable before the next.

    `before` lowers its recovery point, `after` stores its new start. A crash leaves the log
    unchanged, a prefix of it, or the empty log at its new start. Raises DiskFull if nothing was
    dropped yet.
    """
    try:
        before()
    except OSError as error:
        raise _no_room(folder, error) from error
    for path in log_paths:
        if files.exists(path):
            remove_segment(files, path)
        files.sync_folder(folder)
    if files.exists(folder):
        for name in files.names(folder):
            if name == LEADER_EPOCHS or name.endswith(SNAPSHOT_SUFFIX):
                files.remove(join(folder, name))
        files.sync_folder(folder)
    after()


def replace_offsets(files: "Files", path: str, offsets: Mapping[str, Mapping[str, int]]) -> None:
    """Replace offset checkpoints of a data directory, in this order."""
    for name, by_log in offsets.items():
        replace_file(files, path, name, encode_offsets(by_log))


def rename_deleted(
    files: "Files",
    path: str,
    offsets: Mapping[str, Mapping[str, int]],
    old: str,
    new: str,
    *,
    is_wanted: bool = False,
) -> None:
    """Rename a deleted log's folder, after removing it from the checkpoints, which would otherwise
    apply to the next log of its name. If a full disk prevents that, its segments are removed first,
    unless `is_wanted`: they are deleted anyway, and the folder keeps its topic id until the last
    step."""
    try:
        replace_offsets(files, path, offsets)
    except OSError as error:
        if is_wanted or error.errno not in OUT_OF_SPACE or not files.exists(old):
            raise
        _remove_segments(files, old)
        replace_offsets(files, path, offsets)
    if files.exists(old):
        files.rename(old, new)
    if files.exists(new):  # possibly by an attempt that could not open the folder
        files.sync_folder(path)


def remove_if_exists(files: "Files", path: str) -> None:
    if files.exists(path):
        remove_tree(files, path)


def remove_clean_marker(files: "Files", path: str) -> None:
    files.remove(join(path, CLEAN_MARKER))
    files.sync_folder(path)


def write_clean_marker(files: "Files", path: str, opened: frozenset[str] | None) -> None:
    """Write the clean-shutdown marker, unless an unclean shutdown left logs besides the `opened`
    ones that are not recovered yet."""
    if opened is None or opened.issuperset(log_names(files, path)):
        write_file(files, join(path, CLEAN_MARKER), b'{"version":0,"brokerEpoch":-1}')
        files.sync_folder(path)
