"""Creation of an internal topic, when a coordinator is first requested.

Its replication factor is the number of nodes that the cluster was formed with, at most three. The
topic is not created before as many brokers are active: an early client would fix it at one replica.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from ....errors import CoordinatorNotAvailable, QuorumlogError, TopicAlreadyExists
from ....ids import TopicId
from ....metadata.commands import CreateTopic
from ....metadata.image import MetadataImage, TopicImage
from ....runtime import Clock

if TYPE_CHECKING:
    from ...shell.producer_ids import ControllerRelay


REPLICAS_MAX: Final = 3
SEGMENT_BYTES: Final = 100 << 20
MAKE_TIMEOUT_MS: Final = 10_000
"""The timeout of the creation; a caller's own deadline may end its wait earlier."""


class CoordinatorNames(NamedTuple):
    """The names of one kind of coordinator."""

    topic: str  # "__consumer_offsets"
    entity: str  # "group"
    entities: str  # "groups"


class InternalTopicSettings(NamedTuple):
    """The settings of an internal topic at its creation."""

    name: str
    kind: str  # the prefix of log events
    partitions: int
    replicas: int  # 0: the number of initial voters, at most three
    replicas_setting: str  # the name of the setting, for error messages


class InternalTopic:
    """The topic that stores the state of a coordinator. Belongs to the loop's thread."""

    def __init__(
        self,
        clock: Clock,
        settings: InternalTopicSettings,
        *,
        image: Callable[[], MetadataImage],
        formed_for: Callable[[], int],
        new_id: Callable[[], bytes],
    ) -> None:
        """`formed_for` returns the number of nodes that the cluster was formed with, as far as
        known."""
        self._clock = clock
        self._settings = settings
        self._image = image
        self._formed_for = formed_for
        self._new_id = new_id
        self._relay: ControllerRelay | None = None
        self._creation: asyncio.Task[None] | None = None
        self._failure: QuorumlogError | None = None  # the failure of the last creation
        self._changed = asyncio.Event()  # set and replaced at the end of a creation

    def attach(self, relay: "ControllerRelay") -> None:
        """Set the relay to the controller."""
        self._relay = relay

    @property
    def image(self) -> TopicImage | None:
        """The topic, or None if it does not exist yet."""
        return self._image().topic(self._settings.name)

    def applied(self) -> None:
        """Handle a metadata change: wake the callers that wait for the topic."""
        if self._creation is not None and self.image is not None:
            self._wake()

    async def wait_until_created(
        self, deadline_ms: int, *, spawn: Callable[..., "asyncio.Task[None]"]
    ) -> None:
        """Wait until the topic exists in this broker's metadata; create it if necessary.

        Raises CoordinatorNotAvailable if it cannot be created yet, or not in time.
        """
        while self.image is None:
            changed, self._failure = self._changed, None
            if self._creation is None:
                self._creation = spawn(self._create(), name=f"create {self._settings.name}")
            left_ms = max(0, deadline_ms - self._clock.now_ms())
            try:
                async with asyncio.timeout(left_ms / 1000):
                    await changed.wait()
            except TimeoutError:
                raise CoordinatorNotAvailable(
                    f"{self._settings.name}: the topic was not created in time; retry"
                ) from None
            self._check_failure()

    def _check_failure(self) -> None:
        if self._failure is not None and self.image is None:
            raise CoordinatorNotAvailable(self._failure.message)

    async def _create(self) -> None:
        try:
            await self._ask()
            async with asyncio.timeout(MAKE_TIMEOUT_MS / 1000):
                while self.image is None:
                    await self._changed.wait()
        except QuorumlogError as error:
            self._failure = error
        except TimeoutError:
            self._failure = CoordinatorNotAvailable(
                f"{self._settings.name}: created, but not in this broker's metadata yet; retry"
            )
        finally:
            self._creation = None
            self._wake()

    async def _ask(self) -> None:
        relay = self._relay
        if relay is None or relay.broker_epoch < 0:
            raise CoordinatorNotAvailable("the broker is starting; retry")
        brokers = self._image().sorted_brokers()
        replicas = self._replicas(len(brokers))
        active = sum(broker.is_active for broker in brokers)
        if active < replicas:
            raise CoordinatorNotAvailable(
                f"{self._settings.name}: not created yet; it needs {replicas} brokers and {active}"
                f" are active; start the others, or set {self._settings.replicas_setting}"
            )
        kind = self._settings.kind
        logging.getLogger(f"quorumlog.{kind}").info("%s.make_topic replicas=%d", kind, replicas)
        try:
            await relay.submit(self._command(replicas), timeout_ms=MAKE_TIMEOUT_MS)
        except TopicAlreadyExists:
            return  # another broker has created it concurrently

    def _replicas(self, brokers: int) -> int:
        return self._settings.replicas or max(
            1, min(REPLICAS_MAX, max(self._formed_for(), brokers))
        )

    def _command(self, replicas: int) -> CreateTopic:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(SEGMENT_BYTES),
        }
        if replicas >= REPLICAS_MAX:
            configs["min.insync.replicas"] = "2"
        if replicas == 1:
            configs["flush.policy"] = "fsync"
        return CreateTopic(
            name=self._settings.name,
            topic_id=TopicId(self._new_id()),
            partitions=self._settings.partitions,
            replication_factor=replicas,
            configs=tuple(sorted(configs.items())),
        )

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
