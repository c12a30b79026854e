"""A whole node with a Kafka listener, on either runtime."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.kit.node_settings import with_settings

from quorumlog import simulation
from quorumlog.metadata.authorization import AuthorizerConfig
from quorumlog.runtime import Channel, Runtime
from quorumlog.server.config import NodeConfig
from quorumlog.server.node import Node, format_directory

from .kafka_client import RawClient, connect


@dataclass(slots=True, kw_only=True)
class KafkaNode:
    """A node, a channel to its gRPC listener, and a connection to its Kafka listener."""

    runtime: Runtime
    node: Node
    address: str  # "host:port" of the Kafka listener
    channel: Channel  # gRPC
    client: RawClient

    async def connect(self) -> RawClient:
        """Return another connection; it ends with the node."""
        return await connect(self.runtime, self.address)


@asynccontextmanager
async def serving_kafka(
    runtime: Runtime,
    folder: str,
    *,
    authorizer: AuthorizerConfig | None = None,
    is_formatted: bool = False,
    **settings: Any,
) -> AsyncIterator[KafkaNode]:
    """Start a node of `settings` in `folder`, and format the folder if necessary; yield it when
    ready, with a connected client."""
    config = with_settings(
        NodeConfig(
            data_dir=folder,
            grpc_listener="127.0.0.1:0",
            controller_listener="127.0.0.1:0",
            kafka_listeners=("127.0.0.1:0",),
        ),
        **settings,
    )
    if not is_formatted:
        await format_directory(runtime, config)
    async with Node(runtime, config, authorizer=authorizer) as node:
        assert node.addresses.grpc is not None
        assert node.addresses.kafka is not None
        channel = runtime.network.channel(node.addresses.grpc)
        client = await connect(runtime, node.addresses.kafka)
        try:
            yield KafkaNode(
                runtime=runtime,
                node=node,
                address=node.addresses.kafka,
                channel=channel,
                client=client,
            )
        finally:
            client.connection.abort()
            await channel.close()


def run_on_kafka_node(
    main: Any, folder: str, *, authorizer: AuthorizerConfig | None = None, **settings: Any
) -> None:
    """Run `main` with a simulated node of `settings` and a client of it."""

    async def serve(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder, authorizer=authorizer, **settings) as kafka:
            await main(kafka)

    simulation.run(serve)
