"""Access of operations to the metadata: reads from the broker's own image once it is recent enough,
changes through the active controller."""

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from ..errors import (
    AuthorizationOutdated,
    NotController,
    StaleMetadata,
    TimedOut,
    UnknownTopicOrPartition,
)
from ..ids import NO_NODE, NodeId
from ..metadata import MetadataImage, RelayedCommand, Submitted, TopicImage
from ..metadata.shell.publisher import MetadataPublisher
from ..metadata.shell.session import BrokerSession
from ..runtime import Clock
from .audit import AuditLog, recorded
from .request_context import RequestContext
from .validation import left_ms

R = TypeVar("R")

# upper bound of the time that is left for the controller's error to reach the caller
RELAY_ANSWER_MS = 500


class MetadataAccess:
    """The metadata access that the operations share."""

    def __init__(
        self, clock: Clock, metadata: MetadataPublisher, audit: AuditLog | None = None
    ) -> None:
        """`audit` records changes."""
        self.audit = audit
        self._clock = clock
        self._metadata = metadata
        self._session: BrokerSession | None = None

    def attach(self, session: BrokerSession) -> None:
        """Forward changes through this session from now on.

        The session is created after the handlers, since it registers the address of their listener.
        """
        self._session = session

    @property
    def image(self) -> MetadataImage:
        """The newest applied image."""
        return self._metadata.image

    @property
    def controller_id(self) -> NodeId:
        """The active controller, as far as this broker has been informed."""
        session = self._session
        if session is None or session.is_lapsed():
            return NO_NODE
        return session.controller_id

    async def reach(self, context: RequestContext) -> MetadataImage:
        """Return the image once it includes the metadata that the request names; raises
        StaleMetadata, Overloaded, and SaslAuthenticationFailed if the client's session ended in the
        meantime. Authorize reads after it: an ACL may be removed during the wait."""
        await self._metadata.wait_applied(
            context.min_metadata_offset,
            timeout_ms=self.left_ms(context),
            principal=context.client.principal,
        )
        if context.check_session is not None:
            context.check_session()
        return self._metadata.image

    async def submit(
        self, command: RelayedCommand[R], context: RequestContext, authorize: Callable[[], None]
    ) -> Submitted[R]:
        """Submit a client's command to the active controller. `authorize` raises the denial if the
        client may not submit it according to the newest applied image.

        The controller refuses the command if ACLs or credentials changed after that image, as
        while the broker waited for a controller. Then session and rights are checked again, on
        metadata with the change. Raises the typed errors of both; NotController, TimedOut,
        Overloaded, Stopping, and OutcomeUnknown for a command that is not
        repeatable.
        """
        if self._session is None:
            raise NotController("broker: it is starting and has no controller yet; retry")
        authorize()
        with recorded(self.audit, context.client, command):
            while True:
                try:
                    return await self._session.submit(
                        command,
                        timeout_ms=self.relay_ms(context),
                        authorized_offset=self._metadata.applied_offset,
                    )
                except AuthorizationOutdated as error:
                    offset = error.metadata_offset
                try:
                    await self.reach(replace(context, min_metadata_offset=offset))
                except StaleMetadata as error:
                    raise TimedOut(f"the command was not executed: {error.message}") from error
                authorize()

    def left_ms(self, context: RequestContext) -> int:
        """Return the time that an operation has left."""
        return left_ms(context.deadline_ms, self._clock.now_ms())

    def relay_ms(self, context: RequestContext) -> int:
        """Return the time for the controller, so that its error reaches the caller."""
        left = self.left_ms(context)
        return left - min(left // 4, RELAY_ANSWER_MS)


def existing_topic(image: MetadataImage, name: str) -> TopicImage:
    """Return the topic of a name; raises UnknownTopicOrPartition."""
    topic = image.topic(name)
    if topic is None:
        raise UnknownTopicOrPartition(
            "the topic does not exist; create it, or check the name", topic=name
        )
    return topic
