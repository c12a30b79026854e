"""A raw Kafka client over TLS that authenticates, on the real runtime."""

from typing import Any

import scramp

from quorumlog.runtime import ByteConnection, Runtime
from quorumlog.runtime.tls import TlsFiles
from quorumlog.runtime.tls_connection import ReceiveBuffer, TlsConnection

from .client_security import ClientSecurity
from .kafka_client import RawClient, connect

HANDSHAKE, AUTHENTICATE = 17, 36


class SecureClient(RawClient):
    """A raw client over TLS. Requests wait for the handshake."""

    async def begin(self, mechanism: str) -> Any:
        """Begin a SASL exchange."""
        return await self.ask(HANDSHAKE, 1, mechanism=mechanism)

    async def step(self, message: bytes) -> Any:
        """Continue a SASL exchange."""
        return await self.ask(AUTHENTICATE, 2, auth_bytes=message)

    async def log_in(self, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Any:
        """Authenticate with SCRAM; return the last response."""
        answer = await self.begin(mechanism)
        if answer.error_code.value:
            return answer
        exchange = scramp.ScramClient([mechanism], user, password)
        answer = await self.step(exchange.get_client_first().encode())
        if answer.error_code.value:
            return answer
        exchange.set_server_first(answer.auth_bytes.decode())
        return await self.step(exchange.get_client_final().encode())


async def connect_tls(
    runtime: Runtime, address: str, files: TlsFiles, *, name: str = "localhost"
) -> SecureClient:
    """Return a connection to a listener with TLS; the caller closes it."""
    made: list[SecureClient] = []

    def create(connection: ByteConnection) -> SecureClient:
        made.append(SecureClient(connection))
        return made[0]

    context = files.client_context()
    await runtime.network.connect_bytes(
        address,
        lambda transport: TlsConnection(
            transport,
            create,
            context=context,
            tasks=runtime.tasks,
            received=ReceiveBuffer(),
            server_name=name,
        ),
    )
    return made[0]


async def connect_with(
    runtime: Runtime, address: str, security: ClientSecurity | None
) -> RawClient:
    """Return a connection that is ready for requests, authenticated by PLAIN if it is secure."""
    if security is None:
        return await connect(runtime, address)
    client = await connect_tls(runtime, address, TlsFiles(ca=security.ca))
    handshake = await client.begin("PLAIN")
    assert handshake.error_code.value == 0, handshake
    outcome = await client.step(f"\0{security.user}\0{security.password}".encode())
    assert outcome.error_code.value == 0, outcome
    return client
