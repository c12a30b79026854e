"""The topic `__consumer_offsets`: made when somebody first asks for a coordinator.

It keeps as many replicas as the cluster was formed for, at most three. So it is not made before as
many brokers are there: a client that comes early would freeze it at one replica.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ....errors import CoordinatorNotAvailable, QuorumlogError, TopicAlreadyExists
from ....metadata.image import MetadataImage, TopicImage
from ....proto import admin_pb2
from ....proto import controller_pb2 as pb
from ....runtime import Clock
from ..config import OFFSETS_TOPIC, GroupConfig

if TYPE_CHECKING:
    from ...shell.producer_ids import ControllerRelay

_LOG = logging.getLogger("quorumlog.groups")

REPLICAS_MAX: Final = 3
SEGMENT_BYTES: Final = 100 << 20
MAKE_TIMEOUT_MS: Final = 10_000
"""For the controller; callers wait no longer than they said."""


class OffsetsTopic:
    """See the module. Belongs to the loop's thread."""

    def __init__(
        self,
        clock: Clock,
        config: GroupConfig,
        *,
        image: Callable[[], MetadataImage],
        formed_for: Callable[[], int],
        new_id: Callable[[], bytes],
    ) -> None:
        """`formed_for`: how many nodes the cluster was formed of, as far as is known."""
        self._clock = clock
        self._config = config
        self._image = image
        self._formed_for = formed_for
        self._new_id = new_id
        self._relay: ControllerRelay | None = None
        self._making: asyncio.Task[None] | None = None
        self._lacking: QuorumlogError | None = None  # why it was not made the last time
        self._changed = asyncio.Event()  # set and replaced when the topic appears or cannot

    def attach(self, relay: "ControllerRelay") -> None:
        """Ask the controller through this session."""
        self._relay = relay

    @property
    def image(self) -> TopicImage | None:
        """The topic, None: it was not made yet."""
        return self._image().topic(OFFSETS_TOPIC)

    def applied(self) -> None:
        """The image has changed: whoever waits for the topic looks again."""
        if self._making is not None and self.image is not None:
            self._wake()

    async def made(self, deadline_ms: int, *, spawn: Callable[..., "asyncio.Task[None]"]) -> None:
        """Return once the topic is there, as this broker sees it; raises CoordinatorNotAvailable
        when it cannot be made yet, or not in time."""
        while self.image is None:
            changed, self._lacking = self._changed, None
            if self._making is None:
                self._making = spawn(self._make(), name="make the topic of offsets")
            left_ms = max(0, deadline_ms - self._clock.now_ms())
            try:
                async with asyncio.timeout(left_ms / 1000):
                    await changed.wait()
            except TimeoutError:
                raise CoordinatorNotAvailable(
                    f"{OFFSETS_TOPIC} was not made in time: repeat"
                ) from None
            self._check_lacking()

    def _check_lacking(self) -> None:
        if self._lacking is not None and self.image is None:
            raise CoordinatorNotAvailable(self._lacking.message)

    async def _make(self) -> None:
        try:
            await self._ask()
            async with asyncio.timeout(MAKE_TIMEOUT_MS / 1000):
                while self.image is None:
                    await self._changed.wait()
        except QuorumlogError as error:
            self._lacking = error
        except TimeoutError:
            self._lacking = CoordinatorNotAvailable(
                f"{OFFSETS_TOPIC} was made, and this broker has not heard of it: repeat"
            )
        finally:
            self._making = None
            self._wake()

    async def _ask(self) -> None:
        relay = self._relay
        if relay is None or relay.broker_epoch < 0:
            raise CoordinatorNotAvailable("this broker is starting: repeat")
        brokers = self._image().sorted_brokers()
        replicas = self._replicas(len(brokers))
        active = sum(broker.is_active for broker in brokers)
        if active < replicas:
            raise CoordinatorNotAvailable(
                f"{OFFSETS_TOPIC} is made once {replicas} brokers are there, and {active} are:"
                " start the others, or set offsets.topic.replication.factor"
            )
        _LOG.info("groups.make_topic replicas=%d", replicas)
        try:
            await relay.relay(
                pb.RelayRequest(create_topic=self._request(replicas)),
                timeout_ms=MAKE_TIMEOUT_MS,
                repeatable=True,
            )
        except TopicAlreadyExists:
            return  # another broker was asked at the same time

    def _replicas(self, brokers: int) -> int:
        wanted = self._config.offsets_replicas
        return wanted or max(1, min(REPLICAS_MAX, max(self._formed_for(), brokers)))

    def _request(self, replicas: int) -> admin_pb2.CreateTopicRequest:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(SEGMENT_BYTES),
        }
        if replicas >= REPLICAS_MAX:
            configs["min.insync.replicas"] = "2"
        if replicas == 1:
            configs["flush.policy"] = "fsync"
        return admin_pb2.CreateTopicRequest(
            name=OFFSETS_TOPIC,
            topic_id=self._new_id(),
            partitions=self._config.offsets_partitions,
            replication_factor=replicas,
            configs=[
                admin_pb2.ConfigEntry(name=name, value=value)
                for name, value in sorted(configs.items())
            ],
        )

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
