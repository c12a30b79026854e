from . import errors_pb2 as _errors_pb2
from . import metadata_records_pb2 as _metadata_records_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConfigSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONFIG_SOURCE_UNSPECIFIED: _ClassVar[ConfigSource]
    CONFIG_SOURCE_DEFAULT: _ClassVar[ConfigSource]
    CONFIG_SOURCE_TOPIC: _ClassVar[ConfigSource]
    CONFIG_SOURCE_FILE: _ClassVar[ConfigSource]
    CONFIG_SOURCE_ENVIRONMENT: _ClassVar[ConfigSource]
    CONFIG_SOURCE_FLAG: _ClassVar[ConfigSource]
    CONFIG_SOURCE_CLUSTER: _ClassVar[ConfigSource]

class ConfigOperation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONFIG_OPERATION_SET: _ClassVar[ConfigOperation]
    CONFIG_OPERATION_APPEND: _ClassVar[ConfigOperation]
    CONFIG_OPERATION_SUBTRACT: _ClassVar[ConfigOperation]

class ElectionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ELECTION_KIND_PREFERRED: _ClassVar[ElectionKind]
    ELECTION_KIND_UNCLEAN: _ClassVar[ElectionKind]
CONFIG_SOURCE_UNSPECIFIED: ConfigSource
CONFIG_SOURCE_DEFAULT: ConfigSource
CONFIG_SOURCE_TOPIC: ConfigSource
CONFIG_SOURCE_FILE: ConfigSource
CONFIG_SOURCE_ENVIRONMENT: ConfigSource
CONFIG_SOURCE_FLAG: ConfigSource
CONFIG_SOURCE_CLUSTER: ConfigSource
CONFIG_OPERATION_SET: ConfigOperation
CONFIG_OPERATION_APPEND: ConfigOperation
CONFIG_OPERATION_SUBTRACT: ConfigOperation
ELECTION_KIND_PREFERRED: ElectionKind
ELECTION_KIND_UNCLEAN: ElectionKind

class DescribeClusterRequest(_message.Message):
    __slots__ = ("min_metadata_offset",)
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    min_metadata_offset: int
    def __init__(self, min_metadata_offset: _Optional[int] = ...) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("cluster_id", "controller_id", "brokers", "metadata_offset", "time_ms")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    controller_id: int
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerDescription]
    metadata_offset: int
    time_ms: int
    def __init__(self, cluster_id: _Optional[str] = ..., controller_id: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[BrokerDescription, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ..., time_ms: _Optional[int] = ...) -> None: ...

class BrokerDescription(_message.Message):
    __slots__ = ("id", "grpc_address", "rack", "fenced", "broker_epoch", "stopping", "kafka_listeners")
    ID_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    KAFKA_LISTENERS_FIELD_NUMBER: _ClassVar[int]
    id: int
    grpc_address: str
    rack: str
    fenced: bool
    broker_epoch: int
    stopping: bool
    kafka_listeners: _containers.RepeatedCompositeFieldContainer[_metadata_records_pb2.KafkaListener]
    def __init__(self, id: _Optional[int] = ..., grpc_address: _Optional[str] = ..., rack: _Optional[str] = ..., fenced: _Optional[bool] = ..., broker_epoch: _Optional[int] = ..., stopping: _Optional[bool] = ..., kafka_listeners: _Optional[_Iterable[_Union[_metadata_records_pb2.KafkaListener, _Mapping[str, object]]]] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "topic_id", "partitions", "replication_factor", "configs", "validate_only", "assignments")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    configs: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    validate_only: bool
    assignments: _containers.RepeatedCompositeFieldContainer[ReplicaAssignment]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., configs: _Optional[_Iterable[_Union[ConfigEntry, _Mapping[str, object]]]] = ..., validate_only: _Optional[bool] = ..., assignments: _Optional[_Iterable[_Union[ReplicaAssignment, _Mapping[str, object]]]] = ...) -> None: ...

class ReplicaAssignment(_message.Message):
    __slots__ = ("replicas",)
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, replicas: _Optional[_Iterable[int]] = ...) -> None: ...

class ConfigEntry(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic", "usable", "metadata_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    USABLE_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: TopicDescription
    usable: bool
    metadata_offset: int
    def __init__(self, topic: _Optional[_Union[TopicDescription, _Mapping[str, object]]] = ..., usable: _Optional[bool] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("min_metadata_offset",)
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    min_metadata_offset: int
    def __init__(self, min_metadata_offset: _Optional[int] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "metadata_offset")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicListing]
    metadata_offset: int
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicListing, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class TopicListing(_message.Message):
    __slots__ = ("name", "topic_id", "partitions", "replication_factor", "is_internal")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    IS_INTERNAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    is_internal: bool
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., is_internal: _Optional[bool] = ...) -> None: ...

class DescribeTopicsRequest(_message.Message):
    __slots__ = ("names", "min_metadata_offset")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    min_metadata_offset: int
    def __init__(self, names: _Optional[_Iterable[str]] = ..., min_metadata_offset: _Optional[int] = ...) -> None: ...

class DescribeTopicsResponse(_message.Message):
    __slots__ = ("results", "brokers", "metadata_offset")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[DescribeTopicResult]
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerDescription]
    metadata_offset: int
    def __init__(self, results: _Optional[_Iterable[_Union[DescribeTopicResult, _Mapping[str, object]]]] = ..., brokers: _Optional[_Iterable[_Union[BrokerDescription, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class DescribeTopicResult(_message.Message):
    __slots__ = ("name", "topic", "error")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic: TopicDescription
    error: _errors_pb2.Error
    def __init__(self, name: _Optional[str] = ..., topic: _Optional[_Union[TopicDescription, _Mapping[str, object]]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class TopicDescription(_message.Message):
    __slots__ = ("name", "topic_id", "partitions", "configs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionDescription]
    configs: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[_Union[PartitionDescription, _Mapping[str, object]]]] = ..., configs: _Optional[_Iterable[_Union[ConfigEntry, _Mapping[str, object]]]] = ...) -> None: ...

class PartitionDescription(_message.Message):
    __slots__ = ("partition", "leader", "leader_epoch", "partition_epoch", "replicas", "isr", "elr", "last_known_elr", "adding", "removing", "recovering", "min_isr")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    ELR_FIELD_NUMBER: _ClassVar[int]
    LAST_KNOWN_ELR_FIELD_NUMBER: _ClassVar[int]
    ADDING_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    RECOVERING_FIELD_NUMBER: _ClassVar[int]
    MIN_ISR_FIELD_NUMBER: _ClassVar[int]
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    elr: _containers.RepeatedScalarFieldContainer[int]
    last_known_elr: _containers.RepeatedScalarFieldContainer[int]
    adding: _containers.RepeatedScalarFieldContainer[int]
    removing: _containers.RepeatedScalarFieldContainer[int]
    recovering: bool
    min_isr: int
    def __init__(self, partition: _Optional[int] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., elr: _Optional[_Iterable[int]] = ..., last_known_elr: _Optional[_Iterable[int]] = ..., adding: _Optional[_Iterable[int]] = ..., removing: _Optional[_Iterable[int]] = ..., recovering: _Optional[bool] = ..., min_isr: _Optional[int] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ("topic_id", "applied", "metadata_offset")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    applied: bool
    metadata_offset: int
    def __init__(self, topic_id: _Optional[bytes] = ..., applied: _Optional[bool] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class ConfigResource(_message.Message):
    __slots__ = ("topic", "broker", "cluster")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    broker: int
    cluster: bool
    def __init__(self, topic: _Optional[str] = ..., broker: _Optional[int] = ..., cluster: _Optional[bool] = ...) -> None: ...

class DescribeConfigsRequest(_message.Message):
    __slots__ = ("resources", "min_metadata_offset")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[ConfigResource]
    min_metadata_offset: int
    def __init__(self, resources: _Optional[_Iterable[_Union[ConfigResource, _Mapping[str, object]]]] = ..., min_metadata_offset: _Optional[int] = ...) -> None: ...

class DescribeConfigsResponse(_message.Message):
    __slots__ = ("results", "metadata_offset")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[DescribeConfigsResult]
    metadata_offset: int
    def __init__(self, results: _Optional[_Iterable[_Union[DescribeConfigsResult, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class DescribeConfigsResult(_message.Message):
    __slots__ = ("resource", "configs", "error")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    resource: ConfigResource
    configs: _containers.RepeatedCompositeFieldContainer[ConfigDescription]
    error: _errors_pb2.Error
    def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping[str, object]]] = ..., configs: _Optional[_Iterable[_Union[ConfigDescription, _Mapping[str, object]]]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class ConfigDescription(_message.Message):
    __slots__ = ("name", "value", "default_value", "source", "place", "type", "unit", "low", "high", "choices", "doc", "changes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    DOC_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    default_value: str
    source: ConfigSource
    place: str
    type: str
    unit: str
    low: int
    high: int
    choices: _containers.RepeatedScalarFieldContainer[str]
    doc: str
    changes: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., default_value: _Optional[str] = ..., source: _Optional[_Union[ConfigSource, str]] = ..., place: _Optional[str] = ..., type: _Optional[str] = ..., unit: _Optional[str] = ..., low: _Optional[int] = ..., high: _Optional[int] = ..., choices: _Optional[_Iterable[str]] = ..., doc: _Optional[str] = ..., changes: _Optional[str] = ...) -> None: ...

class AlterConfigsRequest(_message.Message):
    __slots__ = ("topic", "changes", "validate_only", "replace")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    changes: _containers.RepeatedCompositeFieldContainer[ConfigChange]
    validate_only: bool
    replace: bool
    def __init__(self, topic: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[ConfigChange, _Mapping[str, object]]]] = ..., validate_only: _Optional[bool] = ..., replace: _Optional[bool] = ...) -> None: ...

class ConfigChange(_message.Message):
    __slots__ = ("name", "value", "operation")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    operation: ConfigOperation
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., operation: _Optional[_Union[ConfigOperation, str]] = ...) -> None: ...

class AlterConfigsResponse(_message.Message):
    __slots__ = ("configs", "applied", "metadata_offset")
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    configs: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    applied: bool
    metadata_offset: int
    def __init__(self, configs: _Optional[_Iterable[_Union[ConfigEntry, _Mapping[str, object]]]] = ..., applied: _Optional[bool] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class DescribeLogDirsRequest(_message.Message):
    __slots__ = ("topics", "directories_only")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_ONLY_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    directories_only: bool
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., directories_only: _Optional[bool] = ...) -> None: ...

class DescribeLogDirsResponse(_message.Message):
    __slots__ = ("broker", "directories", "open_descriptors", "descriptors_max")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    OPEN_DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTORS_MAX_FIELD_NUMBER: _ClassVar[int]
    broker: int
    directories: _containers.RepeatedCompositeFieldContainer[LogDirDescription]
    open_descriptors: int
    descriptors_max: int
    def __init__(self, broker: _Optional[int] = ..., directories: _Optional[_Iterable[_Union[LogDirDescription, _Mapping[str, object]]]] = ..., open_descriptors: _Optional[int] = ..., descriptors_max: _Optional[int] = ...) -> None: ...

class LogDirDescription(_message.Message):
    __slots__ = ("path", "logs", "capacity_bytes", "free_bytes")
    PATH_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    path: str
    logs: _containers.RepeatedCompositeFieldContainer[LogDescription]
    capacity_bytes: int
    free_bytes: int
    def __init__(self, path: _Optional[str] = ..., logs: _Optional[_Iterable[_Union[LogDescription, _Mapping[str, object]]]] = ..., capacity_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ...) -> None: ...

class LogDescription(_message.Message):
    __slots__ = ("topic", "partition", "size_bytes", "log_start_offset", "log_end_offset", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    size_bytes: int
    log_start_offset: int
    log_end_offset: int
    error: _errors_pb2.Error
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., size_bytes: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class DeleteRecordsRequest(_message.Message):
    __slots__ = ("partitions", "min_metadata_offset")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[DeleteRecordsPartition]
    min_metadata_offset: int
    def __init__(self, partitions: _Optional[_Iterable[_Union[DeleteRecordsPartition, _Mapping[str, object]]]] = ..., min_metadata_offset: _Optional[int] = ...) -> None: ...

class DeleteRecordsPartition(_message.Message):
    __slots__ = ("topic", "partition", "before_offset", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BEFORE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    before_offset: int
    topic_id: bytes
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., before_offset: _Optional[int] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class DeleteRecordsResponse(_message.Message):
    __slots__ = ("results", "metadata_offset")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[DeleteRecordsResult]
    metadata_offset: int
    def __init__(self, results: _Optional[_Iterable[_Union[DeleteRecordsResult, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class DeleteRecordsResult(_message.Message):
    __slots__ = ("topic", "partition", "log_start_offset", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    log_start_offset: int
    error: _errors_pb2.Error
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class CreatePartitionsRequest(_message.Message):
    __slots__ = ("topic", "count", "assignments", "validate_only", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    count: int
    assignments: _containers.RepeatedCompositeFieldContainer[ReplicaAssignment]
    validate_only: bool
    topic_id: bytes
    def __init__(self, topic: _Optional[str] = ..., count: _Optional[int] = ..., assignments: _Optional[_Iterable[_Union[ReplicaAssignment, _Mapping[str, object]]]] = ..., validate_only: _Optional[bool] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class CreatePartitionsResponse(_message.Message):
    __slots__ = ("topic", "usable", "metadata_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    USABLE_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: TopicDescription
    usable: bool
    metadata_offset: int
    def __init__(self, topic: _Optional[_Union[TopicDescription, _Mapping[str, object]]] = ..., usable: _Optional[bool] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class TopicPartition(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class AlterReassignmentsRequest(_message.Message):
    __slots__ = ("partitions", "keep_replication_factor")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    KEEP_REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionReassignment]
    keep_replication_factor: bool
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionReassignment, _Mapping[str, object]]]] = ..., keep_replication_factor: _Optional[bool] = ...) -> None: ...

class PartitionReassignment(_message.Message):
    __slots__ = ("topic", "partition", "target")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    target: ReplicaAssignment
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., target: _Optional[_Union[ReplicaAssignment, _Mapping[str, object]]] = ...) -> None: ...

class AlterReassignmentsResponse(_message.Message):
    __slots__ = ("results", "metadata_offset")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PartitionOutcome]
    metadata_offset: int
    def __init__(self, results: _Optional[_Iterable[_Union[PartitionOutcome, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class PartitionOutcome(_message.Message):
    __slots__ = ("topic", "partition", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error: _errors_pb2.Error
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class ListReassignmentsRequest(_message.Message):
    __slots__ = ("topics", "min_metadata_offset")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    min_metadata_offset: int
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., min_metadata_offset: _Optional[int] = ...) -> None: ...

class ListReassignmentsResponse(_message.Message):
    __slots__ = ("reassignments", "metadata_offset")
    REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    reassignments: _containers.RepeatedCompositeFieldContainer[ReassignmentDescription]
    metadata_offset: int
    def __init__(self, reassignments: _Optional[_Iterable[_Union[ReassignmentDescription, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class ReassignmentDescription(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: PartitionDescription
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[_Union[PartitionDescription, _Mapping[str, object]]] = ...) -> None: ...

class ElectLeadersRequest(_message.Message):
    __slots__ = ("kind", "partitions")
    KIND_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    kind: ElectionKind
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    def __init__(self, kind: _Optional[_Union[ElectionKind, str]] = ..., partitions: _Optional[_Iterable[_Union[TopicPartition, _Mapping[str, object]]]] = ...) -> None: ...

class ElectLeadersResponse(_message.Message):
    __slots__ = ("results", "metadata_offset")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PartitionOutcome]
    metadata_offset: int
    def __init__(self, results: _Optional[_Iterable[_Union[PartitionOutcome, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class AlterClusterConfigsRequest(_message.Message):
    __slots__ = ("changes", "validate_only", "replace")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[ConfigChange]
    validate_only: bool
    replace: bool
    def __init__(self, changes: _Optional[_Iterable[_Union[ConfigChange, _Mapping[str, object]]]] = ..., validate_only: _Optional[bool] = ..., replace: _Optional[bool] = ...) -> None: ...

class AlterClusterConfigsResponse(_message.Message):
    __slots__ = ("configs", "metadata_offset")
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    configs: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    metadata_offset: int
    def __init__(self, configs: _Optional[_Iterable[_Union[ConfigEntry, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class DescribeFeaturesRequest(_message.Message):
    __slots__ = ("min_metadata_offset",)
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    min_metadata_offset: int
    def __init__(self, min_metadata_offset: _Optional[int] = ...) -> None: ...

class DescribeFeaturesResponse(_message.Message):
    __slots__ = ("features", "metadata_offset")
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    features: _containers.RepeatedCompositeFieldContainer[FeatureDescription]
    metadata_offset: int
    def __init__(self, features: _Optional[_Iterable[_Union[FeatureDescription, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class FeatureDescription(_message.Message):
    __slots__ = ("name", "level", "level_min", "level_max", "doc")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LEVEL_MIN_FIELD_NUMBER: _ClassVar[int]
    LEVEL_MAX_FIELD_NUMBER: _ClassVar[int]
    DOC_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: int
    level_min: int
    level_max: int
    doc: str
    def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ..., level_min: _Optional[int] = ..., level_max: _Optional[int] = ..., doc: _Optional[str] = ...) -> None: ...

class UpdateFeaturesRequest(_message.Message):
    __slots__ = ("updates", "validate_only")
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    updates: _containers.RepeatedCompositeFieldContainer[FeatureUpdate]
    validate_only: bool
    def __init__(self, updates: _Optional[_Iterable[_Union[FeatureUpdate, _Mapping[str, object]]]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class FeatureUpdate(_message.Message):
    __slots__ = ("name", "level", "allow_downgrade")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    ALLOW_DOWNGRADE_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: int
    allow_downgrade: bool
    def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ..., allow_downgrade: _Optional[bool] = ...) -> None: ...

class UpdateFeaturesResponse(_message.Message):
    __slots__ = ("features", "metadata_offset")
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    features: _containers.RepeatedCompositeFieldContainer[FeatureDescription]
    metadata_offset: int
    def __init__(self, features: _Optional[_Iterable[_Union[FeatureDescription, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class UnregisterBrokerRequest(_message.Message):
    __slots__ = ("broker",)
    BROKER_FIELD_NUMBER: _ClassVar[int]
    broker: int
    def __init__(self, broker: _Optional[int] = ...) -> None: ...

class UnregisterBrokerResponse(_message.Message):
    __slots__ = ("metadata_offset",)
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    metadata_offset: int
    def __init__(self, metadata_offset: _Optional[int] = ...) -> None: ...

class DescribeReplicasRequest(_message.Message):
    __slots__ = ("partitions", "min_metadata_offset")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[TopicPartition]
    min_metadata_offset: int
    def __init__(self, partitions: _Optional[_Iterable[_Union[TopicPartition, _Mapping[str, object]]]] = ..., min_metadata_offset: _Optional[int] = ...) -> None: ...

class DescribeReplicasResponse(_message.Message):
    __slots__ = ("partitions", "broker", "metadata_offset")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[ReplicasDescription]
    broker: int
    metadata_offset: int
    def __init__(self, partitions: _Optional[_Iterable[_Union[ReplicasDescription, _Mapping[str, object]]]] = ..., broker: _Optional[int] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class ReplicasDescription(_message.Message):
    __slots__ = ("topic", "partition", "error", "high_watermark", "min_isr", "replicas")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    MIN_ISR_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    error: _errors_pb2.Error
    high_watermark: int
    min_isr: int
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaDescription]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ..., high_watermark: _Optional[int] = ..., min_isr: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ReplicaDescription, _Mapping[str, object]]]] = ...) -> None: ...

class ReplicaDescription(_message.Message):
    __slots__ = ("broker", "log_end_offset", "caught_up_ms_ago", "in_sync", "reason")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    broker: int
    log_end_offset: int
    caught_up_ms_ago: int
    in_sync: bool
    reason: str
    def __init__(self, broker: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., caught_up_ms_ago: _Optional[int] = ..., in_sync: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class DescribeClientQuotasRequest(_message.Message):
    __slots__ = ("filters", "strict", "min_metadata_offset")
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedCompositeFieldContainer[QuotaFilter]
    strict: bool
    min_metadata_offset: int
    def __init__(self, filters: _Optional[_Iterable[_Union[QuotaFilter, _Mapping[str, object]]]] = ..., strict: _Optional[bool] = ..., min_metadata_offset: _Optional[int] = ...) -> None: ...

class QuotaFilter(_message.Message):
    __slots__ = ("type", "name", "is_default", "is_any")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    IS_ANY_FIELD_NUMBER: _ClassVar[int]
    type: str
    name: str
    is_default: bool
    is_any: bool
    def __init__(self, type: _Optional[str] = ..., name: _Optional[str] = ..., is_default: _Optional[bool] = ..., is_any: _Optional[bool] = ...) -> None: ...

class DescribeClientQuotasResponse(_message.Message):
    __slots__ = ("quotas", "metadata_offset")
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[ClientQuotas]
    metadata_offset: int
    def __init__(self, quotas: _Optional[_Iterable[_Union[ClientQuotas, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class ClientQuotas(_message.Message):
    __slots__ = ("entity", "values")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[_metadata_records_pb2.QuotaEntity]
    values: _containers.RepeatedCompositeFieldContainer[QuotaValue]
    def __init__(self, entity: _Optional[_Iterable[_Union[_metadata_records_pb2.QuotaEntity, _Mapping[str, object]]]] = ..., values: _Optional[_Iterable[_Union[QuotaValue, _Mapping[str, object]]]] = ...) -> None: ...

class QuotaValue(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: float
    def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class AlterClientQuotasRequest(_message.Message):
    __slots__ = ("alterations", "validate_only")
    ALTERATIONS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    alterations: _containers.RepeatedCompositeFieldContainer[ClientQuotaAlteration]
    validate_only: bool
    def __init__(self, alterations: _Optional[_Iterable[_Union[ClientQuotaAlteration, _Mapping[str, object]]]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class ClientQuotaAlteration(_message.Message):
    __slots__ = ("entity", "changes")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[_metadata_records_pb2.QuotaEntity]
    changes: _containers.RepeatedCompositeFieldContainer[QuotaChange]
    def __init__(self, entity: _Optional[_Iterable[_Union[_metadata_records_pb2.QuotaEntity, _Mapping[str, object]]]] = ..., changes: _Optional[_Iterable[_Union[QuotaChange, _Mapping[str, object]]]] = ...) -> None: ...

class QuotaChange(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: float
    def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class AlterClientQuotasResponse(_message.Message):
    __slots__ = ("results", "metadata_offset")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[AlterClientQuotasResult]
    metadata_offset: int
    def __init__(self, results: _Optional[_Iterable[_Union[AlterClientQuotasResult, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class AlterClientQuotasResult(_message.Message):
    __slots__ = ("entity", "error")
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    entity: _containers.RepeatedCompositeFieldContainer[_metadata_records_pb2.QuotaEntity]
    error: _errors_pb2.Error
    def __init__(self, entity: _Optional[_Iterable[_Union[_metadata_records_pb2.QuotaEntity, _Mapping[str, object]]]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class AclFilter(_message.Message):
    __slots__ = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    PATTERN_TYPE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    resource_type: _metadata_records_pb2.AclResourceType
    resource_name: str
    pattern_type: _metadata_records_pb2.AclPatternType
    principal: str
    host: str
    operation: _metadata_records_pb2.AclOperation
    permission: _metadata_records_pb2.AclPermission
    def __init__(self, resource_type: _Optional[_Union[_metadata_records_pb2.AclResourceType, str]] = ..., resource_name: _Optional[str] = ..., pattern_type: _Optional[_Union[_metadata_records_pb2.AclPatternType, str]] = ..., principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[_Union[_metadata_records_pb2.AclOperation, str]] = ..., permission: _Optional[_Union[_metadata_records_pb2.AclPermission, str]] = ...) -> None: ...

class DescribeAclsRequest(_message.Message):
    __slots__ = ("filter", "min_metadata_offset")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    filter: AclFilter
    min_metadata_offset: int
    def __init__(self, filter: _Optional[_Union[AclFilter, _Mapping[str, object]]] = ..., min_metadata_offset: _Optional[int] = ...) -> None: ...

class DescribeAclsResponse(_message.Message):
    __slots__ = ("acls", "metadata_offset")
    ACLS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    acls: _containers.RepeatedCompositeFieldContainer[_metadata_records_pb2.Acl]
    metadata_offset: int
    def __init__(self, acls: _Optional[_Iterable[_Union[_metadata_records_pb2.Acl, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class CreateAclsRequest(_message.Message):
    __slots__ = ("acls",)
    ACLS_FIELD_NUMBER: _ClassVar[int]
    acls: _containers.RepeatedCompositeFieldContainer[_metadata_records_pb2.Acl]
    def __init__(self, acls: _Optional[_Iterable[_Union[_metadata_records_pb2.Acl, _Mapping[str, object]]]] = ...) -> None: ...

class CreateAclsResponse(_message.Message):
    __slots__ = ("results", "metadata_offset")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[CreateAclResult]
    metadata_offset: int
    def __init__(self, results: _Optional[_Iterable[_Union[CreateAclResult, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class CreateAclResult(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.Error
    def __init__(self, error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class DeleteAclsRequest(_message.Message):
    __slots__ = ("filters",)
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedCompositeFieldContainer[AclFilter]
    def __init__(self, filters: _Optional[_Iterable[_Union[AclFilter, _Mapping[str, object]]]] = ...) -> None: ...

class DeleteAclsResponse(_message.Message):
    __slots__ = ("results", "metadata_offset")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[DeleteAclsResult]
    metadata_offset: int
    def __init__(self, results: _Optional[_Iterable[_Union[DeleteAclsResult, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class DeleteAclsResult(_message.Message):
    __slots__ = ("error", "acls")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ACLS_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.Error
    acls: _containers.RepeatedCompositeFieldContainer[_metadata_records_pb2.Acl]
    def __init__(self, error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ..., acls: _Optional[_Iterable[_Union[_metadata_records_pb2.Acl, _Mapping[str, object]]]] = ...) -> None: ...

class ExplainAuthorizationRequest(_message.Message):
    __slots__ = ("principal", "host", "operation", "resource_type", "resource_name", "min_metadata_offset")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_NAME_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    principal: str
    host: str
    operation: _metadata_records_pb2.AclOperation
    resource_type: _metadata_records_pb2.AclResourceType
    resource_name: str
    min_metadata_offset: int
    def __init__(self, principal: _Optional[str] = ..., host: _Optional[str] = ..., operation: _Optional[_Union[_metadata_records_pb2.AclOperation, str]] = ..., resource_type: _Optional[_Union[_metadata_records_pb2.AclResourceType, str]] = ..., resource_name: _Optional[str] = ..., min_metadata_offset: _Optional[int] = ...) -> None: ...

class ExplainAuthorizationResponse(_message.Message):
    __slots__ = ("is_allowed", "reason")
    IS_ALLOWED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    is_allowed: bool
    reason: str
    def __init__(self, is_allowed: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class DescribeScramCredentialsRequest(_message.Message):
    __slots__ = ("users", "min_metadata_offset", "with_keys")
    USERS_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WITH_KEYS_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedScalarFieldContainer[str]
    min_metadata_offset: int
    with_keys: bool
    def __init__(self, users: _Optional[_Iterable[str]] = ..., min_metadata_offset: _Optional[int] = ..., with_keys: _Optional[bool] = ...) -> None: ...

class DescribeScramCredentialsResponse(_message.Message):
    __slots__ = ("credentials", "metadata_offset")
    CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    credentials: _containers.RepeatedCompositeFieldContainer[ScramCredentialDescription]
    metadata_offset: int
    def __init__(self, credentials: _Optional[_Iterable[_Union[ScramCredentialDescription, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class ScramCredentialDescription(_message.Message):
    __slots__ = ("credential", "iterations", "salt", "stored_key", "server_key")
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    STORED_KEY_FIELD_NUMBER: _ClassVar[int]
    SERVER_KEY_FIELD_NUMBER: _ClassVar[int]
    credential: _metadata_records_pb2.ScramCredentialKey
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    def __init__(self, credential: _Optional[_Union[_metadata_records_pb2.ScramCredentialKey, _Mapping[str, object]]] = ..., iterations: _Optional[int] = ..., salt: _Optional[bytes] = ..., stored_key: _Optional[bytes] = ..., server_key: _Optional[bytes] = ...) -> None: ...

class AlterScramCredentialsRequest(_message.Message):
    __slots__ = ("deletions", "upsertions")
    DELETIONS_FIELD_NUMBER: _ClassVar[int]
    UPSERTIONS_FIELD_NUMBER: _ClassVar[int]
    deletions: _containers.RepeatedCompositeFieldContainer[_metadata_records_pb2.ScramCredentialKey]
    upsertions: _containers.RepeatedCompositeFieldContainer[_metadata_records_pb2.ScramCredentialRecord]
    def __init__(self, deletions: _Optional[_Iterable[_Union[_metadata_records_pb2.ScramCredentialKey, _Mapping[str, object]]]] = ..., upsertions: _Optional[_Iterable[_Union[_metadata_records_pb2.ScramCredentialRecord, _Mapping[str, object]]]] = ...) -> None: ...

class AlterScramCredentialsResponse(_message.Message):
    __slots__ = ("results", "metadata_offset")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[AlterScramCredentialsResult]
    metadata_offset: int
    def __init__(self, results: _Optional[_Iterable[_Union[AlterScramCredentialsResult, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class AlterScramCredentialsResult(_message.Message):
    __slots__ = ("user", "error")
    USER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    user: str
    error: _errors_pb2.Error
    def __init__(self, user: _Optional[str] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...
