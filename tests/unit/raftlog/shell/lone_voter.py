"""A lone voter on a directory that was formatted without voters."""

from quorumlog.ids import ClusterId
from quorumlog.raftlog import RaftConfig
from quorumlog.raftlog.shell import RaftNode, StateMachine
from quorumlog.runtime import Runtime, Scope
from quorumlog.storage.shell.data_directory import DataDirectory

CLUSTER = ClusterId("c" * 22)


async def open_node(
    runtime: Runtime,
    scope: Scope,
    directory: DataDirectory,
    config: RaftConfig,
    state_machine: StateMachine,
) -> RaftNode:
    """Return a node that is open but not started."""
    return await RaftNode.open(
        runtime,
        scope,
        directory,
        cluster_id=CLUSTER,
        config=config,
        state_machine=state_machine,
    )
