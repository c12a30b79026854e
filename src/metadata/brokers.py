"""Brokers come and go: registration, fencing, controlled shutdown. Decisions, pure."""

from ..errors import InvalidRequest, StaleBrokerEpoch
from ..ids import NodeId, Offset
from ..proto import metadata_records_pb2 as pb
from .commands import BrokerStopping, Done, FenceBroker, RegisterBroker, UnfenceBroker
from .decision import Decision
from .elections import on_broker_back, on_broker_gone
from .image import BrokerImage, MetadataImage, replay


def register(image: MetadataImage, command: RegisterBroker) -> Decision:
    """A new incarnation starts fenced and leads nothing: in every ISR with another member it is
    replaced, in one transaction with its registration."""
    if (
        command.broker_id < 0
        or len(command.incarnation_id) != 16
        or len(command.directory_id) != 16
    ):
        raise InvalidRequest("a broker registers with an id >= 0 and ids of 16 bytes")
    known = image.brokers.get(command.broker_id)
    if known is not None and known.incarnation_id == command.incarnation_id:
        return Decision(records=(), reply=Done())
    registration = pb.BrokerRecord(
        id=command.broker_id,
        incarnation_id=command.incarnation_id,
        directory_id=command.directory_id,
        grpc_address=command.grpc_address,
        rack=command.rack,
        boot_id=command.boot_id,
        fenced=True,
    )
    gone = on_broker_gone(image, command.broker_id)
    return Decision(records=(pb.MetadataRecord(broker=registration), *gone), reply=Done())


def fence(image: MetadataImage, command: FenceBroker) -> Decision:
    broker = registered(image, command.broker_id, command.broker_epoch)
    if broker.fenced:
        return Decision(records=(), reply=Done())
    change = pb.BrokerChangeRecord(id=broker.id, broker_epoch=broker.epoch, fenced=True)
    gone = on_broker_gone(image, broker.id)
    return Decision(records=(pb.MetadataRecord(broker_change=change), *gone), reply=Done())


def unfence(image: MetadataImage, command: UnfenceBroker) -> Decision:
    broker = registered(image, command.broker_id, command.broker_epoch)
    if not broker.fenced or broker.stopping:
        return Decision(records=(), reply=Done())
    change = pb.MetadataRecord(
        broker_change=pb.BrokerChangeRecord(id=broker.id, broker_epoch=broker.epoch, fenced=False)
    )
    unfenced = replay(image, change, offset=image.offset + 1, epoch=image.epoch)
    back = on_broker_back(unfenced, broker.id)
    return Decision(records=(change, *back), reply=Done())


def stopping(image: MetadataImage, command: BrokerStopping) -> Decision:
    """Controlled shutdown: it leads nothing from here on, so that no produce is cut short."""
    broker = registered(image, command.broker_id, command.broker_epoch)
    if broker.stopping:
        return Decision(records=(), reply=Done())
    change = pb.BrokerChangeRecord(id=broker.id, broker_epoch=broker.epoch, stopping=True)
    gone = on_broker_gone(image, broker.id)
    return Decision(records=(pb.MetadataRecord(broker_change=change), *gone), reply=Done())


def registered(image: MetadataImage, broker_id: NodeId, broker_epoch: Offset) -> BrokerImage:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        present = "none" if broker is None else str(broker.epoch)
        raise StaleBrokerEpoch(
            f"broker {broker_id} is not registered with epoch {broker_epoch}: the present one is"
            f" {present}"
        )
    return broker
