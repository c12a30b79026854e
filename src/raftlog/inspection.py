"""Verification of a controller's data directory: its snapshots, and their consistency with the log
and the quorum-state file.

It extends the check of the storage package. It changes nothing and may block on the device. It also
works on a directory that is in use, and then skips comparisons of files that may change.
"""

from typing import TYPE_CHECKING, Any, Final

from ..errors import CorruptionError, SnapshotDamaged
from ..storage.inspect.directory_check import KnownMetadata
from ..storage.inspect.directory_check import check as check_storage
from ..storage.inspect.findings import CheckReport, FindingKind, LogReport
from ..storage.inspect.log_check import Progress
from ..storage.layout import join
from ..storage.small_files import read_file
from .config import METADATA_LOG_NAME
from .control_records import (
    Control,
    KRaftVersion,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    decode_controls,
)
from .hard_state import QUORUM_STATE_NAME, decode_hard_state
from .log_view import SnapshotId
from .snapshot_format import SnapshotDecoder, checkpoint_name, snapshot_of_name
from .voters import Voter, VoterSet

if TYPE_CHECKING:
    from ..runtime.ports import Files

READ_BYTES: Final = 1024 * 1024


def check(
    files: "Files",
    path: str,
    *,
    known: KnownMetadata | None = None,
    progress: Progress = lambda size: None,
) -> CheckReport:
    """Check a data directory or one log's folder, including the metadata snapshots.

    Raise InvalidRequest if the path is neither, OSError for the folder itself.
    """
    report = check_storage(files, path, known=known, progress=progress)
    for log in report.logs:
        if log.name == METADATA_LOG_NAME:
            _check_member(files, report, log)
    return report


def _check_member(files: "Files", report: CheckReport, log: LogReport) -> None:
    try:
        snapshots = _prove_all(files, log)
        if not report.is_in_use:
            _compare(log, snapshots)
            if report.is_directory:
                _check_epoch(files, report, log, snapshots)
    except OSError as error:
        named = error.filename if isinstance(error.filename, str) else log.folder
        log.findings.add(FindingKind.UNREADABLE, named, error.strerror or str(error))


def _prove_all(files: "Files", log: LogReport) -> list[SnapshotId]:
    """Verify every snapshot and return the valid ones, ascending."""
    good = []
    for name in files.names(log.folder):
        snapshot = snapshot_of_name(name)
        if snapshot is None:
            continue
        path = join(log.folder, name)
        try:
            if read_snapshot(files, path, snapshot) is not None:
                good.append(snapshot)
        except SnapshotDamaged as error:
            log.findings.add(
                FindingKind.METADATA_SNAPSHOT_WRONG, path, error.message, position=error.position
            )
        except FileNotFoundError:
            continue  # replaced by a newer snapshot during the check
    return sorted(good)


def read_snapshot(files: "Files", path: str, snapshot: SnapshotId) -> list[bytes] | None:
    """Return the values of a snapshot's file, or None if another server wrote it. Raise
    SnapshotDamaged."""
    decoder = SnapshotDecoder(snapshot, with_values=True)
    values: list[bytes] = []
    file = files.open_readonly(path)
    try:
        position = 0
        while content := file.read(position, READ_BYTES):
            position += len(content)
            for found in decoder.feed(content):
                values += found
        decoder.finish()
    except SnapshotDamaged:
        if decoder.is_foreign:
            return None
        raise
    finally:
        file.close()
    return values


def newest_snapshot(files: "Files", folder: str) -> SnapshotId | None:
    """Return the snapshot with the highest end offset in a log's folder, by file name."""
    found = (snapshot_of_name(name) for name in files.names(folder))
    return max((snapshot for snapshot in found if snapshot is not None), default=None)


def _compare(log: LogReport, snapshots: list[SnapshotId]) -> None:
    """Check that the log starts at a snapshot's end.

    A crash may have interrupted an install or a cleaning, which the next start completes.
    """
    if not snapshots:
        if log.batches and log.log_start_offset > 0:
            log.findings.add(
                FindingKind.METADATA_SNAPSHOT_WRONG,
                log.folder,
                f"the log starts at offset {log.log_start_offset} and no snapshot has the state"
                " before it",
                offset=log.log_start_offset,
            )
        return
    newest = snapshots[-1]
    if newest.end_offset > log.log_end_offset:
        log.findings.add(
            FindingKind.UNFINISHED,
            join(log.folder, checkpoint_name(newest)),
            "the snapshot ends above the log's end; the next start replaces the log with it",
        )
        return
    starts = {snapshot.end_offset for snapshot in snapshots}
    if log.batches and log.log_start_offset > 0 and log.log_start_offset not in starts:
        log.findings.add(
            FindingKind.METADATA_SNAPSHOT_WRONG,
            log.folder,
            f"the log starts at offset {log.log_start_offset}, where no snapshot ends",
            offset=log.log_start_offset,
        )


def _check_epoch(
    files: "Files", report: CheckReport, log: LogReport, snapshots: list[SnapshotId]
) -> None:
    path = join(report.path, QUORUM_STATE_NAME)
    if files.exists(join(log.folder, QUORUM_STATE_NAME)):
        return  # another server keeps the file there
    if not files.exists(path):
        if log.batches:
            what = "missing beside a log: this node may have voted and must not vote again"
            report.findings.add(FindingKind.METADATA_WRONG, path, what)
        return
    try:
        epoch = decode_hard_state(read_file(files, path)).epoch
    except CorruptionError:
        return  # the storage check has reported it
    reached = max((snapshot.epoch for snapshot in snapshots), default=0)
    if epoch < reached:
        what = f"outdated: its epoch is {epoch}, a snapshot has epoch {reached}"
        report.findings.add(FindingKind.METADATA_WRONG, path, what)


# --- dump --------------------------------------------------------------------------------------


def describe_controls(batch: bytes) -> dict[str, Any]:
    """Return the content of a control batch of the metadata log or of a snapshot, for a dump's row.

    Raise CorruptionError.
    """
    return {"says": "; ".join(map(_said, decode_controls(batch)))}


def _said(control: Control) -> str:
    match control:
        case LeaderChange():
            return f"node {control.leader_id} leads, voters {_named(control.voters)}"
        case SnapshotHeader(end_offset=None):
            return "a snapshot"
        case SnapshotHeader():
            return f"a snapshot of everything before offset {control.end_offset}"
        case SnapshotFooter():
            return f"checksum {control.checksum.hex() or 'none'}"
        case KRaftVersion():
            return f"kraft version {control.version}"
        case VoterSet():
            members = (f"{_named((voter,))} at {address}" for voter, address in control.members)
            return f"voters {', '.join(members) or 'unknown'}"


def _named(voters: tuple[Voter, ...]) -> str:
    return ", ".join(f"{voter.node_id} ({voter.directory_id.hex()})" for voter in voters) or "none"
