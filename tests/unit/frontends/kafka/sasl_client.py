"""A client that logs in with SCRAM, step by step."""

from typing import Any, Final

import scramp
from tests.kit.kafka_client import RawClient
from tests.kit.kafka_node import KafkaNode

from quorumlog.errors import ClusterAuthorizationFailed

HANDSHAKE, AUTHENTICATE, DESCRIBE_CLUSTER = 17, 36, 60
SASL: Final[dict[str, Any]] = {
    "listeners_kafka": ("127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"),
    "super_users": ("User:ANONYMOUS", "User:admin"),
}
PASSWORD: Final = "correct horse battery"


def sasl_address(kafka: KafkaNode) -> str:
    """Return the address of the listener with SASL."""
    return kafka.node.addresses.kafka_listeners["SASL_PLAINTEXT"]


async def begin(client: RawClient, mechanism: str = "SCRAM-SHA-256") -> Any:
    """Send the handshake; return the response."""
    return await client.ask(HANDSHAKE, 1, mechanism=mechanism)


async def step(client: RawClient, message: str | bytes) -> Any:
    """Send a message of the exchange; return the response."""
    content = message if isinstance(message, bytes) else message.encode()
    return await client.ask(AUTHENTICATE, 2, auth_bytes=content)


async def log_in(
    client: RawClient, user: str, password: str, mechanism: str = "SCRAM-SHA-256"
) -> Any:
    """Log in with SCRAM; return the last answer."""
    await begin(client, mechanism)
    exchange = scramp.ScramClient([mechanism], user, password, c_nonce="n" * 24)
    answer = await step(client, exchange.get_client_first())
    if answer.error_code.value:
        return answer
    exchange.set_server_first(answer.auth_bytes.decode())
    answer = await step(client, exchange.get_client_final())
    if not answer.error_code.value:
        exchange.set_server_final(answer.auth_bytes.decode())
    return answer


async def may_describe(client: RawClient) -> bool:
    """Return True if the client may describe the cluster."""
    answer = await client.ask(
        DESCRIBE_CLUSTER,
        1,
        include_cluster_authorized_operations=False,
        endpoint_type=1,
    )
    return bool(answer.error_code.value != ClusterAuthorizationFailed.code and answer.brokers)
