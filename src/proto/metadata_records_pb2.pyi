from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AclResourceType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACL_RESOURCE_TYPE_UNSPECIFIED: _ClassVar[AclResourceType]
    ACL_RESOURCE_TYPE_ANY: _ClassVar[AclResourceType]
    ACL_RESOURCE_TYPE_TOPIC: _ClassVar[AclResourceType]
    ACL_RESOURCE_TYPE_GROUP: _ClassVar[AclResourceType]
    ACL_RESOURCE_TYPE_CLUSTER: _ClassVar[AclResourceType]
    ACL_RESOURCE_TYPE_TRANSACTIONAL_ID: _ClassVar[AclResourceType]
    ACL_RESOURCE_TYPE_DELEGATION_TOKEN: _ClassVar[AclResourceType]
    ACL_RESOURCE_TYPE_USER: _ClassVar[AclResourceType]

class AclPatternType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACL_PATTERN_TYPE_UNSPECIFIED: _ClassVar[AclPatternType]
    ACL_PATTERN_TYPE_ANY: _ClassVar[AclPatternType]
    ACL_PATTERN_TYPE_MATCH: _ClassVar[AclPatternType]
    ACL_PATTERN_TYPE_LITERAL: _ClassVar[AclPatternType]
    ACL_PATTERN_TYPE_PREFIXED: _ClassVar[AclPatternType]

class AclOperation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACL_OPERATION_UNSPECIFIED: _ClassVar[AclOperation]
    ACL_OPERATION_ANY: _ClassVar[AclOperation]
    ACL_OPERATION_ALL: _ClassVar[AclOperation]
    ACL_OPERATION_READ: _ClassVar[AclOperation]
    ACL_OPERATION_WRITE: _ClassVar[AclOperation]
    ACL_OPERATION_CREATE: _ClassVar[AclOperation]
    ACL_OPERATION_DELETE: _ClassVar[AclOperation]
    ACL_OPERATION_ALTER: _ClassVar[AclOperation]
    ACL_OPERATION_DESCRIBE: _ClassVar[AclOperation]
    ACL_OPERATION_CLUSTER_ACTION: _ClassVar[AclOperation]
    ACL_OPERATION_DESCRIBE_CONFIGS: _ClassVar[AclOperation]
    ACL_OPERATION_ALTER_CONFIGS: _ClassVar[AclOperation]
    ACL_OPERATION_IDEMPOTENT_WRITE: _ClassVar[AclOperation]
    ACL_OPERATION_CREATE_TOKENS: _ClassVar[AclOperation]
    ACL_OPERATION_DESCRIBE_TOKENS: _ClassVar[AclOperation]
    ACL_OPERATION_TWO_PHASE_COMMIT: _ClassVar[AclOperation]

class AclPermission(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACL_PERMISSION_UNSPECIFIED: _ClassVar[AclPermission]
    ACL_PERMISSION_ANY: _ClassVar[AclPermission]
    ACL_PERMISSION_DENY: _ClassVar[AclPermission]
    ACL_PERMISSION_ALLOW: _ClassVar[AclPermission]

class ScramMechanism(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCRAM_MECHANISM_UNSPECIFIED: _ClassVar[ScramMechanism]
    SCRAM_MECHANISM_SHA_256: _ClassVar[ScramMechanism]
    SCRAM_MECHANISM_SHA_512: _ClassVar[ScramMechanism]
ACL_RESOURCE_TYPE_UNSPECIFIED: AclResourceType
ACL_RESOURCE_TYPE_ANY: AclResourceType
ACL_RESOURCE_TYPE_TOPIC: AclResourceType
ACL_RESOURCE_TYPE_GROUP: AclResourceType
ACL_RESOURCE_TYPE_CLUSTER: AclResourceType
ACL_RESOURCE_TYPE_TRANSACTIONAL_ID: AclResourceType
ACL_RESOURCE_TYPE_DELEGATION_TOKEN: AclResourceType
ACL_RESOURCE_TYPE_USER: AclResourceType
ACL_PATTERN_TYPE_UNSPECIFIED: AclPatternType
ACL_PATTERN_TYPE_ANY: AclPatternType
ACL_PATTERN_TYPE_MATCH: AclPatternType
ACL_PATTERN_TYPE_LITERAL: AclPatternType
ACL_PATTERN_TYPE_PREFIXED: AclPatternType
ACL_OPERATION_UNSPECIFIED: AclOperation
ACL_OPERATION_ANY: AclOperation
ACL_OPERATION_ALL: AclOperation
ACL_OPERATION_READ: AclOperation
ACL_OPERATION_WRITE: AclOperation
ACL_OPERATION_CREATE: AclOperation
ACL_OPERATION_DELETE: AclOperation
ACL_OPERATION_ALTER: AclOperation
ACL_OPERATION_DESCRIBE: AclOperation
ACL_OPERATION_CLUSTER_ACTION: AclOperation
ACL_OPERATION_DESCRIBE_CONFIGS: AclOperation
ACL_OPERATION_ALTER_CONFIGS: AclOperation
ACL_OPERATION_IDEMPOTENT_WRITE: AclOperation
ACL_OPERATION_CREATE_TOKENS: AclOperation
ACL_OPERATION_DESCRIBE_TOKENS: AclOperation
ACL_OPERATION_TWO_PHASE_COMMIT: AclOperation
ACL_PERMISSION_UNSPECIFIED: AclPermission
ACL_PERMISSION_ANY: AclPermission
ACL_PERMISSION_DENY: AclPermission
ACL_PERMISSION_ALLOW: AclPermission
SCRAM_MECHANISM_UNSPECIFIED: ScramMechanism
SCRAM_MECHANISM_SHA_256: ScramMechanism
SCRAM_MECHANISM_SHA_512: ScramMechanism

class MetadataRecord(_message.Message):
    __slots__ = ("broker", "broker_change", "topic", "remove_topic", "partition", "partition_change", "topic_config", "no_op", "producer_ids", "unregister_broker", "cluster_config", "feature_level", "begin_transaction", "end_transaction", "abort_transaction", "client_quota", "group_config", "acl", "remove_acl", "scram_credential", "remove_scram_credential")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    BROKER_CHANGE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REMOVE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PARTITION_CHANGE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_CONFIG_FIELD_NUMBER: _ClassVar[int]
    NO_OP_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    UNREGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_CONFIG_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    END_TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    ABORT_TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_QUOTA_FIELD_NUMBER: _ClassVar[int]
    GROUP_CONFIG_FIELD_NUMBER: _ClassVar[int]
    ACL_FIELD_NUMBER: _ClassVar[int]
    REMOVE_ACL_FIELD_NUMBER: _ClassVar[int]
    SCRAM_CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    REMOVE_SCRAM_CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    broker: BrokerRecord
    broker_change: BrokerChangeRecord
    topic: TopicRecord
    remove_topic: RemoveTopicRecord
    partition: PartitionRecord
    partition_change: PartitionChangeRecord
    topic_config: TopicConfigRecord
    no_op: NoOpRecord
    producer_ids: ProducerIdsRecord
    unregister_broker: UnregisterBrokerRecord
    cluster_config: ClusterConfigRecord
    feature_level: FeatureLevelRecord
    begin_transaction: BeginTransactionRecord
    end_transaction: EndTransactionRecord
    abort_transaction: AbortTransactionRecord
    client_quota: ClientQuotaRecord
    group_config: GroupConfigRecord
    acl: Acl
    remove_acl: Acl
    scram_credential: ScramCredentialRecord
    remove_scram_credential: ScramCredentialKey
    def __init__(self, broker: _Optional[_Union[BrokerRecord, _Mapping[str, object]]] = ..., broker_change: _Optional[_Union[BrokerChangeRecord, _Mapping[str, object]]] = ..., topic: _Optional[_Union[TopicRecord, _Mapping[str, object]]] = ..., remove_topic: _Optional[_Union[RemoveTopicRecord, _Mapping[str, object]]] = ..., partition: _Optional[_Union[PartitionRecord, _Mapping[str, object]]] = ..., partition_change: _Optional[_Union[PartitionChangeRecord, _Mapping[str, object]]] = ..., topic_config: _Optional[_Union[TopicConfigRecord, _Mapping[str, object]]] = ..., no_op: _Optional[_Union[NoOpRecord, _Mapping[str, object]]] = ..., producer_ids: _Optional[_Union[ProducerIdsRecord, _Mapping[str, object]]] = ..., unregister_broker: _Optional[_Union[UnregisterBrokerRecord, _Mapping[str, object]]] = ..., cluster_config: _Optional[_Union[ClusterConfigRecord, _Mapping[str, object]]] = ..., feature_level: _Optional[_Union[FeatureLevelRecord, _Mapping[str, object]]] = ..., begin_transaction: _Optional[_Union[BeginTransactionRecord, _Mapping[str, object]]] = ..., end_transaction: _Optional[_Union[EndTransactionRecord, _Mapping[str, object]]] = ..., abort_transaction: _Optional[_Union[AbortTransactionRecord, _Mapping[str, object]]] = ..., client_quota: _Optional[_Union[ClientQuotaRecord, _Mapping[str, object]]] = ..., group_config: _Optional[_Union[GroupConfigRecord, _Mapping[str, object]]] = ..., acl: _Optional[_Union[Acl, _Mapping[str, object]]] = ..., remove_acl: _Optional[_Union[Acl, _Mapping[str, object]]] = ..., scram_credential: _Optional[_Union[ScramCredentialRecord, _Mapping[str, object]]] = ..., remove_scram_credential: _Optional[_Union[ScramCredentialKey, _Mapping[str, object]]] = ...) -> None: ...

class BrokerRecord(_message.Message):
    __slots__ = ("id", "incarnation_id", "directory_id", "grpc_address", "rack", "fenced", "boot_id", "broker_epoch", "stopping", "internal_address", "features", "kafka_listeners")
    ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    KAFKA_LISTENERS_FIELD_NUMBER: _ClassVar[int]
    id: int
    incarnation_id: bytes
    directory_id: bytes
    grpc_address: str
    rack: str
    fenced: bool
    boot_id: str
    broker_epoch: int
    stopping: bool
    internal_address: str
    features: _containers.RepeatedCompositeFieldContainer[SupportedFeature]
    kafka_listeners: _containers.RepeatedCompositeFieldContainer[KafkaListener]
    def __init__(self, id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., directory_id: _Optional[bytes] = ..., grpc_address: _Optional[str] = ..., rack: _Optional[str] = ..., fenced: _Optional[bool] = ..., boot_id: _Optional[str] = ..., broker_epoch: _Optional[int] = ..., stopping: _Optional[bool] = ..., internal_address: _Optional[str] = ..., features: _Optional[_Iterable[_Union[SupportedFeature, _Mapping[str, object]]]] = ..., kafka_listeners: _Optional[_Iterable[_Union[KafkaListener, _Mapping[str, object]]]] = ...) -> None: ...

class KafkaListener(_message.Message):
    __slots__ = ("name", "address")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class SupportedFeature(_message.Message):
    __slots__ = ("name", "level_min", "level_max")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_MIN_FIELD_NUMBER: _ClassVar[int]
    LEVEL_MAX_FIELD_NUMBER: _ClassVar[int]
    name: str
    level_min: int
    level_max: int
    def __init__(self, name: _Optional[str] = ..., level_min: _Optional[int] = ..., level_max: _Optional[int] = ...) -> None: ...

class UnregisterBrokerRecord(_message.Message):
    __slots__ = ("id", "broker_epoch")
    ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    id: int
    broker_epoch: int
    def __init__(self, id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class ClusterConfigRecord(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class GroupConfigRecord(_message.Message):
    __slots__ = ("group", "name", "value")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    group: str
    name: str
    value: str
    def __init__(self, group: _Optional[str] = ..., name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class FeatureLevelRecord(_message.Message):
    __slots__ = ("name", "level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: int
    def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ...) -> None: ...

class BeginTransactionRecord(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class EndTransactionRecord(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AbortTransactionRecord(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Nodes(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class BrokerChangeRecord(_message.Message):
    __slots__ = ("id", "broker_epoch", "fenced", "stopping")
    ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    id: int
    broker_epoch: int
    fenced: bool
    stopping: bool
    def __init__(self, id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., fenced: _Optional[bool] = ..., stopping: _Optional[bool] = ...) -> None: ...

class TopicRecord(_message.Message):
    __slots__ = ("topic_id", "name")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    name: str
    def __init__(self, topic_id: _Optional[bytes] = ..., name: _Optional[str] = ...) -> None: ...

class RemoveTopicRecord(_message.Message):
    __slots__ = ("topic_id",)
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    def __init__(self, topic_id: _Optional[bytes] = ...) -> None: ...

class PartitionRecord(_message.Message):
    __slots__ = ("topic_id", "partition", "replicas", "isr", "leader", "leader_epoch", "partition_epoch", "adding", "removing", "elr", "last_known_elr", "recovering")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ADDING_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    ELR_FIELD_NUMBER: _ClassVar[int]
    LAST_KNOWN_ELR_FIELD_NUMBER: _ClassVar[int]
    RECOVERING_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    leader: int
    leader_epoch: int
    partition_epoch: int
    adding: _containers.RepeatedScalarFieldContainer[int]
    removing: _containers.RepeatedScalarFieldContainer[int]
    elr: _containers.RepeatedScalarFieldContainer[int]
    last_known_elr: _containers.RepeatedScalarFieldContainer[int]
    recovering: bool
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., adding: _Optional[_Iterable[int]] = ..., removing: _Optional[_Iterable[int]] = ..., elr: _Optional[_Iterable[int]] = ..., last_known_elr: _Optional[_Iterable[int]] = ..., recovering: _Optional[bool] = ...) -> None: ...

class PartitionChangeRecord(_message.Message):
    __slots__ = ("topic_id", "partition", "leader", "isr", "replicas", "adding", "removing", "elr", "last_known_elr", "recovering")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ADDING_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    ELR_FIELD_NUMBER: _ClassVar[int]
    LAST_KNOWN_ELR_FIELD_NUMBER: _ClassVar[int]
    RECOVERING_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    leader: int
    isr: Nodes
    replicas: Nodes
    adding: Nodes
    removing: Nodes
    elr: Nodes
    last_known_elr: Nodes
    recovering: bool
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., leader: _Optional[int] = ..., isr: _Optional[_Union[Nodes, _Mapping[str, object]]] = ..., replicas: _Optional[_Union[Nodes, _Mapping[str, object]]] = ..., adding: _Optional[_Union[Nodes, _Mapping[str, object]]] = ..., removing: _Optional[_Union[Nodes, _Mapping[str, object]]] = ..., elr: _Optional[_Union[Nodes, _Mapping[str, object]]] = ..., last_known_elr: _Optional[_Union[Nodes, _Mapping[str, object]]] = ..., recovering: _Optional[bool] = ...) -> None: ...

class TopicConfigRecord(_message.Message):
    __slots__ = ("topic_id", "name", "value")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    name: str
    value: str
    def __init__(self, topic_id: _Optional[bytes] = ..., name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class NoOpRecord(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProducerIdsRecord(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "next_producer_id")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    next_producer_id: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., next_producer_id: _Optional[int] = ...) -> None: ...

class ClientQuotaRecord(_message.Message):
    __slots__ = ("entity", "key", "value")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[QuotaEntity]
    key: str
    value: float
    def __init__(self, entity: _Optional[_Iterable[_Union[QuotaEntity, _Mapping[str, object]]]] = ..., key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class QuotaEntity(_message.Message):
    __slots__ = ("type", "name")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    type: str
    name: str
    def __init__(self, type: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Acl(_message.Message):
    __slots__ = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    resource_type: AclResourceType
    resource_name: str
    pattern_type: AclPatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission
    def __init__(self, resource_type: _Optional[_Union[AclResourceType, str]] = ..., resource_name: _Optional[str] = ..., pattern_type: _Optional[_Union[AclPatternType, str]] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[_Union[AclOperation, str]] = ..., permission: _Optional[_Union[AclPermission, str]] = ...) -> None: ...

class ScramCredentialKey(_message.Message):
    __slots__ = ("user", "mechanism")
    USER_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    user: str
    mechanism: ScramMechanism
    def __init__(self, user: _Optional[str] = ..., mechanism: _Optional[_Union[ScramMechanism, str]] = ...) -> None: ...

class ScramCredentialRecord(_message.Message):
    __slots__ = ("credential", "salt", "iterations", "stored_key", "server_key")
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    STORED_KEY_FIELD_NUMBER: _ClassVar[int]
    SERVER_KEY_FIELD_NUMBER: _ClassVar[int]
    credential: ScramCredentialKey
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes
    def __init__(self, credential: _Optional[_Union[ScramCredentialKey, _Mapping[str, object]]] = ..., salt: _Optional[bytes] = ..., iterations: _Optional[int] = ..., stored_key: _Optional[bytes] = ..., server_key: _Optional[bytes] = ...) -> None: ...
