"""The network between the nodes of a cluster, on which every peer is a node.

It wraps the network of a runtime and identifies the other side of each connection by its
certificate. `InternalSecurity` selects TLS for each direction, so that a running cluster changes
from plaintext to TLS one node after another.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from ..errors import ClusterAuthorizationFailed, Overloaded, QuorumlogError
from .client_bounds import address_block
from .node_identity import NodeIdentities
from .ports import (
    PLAIN_CALLS,
    PLAIN_CHANNEL,
    ByteConnection,
    ByteProtocol,
    CallListener,
    CallPeer,
    CallSecurity,
    CallSession,
    Channel,
    ChannelSecurity,
    ClientIdentity,
    Handler,
    Listener,
    Network,
    PeerCertificate,
    Tasks,
)
from .refused import RefusedConnection

if TYPE_CHECKING:
    from .tls import TlsCredentials
    from .tls_connection import ReceiveBuffer, TlsConnection

ProtocolFactory: TypeAlias = Callable[[ByteConnection], ByteProtocol]

HANDSHAKES_MAX: Final = 256
"""Accepted byte connections without an identity, so that a stranger cannot use all descriptors of
the process. At the limit the oldest one of the host with the most ends."""

HANDSHAKE_S: Final = 5.0  # then a connection between nodes is reset
_UNIDENTIFIED: Final = ClientIdentity("", "")
"""The other side of a TLS connection before it is identified: no node, and not a peer without
identity."""

REFUSALS_LOGGED_S: Final = 1.0  # time between two log lines about refused connections

_log = logging.getLogger(__name__)


class InternalSecurity(Enum):
    """The use of TLS between nodes, in the order of a change of a running cluster."""

    PLAINTEXT = "plaintext"
    ACCEPT_BOTH = "accept-both"  # connects without TLS
    PREFER_TLS = "prefer-tls"  # accepts both, connects with TLS
    REQUIRED = "required"

    @property
    def connects_with_tls(self) -> bool:
        """True if the node opens connections with TLS."""
        return self in (InternalSecurity.PREFER_TLS, InternalSecurity.REQUIRED)

    @property
    def accepts_both(self) -> bool:
        """True if the node accepts connections with TLS and without."""
        return self in (InternalSecurity.ACCEPT_BOTH, InternalSecurity.PREFER_TLS)


class InternalNetwork:
    """The `Network` of a node for its connections with other nodes."""

    def __init__(
        self,
        network: Network,
        tasks: Tasks,
        identities: NodeIdentities,
        *,
        security: InternalSecurity = InternalSecurity.PLAINTEXT,
        tls: "TlsCredentials | None" = None,
    ) -> None:
        """`tls` requires a certificate of each client; None: the network itself supplies the
        certificates, or there are none."""
        self._network = network
        self._tasks = tasks
        self._identities = identities
        self._security = security
        self._tls = tls
        self._received: ReceiveBuffer | None = None  # of all TLS connections
        self._open: dict[ByteConnection, ClientIdentity] = {}  # identified ones, some ended
        self._handshakes: dict[_UnidentifiedNode, None] = {}  # accepted, without an identity yet
        self._pruned_at = 64  # number of `_open` at which ended ones are removed
        self._refusal_logged_s = -REFUSALS_LOGGED_S

    # --- calls ------------------------------------------------------------------------------------

    async def serve(
        self,
        address: str,
        handlers: Mapping[str, Handler],
        *,
        is_ready: bool = True,
        security: CallSecurity = PLAIN_CALLS,
    ) -> CallListener:
        """Serve calls of nodes. Raise AddressInUse."""
        assert security is PLAIN_CALLS, f"{address}: the network has its own security"
        plain = CallSecurity(authenticator=_CallingNodes(self._identities), reads_at_once=True)
        if self._tls is None:
            return await self._network.serve(address, handlers, is_ready=is_ready, security=plain)
        # A user may have a certificate of the same authority: identify a caller before reading.
        secure = replace(plain, tls=self._tls, reads_at_once=False)
        if not self._security.accepts_both:
            return await self._network.serve(address, handlers, is_ready=is_ready, security=secure)
        from .tls_relay import serve_both

        return await serve_both(
            self._network, address, handlers, is_ready=is_ready, plain=plain, secure=secure
        )

    def channel(self, address: str, security: ChannelSecurity = PLAIN_CHANNEL) -> Channel:
        """Return a channel to a node's address. Never fails."""
        assert security is PLAIN_CHANNEL, f"{address}: the network has its own security"
        if self._tls is None or not self._security.connects_with_tls:
            return self._network.channel(address)
        return self._network.channel(address, ChannelSecurity(tls=self._tls))

    # --- byte connections -------------------------------------------------------------------------

    async def listen_bytes(self, address: str, factory: ProtocolFactory) -> Listener:
        """Accept byte connections of nodes; the factory is called once the node is identified.
        Raise AddressInUse."""
        plain, secure = partial(self._accept, factory), partial(self._accept_tls, factory)
        if self._tls is None:
            return await self._network.listen_bytes(address, plain)
        if not self._security.accepts_both:
            return await self._network.listen_bytes(address, secure)
        from .tls_relay import FirstByte

        return await self._network.listen_bytes(
            address, lambda connection: FirstByte(connection, plain=plain, secure=secure)
        )

    async def connect_bytes(self, address: str, factory: ProtocolFactory) -> ByteConnection:
        """Connect to a node. Raise ConnectionFailed if refused, otherwise OutcomeUnknown. A peer
        that is no node of the cluster ends the connection later, with StreamBroken."""
        if self._tls is None or not self._security.connects_with_tls:
            return await self._network.connect_bytes(address, factory)
        made: list[TlsConnection] = []
        host = address.rpartition(":")[0].strip("[]")

        def start(transport: ByteConnection) -> ByteProtocol:
            made.append(self._connect_tls(factory, host, transport))
            return made[0]

        await self._network.connect_bytes(address, start)
        return made[0]

    async def refuses(self, address: str, timeout_ms: int) -> bool:
        """Return True if a connection is refused; False on success, timeout and any other
        failure."""
        return await self._network.refuses(address, timeout_ms)

    def end_removed(self) -> None:
        """End the byte connections of nodes that are not allowed any more. Calls of such nodes are
        refused, and their streams end, without this."""
        for connection, node in list(self._open.items()):
            if not self._identities.admits(node):
                connection.abort()
                del self._open[connection]

    def _accept(self, factory: ProtocolFactory, connection: ByteConnection) -> ByteProtocol:
        if self._identify(connection, connection.certificate):
            return factory(connection)
        return RefusedConnection()

    def _accept_tls(self, factory: ProtocolFactory, transport: ByteConnection) -> ByteProtocol:
        if len(self._handshakes) >= HANDSHAKES_MAX:
            self._end_handshake()

        def secured(connection: "TlsConnection", certificate: PeerCertificate | None) -> None:
            self._handshakes.pop(unidentified, None)
            if self._identify(connection, certificate):
                connection.protocol = factory(connection)

        unidentified = _UnidentifiedNode(transport, self._handshakes)
        return self._over_tls(transport, lambda _: unidentified, secured)

    def _connect_tls(
        self, factory: ProtocolFactory, host: str, transport: ByteConnection
    ) -> "TlsConnection":
        def secured(connection: "TlsConnection", certificate: PeerCertificate | None) -> None:
            self._identify(connection, certificate)

        return self._over_tls(transport, factory, secured, server_name=host)

    def _over_tls(
        self,
        transport: ByteConnection,
        factory: ProtocolFactory,
        secured: "Callable[[TlsConnection, PeerCertificate | None], None]",
        *,
        server_name: str | None = None,
    ) -> "TlsConnection":
        from .tls_connection import ReceiveBuffer, TlsConnection

        assert self._tls is not None, "a node that uses TLS has a certificate"
        context = self._tls.context if server_name is None else self._tls.client_context
        assert context is not None, "the credentials are for both sides"
        if self._received is None:
            self._received = ReceiveBuffer()
        connection = TlsConnection(
            transport,
            factory,
            context=context,
            tasks=self._tasks,
            received=self._received,
            secured=secured,
            server_name=server_name,
            handshake_s=HANDSHAKE_S,
        )
        connection.client = _UNIDENTIFIED
        return connection

    def _end_handshake(self) -> None:
        """End the oldest handshake of the host with the most of them."""
        by_host: dict[str, list[_UnidentifiedNode]] = {}
        for each in self._handshakes:
            by_host.setdefault(each.host, []).append(each)
        oldest = max(by_host.values(), key=len)[0]
        self._report(
            oldest.transport.peer,
            Overloaded(f"{len(self._handshakes)} connections are not identified yet"),
        )
        del self._handshakes[oldest]
        oldest.transport.abort()

    def _identify(self, connection: ByteConnection, certificate: PeerCertificate | None) -> bool:
        """Set the node of a connection, or end the connection and return False."""
        host = connection.peer.rpartition(":")[0]
        try:
            connection.client = self._identities.identify(certificate, host)
        except ClusterAuthorizationFailed as error:
            self._report(connection.peer, error)
            connection.abort()
            return False
        self._open[connection] = connection.client
        if len(self._open) >= self._pruned_at:
            self._open = {each: node for each, node in self._open.items() if each.local}
            self._pruned_at = 64 + 2 * len(self._open)
        return True

    def _report(self, peer: str, error: QuorumlogError) -> None:
        """Log a refused connection, unless another one was logged a moment ago."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._refusal_logged_s >= REFUSALS_LOGGED_S:
            self._refusal_logged_s = now_s
            _log.warning("internal.refused peer=%s error=%s", peer, error)


class _UnidentifiedNode(RefusedConnection):
    """The protocol of a connection during its handshake."""

    def __init__(
        self, transport: ByteConnection, handshakes: "dict[_UnidentifiedNode, None]"
    ) -> None:
        super().__init__()
        self.transport = transport
        self.host = address_block(transport.peer.rpartition(":")[0])
        self._handshakes = handshakes
        handshakes[self] = None

    def closed(self, error: Exception | None) -> None:
        """Remove the connection, which has ended before or after its peer was refused."""
        self._handshakes.pop(self, None)


class _CallingNodes:
    """The `CallAuthenticator` of calls between nodes."""

    def __init__(self, identities: NodeIdentities) -> None:
        self._identities = identities

    async def authenticate(self, path: str, peer: CallPeer) -> CallSession:
        """Return the node, or the client of a call that it forwards. Raise
        ClusterAuthorizationFailed."""
        node = self._identities.identify(peer.certificate, peer.host)
        behalf = peer.on_behalf_of
        is_current = partial(self._identities.admits, node)
        if behalf is None:
            return CallSession(node, is_current)
        return CallSession(behalf, is_current, forwarded_by=node)
