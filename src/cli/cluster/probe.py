"""Health checks of the nodes of a local cluster, over their listeners for nodes."""

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from ...errors import ERROR_BY_NAME, QuorumlogError, TimedOut, UnknownServerError
from ...proto import admin_pb2, quorum_pb2
from ...runtime import PLAIN_CHANNEL, Channel, ChannelSecurity, Runtime
from ...runtime.internal_network import InternalSecurity
from ...runtime.real import run
from ...server.main import load_config
from ...services import ADMIN_DESCRIBE_CLUSTER, QUORUM_DESCRIBE
from .processes import Life, life_of
from .state import LocalCluster, LocalNode

T = TypeVar("T")

PROBE_TIMEOUT_MS = 1_000  # a node that takes longer is silent
POLL_S = 0.05  # between two rounds of probes
TAIL_BYTES = 4_096  # of a node's output, to find the error that ended it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """The result of probing one node."""

    life: Life
    answers: bool = False
    leader: int | None = None  # of the quorum; None: the node has none, or does not answer
    is_unfenced: bool = False  # as a broker; True for a node that is not a broker

    @property
    def serves(self) -> bool:
        """True if the node has a leader and, as a broker, is not fenced."""
        return self.leader is not None and self.is_unfenced

    @property
    def state(self) -> str:
        """The state as one word: running, silent, paused or down."""
        if self.life is not Life.RUNNING:
            return self.life.value
        return "running" if self.answers else "silent"


def check_nodes(cluster: LocalCluster) -> dict[int, NodeHealth]:
    """Probe every node once, concurrently."""
    return _with_probes(cluster, lambda probes: probes.probe_all(cluster.nodes))


def wait_serving(cluster: LocalCluster, ids: Iterable[int], seconds: float) -> None:
    """Wait until these nodes serve. Raise the error of a node that exits, or TimedOut.

    A node serves if it has a quorum leader and, as a broker, is not fenced. For a single node of
    several an answer is enough if no node has a leader: the majority of the voters may be down.
    """
    wanted = [cluster.node(number) for number in ids]

    async def wait(probes: "_Probes") -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            found = await probes.probe_all(cluster.nodes)
            for node in wanted:
                if found[node.id].life is Life.DOWN:
                    others = [n for n in wanted if found[n.id].life is not Life.DOWN]
                    raise exit_error(cluster, node, do_others_run=bool(others))
            waiting = [n.id for n in wanted if not _is_ready(n, found, len(wanted))]
            if not waiting:
                return
            if asyncio.get_running_loop().time() > deadline:
                number = waiting[0]
                raise TimedOut(
                    f"node {number} does not serve after {seconds:.0f} s: "
                    f"{_not_ready_reason(found[number])}; see `quorumlog cluster status` and "
                    f"{cluster.log_file(number)}"
                )
            await asyncio.sleep(POLL_S)

    _with_probes(cluster, wait)


def exit_error(
    cluster: LocalCluster, node: LocalNode, *, do_others_run: bool = False
) -> QuorumlogError:
    """Return the error that ended a node's process, from the end of its output."""
    others = "; the other nodes run, `quorumlog cluster down` stops them" if do_others_run else ""
    path = cluster.log_file(node.id)
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in reversed(lines):
        try:
            row = json.loads(line)
            kind, message = ERROR_BY_NAME[row["error"]], str(row["message"])
        except (ValueError, KeyError, TypeError):
            continue
        return kind(f"node {node.id} exited: {message}{others}")
    last = lines[-1].strip() if lines else "it printed nothing"
    return UnknownServerError(f"node {node.id} exited: {last}; see {path}{others}")


def _not_ready_reason(health: NodeHealth) -> str:
    """Return the reason why a running node does not serve."""
    if not health.answers:
        return f"it is {health.state}"
    if health.leader is None:
        return "the quorum has no leader, which needs a majority of the voters"
    return "the broker is fenced"


def _is_ready(node: LocalNode, found: dict[int, NodeHealth], wanted: int) -> bool:
    health = found[node.id]
    if health.serves:
        return True
    is_one_of_several = wanted == 1 < len(found)
    has_no_leader = all(each.leader is None for each in found.values())
    return is_one_of_several and has_no_leader and health.answers


def _with_probes(cluster: LocalCluster, work: "Callable[[_Probes], Coroutine[Any, Any, T]]") -> T:
    async def main(runtime: Runtime) -> T:
        probes = _Probes(runtime, cluster)
        try:
            return await work(probes)
        finally:
            await probes.close()

    return run(main, name="cluster")


class _Probes:
    """Probes of nodes; channels are kept from one round to the next."""

    def __init__(self, runtime: Runtime, cluster: LocalCluster) -> None:
        self._runtime = runtime
        self._cluster = cluster
        self._channels: dict[str, Channel] = {}

    async def probe_all(self, nodes: Iterable[LocalNode]) -> dict[int, NodeHealth]:
        probed = list(nodes)
        return dict(
            zip(
                [node.id for node in probed],
                await asyncio.gather(*(self._probe(node) for node in probed)),
                strict=True,
            )
        )

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def _probe(self, node: LocalNode) -> NodeHealth:
        life = Life.DOWN if node.process is None else life_of(node.process)
        if life is not Life.RUNNING:
            return NodeHealth(life=life)
        try:
            quorum = await self._channel(node).call(
                QUORUM_DESCRIBE,
                quorum_pb2.DescribeQuorumRequest(local=True),
                timeout_ms=PROBE_TIMEOUT_MS,
            )
        except QuorumlogError:
            return NodeHealth(life=life)
        leader = None if quorum.leader_id < 0 else quorum.leader_id
        return NodeHealth(
            life=life, answers=True, leader=leader, is_unfenced=await self._is_unfenced(node)
        )

    async def _is_unfenced(self, node: LocalNode) -> bool:
        if not node.is_broker:
            return True
        try:
            answer = await self._channel(node).call(
                ADMIN_DESCRIBE_CLUSTER,
                admin_pb2.DescribeClusterRequest(),
                timeout_ms=PROBE_TIMEOUT_MS,
            )
        except QuorumlogError:
            return False
        return any(broker.id == node.id and not broker.fenced for broker in answer.brokers)

    def _channel(self, node: LocalNode) -> Channel:
        address = node.controller
        channel = self._channels.get(address)
        if channel is None:
            security = self._security_of(node)
            channel = self._channels[address] = self._runtime.network.channel(address, security)
        return channel

    def _security_of(self, node: LocalNode) -> ChannelSecurity:
        """Return the security of a channel to a node's listener for nodes: this machine has the
        node's certificate."""
        config = load_config(self._cluster.config_file(node.id), self._cluster.settings)
        if not InternalSecurity(config.security.internal_security).connects_with_tls:
            return PLAIN_CHANNEL
        return ChannelSecurity(tls=config.security.internal_files())
