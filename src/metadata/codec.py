"""Codec between structs and messages: commands, replies, and images of topics and brokers. Pure.

Each type has one declaration: struct type, message type and fields. A field without a converter has
the same name and value on both sides. The declarations are built at first use, so that the start of
a node is not slower.

Encoding and decoding of replies run in steps: a topic can have 10,000 partitions, and heartbeats
must not wait for all of them.
"""

import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.message import Message
from immutables import Map
from msgspec.structs import replace

from ..errors import InvalidRequest, QuorumlogError
from ..ids import NodeId, Offset, TopicId
from ..proto import admin_pb2, controller_pb2, metadata_records_pb2
from ..runtime.error_detail import decode_error, encode_error
from .acls import (
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    acl_of,
    enum_of,
    fill_acl,
)
from .client_quotas import QuotaEntity
from .commands import (
    AclDeletion,
    AclsCreated,
    AclsDeleted,
    AllocateProducerIds,
    AlterClientQuotas,
    AlterClusterConfigs,
    AlterConfigs,
    AlterGroupConfigs,
    AlterPartitions,
    AlterReassignments,
    AlterScramCredentials,
    ClientQuotasAltered,
    ClusterConfigsAltered,
    ConfigsAltered,
    CreateAcls,
    CreatePartitions,
    CreateTopic,
    DeleteAcls,
    DeleteTopic,
    Done,
    ElectLeaders,
    FeaturesUpdated,
    FeatureUpdate,
    GroupConfigsAltered,
    IsrChange,
    ListChange,
    PartitionOutcome,
    PartitionOutcomes,
    PartitionsAltered,
    PartitionsCreated,
    ProducerIdsAllocated,
    QuotaAlteration,
    QuotaOutcome,
    Reassignment,
    RegisterBroker,
    Relayed,
    RelayedCommand,
    ScramCredentialsAltered,
    ScramOutcome,
    Submitted,
    TopicCreated,
    TopicDeleted,
    UnregisterBroker,
    UpdateFeatures,
)
from .decisions.features import FEATURES
from .image import AlteredPartition, BrokerImage, PartitionImage, TopicImage
from .scram_credentials import (
    ScramCredential,
    ScramMechanism,
    credential_of,
    fill_credential,
    fill_key,
    scram_key_of,
)
from .topic_configs import effective_min_isr

_R = TypeVar("_R")
_C = TypeVar("_C", bound=RelayedCommand[Any])

ISR_CHANGES_MAX: Final = 10_000
"""The maximum number of partitions of one request; a broker that leads more sends several."""

ITEMS_A_STEP: Final = 250
"""Items of a list that are encoded or decoded in one step, a few milliseconds."""


# --- commands and replies ------------------------------------------------------------------------


def encode_command(command: RelayedCommand[Any]) -> controller_pb2.RelayRequest:
    """Return the request that relays a command; the sender adds the ids of cluster and broker."""
    row = _table().by_command[type(command)]
    request = controller_pb2.RelayRequest()
    into = getattr(request, row.name)
    into.SetInParent()
    row.command.fill(into, command)
    if isinstance(command, AllocateProducerIds):
        request.broker_id = command.broker_id
    return request


def decode_command(request: controller_pb2.RelayRequest) -> Relayed:
    """Return the command of a relayed request; raise InvalidRequest for an unknown one."""
    row = _table().by_name.get(request.WhichOneof("command") or "")
    if row is None:
        raise InvalidRequest("the relayed request has no command that this controller supports")
    command: Relayed = row.command.read(getattr(request, row.name))
    if isinstance(command, AllocateProducerIds):
        return replace(command, broker_id=NodeId(request.broker_id))
    return command


def decode_request(command: type[_C], request: Message) -> _C:
    """Return the command of a client's request, e.g. a CreateTopic of a CreateTopicRequest."""
    decoded: _C = _table().by_command[command].command.read(request)
    return decoded


def encode_reply(
    command: RelayedCommand[Any], submitted: Submitted[Any]
) -> Generator[None, None, controller_pb2.RelayResponse]:
    """Return the response to a command; yield at the end of a step."""
    row = _table().by_command[type(command)]
    response = controller_pb2.RelayResponse()
    into = getattr(response, row.name)
    into.SetInParent()
    if row.has_offset:
        into.metadata_offset = submitted.offset
    if row.applied:
        setattr(into, row.applied, submitted.applied)
    yield from row.reply.fill_in_steps(into, submitted.reply)
    return response


def decode_reply(
    command: RelayedCommand[_R], response: controller_pb2.RelayResponse
) -> Generator[None, None, Submitted[_R]]:
    """Return the result of a command from its response; yield at the end of a step."""
    row = _table().by_command[type(command)]
    message = getattr(response, row.name)
    reply = yield from row.reply.read_in_steps(message)
    return Submitted(
        reply=reply,
        offset=Offset(message.metadata_offset if row.has_offset else -1),
        applied=getattr(message, row.applied) if row.applied else False,
    )


# --- ISR changes ---------------------------------------------------------------------------------


def encode_isr_changes(command: AlterPartitions) -> controller_pb2.AlterPartitionsRequest:
    """Return the request of a command; the sender adds the cluster id."""
    request = controller_pb2.AlterPartitionsRequest()
    _table().alter_partitions.fill(request, command)
    return request


def decode_isr_changes(request: controller_pb2.AlterPartitionsRequest) -> AlterPartitions:
    """Return the command of a request; raise InvalidRequest for repeated or too many partitions."""
    named = {(change.topic_id, change.partition) for change in request.partitions}
    if len(named) < len(request.partitions):
        raise InvalidRequest("a partition is given more than once; give each partition once")
    if len(named) > ISR_CHANGES_MAX:
        raise InvalidRequest(
            f"the request has {len(named)} partitions; the limit is {ISR_CHANGES_MAX}; send several"
        )
    command: AlterPartitions = _table().alter_partitions.read(request)
    return command


def encode_isr_results(
    command: AlterPartitions, reply: PartitionsAltered
) -> controller_pb2.AlterPartitionsResponse:
    """Return the response, with a result for each change in the order of the command."""
    response, state = controller_pb2.AlterPartitionsResponse(), _table().altered_partition
    for change, result in zip(command.changes, reply.results, strict=True):
        message = response.results.add(topic_id=change.topic_id, partition=change.partition)
        if isinstance(result, QuorumlogError):
            message.error.CopyFrom(encode_error(result))
        else:
            state.fill(message, result)
    return response


def decode_isr_results(response: controller_pb2.AlterPartitionsResponse) -> PartitionsAltered:
    """Return the reply of a response."""
    state = _table().altered_partition
    return PartitionsAltered(
        results=tuple(
            decode_error(each.error) if each.HasField("error") else state.read(each)
            for each in response.results
        )
    )


# --- brokers -------------------------------------------------------------------------------------


def encode_registration(command: RegisterBroker) -> controller_pb2.BrokerRegistration:
    """Return the first message of a broker's session; the sender adds the cluster id."""
    message = controller_pb2.BrokerRegistration()
    _table().registration.fill(message, command)
    return message


def decode_registration(message: controller_pb2.BrokerRegistration) -> RegisterBroker:
    """Return the command of the first message of a broker's session."""
    command: RegisterBroker = _table().registration.read(message)
    return command


def encode_new_broker(command: RegisterBroker) -> metadata_records_pb2.BrokerRecord:
    """Return the record of a registration, fenced. It has no broker epoch: that is its offset."""
    record = metadata_records_pb2.BrokerRecord(fenced=True)
    _table().new_broker.fill(record, command)
    return record


def encode_broker(broker: BrokerImage) -> metadata_records_pb2.BrokerRecord:
    """Return the record of a broker, as in a snapshot."""
    record = metadata_records_pb2.BrokerRecord()
    _table().broker.fill(record, broker)
    return record


def decode_broker(record: metadata_records_pb2.BrokerRecord, offset: Offset) -> BrokerImage:
    """Return the broker of a record at `offset`, which is its epoch if the record has none."""
    broker: BrokerImage = _table().broker.read(record)
    return broker if record.HasField("broker_epoch") else dataclasses.replace(broker, epoch=offset)


def encode_partition(
    topic_id: TopicId, index: int, partition: PartitionImage
) -> metadata_records_pb2.PartitionRecord:
    """Return the record of a partition."""
    record = metadata_records_pb2.PartitionRecord(topic_id=topic_id, partition=index)
    _table().partition_state.fill(record, partition)
    return record


# --- descriptions --------------------------------------------------------------------------------


def describe_topic(topic: TopicImage) -> admin_pb2.TopicDescription:
    """Return the message that describes a topic."""
    described = admin_pb2.TopicDescription()
    _table().topic.fill(described, topic)
    return described


def describe_partition(
    topic: TopicImage, index: int, partition: PartitionImage
) -> admin_pb2.PartitionDescription:
    """Return the message that describes a partition."""
    described = admin_pb2.PartitionDescription()
    _table().partition.fill(described, (topic, index, partition))
    return described


def describe_features(
    levels: Iterable[tuple[str, int, int, int]],
) -> list[admin_pb2.FeatureDescription]:
    """Return the messages that describe the levels of features; see `FeaturesUpdated`."""
    reply = admin_pb2.UpdateFeaturesResponse()
    _table().by_command[UpdateFeatures].reply.fill(reply, FeaturesUpdated(levels=tuple(levels)))
    return list(reply.features)


def describe_client_quotas(
    quotas: Iterable[tuple[QuotaEntity, Mapping[str, float]]],
) -> list[admin_pb2.ClientQuotas]:
    """Return the messages that describe the quotas of entities."""
    described = []
    for entity, values in quotas:
        message = admin_pb2.ClientQuotas()
        _fill_all(message.entity, _ENTITY_PART, entity)
        _fill_all(message.values, _QUOTA_VALUE, sorted(values.items()))
        described.append(message)
    return described


def read_acl_filter(message: admin_pb2.AclFilter) -> AclFilter:
    """Return the filter of a message, not checked; raise InvalidRequest for an unknown number."""
    read: AclFilter = _AclFilter().read(message)
    return read


def describe_scram_credentials(
    by_user: Mapping[str, Mapping[ScramMechanism, ScramCredential]],
    *,
    with_keys: bool = False,
) -> list[admin_pb2.ScramCredentialDescription]:
    """Return the messages that describe the credentials of users; without their keys unless
    `with_keys`."""
    described = []
    for user, credentials in by_user.items():
        for mechanism, credential in credentials.items():
            message = admin_pb2.ScramCredentialDescription(iterations=credential.iterations)
            fill_key(message.credential, (user, mechanism))
            if with_keys:
                message.salt = credential.salt
                message.stored_key = credential.stored_key
                message.server_key = credential.server_key
            described.append(message)
    return described


# --- shapes: one value and its message -----------------------------------------------------------


class _Shape:
    """The correspondence between a value and a message."""

    def fill(self, message: Any, value: Any) -> None:
        """Set the fields of an empty message from a value."""
        raise NotImplementedError

    def read(self, message: Any) -> Any:
        """Return the value of a message."""
        raise NotImplementedError


class _Tuple(_Shape):
    """A tuple of scalar fields. An optional one is None if it is absent."""

    def __init__(self, *names: str, optional: str = "") -> None:
        self._names = names
        self._optional = optional

    def fill(self, message: Any, value: Any) -> None:
        for name, each in zip(self._names, value, strict=True):
            if each is not None:
                setattr(message, name, each)

    def read(self, message: Any) -> Any:
        if self._optional and not message.HasField(self._optional):
            return tuple(
                None if name == self._optional else getattr(message, name) for name in self._names
            )
        return tuple(getattr(message, name) for name in self._names)


class _Ids(_Shape):
    """A tuple of ids in the only field of a message."""

    def __init__(self, to: str) -> None:
        self._to = to

    def fill(self, message: Any, value: Any) -> None:
        getattr(message, self._to).extend(value)

    def read(self, message: Any) -> Any:
        return tuple(getattr(message, self._to))


class _Error(_Shape):
    """A QuorumlogError."""

    def fill(self, message: Any, value: Any) -> None:
        message.CopyFrom(encode_error(value))

    def read(self, message: Any) -> Any:
        return decode_error(message)


class _Feature(_Tuple):
    """The levels of a feature; its description is that of this release."""

    def fill(self, message: Any, value: Any) -> None:
        super().fill(message, value)
        if message.name in FEATURES:  # not one of a newer controller
            message.doc = FEATURES[message.name].doc


class _Acl(_Shape):
    """An Acl."""

    def fill(self, message: Any, value: Any) -> None:
        fill_acl(message, value)

    def read(self, message: Any) -> Any:
        return acl_of(message)


class _AclFilter(_Shape):
    """An AclFilter."""

    def fill(self, message: Any, value: Any) -> None:
        for name in ("resource_type", "pattern_type", "operation", "permission"):
            setattr(message, name, int(getattr(value, name)))
        for name in ("resource_name", "principal", "host"):
            if getattr(value, name) is not None:
                setattr(message, name, getattr(value, name))

    def read(self, message: Any) -> Any:
        def text(name: str) -> str | None:
            return getattr(message, name) if message.HasField(name) else None

        return AclFilter(
            resource_type=enum_of(AclResourceType, message.resource_type),
            resource_name=text("resource_name"),
            pattern_type=enum_of(AclPatternType, message.pattern_type),
            principal=text("principal"),
            host=text("host"),
            operation=enum_of(AclOperation, message.operation),
            permission=enum_of(AclPermission, message.permission),
        )


class _ScramKey(_Shape):
    """User and mechanism of a credential."""

    def fill(self, message: Any, value: Any) -> None:
        fill_key(message, value)

    def read(self, message: Any) -> Any:
        return scram_key_of(message)


class _ScramCredential(_Shape):
    """A credential with its key."""

    def fill(self, message: Any, value: Any) -> None:
        key, credential = value
        fill_credential(message, key, credential)

    def read(self, message: Any) -> Any:
        return scram_key_of(message.credential), credential_of(message)


class _OptionalError(_Shape):
    """A message with an error, which may be absent, and nothing else."""

    def fill(self, message: Any, value: Any) -> None:
        if value is not None:
            message.error.CopyFrom(encode_error(value))

    def read(self, message: Any) -> Any:
        return decode_error(message.error) if message.HasField("error") else None


class _Struct(_Shape):
    """A struct with its fields."""

    def __init__(
        self, struct: Callable[..., Any], message: type[Message], *fields: "_Field | str"
    ) -> None:
        self.struct = struct
        self.message = message
        self.fields = tuple(_Field(each) if isinstance(each, str) else each for each in fields)

    def fill(self, message: Any, value: Any) -> None:
        for field in self.fields:
            field.put(message, value)

    def read(self, message: Any) -> Any:
        values: dict[str, Any] = {}
        for field in self.fields:
            field.get(message, values)
        return self.struct(**values)

    def fill_in_steps(self, message: Any, value: Any) -> Iterator[None]:
        """Set the fields as `fill` does; yield at the end of a step."""
        for field in self.fields:
            yield from field.put_in_steps(message, value)

    def read_in_steps(self, message: Any) -> Generator[None, None, Any]:
        """Return the value as `read` does; yield at the end of a step."""
        values: dict[str, Any] = {}
        for field in self.fields:
            yield from field.get_in_steps(message, values)
        return self.struct(**values)


class _Partition(_Shape):
    """A partition of a topic: encodes (topic, index, partition), decodes to (index, partition).

    The message has min.insync.replicas in addition, which derives from the topic's configs.
    """

    def __init__(self, partition: _Struct) -> None:
        self._partition = partition

    def fill(self, message: Any, value: Any) -> None:
        topic, index, partition = value
        message.partition = index
        message.min_isr = effective_min_isr(
            topic.configs, replication_factor=partition.replication_factor
        )
        self._partition.fill(message, partition)

    def read(self, message: Any) -> Any:
        return message.partition, self._partition.read(message)


# --- fields of a struct --------------------------------------------------------------------------


class _Field:
    """A field of a struct and the field of the message, with equal values."""

    def __init__(self, name: str, to: str = "") -> None:
        """`to` is the name in the message; empty: the same."""
        self.name = name
        self.to = to or name

    def put(self, message: Any, owner: Any) -> None:
        """Set the message's field from the struct that owns this one."""
        setattr(message, self.to, getattr(owner, self.name))

    def get(self, message: Any, values: dict[str, Any]) -> None:
        """Add the value of the message's field to the values of the struct."""
        values[self.name] = getattr(message, self.to)

    def put_in_steps(self, message: Any, owner: Any) -> Iterable[None]:
        """Set the message's field; yield at the end of a step."""
        self.put(message, owner)
        return ()

    def get_in_steps(self, message: Any, values: dict[str, Any]) -> Iterable[None]:
        """Add the value to the values of the struct; yield at the end of a step."""
        self.get(message, values)
        return ()


class _NoneIfEmpty(_Field):
    """A scalar that is None in the struct and empty in the message."""

    def put(self, message: Any, owner: Any) -> None:
        value = getattr(owner, self.name)
        if value is not None:
            setattr(message, self.to, value)

    def get(self, message: Any, values: dict[str, Any]) -> None:
        values[self.name] = getattr(message, self.to) or None


class _Enum(_Field):
    """A bool in the struct, an enum in the message."""

    def __init__(self, name: str, to: str, *, true: int, false: int) -> None:
        super().__init__(name, to)
        self._true, self._false = true, false

    def put(self, message: Any, owner: Any) -> None:
        setattr(message, self.to, self._true if getattr(owner, self.name) else self._false)

    def get(self, message: Any, values: dict[str, Any]) -> None:
        values[self.name] = getattr(message, self.to) == self._true


class _IdsField(_Field):
    """A tuple of ids in the struct, a repeated field in the message."""

    def put(self, message: Any, owner: Any) -> None:
        value = getattr(owner, self.name)
        if value:
            getattr(message, self.to).extend(value)

    def get(self, message: Any, values: dict[str, Any]) -> None:
        values[self.name] = tuple(getattr(message, self.to))


class _Nested(_Field):
    """A value with a message of its own."""

    def __init__(self, name: str, shape: _Struct) -> None:
        super().__init__(name)
        self._shape = shape

    def put(self, message: Any, owner: Any) -> None:
        self._shape.fill(getattr(message, self.to), getattr(owner, self.name))

    def get(self, message: Any, values: dict[str, Any]) -> None:
        values[self.name] = self._shape.read(getattr(message, self.to))

    def put_in_steps(self, message: Any, owner: Any) -> Iterable[None]:
        return self._shape.fill_in_steps(getattr(message, self.to), getattr(owner, self.name))

    def get_in_steps(self, message: Any, values: dict[str, Any]) -> Iterator[None]:
        values[self.name] = yield from self._shape.read_in_steps(getattr(message, self.to))


class _Optional(_Field):
    """A value with a message of its own; None if that is absent."""

    def __init__(self, name: str, shape: _Shape, to: str = "") -> None:
        super().__init__(name, to)
        self._shape = shape

    def put(self, message: Any, owner: Any) -> None:
        value = getattr(owner, self.name)
        if value is not None:
            into = getattr(message, self.to)
            into.SetInParent()  # present, also without fields
            self._shape.fill(into, value)

    def get(self, message: Any, values: dict[str, Any]) -> None:
        is_present = message.HasField(self.to)
        values[self.name] = self._shape.read(getattr(message, self.to)) if is_present else None


class _Many(_Field):
    """Several values with a message each, by default in a tuple."""

    def __init__(
        self,
        name: str,
        shape: _Shape,
        to: str = "",
        *,
        values: Callable[[Any], Sequence[Any]] | None = None,
        collect: Callable[[list[Any]], Any] = tuple,
    ) -> None:
        """`values` maps the struct to the values to encode, `collect` makes the struct's field from
        the decoded ones."""
        super().__init__(name, to)
        self._shape = shape
        self._values = values
        self._collect = collect

    def put(self, message: Any, owner: Any) -> None:
        for _ in self.put_in_steps(message, owner):
            continue

    def get(self, message: Any, values: dict[str, Any]) -> None:
        for _ in self.get_in_steps(message, values):
            continue

    def put_in_steps(self, message: Any, owner: Any) -> Iterator[None]:
        values = getattr(owner, self.name) if self._values is None else self._values(owner)
        into, fill = getattr(message, self.to), self._shape.fill
        for count, each in enumerate(values, 1):
            fill(into.add(), each)
            if count % ITEMS_A_STEP == 0:
                yield

    def get_in_steps(self, message: Any, values: dict[str, Any]) -> Iterator[None]:
        found, read = [], self._shape.read
        for count, each in enumerate(getattr(message, self.to), 1):
            found.append(read(each))
            if count % ITEMS_A_STEP == 0:
                yield
        values[self.name] = self._collect(found)


class _ConfigChanges(_Field):
    """The fields `changes` and `lists` of a struct, in one repeated field of the message."""

    def __init__(self) -> None:
        super().__init__("changes")

    def put(self, message: Any, owner: Any) -> None:
        _fill_all(message.changes, _CONFIG_CHANGE, owner.changes)
        for change in owner.lists:
            message.changes.add(
                name=change.name,
                value=",".join(change.parts),
                operation=(
                    admin_pb2.CONFIG_OPERATION_SUBTRACT
                    if change.is_removal
                    else admin_pb2.CONFIG_OPERATION_APPEND
                ),
            )

    def get(self, message: Any, values: dict[str, Any]) -> None:
        is_set = admin_pb2.CONFIG_OPERATION_SET
        values["changes"] = tuple(
            _CONFIG_CHANGE.read(each) for each in message.changes if each.operation == is_set
        )
        values["lists"] = tuple(
            ListChange(
                name=each.name,
                parts=tuple(part.strip() for part in each.value.split(",")),
                is_removal=each.operation == admin_pb2.CONFIG_OPERATION_SUBTRACT,
            )
            for each in message.changes
            if each.operation != is_set
        )


def _fill_all(into: Any, shape: _Shape, values: Iterable[Any]) -> None:
    """Append a message for each value to a repeated field."""
    for each in values:
        shape.fill(into.add(), each)


# --- declarations --------------------------------------------------------------------------------

_CONFIG: Final = _Tuple("name", "value")
_CONFIG_CHANGE: Final = _Tuple("name", "value", optional="value")
_ENTITY_PART: Final = _Tuple("type", "name", optional="name")
_QUOTA_VALUE: Final = _Tuple("key", "value")


class _Row(NamedTuple):
    """A relayed command and its reply."""

    name: str  # of their fields in RelayRequest and RelayResponse
    command: _Struct
    reply: _Struct
    has_offset: bool  # the response has the metadata offset
    applied: str  # the response's field for Submitted.applied; empty: none


class _Table(NamedTuple):
    """All declarations."""

    topic: _Struct
    partition: _Partition
    partition_state: _Struct
    altered_partition: _Struct
    alter_partitions: _Struct
    registration: _Struct
    new_broker: _Struct
    broker: _Struct
    by_command: dict[Callable[..., Any], _Row]
    by_name: dict[str, _Row]


@cache
def _table() -> _Table:
    state = _Struct(PartitionImage, admin_pb2.PartitionDescription, *_partition())
    partition = _Partition(state)
    topic = _Struct(
        TopicImage,
        admin_pb2.TopicDescription,
        _Field("id", "topic_id"),
        "name",
        _Many("configs", _CONFIG, values=lambda each: sorted(each.configs.items()), collect=Map),
        _Many("partitions", partition, values=_partitions_of, collect=Map),
    )
    declared = (
        _topic_commands(topic),
        _partition_commands(),
        _cluster_commands(),
        _quota_commands(),
        _security_commands(),
    )
    rows = [_row(*each) for commands in declared for each in commands]
    return _Table(
        topic=topic,
        partition=partition,
        partition_state=state,
        altered_partition=_Struct(
            AlteredPartition,
            controller_pb2.AlterPartitionResult,
            "leader",
            "leader_epoch",
            _IdsField("isr"),
            "partition_epoch",
        ),
        alter_partitions=_alter_partitions(),
        registration=_Struct(
            RegisterBroker,
            controller_pb2.BrokerRegistration,
            "broker_id",
            "clean_start",
            *_registration(),
        ),
        new_broker=_Struct(
            RegisterBroker,
            metadata_records_pb2.BrokerRecord,
            _Field("broker_id", "id"),
            *_registration(),
        ),
        broker=_Struct(
            BrokerImage,
            metadata_records_pb2.BrokerRecord,
            "id",
            _Field("epoch", "broker_epoch"),
            "fenced",
            "stopping",
            *_registration(),
        ),
        by_command={row.command.struct: row for row in rows},
        by_name={row.name: row for row in rows},
    )


def _row(name: str, command: _Struct, reply: _Struct) -> _Row:
    fields = reply.message.DESCRIPTOR.fields_by_name
    applied = next((each for each in ("applied", "usable") if each in fields), "")
    return _Row(name, command, reply, "metadata_offset" in fields, applied)


def _partitions_of(topic: TopicImage) -> list[tuple[TopicImage, int, PartitionImage]]:
    return [(topic, index, partition) for index, partition in topic.sorted_partitions()]


def _partition() -> "Iterator[_Field | str]":
    """Yield the fields of a partition, which have the same names in its record and its
    description."""
    for name in ("replicas", "isr", "adding", "removing", "elr", "last_known_elr"):
        yield _IdsField(name)
    yield from ("leader", "leader_epoch", "partition_epoch", "recovering")


def _registration() -> "Iterator[_Field | str]":
    """Yield the fields of a broker that its registration and its record have in common."""
    yield from ("incarnation_id", "directory_id", "grpc_address", "rack", "boot_id")
    yield "internal_address"
    yield _Many("features", _Tuple("name", "level_min", "level_max"))
    yield _Many("kafka_listeners", _Tuple("name", "address"))


def _alter_partitions() -> _Struct:
    change = _Struct(
        IsrChange,
        controller_pb2.AlterPartition,
        "topic_id",
        "partition",
        "leader_epoch",
        "partition_epoch",
        _Many("isr", _Tuple("broker_id", "broker_epoch")),
        "recovered",
    )
    return _Struct(
        AlterPartitions,
        controller_pb2.AlterPartitionsRequest,
        "broker_id",
        "broker_epoch",
        _Many("changes", change, "partitions"),
    )


def _topic_commands(topic: _Struct) -> Iterator[tuple[str, _Struct, _Struct]]:
    replicas = _Ids("replicas")
    yield (
        "create_topic",
        _Struct(
            CreateTopic,
            admin_pb2.CreateTopicRequest,
            "name",
            "topic_id",
            "partitions",
            "replication_factor",
            _Many("configs", _CONFIG),
            "validate_only",
            _Many("assignments", replicas),
        ),
        _Struct(TopicCreated, admin_pb2.CreateTopicResponse, _Nested("topic", topic)),
    )
    yield (
        "delete_topic",
        _Struct(DeleteTopic, admin_pb2.DeleteTopicRequest, "name", _NoneIfEmpty("topic_id")),
        _Struct(TopicDeleted, admin_pb2.DeleteTopicResponse, "topic_id"),
    )
    yield (
        "create_partitions",
        _Struct(
            CreatePartitions,
            admin_pb2.CreatePartitionsRequest,
            "topic",
            "count",
            _Many("assignments", replicas),
            "validate_only",
            _NoneIfEmpty("topic_id"),
        ),
        _Struct(PartitionsCreated, admin_pb2.CreatePartitionsResponse, _Nested("topic", topic)),
    )
    yield (
        "alter_configs",
        _Struct(
            AlterConfigs,
            admin_pb2.AlterConfigsRequest,
            "topic",
            _ConfigChanges(),
            "replace",
            "validate_only",
        ),
        _Struct(ConfigsAltered, admin_pb2.AlterConfigsResponse, _Many("configs", _CONFIG)),
    )


def _partition_commands() -> Iterator[tuple[str, _Struct, _Struct]]:
    replicas = _Ids("replicas")
    move = _Struct(
        Reassignment,
        admin_pb2.PartitionReassignment,
        "topic",
        "partition",
        _Optional("replicas", replicas, "target"),
    )
    outcome = _Struct(
        PartitionOutcome,
        admin_pb2.PartitionOutcome,
        "topic",
        "partition",
        _Optional("error", _Error()),
    )
    yield (
        "alter_reassignments",
        _Struct(
            AlterReassignments,
            admin_pb2.AlterReassignmentsRequest,
            _Many("reassignments", move, "partitions"),
            "keep_replication_factor",
        ),
        _Struct(
            PartitionOutcomes,
            admin_pb2.AlterReassignmentsResponse,
            _Many("outcomes", outcome, "results"),
        ),
    )
    yield (
        "elect_leaders",
        _Struct(
            ElectLeaders,
            admin_pb2.ElectLeadersRequest,
            _Enum(
                "unclean",
                "kind",
                true=admin_pb2.ELECTION_KIND_UNCLEAN,
                false=admin_pb2.ELECTION_KIND_PREFERRED,
            ),
            _Many("partitions", _Tuple("topic", "partition")),
        ),
        _Struct(
            PartitionOutcomes,
            admin_pb2.ElectLeadersResponse,
            _Many("outcomes", outcome, "results"),
        ),
    )


def _cluster_commands() -> Iterator[tuple[str, _Struct, _Struct]]:
    yield (
        "alter_cluster_configs",
        _Struct(
            AlterClusterConfigs,
            admin_pb2.AlterClusterConfigsRequest,
            _ConfigChanges(),
            "replace",
            "validate_only",
        ),
        _Struct(
            ClusterConfigsAltered,
            admin_pb2.AlterClusterConfigsResponse,
            _Many("configs", _CONFIG),
        ),
    )
    yield (
        "alter_group_configs",
        _Struct(
            AlterGroupConfigs,
            controller_pb2.AlterGroupConfigsRequest,
            "group",
            _ConfigChanges(),
            "replace",
            "validate_only",
        ),
        _Struct(
            GroupConfigsAltered,
            controller_pb2.AlterGroupConfigsResponse,
            _Many("configs", _CONFIG),
        ),
    )
    update = _Struct(FeatureUpdate, admin_pb2.FeatureUpdate, "name", "level", "allow_downgrade")
    feature = _Feature("name", "level", "level_min", "level_max")
    yield (
        "update_features",
        _Struct(
            UpdateFeatures,
            admin_pb2.UpdateFeaturesRequest,
            _Many("updates", update),
            "validate_only",
        ),
        _Struct(
            FeaturesUpdated, admin_pb2.UpdateFeaturesResponse, _Many("levels", feature, "features")
        ),
    )
    yield (
        "unregister_broker",
        _Struct(UnregisterBroker, admin_pb2.UnregisterBrokerRequest, _Field("broker_id", "broker")),
        _Struct(Done, admin_pb2.UnregisterBrokerResponse),
    )
    yield (
        "allocate_producer_ids",
        # The broker id is a field of the request around it.
        _Struct(
            AllocateProducerIds,
            controller_pb2.AllocateProducerIdsRequest,
            "broker_epoch",
            _Field("count", "producer_id_len"),
        ),
        _Struct(
            ProducerIdsAllocated,
            controller_pb2.AllocateProducerIdsResponse,
            _Field("start", "producer_id_start"),
            _Field("count", "producer_id_len"),
        ),
    )


def _quota_commands() -> Iterator[tuple[str, _Struct, _Struct]]:
    alteration = _Struct(
        QuotaAlteration,
        admin_pb2.ClientQuotaAlteration,
        _Many("entity", _ENTITY_PART),
        _Many("changes", _Tuple("key", "value", optional="value")),
    )
    outcome = _Struct(
        QuotaOutcome,
        admin_pb2.AlterClientQuotasResult,
        _Many("entity", _ENTITY_PART),
        _Optional("error", _Error()),
    )
    yield (
        "alter_client_quotas",
        _Struct(
            AlterClientQuotas,
            admin_pb2.AlterClientQuotasRequest,
            _Many("alterations", alteration),
            "validate_only",
        ),
        _Struct(
            ClientQuotasAltered,
            admin_pb2.AlterClientQuotasResponse,
            _Many("outcomes", outcome, "results"),
        ),
    )


def _security_commands() -> Iterator[tuple[str, _Struct, _Struct]]:
    acls = _Many("acls", _Acl())
    deletion = _Struct(AclDeletion, admin_pb2.DeleteAclsResult, acls, _Optional("error", _Error()))
    yield (
        "create_acls",
        _Struct(CreateAcls, admin_pb2.CreateAclsRequest, acls),
        _Struct(
            AclsCreated,
            admin_pb2.CreateAclsResponse,
            _Many("errors", _OptionalError(), "results"),
        ),
    )
    yield (
        "delete_acls",
        _Struct(DeleteAcls, admin_pb2.DeleteAclsRequest, _Many("filters", _AclFilter())),
        _Struct(AclsDeleted, admin_pb2.DeleteAclsResponse, _Many("deletions", deletion, "results")),
    )
    outcome = _Struct(
        ScramOutcome,
        admin_pb2.AlterScramCredentialsResult,
        "user",
        _Optional("error", _Error()),
    )
    yield (
        "alter_scram_credentials",
        _Struct(
            AlterScramCredentials,
            admin_pb2.AlterScramCredentialsRequest,
            _Many("deletions", _ScramKey()),
            _Many("upsertions", _ScramCredential()),
        ),
        _Struct(
            ScramCredentialsAltered,
            admin_pb2.AlterScramCredentialsResponse,
            _Many("outcomes", outcome, "results"),
        ),
    )
