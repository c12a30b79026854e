"""Probes of brokers at their registered addresses."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import QuorumlogError
from ...proto import admin_pb2
from ...runtime import Runtime
from ...runtime.real import run
from ...services import ADMIN_DESCRIBE_CLUSTER
from .sentences import BrokerProbe

if TYPE_CHECKING:
    from ...clients import Broker

PROBE_TIMEOUT_MS = 2_000  # a broker that takes longer counts as not answering


def probe_brokers(brokers: "Sequence[Broker]") -> list[BrokerProbe]:
    """Probe each broker once, concurrently, and return the results in order."""

    async def main(runtime: Runtime) -> list[BrokerProbe]:
        return await asyncio.gather(*(_probe(runtime, each.grpc_address) for each in brokers))

    return run(main, name="explain") if brokers else []


async def _probe(runtime: Runtime, address: str) -> BrokerProbe:
    if await runtime.network.refuses(address, PROBE_TIMEOUT_MS):
        return BrokerProbe(is_refused=True)
    channel = runtime.network.channel(address)
    try:
        answer = await channel.call(
            ADMIN_DESCRIBE_CLUSTER, admin_pb2.DescribeClusterRequest(), timeout_ms=PROBE_TIMEOUT_MS
        )
    except QuorumlogError as error:
        return BrokerProbe(error=error.message)
    finally:
        await channel.close()
    controller = None if answer.controller_id < 0 else answer.controller_id
    return BrokerProbe(controller=controller, metadata_offset=answer.metadata_offset)
