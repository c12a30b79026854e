"""Asks the nodes of a local cluster how they are, over the network as anybody would."""

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from ...errors import ERROR_BY_NAME, QuorumlogError, TimedOut, UnknownServerError
from ...proto import admin_pb2, quorum_pb2
from ...runtime import Channel, Runtime
from ...runtime.real import run
from ...services import ADMIN_DESCRIBE_CLUSTER, QUORUM_DESCRIBE
from .processes import Life, life_of
from .state import LocalCluster, LocalNode

T = TypeVar("T")

ANSWER_MS = 1_000  # a node that takes longer is silent
LOOK_S = 0.05  # between two rounds of questions
TAIL_BYTES = 4_096  # of what a node printed, to find why it ended


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """How one node is."""

    life: Life
    answers: bool = False
    leader: int | None = None  # as it knows; None: it knows none, or does not answer
    is_counted_on: bool = False  # as a broker; true for a node that is none

    @property
    def serves(self) -> bool:
        """Whether it does what its roles are."""
        return self.leader is not None and self.is_counted_on

    @property
    def state(self) -> str:
        """One word for people and programs."""
        if self.life is not Life.RUNNING:
            return self.life.value
        return "running" if self.answers else "silent"


def look(cluster: LocalCluster) -> dict[int, NodeHealth]:
    """Ask every node once."""
    return _asking(cluster, lambda questions: questions.ask_all(cluster.nodes))


def wait_serving(cluster: LocalCluster, ids: Iterable[int], seconds: float) -> None:
    """Return once these nodes serve; raises what one of them says when it ends instead, and
    TimedOut.

    A node serves when it knows the quorum's leader and, as a broker, when the controller counts on
    it. Where no node of the cluster knows a leader, one that answers has to do for a single node
    of several: a majority may be down.
    """
    wanted = [cluster.node(number) for number in ids]

    async def watch(questions: "_Questions") -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            found = await questions.ask_all(cluster.nodes)
            for node in wanted:
                if found[node.id].life is Life.DOWN:
                    others = [n for n in wanted if found[n.id].life is not Life.DOWN]
                    raise why_ended(cluster, node, do_others_run=bool(others))
            waited_for = [n.id for n in wanted if not _is_well(n, found, len(wanted))]
            if not waited_for:
                return
            if asyncio.get_running_loop().time() > deadline:
                number = waited_for[0]
                raise TimedOut(
                    f"node {number} does not serve within {seconds:.0f} s: "
                    f"{_what_lacks(found[number])}; see `quorumlog cluster status` and "
                    f"{cluster.log_file(number)}"
                )
            await asyncio.sleep(LOOK_S)

    _asking(cluster, watch)


def why_ended(
    cluster: LocalCluster, node: LocalNode, *, do_others_run: bool = False
) -> QuorumlogError:
    """Return the error with which a node's process ended, from the end of what it printed."""
    others = "; the others run on, `quorumlog cluster down` stops them" if do_others_run else ""
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
        return kind(f"node {node.id} does not run: {message}{others}")
    said = lines[-1].strip() if lines else "it printed nothing"
    return UnknownServerError(f"node {node.id} does not run: {said}; see {path}{others}")


def _what_lacks(health: NodeHealth) -> str:
    """What a node that runs does not serve for."""
    if not health.answers:
        return f"it is {health.state}"
    if health.leader is None:
        return "it knows no leader of the quorum, for which a majority of the voters must be up"
    return "the controller does not count on it as a broker yet"


def _is_well(node: LocalNode, found: dict[int, NodeHealth], wanted: int) -> bool:
    health = found[node.id]
    if health.serves:
        return True
    is_one_of_several = wanted == 1 < len(found)
    nobody_leads = all(each.leader is None for each in found.values())
    return is_one_of_several and nobody_leads and health.answers


def _asking(cluster: LocalCluster, work: "Callable[[_Questions], Coroutine[Any, Any, T]]") -> T:
    async def main(runtime: Runtime) -> T:
        questions = _Questions(runtime)
        try:
            return await work(questions)
        finally:
            await questions.close()

    return run(main, name="cluster")


class _Questions:
    """Channels to the nodes, kept from one round to the next."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._channels: dict[str, Channel] = {}

    async def ask_all(self, nodes: Iterable[LocalNode]) -> dict[int, NodeHealth]:
        asked = list(nodes)
        return dict(
            zip(
                [node.id for node in asked],
                await asyncio.gather(*(self._ask(node) for node in asked)),
                strict=True,
            )
        )

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def _ask(self, node: LocalNode) -> NodeHealth:
        life = Life.DOWN if node.process is None else life_of(node.process)
        if life is not Life.RUNNING:
            return NodeHealth(life=life)
        try:
            quorum = await self._channel(node.controller).call(
                QUORUM_DESCRIBE,
                quorum_pb2.DescribeQuorumRequest(local=True),
                timeout_ms=ANSWER_MS,
            )
        except QuorumlogError:
            return NodeHealth(life=life)
        leader = None if quorum.leader_id < 0 else quorum.leader_id
        return NodeHealth(
            life=life, answers=True, leader=leader, is_counted_on=await self._is_counted_on(node)
        )

    async def _is_counted_on(self, node: LocalNode) -> bool:
        if node.grpc is None:
            return True
        try:
            answer = await self._channel(node.grpc).call(
                ADMIN_DESCRIBE_CLUSTER,
                admin_pb2.DescribeClusterRequest(),
                timeout_ms=ANSWER_MS,
            )
        except QuorumlogError:
            return False
        return any(broker.id == node.id and not broker.fenced for broker in answer.brokers)

    def _channel(self, address: str) -> Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._runtime.network.channel(address)
        return channel
