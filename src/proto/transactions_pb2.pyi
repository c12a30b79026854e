from . import errors_pb2 as _errors_pb2
from . import groups_pb2 as _groups_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProducerIdentity(_message.Message):
    __slots__ = ("producer_id", "producer_epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class InitProducerIdRequest(_message.Message):
    __slots__ = ("transactional_id", "timeout_ms", "current")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    timeout_ms: int
    current: ProducerIdentity
    def __init__(self, transactional_id: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., current: _Optional[_Union[ProducerIdentity, _Mapping[str, object]]] = ...) -> None: ...

class InitProducerIdResponse(_message.Message):
    __slots__ = ("producer",)
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    producer: ProducerIdentity
    def __init__(self, producer: _Optional[_Union[ProducerIdentity, _Mapping[str, object]]] = ...) -> None: ...

class AddPartitionsRequest(_message.Message):
    __slots__ = ("transactional_id", "producer", "partitions")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer: ProducerIdentity
    partitions: _containers.RepeatedCompositeFieldContainer[_groups_pb2.GroupPartition]
    def __init__(self, transactional_id: _Optional[str] = ..., producer: _Optional[_Union[ProducerIdentity, _Mapping[str, object]]] = ..., partitions: _Optional[_Iterable[_Union[_groups_pb2.GroupPartition, _Mapping[str, object]]]] = ...) -> None: ...

class AddPartitionsResponse(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_errors_pb2.Error]
    def __init__(self, errors: _Optional[_Iterable[_Union[_errors_pb2.Error, _Mapping[str, object]]]] = ...) -> None: ...

class AddOffsetsRequest(_message.Message):
    __slots__ = ("transactional_id", "producer", "commit")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer: ProducerIdentity
    commit: _groups_pb2.CommitOffsetsRequest
    def __init__(self, transactional_id: _Optional[str] = ..., producer: _Optional[_Union[ProducerIdentity, _Mapping[str, object]]] = ..., commit: _Optional[_Union[_groups_pb2.CommitOffsetsRequest, _Mapping[str, object]]] = ...) -> None: ...

class AddOffsetsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_groups_pb2.OffsetResult]
    def __init__(self, results: _Optional[_Iterable[_Union[_groups_pb2.OffsetResult, _Mapping[str, object]]]] = ...) -> None: ...

class EndTransactionRequest(_message.Message):
    __slots__ = ("transactional_id", "producer", "commit")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer: ProducerIdentity
    commit: bool
    def __init__(self, transactional_id: _Optional[str] = ..., producer: _Optional[_Union[ProducerIdentity, _Mapping[str, object]]] = ..., commit: _Optional[bool] = ...) -> None: ...

class EndTransactionResponse(_message.Message):
    __slots__ = ("producer",)
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    producer: ProducerIdentity
    def __init__(self, producer: _Optional[_Union[ProducerIdentity, _Mapping[str, object]]] = ...) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ("open_for_ms_min", "states")
    OPEN_FOR_MS_MIN_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    open_for_ms_min: int
    states: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, open_for_ms_min: _Optional[int] = ..., states: _Optional[_Iterable[str]] = ...) -> None: ...

class ListTransactionsResponse(_message.Message):
    __slots__ = ("transactions", "errors")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[TransactionListing]
    errors: _containers.RepeatedCompositeFieldContainer[_errors_pb2.Error]
    def __init__(self, transactions: _Optional[_Iterable[_Union[TransactionListing, _Mapping[str, object]]]] = ..., errors: _Optional[_Iterable[_Union[_errors_pb2.Error, _Mapping[str, object]]]] = ...) -> None: ...

class TransactionListing(_message.Message):
    __slots__ = ("transactional_id", "producer", "state", "started_ms", "partitions", "timeout_ms", "coordinator")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    producer: ProducerIdentity
    state: str
    started_ms: int
    partitions: _containers.RepeatedCompositeFieldContainer[_groups_pb2.GroupPartition]
    timeout_ms: int
    coordinator: int
    def __init__(self, transactional_id: _Optional[str] = ..., producer: _Optional[_Union[ProducerIdentity, _Mapping[str, object]]] = ..., state: _Optional[str] = ..., started_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[_groups_pb2.GroupPartition, _Mapping[str, object]]]] = ..., timeout_ms: _Optional[int] = ..., coordinator: _Optional[int] = ...) -> None: ...

class DescribeTransactionsRequest(_message.Message):
    __slots__ = ("transactional_ids",)
    TRANSACTIONAL_IDS_FIELD_NUMBER: _ClassVar[int]
    transactional_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, transactional_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeTransactionsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[TransactionDescription]
    def __init__(self, results: _Optional[_Iterable[_Union[TransactionDescription, _Mapping[str, object]]]] = ...) -> None: ...

class TransactionDescription(_message.Message):
    __slots__ = ("transaction", "error")
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    transaction: TransactionListing
    error: _errors_pb2.Error
    def __init__(self, transaction: _Optional[_Union[TransactionListing, _Mapping[str, object]]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class AbortTransactionRequest(_message.Message):
    __slots__ = ("transactional_id",)
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    def __init__(self, transactional_id: _Optional[str] = ...) -> None: ...

class AbortTransactionResponse(_message.Message):
    __slots__ = ("producer",)
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    producer: ProducerIdentity
    def __init__(self, producer: _Optional[_Union[ProducerIdentity, _Mapping[str, object]]] = ...) -> None: ...

class DescribeProducersRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[_groups_pb2.GroupPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[_groups_pb2.GroupPartition, _Mapping[str, object]]]] = ...) -> None: ...

class DescribeProducersResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PartitionProducers]
    def __init__(self, results: _Optional[_Iterable[_Union[PartitionProducers, _Mapping[str, object]]]] = ...) -> None: ...

class PartitionProducers(_message.Message):
    __slots__ = ("topic", "partition", "producers", "error")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    producers: _containers.RepeatedCompositeFieldContainer[ActiveProducer]
    error: _errors_pb2.Error
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., producers: _Optional[_Iterable[_Union[ActiveProducer, _Mapping[str, object]]]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class ActiveProducer(_message.Message):
    __slots__ = ("producer", "last_sequence", "last_timestamp_ms", "coordinator_epoch", "transaction_start")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_START_FIELD_NUMBER: _ClassVar[int]
    producer: ProducerIdentity
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int
    def __init__(self, producer: _Optional[_Union[ProducerIdentity, _Mapping[str, object]]] = ..., last_sequence: _Optional[int] = ..., last_timestamp_ms: _Optional[int] = ..., coordinator_epoch: _Optional[int] = ..., transaction_start: _Optional[int] = ...) -> None: ...

class AbortHangingTransactionRequest(_message.Message):
    __slots__ = ("partition", "producer", "coordinator_epoch")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    partition: _groups_pb2.GroupPartition
    producer: ProducerIdentity
    coordinator_epoch: int
    def __init__(self, partition: _Optional[_Union[_groups_pb2.GroupPartition, _Mapping[str, object]]] = ..., producer: _Optional[_Union[ProducerIdentity, _Mapping[str, object]]] = ..., coordinator_epoch: _Optional[int] = ...) -> None: ...

class AbortHangingTransactionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
