from . import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GroupPartition(_message.Message):
    __slots__ = ("topic", "partition", "topic_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    topic_id: bytes
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class GroupPartitions(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[GroupPartition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[GroupPartition, _Mapping[str, object]]]] = ...) -> None: ...

class GroupSubscription(_message.Message):
    __slots__ = ("topics", "pattern")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    pattern: str
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., pattern: _Optional[str] = ...) -> None: ...

class GroupHeartbeatRequest(_message.Message):
    __slots__ = ("group", "member_id", "member_epoch", "instance_id", "rack", "subscription", "owned", "assignor", "rebalance_timeout_ms", "client_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    member_epoch: int
    instance_id: str
    rack: str
    subscription: GroupSubscription
    owned: GroupPartitions
    assignor: str
    rebalance_timeout_ms: int
    client_id: str
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., instance_id: _Optional[str] = ..., rack: _Optional[str] = ..., subscription: _Optional[_Union[GroupSubscription, _Mapping[str, object]]] = ..., owned: _Optional[_Union[GroupPartitions, _Mapping[str, object]]] = ..., assignor: _Optional[str] = ..., rebalance_timeout_ms: _Optional[int] = ..., client_id: _Optional[str] = ...) -> None: ...

class GroupHeartbeatResponse(_message.Message):
    __slots__ = ("member_epoch", "heartbeat_interval_ms", "assignment", "session_timeout_ms")
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: GroupPartitions
    session_timeout_ms: int
    def __init__(self, member_epoch: _Optional[int] = ..., heartbeat_interval_ms: _Optional[int] = ..., assignment: _Optional[_Union[GroupPartitions, _Mapping[str, object]]] = ..., session_timeout_ms: _Optional[int] = ...) -> None: ...

class CommittedOffset(_message.Message):
    __slots__ = ("topic", "partition", "offset", "leader_epoch", "note", "topic_id", "commit_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    note: str
    topic_id: bytes
    commit_ms: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., note: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., commit_ms: _Optional[int] = ...) -> None: ...

class CommitOffsetsRequest(_message.Message):
    __slots__ = ("group", "member_id", "member_epoch", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: str
    member_epoch: int
    offsets: _containers.RepeatedCompositeFieldContainer[CommittedOffset]
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[CommittedOffset, _Mapping[str, object]]]] = ...) -> None: ...

class CommitOffsetsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[OffsetResult]
    def __init__(self, results: _Optional[_Iterable[_Union[OffsetResult, _Mapping[str, object]]]] = ...) -> None: ...

class OffsetResult(_message.Message):
    __slots__ = ("offset", "error")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    offset: CommittedOffset
    error: _errors_pb2.Error
    def __init__(self, offset: _Optional[_Union[CommittedOffset, _Mapping[str, object]]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class FetchOffsetsRequest(_message.Message):
    __slots__ = ("group", "partitions", "require_stable", "member_id", "member_epoch")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_STABLE_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    group: str
    partitions: _containers.RepeatedCompositeFieldContainer[GroupPartition]
    require_stable: bool
    member_id: str
    member_epoch: int
    def __init__(self, group: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[GroupPartition, _Mapping[str, object]]]] = ..., require_stable: _Optional[bool] = ..., member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ...) -> None: ...

class FetchOffsetsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[OffsetResult]
    def __init__(self, results: _Optional[_Iterable[_Union[OffsetResult, _Mapping[str, object]]]] = ...) -> None: ...

class DeleteOffsetsRequest(_message.Message):
    __slots__ = ("group", "partitions")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    group: str
    partitions: _containers.RepeatedCompositeFieldContainer[GroupPartition]
    def __init__(self, group: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[GroupPartition, _Mapping[str, object]]]] = ...) -> None: ...

class DeleteOffsetsResponse(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_errors_pb2.Error]
    def __init__(self, errors: _Optional[_Iterable[_Union[_errors_pb2.Error, _Mapping[str, object]]]] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("states", "types")
    STATES_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[str]
    types: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, states: _Optional[_Iterable[str]] = ..., types: _Optional[_Iterable[str]] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups", "errors")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupListing]
    errors: _containers.RepeatedCompositeFieldContainer[_errors_pb2.Error]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupListing, _Mapping[str, object]]]] = ..., errors: _Optional[_Iterable[_Union[_errors_pb2.Error, _Mapping[str, object]]]] = ...) -> None: ...

class GroupListing(_message.Message):
    __slots__ = ("group", "type", "state", "protocol_type", "coordinator")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    group: str
    type: str
    state: str
    protocol_type: str
    coordinator: int
    def __init__(self, group: _Optional[str] = ..., type: _Optional[str] = ..., state: _Optional[str] = ..., protocol_type: _Optional[str] = ..., coordinator: _Optional[int] = ...) -> None: ...

class DescribeGroupsRequest(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, groups: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupDescription]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupDescription, _Mapping[str, object]]]] = ...) -> None: ...

class GroupDescription(_message.Message):
    __slots__ = ("listing", "group_epoch", "members", "error", "target_epoch", "assignor")
    LISTING_FIELD_NUMBER: _ClassVar[int]
    GROUP_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TARGET_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    listing: GroupListing
    group_epoch: int
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    error: _errors_pb2.Error
    target_epoch: int
    assignor: str
    def __init__(self, listing: _Optional[_Union[GroupListing, _Mapping[str, object]]] = ..., group_epoch: _Optional[int] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping[str, object]]]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ..., target_epoch: _Optional[int] = ..., assignor: _Optional[str] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "member_epoch", "host", "owned", "target", "client_id", "rack", "subscription", "is_classic", "silent_ms")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    IS_CLASSIC_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    member_epoch: int
    host: str
    owned: _containers.RepeatedCompositeFieldContainer[GroupPartition]
    target: _containers.RepeatedCompositeFieldContainer[GroupPartition]
    client_id: str
    rack: str
    subscription: GroupSubscription
    is_classic: bool
    silent_ms: int
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., host: _Optional[str] = ..., owned: _Optional[_Iterable[_Union[GroupPartition, _Mapping[str, object]]]] = ..., target: _Optional[_Iterable[_Union[GroupPartition, _Mapping[str, object]]]] = ..., client_id: _Optional[str] = ..., rack: _Optional[str] = ..., subscription: _Optional[_Union[GroupSubscription, _Mapping[str, object]]] = ..., is_classic: _Optional[bool] = ..., silent_ms: _Optional[int] = ...) -> None: ...

class DeleteGroupsRequest(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, groups: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteGroupsResponse(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[_errors_pb2.Error]
    def __init__(self, errors: _Optional[_Iterable[_Union[_errors_pb2.Error, _Mapping[str, object]]]] = ...) -> None: ...
