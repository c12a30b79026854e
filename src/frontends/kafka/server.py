"""The listeners of the Kafka protocol and their connections."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ...metadata import MetadataImage
from ...runtime import ByteConnection, ByteProtocol, Listener, PeerCertificate, Scope
from ...runtime.client_bounds import UNREAD_BYTES, ClientLines
from ...runtime.refused import RefusedConnection
from .api import BrokerContext, Client, KafkaApi
from .apis import APIS
from .authentication import PLAINTEXT, ListenerSecurity, anonymous_from
from .connection import KafkaConnection
from .connection_limits import ConnectionLimits
from .frames import ReadBuffers
from .memory import RequestMemory
from .metrics import FULL, KafkaMetrics, ListenerMetrics
from .quota_charge import PRODUCE
from .unread_responses import UnreadBytes

_LOG: Final = logging.getLogger("quorumlog.kafka")

PLAIN_REQUEST_BYTES_MAX: Final = 8 << 20
"""The size limit of requests without records: room for the names of a hundred thousand topics."""

CHECK_MS_MAX: Final = 10_000
"""The longest interval between two scans for connections without progress."""

"""The limit of log lines about clients, so that they cannot flood the log."""

SOFTWARE_CHARS_MAX: Final = 64
"""The length of each of the two names of a client's software in the log."""

WHY_CHARS_MAX: Final = 1_000
"""The length of a cause in the log, which may repeat parts of a request."""

T = TypeVar("T")

if TYPE_CHECKING:
    from ...runtime.tls_connection import ReceiveBuffer, TlsConnection


class KafkaServer:
    """Serves every listener of one broker; requests run in the given scope."""

    def __init__(
        self, broker: BrokerContext, scope: Scope, apis: Sequence[KafkaApi] = APIS
    ) -> None:
        self.broker = broker
        self.figures = KafkaMetrics()
        self.memory = RequestMemory(broker.settings.requests_bytes_max)
        self.inflight_max = broker.requests.produce_inflight_max
        self.unsent_bytes_max = broker.requests.fetch_bytes_max
        self.now_ms = broker.runtime.clock.now_ms  # the node's monotonic clock
        self.buffers = ReadBuffers()  # of all connections
        self._tls_received: ReceiveBuffer | None = None  # of all connections
        self._scope = scope
        self.apis: Mapping[int, KafkaApi] = {api.key: api for api in apis}  # by key
        self._listeners: list[Listener] = []
        self._connections: dict[KafkaConnection, None] = {}
        self.limits = ConnectionLimits(broker.settings)  # of all connections
        self.unread = UnreadBytes(*UNREAD_BYTES)  # of all connections
        self._is_closing = False
        self._check_timer: asyncio.TimerHandle | None = None
        self.lines = ClientLines(self.now_ms)  # of the log

    async def listen(self, name: str, address: str, security: ListenerSecurity = PLAINTEXT) -> str:
        """Open the listener of a name on "host:port"; port 0 picks a free port. Return the address.
        Raises AddressInUse."""
        self.figures.listeners[name] = ListenerMetrics()
        accept = self._accept if security.tls is None else self._accept_tls
        listener = await self.broker.runtime.network.listen_bytes(
            address, partial(accept, name, security)
        )
        self._listeners.append(listener)
        return listener.address

    async def close(self, grace_ms: int) -> None:
        """Accept no more connections; responses in flight have `grace_ms` to be sent."""
        self._is_closing = True
        end_ms = self.now_ms() + grace_ms
        for connection in list(self._connections):
            connection.stop()
        for listener in self._listeners:
            await listener.close(max(0, end_ms - self.now_ms()))
        if self._check_timer is not None:
            self._check_timer.cancel()

    def unmute(self) -> None:
        """Stop throttling all clients: quotas have changed, and the next response of each carries
        the new throttle time."""
        for connection in list(self._connections):
            connection.unmute()

    def credentials_changed(self, image: MetadataImage) -> None:
        """End the connections of users with a changed credential."""
        for connection in list(self._connections):
            connection.credentials_changed(image)

    @property
    def connection_count(self) -> int:
        """The open connections."""
        return len(self._connections)

    # --- for connections -------------------------------------------------------------------------

    def request_bytes_max(self, key: int) -> int:
        """Return the size limit of requests of a key."""
        bytes_max = self.broker.settings.request_bytes_max
        return bytes_max if key == PRODUCE else min(bytes_max, PLAIN_REQUEST_BYTES_MAX)

    def log_connection_end(self, event: str, client: Client, why: object) -> None:
        """Log why a connection ends, at a limited rate."""
        if self.lines.may_log():
            name, version = client.software_name, client.software_version
            _LOG.warning(
                "kafka.connection_ended reason=%s peer=%s listener=%s software=%s why=%s",
                event,
                client.peer,
                client.listener,
                f"{name[:SOFTWARE_CHARS_MAX]}/{version[:SOFTWARE_CHARS_MAX]}",
                str(why)[:WHY_CHARS_MAX],
            )

    def connection_ended(self, connection: KafkaConnection, listener: str, reason: str) -> None:
        """Remove an ended connection."""
        self.limits.discard(connection)
        self.unread.discard(connection)
        del self._connections[connection]
        figures = self.figures.listeners[listener]
        figures.open -= 1
        figures.ended[reason] = figures.ended.get(reason, 0) + 1

    # --- connections -----------------------------------------------------------------------------

    def _accept_tls(
        self, listener: str, security: ListenerSecurity, transport: ByteConnection
    ) -> ByteProtocol:
        from ...runtime.tls_connection import ReceiveBuffer, TlsConnection

        assert security.tls is not None, f"{listener} uses TLS"
        if self._tls_received is None:
            self._tls_received = ReceiveBuffer()
        return TlsConnection(
            transport,
            partial(self._accept, listener, security),
            context=security.tls.context,
            tasks=self.broker.runtime.tasks,
            received=self._tls_received,
            secured=_secured,
        )

    def _accept(
        self, listener: str, security: ListenerSecurity, connection: ByteConnection
    ) -> KafkaConnection | RefusedConnection:
        figures = self.figures.listeners[listener]
        if self._is_closing or not self._has_room(connection.peer, listener, security):
            figures.refused += 1
            connection.abort()
            return RefusedConnection()
        figures.accepted += 1
        figures.open += 1
        accepted = KafkaConnection(connection, self, self._scope, listener, security)
        self._connections[accepted] = None
        if accepted.is_open:
            self.limits.add_stranger(accepted)
        else:
            accepted.authenticated()
        if self._check_timer is None:
            self._schedule_check()
        return accepted

    def _has_room(self, peer: str, listener: str, security: ListenerSecurity) -> bool:
        """Return True if a connection is within the limits, or another one ends for it."""
        client = anonymous_from(peer)
        user = None if security.has_strangers else client.principal
        if self.limits.has_room(listener, client.host, user=user):
            return True
        self.log_connection_end(
            FULL,
            Client(peer=peer, local="", listener=listener),
            f"{len(self._connections)} connections are open,"
            f" {self.limits.count_of(client.host)} of this address",
        )
        return False

    def _schedule_check(self) -> None:
        settings = self.broker.settings
        wait_ms = min(CHECK_MS_MAX, settings.connections_idle_ms_max // 4, settings.frame_ms_max)
        loop = asyncio.get_running_loop()
        self._check_timer = loop.call_later(max(wait_ms, 1) / 1_000, self._check_progress)

    def _check_progress(self) -> None:
        """End the connections without progress."""
        self._check_timer = None
        now_ms = self.now_ms()
        for connection in list(self._connections):
            connection.check_progress(now_ms)
        self.buffers.trim()
        if self._connections:
            self._schedule_check()
        else:
            self.buffers.trim()  # no check follows: everything is unused since the last line


def _secured(connection: "TlsConnection", certificate: PeerCertificate | None) -> None:
    """Continue after the handshake of TLS."""
    accepted = connection.protocol
    if isinstance(accepted, KafkaConnection):
        accepted.secured(certificate)
