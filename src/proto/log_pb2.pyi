from . import errors_pb2 as _errors_pb2
from . import transactions_pb2 as _transactions_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Acks(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACKS_ALL: _ClassVar[Acks]
    ACKS_NONE: _ClassVar[Acks]
    ACKS_LEADER: _ClassVar[Acks]

class Compression(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPRESSION_NONE: _ClassVar[Compression]
    COMPRESSION_GZIP: _ClassVar[Compression]
    COMPRESSION_SNAPPY: _ClassVar[Compression]
    COMPRESSION_LZ4: _ClassVar[Compression]
    COMPRESSION_ZSTD: _ClassVar[Compression]

class Isolation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ISOLATION_READ_UNCOMMITTED: _ClassVar[Isolation]
    ISOLATION_READ_COMMITTED: _ClassVar[Isolation]
ACKS_ALL: Acks
ACKS_NONE: Acks
ACKS_LEADER: Acks
COMPRESSION_NONE: Compression
COMPRESSION_GZIP: Compression
COMPRESSION_SNAPPY: Compression
COMPRESSION_LZ4: Compression
COMPRESSION_ZSTD: Compression
ISOLATION_READ_UNCOMMITTED: Isolation
ISOLATION_READ_COMMITTED: Isolation

class ProduceRequest(_message.Message):
    __slots__ = ("correlation_id", "acks", "timeout_ms", "partitions", "transactional_id")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    acks: Acks
    timeout_ms: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionRecords]
    transactional_id: str
    def __init__(self, correlation_id: _Optional[int] = ..., acks: _Optional[_Union[Acks, str]] = ..., timeout_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionRecords, _Mapping[str, object]]]] = ..., transactional_id: _Optional[str] = ...) -> None: ...

class PartitionRecords(_message.Message):
    __slots__ = ("topic", "partition", "leader_epoch", "records", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    leader_epoch: int
    records: bytes
    topic_id: bytes
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., records: _Optional[bytes] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("correlation_id", "results", "metadata_offset")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    correlation_id: int
    results: _containers.RepeatedCompositeFieldContainer[ProduceResult]
    metadata_offset: int
    def __init__(self, correlation_id: _Optional[int] = ..., results: _Optional[_Iterable[_Union[ProduceResult, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class ProduceResult(_message.Message):
    __slots__ = ("topic", "partition", "base_offset", "log_append_time_ms", "log_start_offset", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_APPEND_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error: _errors_pb2.Error
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., base_offset: _Optional[int] = ..., log_append_time_ms: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("key", "value", "headers", "timestamp_ms", "offset")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    timestamp_ms: int
    offset: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping[str, object]]]] = ..., timestamp_ms: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("topic", "partition", "records", "acks", "timeout_ms", "compression", "errors_in_results", "producer", "base_sequence", "transactional_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    ERRORS_IN_RESULTS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    records: _containers.RepeatedCompositeFieldContainer[Record]
    acks: Acks
    timeout_ms: int
    compression: Compression
    errors_in_results: bool
    producer: _transactions_pb2.ProducerIdentity
    base_sequence: int
    transactional_id: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., records: _Optional[_Iterable[_Union[Record, _Mapping[str, object]]]] = ..., acks: _Optional[_Union[Acks, str]] = ..., timeout_ms: _Optional[int] = ..., compression: _Optional[_Union[Compression, str]] = ..., errors_in_results: _Optional[bool] = ..., producer: _Optional[_Union[_transactions_pb2.ProducerIdentity, _Mapping[str, object]]] = ..., base_sequence: _Optional[int] = ..., transactional_id: _Optional[str] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("partition", "base_offset", "metadata_offset", "results")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    base_offset: int
    metadata_offset: int
    results: _containers.RepeatedCompositeFieldContainer[PublishResult]
    def __init__(self, partition: _Optional[int] = ..., base_offset: _Optional[int] = ..., metadata_offset: _Optional[int] = ..., results: _Optional[_Iterable[_Union[PublishResult, _Mapping[str, object]]]] = ...) -> None: ...

class PublishResult(_message.Message):
    __slots__ = ("partition", "base_offset", "records", "error")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    partition: int
    base_offset: int
    records: _containers.RepeatedScalarFieldContainer[int]
    error: _errors_pb2.Error
    def __init__(self, partition: _Optional[int] = ..., base_offset: _Optional[int] = ..., records: _Optional[_Iterable[int]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("max_wait_ms", "min_bytes", "max_bytes", "isolation", "partitions", "min_metadata_offset")
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: Isolation
    partitions: _containers.RepeatedCompositeFieldContainer[FetchPartition]
    min_metadata_offset: int
    def __init__(self, max_wait_ms: _Optional[int] = ..., min_bytes: _Optional[int] = ..., max_bytes: _Optional[int] = ..., isolation: _Optional[_Union[Isolation, str]] = ..., partitions: _Optional[_Iterable[_Union[FetchPartition, _Mapping[str, object]]]] = ..., min_metadata_offset: _Optional[int] = ...) -> None: ...

class FetchPartition(_message.Message):
    __slots__ = ("topic", "partition", "offset", "max_bytes", "leader_epoch", "topic_id", "rack")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int
    topic_id: bytes
    rack: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., max_bytes: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., topic_id: _Optional[bytes] = ..., rack: _Optional[str] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("results", "metadata_offset")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[FetchResult]
    metadata_offset: int
    def __init__(self, results: _Optional[_Iterable[_Union[FetchResult, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class FetchResult(_message.Message):
    __slots__ = ("topic", "partition", "high_watermark", "last_stable_offset", "log_start_offset", "records", "error", "preferred_replica", "next_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LAST_STABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_REPLICA_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes
    error: _errors_pb2.Error
    preferred_replica: int
    next_offset: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., high_watermark: _Optional[int] = ..., last_stable_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., records: _Optional[bytes] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ..., preferred_replica: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("topic", "partition", "offset", "end_offset", "max_bytes", "isolation", "decoded", "start_time_ms", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    DECODED_FIELD_NUMBER: _ClassVar[int]
    START_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    end_offset: int
    max_bytes: int
    isolation: Isolation
    decoded: bool
    start_time_ms: int
    topic_id: bytes
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., max_bytes: _Optional[int] = ..., isolation: _Optional[_Union[Isolation, str]] = ..., decoded: _Optional[bool] = ..., start_time_ms: _Optional[int] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("batches", "records", "next_offset", "high_watermark", "metadata_offset")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    batches: bytes
    records: _containers.RepeatedCompositeFieldContainer[Record]
    next_offset: int
    high_watermark: int
    metadata_offset: int
    def __init__(self, batches: _Optional[bytes] = ..., records: _Optional[_Iterable[_Union[Record, _Mapping[str, object]]]] = ..., next_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class ListOffsetsRequest(_message.Message):
    __slots__ = ("partitions", "isolation", "min_metadata_offset")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    MIN_METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[ListOffsetsPartition]
    isolation: Isolation
    min_metadata_offset: int
    def __init__(self, partitions: _Optional[_Iterable[_Union[ListOffsetsPartition, _Mapping[str, object]]]] = ..., isolation: _Optional[_Union[Isolation, str]] = ..., min_metadata_offset: _Optional[int] = ...) -> None: ...

class ListOffsetsPartition(_message.Message):
    __slots__ = ("topic", "partition", "timestamp_ms", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    timestamp_ms: int
    topic_id: bytes
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class ListOffsetsResponse(_message.Message):
    __slots__ = ("results", "metadata_offset")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ListOffsetsResult]
    metadata_offset: int
    def __init__(self, results: _Optional[_Iterable[_Union[ListOffsetsResult, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class ListOffsetsResult(_message.Message):
    __slots__ = ("topic", "partition", "offset", "timestamp_ms", "leader_epoch", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    leader_epoch: int
    error: _errors_pb2.Error
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class OffsetForLeaderEpochRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[OffsetForLeaderEpochPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[OffsetForLeaderEpochPartition, _Mapping[str, object]]]] = ...) -> None: ...

class OffsetForLeaderEpochPartition(_message.Message):
    __slots__ = ("topic", "partition", "leader_epoch", "current_leader_epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    leader_epoch: int
    current_leader_epoch: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., current_leader_epoch: _Optional[int] = ...) -> None: ...

class OffsetForLeaderEpochResponse(_message.Message):
    __slots__ = ("results", "metadata_offset")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[OffsetForLeaderEpochResult]
    metadata_offset: int
    def __init__(self, results: _Optional[_Iterable[_Union[OffsetForLeaderEpochResult, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class OffsetForLeaderEpochResult(_message.Message):
    __slots__ = ("topic", "partition", "leader_epoch", "end_offset", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    leader_epoch: int
    end_offset: int
    error: _errors_pb2.Error
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., end_offset: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...
