"""How the handlers of a broker reach the metadata: reads from its own image, once that is new
enough, and changes through the active controller. No decision."""

from ...errors import NotController
from ...ids import NO_NODE, NodeId
from ...metadata import MetadataImage
from ...metadata.shell.publisher import MetadataPublisher
from ...metadata.shell.session import BrokerSession
from ...proto import controller_pb2
from ...runtime import CallContext, Runtime
from .validation import left_ms

RELAY_ANSWER_MS = 500  # at most, that controllers end before the caller's deadline


class MetadataAccess:
    """What the parts of the service `Admin` share."""

    def __init__(self, runtime: Runtime, metadata: MetadataPublisher) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._session: BrokerSession | None = None

    def attach(self, session: BrokerSession) -> None:
        """Relay changes through this session from now on."""
        self._session = session

    @property
    def image(self) -> MetadataImage:
        """What this broker has applied."""
        return self._metadata.image

    @property
    def session(self) -> BrokerSession:
        """What relays changes; raises NotController as long as there is none."""
        if self._session is None:
            raise NotController("the broker is starting and has no controller yet; repeat")
        return self._session

    @property
    def controller_id(self) -> NodeId:
        """The active controller, as far as this broker knows."""
        session = self._session
        if session is None or session.is_lapsed():
            return NO_NODE
        return session.controller_id

    async def reach(self, offset: int, context: CallContext) -> MetadataImage:
        """Return the image once it has reached an offset; raises StaleMetadata, TimedOut."""
        await self._metadata.wait_applied(offset, timeout_ms=self.left_ms(context))
        return self._metadata.image

    async def relay(
        self, request: controller_pb2.RelayRequest, context: CallContext
    ) -> controller_pb2.RelayResponse:
        """Have the active controller carry out a command, again where the outcome is unknown.

        Every command that comes here is one whose repeat changes nothing more.
        """
        return await self.session.relay(request, timeout_ms=self.relay_ms(context), repeatable=True)

    def now_ms(self) -> int:
        """The time of the node."""
        return self._runtime.clock.now_ms()

    def left_ms(self, context: CallContext) -> int:
        """How long a handler may still take."""
        return left_ms(context, self._runtime.clock.now_ms())

    def relay_ms(self, context: CallContext) -> int:
        """How long the controllers may take so that the caller hears what is wrong with them."""
        left = self.left_ms(context)
        return left - min(left // 4, RELAY_ANSWER_MS)
