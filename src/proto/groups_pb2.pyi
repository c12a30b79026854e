from . import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GroupPartition(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class GroupHeartbeatRequest(_message.Message):
    __slots__ = ("group", "member_id", "member_epoch", "instance_id", "rack", "topics", "topic_pattern", "owned", "assignor", "rebalance_timeout_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PATTERN_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: bytes
    member_epoch: int
    instance_id: str
    rack: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    topic_pattern: str
    owned: _containers.RepeatedCompositeFieldContainer[GroupPartition]
    assignor: str
    rebalance_timeout_ms: int
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[bytes] = ..., member_epoch: _Optional[int] = ..., instance_id: _Optional[str] = ..., rack: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., topic_pattern: _Optional[str] = ..., owned: _Optional[_Iterable[_Union[GroupPartition, _Mapping[str, object]]]] = ..., assignor: _Optional[str] = ..., rebalance_timeout_ms: _Optional[int] = ...) -> None: ...

class GroupHeartbeatResponse(_message.Message):
    __slots__ = ("member_epoch", "heartbeat_interval_ms", "assigned", "assignment")
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    member_epoch: int
    heartbeat_interval_ms: int
    assigned: bool
    assignment: _containers.RepeatedCompositeFieldContainer[GroupPartition]
    def __init__(self, member_epoch: _Optional[int] = ..., heartbeat_interval_ms: _Optional[int] = ..., assigned: _Optional[bool] = ..., assignment: _Optional[_Iterable[_Union[GroupPartition, _Mapping[str, object]]]] = ...) -> None: ...

class CommittedOffset(_message.Message):
    __slots__ = ("topic", "partition", "offset", "leader_epoch", "note")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    note: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., note: _Optional[str] = ...) -> None: ...

class CommitOffsetsRequest(_message.Message):
    __slots__ = ("group", "member_id", "member_epoch", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    member_id: bytes
    member_epoch: int
    offsets: _containers.RepeatedCompositeFieldContainer[CommittedOffset]
    def __init__(self, group: _Optional[str] = ..., member_id: _Optional[bytes] = ..., member_epoch: _Optional[int] = ..., offsets: _Optional[_Iterable[_Union[CommittedOffset, _Mapping[str, object]]]] = ...) -> None: ...

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
    __slots__ = ("group", "partitions", "require_stable")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_STABLE_FIELD_NUMBER: _ClassVar[int]
    group: str
    partitions: _containers.RepeatedCompositeFieldContainer[GroupPartition]
    require_stable: bool
    def __init__(self, group: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[GroupPartition, _Mapping[str, object]]]] = ..., require_stable: _Optional[bool] = ...) -> None: ...

class FetchOffsetsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[OffsetResult]
    def __init__(self, results: _Optional[_Iterable[_Union[OffsetResult, _Mapping[str, object]]]] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("states",)
    STATES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, states: _Optional[_Iterable[str]] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupListing]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupListing, _Mapping[str, object]]]] = ...) -> None: ...

class GroupListing(_message.Message):
    __slots__ = ("group", "type", "state")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    group: str
    type: str
    state: str
    def __init__(self, group: _Optional[str] = ..., type: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("listing", "group_epoch", "members", "error")
    LISTING_FIELD_NUMBER: _ClassVar[int]
    GROUP_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    listing: GroupListing
    group_epoch: int
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    error: _errors_pb2.Error
    def __init__(self, listing: _Optional[_Union[GroupListing, _Mapping[str, object]]] = ..., group_epoch: _Optional[int] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping[str, object]]]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "member_epoch", "peer", "owned", "target")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    member_id: bytes
    instance_id: str
    member_epoch: int
    peer: str
    owned: _containers.RepeatedCompositeFieldContainer[GroupPartition]
    target: _containers.RepeatedCompositeFieldContainer[GroupPartition]
    def __init__(self, member_id: _Optional[bytes] = ..., instance_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., peer: _Optional[str] = ..., owned: _Optional[_Iterable[_Union[GroupPartition, _Mapping[str, object]]]] = ..., target: _Optional[_Iterable[_Union[GroupPartition, _Mapping[str, object]]]] = ...) -> None: ...

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
