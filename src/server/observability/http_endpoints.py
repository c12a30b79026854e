"""The node's HTTP listener with its three endpoints, and the readiness of the node.

It opens before everything else and closes after it, so that a slow start or stop can be observed.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...api.authorizer import Authorizer
from ...errors import QuorumlogError
from ...frontends.http import HttpRequest, HttpResponse, HttpServer, local_access
from ...ids import NodeId
from ...metadata import MetadataImage
from ...metrics import Scrape
from ...metrics import table as rows
from ...runtime import Handler, Runtime, Scope
from ..config import NodeConfig
from ..lifecycle import NodeParts
from . import collectors
from .call_metrics import CallMetrics, StallMonitor
from .collectors import collect_kafka
from .partition_tally import PartitionTally

if TYPE_CHECKING:
    from ..listener_security import NodeSecurity


class HttpEndpoints:
    """The HTTP endpoints of a node, if the configuration has a listener."""

    def __init__(
        self, runtime: Runtime, config: NodeConfig, parts: NodeParts, *, with_process: bool
    ) -> None:
        """`with_process`: add metrics of the process; not for a simulated node."""
        self._runtime = runtime
        self._config = config
        self._parts = parts
        self._with_process = with_process
        self._began_ms = runtime.clock.now_ms()
        self._calls = CallMetrics(runtime.clock)
        self._stalls = StallMonitor(runtime.clock)
        self._tally = PartitionTally(NodeId(config.node_id))
        self._leader_changes = 0
        self._scrape_lock = asyncio.Lock()  # one scrape at a time
        self._server: HttpServer | None = None
        self._watching: asyncio.Task[None] | None = None

    async def open(
        self, scope: Scope, security: "NodeSecurity | None", authorizer: Authorizer
    ) -> None:
        """Listen on the configured address; raises AddressInUse and InvalidConfig."""
        address = self._config.http_listener
        if not address:
            return
        access, tls = local_access(address), None
        if self._config.is_http_secured:
            from ...frontends.http.access import AuthenticatedAccess  # needed by few nodes

            assert security is not None, "a listener that is secured has a certificate"
            tls, authentication = security.http()
            access = AuthenticatedAccess(authentication, authorizer, has_users=self._has_users)
        routes = {"/metrics": self._metrics, "/health": self._health, "/ready": self._ready}
        self._server = await HttpServer.open(
            self._runtime, scope, address, routes, access=access, tls=tls
        )
        self._watching = scope.spawn(self._stalls.run(), name="stalls")

    async def close(self) -> None:
        """Close the listener and its tasks."""
        if self._watching is not None:
            self._watching.cancel()
        if self._server is not None:
            await self._server.close(self._config.shutdown_grace_ms)

    @property
    def address(self) -> str | None:
        """The "host:port" of the listener; None without one."""
        return None if self._server is None else self._server.address

    def counted(self, handlers: Mapping[str, Handler]) -> Mapping[str, Handler]:
        """Return the handlers wrapped with call metrics, if there is a listener."""
        return handlers if self._server is None else self._calls.counted(handlers)

    def _has_users(self) -> bool:
        publisher = self._parts.publisher
        return publisher is not None and publisher.image.offset >= 0

    def leader_changed(self, leader_id: NodeId | None) -> None:
        """Count a change of the quorum's leader."""
        self._leader_changes += 1

    # --- endpoints -----------------------------------------------------------------------------

    async def _health(self, request: HttpRequest) -> HttpResponse:
        """Respond that the process is alive and its event loop runs."""
        return _json(
            200,
            alive=True,
            node=self._config.node_id,
            uptime_seconds=self._uptime_ms() / 1000,
            loop_stall_seconds=self._stalls.longest_ms() / 1000,
        )

    async def _ready(self, request: HttpRequest) -> HttpResponse:
        found = obstacles(self._parts, self._config)
        return _json(
            503 if found else 200,
            ready=not found,
            node=self._config.node_id,
            obstacles=found,
            remarks=remarks(self._parts),
        )

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        accept = request.headers.get("accept", "")
        try:
            async with self._scrape_lock:
                scrape = await self._scrape()
            body, content_type = await self._runtime.tasks.offload(
                "cpu", lambda: _expose(scrape, accept, self._with_process)
            )
        except QuorumlogError as error:  # the lane is full
            return HttpResponse(status=503, body=f"{error}\n".encode())
        return HttpResponse(body=body, content_type=content_type)

    # --- scrape --------------------------------------------------------------------------------

    async def _scrape(self) -> Scrape:
        """Collect the metrics of every open part."""
        parts = self._parts
        scrape = Scrape()
        self._collect_node(scrape)
        self._calls.collect(scrape)
        self._stalls.collect(scrape)
        if parts.log is not None and parts.replicas is not None:
            collectors.collect_log(scrape, parts.log, parts.replicas)
            lags: dict[NodeId, int] = {}
            for _ in parts.replicas.replication.lags(lags):
                await asyncio.sleep(0)
            collectors.collect_replication(scrape, parts.replicas.replication.figures, lags)
        if parts.kafka is not None:
            collectors.collect_quotas(scrape, parts.kafka.broker.throttling)
            collect_kafka(scrape, parts.kafka)
        if parts.groups is not None:
            collectors.collect_groups(scrape, parts.groups)
        if parts.transactions is not None:
            collectors.collect_transactions(scrape, parts.transactions)
        if parts.directory is not None:
            collectors.collect_storage(scrape, parts.directory)
        if parts.raft is not None:
            collectors.collect_quorum(scrape, parts.raft)
            scrape.put(rows.RAFT_LEADER_CHANGES, self._leader_changes)
        if parts.metadata is not None and parts.publisher is not None:
            collectors.collect_metadata(scrape, parts.metadata, parts.publisher)
            await self._collect_image(scrape, parts.publisher.image)
        return scrape

    async def _collect_image(self, scrape: Scrape, image: MetadataImage) -> None:
        """Count partitions in steps, between which other tasks run."""
        parts, config = self._parts, self._config
        for _ in self._tally.count_image(image):
            await asyncio.sleep(0)
        if config.is_broker:
            collectors.collect_led(scrape, self._tally)
        is_active = parts.controller is not None and parts.controller.is_active
        scrape.put(rows.CONTROLLER_ACTIVE, int(is_active))
        if is_active:
            collectors.collect_cluster(scrape, self._tally, image)
        if config.metric_topics_max and parts.directory is not None:
            topics = collectors.collect_topics(
                scrape,
                image,
                parts.directory,
                node_id=NodeId(config.node_id),
                topics_max=config.metric_topics_max,
            )
            for _ in topics:
                await asyncio.sleep(0)

    def _collect_node(self, scrape: Scrape) -> None:
        config, directory = self._config, self._parts.directory
        cluster = config.cluster_id if directory is None else directory.meta.cluster_id
        scrape.put(rows.NODE_INFO, 1, config.node_id, cluster, "+".join(config.roles), __version__)
        scrape.put(rows.READY, int(not obstacles(self._parts, config)))
        scrape.put(rows.UPTIME, self._uptime_ms() / 1000)
        audit = self._parts.audit
        scrape.put(rows.AUDIT_LOST, 0 if audit is None else audit.lines_lost)

    def _uptime_ms(self) -> int:
        return self._runtime.clock.now_ms() - self._began_ms


def _expose(scrape: Scrape, accept: str, with_process: bool) -> tuple[bytes, str]:
    """Encode a scrape, in the lane: the library is imported there."""
    from ...frontends.http.exposition import expose

    return expose(scrape, accept=accept, with_process=with_process)


def _json(status: int, **fields: Any) -> HttpResponse:
    body = json.dumps(fields).encode() + b"\n"
    return HttpResponse(status=status, content_type="application/json", body=body)


def obstacles(parts: NodeParts, config: NodeConfig) -> list[str]:
    """Return the reasons why the node is not ready, a sentence each; empty if it is ready.

    A broker that was not fenced stays ready without contact to the controllers: it continues to
    serve the partitions that it leads, and without controllers no other broker can take over. A
    node with only the controller role is ready only while the quorum has a leader.
    """
    if parts.is_stopping:
        return ["The node is stopping."]
    if parts.directory is None:
        return ["The data directory is being opened."]
    raft, publisher = parts.raft, parts.publisher
    if raft is None or publisher is None:
        return ["The metadata log is being opened."]
    found = []
    if raft.leader_id is None and not (config.is_broker and parts.is_ready):
        found.append("The quorum has no leader: start a majority of the voters.")
    if config.is_broker:
        broker, session = publisher.image.broker(NodeId(config.node_id)), parts.session
        if session is None or broker is None or broker.epoch != session.broker_epoch:
            found.append("The broker is not registered.")
        elif broker.fenced:
            found.append("The controller has fenced this broker.")
        elif broker.stopping:
            found.append("The broker has requested a controlled shutdown.")
    if not found and not parts.is_ready:
        found.append("The node is still starting.")
    return found


def remarks(parts: NodeParts) -> list[str]:
    """Return warnings about a node that serves."""
    found = []
    if parts.session is not None and parts.session.is_lapsed():
        found.append("No controller has answered for longer than the session timeout.")
    if parts.directory is not None and parts.directory.figures.is_reserve_used:
        found.append("The disk is nearly full: produce requests are rejected.")
    return found
