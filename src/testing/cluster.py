"""A cluster for tests: one process per node; nodes can be killed, paused and partitioned."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from ..errors import InvalidRequest, TimedOut
from .broker import START_MS
from .loop_thread import LoopThread
from .node_group import NodeFixture, NodeGroup, fresh_name
from .node_process import NodeProcess
from .node_settings import BOTH, NodeEndpoints, check_settings, new_id, node_rows
from .relay import Direction, Relay

if TYPE_CHECKING:
    from typing import Unpack

    from ..clients.blocking import Log
    from ..clients.config import ClientSettings
    from ..server.secure_defaults import SecurityFolder
    from .cluster_state import NodeAddress

CutDirection: TypeAlias = tuple[int, int]  # (source, target): bytes in this direction do not arrive


class ClusterLinks:
    """All relays between nodes, in a thread of their own; `close` ends it.

    There is a relay for each pair of a dialling node and a dialled address, so that each direction
    between two nodes can be cut separately.
    """

    def __init__(self, dialled: Mapping[int, Sequence[str]]) -> None:
        """Start the relays to the addresses in `dialled`, by node."""
        self._relays: dict[CutDirection, list[Relay]] = {
            (source, target): [Relay(address) for address in addresses]
            for source in dialled
            for target, addresses in dialled.items()
            if source != target
        }
        self._thread = LoopThread("cluster-links")
        try:
            self._thread.run(self._listen())
        except BaseException:
            self.close()
            raise

    def routes(self, source: int) -> dict[str, str]:
        """Return the relay's address for each address that a node dials."""
        return {
            relay.target: relay.address
            for (dialler, _), relays in self._relays.items()
            if dialler == source
            for relay in relays
        }

    def cut(self, cuts: Iterable[CutDirection]) -> None:
        """Hold the bytes of these directions and forward all others."""
        held = set(cuts)  # membership only

        def change() -> None:
            for (source, target), relays in self._relays.items():
                ways = {
                    Direction.TO_SERVER: (source, target),
                    Direction.TO_CLIENT: (target, source),
                }
                for relay in relays:
                    relay.flow(*(way for way, cut in ways.items() if cut not in held))

        self._thread.call(change)

    def close(self) -> None:
        """End every connection."""
        self._thread.call(self._close)
        self._thread.stop()

    async def _listen(self) -> None:
        for relays in self._relays.values():
            for relay in relays:
                await relay.listen()

    def _close(self) -> None:
        for relays in self._relays.values():
            for relay in relays:
                relay.close()


T = TypeVar("T")

REPLICATION: Final = 3  # default replication factor, bounded by the number of brokers
LOOK_S: Final = 0.02  # between two queries of the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A node and its addresses; an address is "" if the node does not have that listener."""

    id: int
    roles: tuple[str, ...]
    kafka: str  # "host:port" for clients of the Kafka protocol
    grpc: str  # "host:port" for `quorumlog.connect` and the command line
    controller: str  # "host:port" for the other nodes
    http: str  # "host:port" of /metrics, /health and /ready
    data_dir: Path
    log_file: Path  # the log file of all its processes


class Cluster(NodeFixture):
    """Nodes with a process each, with their own ports and folder.

    ```python
    with Cluster(brokers=3) as cluster:
        topic = cluster.create_topic(partitions=1)
        leader = cluster.leader(topic)
        cluster.kill(leader)
        cluster.start(leader)
        cluster.partition({1}, {2, 3})
        cluster.heal()
    ```
    Nodes are numbers; a method without any applies to all of them. Use it in `with` or
    `async with`, or call `start` and `close`. It ends with this process, however that one ends,
    and leaves no files. `kill`, `pause`, `resume`, `partition`, `cut` and `heal` return quickly;
    from asyncio call slower methods as `await asyncio.to_thread(cluster.start, 2)`.
    """

    def __init__(
        self,
        *,
        brokers: int = 3,
        controllers: int = 0,
        settings: Mapping[str, object] | None = None,
        racks: Sequence[str] = (),
        secure: bool = False,
        timeout_ms: int = START_MS,
    ) -> None:
        """Create the cluster without starting it.

        Without `controllers` every broker is a controller too; otherwise that many nodes are
        controllers only, numbered after the brokers. `settings` are those of docs/configuration.md
        by name, for every node, except addresses and ids; `racks` are assigned to brokers in turn.
        Topics have three replicas unless set otherwise, or as many as there are brokers. With
        `secure` nodes and clients use TLS, clients need a password and ACLs, and there is the
        administrator "admin". A start may take `timeout_ms`. Raises InvalidRequest.
        """
        if brokers < 1 or controllers < 0:
            raise InvalidRequest(
                f"{brokers} brokers, {controllers} controllers: at least 1 broker is needed"
            )
        check_settings(settings or {})
        self._timeout_s = timeout_ms / 1000
        self._cuts: set[CutDirection] = set()  # membership only
        roles = {number: ("broker",) if controllers else BOTH for number in range(1, brokers + 1)}
        roles |= {brokers + 1 + each: ("controller",) for each in range(controllers)}
        super().__init__(NodeGroup(timeout_ms / 1000))
        try:
            addresses = {number: NodeEndpoints.take(self._group.ports) for number in roles}
            self._wires = ClusterLinks({n: addresses[n].dialled(roles[n]) for n in roles})
        except BaseException:
            self._group.close()
            raise
        self.nodes: dict[int, ClusterNode] = {}
        shared = _shared_rows(addresses, roles) | dict(settings or {})
        self.is_secure = secure
        self._security: SecurityFolder | None = None  # None: not secure
        if secure:
            from ..server.secure_defaults import open_security_folder

            self._security = open_security_folder(self._group.home.folder / "security")
        for number, kind in roles.items():
            self._add(number, kind, addresses[number], shared, racks)

    def _add(
        self,
        number: int,
        roles: tuple[str, ...],
        addresses: NodeEndpoints,
        shared: Mapping[str, object],
        racks: Sequence[str],
    ) -> None:
        name, is_broker = f"node {number}", "broker" in roles
        data_dir = self._group.home.folder / f"data-{number}"
        rows = node_rows(number, addresses, roles=roles, data_dir=data_dir)
        rows.update(shared)
        if "controller" not in roles:
            rows["controller.voters"] = []
        if is_broker and racks:
            rows["node.rack"] = racks[(number - 1) % len(racks)]
        password_file = ""
        if self._security is not None:
            self._security.issue_node(str(shared["cluster.id"]), number, roles, ())
            rows = self._security.settings(number) | rows
            if is_broker:
                rows["listeners.kafka"] = [f"SASL_SSL://{addresses.kafka}"]
            password_file = str(self._security.password_file)
        self._group.add(number, name, rows, self._wires.routes(number), password_file=password_file)
        self.nodes[number] = ClusterNode(
            id=number,
            roles=roles,
            kafka=addresses.kafka if is_broker else "",
            grpc=addresses.grpc if is_broker else "",
            controller=addresses.controller,
            http=addresses.http,
            data_dir=data_dir,
            log_file=self._group.node(number).log_file,
        )

    # --- addresses and state ----------------------------------------------------------------

    @property
    def kafka(self) -> str:
        """All brokers for Kafka clients, "host:port,host:port": their bootstrap.servers."""
        return ",".join(node.kafka for node in self.nodes.values() if node.kafka)

    @property
    def grpc(self) -> str:
        """All brokers for `quorumlog.connect` and the command line, "host:port,host:port"."""
        return ",".join(node.grpc for node in self.nodes.values() if node.grpc)

    @property
    def ca_file(self) -> str:
        """PEM file with the authority of a secure cluster's certificates."""
        return str(self._secured().path / "ca.pem")

    @property
    def password(self) -> str:
        """The password of a secure cluster's administrator, the user "admin"."""
        return self._secured().password

    def kafka_config(self, user: str = "admin", password: str | None = None) -> dict[str, str]:
        """Return the configuration of a Kafka client in the names of librdkafka; of a secure
        cluster, with a user and the password."""
        if not self.is_secure:
            return {"bootstrap.servers": self.kafka}
        return self._secured().kafka_config(self.kafka, user, password)

    def is_up(self, node: int) -> bool:
        """Return True if a node was started, and not stopped or killed since."""
        return self._group.node(node).is_up

    def pid(self, node: int) -> int:
        """Return the process id of a node; raises InvalidRequest if it is down."""
        return self._group.node(node).pid

    def log(self, node: int) -> str:
        """Return the log of all processes of a node."""
        return self._group.node(node).log()

    def leader(self, topic: str, partition: int = 0, *, other_than: int | None = None) -> int:
        """Return the leader of a partition. Wait until a running node other than `other_than` leads
        it.

        If partitioned nodes differ, the newest metadata count. Raises TimedOut and
        UnknownTopicOrPartition.
        """
        from .cluster_state import leader_of

        found = self._wait(
            lambda: self._meant(leader_of(self._asked("broker"), topic, partition), other_than),
            lambda: f"partition {partition} of {topic} has no suitable leader",
        )
        assert found is not None, "waited for a leader"
        return found

    def controller(self, *, other_than: int | None = None) -> int:
        """Return the leader of the quorum. Wait until a running node other than `other_than`
        leads it. Raises TimedOut."""
        from .cluster_state import quorum_leader

        found = self._wait(
            lambda: self._meant(quorum_leader(self._asked("controller")), other_than),
            lambda: "the quorum has no suitable leader",
        )
        assert found is not None, "waited for a leader"
        return found

    def wait_healthy(self) -> None:
        """Return once all brokers are registered and unfenced and all replicas are in sync.

        Raises TimedOut with the first problem, and InvalidRequest while a node is down or paused or
        nodes are partitioned.
        """
        from .cluster_state import unhealthy_reason

        idle = [number for number in self.nodes if not self._is_running(number)]
        if idle or self._cuts:
            raise InvalidRequest(
                f"node {idle[0]} is down or paused: start or resume it first"
                if idle
                else "nodes are partitioned: heal the cluster first"
            )
        brokers = [node.id for node in self.nodes.values() if node.grpc]
        ailments = [""]

        def look() -> bool:
            ailments[0] = unhealthy_reason(self._asked("broker"), brokers)
            return not ailments[0]

        self._wait(look, lambda: ailments[0])

    # --- start and stop ---------------------------------------------------------------------

    def start(self, *nodes: int) -> None:
        """Start nodes and return once they serve; without effect on running ones.

        One controller of several serves only with a majority of them. Raises the error of a failed
        start, such as InvalidConfig, and TimedOut, each with the end of the log.
        """
        self._group.start(nodes or self.nodes)

    def stop(self, *nodes: int) -> None:
        """Stop nodes cleanly, one after the other; without effect on those that are down. Data
        and addresses remain. Raises TimedOut."""
        for node in self._named(nodes):
            node.stop()

    def restart(self, *nodes: int) -> None:
        """Stop nodes cleanly and start them, one after the other."""
        for node in self._named(nodes):
            node.stop()
            self._group.start([node.number])

    def kill(self, *nodes: int) -> None:
        """Kill nodes (SIGKILL), like a crash; without effect on those that are down."""
        for node in self._named(nodes):
            node.kill()

    def pause(self, *nodes: int) -> None:
        """Pause nodes (SIGSTOP): connections stay open without answers. Raises InvalidRequest
        for a node that is down."""
        for node in self._named(nodes):
            node.pause()

    def resume(self, *nodes: int) -> None:
        """Resume paused nodes; without effect on others."""
        for node in self._named(nodes):
            node.resume()

    def close(self) -> None:
        """Kill every node and remove all files; the cluster cannot be started again."""
        super().close()
        self._wires.close()

    # --- links -------------------------------------------------------------------------------

    def partition(self, *groups: Iterable[int]) -> None:
        """Separate groups of nodes: no bytes pass between groups until `heal` or the next
        `partition`.

        Nodes of no group form one of their own. Clients still reach every node. Bytes in flight are
        held silently and arrive after `heal`. Raises InvalidRequest.
        """
        parts = [set(group) for group in groups]
        for number in (number for part in parts for number in sorted(part)):
            self._group.node(number)
            if sum(number in part for part in parts) > 1:
                raise InvalidRequest(f"node {number} is in two groups: name it in one")
        parts.append(set(self.nodes) - set().union(*parts))
        self._cuts = {
            cut
            for one, other in combinations(parts, 2)
            for a in one
            for b in other
            for cut in ((a, b), (b, a))
        }
        self._wires.cut(self._cuts)

    def cut(self, source: int, target: int) -> None:
        """Block the direction from one node to another, in addition to earlier cuts.

        The other direction stays open, but no connection between the two works or can be made.
        """
        for number in (source, target):
            self._group.node(number)
        self._cuts.add((source, target))
        self._wires.cut(self._cuts)

    def heal(self) -> None:
        """Undo every `partition` and `cut`."""
        self._cuts.clear()
        self._wires.cut(())

    def restore(self) -> None:
        """Undo every fault: heal, resume, start, and return once the cluster is healthy.

        Raises TimedOut, and UnknownServerError, after the recovery, if a node had ended
        unexpectedly.
        """
        self.heal()
        self.resume()
        with self._group.complaining_last():
            self.start()
            self.wait_healthy()

    # --- use ----------------------------------------------------------------------------------

    def connect(self, **settings: "Unpack[ClientSettings]") -> "Log":
        """Return a client, as `quorumlog.connect` does; close it, or use it in `with`. That of a
        secure cluster is the administrator's, unless other credentials are given."""
        from ..clients.blocking import connect
        from ..clients.credentials import SCRAM, TLS

        if self.is_secure:
            settings.setdefault("tls", TLS(ca=self.ca_file))
            settings.setdefault("credentials", SCRAM(user="admin", password=self.password))
        return connect(self.grpc, **settings)

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication: int | None = None,
        configs: Mapping[str, str | int | bool] | None = None,
    ) -> str:
        """Create a topic and return its name, a unique one unless given. Clients can use it at
        once."""
        from .cluster_state import create_topic

        topic = fresh_name("topic") if name is None else name
        create_topic(
            self._asked("broker"),
            topic,
            partitions=partitions,
            replication=replication,
            configs=configs or {},
            timeout_s=self._timeout_s,
        )
        return topic

    # --- inside ------------------------------------------------------------------------------

    def _named(self, numbers: Sequence[int]) -> list[NodeProcess]:
        """Return the nodes with these numbers; all nodes without any."""
        return [self._group.node(number) for number in numbers or self.nodes]

    def _is_running(self, number: int) -> bool:
        node = self._group.node(number)
        return node.is_up and not node.is_paused

    def _meant(self, number: int | None, other_than: int | None) -> int | None:
        """Return the number of a running node other than `other_than`, else None."""
        if number is None or number not in self.nodes or number == other_than:
            return None
        return number if self._is_running(number) else None

    def _asked(self, role: str) -> "list[NodeAddress]":
        """Return the addresses of the running nodes with a role, as other nodes reach them."""
        from ..runtime.tls import TlsFiles
        from .cluster_state import NodeAddress

        found = []
        for number, node in self.nodes.items():
            if role not in node.roles or not self._is_running(number):
                continue
            tls = None
            if self._security is not None:
                files = self._security.node_files(number)
                tls = TlsFiles(
                    certificate=str(files.certificate),
                    key=str(files.key),
                    ca=str(files.authority),
                )
            found.append(NodeAddress(node.controller, tls))
        return found

    def _secured(self) -> "SecurityFolder":
        if self._security is None:
            raise InvalidRequest("the cluster is not secure; create it with secure=True")
        return self._security

    def _wait(self, look: Callable[[], T], why: Callable[[], str]) -> T:
        """Poll until the result is true and return it; raises TimedOut with the reason."""
        end = time.monotonic() + self._timeout_s
        while not (found := look()):
            self.check_alive()
            if time.monotonic() > end:
                raise TimedOut(f"{why()} for {self._timeout_s:.0f} s")
            time.sleep(LOOK_S)
        return found


def _shared_rows(
    addresses: Mapping[int, NodeEndpoints], roles: Mapping[int, Sequence[str]]
) -> dict[str, object]:
    """Return the settings that all nodes share."""
    members = {n: addresses[n].controller for n, kind in roles.items() if "controller" in kind}
    brokers = sum("broker" in kind for kind in roles.values())
    return {
        "cluster.id": new_id(),
        "controller.voters": [f"{n}@{address}:{new_id()}" for n, address in members.items()],
        "controller.bootstrap": list(members.values()),
        "default.replication.factor": min(REPLICATION, brokers),
    }
