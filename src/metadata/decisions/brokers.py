"""Registration, fencing, controlled shutdown and unregistration of brokers. Pure.

A broker that is not active is in no ISR and leads no partition: the decision that makes it inactive
also removes it, after the record of its own change. It rejoins ISRs by catching up, not by becoming
active; only partitions without a leader can elect it at once.
"""

from collections.abc import Iterator
from itertools import chain

from msgspec import structs

from ...errors import BrokerIdNotRegistered, InvalidRequest, StaleBrokerEpoch
from ...ids import NodeId, Offset
from ...proto import metadata_records_pb2 as pb
from ..codec import encode_new_broker
from ..commands import (
    BrokerStopping,
    Done,
    FenceBroker,
    RegisterBroker,
    UnfenceBroker,
    UnregisterBroker,
)
from ..decision import AnyDecision, Decision
from ..image import BrokerImage, MetadataImage
from ..replay import replay
from .elections import Loss, on_broker_back, on_broker_gone
from .features import check_registration, new_cluster_levels
from .steps import Walk, decision_of


def register(image: MetadataImage, command: RegisterBroker) -> AnyDecision:
    """Register a new incarnation, fenced and without leaderships, and remove it from the ELRs of
    partitions where it lost records. The same incarnation changes nothing (KAFKA-16952).

    The first broker of a new cluster also finalizes its feature levels."""
    if (
        command.broker_id < 0
        or len(command.incarnation_id) != 16
        or len(command.directory_id) != 16
    ):
        raise InvalidRequest("broker registration: the node id must be >= 0, other ids 16 bytes")
    known = image.brokers.get(command.broker_id)
    if known is not None and known.incarnation_id == command.incarnation_id:
        # sometimes: a broker repeats its registration
        return Decision(records=(), reply=Done())
    check_registration(image, command.features)
    by_name = structs.replace(
        command,
        features=tuple(sorted(command.features)),
        kafka_listeners=tuple(sorted(command.kafka_listeners)),
    )
    registration = encode_new_broker(by_name)
    levels = new_cluster_levels(image, command.features)
    gone = on_broker_gone(image, command.broker_id, loss_since(known, command))
    walk = chain([pb.MetadataRecord(broker=registration)], levels, gone)
    return decision_of(f"register broker {command.broker_id}", walk)


def loss_since(known: BrokerImage | None, command: RegisterBroker) -> Loss:
    """Return the records that a broker can have lost between two registrations.

    An unknown broker may have been unregistered together with its disk. An empty boot id equals no
    other.
    """
    if known is None or known.directory_id != command.directory_id:
        return Loss.EVERYTHING
    if command.clean_start or (command.boot_id and command.boot_id == known.boot_id):
        return Loss.NOTHING
    return Loss.UNFLUSHED


def fence(image: MetadataImage, command: FenceBroker) -> AnyDecision:
    """Fence a broker and remove it from every ISR and leadership. A repeat changes nothing."""
    broker = registered(image, command.broker_id, command.broker_epoch)
    if broker.fenced:
        return Decision(records=(), reply=Done())
    change = pb.BrokerChangeRecord(id=broker.id, broker_epoch=broker.epoch, fenced=True)
    gone = on_broker_gone(image, broker.id)
    walk = _with_first(pb.MetadataRecord(broker_change=change), gone)
    return decision_of(f"fence broker {broker.id}", walk)


def unfence(image: MetadataImage, command: UnfenceBroker) -> AnyDecision:
    """Unfence a broker, and elect it in partitions without a leader where it is eligible."""
    broker = registered(image, command.broker_id, command.broker_epoch)
    if not broker.fenced or broker.stopping:
        # sometimes if broker.stopping: a stopping broker asks to be unfenced
        return Decision(records=(), reply=Done())
    change = pb.MetadataRecord(
        broker_change=pb.BrokerChangeRecord(id=broker.id, broker_epoch=broker.epoch, fenced=False)
    )
    unfenced = replay(image, change, offset=image.offset + 1, epoch=image.epoch)
    walk = _with_first(change, on_broker_back(unfenced, broker.id))
    return decision_of(f"unfence broker {broker.id}", walk)


def stopping(image: MetadataImage, command: BrokerStopping) -> AnyDecision:
    """Begin a controlled shutdown: move the broker's leaderships and remove it from every ISR until
    it registers again (KIP-841)."""
    broker = registered(image, command.broker_id, command.broker_epoch)
    if broker.stopping:
        return Decision(records=(), reply=Done())
    change = pb.BrokerChangeRecord(id=broker.id, broker_epoch=broker.epoch, stopping=True)
    gone = on_broker_gone(image, broker.id)
    walk = _with_first(pb.MetadataRecord(broker_change=change), gone)
    return decision_of(f"stop broker {broker.id}", walk)


def unregister(image: MetadataImage, command: UnregisterBroker) -> AnyDecision:
    """Remove the registration of a broker that is lost with its disks: none of its replicas counts
    any more.

    Its replicas stay assigned until a reassignment moves them.
    """
    broker = image.brokers.get(command.broker_id)
    if broker is None:
        raise BrokerIdNotRegistered(
            f"broker {command.broker_id} is not registered; `quorumlog brokers list` lists brokers"
        )
    if not broker.fenced:
        raise InvalidRequest(
            f"broker {broker.id} at {broker.grpc_address} is alive; stop it before you unregister"
            " it"
        )
    record = pb.UnregisterBrokerRecord(id=broker.id, broker_epoch=broker.epoch)
    gone = on_broker_gone(image, broker.id, Loss.EVERYTHING)
    walk = _with_first(pb.MetadataRecord(unregister_broker=record), gone)
    return decision_of(f"unregister broker {broker.id}", walk)


def registered(image: MetadataImage, broker_id: NodeId, broker_epoch: Offset) -> BrokerImage:
    """Return the broker; raise StaleBrokerEpoch unless it is registered with this epoch."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        # sometimes if broker is not None: a command of an earlier registration arrives
        present = "none" if broker is None else str(broker.epoch)
        raise StaleBrokerEpoch(
            f"broker {broker_id} is not registered with epoch {broker_epoch}; the current epoch is"
            f" {present}"
        )
    return broker


def _with_first(record: pb.MetadataRecord, walk: Walk) -> Iterator[pb.MetadataRecord | None]:
    yield record
    yield from walk
