"""Formatting of a data directory: its identity, and the voters at the log's start.

The voters are in the bootstrap snapshot 0-0 (KIP-853), which has no state and is never sent. It is
durable before the directory counts as formatted, so that no crash leaves a node that assumes to be
the only voter.
"""

from functools import partial

from ...errors import DirectoryMismatch, DiskFailed, InvalidRequest
from ...ids import ClusterId, DirectoryId, NodeId
from ...runtime import Files, Runtime
from ...storage import DirectoryMeta
from ...storage.shell.data_directory import DataDirectory
from ..config import METADATA_LOG_NAME
from ..snapshot_format import (
    BOOTSTRAP,
    SnapshotDecoder,
    SnapshotEncoder,
    checkpoint_name,
    snapshot_of_name,
)
from ..voters import VoterSet


async def format_directory(
    runtime: Runtime,
    path: str,
    *,
    cluster_id: ClusterId,
    node_id: NodeId,
    directory_id: DirectoryId | None = None,
    voters: VoterSet | None = None,
) -> DirectoryMeta:
    """Format a data directory. Repeating it changes nothing.

    `voters` are the first voters of the cluster, equal on all of them. Empty: the node has no
    voters and follows the leader until it is added. None: this node is the only voter until another
    one is added. The directory id is that of the voter with this node id, the given one, or drawn.

    Raise DirectoryMismatch if the directory belongs to another cluster or node, or was formatted
    with other voters; InvalidRequest, DirectoryInUse, DirectoryUnusable or CorruptionError.
    """
    voter = None if voters is None else voters.with_node_id(node_id)
    if voter is not None and directory_id not in (None, voter.directory_id):
        raise InvalidRequest(
            f"node {node_id}: the directory id differs from the one in the voters; omit one of them"
            " or make them equal"
        )
    first = None
    if voters is not None:
        encoder = SnapshotEncoder(BOOTSTRAP, voters)
        content = encoder.header() + encoder.footer()
        first = {METADATA_LOG_NAME: {checkpoint_name(BOOTSTRAP): content}}
    meta = await DataDirectory.format(
        runtime,
        path,
        cluster_id=cluster_id,
        node_id=node_id,
        directory_id=directory_id if voter is None else voter.directory_id,
        first=first,
    )
    if voter is not None and meta.directory_id != voter.directory_id:
        raise DirectoryMismatch(
            f"{path}: already formatted with another directory id than node {node_id} has in the"
            " voters; use its id in the voters, or format an empty directory"
        )
    if voters is not None:
        await _check_voters(runtime, path, voters)
    return meta


async def _check_voters(runtime: Runtime, path: str, voters: VoterSet) -> None:
    """Raise DirectoryMismatch if the directory was formatted with other voters."""
    job = partial(_formatted_voters, runtime.files, f"{path}/{METADATA_LOG_NAME}")
    try:
        found, is_known = await runtime.tasks.offload("read", job)
    except OSError as error:
        raise DiskFailed(f"{path}: {error}") from error
    if is_known and found != voters:
        raise DirectoryMismatch(
            f"{path}: already formatted with other voters; change voters while the cluster runs, or"
            " format an empty directory"
        )


def _formatted_voters(files: Files, folder: str) -> tuple[VoterSet | None, bool]:
    """Return the voters of the formatting, and whether they are known: a later snapshot replaces
    them.

    Runs in a lane.
    """
    names = files.names(folder) if files.exists(folder) else []
    snapshots = [one for name in names if (one := snapshot_of_name(name)) is not None]
    if BOOTSTRAP not in snapshots:
        return None, not snapshots
    file = files.open_readonly(f"{folder}/{checkpoint_name(BOOTSTRAP)}")
    try:
        decoder = SnapshotDecoder(BOOTSTRAP, with_values=False)
        decoder.feed(file.read(0, file.size()))
        return decoder.finish(), True
    finally:
        file.close()
