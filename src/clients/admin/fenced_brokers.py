"""The cause for which a broker is fenced, by the metadata and by an answer of the broker itself."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ...errors import QuorumlogError
from ...proto import admin_pb2
from ...services import ADMIN_DESCRIBE_CLUSTER
from ..connection import Connection
from .descriptions import Broker, node_or_none

PROBE_TIMEOUT_MS: Final = 2_000  # a broker that takes longer counts as not answering


@dataclass(frozen=True, slots=True)
class FencingCause:
    """The cause for which a broker is fenced."""

    broker: int
    why: str  # a sentence without its full stop
    remedy: str  # a sentence without its full stop; empty: none


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProbe:
    """The result of probing one broker."""

    is_refused: bool = False  # connection refused: nothing listens at its address
    error: str = ""  # another error; empty: it answered
    controller: int | None = None  # the controller of its session; None: no session
    metadata_offset: int = -1  # end of the metadata that it has applied


async def explain_fenced(connection: Connection, brokers: Iterable[Broker]) -> list[FencingCause]:
    """Probe each broker once, concurrently; see `AsyncAdmin.explain_fenced`."""
    asked = list(brokers)
    probes = await asyncio.gather(*(_probe(connection, each.grpc_address) for each in asked))
    return [fencing_cause(broker, probe) for broker, probe in zip(asked, probes, strict=True)]


async def _probe(connection: Connection, address: str) -> BrokerProbe:
    if await connection.runtime.network.refuses(address, PROBE_TIMEOUT_MS):
        return BrokerProbe(is_refused=True)
    try:
        answer = await connection.channel(address).call(
            ADMIN_DESCRIBE_CLUSTER, admin_pb2.DescribeClusterRequest(), timeout_ms=PROBE_TIMEOUT_MS
        )
    except QuorumlogError as error:
        return BrokerProbe(error=error.message)
    return BrokerProbe(
        controller=node_or_none(answer.controller_id), metadata_offset=answer.metadata_offset
    )


def fencing_cause(broker: Broker, probe: BrokerProbe) -> FencingCause:
    """Return the cause of a broker's fencing, or that it is not fenced."""
    return FencingCause(broker.id, *_cause(broker, probe))


def _cause(broker: Broker, probe: BrokerProbe) -> tuple[str, str]:
    name, address = f"broker {broker.id}", broker.grpc_address
    if not broker.fenced and not broker.stopping:
        return f"{name} is not fenced", ""
    restart = f"`quorumlog server`, or `quorumlog cluster start {broker.id}`"
    if probe.is_refused:
        state = "was shut down" if broker.stopping else "is down"
        log = "" if broker.stopping else "; its log has the reason, such as a failed disk"
        return f"{name} {state}: nothing listens at {address}", f"Start it: {restart}{log}"
    if probe.error:
        error = probe.error.partition(";")[0].removeprefix(f"{address}: ")
        return (
            f"{name} does not answer at {address} ({error}): the process is paused or overloaded, "
            "or the network to it is down",
            f"Check its machine and its log; if the process has exited, start it: {restart}",
        )
    if broker.stopping:
        return f"{name} is shutting down and transfers its leaderships", ""
    if probe.metadata_offset < broker.broker_epoch:
        return (
            f"{name} is running and catching up with the metadata: it has applied offset "
            f"{probe.metadata_offset} and registered at {broker.broker_epoch}",
            "Wait; it is unfenced once it has applied its own registration",
        )
    if probe.controller is None:
        return (
            f"{name} is running but has no session with the active controller: its heartbeats do "
            "not arrive",
            "Check the network between it and the controllers, and `quorumlog quorum status`",
        )
    return (
        f"{name} is running and has a session with controller {probe.controller}",
        "Retry; it is unfenced at its next heartbeat",
    )
