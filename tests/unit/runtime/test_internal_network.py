"""Connections between nodes on real sockets: certificates and unauthenticated peers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.kit.certificates import Certificates, self_signed
from tests.kit.waits import AMPLE_MS, run_patiently, wait_until, with_time

from quorumlog.errors import (
    ClusterAuthorizationFailed,
    InvalidConfig,
    Overloaded,
    QuorumlogError,
    SaslAuthenticationFailed,
)
from quorumlog.proto import quorum_pb2 as pb
from quorumlog.runtime import (
    ByteConnection,
    CallContext,
    Channel,
    ClientIdentity,
    Handler,
    Network,
    Runtime,
    Stream,
    grpc_network,
)
from quorumlog.runtime.internal_network import InternalNetwork, InternalSecurity
from quorumlog.runtime.node_identity import NodeIdentities, check_sender, node_uri
from quorumlog.runtime.tls import TlsCredentials, TlsFiles
from quorumlog.runtime.tls_connection import ReceiveBuffer, TlsConnection
from quorumlog.server.certificates import issue
from quorumlog.services import QUORUM_DESCRIBE, RAFT_PROPOSE

from .byte_connection import Peer

CLUSTER = "cluster_of-the-tests01"
LARGE = "x" * (8 << 20)
"""More than gRPC buffers for a client that does not read."""
HOSTS = ("localhost", "127.0.0.1")
ALICE = ClientIdentity("User:alice", "10.0.0.1")
"""A client on whose behalf a node calls."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One authority with certificates of nodes 1 to 3, of a client, and of a foreign node."""
    made = Certificates.create(tmp_path_factory.mktemp("ca"))
    for number in (1, 2, 3):
        roles = ("broker",) if number == 3 else ("broker", "controller")
        uri = node_uri(CLUSTER, number, roles)
        issue(made.folder, f"node{number}", name=f"node {number}", hosts=HOSTS, uris=[uri])
    elsewhere = node_uri("another_cluster-000001", 2, ("broker",))
    issue(made.folder, "elsewhere", name="node 2", hosts=HOSTS, uris=[elsewhere])
    return made


def node_network(
    runtime: Runtime,
    certificates: Certificates,
    name: str,
    security: InternalSecurity = InternalSecurity.REQUIRED,
) -> tuple[InternalNetwork, NodeIdentities]:
    """Return the network of a node with a certificate of this name."""
    files = certificates.server(client_auth="required", name=name)
    return over(runtime, files, security)


def over(
    runtime: Runtime, files: TlsFiles, security: InternalSecurity
) -> tuple[InternalNetwork, NodeIdentities]:
    """Return a node's network with these files."""
    certified = security is InternalSecurity.REQUIRED
    identities = NodeIdentities(CLUSTER, are_certified=certified)
    tls = None
    if security is not InternalSecurity.PLAINTEXT:
        tls = TlsCredentials(files, connects=True)
    network = InternalNetwork(
        runtime.network, runtime.tasks, identities, security=security, tls=tls
    )
    return network, identities


class Service:
    """The services of a node for other nodes: calls, a stream, and bytes."""

    def __init__(self, cluster_id: str = CLUSTER) -> None:
        self._cluster_id = cluster_id
        self.contexts: list[CallContext] = []
        self.peers: asyncio.Queue[Peer] = asyncio.Queue()

    async def describe(
        self, request: pb.DescribeQuorumRequest, context: CallContext
    ) -> pb.DescribeQuorumResponse:
        self.contexts.append(context)
        return pb.DescribeQuorumResponse(cluster_id=self._cluster_id)

    async def propose(self, stream: Stream[Any, Any], context: CallContext) -> None:
        self.contexts.append(context)
        await stream.receive()

    def accept(self, connection: ByteConnection) -> Peer:
        peer = Peer(connection)
        self.peers.put_nowait(peer)
        return peer

    @asynccontextmanager
    async def on(self, network: Network) -> AsyncIterator[tuple[str, str]]:
        """The addresses for calls and for bytes."""
        handlers = (
            Handler(QUORUM_DESCRIBE, self.describe),
            Handler(RAFT_PROPOSE, self.propose),
        )
        calls = await network.serve("127.0.0.1:0", {each.method.path: each for each in handlers})
        streams = await network.listen_bytes("127.0.0.1:0", self.accept)
        try:
            yield calls.address, streams.address
        finally:
            await calls.close(0)
            await streams.close(0)


async def described(
    network: Network, address: str, on_behalf_of: ClientIdentity | None = None
) -> str:
    """Send one call."""
    channel = network.channel(address)
    try:
        request = pb.DescribeQuorumRequest()
        answer = await channel.call(
            QUORUM_DESCRIBE, request, timeout_ms=AMPLE_MS, on_behalf_of=on_behalf_of
        )
        return answer.cluster_id
    finally:
        await channel.close()


def _has_hello(peer: Peer) -> bool:
    return peer.got == b"hello"


async def exchange(network: Network, address: str) -> Peer:
    """Send a few bytes. Return the connection's protocol."""
    made: list[Peer] = []

    def create(connection: ByteConnection) -> Peer:
        made.append(Peer(connection))
        return made[0]

    connection = await network.connect_bytes(address, create)
    connection.write([b"hello"])
    return made[0]


def run(main: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    """Run on real sockets."""
    run_patiently(main)


def test_node_has_the_id_and_the_roles_of_its_certificate(certificates: Certificates) -> None:
    async def main(runtime: Runtime) -> None:
        service = Service()
        mine, _ = node_network(runtime, certificates, "node1")
        its, _ = node_network(runtime, certificates, "node3")
        async with service.on(mine) as (calls, streams):
            assert await described(its, calls) == CLUSTER
            caller = await exchange(its, streams)
            peer = await service.peers.get()
            await peer.wait(lambda: peer.got == b"hello")
            node = ClientIdentity("Node:3", "127.0.0.1", ("broker",))
            assert peer.connection.client == node
            assert caller.connection.client.principal == "Node:1"
            assert service.contexts[0].client == node
            assert not service.contexts[0].is_forwarded
            caller.connection.abort()

    run(main)


def strangers(runtime: Runtime, certificates: Certificates, folder: Path) -> dict[str, Network]:
    """Return networks without a node certificate of the cluster."""
    required = InternalSecurity.REQUIRED
    foreign = replace(self_signed(folder / "self", hosts=HOSTS), ca=certificates.ca)
    return {
        "plain": runtime.network,
        "client": over(runtime, certificates.client("mallory"), required)[0],
        "server": node_network(runtime, certificates, "server")[0],
        "elsewhere": node_network(runtime, certificates, "elsewhere")[0],
        "self-signed": over(runtime, foreign, required)[0],
    }


@pytest.mark.parametrize("kind", ["plain", "client", "server", "elsewhere", "self-signed"])
def test_stranger_gets_no_answer(certificates: Certificates, tmp_path: Path, kind: str) -> None:
    async def main(runtime: Runtime) -> None:
        service = Service()
        mine, _ = node_network(runtime, certificates, "node1")
        stranger = strangers(runtime, certificates, tmp_path)[kind]
        async with service.on(mine) as (calls, streams):
            with pytest.raises(QuorumlogError):
                await described(stranger, calls, ALICE if kind != "plain" else None)
            caller = await exchange(stranger, streams)
            await caller.wait(lambda: bool(caller.errors))
            assert not caller.got
        assert not service.contexts
        assert service.peers.empty()

    run(main)


def test_node_removed_from_the_allowed_nodes_loses_its_connections(
    certificates: Certificates,
) -> None:
    async def main(runtime: Runtime) -> None:
        service = Service()
        mine, allowed = node_network(runtime, certificates, "node1")
        its, _ = node_network(runtime, certificates, "node2")
        async with service.on(mine) as (calls, streams):
            caller = await exchange(its, streams)
            await service.peers.get()
            channel = its.channel(calls)
            stream = await channel.stream(RAFT_PROPOSE, timeout_ms=AMPLE_MS)
            allowed.allowed = frozenset({1, 3})
            mine.end_removed()
            await caller.wait(lambda: bool(caller.errors))
            with pytest.raises(QuorumlogError):
                await stream.receive()
            with pytest.raises(ClusterAuthorizationFailed, match="is not in the file"):
                await described(its, calls)
            await channel.close()

    run(main)


def test_unary_call_of_a_removed_node_is_not_executed(
    certificates: Certificates,
) -> None:
    """A caller may send the request long after the headers."""

    async def main(runtime: Runtime) -> None:
        service = Service()
        mine, allowed = node_network(runtime, certificates, "node1")
        its, _ = node_network(runtime, certificates, "node2")
        async with service.on(mine) as (calls, _):
            channel = its.channel(calls)
            begun = replace(QUORUM_DESCRIBE, streaming=True)
            late = await channel.stream(begun, timeout_ms=AMPLE_MS)
            silent = await channel.stream(begun, timeout_ms=AMPLE_MS)
            request = pb.DescribeQuorumRequest()
            await channel.call(QUORUM_DESCRIBE, request, timeout_ms=AMPLE_MS)  # follows the headers
            allowed.allowed = frozenset({1, 3})
            await late.send(request)
            for stream in (late, silent):
                with pytest.raises(SaslAuthenticationFailed, match="the session has ended"):
                    await stream.receive()
            assert len(service.contexts) == 1
            await channel.close()

    run(main)


def test_unread_responses_of_a_client_are_bounded_until_it_reads(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also responses of calls that have ended: gRPC keeps a message until it is read."""
    monkeypatch.setattr(grpc_network, "UNREAD_BYTES", (2 * len(LARGE) + 100, 8 * len(LARGE)))

    async def main(runtime: Runtime) -> None:
        service = Service(LARGE)
        mine, _ = node_network(runtime, certificates, "node1")
        its, _ = node_network(runtime, certificates, "node2")
        another, _ = node_network(runtime, certificates, "node3")
        async with service.on(mine) as (calls, _):
            channel = its.channel(calls)
            unread = await begun_calls(channel, 2)
            await wait_until(lambda: len(service.contexts) == 2)
            with pytest.raises(Overloaded, match="are not read"):
                await described(its, calls)
            assert await described(another, calls) == LARGE
            for stream in unread:
                response = await stream.receive()
                assert response is not None
                assert response.cluster_id == LARGE
            # The server detects later that the client has read, or has disconnected.
            assert await described_with_room(its, calls) == LARGE
            count = len(service.contexts)
            await begun_calls(channel, 2)
            await wait_until(lambda: len(service.contexts) == count + 2)
            await channel.close()
            assert await described_with_room(its, calls) == LARGE

    run(main)


async def described_with_room(network: Network, address: str) -> str:
    """Describe the quorum, and retry while there is no space for the response."""
    while True:
        with suppress(Overloaded):
            return await described(network, address)


async def begun_calls(channel: Channel, count: int) -> list[Stream[Any, Any]]:
    """Start unary calls whose responses are read later."""
    begun = replace(QUORUM_DESCRIBE, streaming=True)
    streams = [await channel.stream(begun, timeout_ms=AMPLE_MS) for _ in range(count)]
    for stream in streams:
        await stream.send(pb.DescribeQuorumRequest())
    return streams


def test_node_does_not_start_with_the_certificate_of_another_node(
    certificates: Certificates,
) -> None:
    identities = NodeIdentities(CLUSTER, are_certified=True)
    identities.allowed = frozenset({7})  # the node itself need not be among the others

    def load(name: str, number: int, roles: tuple[str, ...]) -> None:
        files = certificates.server(client_auth="required", name=name)
        check = partial(identities.check_own, node_id=number, roles=roles)
        TlsCredentials(files, connects=True, check=check)

    load("node2", 2, ("broker", "controller"))
    load("node3", 3, ("broker",))
    for name, number, roles in (
        ("node2", 1, ("broker",)),
        ("node3", 3, ("broker", "controller")),
        ("elsewhere", 2, ("broker",)),
        ("server", 1, ("broker",)),
    ):
        with pytest.raises(InvalidConfig, match="quorumlog tls issue"):
            load(name, number, roles)


def test_node_reads_nothing_from_a_server_without_a_node_certificate(
    certificates: Certificates,
) -> None:
    async def main(runtime: Runtime) -> None:
        its, _ = node_network(runtime, certificates, "node2")
        context = certificates.server(client_auth="required").server_context()

        def accept(transport: ByteConnection) -> TlsConnection:
            return TlsConnection(
                transport,
                Peer,
                context=context,
                tasks=runtime.tasks,
                received=ReceiveBuffer(),
                secured=lambda connection, _: connection.write([b"records"]),
            )

        listener = await runtime.network.listen_bytes("127.0.0.1:0", accept)
        caller = await exchange(its, listener.address)
        await caller.wait(lambda: bool(caller.errors))
        assert not caller.got
        assert not caller.connection.client.is_node
        with pytest.raises(ClusterAuthorizationFailed):
            check_sender(caller.connection.client, 1)
        await listener.close(0)

    run(main)


def test_only_a_node_calls_on_behalf_of_a_client(certificates: Certificates) -> None:
    async def main(runtime: Runtime) -> None:
        service = Service()
        mine, _ = node_network(runtime, certificates, "node1")
        its, _ = node_network(runtime, certificates, "node2")
        async with service.on(mine) as (calls, _):
            await described(its, calls, ALICE)
        async with service.on(runtime.network) as (calls, _):  # a listener for clients
            await described(runtime.network, calls, ALICE)
        forwarded, direct = service.contexts
        assert (forwarded.client, forwarded.is_forwarded) == (ALICE, True)
        assert (direct.client.principal, direct.is_forwarded) == ("User:ANONYMOUS", False)

    run(main)


@pytest.mark.parametrize("security", [InternalSecurity.ACCEPT_BOTH, InternalSecurity.PREFER_TLS])
def test_node_accepts_both_during_the_change_to_tls(
    certificates: Certificates, security: InternalSecurity
) -> None:
    async def main(runtime: Runtime) -> None:
        service = Service()
        mine, _ = node_network(runtime, certificates, "node1", security)
        with_tls, _ = node_network(runtime, certificates, "node2", InternalSecurity.PREFER_TLS)
        without, _ = node_network(runtime, certificates, "node3", InternalSecurity.ACCEPT_BOTH)
        async with service.on(mine) as (calls, streams):
            for network, principal in ((with_tls, "Node:2"), (without, "Node:")):
                assert await described(network, calls, ALICE) == CLUSTER
                caller = await exchange(network, streams)
                peer = await service.peers.get()
                await peer.wait(partial(_has_hello, peer))
                assert peer.connection.client.principal == principal
                caller.connection.abort()

    run(main)


def test_channel_uses_certificates_of_a_new_authority(tmp_path: Path) -> None:
    folder, uri = tmp_path / "now", node_uri(CLUSTER, 2, ("broker",))

    def create(place: Path) -> Certificates:
        made = Certificates.create(place)
        issue(made.folder, "node2", name="node 2", hosts=HOSTS, uris=[uri])
        return made

    async def main(runtime: Runtime) -> None:
        service, request = Service(), pb.DescribeQuorumRequest()
        files = create(folder).server(client_auth="required", name="node2")
        credentials = TlsCredentials(files, connects=True)
        identities = NodeIdentities(CLUSTER, are_certified=True)
        network = InternalNetwork(
            runtime.network,
            runtime.tasks,
            identities,
            security=InternalSecurity.REQUIRED,
            tls=credentials,
        )
        handlers = {QUORUM_DESCRIBE.path: Handler(QUORUM_DESCRIBE, service.describe)}
        listener = await network.serve("127.0.0.1:0", handlers)
        channel = network.channel(listener.address)
        await channel.call(QUORUM_DESCRIBE, request, timeout_ms=AMPLE_MS)
        await listener.close(0)
        for path in create(tmp_path / "new").folder.iterdir():
            path.replace(folder / path.name)
        assert credentials.reload()
        listener = await network.serve(listener.address, handlers)

        async def until_answered(_: int) -> None:
            await channel.call(QUORUM_DESCRIBE, request, timeout_ms=AMPLE_MS)

        await with_time(1, until_answered)
        await channel.close()
        await listener.close(0)

    run(main)
