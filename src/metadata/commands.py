"""What the controller can be asked to decide, and what it answers. Frozen values."""

from dataclasses import dataclass, field
from typing import TypeAlias

from ..ids import DirectoryId, NodeId, Offset, TopicId
from .image import TopicImage


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBroker:
    """A process announces itself; a repeat of the same incarnation changes nothing."""

    broker_id: NodeId
    incarnation_id: bytes  # 16 bytes
    directory_id: DirectoryId
    grpc_address: str
    rack: str = ""
    boot_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBroker:
    """A broker has been silent for too long, or ended."""

    broker_id: NodeId
    broker_epoch: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfenceBroker:
    """A broker has caught up with the metadata up to its own registration."""

    broker_id: NodeId
    broker_epoch: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStopping:
    """A broker wants to stop: its leaderships move away."""

    broker_id: NodeId
    broker_epoch: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """Create one topic."""

    name: str
    topic_id: TopicId  # 16 bytes drawn by who asks: a repeat with the same id is a success
    partitions: int = 0  # 0: the default
    replication_factor: int = 0  # 0: the default
    configs: tuple[tuple[str, str], ...] = field(default=())
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    """Delete one topic, by name, by id, or by both if they belong together."""

    name: str = ""  # empty: by id alone
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigs:
    """Set and delete configs of one topic, all of them or none; a repeat changes nothing."""

    topic: str
    changes: tuple[tuple[str, str | None], ...]  # name, new value; None: back to the default
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIds:
    """Give away the next block of producer ids; a repeat gets another one."""

    broker_id: NodeId  # NO_NODE: the asker is no broker
    broker_epoch: Offset  # of the asking broker's registration; without one it is not looked at


Command: TypeAlias = (
    RegisterBroker
    | FenceBroker
    | UnfenceBroker
    | BrokerStopping
    | CreateTopic
    | DeleteTopic
    | AlterConfigs
    | AllocateProducerIds
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Nothing more to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreated:
    """The topic as it is now (or would be)."""

    topic: TopicImage


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    """The topic as it was."""

    topic: TopicImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigsAltered:
    """The topic as it is now (or would be)."""

    topic: TopicImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsAllocated:
    """The ids [start, start + count) belong to the asker alone."""

    start: int
    count: int


Reply: TypeAlias = Done | TopicCreated | TopicDeleted | ConfigsAltered | ProducerIdsAllocated
