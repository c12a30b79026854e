from . import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReplicaEndpointRequest(_message.Message):
    __slots__ = ("cluster_id", "leader_id")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    leader_id: int
    def __init__(self, cluster_id: _Optional[str] = ..., leader_id: _Optional[int] = ...) -> None: ...

class ReplicaEndpointResponse(_message.Message):
    __slots__ = ("port",)
    PORT_FIELD_NUMBER: _ClassVar[int]
    port: int
    def __init__(self, port: _Optional[int] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "broker_epoch", "leader_id", "max_wait_ms", "max_bytes", "partitions", "forgotten")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    broker_epoch: int
    leader_id: int
    max_wait_ms: int
    max_bytes: int
    partitions: _containers.RepeatedCompositeFieldContainer[FollowPartition]
    forgotten: _containers.RepeatedCompositeFieldContainer[FollowedPartition]
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[FollowPartition, _Mapping[str, object]]]] = ..., forgotten: _Optional[_Iterable[_Union[FollowedPartition, _Mapping[str, object]]]] = ...) -> None: ...

class FollowedPartition(_message.Message):
    __slots__ = ("topic_id", "partition")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ...) -> None: ...

class FollowPartition(_message.Message):
    __slots__ = ("topic_id", "partition", "log_end_offset", "flushed_end_offset", "log_start_offset", "last_epoch", "leader_epoch", "high_watermark", "max_bytes")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    log_end_offset: int
    flushed_end_offset: int
    log_start_offset: int
    last_epoch: int
    leader_epoch: int
    high_watermark: int
    max_bytes: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., flushed_end_offset: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., last_epoch: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class FollowResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[FollowResult]
    def __init__(self, results: _Optional[_Iterable[_Union[FollowResult, _Mapping[str, object]]]] = ...) -> None: ...

class FollowResult(_message.Message):
    __slots__ = ("topic_id", "partition", "leader_epoch", "high_watermark", "log_start_offset", "records_len", "diverging", "error", "may_have_gaps")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORDS_LEN_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MAY_HAVE_GAPS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    records_len: int
    diverging: EpochEnd
    error: _errors_pb2.Error
    may_have_gaps: bool
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., records_len: _Optional[int] = ..., diverging: _Optional[_Union[EpochEnd, _Mapping[str, object]]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ..., may_have_gaps: _Optional[bool] = ...) -> None: ...

class EpochEnd(_message.Message):
    __slots__ = ("epoch", "end_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    end_offset: int
    def __init__(self, epoch: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class EpochEndOffsetsRequest(_message.Message):
    __slots__ = ("cluster_id", "partitions")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    partitions: _containers.RepeatedCompositeFieldContainer[EpochEndOffsetPartition]
    def __init__(self, cluster_id: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[EpochEndOffsetPartition, _Mapping[str, object]]]] = ...) -> None: ...

class EpochEndOffsetPartition(_message.Message):
    __slots__ = ("topic_id", "partition", "leader_epoch", "epoch")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    leader_epoch: int
    epoch: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class EpochEndOffsetsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[EpochEndOffset]
    def __init__(self, results: _Optional[_Iterable[_Union[EpochEndOffset, _Mapping[str, object]]]] = ...) -> None: ...

class EpochEndOffset(_message.Message):
    __slots__ = ("epoch", "end_offset", "error")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    end_offset: int
    error: _errors_pb2.Error
    def __init__(self, epoch: _Optional[int] = ..., end_offset: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...
