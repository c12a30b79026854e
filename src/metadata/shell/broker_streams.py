"""Broker sessions at the active controller: each stream starts with a registration, then carries
heartbeats.

After the registration a stream never waits for a decision. Commands that a heartbeat causes run as
background tasks, and the response to a later heartbeat has their result. So a long decision delays
no heartbeat.
"""

from ...errors import DuplicateBrokerRegistration, InvalidRequest, QuorumlogError, StaleBrokerEpoch
from ...ids import NodeId, Offset
from ...proto import controller_pb2 as pb
from ...runtime import CallContext, Clock, Stream
from ..codec import decode_registration
from ..commands import BrokerStopping, Command, UnfenceBroker
from ..image import BrokerImage
from ..sessions import BrokerSessions
from .applied_waiters import AppliedWaiters
from .background_tasks import BackgroundTasks
from .broker_fencer import BrokerFencer
from .command_queue import CommandQueue, Outcome
from .state_machine import MetadataStateMachine

SessionStream = Stream[pb.BrokerSessionResponse, pb.BrokerSessionRequest]


class BrokerStreams:
    """The server of `Controller.BrokerSession`."""

    def __init__(
        self,
        clock: Clock,
        commands: CommandQueue,
        sessions: BrokerSessions,
        *,
        metadata: MetadataStateMachine,
        applied: AppliedWaiters,
        tasks: BackgroundTasks,
        fencer: BrokerFencer,
    ) -> None:
        self._clock = clock
        self._commands = commands
        self._sessions = sessions
        self._metadata = metadata
        self._applied = applied
        self._tasks = tasks
        self._fencer = fencer

    async def serve(
        self, stream: SessionStream, registration: pb.BrokerRegistration, context: CallContext
    ) -> None:
        """Register the broker, then respond to heartbeats until the stream ends."""
        broker_id, broker_epoch = await self._register(registration)
        number = self._sessions.connect(broker_id, broker_epoch, self._clock.now_ms())
        try:
            await stream.send(self._response(broker_id, broker_epoch, 0))
            while (message := await stream.receive()) is not None:
                await stream.send(self._heartbeat(broker_id, broker_epoch, number, message))
        finally:
            self._sessions.disconnect(broker_id, number, self._clock.now_ms())
            self._applied.moved(broker_id)
        broker = self._commands.image.broker(broker_id)
        if broker is not None and broker.epoch == broker_epoch and broker.stopping:
            self._fencer.fence_soon(broker_id, broker_epoch, reason="stopped in order")

    async def _register(self, registration: pb.BrokerRegistration) -> tuple[NodeId, Offset]:
        self._commands.check_active()
        broker_id = NodeId(registration.broker_id)
        known = self._commands.image.broker(broker_id)
        if (
            known is not None
            and known.incarnation_id != registration.incarnation_id
            and self._is_taken(known, registration)
        ):
            raise DuplicateBrokerRegistration(
                f"broker {broker_id} is registered by a live process at {known.grpc_address}; stop"
                " it, or use another node.id"
            )
        await self._commands.submit(decode_registration(registration))
        broker = self._commands.image.broker(broker_id)
        if broker is None or broker.incarnation_id != registration.incarnation_id:
            raise StaleBrokerEpoch(
                f"broker {broker_id}: another process registered it concurrently"
            )
        return broker_id, broker.epoch

    def _is_taken(self, known: BrokerImage, registration: pb.BrokerRegistration) -> bool:
        """Return True if another process with this broker id is alive, or may be.

        After a change of the controller no broker has a stream. Registering a process with another
        disk removes the broker's replicas from every ISR, so it must wait until the previous
        process is fenced. With the same disk the previous process has ended: a disk is open in one
        process at a time.
        """
        if self._sessions.is_connected(known.id):
            return True
        return not known.fenced and known.directory_id != registration.directory_id

    def _heartbeat(
        self, broker_id: NodeId, broker_epoch: Offset, number: int, message: pb.BrokerSessionRequest
    ) -> pb.BrokerSessionResponse:
        if message.WhichOneof("event") != "heartbeat":
            raise InvalidRequest("broker session: only heartbeats can follow the registration")
        self._commands.check_active()
        heartbeat, now_ms = message.heartbeat, self._clock.now_ms()
        applied_offset = Offset(heartbeat.applied_offset)
        self._sessions.heartbeat(broker_id, number, applied_offset=applied_offset, now_ms=now_ms)
        self._applied.moved(broker_id)
        response = self._response(broker_id, broker_epoch, heartbeat.sequence)
        newest_offset = self._commands.image.offset
        may_unfence = self._sessions.may_unfence(broker_id, newest_offset, fenced=response.fenced)
        if heartbeat.want_shutdown:
            if not response.shutdown_granted:
                self._submit_later(BrokerStopping(broker_id=broker_id, broker_epoch=broker_epoch))
        elif may_unfence:
            self._submit_later(UnfenceBroker(broker_id=broker_id, broker_epoch=broker_epoch))
        return response

    def _response(
        self, broker_id: NodeId, broker_epoch: Offset, sequence: int
    ) -> pb.BrokerSessionResponse:
        image = self._commands.image
        broker = image.broker(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            raise StaleBrokerEpoch(f"broker {broker_id} is registered with another epoch")
        active = (other.id for other in image.brokers.values() if other.is_active)
        granted = broker.stopping and self._sessions.may_leave(
            broker_id, active, self._clock.now_ms()
        )
        return pb.BrokerSessionResponse(
            sequence=sequence,
            broker_epoch=broker_epoch,
            fenced=broker.fenced,
            shutdown_granted=granted,
            committed_offset=self._metadata.committed_image.offset,
        )

    def _submit_later(self, command: BrokerStopping | UnfenceBroker) -> None:
        self._tasks.start(command, lambda: self._run_command(command))

    async def _run_command(self, command: BrokerStopping | UnfenceBroker) -> None:
        outcome = await self._try(command)
        if outcome is None:
            return
        if isinstance(command, BrokerStopping):
            self._sessions.leave(command.broker_id, command.broker_epoch, outcome.offset)
        else:
            self._sessions.unfenced(command.broker_id, command.broker_epoch)

    async def _try(self, command: Command) -> Outcome | None:
        try:
            return await self._commands.submit(command)
        except QuorumlogError:
            return None  # the next heartbeat causes it again
