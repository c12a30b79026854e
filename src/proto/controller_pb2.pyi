from . import admin_pb2 as _admin_pb2
from . import errors_pb2 as _errors_pb2
from . import metadata_records_pb2 as _metadata_records_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
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
    __slots__ = ("cluster_id", "broker_id", "incarnation_id", "directory_id", "grpc_address", "rack", "boot_id", "clean_start", "internal_address", "features", "kafka_listeners")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    CLEAN_START_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    KAFKA_LISTENERS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    incarnation_id: bytes
    directory_id: bytes
    grpc_address: str
    rack: str
    boot_id: str
    clean_start: bool
    internal_address: str
    features: _containers.RepeatedCompositeFieldContainer[_metadata_records_pb2.SupportedFeature]
    kafka_listeners: _containers.RepeatedCompositeFieldContainer[_metadata_records_pb2.KafkaListener]
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., incarnation_id: _Optional[bytes] = ..., directory_id: _Optional[bytes] = ..., grpc_address: _Optional[str] = ..., rack: _Optional[str] = ..., boot_id: _Optional[str] = ..., clean_start: _Optional[bool] = ..., internal_address: _Optional[str] = ..., features: _Optional[_Iterable[_Union[_metadata_records_pb2.SupportedFeature, _Mapping[str, object]]]] = ..., kafka_listeners: _Optional[_Iterable[_Union[_metadata_records_pb2.KafkaListener, _Mapping[str, object]]]] = ...) -> None: ...

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
    __slots__ = ("sequence", "broker_epoch", "fenced", "shutdown_granted", "committed_offset")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    SHUTDOWN_GRANTED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    broker_epoch: int
    fenced: bool
    shutdown_granted: bool
    committed_offset: int
    def __init__(self, sequence: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., fenced: _Optional[bool] = ..., shutdown_granted: _Optional[bool] = ..., committed_offset: _Optional[int] = ...) -> None: ...

class RelayRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "create_topic", "delete_topic", "alter_configs", "allocate_producer_ids", "create_partitions", "alter_reassignments", "elect_leaders", "alter_cluster_configs", "update_features", "unregister_broker", "alter_client_quotas", "alter_group_configs", "create_acls", "delete_acls", "alter_scram_credentials", "authorized_offset")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    CREATE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ALTER_REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    ELECT_LEADERS_FIELD_NUMBER: _ClassVar[int]
    ALTER_CLUSTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FEATURES_FIELD_NUMBER: _ClassVar[int]
    UNREGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    ALTER_CLIENT_QUOTAS_FIELD_NUMBER: _ClassVar[int]
    ALTER_GROUP_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    CREATE_ACLS_FIELD_NUMBER: _ClassVar[int]
    DELETE_ACLS_FIELD_NUMBER: _ClassVar[int]
    ALTER_SCRAM_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    create_topic: _admin_pb2.CreateTopicRequest
    delete_topic: _admin_pb2.DeleteTopicRequest
    alter_configs: _admin_pb2.AlterConfigsRequest
    allocate_producer_ids: AllocateProducerIdsRequest
    create_partitions: _admin_pb2.CreatePartitionsRequest
    alter_reassignments: _admin_pb2.AlterReassignmentsRequest
    elect_leaders: _admin_pb2.ElectLeadersRequest
    alter_cluster_configs: _admin_pb2.AlterClusterConfigsRequest
    update_features: _admin_pb2.UpdateFeaturesRequest
    unregister_broker: _admin_pb2.UnregisterBrokerRequest
    alter_client_quotas: _admin_pb2.AlterClientQuotasRequest
    alter_group_configs: AlterGroupConfigsRequest
    create_acls: _admin_pb2.CreateAclsRequest
    delete_acls: _admin_pb2.DeleteAclsRequest
    alter_scram_credentials: _admin_pb2.AlterScramCredentialsRequest
    authorized_offset: int
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., create_topic: _Optional[_Union[_admin_pb2.CreateTopicRequest, _Mapping[str, object]]] = ..., delete_topic: _Optional[_Union[_admin_pb2.DeleteTopicRequest, _Mapping[str, object]]] = ..., alter_configs: _Optional[_Union[_admin_pb2.AlterConfigsRequest, _Mapping[str, object]]] = ..., allocate_producer_ids: _Optional[_Union[AllocateProducerIdsRequest, _Mapping[str, object]]] = ..., create_partitions: _Optional[_Union[_admin_pb2.CreatePartitionsRequest, _Mapping[str, object]]] = ..., alter_reassignments: _Optional[_Union[_admin_pb2.AlterReassignmentsRequest, _Mapping[str, object]]] = ..., elect_leaders: _Optional[_Union[_admin_pb2.ElectLeadersRequest, _Mapping[str, object]]] = ..., alter_cluster_configs: _Optional[_Union[_admin_pb2.AlterClusterConfigsRequest, _Mapping[str, object]]] = ..., update_features: _Optional[_Union[_admin_pb2.UpdateFeaturesRequest, _Mapping[str, object]]] = ..., unregister_broker: _Optional[_Union[_admin_pb2.UnregisterBrokerRequest, _Mapping[str, object]]] = ..., alter_client_quotas: _Optional[_Union[_admin_pb2.AlterClientQuotasRequest, _Mapping[str, object]]] = ..., alter_group_configs: _Optional[_Union[AlterGroupConfigsRequest, _Mapping[str, object]]] = ..., create_acls: _Optional[_Union[_admin_pb2.CreateAclsRequest, _Mapping[str, object]]] = ..., delete_acls: _Optional[_Union[_admin_pb2.DeleteAclsRequest, _Mapping[str, object]]] = ..., alter_scram_credentials: _Optional[_Union[_admin_pb2.AlterScramCredentialsRequest, _Mapping[str, object]]] = ..., authorized_offset: _Optional[int] = ...) -> None: ...

class RelayResponse(_message.Message):
    __slots__ = ("create_topic", "delete_topic", "alter_configs", "allocate_producer_ids", "create_partitions", "alter_reassignments", "elect_leaders", "alter_cluster_configs", "update_features", "unregister_broker", "alter_client_quotas", "alter_group_configs", "create_acls", "delete_acls", "alter_scram_credentials")
    CREATE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DELETE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ALTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    CREATE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ALTER_REASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    ELECT_LEADERS_FIELD_NUMBER: _ClassVar[int]
    ALTER_CLUSTER_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FEATURES_FIELD_NUMBER: _ClassVar[int]
    UNREGISTER_BROKER_FIELD_NUMBER: _ClassVar[int]
    ALTER_CLIENT_QUOTAS_FIELD_NUMBER: _ClassVar[int]
    ALTER_GROUP_CONFIGS_FIELD_NUMBER: _ClassVar[int]
    CREATE_ACLS_FIELD_NUMBER: _ClassVar[int]
    DELETE_ACLS_FIELD_NUMBER: _ClassVar[int]
    ALTER_SCRAM_CREDENTIALS_FIELD_NUMBER: _ClassVar[int]
    create_topic: _admin_pb2.CreateTopicResponse
    delete_topic: _admin_pb2.DeleteTopicResponse
    alter_configs: _admin_pb2.AlterConfigsResponse
    allocate_producer_ids: AllocateProducerIdsResponse
    create_partitions: _admin_pb2.CreatePartitionsResponse
    alter_reassignments: _admin_pb2.AlterReassignmentsResponse
    elect_leaders: _admin_pb2.ElectLeadersResponse
    alter_cluster_configs: _admin_pb2.AlterClusterConfigsResponse
    update_features: _admin_pb2.UpdateFeaturesResponse
    unregister_broker: _admin_pb2.UnregisterBrokerResponse
    alter_client_quotas: _admin_pb2.AlterClientQuotasResponse
    alter_group_configs: AlterGroupConfigsResponse
    create_acls: _admin_pb2.CreateAclsResponse
    delete_acls: _admin_pb2.DeleteAclsResponse
    alter_scram_credentials: _admin_pb2.AlterScramCredentialsResponse
    def __init__(self, create_topic: _Optional[_Union[_admin_pb2.CreateTopicResponse, _Mapping[str, object]]] = ..., delete_topic: _Optional[_Union[_admin_pb2.DeleteTopicResponse, _Mapping[str, object]]] = ..., alter_configs: _Optional[_Union[_admin_pb2.AlterConfigsResponse, _Mapping[str, object]]] = ..., allocate_producer_ids: _Optional[_Union[AllocateProducerIdsResponse, _Mapping[str, object]]] = ..., create_partitions: _Optional[_Union[_admin_pb2.CreatePartitionsResponse, _Mapping[str, object]]] = ..., alter_reassignments: _Optional[_Union[_admin_pb2.AlterReassignmentsResponse, _Mapping[str, object]]] = ..., elect_leaders: _Optional[_Union[_admin_pb2.ElectLeadersResponse, _Mapping[str, object]]] = ..., alter_cluster_configs: _Optional[_Union[_admin_pb2.AlterClusterConfigsResponse, _Mapping[str, object]]] = ..., update_features: _Optional[_Union[_admin_pb2.UpdateFeaturesResponse, _Mapping[str, object]]] = ..., unregister_broker: _Optional[_Union[_admin_pb2.UnregisterBrokerResponse, _Mapping[str, object]]] = ..., alter_client_quotas: _Optional[_Union[_admin_pb2.AlterClientQuotasResponse, _Mapping[str, object]]] = ..., alter_group_configs: _Optional[_Union[AlterGroupConfigsResponse, _Mapping[str, object]]] = ..., create_acls: _Optional[_Union[_admin_pb2.CreateAclsResponse, _Mapping[str, object]]] = ..., delete_acls: _Optional[_Union[_admin_pb2.DeleteAclsResponse, _Mapping[str, object]]] = ..., alter_scram_credentials: _Optional[_Union[_admin_pb2.AlterScramCredentialsResponse, _Mapping[str, object]]] = ...) -> None: ...

class AlterGroupConfigsRequest(_message.Message):
    __slots__ = ("group", "changes", "validate_only", "replace")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    group: str
    changes: _containers.RepeatedCompositeFieldContainer[_admin_pb2.ConfigChange]
    validate_only: bool
    replace: bool
    def __init__(self, group: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[_admin_pb2.ConfigChange, _Mapping[str, object]]]] = ..., validate_only: _Optional[bool] = ..., replace: _Optional[bool] = ...) -> None: ...

class AlterGroupConfigsResponse(_message.Message):
    __slots__ = ("configs", "metadata_offset")
    CONFIGS_FIELD_NUMBER: _ClassVar[int]
    METADATA_OFFSET_FIELD_NUMBER: _ClassVar[int]
    configs: _containers.RepeatedCompositeFieldContainer[_admin_pb2.ConfigEntry]
    metadata_offset: int
    def __init__(self, configs: _Optional[_Iterable[_Union[_admin_pb2.ConfigEntry, _Mapping[str, object]]]] = ..., metadata_offset: _Optional[int] = ...) -> None: ...

class AllocateProducerIdsRequest(_message.Message):
    __slots__ = ("broker_epoch", "producer_id_len")
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_LEN_FIELD_NUMBER: _ClassVar[int]
    broker_epoch: int
    producer_id_len: int
    def __init__(self, broker_epoch: _Optional[int] = ..., producer_id_len: _Optional[int] = ...) -> None: ...

class AllocateProducerIdsResponse(_message.Message):
    __slots__ = ("producer_id_start", "producer_id_len")
    PRODUCER_ID_START_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_LEN_FIELD_NUMBER: _ClassVar[int]
    producer_id_start: int
    producer_id_len: int
    def __init__(self, producer_id_start: _Optional[int] = ..., producer_id_len: _Optional[int] = ...) -> None: ...

class AlterPartitionsRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "broker_epoch", "partitions")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    broker_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[AlterPartition]
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[AlterPartition, _Mapping[str, object]]]] = ...) -> None: ...

class AlterPartition(_message.Message):
    __slots__ = ("topic_id", "partition", "leader_epoch", "partition_epoch", "isr", "recovered")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: _containers.RepeatedCompositeFieldContainer[IsrMember]
    recovered: bool
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[_Union[IsrMember, _Mapping[str, object]]]] = ..., recovered: _Optional[bool] = ...) -> None: ...

class IsrMember(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class AlterPartitionsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[AlterPartitionResult]
    def __init__(self, results: _Optional[_Iterable[_Union[AlterPartitionResult, _Mapping[str, object]]]] = ...) -> None: ...

class AlterPartitionResult(_message.Message):
    __slots__ = ("topic_id", "partition", "error", "leader", "leader_epoch", "isr", "partition_epoch")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    error: _errors_pb2.Error
    leader: int
    leader_epoch: int
    isr: _containers.RepeatedScalarFieldContainer[int]
    partition_epoch: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[int]] = ..., partition_epoch: _Optional[int] = ...) -> None: ...
