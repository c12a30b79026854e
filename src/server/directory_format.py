"""Formatting of a node's data directory, with the initial voters of the quorum."""

import base64
from dataclasses import dataclass
from functools import partial

from ..errors import CorruptionError, DirectoryUnusable, InvalidRequest
from ..ids import ClusterId, DirectoryId, NodeId
from ..raftlog import METADATA_LOG_NAME
from ..raftlog.shell.directory_format import format_directory as format_member
from ..raftlog.voters import Voter, VoterSet
from ..runtime import Runtime
from ..storage import DirectoryMeta
from ..storage.checkpoints import decode_meta
from ..storage.layout import META_PROPERTIES
from ..storage.shell.data_directory import DataDirectory
from ..storage.small_files import read_file
from .config import NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    """The directory id and the initial voters for formatting."""

    directory_id: DirectoryId | None = None  # None: random
    # The initial voters. Empty: none. None: this node alone, at an address not known yet.
    voters: VoterSet | None = None
    standalone: bool = False  # this node alone, at its configured address

    def voters_with(self, me: Voter, address: str) -> VoterSet | None:
        """Return the initial voters, with the directory id of this node."""
        return VoterSet(((me, address),)) if self.standalone else self.voters


def initial_voters(
    config: NodeConfig, *, standalone: bool = False, no_initial_voters: bool = False
) -> FormatOptions:
    """Return the initial voters of a configuration; raises InvalidRequest for contradictions.

    `standalone`: this node alone; commands add others. `no_initial_voters`: none; the node joins an
    existing quorum, and a command makes it a voter. Neither: the voters of `controller.voters`, or
    this node alone without that list. A node without the controller role never votes.
    """
    if standalone and no_initial_voters:
        raise InvalidRequest(
            "--standalone forms a quorum, --no-initial-voters joins one; give one of them"
        )
    entries, own = config.voters, config.own_entry
    if no_initial_voters or not config.is_controller:
        return _without_vote(config, standalone=standalone)
    if standalone:
        if not config.is_alone:
            raise InvalidRequest(
                "--standalone: it forms a quorum of this node alone, and the configuration names"
                " other nodes; remove controller.voters and controller.bootstrap, or the flag"
            )
        return _alone(config)
    if own is None:
        if config.is_alone:
            return FormatOptions()
        raise InvalidRequest(
            f"controller.voters: node {config.node_id} is missing; to join the existing quorum, run"
            " `quorumlog storage format --no-initial-voters`; to form a quorum, add this node"
        )
    if len(entries) == 1 and config.is_alone:
        return _alone(config)
    if any(entry.directory_id is None for entry in entries):
        raise InvalidRequest(
            f"controller.voters: {own} or another voter has no directory id; generate one with"
            " `quorumlog storage random-id`"
        )
    return FormatOptions(
        directory_id=own.directory_id,
        voters=VoterSet.of(
            (Voter(entry.node_id, entry.directory_id), entry.address)
            for entry in entries
            if entry.directory_id is not None
        ),
    )


def _without_vote(config: NodeConfig, *, standalone: bool) -> FormatOptions:
    if standalone:
        raise InvalidRequest(
            "--standalone: node.roles lacks controller, so the node cannot form a quorum; remove"
            " the flag, or add the role controller"
        )
    if config.is_alone:
        raise InvalidRequest(
            "controller.bootstrap: empty on a node without initial voters; set it to host:port of"
            " controllers"
        )
    return FormatOptions(voters=VoterSet(()))


def _alone(config: NodeConfig) -> FormatOptions:
    if not config.quorum_address or config.quorum_address.endswith(":0"):
        raise InvalidRequest(
            "the controller address is needed by voters that are added later; set"
            " advertised.controller, or listeners.controller to a fixed address with a fixed port"
        )
    own = config.own_entry
    return FormatOptions(directory_id=None if own is None else own.directory_id, standalone=True)


def is_formatted(runtime: Runtime, config: NodeConfig) -> bool:
    """Return True if the data directory has been formatted."""
    return runtime.files.exists(f"{config.data_dir}/{META_PROPERTIES}")


async def format_directory(
    runtime: Runtime,
    config: NodeConfig,
    *,
    cluster_id: str = "",
    forming: FormatOptions | None = None,
) -> DirectoryMeta:
    """Format the data directory for this node. Formatting is idempotent.

    Without a cluster id, a formatted directory keeps its own, and a new one gets a random one.
    `forming` has the initial voters; None means this node alone. A broker without the controller
    role is never an initial voter. Raises DirectoryMismatch if the directory belongs to another
    cluster, node or directory id, or has other initial voters; DirectoryInUse; DirectoryUnusable if
    it cannot be created or written; InvalidRequest if a node without the controller role has no
    cluster id.
    """
    forming = forming or FormatOptions()
    if not config.is_controller:
        forming = FormatOptions(directory_id=forming.directory_id, voters=VoterSet(()))
    entropy, node_id = runtime.entropy.stream("format"), NodeId(config.node_id)
    known = await read_meta(runtime, config)
    text = cluster_id or (known.cluster_id if known is not None else "")
    if not text and not config.is_controller:
        raise InvalidRequest(
            "cluster id: missing, and a node without the role controller joins an existing cluster;"
            " give the id that `quorumlog quorum status` prints, by --cluster-id or cluster.id"
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


async def check_metadata_not_lost(directory: DataDirectory) -> None:
    """Raise CorruptionError if an empty metadata log is beside partitions: the metadata log was
    lost.

    A start would treat every partition's folder as that of a deleted topic.
    """
    for name in directory.folders.names():
        if name != METADATA_LOG_NAME and await directory.folders.topic_of(name) is not None:
            raise CorruptionError(
                f"{directory.path}: the metadata log is empty, but {name} holds a partition;"
                f" restore {METADATA_LOG_NAME} from a backup, or format a new directory; no"
                " partition was changed",
                path=f"{directory.path}/{METADATA_LOG_NAME}",
            )


async def read_meta(runtime: Runtime, config: NodeConfig) -> DirectoryMeta | None:
    """Return the meta.properties of a formatted directory, None if it is not formatted."""
    if not is_formatted(runtime, config):
        return None
    path = f"{config.data_dir}/{META_PROPERTIES}"
    try:
        content = await runtime.tasks.offload("read", partial(read_file, runtime.files, path))
    except OSError as error:
        raise DirectoryUnusable(f"{path}: cannot be read: {error.strerror or error}") from None
    return decode_meta(content, path)
