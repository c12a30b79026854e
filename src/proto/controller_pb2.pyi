from . import admin_pb2 as _admin_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BrokerSessionRequest(_message.Message):
    __slots__ = ("registration", "heartbeat")
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    registration: BrokerRegistration
    heartbeat: BrokerHeartbeat
    def __init__(self, registration: _Optional[_Union[BrokerRegistration, _Mapping[str, object]]] = ..., heartbeat: _Optional[_Union[BrokerHeartbeat, _Mapping[str, object]]] = ...) -> None: ...

class BrokerRegistration(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "incarnation_id", "directory_id", "grpc_address", "rack", "boot_id", "clean_start")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    CLEAN_START_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    incarnation_id: bytes
    directory_id: bytes
    grpc_address: str
    rack: str
    boot_id: str
    clean_start: bool
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., directory_id: _Optional[bytes] = ..., grpc_address: _Optional[str] = ..., rack: _Optional[str] = ..., boot_id: _Optional[str] = ..., clean_start: _Optional[bool] = ...) -> None: ...

class BrokerHeartbeat(_message.Message):
    __slots__ = ("sequence", "applied_offset", "want_shutdown")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    APPLIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WANT_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    applied_offset: int
    want_shutdown: bool
    def __init__(self, sequence: _Optional[int] = ..., applied_offset: _Optional[int] = ..., want_shutdown: _Optional[bool] = ...) -> None: ...

class BrokerSessionResponse(_message.Message):
    __slots__ = ("sequence", "broker_epoch", "fenced", "shutdown_granted")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    SHUTDOWN_GRANTED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    broker_epoch: int
    fenced: bool
    shutdown_granted: bool
    def __init__(self, sequence: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., fenced: _Optional[bool] = ..., shutdown_granted: _Optional[bool] = ...) -> None: ...

class RelayRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "create_topic", "delete_topic", "alter_configs", "allocate_producer_ids")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    create_topic: _admin_pb2.CreateTopicRequest
    delete_topic: _admin_pb2.DeleteTopicRequest
    alter_configs: _admin_pb2.AlterConfigsRequest
    allocate_producer_ids: AllocateProducerIdsRequest
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., create_topic: _Optional[_Union[_admin_pb2.CreateTopicRequest, _Mapping[str, object]]] = ..., delete_topic: _Optional[_Union[_admin_pb2.DeleteTopicRequest, _Mapping[str, object]]] = ..., alter_configs: _Optional[_Union[_admin_pb2.AlterConfigsRequest, _Mapping[str, object]]] = ..., allocate_producer_ids: _Optional[_Union[AllocateProducerIdsRequest, _Mapping[str, object]]] = ...) -> None: ...

class RelayResponse(_message.Message):
    __slots__ = ("create_topic", "delete_topic", "alter_configs", "allocate_producer_ids")
    CREATE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    create_topic: _admin_pb2.CreateTopicResponse
    delete_topic: _admin_pb2.DeleteTopicResponse
    alter_configs: _admin_pb2.AlterConfigsResponse
    allocate_producer_ids: AllocateProducerIdsResponse
    def __init__(self, create_topic: _Optional[_Union[_admin_pb2.CreateTopicResponse, _Mapping[str, object]]] = ..., delete_topic: _Optional[_Union[_admin_pb2.DeleteTopicResponse, _Mapping[str, object]]] = ..., alter_configs: _Optional[_Union[_admin_pb2.AlterConfigsResponse, _Mapping[str, object]]] = ..., allocate_producer_ids: _Optional[_Union[AllocateProducerIdsResponse, _Mapping[str, object]]] = ...) -> None: ...

class AllocateProducerIdsRequest(_message.Message):
    __slots__ = ("broker_epoch",)
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_epoch: int
    def __init__(self, broker_epoch: _Optional[int] = ...) -> None: ...

class AllocateProducerIdsResponse(_message.Message):
    __slots__ = ("producer_id_start", "producer_id_len")
    PRODUCER_ID_START_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_LEN_FIELD_NUMBER: _ClassVar[int]
    producer_id_start: int
    producer_id_len: int
    def __init__(self, producer_id_start: _Optional[int] = ..., producer_id_len: _Optional[int] = ...) -> None: ...
