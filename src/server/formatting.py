"""Formatting a node's data directory, and what one tells of itself."""

import base64
from functools import partial

from ..errors import CorruptionError, DirectoryUnusable, InvalidRequest
from ..ids import ClusterId, DirectoryId, NodeId
from ..raftlog import METADATA_LOG_NAME
from ..raftlog.core.voters import Voter, VoterSet
from ..raftlog.shell.disk.formatting import format_directory as format_member
from ..runtime import Runtime
from ..storage import DirectoryMeta
from ..storage.disk.checkpoints import decode_meta
from ..storage.disk.contents import read_file
from ..storage.disk.layout import META_PROPERTIES
from ..storage.shell.directory import Directory
from .config import NodeConfig
from .forming import Forming


def is_formatted(runtime: Runtime, config: NodeConfig) -> bool:
    """Whether the data directory has been formatted."""
    return runtime.files.exists(f"{config.data_dir}/{META_PROPERTIES}")


async def format_directory(
    runtime: Runtime, config: NodeConfig, *, cluster_id: str = "", forming: Forming | None = None
) -> DirectoryMeta:
    """Format the data directory for this node; repeating it changes nothing.

    Without a cluster id a formatted directory keeps its own, and a new one gets one drawn;
    `forming` says who votes at first, None: this node alone; a broker alone never does. Raises
    DirectoryMismatch when it
    belongs to another cluster, node or disk, or was formed otherwise, DirectoryInUse,
    DirectoryUnusable when it cannot be made or written, InvalidRequest when a cluster id would be
    drawn for a broker alone.
    """
    forming = forming or Forming()
    if not config.is_controller:
        forming = Forming(directory_id=forming.directory_id, voters=VoterSet(()))
    entropy, node_id = runtime.entropy.stream("format"), NodeId(config.node_id)
    known = await _meta_of(runtime, config)
    text = cluster_id or (known.cluster_id if known is not None else "")
    if not text and not config.is_controller:
        raise InvalidRequest(
            "a broker alone joins a cluster that there is: give its id, which any of its nodes "
            "tells (`quorumlog quorum status`), by --cluster-id or cluster.id"
        )
    if not text:
        text = base64.urlsafe_b64encode(entropy.token(16)).decode().rstrip("=")
    directory_id = forming.directory_id
    if directory_id is None:
        drawn = DirectoryId(entropy.token(16))
        directory_id = drawn if known is None else known.directory_id
    return await format_member(
        runtime,
        config.data_dir,
        cluster_id=ClusterId(text),
        node_id=node_id,
        directory_id=directory_id,
        voters=forming.voters_with(Voter(node_id, directory_id), config.quorum_address),
    )


async def refuse_lost_metadata(directory: Directory) -> None:
    """Beside an empty metadata log there can be no partition of ours: the log was lost.

    Going on would take every folder for a deleted topic's. Raises CorruptionError.
    """
    for name in directory.log_names():
        if name != METADATA_LOG_NAME and await directory.topic_of_folder(name) is not None:
            raise CorruptionError(
                f"the metadata log of {directory.path} is empty, but {name} holds a partition: "
                f"restore {METADATA_LOG_NAME} from a backup, or format a new directory; no "
                "partition was touched",
                path=f"{directory.path}/{METADATA_LOG_NAME}",
            )


async def _meta_of(runtime: Runtime, config: NodeConfig) -> DirectoryMeta | None:
    """Return whose a formatted directory is, None when it is none."""
    if not is_formatted(runtime, config):
        return None
    path = f"{config.data_dir}/{META_PROPERTIES}"
    try:
        content = await runtime.tasks.offload("read", partial(read_file, runtime.files, path))
    except OSError as error:
        raise DirectoryUnusable(f"{path} cannot be read: {error.strerror or error}") from None
    return decode_meta(content, path)
