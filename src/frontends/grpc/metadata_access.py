"""Access of handlers to the metadata: reads from the broker's own image once it is recent enough,
changes through the active controller."""

from google.protobuf.message import Message

from ...errors import NotController
from ...ids import NO_NODE, NodeId
from ...metadata import MetadataImage, decode_request
from ...metadata.shell.publisher import MetadataPublisher
from ...metadata.shell.relay_reply import encode_reply
from ...metadata.shell.session import BrokerSession
from ...proto import controller_pb2
from ...runtime import CallContext, Runtime
from .validation import left_ms

# upper bound of the time that is left for the controller's error to reach the caller
RELAY_ANSWER_MS = 500


class MetadataAccess:
    """The metadata access that the parts of the service `Admin` share."""

    def __init__(self, runtime: Runtime, metadata: MetadataPublisher) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._session: BrokerSession | None = None

    def attach(self, session: BrokerSession) -> None:
        """Forward changes through this session from now on."""
        self._session = session

    @property
    def image(self) -> MetadataImage:
        """The newest applied image."""
        return self._metadata.image

    @property
    def session(self) -> BrokerSession:
        """The session that forwards changes; raises NotController before there is one."""
        if self._session is None:
            raise NotController("broker: it is starting and has no controller yet; retry")
        return self._session

    @property
    def controller_id(self) -> NodeId:
        """The active controller, as far as this broker has been informed."""
        session = self._session
        if session is None or session.is_lapsed():
            return NO_NODE
        return session.controller_id

    async def reach(self, offset: int, context: CallContext) -> MetadataImage:
        """Return the image once it has reached an offset; raises StaleMetadata, TimedOut."""
        await self._metadata.wait_applied(offset, timeout_ms=self.left_ms(context))
        return self._metadata.image

    async def submit(self, request: Message, context: CallContext) -> controller_pb2.RelayResponse:
        """Submit the command of a client's request to the active controller."""
        command = decode_request(request)
        submitted = await self.session.submit(command, timeout_ms=self.relay_ms(context))
        return await encode_reply(command, submitted)

    def now_ms(self) -> int:
        """Return the node's monotonic time."""
        return self._runtime.clock.now_ms()

    def left_ms(self, context: CallContext) -> int:
        """Return the time that a handler has left."""
        return left_ms(context, self._runtime.clock.now_ms())

    def relay_ms(self, context: CallContext) -> int:
        """Return the time for the controller, so that its error reaches the caller."""
        left = self.left_ms(context)
        return left - min(left // 4, RELAY_ANSWER_MS)
