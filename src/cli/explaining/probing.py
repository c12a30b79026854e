"""Asks brokers themselves how they are, at the addresses with which they registered."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import QuorumlogError
from ...proto import admin_pb2
from ...runtime import Runtime
from ...runtime.real import run
from ...services import ADMIN_DESCRIBE_CLUSTER
from .sentences import Seen

if TYPE_CHECKING:
    from ...clients import Broker

PROBE_MS = 2_000  # a broker that takes longer does not answer


def look_at(brokers: "Sequence[Broker]") -> list[Seen]:
    """Ask brokers, all at once and each once; in their order."""

    async def main(runtime: Runtime) -> list[Seen]:
        return await asyncio.gather(*(_ask(runtime, each.grpc_address) for each in brokers))

    return run(main, name="explain") if brokers else []


async def _ask(runtime: Runtime, address: str) -> Seen:
    if await runtime.network.refuses(address, PROBE_MS):
        return Seen(is_refused=True)
    channel = runtime.network.channel(address)
    try:
        answer = await channel.call(
            ADMIN_DESCRIBE_CLUSTER, admin_pb2.DescribeClusterRequest(), timeout_ms=PROBE_MS
        )
    except QuorumlogError as error:
        return Seen(error=error.message)
    finally:
        await channel.close()
    controller = None if answer.controller_id < 0 else answer.controller_id
    return Seen(controller=controller, metadata_offset=answer.metadata_offset)
