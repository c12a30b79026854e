from . import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MirrorAppendRequest(_message.Message):
    __slots__ = ("timeout_ms", "partitions")
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    partitions: _containers.RepeatedCompositeFieldContainer[MirrorPartition]
    def __init__(self, timeout_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[MirrorPartition, _Mapping[str, object]]]] = ...) -> None: ...

class MirrorPartition(_message.Message):
    __slots__ = ("topic", "partition", "topic_id", "source", "log_end_offset", "records")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    topic_id: bytes
    source: str
    log_end_offset: int
    records: bytes
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., topic_id: _Optional[bytes] = ..., source: _Optional[str] = ..., log_end_offset: _Optional[int] = ..., records: _Optional[bytes] = ...) -> None: ...

class MirrorAppendResponse(_message.Message):
    __slots__ = ("results", "metadata_offset")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[MirrorResult]
    metadata_offset: int
    def __init__(self, results: _Optional[_Iterable[_Union[MirrorResult, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class MirrorResult(_message.Message):
    __slots__ = ("topic", "partition", "log_start_offset", "log_end_offset", "high_watermark", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LOG_START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    error: _errors_pb2.Error
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., log_start_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...
