"""A raw client of the Kafka protocol over TLS, which logs in with a password."""

from tests.kit.client_security import ClientSecurity
from tests.kit.kafka_client import RawClient, connect

from quorumlog.runtime import ByteConnection, Runtime
from quorumlog.runtime.tls import TlsFiles
from quorumlog.runtime.tls_connection import ReceiveBuffer, TlsConnection

HANDSHAKE, AUTHENTICATE = 17, 36


async def connect_tls(runtime: Runtime, address: str, files: TlsFiles) -> RawClient:
    """Return a connection, which its caller ends; requests wait for the handshake."""
    made: list[RawClient] = []

    def create(connection: ByteConnection) -> RawClient:
        made.append(RawClient(connection))
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
            server_name="localhost",
        ),
    )
    return made[0]


async def connect_with(
    runtime: Runtime, address: str, security: ClientSecurity | None
) -> RawClient:
    """Return a connection that is ready for requests, logged in by PLAIN if it is secure."""
    if security is None:
        return await connect(runtime, address)
    client = await connect_tls(runtime, address, TlsFiles(ca=security.ca))
    handshake = await client.ask(HANDSHAKE, 1, mechanism="PLAIN")
    assert handshake.error_code.value == 0, handshake
    message = f"\0{security.user}\0{security.password}".encode()
    outcome = await client.ask(AUTHENTICATE, 2, auth_bytes=message)
    assert outcome.error_code.value == 0, outcome
    return client
