from . import errors_pb2 as _errors_pb2
from . import groups_pb2 as _groups_pb2
from . import transactions_pb2 as _transactions_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CommittedBatch(_message.Message):
    __slots__ = ("number", "write_id", "records", "visible")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WRITE_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_FIELD_NUMBER: _ClassVar[int]
    number: int
    write_id: int
    records: int
    visible: bool
    def __init__(self, number: _Optional[int] = ..., write_id: _Optional[int] = ..., records: _Optional[int] = ..., visible: _Optional[bool] = ...) -> None: ...

class OpenWriteRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OpenWriteResponse(_message.Message):
    __slots__ = ("write_id",)
    WRITE_ID_FIELD_NUMBER: _ClassVar[int]
    write_id: int
    def __init__(self, write_id: _Optional[int] = ...) -> None: ...

class BeginAttemptRequest(_message.Message):
    __slots__ = ("name", "number", "write_id", "task", "attempt", "stage_timeout_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WRITE_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STAGE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    number: int
    write_id: int
    task: int
    attempt: int
    stage_timeout_ms: int
    def __init__(self, name: _Optional[str] = ..., number: _Optional[int] = ..., write_id: _Optional[int] = ..., task: _Optional[int] = ..., attempt: _Optional[int] = ..., stage_timeout_ms: _Optional[int] = ...) -> None: ...

class BeginAttemptResponse(_message.Message):
    __slots__ = ("producer", "committed")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    producer: _transactions_pb2.ProducerIdentity
    committed: CommittedBatch
    def __init__(self, producer: _Optional[_Union[_transactions_pb2.ProducerIdentity, _Mapping[str, object]]] = ..., committed: _Optional[_Union[CommittedBatch, _Mapping[str, object]]] = ...) -> None: ...

class KeepAttemptAliveRequest(_message.Message):
    __slots__ = ("name", "producer")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    name: str
    producer: _transactions_pb2.ProducerIdentity
    def __init__(self, name: _Optional[str] = ..., producer: _Optional[_Union[_transactions_pb2.ProducerIdentity, _Mapping[str, object]]] = ...) -> None: ...

class KeepAttemptAliveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SealAttemptRequest(_message.Message):
    __slots__ = ("name", "producer", "partitions")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    producer: _transactions_pb2.ProducerIdentity
    partitions: _containers.RepeatedCompositeFieldContainer[SealedPartition]
    def __init__(self, name: _Optional[str] = ..., producer: _Optional[_Union[_transactions_pb2.ProducerIdentity, _Mapping[str, object]]] = ..., partitions: _Optional[_Iterable[_Union[SealedPartition, _Mapping[str, object]]]] = ...) -> None: ...

class SealedPartition(_message.Message):
    __slots__ = ("topic", "partition", "records", "last_sequence")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    records: int
    last_sequence: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., records: _Optional[int] = ..., last_sequence: _Optional[int] = ...) -> None: ...

class SealAttemptResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommitStageRequest(_message.Message):
    __slots__ = ("name", "number", "write_id", "attempts")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WRITE_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    number: int
    write_id: int
    attempts: _containers.RepeatedCompositeFieldContainer[CommittedAttempt]
    def __init__(self, name: _Optional[str] = ..., number: _Optional[int] = ..., write_id: _Optional[int] = ..., attempts: _Optional[_Iterable[_Union[CommittedAttempt, _Mapping[str, object]]]] = ...) -> None: ...

class CommittedAttempt(_message.Message):
    __slots__ = ("task", "producer")
    TASK_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    task: int
    producer: _transactions_pb2.ProducerIdentity
    def __init__(self, task: _Optional[int] = ..., producer: _Optional[_Union[_transactions_pb2.ProducerIdentity, _Mapping[str, object]]] = ...) -> None: ...

class CommitStageResponse(_message.Message):
    __slots__ = ("committed",)
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    committed: CommittedBatch
    def __init__(self, committed: _Optional[_Union[CommittedBatch, _Mapping[str, object]]] = ...) -> None: ...

class AbortStageRequest(_message.Message):
    __slots__ = ("name", "number", "write_id", "producer")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WRITE_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    name: str
    number: int
    write_id: int
    producer: _transactions_pb2.ProducerIdentity
    def __init__(self, name: _Optional[str] = ..., number: _Optional[int] = ..., write_id: _Optional[int] = ..., producer: _Optional[_Union[_transactions_pb2.ProducerIdentity, _Mapping[str, object]]] = ...) -> None: ...

class AbortStageResponse(_message.Message):
    __slots__ = ("committed",)
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    committed: CommittedBatch
    def __init__(self, committed: _Optional[_Union[CommittedBatch, _Mapping[str, object]]] = ...) -> None: ...

class ListStagesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListStagesResponse(_message.Message):
    __slots__ = ("stages", "errors")
    STAGES_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    stages: _containers.RepeatedCompositeFieldContainer[StageListing]
    errors: _containers.RepeatedCompositeFieldContainer[_errors_pb2.Error]
    def __init__(self, stages: _Optional[_Iterable[_Union[StageListing, _Mapping[str, object]]]] = ..., errors: _Optional[_Iterable[_Union[_errors_pb2.Error, _Mapping[str, object]]]] = ...) -> None: ...

class StageListing(_message.Message):
    __slots__ = ("name", "last_committed", "committed_write_id", "committed_records", "write_id", "number", "open", "sealed", "completing", "oldest_started_ms", "updated_ms", "coordinator")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LAST_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_WRITE_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    WRITE_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    COMPLETING_FIELD_NUMBER: _ClassVar[int]
    OLDEST_STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    UPDATED_MS_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    last_committed: int
    committed_write_id: int
    committed_records: int
    write_id: int
    number: int
    open: int
    sealed: int
    completing: int
    oldest_started_ms: int
    updated_ms: int
    coordinator: int
    def __init__(self, name: _Optional[str] = ..., last_committed: _Optional[int] = ..., committed_write_id: _Optional[int] = ..., committed_records: _Optional[int] = ..., write_id: _Optional[int] = ..., number: _Optional[int] = ..., open: _Optional[int] = ..., sealed: _Optional[int] = ..., completing: _Optional[int] = ..., oldest_started_ms: _Optional[int] = ..., updated_ms: _Optional[int] = ..., coordinator: _Optional[int] = ...) -> None: ...

class DescribeStageRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DescribeStageResponse(_message.Message):
    __slots__ = ("stage", "attempts", "partitions")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    stage: StageListing
    attempts: _containers.RepeatedCompositeFieldContainer[StagedAttempt]
    partitions: _containers.RepeatedCompositeFieldContainer[_groups_pb2.GroupPartition]
    def __init__(self, stage: _Optional[_Union[StageListing, _Mapping[str, object]]] = ..., attempts: _Optional[_Iterable[_Union[StagedAttempt, _Mapping[str, object]]]] = ..., partitions: _Optional[_Iterable[_Union[_groups_pb2.GroupPartition, _Mapping[str, object]]]] = ...) -> None: ...

class StagedAttempt(_message.Message):
    __slots__ = ("task", "attempt", "write_id", "producer", "state", "started_ms", "partitions", "records")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WRITE_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    task: int
    attempt: int
    write_id: int
    producer: _transactions_pb2.ProducerIdentity
    state: str
    started_ms: int
    partitions: int
    records: int
    def __init__(self, task: _Optional[int] = ..., attempt: _Optional[int] = ..., write_id: _Optional[int] = ..., producer: _Optional[_Union[_transactions_pb2.ProducerIdentity, _Mapping[str, object]]] = ..., state: _Optional[str] = ..., started_ms: _Optional[int] = ..., partitions: _Optional[int] = ..., records: _Optional[int] = ...) -> None: ...

class ResetStageRequest(_message.Message):
    __slots__ = ("name", "last_committed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LAST_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    name: str
    last_committed: int
    def __init__(self, name: _Optional[str] = ..., last_committed: _Optional[int] = ...) -> None: ...

class ResetStageResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteStageRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteStageResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
