"""The active controller: decides commands, responds after commit and application, fences brokers.

It follows the node's metadata log and composes the other parts: the command queue
owns the newest image, `broker_streams` the broker sessions, the fencer finds failed brokers.
"""

import asyncio
import logging
from typing import Final

from ...errors import (
    InconsistentClusterId,
    InvalidRequest,
    QuorumlogError,
)
from ...ids import NO_NODE, ClusterId, NodeId
from ...proto import controller_pb2 as pb
from ...raftlog.shell import RaftNode
from ...runtime import CallContext, Clock, Handler, Runtime
from ...runtime.node_identity import BROKER_ROLE, check_sender
from ...services import (
    CONTROLLER_ALTER_PARTITIONS,
    CONTROLLER_BROKER_SESSION,
    CONTROLLER_RELAY,
)
from ..cluster_configs import cluster_number
from ..codec import decode_command, decode_isr_changes, encode_isr_results
from ..commands import (
    BalanceLeaders,
    Command,
    PartitionsAltered,
    ProducerIdsAllocated,
    Submitted,
)
from ..config import ControllerConfig
from ..decisions.topics import with_topic_id
from ..sessions import BrokerSessions
from .applied_waiters import AppliedWaiters
from .background_tasks import BackgroundTasks
from .broker_fencer import BrokerFencer
from .broker_streams import BrokerStreams, SessionStream
from .command_queue import CommandQueue, Outcome
from .relay_reply import encode_reply
from .state_machine import MetadataStateMachine

BALANCE_CHECK_MS: Final = 1_000
"""Interval of the check whether a round is due; the configured interval may change any time."""


class LeaderBalancer:
    """Elects preferred leaders periodically while this node leads; run() must run."""

    def __init__(self, clock: Clock, commands: CommandQueue) -> None:
        self._clock = clock
        self._commands = commands
        self._begun_ms = clock.now_ms()  # start of the last round, or of the leadership
        self._closing = asyncio.Event()

    def begin_leadership(self) -> None:
        """Start the interval of the first round; this node leads now."""
        self._begun_ms = self._clock.now_ms()

    async def run(self) -> None:
        """Submit rounds while this node leads, until close()."""
        while not self._closing.is_set():
            try:
                async with asyncio.timeout(BALANCE_CHECK_MS / 1000):
                    await self._closing.wait()
            except TimeoutError:
                if self._commands.is_active and self._is_due():
                    await self._balance()

    def close(self) -> None:
        """End run()."""
        self._closing.set()

    def _is_due(self) -> bool:
        configs = self._commands.image.cluster_configs
        interval_s = cluster_number(configs, "leader.imbalance.check.interval.seconds")
        return self._clock.now_ms() - self._begun_ms >= interval_s * 1000

    async def _balance(self) -> None:
        self._begun_ms = self._clock.now_ms()
        before = self._commands.image.offset
        try:
            outcome = await self._commands.submit(BalanceLeaders())
        except QuorumlogError as error:
            _LOG.info("controller.not_balanced reason=%s", error)
            return
        if outcome.offset != before:
            took_ms = self._clock.now_ms() - self._begun_ms
            _LOG.info("controller.balanced offset=%d ms=%d", outcome.offset, took_ms)


_LOG = logging.getLogger("quorumlog.metadata")


class ControllerShell:
    """One node's controller role."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        cluster_id: ClusterId,
        metadata: MetadataStateMachine,
        config: ControllerConfig,
    ) -> None:
        """`metadata` is the state machine of the node's quorum log; attach() the node when it is
        open."""
        self._runtime = runtime
        self._cluster_id = cluster_id
        self._metadata = metadata
        self._config = config
        self._topic_ids = runtime.entropy.stream("metadata.topic_ids")
        self._node: RaftNode | None = None
        self._epoch: int | None = None  # of the current leadership; None: not leading
        self._sessions = BrokerSessions(
            timeout_ms=config.session_timeout_ms,
            tick_ms=config.session_tick_ms,
            now_ms=runtime.clock.now_ms(),
        )
        self._applied = AppliedWaiters(self._sessions.is_awaited)
        self._commands = CommandQueue(config=config, leader_id=self._known_leader)
        metadata.foresee(self._commands.foresee)
        metadata.on_committed(self._committed)
        metadata.on_leadership(self._leadership)
        self._tasks = BackgroundTasks(runtime)
        self._fencer = BrokerFencer(runtime, self._commands, self._sessions, self._tasks)
        self._balancer = LeaderBalancer(runtime.clock, self._commands)
        self._streams = BrokerStreams(
            runtime.clock,
            self._commands,
            self._sessions,
            metadata=metadata,
            applied=self._applied,
            tasks=self._tasks,
            fencer=self._fencer,
        )

    def attach(self, node: RaftNode) -> None:
        """Use this node's log; call before node.start()."""
        self._node = node

    @property
    def is_active(self) -> bool:
        """True while this node is the active controller."""
        return self._commands.is_active

    @property
    def leader_id(self) -> NodeId:
        """The active controller; NO_NODE if unknown."""
        leader = self._known_leader()
        return NO_NODE if leader is None else leader

    def _known_leader(self) -> NodeId | None:
        return None if self._node is None else self._node.leader_id

    # --- the quorum's log ----------------------------------------------------------------------

    def _committed(self) -> None:
        self._commands.committed(self._metadata.committed_image)

    def _leadership(self, leader_id: NodeId | None) -> None:
        """Begin or end the leadership of this node."""
        image = self._metadata.committed_image
        if self._node is not None and leader_id == self._node.me.node_id:
            self._epoch = epoch = self._node.status().epoch
            unfinished = self._metadata.open_transaction
            self._commands.begin(self._node, image, open_transaction=unfinished)
            self._fencer.begin_leadership()
            self._balancer.begin_leadership()
            _LOG.info("controller.active epoch=%d offset=%d", epoch, image.offset)
        elif self._epoch is not None:
            _LOG.info("controller.resigned epoch=%d", self._epoch)
            self._epoch = None
            self._commands.end(image)
            self._fencer.end_leadership()

    # --- commands ------------------------------------------------------------------------------

    async def submit(self, command: Command) -> Outcome:
        """Decide, append and wait for the commit; see CommandQueue.submit for errors."""
        return await self._commands.submit(command)

    async def run(self) -> None:
        """Run long decisions, fence failed brokers and balance leaders, until close()."""
        async with self._runtime.tasks.scope("controller") as scope:
            scope.spawn(self._commands.run(), name="controller.deciding")
            scope.spawn(self._tasks.run(), name="controller.errands")
            scope.spawn(self._fencer.run(), name="controller.fencing")
            scope.spawn(self._balancer.run(), name="controller.balancing")

    def close(self) -> None:
        """End run()."""
        for part in (self._balancer, self._fencer, self._tasks, self._commands):
            part.close()

    # --- requests of brokers -------------------------------------------------------------------

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers of the internal Controller service, for Network.serve."""
        handlers = (
            Handler(CONTROLLER_BROKER_SESSION, self._broker_session),
            Handler(CONTROLLER_RELAY, self._relay),
            Handler(CONTROLLER_ALTER_PARTITIONS, self._alter_partitions),
        )
        return {handler.method.path: handler for handler in handlers}

    async def _relay(self, request: pb.RelayRequest, context: CallContext) -> pb.RelayResponse:
        """Respond when the change is committed and applied by the brokers it concerns, or after
        `applied_wait_ms` with applied=False."""
        self._check_cluster(request.cluster_id)
        check_sender(context.sender, request.broker_id, role=BROKER_ROLE)
        command = with_topic_id(decode_command(request), self._topic_ids)
        outcome = await self._commands.submit(command, authorized_offset=request.authorized_offset)
        concerned = _concerned(outcome, NodeId(request.broker_id))
        await self._applied.wait(concerned, outcome.offset, self._config.applied_wait_ms)
        applied = all(self._sessions.applied_offset(b) >= outcome.offset for b in concerned)
        submitted = Submitted(reply=outcome.reply, offset=outcome.offset, applied=applied)
        return await encode_reply(command, submitted)

    async def _alter_partitions(
        self, request: pb.AlterPartitionsRequest, context: CallContext
    ) -> pb.AlterPartitionsResponse:
        """Respond when the changes are committed; partitions succeed or fail independently."""
        self._check_cluster(request.cluster_id)
        check_sender(context.sender, request.broker_id, role=BROKER_ROLE)
        command = decode_isr_changes(request)
        outcome = await self.submit(command)
        assert isinstance(outcome.reply, PartitionsAltered)
        return encode_isr_results(command, outcome.reply)

    async def _broker_session(self, stream: SessionStream, context: CallContext) -> None:
        """Serve a broker's session until the stream ends."""
        first = await stream.receive()
        if first is None:
            return
        if first.WhichOneof("event") != "registration":
            raise InvalidRequest("broker session: the first message must be a registration")
        self._check_cluster(first.registration.cluster_id)
        check_sender(context.sender, first.registration.broker_id, role=BROKER_ROLE)
        await self._streams.serve(stream, first.registration, context)

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id != self._cluster_id:
            raise InconsistentClusterId(
                f"the caller belongs to cluster {cluster_id!r}, this controller to"
                f" {self._cluster_id!r}"
            )


def _concerned(outcome: Outcome, caller: NodeId) -> list[NodeId]:
    """Return the brokers that a response waits for, ascending. Producer ids are usable before any
    broker applies their allocation."""
    if isinstance(outcome.reply, ProducerIdsAllocated):
        return []
    return sorted({*outcome.brokers, caller} - {NO_NODE})
