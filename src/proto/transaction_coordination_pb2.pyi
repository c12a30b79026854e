from . import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MarkerTarget(_message.Message):
    __slots__ = ("topic_id", "topic", "partition", "leader_epoch", "end_sequence")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    topic: str
    partition: int
    leader_epoch: int
    end_sequence: int
    def __init__(self, topic_id: _Optional[bytes] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., end_sequence: _Optional[int] = ...) -> None: ...

class MarkerEntry(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "coordinator_epoch", "is_commit", "transaction_version", "targets")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_COMMIT_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_VERSION_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    targets: _containers.RepeatedCompositeFieldContainer[MarkerTarget]
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., coordinator_epoch: _Optional[int] = ..., is_commit: _Optional[bool] = ..., transaction_version: _Optional[int] = ..., targets: _Optional[_Iterable[_Union[MarkerTarget, _Mapping[str, object]]]] = ...) -> None: ...

class WriteMarkersRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "wait_ms", "entries")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    wait_ms: int
    entries: _containers.RepeatedCompositeFieldContainer[MarkerEntry]
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., wait_ms: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[MarkerEntry, _Mapping[str, object]]]] = ...) -> None: ...

class FailedMarker(_message.Message):
    __slots__ = ("marker", "error")
    MARKER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    marker: int
    error: _errors_pb2.Error
    def __init__(self, marker: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class WriteMarkersResponse(_message.Message):
    __slots__ = ("markers", "failed")
    MARKERS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    markers: int
    failed: _containers.RepeatedCompositeFieldContainer[FailedMarker]
    def __init__(self, markers: _Optional[int] = ..., failed: _Optional[_Iterable[_Union[FailedMarker, _Mapping[str, object]]]] = ...) -> None: ...

class TransactionVerification(_message.Message):
    __slots__ = ("transactional_id", "producer_id", "producer_epoch", "target", "adds")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ADDS_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer_id: int
    producer_epoch: int
    target: MarkerTarget
    adds: bool
    def __init__(self, transactional_id: _Optional[str] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., target: _Optional[_Union[MarkerTarget, _Mapping[str, object]]] = ..., adds: _Optional[bool] = ...) -> None: ...

class VerifyTransactionsRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "verifications")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    VERIFICATIONS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    verifications: _containers.RepeatedCompositeFieldContainer[TransactionVerification]
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., verifications: _Optional[_Iterable[_Union[TransactionVerification, _Mapping[str, object]]]] = ...) -> None: ...

class VerificationResult(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.Error
    def __init__(self, error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class VerifyTransactionsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[VerificationResult]
    def __init__(self, results: _Optional[_Iterable[_Union[VerificationResult, _Mapping[str, object]]]] = ...) -> None: ...
